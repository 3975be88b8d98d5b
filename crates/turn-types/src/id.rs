//! Names of things that live inside one server process.

use core::fmt;
use core::time::Duration;

/// A worker: one thread that owns its sockets and its allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u16);

/// A listening socket or stream of a worker, through which its clients talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u32);

/// A relay socket of one worker, or the part of one that an allocation has. Never reused while the
/// process lives, so that a late packet or event of a closed relay cannot be taken for one of its
/// successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelayId(pub u64);

impl RelayId {
    /// Bit of the relays that have no socket of their own. Relays are counted from zero, and would
    /// take centuries to reach it.
    const SHARED: u64 = 1 << 62;

    /// The `counter`-th relay, without a socket of its own: its worker has one socket for all
    /// addresses of a prefix.
    #[must_use]
    pub const fn shared(counter: u64) -> Self {
        Self(Self::SHARED | counter)
    }

    /// Returns true for a relay without a socket of its own.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        self.0 & Self::SHARED != 0
    }
}

/// A request of one worker that waits for an answer from outside (a user's key, a relay port).
/// Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PendingId(pub u64);

/// 2020-01-01, 00:00 UTC, since 1970.
const START_OF_2020: Duration = Duration::from_secs(1_577_836_800);

/// Allocation id, unique over all workers and all processes of a server: the worker in the top 16
/// bits, a counter below that starts at the [start time](Self::before_first) of the process.
/// Operators see 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocationId(pub u64);

impl AllocationId {
    /// The `counter`-th allocation of `worker`; only the low 48 bits of the counter count.
    #[must_use]
    pub const fn new(worker: WorkerId, counter: u64) -> Self {
        Self(((worker.0 as u64) << 48) | (counter & 0xFFFF_FFFF_FFFF))
    }

    /// Counter value at the start of a process, which `started` gives since 1970: seconds since
    /// 2020 (until 2156) above 16 bits for fractions of a second. A later process assigns higher
    /// ids, except after 60,000 allocations per second and worker, or with a clock that was set
    /// back.
    #[must_use]
    pub const fn before_first(worker: WorkerId, started: Duration) -> Self {
        let since = started.saturating_sub(START_OF_2020);
        Self::new(worker, since.as_secs() << 16 | (since.subsec_nanos() as u64) >> 14)
    }

    /// The worker that owns the allocation.
    #[must_use]
    pub const fn worker(self) -> WorkerId {
        WorkerId((self.0 >> 48) as u16)
    }

    /// Its number at that worker.
    #[must_use]
    pub const fn counter(self) -> u64 {
        self.0 & 0xFFFF_FFFF_FFFF
    }

    /// Reads 16 hexadecimal digits, as [`fmt::Display`] writes them.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 16 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A connection between a relayed address and a peer, as clients know it (CONNECTION-ID, RFC 6062
/// §6.2.1): the worker that has it in the top 10 bits, so that whichever worker is shown the number
/// knows where to take it; random below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

impl ConnectionId {
    /// Bits below the worker.
    const RANDOM_BITS: u32 = 22;

    /// A number of `worker`'s; only the low 22 bits of `random` count, and only workers below 1024.
    #[must_use]
    pub const fn new(worker: WorkerId, random: u32) -> Self {
        debug_assert!(worker.0 < 1 << (32 - Self::RANDOM_BITS));
        Self((worker.0 as u32) << Self::RANDOM_BITS | random & ((1 << Self::RANDOM_BITS) - 1))
    }

    /// The worker that has the connection.
    #[must_use]
    pub const fn worker(self) -> WorkerId {
        WorkerId((self.0 >> Self::RANDOM_BITS) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn connection_id_carries_its_worker() {
        for worker in [0, 7, 1023] {
            let id = ConnectionId::new(WorkerId(worker), u32::MAX);
            assert_eq!(id.worker(), WorkerId(worker));
            assert_eq!(id.0 & 0x3F_FFFF, 0x3F_FFFF);
        }
    }

    #[test]
    fn allocation_id_carries_its_worker_and_reads_back() {
        let id = AllocationId::new(WorkerId(7), 0x1234);
        assert_eq!(id.worker(), WorkerId(7));
        assert_eq!(id.to_string(), "0007000000001234");
        assert_eq!(AllocationId::parse(&id.to_string()), Some(id));
        assert_eq!(AllocationId::parse("7"), None);
        assert_eq!(AllocationId::parse("+007000000001234"), None);
    }
}
