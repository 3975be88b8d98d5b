//! What is bounded here, and why.

use std::time::Duration;

/// How long a worker's routes hold after it last said that it is there: a process that died or hangs
/// leaves no way open for longer. It says so every second, and may be late by a few.
pub const LEASE: Duration = Duration::from_secs(5);

/// How long the programs carry a direction of a flow behind the last packet of it that went through the system's
/// own stack, and so past the host's own rules. A ban of the host's firewall has stopped a flow after this time: below the five
/// seconds of a [`LEASE`], and long enough for two renewals.
pub const PROOF_HOLDS: Duration = Duration::from_secs(4);

/// How old a proof is when a packet of the direction is left to the stack to renew it. By it the system also keeps
/// what it knows of neighbours, of connections in its firewall, and of paths. One packet in hundreds is late
/// by some tens of microseconds.
pub const RENEW_EVERY: Duration = Duration::from_millis(1750);

/// How long a place of the programs' arrays (an entry, a flow's cells, a bucket) is out of use before it
/// is given to another flow. A program that found it before may be reading or counting there still: it
/// takes less than a microsecond, and some milliseconds if its virtual processor is taken away meanwhile. Whoever is
/// later yet finds another generation in an entry. At 1,000 channels that end in a second, 2,000 places rest.
pub const REST: Duration = Duration::from_secs(2);

/// Fewest and most flows that there may be places for.
pub const FLOWS: std::ops::RangeInclusive<u32> = 1024..=1 << 20;

/// Bytes of a worker's ring, which the kernel keeps from the start: a power of two. At 300,000 small
/// datagrams in a second it holds what comes in 25 ms; what finds no room comes by its socket.
pub const RING_BYTES: u32 = 2 << 20;

/// Only interfaces with numbers below this can be known: they are looked up by number, in half a
/// mebibyte. The kernel counts from 1 in each network namespace, and goes on where it was for those
/// that are made anew. What comes or would leave by others is for the sockets.
pub const LINKS_MAX: u32 = 65_536;
