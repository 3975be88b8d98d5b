//! Directory of the server's files, or a temporary directory if it cannot be written.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use atomic_file::Access;

use crate::failure::{Failure, Result};

/// Number of bytes that a writable directory has space for: a small file or two.
const NEEDED: usize = 8192;

/// Returns `directory`, which is created if it is missing. If it cannot be written, returns a
/// temporary directory.
///
/// # Errors
/// The temporary directory cannot be written, or belongs to another user.
pub(crate) fn writable_or_temporary(directory: PathBuf) -> Result<PathBuf> {
    let Err(error) = try_to_write(&directory) else { return Ok(directory) };
    let temporary = temporary();
    prepare(&temporary).map_err(|why| {
        let what = anyhow!(
            "cannot write in {}: {error}; and not in {}: {why}",
            directory.display(),
            temporary.display()
        );
        Failure::failed(what).hint(
            "name a directory that belongs to the server's user with --data, or with TURNPIKE_DATA",
        )
    })?;
    Ok(temporary)
}

/// Returns a warning if the directory is the temporary directory.
pub(crate) fn warning(directory: &Path) -> Option<String> {
    (directory == temporary()).then(|| {
        format!(
            "The server's own directory cannot be written: users, tokens and revocations are in {} and may be lost at the next boot. \
             Commands need --data {0}.",
            directory.display()
        )
    })
}

/// Returns the path of the user's temporary directory. The successor of the process finds the same
/// path.
fn temporary() -> PathBuf {
    std::env::temp_dir().join(format!("turnpike-{}", rustix::process::geteuid().as_raw()))
}

/// Creates the temporary directory. A directory that belongs to another user, or that others can
/// access, is refused. Every user can create a directory with this name.
fn prepare(directory: &Path) -> io::Result<()> {
    atomic_file::make_missing_directory(directory, Access::PRIVATE_DIRECTORY)?;
    let found = fs::symlink_metadata(directory)?;
    let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if !is_own || found.mode() & 0o077 != 0 {
        return Err(io::Error::other("others may use it, too"));
    }
    try_to_write(directory)
}

/// Writes a file and removes it. Only a write detects a full disk.
fn try_to_write(directory: &Path) -> io::Result<()> {
    atomic_file::make_missing_directory(directory, Access::PRIVATE_DIRECTORY)?;
    let path = directory.join(format!(".try-{:x}", std::process::id()));
    // A predecessor with this process id may have died before the removal.
    let _ = fs::remove_file(&path);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
    let written = file.write_all(&[0; NEEDED]).and_then(|()| file.sync_data());
    fs::remove_file(&path)?;
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::testing::Directory;

    #[test]
    fn a_directory_that_can_be_written_is_taken() {
        let directory = Directory::new("data");
        let wanted = directory.path().join("own");
        assert_eq!(writable_or_temporary(wanted.clone()).unwrap(), wanted);
        // A process with this id died during the check, as happens in containers.
        fs::write(wanted.join(format!(".try-{:x}", std::process::id())), "").unwrap();
        assert_eq!(writable_or_temporary(wanted.clone()).unwrap(), wanted);
        assert_eq!(fs::read_dir(&wanted).unwrap().count(), 0, "nothing is left");
        assert_eq!(warning(&wanted), None);
    }

    #[test]
    fn of_one_that_cannot_a_temporary_one_takes_the_place() {
        let found = writable_or_temporary("/proc/nothing".into()).unwrap();
        assert_eq!(found, temporary());
        assert_eq!(fs::metadata(&found).unwrap().mode() & 0o777, 0o700);
        assert!(warning(&found).unwrap().contains("--data"));
    }

    #[test]
    fn a_temporary_directory_that_others_may_enter_is_not_taken() {
        let directory = Directory::new("shared");
        fs::create_dir_all(directory.path()).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(prepare(directory.path()).unwrap_err().to_string().contains("others"));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/root", &link).unwrap();
        assert!(prepare(&link).is_err());
    }
}
