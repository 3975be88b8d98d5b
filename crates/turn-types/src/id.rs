//! Ids of objects in a server process.

use core::fmt;
use core::time::Duration;

/// Id of a worker: a thread with its own sockets and allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u16);

/// Id of a worker's listening socket or stream, used for communication with clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u32);

/// Id of a worker's relay socket, or of an allocation's part of a shared socket. Never reused in a
/// process: a late packet or event of a closed relay must not match a newer relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelayId(pub u64);

impl RelayId {
    /// Bit of relays without a dedicated socket. Other relays are counted from zero, and would need
    /// centuries to reach this bit.
    const SHARED: u64 = 1 << 62;

    /// Creates the id of the `counter`-th relay without a dedicated socket. The worker has a single
    /// socket for all addresses of a prefix.
    #[must_use]
    pub const fn shared(counter: u64) -> Self {
        Self(Self::SHARED | counter)
    }

    /// Returns true for a relay without a dedicated socket.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        self.0 & Self::SHARED != 0
    }
}

/// Id of a worker's request that waits for an external response, such as a user's key or a relay
/// port. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PendingId(pub u64);

/// Time of 2020-01-01, 00:00 UTC, since 1970.
const START_OF_2020: Duration = Duration::from_secs(1_577_836_800);

/// Allocation id, unique over all workers and all processes of a server. Operators see 16
/// hexadecimal digits.
///
/// The top 16 bits contain the worker. The lower 48 bits contain a counter, which starts at the
/// [start time](Self::before_first) of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocationId(pub u64);

impl AllocationId {
    /// Creates the id of the `counter`-th allocation of `worker`. Only the low 48 bits of the
    /// counter are used.
    #[must_use]
    pub const fn new(worker: WorkerId, counter: u64) -> Self {
        Self(((worker.0 as u64) << 48) | (counter & 0xFFFF_FFFF_FFFF))
    }

    /// Returns the id before the first allocation of a process. `started` is the start time of the
    /// process since 1970.
    ///
    /// The counter contains the seconds since 2020 (until 2156) above 16 bits for fractions of a
    /// second. A later process therefore assigns higher ids. Exceptions are more than 60,000
    /// allocations per second and worker, and a clock that was set back.
    #[must_use]
    pub const fn before_first(worker: WorkerId, started: Duration) -> Self {
        let since = started.saturating_sub(START_OF_2020);
        Self::new(worker, since.as_secs() << 16 | (since.subsec_nanos() as u64) >> 14)
    }

    /// Returns the worker that owns the allocation.
    #[must_use]
    pub const fn worker(self) -> WorkerId {
        WorkerId((self.0 >> 48) as u16)
    }

    /// Returns the counter of the allocation at its worker.
    #[must_use]
    pub const fn counter(self) -> u64 {
        self.0 & 0xFFFF_FFFF_FFFF
    }

    /// Parses 16 hexadecimal digits, as written by [`fmt::Display`].
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

/// Id of a connection between a relayed address and a peer, which clients receive (CONNECTION-ID,
/// RFC 6062 §6.2.1).
///
/// The top 10 bits contain the worker of the connection, so any worker that receives the id can
/// find this worker. The other bits are random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

impl ConnectionId {
    /// Number of random bits below the worker.
    const RANDOM_BITS: u32 = 22;

    /// Creates an id of a connection of `worker`, which must be below 1024. Only the low 22 bits of
    /// `random` are used.
    #[must_use]
    pub const fn new(worker: WorkerId, random: u32) -> Self {
        debug_assert!(worker.0 < 1 << (32 - Self::RANDOM_BITS));
        Self((worker.0 as u32) << Self::RANDOM_BITS | random & ((1 << Self::RANDOM_BITS) - 1))
    }

    /// Returns the worker of the connection.
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
