//! Errors of the kernel path.

use std::error::Error;
use std::io;

/// Reason why a kernel path or a route cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum KernelPathError {
    /// The table of flows is full.
    #[error("the table of flows is full: raise offload.flows")]
    Full,
    /// Few slots are free, and the client, the network, the account or the realm has used the full
    /// share.
    #[error("the table of flows is nearly full, and a client has its share: raise offload.flows")]
    Share,
    /// A system call failed.
    #[error("the kernel refused: {0}")]
    Kernel(#[source] io::Error),
    /// The programs or maps could not be created.
    #[error("cannot make the BPF programs and maps: {0}")]
    Bpf(#[source] Box<dyn Error + Send + Sync>),
    /// A program failed the self-test on this kernel.
    #[error("the BPF program failed its self-test: {0}")]
    SelfTest(String),
    /// The compiled object does not match this source.
    #[error("the BPF object has no {0}: it is not of this build")]
    Missing(&'static str),
}

impl KernelPathError {
    /// Converts an error of the loader.
    pub(crate) fn of(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Bpf(Box::new(error))
    }

    /// Returns the kernel's error number, if the kernel caused the error.
    #[must_use]
    pub fn os_error(&self) -> Option<i32> {
        let mut cause: Option<&(dyn Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(number) =
                error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error)
            {
                return Some(number);
            }
            cause = error.source();
        }
        None
    }
}
