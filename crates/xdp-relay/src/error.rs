//! Errors of the kernel path.

use std::error::Error;
use std::io;

/// Why there is no kernel path, or no route in it.
#[derive(Debug, thiserror::Error)]
pub enum KernelPathError {
    /// The table of flows is full.
    #[error("the table of flows is full: raise offload.flows")]
    Full,
    /// Few slots are free, and the client, its network, account or realm has its share.
    #[error("the table of flows is nearly full, and a client has its share: raise offload.flows")]
    Share,
    /// A system call failed.
    #[error("the kernel refused: {0}")]
    Kernel(#[source] io::Error),
    /// The programs or maps could not be made.
    #[error("cannot make the BPF programs and maps: {0}")]
    Bpf(#[source] Box<dyn Error + Send + Sync>),
    /// The programs fail their self-test on this kernel.
    #[error("the BPF program failed its self-test: {0}")]
    SelfTest(String),
    /// The compiled object is not that of this source.
    #[error("the BPF object has no {0}: it is not of this build")]
    Missing(&'static str),
}

impl KernelPathError {
    /// Of the loader.
    pub(crate) fn of(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Bpf(Box::new(error))
    }

    /// The number that the kernel gave, if it was the kernel.
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
