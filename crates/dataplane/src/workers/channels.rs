//! Bounded queues of messages, with one queue per worker.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use control::limits::MAILBOX_CAPACITY;
use control::{Inbox, Mailbox, Wake};
use turn_types::WorkerId;

use super::message::WorkerMessage;
use crate::io::{Kernel, Net};
use crate::limits::WORKER_MESSAGES_WAITING;

/// Receiving ends of one worker: requests of the control plane and messages of other workers.
#[derive(Debug)]
pub struct WorkerEndpoint<N: Net = Kernel> {
    pub(crate) net: N,
    pub(crate) inbox: Inbox,
    pub(crate) messages: WorkerReceiver<N>,
    sender: WorkerSender<N>,
}

impl<N: Net> WorkerEndpoint<N> {
    /// Creates the queues of one worker. `wake` is called for each new entry.
    #[must_use]
    pub fn new(net: N, wake: Arc<dyn Wake>) -> (Mailbox, Self) {
        let (mailbox, inbox) = control::mailbox(MAILBOX_CAPACITY, Arc::clone(&wake));
        let (queue, messages) = sync_channel(WORKER_MESSAGES_WAITING);
        let sender = WorkerSender { queue, wake };
        (mailbox, Self { net, inbox, messages: WorkerReceiver(messages), sender })
    }
}

/// Receiver of other workers' messages.
#[derive(Debug)]
pub(crate) struct WorkerReceiver<N: Net>(Receiver<WorkerMessage<N>>);

impl<N: Net> WorkerReceiver<N> {
    /// Takes the next message.
    pub(crate) fn take(&self) -> Option<WorkerMessage<N>> {
        // The call fails only for an empty queue, because the worker itself has a sender.
        self.0.try_recv().ok()
    }
}

struct WorkerSender<N: Net> {
    queue: SyncSender<WorkerMessage<N>>,
    wake: Arc<dyn Wake>,
}

impl<N: Net> Clone for WorkerSender<N> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), wake: Arc::clone(&self.wake) }
    }
}

/// Sending ends of all workers, sorted by worker id.
pub struct WorkerChannels<N: Net = Kernel>(Arc<[WorkerSender<N>]>);

impl<N: Net> Clone for WorkerChannels<N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<N: Net> WorkerChannels<N> {
    /// Returns the channels to the workers of these endpoints, which must be sorted by worker id.
    pub fn to<'a>(endpoints: impl IntoIterator<Item = &'a WorkerEndpoint<N>>) -> Self {
        Self(endpoints.into_iter().map(|endpoint| endpoint.sender.clone()).collect())
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The message is returned if the worker does not exist or has stopped, or if the queue is
    /// full.
    pub(crate) fn send(
        &self,
        to: WorkerId,
        message: WorkerMessage<N>,
    ) -> Result<(), WorkerMessage<N>> {
        let Some(sender) = self.0.get(usize::from(to.0)) else { return Err(message) };
        match sender.queue.try_send(message) {
            Ok(()) => {
                sender.wake.wake();
                Ok(())
            }
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => Err(message),
        }
    }

    /// Returns the number of workers.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns true if a worker with this number exists.
    pub(crate) fn reaches(&self, worker: WorkerId) -> bool {
        usize::from(worker.0) < self.0.len()
    }
}

impl<N: Net> fmt::Debug for WorkerSender<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerSender")
    }
}

impl<N: Net> fmt::Debug for WorkerChannels<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkerChannels").field(&self.0.len()).finish()
    }
}
