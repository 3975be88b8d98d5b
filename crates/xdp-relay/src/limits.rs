//! What is bounded here, and why.

use std::time::Duration;

/// How long a worker's routes hold after it last said that it is there: a process that died or hangs
/// leaves no way open for longer. It says so every second, and may be late by a few.
pub const LEASE: Duration = Duration::from_secs(5);

/// How often a packet of each direction of a flow is left to the sockets. By it the system keeps what
/// it knows of neighbours (which it forgets, or never learns to be gone, if it sends nothing
/// itself), of connections in its firewall, and of paths: well below the 30 s that a firewall keeps
/// a flow of UDP. One packet in hundreds is late by some tens of microseconds.
pub const SHOW_EVERY: Duration = Duration::from_secs(15);

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
