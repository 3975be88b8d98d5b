//! A process without descriptors.

use std::io;
use std::os::fd::AsRawFd as _;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// While it lives this process opens no file: its limit is as low as the descriptors that it has.
#[derive(Debug)]
pub struct NoMoreFiles(Rlimit);

impl NoMoreFiles {
    /// Lowers the limit.
    ///
    /// # Errors
    /// There are none left now.
    pub fn begin() -> io::Result<Self> {
        // The kernel gives the lowest number that is free.
        let lowest_free = fcntl_dupfd_cloexec(io::stderr(), 0)?.as_raw_fd();
        let before = getrlimit(Resource::Nofile);
        let current = u64::try_from(lowest_free).ok();
        setrlimit(Resource::Nofile, Rlimit { current, ..before })?;
        Ok(Self(before))
    }
}

impl Drop for NoMoreFiles {
    fn drop(&mut self) {
        // It was allowed before.
        let _ = setrlimit(Resource::Nofile, Rlimit { ..self.0 });
    }
}
