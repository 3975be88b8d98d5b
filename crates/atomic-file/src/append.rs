//! Existing files, possibly of another user: logs, and files in directories that are closed to the
//! process.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::directory::{Access, Directory};
use crate::path::{LINKS_MAX, is_errno, target};
use crate::planted::{foreign, refuse_names};

/// Opens a file for appending, or creates a file with this mode and owner.
///
/// A directory is trusted if only root or the process's user may write to the directory. In a
/// trusted directory symbolic links are followed, also to a new file, devices and pipes with a
/// reader are accepted, and an existing file gets the owner. In other directories an existing file
/// must be regular, must have a single name, and keeps the previous owner: another user may have
/// linked a foreign file there. The call waits for no reader of a pipe.
///
/// # Errors
/// The system refuses, or no process reads the pipe of this name, or an untrusted directory has a
/// link or a special file of this name.
pub fn append_to(path: &Path, access: Access) -> io::Result<File> {
    append_through(path, access, LINKS_MAX)
}

/// The same through so many symbolic links.
fn append_through(path: &Path, access: Access, links: u32) -> io::Result<File> {
    const APPEND: OFlags = OFlags::WRONLY.union(OFlags::APPEND);
    let directory = Directory::of(path)?;
    match directory.create(&directory.name, access, APPEND) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created,
    }
    let is_trusted = directory.is_trusted()?;
    let opened = match directory.open(APPEND) {
        Ok(file) => Ok((file.metadata()?, file)),
        Err(error) => Err(error),
    };
    match opened {
        Ok((metadata, file)) if metadata.is_file() => {
            if !is_trusted {
                refuse_names(&metadata)?;
                return Ok(file);
            }
            let file = file.into();
            directory.own(&file, access.owner)?;
            Ok(file.into())
        }
        Ok((_, file)) if is_trusted => blocking(file),
        Err(error) if is_errno(&error, Errno::LOOP) && is_trusted => {
            // The links of the kernel, such as /proc/self/fd/1, have targets without a name.
            if directory.is_of_kernel()? {
                return directory.follow(APPEND).map_err(name_unread_pipe).and_then(blocking);
            }
            // The target may be in a directory of another user, and a link of that user.
            let links = links.checked_sub(1).ok_or(Errno::LOOP)?;
            append_through(&target(path)?, access, links)
        }
        Err(error) if is_trusted => Err(name_unread_pipe(error)),
        Err(error) if is_errno(&error, Errno::LOOP) => Err(foreign("it is a symbolic link")),
        Err(error) if is_errno(&error, Errno::NXIO) => Err(foreign("it is not a regular file")),
        Ok(_) => Err(foreign("it is not a regular file")),
        Err(error) => Err(error),
    }
}

/// Opens a regular file of mode 0600 for reading and appending, or creates the file. Follows no
/// symbolic link.
///
/// # Errors
/// The system refuses, or the file is not regular, or an untrusted directory (see [`append_to`])
/// has a file with several names.
pub fn open_private(path: &Path) -> io::Result<File> {
    const FLAGS: OFlags = OFlags::RDWR.union(OFlags::APPEND);
    let directory = Directory::of(path)?;
    match directory.create(&directory.name, Access::PRIVATE, FLAGS) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created,
    }
    let file = match directory.open(FLAGS) {
        Err(error) if is_errno(&error, Errno::LOOP) => Err(foreign("it is a symbolic link")),
        opened => opened,
    }?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(foreign("it is not a regular file"));
    }
    if !directory.is_trusted()? {
        refuse_names(&metadata)?;
    }
    Ok(file)
}

/// Makes writes wait for space again: only the opening does not wait.
fn blocking(file: File) -> io::Result<File> {
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
    Ok(file)
}

/// Explains the error of a pipe that no process reads.
fn name_unread_pipe(error: io::Error) -> io::Error {
    if !is_errno(&error, Errno::NXIO) {
        return error;
    }
    let advice =
        "it is a socket, or a named pipe that no process reads: start the reader of the pipe first";
    io::Error::new(io::ErrorKind::NotConnected, advice)
}

/// Writes the content of an existing file in place, for directories that the process may not write
/// to.
///
/// # Errors
/// The system refuses, or the file is not regular or has several names.
pub fn rewrite(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = Directory::of(path)?.open(OFlags::WRONLY)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(foreign("it is not a regular file"));
    }
    refuse_names(&metadata)?;
    file.set_len(0)?;
    file.write_all(bytes)?;
    Ok(file)
}
