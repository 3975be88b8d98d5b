//! Limits of this crate, with their reasons.

use std::time::Duration;

/// Maximum length of a realm in bytes: REALM is shorter than 128 characters (RFC 8489 §14.9).
pub(crate) const REALM_BYTES_MAX: usize = 127;

/// Maximum length of a password in bytes. A longer password was pasted by mistake.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// Maximum wait for another process that holds the database's write lock. Writes take milliseconds,
/// so a longer wait means that a process is stuck.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum wait for a look-up in progress when the server stops, far longer than a look-up takes.
pub(crate) const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Pause before a repetition of an operation for which SQLite does not wait. Far longer than the
/// other process needs.
pub(crate) const BUSY_NAP: Duration = Duration::from_millis(5);

/// Maximum number of look-ups sent to the directory's thread, and in each queue of the thread. At
/// 20 µs per look-up, the maximum is 160 ms of work. An answer after the client's first
/// retransmission (500 ms) is useless. Above the limit, look-ups of the busiest clients are
/// dropped.
pub(crate) const QUEUE_MAX: usize = 8192;

/// Delay added to the next look-up of an address in the queue, for each earlier look-up.
pub(crate) const LOOKUP_DELAY: Duration = Duration::from_millis(100);

/// Maximum wait of a look-up in a queue. With a call to the store (1.4 s), the answer precedes the
/// deadline of a worker (3 s).
pub(crate) const QUEUED_MAX: Duration = Duration::from_millis(1500);

/// Pause between probes of a failing store. Earlier keys remain valid for only a few seconds after
/// an outage, and a starting store is not loaded.
pub(crate) const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of concurrent look-ups: several for each connection of a large database pool. The
/// database bounds the rate. Further look-ups wait in sorted queues.
pub(crate) const IN_FLIGHT_MAX: usize = 256;

/// Additional wait for a look-up after the deadline. Until then the look-up occupies a slot in the
/// window, because the store may still process the query. [`IN_FLIGHT_MAX`] look-ups of 58 ms each
/// take as long.
pub(crate) const LATE_FOR: Duration = Duration::from_secs(15);

/// Maximum number of late look-ups: those of a full window, and of the smaller windows after it.
pub(crate) const LATE_MAX: usize = 2 * IN_FLIGHT_MAX;

/// Maximum number of concurrent look-ups in an SQLite file, which a single thread serves. A slow
/// disk can take 80 ms per look-up within the deadline of a call.
pub(crate) const FILE_LOOKUPS_MAX: usize = 16;

/// Maximum number of cached users, about 300 bytes each.
pub(crate) const CACHE_KNOWN_MAX: usize = 65_536;

/// Maximum number of cached names without a user. Stored separately from users, so guessed names
/// cannot evict users.
pub(crate) const CACHE_UNKNOWN_MAX: usize = 16_384;

/// Maximum number of look-up keys of changed users, about 150 bytes each. Includes previously known
/// users that the store now refuses. A user has two keys, the name and the hash. Operators change
/// fewer than 8192 users between two outages.
pub(crate) const CHANGED_MAX: usize = 16_384;

/// Maximum number of realms whose changed users exceeded the table. Servers with several realms
/// have dozens.
pub(crate) const LARGE_REALMS_MAX: usize = 1024;

/// Maximum number of realms named in a warning when the configured realm has no users: a line or
/// two.
pub(crate) const REALMS_MAX: u32 = 8;

/// Deadline for a call of a command to a database server. An operator is waiting.
pub(crate) const EDIT_WITHIN: Duration = Duration::from_secs(10);

/// Deadline for one attempt to connect to a database server. Waiting look-ups time out earlier.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// First pause between attempts to connect to a database server.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Maximum pause between attempts to connect to a database server. With one second, users are found
/// within two seconds after the server is reachable again.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Number of connections to a database server for look-ups. Each connection carries concurrent
/// look-ups if the protocol allows. More connections would load a restarted server with
/// simultaneous connection attempts.
pub(crate) const CONNECTIONS: usize = 4;

/// Factor for the number of connections to MySQL and MongoDB, where a connection carries one
/// look-up at a time. The connections bound the number of concurrent look-ups.
pub(crate) const ONE_AT_A_TIME: usize = 4;

/// Maximum wait of a look-up for a responding member of a MongoDB replica set. Shorter than the
/// deadline of a look-up, so that the reason is known.
#[cfg(feature = "mongodb")]
pub(crate) const SELECT_WITHIN: Duration = Duration::from_secs(1);

/// Time after which an unused connection to MongoDB is replaced. Firewalls forget connections that
/// are silent for minutes.
#[cfg(feature = "mongodb")]
pub(crate) const UNUSED_FOR: Duration = Duration::from_secs(60);

/// Time of silence after which a connection to a database server is probed, and then closed.
pub(crate) const SILENT_FOR: Duration = Duration::from_secs(10);

/// Interval of checks for whether the database reports changes. An operator may enable or disable
/// the reports.
pub(crate) const TRIGGER_EVERY: Duration = Duration::from_secs(5);

/// Number of keys that one SCAN step examines, about a millisecond of the server's time.
pub(crate) const SCAN_COUNT: u32 = 1000;

/// Number of connections for reading tables, one statement after the other.
pub(crate) const CONNECTIONS_TABLES: usize = 1;

/// Maximum number of rows read from one table: three limits for each of 4096 realms, with a margin.
/// More rows are a mistake, or an attack on this server's memory.
pub(crate) const TABLE_ROWS_MAX: u32 = 16_384;

/// Maximum wait of a look-up for a program that writes to coturn's SQLite file. Shorter than the
/// deadline of a look-up.
pub(crate) const READER_BUSY: Duration = Duration::from_secs(1);

/// Interval of checks of the change count of coturn's SQLite file. Each check reads one page.
pub(crate) const DATA_VERSION_EVERY: Duration = Duration::from_millis(200);
