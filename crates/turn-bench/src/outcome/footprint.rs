//! What allocations cost a server that nobody uses.

use serde::{Deserialize, Serialize};

use crate::traffic::Transport;

/// What allocations without traffic cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// What the server's process is called.
    pub process: String,
    /// What the clients are connected by.
    #[serde(default)]
    pub transport: Transport,
    /// Allocations opened between `before` and `after`.
    pub allocations: u32,
    /// Whether each has a channel and a permission.
    pub channels: bool,
    /// With a few allocations, so that what is made once is there.
    pub before: ProcessMemory,
    /// With all of them.
    pub after: ProcessMemory,
}

/// What a process has, in bytes as the kernel counts them: whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// In memory, shared with others or not.
    pub rss: u64,
    /// In memory, what is shared divided by the number of those who share it.
    pub pss: u64,
    /// Its own: heap and stacks, not files.
    pub anonymous: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

impl Footprint {
    /// What one allocation adds to this part of a process; negative when it shrank.
    #[must_use]
    pub fn per_allocation(&self, part: impl Fn(&ProcessMemory) -> u64) -> f64 {
        let grown = part(&self.after) as f64 - part(&self.before) as f64;
        grown / f64::from(self.allocations.max(1))
    }
}
