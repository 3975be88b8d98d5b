//! The server that is monitored.

use std::sync::Arc;

use control::{Handle, OffloadWatch};
use turn_types::Instant;

/// A running server, for questions that change nothing.
#[derive(Clone)]
pub(crate) struct Monitored {
    pub(crate) handle: Handle,
    /// Reads the clock that a drain's deadline is dated by.
    pub(crate) clock: fn() -> Instant,
    /// State of the kernel path, where there is one.
    pub(crate) offload: Option<Arc<dyn OffloadWatch>>,
}
