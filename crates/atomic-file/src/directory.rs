//! The open directory of a file, and the mode and owner of new files.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{
    Gid, Mode, OFlags, PROC_SUPER_MAGIC, RawMode, Stat, Uid, fchmod, fchown, fstat, fstatfs,
    mkdirat, openat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::path::{is_trusted, open_directory};

/// Owner of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// User and group of the process.
    Process,
    /// User and group of the directory, if the process is root's and the directory is not.
    /// Commands of root write files for a server that runs as another user.
    Directory,
    /// User of the process, and group by id.
    Group(u32),
    /// User and group by id.
    User(u32, u32),
}

/// Mode and owner of a new file. The process's umask has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub owner: Owner,
}

impl Access {
    /// Mode 0600, for the user of the process.
    pub const PRIVATE: Self = Self { mode: MODE_NEW, owner: Owner::Process };

    /// The same for a directory: mode 0700.
    pub const PRIVATE_DIRECTORY: Self = Self { mode: MODE_PRIVATE, owner: Owner::Process };
}

/// Mode of a file until its owner is set.
const MODE_NEW: RawMode = 0o600;

/// Mode of a missing directory above a new one.
const MODE_ABOVE: RawMode = 0o755;

/// Mode of a directory until its owner is set.
const MODE_PRIVATE: RawMode = 0o700;

/// The open directory of a file, and the file's name in it.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    pub(crate) name: OsString,
}

impl Directory {
    /// Opens the directory of a path (see [`open_directory`]).
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let name = path.file_name().map(OsStr::to_owned).ok_or(Errno::ISDIR)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new("."));
        Ok(Self { fd: open_directory(parent)?, name })
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, name: self.name.clone() })
    }

    pub(crate) const fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Creates a file with this mode and owner.
    pub(crate) fn create(&self, name: &OsStr, access: Access, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.fd, name, flags, Mode::from_raw_mode(MODE_NEW))?;
        match self.own(&file, access.owner).and_then(|()| chmod(&file, access.mode)) {
            Ok(()) => Ok(file.into()),
            Err(error) => {
                self.remove(name);
                Err(error.into())
            }
        }
    }

    /// Opens an existing file. A symbolic link of this name is an error, and a pipe does not block.
    pub(crate) fn open(&self, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.fd, &self.name, flags, Mode::empty())?.into())
    }

    /// Opens an existing file, through symbolic links. A pipe does not block.
    pub(crate) fn follow(&self, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(openat(&self.fd, &self.name, flags, Mode::empty())?.into())
    }

    /// Returns true if only root or the user of the process can create names in the directory.
    pub(crate) fn is_trusted(&self) -> io::Result<bool> {
        is_trusted(&self.fd)
    }

    /// Returns true for a directory of `/proc`.
    pub(crate) fn is_of_kernel(&self) -> io::Result<bool> {
        Ok(fstatfs(&self.fd)?.f_type == PROC_SUPER_MAGIC)
    }

    /// Sets the owner of a file.
    pub(crate) fn own(&self, file: &OwnedFd, owner: Owner) -> Result<(), Errno> {
        let (user, group) = match owner {
            Owner::Process => return Ok(()),
            Owner::Directory => {
                let Stat { st_uid, st_gid, .. } = fstat(&self.fd)?;
                if !geteuid().is_root() || st_uid == 0 {
                    return Ok(());
                }
                (Some(st_uid), Some(st_gid))
            }
            Owner::Group(group) => (None, Some(group)),
            Owner::User(user, group) => (Some(user), Some(group)),
        };
        fchown(file, user.map(Uid::from_raw), group.map(Gid::from_raw))
    }

    /// Removes a file that this process has made.
    pub(crate) fn remove(&self, name: &OsStr) {
        // Callers report the earlier error.
        let _ = rustix::fs::unlinkat(&self.fd, name, rustix::fs::AtFlags::empty());
    }

    /// Waits until the directory's names are on the disk. Does nothing if the process may not list
    /// the directory, or the file system cannot wait.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = match openat(&self.fd, ".", flags, Mode::empty()) {
            Err(Errno::ACCESS) => return Ok(()),
            opened => opened?,
        };
        match rustix::fs::fsync(listed) {
            Err(Errno::INVAL) => Ok(()),
            synced => Ok(synced?),
        }
    }
}

/// Creates a directory with this mode and owner, and missing directories above with mode 0755.
///
/// # Errors
/// The name exists, or the system refuses.
pub fn make_directory(path: &Path, access: Access) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !parent.exists()) {
        let access = Access { mode: MODE_ABOVE, owner: Owner::Process };
        match make_directory(parent, access) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    let above = Directory::of(path)?;
    mkdirat(&above.fd, &above.name, Mode::from_raw_mode(MODE_PRIVATE))?;
    let made: OwnedFd = above.open(OFlags::RDONLY | OFlags::DIRECTORY)?.into();
    // A user who may write to the directory above may have exchanged the new directory.
    if fstat(&made)?.st_uid != geteuid().as_raw() {
        return Err(Errno::EXIST.into());
    }
    above.own(&made, access.owner)?;
    if access.mode != MODE_PRIVATE {
        fchmod(&made, Mode::from_raw_mode(access.mode))?;
    }
    Ok(())
}

/// Creates a directory as [`make_directory`] does, unless the directory exists.
///
/// # Errors
/// A file has the name, or the system refuses; or the process has the rights of root, and another
/// user could have made a link on the way to the directory.
pub fn make_missing_directory(path: &Path, access: Access) -> io::Result<()> {
    if path.is_dir() {
        return open_directory(path).map(drop);
    }
    match make_directory(path, access) {
        // Another process was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

fn chmod(file: &OwnedFd, mode: u32) -> Result<(), Errno> {
    // Root without CAP_FOWNER may not set the mode of a file that belongs to another user.
    if mode == MODE_NEW {
        return Ok(());
    }
    fchmod(file, Mode::from_raw_mode(mode))
}
