//! Queues of the outputs of records.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use control::limits::SESSION_EVENTS;

/// The queue of an output, at which the recorder puts records in.
pub struct OutputQueue {
    sender: SyncSender<Arc<str>>,
    progress: Progress,
    /// Counts records that the full queue drops.
    lost: Box<dyn Fn(u64) + Send>,
    /// Files in which the output stores records.
    files: Option<Files>,
}

/// Returns the files in which an output stores records.
pub(crate) type Files = Box<dyn Fn() -> Vec<PathBuf> + Send>;

/// Numbers of lines that were put into the queue of an output, and that the output has handled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    sent: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
}

impl Progress {
    /// Returns true if the output has handled all lines.
    pub(crate) fn is_done(&self) -> bool {
        self.has_done(self.sent())
    }

    /// Number of lines that were put into the queue.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Returns true if the output has handled this number of lines of its queue.
    pub(crate) fn has_done(&self, sent: u64) -> bool {
        self.done.load(Ordering::Acquire) >= sent
    }
}

/// The queue of an output, from which the output takes lines.
#[derive(Debug)]
pub struct Lines {
    receiver: Receiver<Arc<str>>,
    done: Arc<AtomicU64>,
}

/// Builds the queue of an output.
#[must_use]
pub fn output_queue(
    lost: Box<dyn Fn(u64) + Send>,
    files: Box<dyn Fn() -> Vec<PathBuf> + Send>,
) -> (OutputQueue, Lines) {
    let (sender, receiver) = sync_channel(SESSION_EVENTS);
    let progress = Progress::default();
    let lines = Lines { receiver, done: Arc::clone(&progress.done) };
    (OutputQueue { sender, progress, lost, files: Some(files) }, lines)
}

impl Lines {
    pub(crate) fn recv_timeout(&self, time: Duration) -> Result<Arc<str>, RecvTimeoutError> {
        self.receiver.recv_timeout(time)
    }

    /// Notes that the latest line is stored, or counted as lost.
    pub(crate) fn done(&self) {
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Number of lines that still come.
    pub(crate) fn count(&self) -> u64 {
        self.receiver.iter().count() as u64
    }
}

impl OutputQueue {
    pub(crate) fn put(&self, line: &Arc<str>) {
        match self.sender.try_send(Arc::clone(line)) {
            Ok(()) => drop(self.progress.sent.fetch_add(1, Ordering::Release)),
            Err(_) => (self.lost)(1),
        }
    }

    /// Number of returned lines that the queue takes now. They leave half of it to new records.
    pub(crate) fn room_for_returned(&self) -> usize {
        let done = self.progress.done.load(Ordering::Acquire);
        let waiting = self.progress.sent().saturating_sub(done);
        (SESSION_EVENTS / 2).saturating_sub(usize::try_from(waiting).unwrap_or(usize::MAX))
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Takes the list of files, once.
    pub(crate) fn take_files(&mut self) -> Files {
        self.files.take().unwrap_or_else(|| Box::new(Vec::new))
    }
}

impl std::fmt::Debug for OutputQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("OutputQueue")
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
