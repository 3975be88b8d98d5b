//! Files that are read completely. Only regular files are read: a named pipe without a writer, or a
//! device, could block the reader for ever.

use std::fs::{self, File, FileType};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

/// Reads a regular file of up to `bytes_max` bytes. Follows symbolic links.
///
/// # Errors
/// The file is not regular, or longer than `bytes_max`, or the system refuses.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
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
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(read(path, bytes_max)?).map_err(not_text)
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
