//! Work of root in a directory of another user, for libraries that open files by their path.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Stat, Uid, fstat, statat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::directory::Directory;
use crate::privilege::{LaidDown, is_privileged};

/// The user who could lead root to other files when a library opens a file by its path.
#[derive(Clone, Copy, Debug)]
pub struct FileOwner(Option<(Uid, Gid)>);

/// The time for which the calling thread is the owner of a file. It must end in the same thread.
#[must_use]
#[derive(Debug)]
pub struct ActingAsOwner {
    _afterwards: Afterwards,
}

/// Rights that the thread has again on drop.
#[derive(Debug)]
enum Afterwards {
    Same,
    Root { _rights: Root },
    Capabilities { _rights: LaidDown },
}

impl FileOwner {
    /// The owner of the directory of a file, if the process has the rights of root and the
    /// directory is another user's. In a directory of root's to which others may write it is the
    /// owner of the file. The file may be missing.
    ///
    /// # Errors
    /// There is no such directory, another user could have made a link on the way to it, or the
    /// system refuses.
    pub fn of(path: &Path) -> io::Result<Self> {
        if !is_privileged() {
            return Ok(Self(None));
        }
        let directory = Directory::of(path)?;
        let mut owner = fstat(directory.fd())?;
        if owner.st_uid == 0 && !directory.is_trusted()? {
            match statat(directory.fd(), &directory.name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                file => owner = file?,
            }
        }
        let Stat { st_uid, st_gid, .. } = owner;
        Ok(Self((st_uid != 0).then(|| (Uid::from_raw(st_uid), Gid::from_raw(st_gid)))))
    }

    /// Switches the thread to that user until the result is dropped. A thread of another user than
    /// root lays its capabilities down.
    ///
    /// A confined server may not change its user, and remains root: [`others_may_name_files`] tells
    /// callers to check the files first.
    ///
    /// # Errors
    /// The system refuses.
    pub fn act(self) -> io::Result<ActingAsOwner> {
        let Some((user, group)) = self.0 else {
            return Ok(ActingAsOwner { _afterwards: Afterwards::Same });
        };
        if !geteuid().is_root() {
            let laid_down = Afterwards::Capabilities { _rights: LaidDown::new()? };
            return Ok(ActingAsOwner { _afterwards: laid_down });
        }
        let root = Root { groups: getgroups()?, group: getegid() };
        match become_other(user, group) {
            // A number that the user namespace does not have is invalid.
            Ok(()) | Err(Errno::PERM | Errno::INVAL) => {
                Ok(ActingAsOwner { _afterwards: Afterwards::Root { _rights: root } })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns true if the process has the rights of root, and another user can make names in the
/// directory of a file.
///
/// # Errors
/// The errors of [`FileOwner::of`].
pub fn others_may_name_files(path: &Path) -> io::Result<bool> {
    Ok(is_privileged() && !Directory::of(path)?.is_trusted()?)
}

/// Changes the thread's effective user and its groups. The real and the saved user stay root's: the
/// other user may neither stop nor trace the thread, and it can go back.
fn become_other(user: Uid, group: Gid) -> Result<(), Errno> {
    set_thread_groups(&[])?;
    set_thread_res_gid(None, group, Gid::ROOT)?;
    set_thread_res_uid(None, user, Uid::ROOT)
}

/// Groups of root, to which the thread returns on drop.
#[derive(Debug)]
struct Root {
    groups: Vec<Gid>,
    group: Gid,
}

impl Drop for Root {
    /// If the system refuses a step, the thread has fewer rights than root.
    fn drop(&mut self) {
        let _ = set_thread_res_uid(None, Uid::ROOT, None)
            .and_then(|()| set_thread_res_gid(None, self.group, None))
            .and_then(|()| set_thread_groups(&self.groups));
    }
}
