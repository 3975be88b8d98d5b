//! Hand-over of all workers, called by the control plane on a thread that may block.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use control::Reply;
use turn_proto::Progress;
use turn_types::{AllocationId, WorkerId};

use super::channels::WorkerChannels;
use super::message::WorkerMessage;
use crate::copying::Recipient;
use crate::io::{Kernel, Net};
use crate::limits::LEAVE_DEADLINE;
use crate::snapshot::Export;

/// Pause between two attempts at a full queue.
const FULL_PAUSE: Duration = Duration::from_millis(1);

impl WorkerChannels {
    /// Pauses and exports all workers.
    ///
    /// # Errors
    /// A worker does not respond in time, or has no descriptors left. All workers are rolled back.
    pub fn export(&self) -> io::Result<Vec<Export<OwnedFd>>> {
        // After all responses to the first message, all messages between workers have arrived.
        let exported = self
            .ask_all(WorkerMessage::Pause)
            .and_then(|_| self.ask_all(WorkerMessage::Export)?.into_iter().collect());
        exported.inspect_err(|_| self.roll_back())
    }

    /// Returns the progress of each paused worker's allocations on the kernel path. If `ends` is
    /// true, the kernel path stops, because the successor is about to serve. Otherwise the kernel
    /// path continues without this process.
    ///
    /// # Errors
    /// A worker does not respond in time.
    pub fn last_progress(&self, ends: bool) -> io::Result<Vec<Vec<(AllocationId, Progress)>>> {
        self.ask_all(|reply| WorkerMessage::LastProgress(ends, reply))
    }

    /// Sends a message to all workers, then waits for the responses.
    fn ask_all<T: Send + 'static>(
        &self,
        message: impl Fn(Reply<T>) -> WorkerMessage<Kernel>,
    ) -> io::Result<Vec<T>> {
        let no_answer = || io::Error::new(io::ErrorKind::TimedOut, "a worker does not answer");
        let mut answers = Vec::new();
        for worker in self.ids() {
            let (tell, told) = channel();
            let reply = Box::new(move |answer| drop(tell.send(answer)));
            self.send(worker, message(reply)).map_err(|_| no_answer())?;
            answers.push(told);
        }
        let wait = |told: Receiver<T>| told.recv_timeout(LEAVE_DEADLINE).map_err(|_| no_answer());
        answers.into_iter().map(wait).collect()
    }
}

impl<N: Net> WorkerChannels<N> {
    /// Starts sending snapshots of all allocations, then changes, to a keeper, until the receiver
    /// is dropped. The capacity of the channel is
    /// [`COPIES_WAITING`](crate::limits::COPIES_WAITING).
    pub fn copy_to_keeper(&self, receiver: &SyncSender<Export<N::Descriptor>>) {
        self.copy_to(receiver, Recipient::Keeper);
    }

    /// Starts sending snapshots to the successor. Snapshots for a keeper wait. An
    /// [export](Self::export) contains the changes that were not sent.
    pub fn copy_to_successor(&self, receiver: &SyncSender<Export<N::Descriptor>>) {
        self.copy_to(receiver, Recipient::Successor);
    }

    fn copy_to(&self, receiver: &SyncSender<Export<N::Descriptor>>, recipient: Recipient) {
        self.insist(|| WorkerMessage::Copy(receiver.clone(), recipient));
    }

    /// Rolls back all workers after a failure of the successor.
    pub fn roll_back(&self) {
        self.insist(|| WorkerMessage::RollBack);
    }

    /// Commits all workers: the successor serves.
    pub fn commit(&self) {
        self.insist(|| WorkerMessage::Commit);
    }

    /// Sends a message to all workers, and retries while a queue is full. The watchdog terminates a
    /// process with a worker that hangs.
    fn insist(&self, message: impl Fn() -> WorkerMessage<N>) {
        for worker in self.ids() {
            let until = Instant::now() + LEAVE_DEADLINE;
            while self.send(worker, message()).is_err() && Instant::now() < until {
                sleep(FULL_PAUSE);
            }
        }
    }

    fn ids(&self) -> impl Iterator<Item = WorkerId> + use<N> {
        (0..).map(WorkerId).take(self.count())
    }
}
