//! Limits of accounting.

use std::time::Duration;

use control::limits::SESSION_EVENTS;

/// Time between two attempts to write a record that the disk did not take. Records wait in the
/// queue meanwhile.
pub(crate) const RETRY_EVERY: Duration = Duration::from_secs(1);

/// Longest time that a written record is not yet on the disk itself: the most that a power cut
/// loses.
pub(crate) const SYNC_EVERY: Duration = Duration::from_secs(1);

/// Time between two lines of the log about a file that cannot be written.
pub(crate) const TELL_EVERY: Duration = Duration::from_secs(60);

/// Time that outputs wait for the ledger to take a record. A local disk needs microseconds, and
/// some hundred milliseconds while others write much.
pub(crate) const LEDGER_WITHIN: Duration = Duration::from_secs(1);

/// Maximum number of ended sessions that the ledger closes later: their records have found its
/// queue full. About 100 bytes each.
pub(crate) const CLOSED_SESSIONS_MAX: usize = 1 << 20;

/// Maximum number of end records that the ledger repeats after a crash: the full queue of an
/// output, and the records between the ledger and that queue.
pub(crate) const UNCONFIRMED_MAX: usize = SESSION_EVENTS + 2 * EVENTS_TOGETHER_MAX;

/// Maximum number of events that the ledger gets together.
pub(crate) const EVENTS_TOGETHER_MAX: usize = 255;

/// Time that the end of the server waits for a disk that takes nothing.
pub(crate) const END_WITHIN: Duration = Duration::from_secs(5);

/// Files that a full spool has: the oldest is dropped as a whole, so the more there are, the less
/// is dropped at a time.
pub(crate) const SPOOL_SEGMENTS: u64 = 8;

/// Most bytes of records in a request: web servers commonly accept 1 MiB. A record has about 1 KiB.
pub(crate) const BATCH_BYTES_MAX: u64 = 768 << 10;

/// Size of a file of records that the web service has refused for good, one of two files. They hold
/// some 16,000 records, more than an operator reads by hand.
pub(crate) const REFUSED_BYTES_MAX: u64 = 8 << 20;

/// Size of the file of open sessions from which it is rewritten.
pub(crate) const LEDGER_BYTES_MIN: u64 = 1 << 20;

/// Size of that file, in sizes of the lines of open sessions, from which it is rewritten: each line
/// is copied once for four new ones.
pub(crate) const LEDGER_WASTE_MAX: u64 = 4;

/// Longest line of that file. A record has about 1 KiB.
pub(crate) const LEDGER_LINE_BYTES_MAX: u64 = 1 << 20;

/// Total size of the latest records of an output that are searched for end records after a crash:
/// some hundred thousand records. The queues hold 16,384, and the ledger notes within some seconds
/// which ones outputs have stored.
pub(crate) const SEARCHED_BYTES_MAX: u64 = 256 << 20;

/// Maximum number of full files of records that are searched: the maximum of `accounting.files`.
pub(crate) const SEARCHED_FILES_MAX: u32 = 10_000;

/// Longest time for a request, and so for the end of the server while one is under way.
pub const REQUEST_WITHIN: Duration = Duration::from_secs(10);

/// Largest answer that is read; its content is not used.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Pause after a request that failed; each further one is twice the one before, up to the longest.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(500);

/// Longest pause between two requests: a service that is back gets its records within a minute.
pub(crate) const PAUSE_MAX: Duration = Duration::from_mins(1);
