//! Limits of the kernel path, each with a reason.

use std::time::Duration;

/// Validity of a worker's routes after the last renewal. A process that died or hangs keeps no
/// route open for longer. Workers renew every second, and may be late by a few seconds.
pub const LEASE: Duration = Duration::from_secs(5);

/// Time for which the programs relay a direction of a flow after the last packet that passed the
/// stack, and so the host's rules. A ban in the host's firewall stops a flow within this time. The
/// time is shorter than a [`LEASE`], and long enough for two renewals.
pub const PROOF_HOLDS: Duration = Duration::from_secs(4);

/// Age of a proof at which a packet of the direction is punted to the stack to renew the proof. The
/// punted packets also keep the stack's state of neighbours, firewall connections and paths.
/// Packets that follow a punted packet pass through the sockets, in order.
pub const RENEW_EVERY: Duration = Duration::from_millis(1750);

/// Time for which a slot of the programs' arrays (an entry, a flow's cells, a bucket) remains
/// unused before another flow gets the slot. A program that found the slot before may still read or
/// count there. That takes less than a microsecond, or some milliseconds if the virtual processor
/// is descheduled. A program that arrives later detects another generation in the entry. If 1,000
/// channels close per second, 2,000 slots are resting.
pub const REST: Duration = Duration::from_secs(2);

/// Duration of silence after which a flow loses its slot while slots are scarce. Pauses of speech
/// are shorter, and so is the interval of most keep-alives of media (RFC 7675: 5 seconds). The next
/// packet of the flow passes to the sockets and claims a slot.
pub const SILENT_AFTER: Duration = Duration::from_secs(10);

/// Time for which slots are scarce after a refusal. Refused flows with traffic claim a slot again
/// within seconds.
pub const SCARCE_FOR: Duration = Duration::from_secs(10);

/// Divisor of the table size that defines scarcity. Slots are scarce while fewer than the table
/// size divided by this number are free.
pub const SCARCE_BELOW: u32 = 16;

/// Maximum number of attempts to load a program when signals interrupt loading. Each attempt takes
/// milliseconds, and hardly any signals arrive at the start.
pub const LOAD_ATTEMPTS: u32 = 10;

/// Validity of the self-test's routes, which are removed after the test. The time exceeds the
/// duration of the test if all processors are busy.
pub const TEST_WITHIN: Duration = Duration::from_secs(60);

/// Permitted range of the number of flows.
pub const FLOWS: std::ops::RangeInclusive<u32> = 1024..=1 << 20;

/// Size of a worker's ring in bytes, allocated from the start: a power of two. At 300,000 small
/// datagrams per second the ring holds 25 ms. A datagram that does not fit passes to the socket.
pub const RING_BYTES: u32 = 2 << 20;

/// Upper bound of the indices of known interfaces. The programs look up interfaces by index, in
/// half a mebibyte. The kernel counts from 1 in each network namespace, and does not reuse indices
/// soon. Packets that arrive on, or would leave by, other interfaces pass to the sockets.
pub const LINKS_MAX: u32 = 65_536;
