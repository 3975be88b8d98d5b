//! Files that are written under a temporary name and then renamed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, OFlags, RenameFlags, linkat, renameat, renameat_with};
use rustix::io::Errno;

use crate::directory::{Access, Directory};
use crate::sweep::{lock, sweep, unlock};

/// Maximum bytes of a final name in a temporary name. Linux allows names of 255 bytes (NAME_MAX).
const NAME_PART_BYTES_MAX: usize = 200;

/// Maximum attempts to find an unused temporary name. A random name is in use once in 2^64 files.
const ATTEMPTS: usize = 4;

/// Replaces a file. A crash keeps either the previous content or the new content. The new content
/// is on the disk when the function returns.
///
/// # Errors
/// The system refuses; the previous file remains.
pub fn replace(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let mut file = NewFile::open(path, access)?;
    file.write_all(bytes)?;
    file.replace().map(drop)
}

/// Creates a file. A crash creates no incomplete file.
///
/// # Errors
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists): a file, directory or symbolic link has this
/// name. Other errors: the system refuses. After an error there is no new file.
pub fn create(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let mut file = NewFile::open(path, access)?;
    file.write_all(bytes)?;
    file.create().map(drop)
}

/// File under a temporary name. Dropping the value removes the file.
#[derive(Debug)]
pub struct NewFile {
    directory: Directory,
    /// Temporary name; `None` after the rename.
    temporary: Option<OsString>,
    file: File,
}

impl NewFile {
    /// Opens an empty file for reading and appending in the directory of `path`, under a random
    /// name. Removes old files that killed processes have left under such names.
    ///
    /// # Errors
    /// The system refuses.
    pub fn open(path: &Path, access: Access) -> io::Result<Self> {
        let directory = Directory::of(path)?;
        let mut attempts = ATTEMPTS;
        loop {
            let temporary = temporary_name(&directory.name)?;
            match directory.create(&temporary, access, OFlags::RDWR | OFlags::APPEND) {
                Ok(file) => {
                    lock(&file);
                    sweep(&directory, &file, is_temporary);
                    return Ok(Self { directory, temporary: Some(temporary), file });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts > 1 => {
                    attempts -= 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Renames the file to the final name, and replaces an existing file. Returns the open file.
    ///
    /// # Errors
    /// The system refuses. An existing file remains, except if only the directory could not be
    /// written to the disk.
    pub fn replace(self) -> io::Result<File> {
        let (file, directory) = self.rename()?;
        directory.sync()?;
        Ok(file)
    }

    /// Does [`replace`](Self::replace) for a writer that keeps the file open. After a power cut
    /// the name may lead to the previous file until the returned directory is synchronised.
    ///
    /// # Errors
    /// The system refuses; an existing file remains.
    pub fn rename(self) -> io::Result<(File, RenamedIn)> {
        self.put(|directory, temporary, name| {
            renameat(directory.fd(), temporary, directory.fd(), name)
        })
    }

    /// Renames the file to the final name. Returns the open file.
    ///
    /// # Errors
    /// The name exists, or the system refuses.
    pub fn create(self) -> io::Result<File> {
        let put = self.put(|directory, temporary, name| {
            let fd = directory.fd();
            match renameat_with(fd, temporary, fd, name, RenameFlags::NOREPLACE) {
                // File systems without this flag.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    linkat(fd, temporary, fd, name, AtFlags::empty())?;
                    directory.remove(temporary);
                    Ok(())
                }
                renamed => renamed,
            }
        });
        let (file, directory) = put?;
        directory.sync()?;
        Ok(file)
    }

    fn put(
        mut self,
        rename: impl FnOnce(&Directory, &OsStr, &OsStr) -> Result<(), Errno>,
    ) -> io::Result<(File, RenamedIn)> {
        self.file.sync_all()?;
        // Nothing fails after the rename.
        let (file, directory) = (self.file.try_clone()?, self.directory.try_clone()?);
        if let Some(temporary) = &self.temporary {
            rename(&self.directory, temporary, &self.directory.name)?;
        }
        self.temporary = None;
        unlock(&self.file);
        Ok((file, RenamedIn(directory)))
    }
}

/// Directory in which a file was renamed.
#[derive(Debug)]
pub struct RenamedIn(Directory);

impl RenamedIn {
    /// Waits until the disk has the name.
    ///
    /// # Errors
    /// The disk is broken.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            self.directory.remove(temporary);
        }
    }
}

/// End of a temporary name, after the random digits.
const SUFFIX: &[u8] = b".new";

/// Number of random hexadecimal digits in a temporary name.
const RANDOM_DIGITS: usize = 16;

/// Returns a hidden name: a prefix of the final name and 64 random bits.
fn temporary_name(name: &OsStr) -> io::Result<OsString> {
    let mut random = [0; RANDOM_DIGITS / 2];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let random = format!("{:016x}", u64::from_ne_bytes(random));
    Ok(OsString::from_vec([&prefix(name), random.as_bytes(), SUFFIX].concat()))
}

/// Returns true for the temporary names of a final name.
fn is_temporary(name: &OsStr, temporary: &[u8]) -> bool {
    let random = temporary.strip_prefix(&*prefix(name)).and_then(|rest| rest.strip_suffix(SUFFIX));
    let is_digit = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    random.is_some_and(|random| random.len() == RANDOM_DIGITS && random.iter().all(is_digit))
}

fn prefix(name: &OsStr) -> Vec<u8> {
    [b".", &name.as_bytes()[..name.len().min(NAME_PART_BYTES_MAX)], b"."].concat()
}
