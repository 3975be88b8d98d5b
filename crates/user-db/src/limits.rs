//! Every bound of this crate, with its reason.

use std::time::Duration;

/// A realm in bytes: REALM is shorter than 128 characters (RFC 8489 §14.9).
pub(crate) const REALM_BYTES_MAX: usize = 127;

/// A password in bytes: a longer one was pasted by mistake.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// Wait for another process that holds the database's write lock. Writes take milliseconds, so a
/// longer one means that a process is stuck.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Wait for a look-up in progress when the server stops: far longer than one takes.
pub(crate) const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Pause before SQLite is called again for an operation that it does not wait for: far longer than
/// the other process needs.
pub(crate) const BUSY_NAP: Duration = Duration::from_millis(5);

/// Maximum number of look-ups on the way to the directory's thread, and in each queue of the
/// thread. At 20 µs per look-up the maximum is 160 ms of work. An answer later than the client's
/// first retransmission (500 ms) is useless: look-ups of the busiest clients are dropped.
pub(crate) const QUEUE_MAX: usize = 8192;

/// Delay of the next look-up of an address in the queue, for each earlier look-up.
pub(crate) const LOOKUP_DELAY: Duration = Duration::from_millis(100);

/// Longest wait of a look-up in a queue. With a call to the store (1.4 s) the answer precedes the
/// deadline of a worker (3 s).
pub(crate) const QUEUED_MAX: Duration = Duration::from_millis(1500);

/// Pause between probes of a store that fails: earlier keys are valid for a few seconds after an
/// outage, and a store that starts is not loaded.
pub(crate) const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of concurrent look-ups: several for each connection of a large database pool. The
/// database bounds the rate. All further look-ups are sorted in the queues.
pub(crate) const IN_FLIGHT_MAX: usize = 256;

/// Additional wait for a look-up after the deadline. The look-up keeps its slot in the window: the
/// store may still work on it, and [`IN_FLIGHT_MAX`] look-ups of 58 ms each take as long.
pub(crate) const LATE_FOR: Duration = Duration::from_secs(15);

/// Maximum number of late look-ups: those of a full window and of the smaller windows after it.
pub(crate) const LATE_MAX: usize = 2 * IN_FLIGHT_MAX;

/// Maximum number of concurrent look-ups in an SQLite file, which one thread serves. A slow
/// disk has 80 ms for each within the deadline of a call.
pub(crate) const FILE_LOOKUPS_MAX: usize = 16;

/// Users kept in the cache, about 300 bytes each.
pub(crate) const CACHE_KNOWN_MAX: usize = 65_536;

/// Names without a user kept in the cache: apart from the known ones, so that guessed names cannot
/// evict users.
pub(crate) const CACHE_UNKNOWN_MAX: usize = 16_384;

/// Maximum number of look-up keys of changed users, known users that the store refuses now among
/// them, about 150 bytes each. A user has two keys, the name and the hash. Operators change fewer
/// than 8192 users between two outages.
pub(crate) const CHANGED_MAX: usize = 16_384;

/// Maximum number of realms whose changed users did not fit into the table. Servers with several
/// realms have dozens.
pub(crate) const LARGE_REALMS_MAX: usize = 1024;

/// Realms that a warning names when the configured realm has no users: a line or two.
pub(crate) const REALMS_MAX: u32 = 8;

/// Deadline of a call of a command to a database server: an operator waits for it.
pub(crate) const EDIT_WITHIN: Duration = Duration::from_secs(10);

/// Deadline of one attempt to reach a database server; a look-up that waits for it gives up before.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// First and longest pause between attempts to reach a database server. A second at the most, so
/// that users are found within two when it is back.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);
/// As above.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Connections to a database server for look-ups. Each carries many look-ups at a time where the
/// protocol allows it; more would let a restarted server be asked to accept them all at once.
pub(crate) const CONNECTIONS: usize = 4;

/// Times as many for MySQL and MongoDB, whose connections carry one look-up at a time. The
/// connections bound the look-ups in flight.
pub(crate) const ONE_AT_A_TIME: usize = 4;

/// Wait of a look-up for a member of a replica set of MongoDB that answers: below the deadline of a
/// look-up, so that the reason is known.
#[cfg(feature = "mongodb")]
pub(crate) const SELECT_WITHIN: Duration = Duration::from_secs(1);

/// Time after which an unused connection to MongoDB is made anew: firewalls forget those that are
/// silent for minutes.
#[cfg(feature = "mongodb")]
pub(crate) const UNUSED_FOR: Duration = Duration::from_secs(60);

/// Silence after which a connection to a database server is probed, and after which it is given up.
pub(crate) const SILENT_FOR: Duration = Duration::from_secs(10);

/// Interval of looking at whether the database reports changes; an operator may turn that on or
/// off.
pub(crate) const TRIGGER_EVERY: Duration = Duration::from_secs(5);

/// Keys that one step of a SCAN looks at: about a millisecond of the server.
pub(crate) const SCAN_COUNT: u32 = 1000;

/// Connections of the reading of tables, one statement after the other.
pub(crate) const CONNECTIONS_TABLES: usize = 1;

/// Rows read of one table: three limits for each of 4096 realms, and some more. More are a mistake,
/// or an attack on this server's memory.
pub(crate) const TABLE_ROWS_MAX: u32 = 16_384;

/// Wait of a look-up in coturn's SQLite file for a program that writes to it: below the deadline of
/// a look-up.
pub(crate) const READER_BUSY: Duration = Duration::from_secs(1);

/// Interval of looking at the count of changes of coturn's SQLite file: one page is read.
pub(crate) const DATA_VERSION_EVERY: Duration = Duration::from_millis(200);
