//! Memory and descriptors of idle allocations.

use serde::{Deserialize, Serialize};

use crate::traffic::Transport;

/// Cost of allocations without traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Name of the server's process.
    pub process: String,
    /// Transport of the clients.
    #[serde(default)]
    pub transport: Transport,
    /// Allocations opened between `before` and `after`.
    pub allocations: u32,
    /// True if each has a channel and a permission.
    pub channels: bool,
    /// With the first few allocations, so that one-time costs are included.
    pub before: ProcessMemory,
    /// With all of them.
    pub after: ProcessMemory,
}

/// Memory of a process in bytes, by whole pages, and its descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// Resident set size.
    pub rss: u64,
    /// Proportional set size: shared pages divided by the number of their processes.
    pub pss: u64,
    /// Anonymous memory: heap and stacks.
    pub anonymous: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Memory that the kernel charges to the process's control group: sockets, descriptors, BPF
    /// maps. `None` where it is not in a group of its own, and in older results.
    #[serde(default)]
    pub kernel: Option<u64>,
}

impl Footprint {
    /// Growth of this figure per allocation; negative when it shrank.
    #[must_use]
    pub fn per_allocation(&self, part: impl Fn(&ProcessMemory) -> u64) -> f64 {
        self.known_per_allocation(|memory| Some(part(memory))).unwrap_or_default()
    }

    /// The same for a figure that may be unknown.
    #[must_use]
    pub fn known_per_allocation(
        &self,
        part: impl Fn(&ProcessMemory) -> Option<u64>,
    ) -> Option<f64> {
        let grown = part(&self.after)? as f64 - part(&self.before)? as f64;
        Some(grown / f64::from(self.allocations.max(1)))
    }
}
