//! Records that an output has lost or set aside.

use std::fmt;

/// Counters of records of an output. Threads of the output call them.
pub struct Losses {
    /// Adds to the records that are lost.
    pub lost: Box<dyn Fn(u64) + Send + Sync>,
    /// Adds to the records that the web service refused and that were set aside.
    pub refused: Box<dyn Fn(u64) + Send + Sync>,
}

impl fmt::Debug for Losses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Losses").finish_non_exhaustive()
    }
}
