//! Creation of new configurations and their secrets. Existing files are not replaced, and either
//! all files are written or none.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use atomic_file::{Access, Owner};

use crate::failure::{Failure, Result};

/// Mode of a configuration file: readable by the server's group.
const CONFIGURATION: u32 = 0o640;

/// Mode of a secret. In a directory of the server's group, a secret has the mode of a
/// configuration.
const SECRET: u32 = 0o600;

/// File to create.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    content: Vec<u8>,
    is_secret: bool,
}

impl NewFile {
    /// Creates a configuration file.
    pub(crate) fn configuration(path: &Path, text: String) -> Self {
        Self { path: path.to_owned(), content: text.into_bytes(), is_secret: false }
    }

    /// Creates a file with a secret, followed by a line break.
    pub(crate) fn secret(path: &Path, secret: &[u8]) -> Self {
        let content = [secret, b"\n"].concat();
        Self { path: path.to_owned(), content, is_secret: true }
    }
}

/// Writes all files. After an error, the files written so far are removed.
pub(crate) fn write(files: &[NewFile]) -> Result<()> {
    for NewFile { path, is_secret, .. } in files {
        // A symbolic link without a target exists, too.
        if fs::symlink_metadata(path).is_ok() {
            let hint = if *is_secret {
                "a new secret would be written there: move this one away; nothing was written"
            } else {
                "move it away, or name a new file with --output; nothing was written"
            };
            return Err(Failure::usage(anyhow!("{} exists", path.display())).hint(hint));
        }
    }
    for (index, file) in files.iter().enumerate() {
        if let Err(error) = create(file) {
            for written in &files[..index] {
                let _ = fs::remove_file(&written.path);
            }
            return Err(Failure::failed(anyhow!("cannot write {}: {error}", file.path.display()))
                .hint("name a file in a directory that exists and belongs to you with --output"));
        }
    }
    Ok(())
}

fn create(NewFile { path, content, is_secret }: &NewFile) -> io::Result<()> {
    let access = match group_of_service(path) {
        Some(group) => Access { mode: CONFIGURATION, owner: Owner::Group(group) },
        None if *is_secret => Access { mode: SECRET, owner: Owner::Process },
        None => Access { mode: CONFIGURATION, owner: Owner::Process },
    };
    atomic_file::create(path, content, access)
}

/// Configuration of the control socket of a packaged service, whose operators share a group.
pub(crate) const CONTROL_OF_SERVICE: &str = "\n[control]\n# Members of the group may use turnpike status and all other commands.\n\
     socket = \"/run/turnpike/control.sock\"\ngroup = \"turnpike\"\n";

/// Returns the service's group for a file in this directory. A package assigns the group to the
/// directory, such as `/etc/turnpike`, which root owns. Returns `None` for users other than root,
/// who run servers under their own account.
pub(crate) fn group_of_service(path: &Path) -> Option<u32> {
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let directory = fs::metadata(path.parent()?).ok()?;
    (root && directory.uid() == 0 && directory.gid() != 0).then(|| directory.gid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;
    use crate::testing::Directory;

    #[test]
    fn an_error_takes_back_the_files_before_it() {
        let directory = Directory::new("new-files");
        let secret = NewFile::secret(&directory.path().join("secret"), b"s");
        let file =
            NewFile::configuration(&directory.path().join("none/turnpike.toml"), String::new());
        assert!(write(&[secret, file]).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_service_reads_the_files_that_root_makes_in_its_directory() {
        let directory = Directory::new("shared");
        let path = directory.path().join("secret");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        write(&[NewFile::secret(&path, b"s")]).unwrap();
        assert_eq!((mode(), group_of_service(&path)), (SECRET, None));
        fs::remove_file(&path).unwrap();
        // Only root can assign another group to a directory.
        if chown(directory.path(), None, Some(12_345)).is_ok() {
            write(&[NewFile::secret(&path, b"s")]).unwrap();
            assert_eq!((mode(), fs::metadata(&path).unwrap().gid()), (CONFIGURATION, 12_345));
        }
    }
}
