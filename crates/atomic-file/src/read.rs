//! Files that are read completely. Only regular files are read: a named pipe without a writer, or a
//! device, could block the reader for ever.

use std::fs::{self, File, FileType};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::directory::Directory;
use crate::path::{LINKS_MAX, is_errno, target};
use crate::planted::{foreign, refuse_names};
use crate::privilege::is_privileged;

/// Reads a regular file of up to `bytes_max` bytes. Follows symbolic links.
///
/// # Errors
/// The file is not regular, or longer than `bytes_max`, or the system refuses.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_from(open(path)?, bytes_max)
}

/// Reads a file that this program wrote earlier, such as one in its data directory. As [`read`],
/// but a process with the rights of root follows no symbolic link that another user could have
/// made, and reads no file to which such a user could have given a second name: the content would
/// be written to a file of that user again, or be shown.
///
/// # Errors
/// The same errors as [`read`], and [`PermissionDenied`](io::ErrorKind::PermissionDenied) for such
/// a link or file.
pub fn read_state(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = if is_privileged() { open_state(path, LINKS_MAX)? } else { open(path)? };
    read_from(file, bytes_max)
}

/// The same for UTF-8 text.
///
/// # Errors
/// The same errors as [`read_state`] and [`read_to_string`].
pub fn read_state_to_string(path: &Path, bytes_max: u64) -> io::Result<String> {
    text_of(read_state(path, bytes_max)?)
}

/// Opens the file through so many symbolic links.
fn open_state(path: &Path, links: u32) -> io::Result<File> {
    let directory = Directory::of(path)?;
    let is_trusted = directory.is_trusted()?;
    let file = match directory.open(OFlags::RDONLY | OFlags::NOCTTY) {
        Err(error) if is_errno(&error, Errno::LOOP) && is_trusted => {
            let links = links.checked_sub(1).ok_or(Errno::LOOP)?;
            return open_state(&target(path)?, links);
        }
        Err(error) if is_errno(&error, Errno::LOOP) => Err(foreign("it is a symbolic link")),
        opened => opened,
    }?;
    let metadata = file.metadata()?;
    refuse_special(metadata.file_type())?;
    if !is_trusted {
        refuse_names(&metadata)?;
    }
    Ok(file)
}

fn read_from(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let what = format!("it is longer than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Reads a regular UTF-8 file of up to `bytes_max` bytes. Follows symbolic links.
///
/// # Errors
/// The same errors as [`read`], and [`InvalidData`](io::ErrorKind::InvalidData): the file is not
/// UTF-8.
pub fn read_to_string(path: &Path, bytes_max: u64) -> io::Result<String> {
    text_of(read(path, bytes_max)?)
}

fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(bytes).map_err(not_text)
}

/// Opens a regular file to read it. Follows symbolic links.
///
/// # Errors
/// The file is not regular, or the system refuses.
pub fn open(path: &Path) -> io::Result<File> {
    // Opening a device may have an effect, such as that of a watchdog.
    refuse_special(fs::metadata(path)?.file_type())?;
    // The name may lead to a pipe by now.
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(CWD, path, flags | OFlags::NONBLOCK, Mode::empty()) {
        // Another process, such as a file server, has a lease of the file: wait for its end.
        Err(Errno::AGAIN) => openat(CWD, path, flags, Mode::empty())?,
        opened => opened?,
    };
    let file = File::from(file);
    refuse_special(file.metadata()?.file_type())?;
    Ok(file)
}

fn refuse_special(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    let what = if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    let what = format!("it is {what}, and a regular file is needed");
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}
