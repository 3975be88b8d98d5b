//! Order of processes that share files. During upgrades several processes live at the same time,
//! and each must find the complete files of all predecessors.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Position of this process in the order of starts: a locked file with a number in the name. The
/// kernel releases the lock when the process exits, also after a crash.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Path of the files without the number.
    base: PathBuf,
    number: u64,
    has_come: bool,
    _lock: File,
}

impl Turn {
    /// Takes the last position.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn take(base: &Path) -> io::Result<Self> {
        let mut number = numbers(base)?.into_iter().max().map_or(1, |newest| newest + 1);
        loop {
            let path = place(base, number);
            let lock = atomic_file::open_private(&path)?;
            match lock.try_lock() {
                Ok(()) if has_name(&lock, &path)? => {
                    return Ok(Self { base: base.into(), number, has_come: false, _lock: lock });
                }
                // A later process may have removed the file before the lock, and precedes then.
                Ok(()) | Err(TryLockError::WouldBlock) => number += 1,
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Returns true if all predecessors have exited. Removes files of crashed predecessors.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn has_come(&mut self) -> io::Result<bool> {
        if self.has_come {
            return Ok(true);
        }
        for earlier in numbers(&self.base)?.into_iter().filter(|number| *number < self.number) {
            let path = place(&self.base, earlier);
            let lock = match File::open(&path) {
                Ok(lock) => lock,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            match lock.try_lock() {
                Ok(()) => match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                },
                Err(TryLockError::WouldBlock) => return Ok(false),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        self.has_come = true;
        Ok(true)
    }

    /// Returns true if a later process has taken a position.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn has_successor(&self) -> io::Result<bool> {
        Ok(numbers(&self.base)?.into_iter().any(|number| number > self.number))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // The successor removes a remaining file.
        let _ = fs::remove_file(place(&self.base, self.number));
    }
}

/// Returns true if a path leads to the open file.
fn has_name(file: &File, path: &Path) -> io::Result<bool> {
    let file = file.metadata()?;
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(named) => Ok((named.dev(), named.ino()) == (file.dev(), file.ino())),
    }
}

fn place(base: &Path, number: u64) -> PathBuf {
    let mut path = base.to_owned().into_os_string();
    path.push(format!(".{number}"));
    path.into()
}

/// Numbers of existing files.
fn numbers(base: &Path) -> io::Result<Vec<u64>> {
    let directory = base.parent().filter(|parent| !parent.as_os_str().is_empty());
    let prefix = base.file_name().unwrap_or_default().to_string_lossy().into_owned() + ".";
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory.unwrap_or_else(|| Path::new(".")))? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(&*prefix));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    Ok(numbers)
}
