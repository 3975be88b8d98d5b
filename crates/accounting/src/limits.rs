//! Limits of accounting.

use std::time::Duration;

/// Time between two attempts to write a record that the disk did not take. Records wait in the queue meanwhile.
pub(crate) const RETRY_EVERY: Duration = Duration::from_secs(1);

/// Longest time that a written record is not yet on the disk itself: the most that a power cut loses.
pub(crate) const SYNC_EVERY: Duration = Duration::from_secs(1);

/// Time between two lines of the log about a file that cannot be written.
pub(crate) const TELL_EVERY: Duration = Duration::from_secs(60);

/// Time that the end of the server waits for a disk that takes nothing.
pub(crate) const END_WITHIN: Duration = Duration::from_secs(5);
