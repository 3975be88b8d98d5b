//! Files of records for readers: a growing file and full files. The oldest full file is deleted.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use atomic_file::{Access, NewFile, Owner};

use crate::limits::SEARCHED_FILES_MAX;
use crate::lines::lines_of;
use crate::segment_log::{SegmentLog, SegmentNames};

/// Mode of the files: of the server's user, readable for its group.
const ACCESS: Access = Access { mode: 0o640, owner: Owner::Process };

/// Bounds of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Size in bytes from which a file is full.
    pub bytes: u64,
    /// Full files that are kept beside the one that grows.
    pub files: u32,
}

/// A log whose current segment has a fixed name. Closed segments have the numbers `.1`, `.2`, …,
/// the newest first.
#[derive(Debug)]
pub struct Journal(SegmentLog<FixedName>);

#[derive(Debug)]
struct FixedName {
    path: PathBuf,
    /// Retained closed segments.
    files: u32,
}

impl Journal {
    /// Opens the file, or makes it. The rest of a record that was cut off by a crash becomes a line
    /// of its own.
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let mut file = atomic_file::append_to(path, ACCESS)?;
        let mut bytes = file.metadata()?.len();
        if bytes > 0 && !ends_a_line(path, bytes)? {
            file.write_all(b"\n")?;
            bytes += 1;
        }
        let names = FixedName { path: path.to_owned(), files: rotation.files };
        Ok(Self(SegmentLog::new(names, rotation.bytes, file, bytes)))
    }

    /// Names of the file at a path and of all full ones, the newest first. Not all exist: while a
    /// reader goes through them in this order, files may get the next number, and none escapes.
    #[must_use]
    pub fn files(path: &Path) -> Vec<PathBuf> {
        let names = FixedName { path: path.to_owned(), files: SEARCHED_FILES_MAX };
        let full = (1..=names.files).map(|number| names.numbered(number));
        std::iter::once(path.to_owned()).chain(full).collect()
    }

    /// Appends a record, complete or not at all. A full file is closed first, if possible.
    ///
    /// # Errors
    /// The disk is full or broken; the file does not contain the record.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        self.0.append(line)
    }

    /// Returns the error of the latest attempt to open a new file, once. The full file grows until
    /// an attempt succeeds.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.0.take_failure()
    }

    /// Bytes of the file that grows.
    pub(crate) const fn bytes(&self) -> u64 {
        self.0.current_bytes()
    }

    /// Returns true if the file that grows is larger than a full one.
    pub(crate) const fn is_overfull(&self) -> bool {
        self.0.is_overfull()
    }

    /// Number of records in the latest full file.
    pub(crate) fn closed_lines(&self) -> u64 {
        lines_of(&self.0.names.numbered(1), 0).unwrap_or(0)
    }

    /// Waits until the disk has all records.
    ///
    /// # Errors
    /// The disk is broken.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

impl SegmentNames for FixedName {
    fn next(&mut self, current: &File, _bytes: u64) -> io::Result<File> {
        // No file changes its name before there is a new one.
        let new = NewFile::open(&self.path, ACCESS)?;
        if self.files > 0 && !self.is_closed(current)? {
            self.shift()?;
            rename(&self.path, &self.numbered(1))?;
        }
        let (file, directory) = new.rename().inspect_err(|_| {
            if self.files > 0 {
                // Readers find the file that grows. The next attempt accepts either name.
                let _ = rename(&self.numbered(1), &self.path);
            }
        })?;
        // The name leads to the new file: an error of the disk is one of the next record.
        let _ = directory.sync();
        Ok(file)
    }
}

impl FixedName {
    /// Returns true if a failed attempt has already renamed the current file to the first number.
    fn is_closed(&self, current: &File) -> io::Result<bool> {
        let current = current.metadata()?;
        let first = fs::symlink_metadata(self.numbered(1));
        Ok(first.is_ok_and(|file| (file.dev(), file.ino()) == (current.dev(), current.ino())))
    }

    /// Frees the first number. Files move only up to the first free number: the oldest one is
    /// deleted only if no number is free, and so once for each new file.
    fn shift(&self) -> io::Result<()> {
        let is_free = |number: &u32| fs::symlink_metadata(self.numbered(*number)).is_err();
        let last = (1..self.files).find(is_free).unwrap_or(self.files);
        (1..last)
            .rev()
            .try_for_each(|number| rename(&self.numbered(number), &self.numbered(number + 1)))
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

/// Renames a file, if there is one.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

fn ends_a_line(path: &Path, len: u64) -> io::Result<bool> {
    let mut last = [0];
    atomic_file::open(path)?.read_exact_at(&mut last, len - 1)?;
    Ok(last == *b"\n")
}
