//! Files of records: one that grows, and the full ones before it, of which the oldest is deleted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Mode of the files: of the server's user, readable for its group.
const MODE: u32 = 0o640;

/// Bounds of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Size in bytes from which a file is full.
    pub bytes: u64,
    /// Full files that are kept beside the one that grows.
    pub files: u32,
}

/// The file that grows.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    /// Bytes in it, of whole records.
    len: u64,
}

impl Journal {
    /// Opens the file, or makes it. The rest of a record that was cut off by a crash becomes a line
    /// of its own.
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let mut file = open(path)?;
        let mut len = file.metadata()?.len();
        if len > 0 && !ends_a_line(path, len)? {
            file.write_all(b"\n")?;
            len += 1;
        }
        Ok(Self { path: path.to_owned(), rotation, file, len })
    }

    /// Appends a record, whole or not at all. A full file is put aside first.
    ///
    /// # Errors
    /// The disk is full or broken; nothing of the record is in the file then.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        if self.len > 0 && self.len + line.len() as u64 > self.rotation.bytes {
            self.rotate()?;
        }
        match self.file.write_all(line.as_bytes()) {
            Ok(()) => {
                self.len += line.len() as u64;
                Ok(())
            }
            Err(error) => {
                // A part of it may be there, and would spoil the next one.
                self.file.set_len(self.len)?;
                Err(error)
            }
        }
    }

    /// Waits until the disk has all records.
    ///
    /// # Errors
    /// The disk is broken.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.sync()?;
        for number in (1..self.rotation.files).rev() {
            match fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        if self.rotation.files == 0 {
            fs::remove_file(&self.path)?;
        } else {
            fs::rename(&self.path, self.numbered(1))?;
        }
        self.file = open(&self.path)?;
        self.len = 0;
        Ok(())
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(MODE).open(path)
}

fn ends_a_line(path: &Path, len: u64) -> io::Result<bool> {
    use std::os::unix::fs::FileExt as _;
    let mut last = [0];
    File::open(path)?.read_exact_at(&mut last, len - 1)?;
    Ok(last == *b"\n")
}
