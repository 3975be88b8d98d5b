//! Ends of sessions, and their state meanwhile, on the way from the workers to the outputs of their records.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use turn_proto::AllocationRecord;
use turn_types::Instant;

use crate::limits::SESSION_EVENTS;

/// An event of a session that is accounted for.
#[derive(Clone, Debug)]
pub enum SessionEvent {
    /// It has ended.
    Ended(Box<AllocationRecord>),
    /// It goes on.
    Interim {
        /// Its record.
        record: Box<AllocationRecord>,
        /// Time of it, by the clock of [`AllocationRecord::created`].
        at: Instant,
    },
}

turn_types::labels! {
    /// An output of records.
    RecordOutput {
        /// Files (`accounting.file`).
        File => "file",
        /// A web service (`accounting.webhook`).
        Webhook => "webhook",
    }
}

/// The ends of the queues at which events are put in, one queue for each output. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SessionEvents(Vec<EventQueue>);

/// The end of an output's queue at which events are put in.
#[derive(Clone, Debug)]
pub struct EventQueue {
    output: RecordOutput,
    sender: SyncSender<SessionEvent>,
}

impl SessionEvents {
    /// Adds the queue of an output. Returns the end at which its events are taken out.
    #[must_use]
    pub fn add(&mut self, output: RecordOutput) -> Receiver<SessionEvent> {
        let (sender, receiver) = sync_channel(SESSION_EVENTS);
        self.0.push(EventQueue { output, sender });
        receiver
    }

    /// Puts an event into all queues. Never blocks: calls `lost` for each output whose queue is full, where the event is lost.
    pub fn put(&self, event: &SessionEvent, mut lost: impl FnMut(RecordOutput)) {
        for queue in &self.0 {
            if !queue.put(event.clone()) {
                lost(queue.output);
            }
        }
    }

    /// The queues.
    #[must_use]
    pub fn queues(&self) -> &[EventQueue] {
        &self.0
    }
}

impl EventQueue {
    /// Puts an event in. Never blocks: false if the queue is full, and the event not in it.
    #[must_use]
    pub fn put(&self, event: SessionEvent) -> bool {
        self.sender.try_send(event).is_ok()
    }
}
