//! Removal of temporary files that killed processes have left.
//!
//! A writer holds a lock on its temporary file until the rename, and the kernel releases the lock
//! at the end of the process. A file is removed only if it is also old: a writer has no lock
//! between two system calls, and writers of earlier versions have none.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat,
};
use rustix::process::geteuid;

use crate::directory::Directory;

/// Minimum age of an abandoned file in seconds, by the clock of the file system. A writer takes
/// milliseconds, and minutes on a failing disk.
const AGE_MIN: i64 = 3600;

/// Maximum number of names in the directory that one sweep reads: some milliseconds. A directory of
/// the server has a few.
const NAMES_MAX: usize = 4096;

/// Locks a temporary file for the process. Some file systems have no locks: their files remain.
pub(crate) fn lock(file: &File) {
    let _ = flock(file, FlockOperation::NonBlockingLockExclusive);
}

/// Releases the lock. The caller may use other locks on the renamed file.
pub(crate) fn unlock(file: &File) {
    let _ = flock(file, FlockOperation::NonBlockingUnlock);
}

/// Removes abandoned temporary files of the directory's file. `new` is the file of this writer.
/// Errors are ignored: the next writer tries again.
pub(crate) fn sweep(directory: &Directory, new: &File, is_temporary: fn(&OsStr, &[u8]) -> bool) {
    let Ok(now) = new.metadata().map(|metadata| metadata.mtime()) else { return };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listed) = openat(directory.fd(), ".", flags, Mode::empty()) else { return };
    let Ok(names) = Dir::new(listed) else { return };
    for name in names.take(NAMES_MAX).map_while(Result::ok) {
        let name = name.file_name().to_bytes();
        if is_temporary(&directory.name, name) {
            remove_abandoned(directory, OsStr::from_bytes(name), now);
        }
    }
}

fn remove_abandoned(directory: &Directory, name: &OsStr, now: i64) {
    // A name may belong to a pipe or link that another user has made.
    let Ok(found) = statat(directory.fd(), name, AtFlags::SYMLINK_NOFOLLOW) else { return };
    let is_regular = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    if !is_regular || now.saturating_sub(found.st_mtime) < AGE_MIN {
        return;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(directory.fd(), name, flags, Mode::empty()) else { return };
    let is_same = fstat(&file).is_ok_and(|open| {
        (open.st_dev, open.st_ino) == (found.st_dev, found.st_ino)
            && (geteuid().is_root() || open.st_uid == geteuid().as_raw())
    });
    if is_same && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _ = unlinkat(directory.fd(), name, AtFlags::empty());
    }
}
