//! Facts about the start of a server, for `turnpike upgrade`: arguments, environment, directory and
//! program.
//!
//! The kernel shows these facts in `/proc`, except of a process whose memory is protected
//! (docs/adr/0010). Such a server opens the files before the protection, and passes the descriptors
//! to processes of its user.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};

/// Maximum size of arguments or environment in bytes, more than the kernel passes to a program.
const TEXT_MAX: usize = 8 << 20;

/// Files of `/proc/PID`, sorted as the passed descriptors.
pub(crate) const FILES: [&str; 4] = ["cmdline", "environ", "cwd", "exe"];

/// Descriptors of this process's files. Empty if the files could not be opened.
static OWN: OnceLock<Vec<OwnedFd>> = OnceLock::new();

/// Opens the facts about this process, before the memory is protected.
pub(crate) fn open_own() {
    let own = open(Path::new("/proc/self")).unwrap_or_default();
    // Descriptors of an earlier call remain.
    let _ = OWN.set(own);
}

/// Returns the descriptors of the facts about this process, sorted as [`FILES`]. Empty if unknown.
pub(crate) fn own() -> &'static [OwnedFd] {
    OWN.get().map(Vec::as_slice).unwrap_or_default()
}

fn open(process: &Path) -> io::Result<Vec<OwnedFd>> {
    let open = |name: &str| {
        let flags = match name {
            "cmdline" | "environ" => OFlags::RDONLY,
            _ => OFlags::PATH,
        };
        rustix::fs::open(process.join(name), flags | OFlags::CLOEXEC, Mode::empty())
    };
    Ok(FILES.into_iter().map(open).collect::<Result<_, _>>()?)
}

/// Facts about the start of a running server.
#[derive(Debug)]
pub(crate) struct StartFacts {
    /// Program and arguments, each followed by a zero byte.
    pub(crate) arguments: Vec<u8>,
    /// Environment variables, each followed by a zero byte.
    pub(crate) environment: Vec<u8>,
    /// Path of the working directory, valid during the lifetime of this value.
    pub(crate) directory: PathBuf,
    /// File of the program. The kernel appends ` (deleted)` if the file was deleted.
    pub(crate) program: PathBuf,
    _held: OwnedFd,
}

impl StartFacts {
    /// Reads the facts about a process from `/proc`.
    ///
    /// # Errors
    /// The process belongs to another user, or protects its memory.
    pub(crate) fn of_process(process: i32) -> io::Result<Self> {
        Self::from_descriptors(open(Path::new(&format!("/proc/{process}")))?)
    }

    /// Reads the facts from descriptors, sorted as [`FILES`].
    ///
    /// # Errors
    /// The number of descriptors differs from [`FILES`], or a descriptor cannot be read.
    pub(crate) fn from_descriptors(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let [arguments, environment, directory, program] =
            <[OwnedFd; FILES.len()]>::try_from(descriptors)
                .map_err(|_| io::Error::other("the server has not told how it was started"))?;
        let link = |descriptor: &OwnedFd| {
            PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
        };
        Ok(Self {
            arguments: read(arguments)?,
            environment: read(environment)?,
            program: fs::read_link(link(&program))?,
            directory: link(&directory),
            _held: directory,
        })
    }
}

/// Reads a file from offset 0, because several processes share the position of a descriptor.
fn read(file: OwnedFd) -> io::Result<Vec<u8>> {
    const STEP: usize = 64 << 10;
    let file = File::from(file);
    let mut bytes = Vec::new();
    loop {
        let start = bytes.len();
        if start > TEXT_MAX {
            return Err(io::Error::other("its arguments or environment are too long"));
        }
        bytes.resize(start + STEP, 0);
        let read = file.read_at(&mut bytes[start..], start as u64)?;
        bytes.truncate(start + read);
        if read == 0 {
            return Ok(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_this_process_are_the_same_each_time() {
        let descriptors = open(Path::new("/proc/self")).unwrap();
        for _ in 0..2 {
            let copies = descriptors.iter().map(|fd| fd.try_clone().unwrap()).collect();
            let facts = StartFacts::from_descriptors(copies).unwrap();
            assert_eq!(facts.program, std::env::current_exe().unwrap());
            assert_eq!(
                fs::canonicalize(&facts.directory).unwrap(),
                std::env::current_dir().unwrap()
            );
            let first = facts.arguments.split(|byte| *byte == 0).next().unwrap();
            assert_eq!(first, std::env::args_os().next().unwrap().as_encoded_bytes());
            let own = fs::read("/proc/self/environ").unwrap();
            assert_eq!(facts.environment, own);
        }
        assert!(StartFacts::from_descriptors(Vec::new()).is_err());
    }
}
