//! Limits of the kernel path, each with its reason.

use std::time::Duration;

/// Validity of a worker's routes after its last renewal: a process that died or hangs leaves no
/// route open for longer. Workers renew every second, and may be late by a few.
pub const LEASE: Duration = Duration::from_secs(5);

/// Time for which the programs carry a direction of a flow after the last packet that passed the
/// stack, and so the host's own rules. A ban in the host's firewall stops a flow within this time:
/// below the five seconds of a [`LEASE`], and long enough for two renewals.
pub const PROOF_HOLDS: Duration = Duration::from_secs(4);

/// Age of a proof at which a packet of the direction is punted to the stack to renew it. The punted
/// packets also keep the stack's state of neighbours, firewall connections and paths. Those that
/// follow it wait their turn in the sockets.
pub const RENEW_EVERY: Duration = Duration::from_millis(1750);

/// Time for which a slot of the programs' arrays (an entry, a flow's cells, a bucket) stays unused
/// before another flow gets it. A program that found it before may still be reading or counting
/// there: for less than a microsecond, and some milliseconds if its virtual processor is
/// descheduled meanwhile. A later one finds another generation in the entry. At 1,000 channels that
/// end per second, 2,000 slots rest.
pub const REST: Duration = Duration::from_secs(2);

/// Silence after which a flow loses its slot while slots are scarce. Pauses of speech are shorter,
/// and so is the interval of most keep-alives of media (RFC 7675: 5 seconds). The next packet of
/// the flow goes by the sockets and claims a slot.
pub const SILENT_AFTER: Duration = Duration::from_secs(10);

/// Time after a refusal for which slots are scarce: refused flows with traffic claim again within
/// seconds.
pub const SCARCE_FOR: Duration = Duration::from_secs(10);

/// Part of the slots, as a divisor, that is free at least while slots are not scarce.
pub const SCARCE_BELOW: u32 = 16;

/// Attempts to load a program, while signals interrupt them: each takes milliseconds, and hardly
/// any signals come at the start.
pub const LOAD_ATTEMPTS: u32 = 10;

/// Validity of the self-test's routes, which end with it: more than it takes where all processors
/// are busy.
pub const TEST_WITHIN: Duration = Duration::from_secs(60);

/// Range of the number of flows.
pub const FLOWS: std::ops::RangeInclusive<u32> = 1024..=1 << 20;

/// Bytes of a worker's ring, allocated from the start: a power of two. At 300,000 small datagrams
/// per second it holds 25 ms; a datagram that finds no room goes to its socket.
pub const RING_BYTES: u32 = 2 << 20;

/// Upper bound of the numbers of known interfaces: they are looked up by number, in half a
/// mebibyte. The kernel counts from 1 in each network namespace, and does not reuse numbers soon.
/// Packets that arrive on, or would leave by, other interfaces go to the sockets.
pub const LINKS_MAX: u32 = 65_536;
