//! The way to a directory. Root follows no symbolic link that another user could have made.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, Uid, fstat, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::privilege::is_privileged;

/// Permissions of a directory in which others than its owner make files.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Maximum number of symbolic links on the way, as in the kernel.
pub(crate) const LINKS_MAX: u32 = 40;

const PATH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Opens a directory. A process with the rights of root follows symbolic links in trusted
/// directories only: any other user could lead it to a directory that this user may not write to.
///
/// # Errors
/// The system refuses, or another user could have made a link.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    if is_privileged() {
        return walk(&std::path::absolute(path)?);
    }
    Ok(openat(CWD, path, PATH | OFlags::DIRECTORY, Mode::empty())?)
}

/// Returns true if only root can create names in the directory, or the user of a process that has
/// no further rights.
pub(crate) fn is_trusted(directory: impl AsFd) -> io::Result<bool> {
    let Stat { st_uid, st_mode, .. } = fstat(directory)?;
    let owner = Uid::from_raw(st_uid);
    let is_own = || owner == geteuid() && !is_privileged();
    Ok((owner.is_root() || is_own()) && st_mode & WRITABLE_BY_OTHERS == 0)
}

/// Opens the directory of an absolute path one name after the other. From the first directory that
/// is not trusted no link is followed.
fn walk(path: &Path) -> io::Result<OwnedFd> {
    let mut names = names(path);
    let (mut at, mut reached) = (openat(CWD, "/", PATH, Mode::empty())?, PathBuf::from("/"));
    let (mut foreign, mut links) = (None, 0);
    while let Some(name) = names.pop_front() {
        if foreign.is_none() && !is_trusted(&at)? {
            foreign = Some(reached.clone());
        }
        let next = openat(&at, &name, PATH | OFlags::NOFOLLOW, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&next)?.st_mode) != FileType::Symlink {
            at = next;
            reached.push(name);
            continue;
        }
        if let Some(foreign) = foreign {
            return Err(followed(&reached.join(name), &foreign));
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let target = readlinkat(&next, "", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            (at, reached) = (openat(CWD, "/", PATH, Mode::empty())?, PathBuf::from("/"));
        }
        self::names(&target).into_iter().rev().for_each(|name| names.push_front(name));
    }
    if FileType::from_raw_mode(fstat(&at)?.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR.into());
    }
    Ok(at)
}

/// The target of a symbolic link.
pub(crate) fn target(link: &Path) -> io::Result<PathBuf> {
    let target = fs::read_link(link)?;
    Ok(link.parent().map_or_else(|| target.clone(), |directory| directory.join(&target)))
}

/// Returns true for an error of the system with this number.
pub(crate) fn is_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// The names of a path below its root, `..` included.
fn names(path: &Path) -> VecDeque<OsString> {
    let is_name =
        |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_name).map(|part| part.as_os_str().to_owned()).collect()
}

fn followed(link: &Path, foreign: &Path) -> io::Error {
    let [link, foreign] = [link.display(), foreign.display()];
    let what = format!(
        "{link} is a symbolic link, and other users than root may write to {foreign}: give the path without the link"
    );
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}
