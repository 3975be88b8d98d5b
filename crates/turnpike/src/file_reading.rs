//! Reading of files on another thread. A disk that hangs stalls this thread, and not the tasks of
//! the control plane.

use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinSet};

/// Time after which a read is late. A local disk needs milliseconds, and a network file system that
/// recovers needs some seconds. The value is below a command's deadline for its response (20 s).
pub(crate) const LATE_AFTER: Duration = Duration::from_secs(10);

/// Reader of one kind of files, with at most one read at a time.
pub(crate) struct FileReading<T> {
    /// Files to read, worded as the object of a sentence.
    what: &'static str,
    read: JoinSet<T>,
    started: Instant,
    is_reported: bool,
}

impl<T: Send + 'static> FileReading<T> {
    /// Creates a reader of the files that log lines name `what`.
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, read: JoinSet::new(), started: Instant::now(), is_reported: false }
    }

    /// Returns true if no read is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.read.is_empty()
    }

    /// Calls `read` on another thread. Returns false, without a call, if another read is in
    /// progress.
    pub(crate) fn start(&mut self, read: impl FnOnce() -> T + Send + 'static) -> bool {
        if !self.is_idle() {
            return false;
        }
        (self.started, self.is_reported) = (Instant::now(), false);
        self.read.spawn_blocking(read);
        true
    }

    /// Waits for the result of the read in progress. Returns `None` if no read is in progress.
    ///
    /// # Errors
    /// The read has panicked.
    pub(crate) async fn next(&mut self) -> Option<Result<T, JoinError>> {
        let done = self.read.join_next().await?;
        if self.is_reported {
            tracing::info!("the disk has returned {} after {} s", self.what, self.seconds());
        }
        Some(done)
    }

    /// Returns true if the read in progress started at least [`LATE_AFTER`] ago. Logs a warning
    /// once for each read.
    pub(crate) fn is_late(&mut self) -> bool {
        let is_late = !self.is_idle() && self.started.elapsed() >= LATE_AFTER;
        if is_late && !std::mem::replace(&mut self.is_reported, true) {
            tracing::warn!(
                "the disk has not returned {} for {} s: what is in effect remains; check the disk or the network \
                 file system",
                self.what,
                self.seconds()
            );
        }
        is_late
    }

    /// Returns the age of the last read in seconds.
    pub(crate) fn seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Ages the read in progress by [`LATE_AFTER`].
    #[cfg(test)]
    pub(crate) fn make_late(&mut self) {
        self.started -= LATE_AFTER;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn a_disk_that_hangs_holds_up_one_thread_and_no_caller() {
        let mut reading = FileReading::new("files");
        assert!(reading.is_idle() && reading.next().await.is_none());
        let (release, hangs) = channel::<u8>();
        assert!(reading.start(move || hangs.recv()));
        assert!(!reading.start(|| Ok(2)), "one at a time");
        assert!(!reading.is_late());
        reading.make_late();
        assert!(reading.is_late());
        release.send(1).unwrap();
        assert_eq!(reading.next().await.unwrap().unwrap(), Ok(1));
        assert!(reading.is_idle() && !reading.is_late());
        assert!(reading.start(|| Ok(3)));
        assert_eq!(reading.next().await.unwrap().unwrap(), Ok(3));
    }
}
