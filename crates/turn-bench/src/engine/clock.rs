//! Time stamps, and whether two processes make them by one clock.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use linux_net::Clock;
use serde::{Deserialize, Serialize};

/// Nanoseconds of the monotonic clock.
#[must_use]
pub fn now() -> u64 {
    Clock::instant().as_nanos()
}

/// Which monotonic clock a process reads: that of one start of one host, seen through one time
/// namespace. One-way latencies are told between equal ones only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockId(pub [u8; Self::BYTES]);

impl ClockId {
    /// Its length.
    pub const BYTES: usize = 24;

    /// That of this process. Where the system does not tell, a random one: equal to none.
    #[must_use]
    pub fn own() -> Self {
        Self::read().unwrap_or_else(|| Self(linux_net::random_bytes()))
    }

    fn read() -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: Vec<u8> = boot.bytes().filter(u8::is_ascii_hexdigit).collect();
        let boot = u128::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?;
        // Kernels without time namespaces have one for all.
        let namespace = fs::metadata("/proc/self/ns/time").map_or(0, |file| file.ino());
        let mut id = [0; Self::BYTES];
        id[..16].copy_from_slice(&boot.to_be_bytes());
        id[16..].copy_from_slice(&namespace.to_be_bytes());
        Some(Self(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_process_is_its_own_each_time() {
        assert_eq!(ClockId::own(), ClockId::own());
        assert_ne!(ClockId::own().0[..16], [0; 16]);
    }
}
