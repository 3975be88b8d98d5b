//! Work of root in a directory of another user, for libraries that open files by their path.

use std::io;
use std::path::Path;

use rustix::fs::{Gid, Stat, Uid, fstat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::path::{is_trusted, open_directory};

/// Does work that opens files of a directory by their path. If the process is root's and the
/// directory is another user's, the thread does the work as that user, who could otherwise lead
/// root to any file of the host.
///
/// A confined server may not change its user. It works as root then, and [`others_may_name_files`]
/// tells callers to look at the files first.
///
/// # Errors
/// There is no such directory, another user could have made a link on the way to it, or the system
/// refuses.
pub fn as_owner_of<T>(directory: &Path, work: impl FnOnce() -> T) -> io::Result<T> {
    if !geteuid().is_root() {
        return Ok(work());
    }
    let Stat { st_uid, st_gid, .. } = fstat(open_directory(directory)?)?;
    if st_uid == 0 {
        return Ok(work());
    }
    let _root_afterwards = Root::remember()?;
    match become_other(Uid::from_raw(st_uid), Gid::from_raw(st_gid)) {
        // A number that the user namespace does not have is invalid.
        Ok(()) | Err(Errno::PERM | Errno::INVAL) => Ok(work()),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if the process is root's, and another user can make names in the directory.
///
/// # Errors
/// As [`as_owner_of`].
pub fn others_may_name_files(directory: &Path) -> io::Result<bool> {
    Ok(geteuid().is_root() && !is_trusted(open_directory(directory)?)?)
}

/// Changes the thread's effective user and its groups. The real and the saved user stay root's: the
/// other user may neither stop nor trace the thread, and it can go back.
fn become_other(user: Uid, group: Gid) -> Result<(), Errno> {
    set_thread_groups(&[])?;
    set_thread_res_gid(None, group, Gid::ROOT)?;
    set_thread_res_uid(None, user, Uid::ROOT)
}

/// Groups of root, to which the thread returns on drop.
struct Root {
    groups: Vec<Gid>,
    group: Gid,
}

impl Root {
    fn remember() -> Result<Self, Errno> {
        Ok(Self { groups: getgroups()?, group: getegid() })
    }
}

impl Drop for Root {
    /// A step that the system refuses leaves the thread with fewer rights than root's.
    fn drop(&mut self) {
        let _ = set_thread_res_uid(None, Uid::ROOT, None)
            .and_then(|()| set_thread_res_gid(None, self.group, None))
            .and_then(|()| set_thread_groups(&self.groups));
    }
}
