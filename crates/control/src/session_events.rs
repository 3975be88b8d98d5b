//! Ends of sessions, and their state meanwhile, on the way from the workers to the outputs of their
//! records.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use turn_proto::AllocationRecord;
use turn_types::Instant;

use crate::limits::SESSION_EVENTS;

/// An event of a session that is accounted for.
#[derive(Clone, Debug)]
pub enum SessionEvent {
    /// It has ended.
    Ended(Box<AllocationRecord>),
    /// It has begun: for outputs that follow its life.
    Created(Box<AllocationRecord>),
    /// It was refreshed: for the same.
    Refreshed {
        /// Its record.
        record: Box<AllocationRecord>,
        /// Time of the Refresh, by the clock of [`AllocationRecord::created`].
        at: Instant,
    },
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
        /// Redis (`accounting.redis`).
        Redis => "redis",
    }
}

impl RecordOutput {
    /// Returns true if it gets beginnings and refreshes of sessions as well.
    const fn follows_life(self) -> bool {
        matches!(self, Self::Redis)
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

    /// Puts an event into all queues. Never blocks: calls `lost` for each output whose queue is
    /// full, where the event is lost.
    pub fn put(&self, event: &SessionEvent, mut lost: impl FnMut(RecordOutput)) {
        let is_of_life = matches!(event, SessionEvent::Created(_) | SessionEvent::Refreshed { .. });
        for queue in &self.0 {
            if is_of_life && !queue.output.follows_life() {
                continue;
            }
            if !queue.put(event.clone()) {
                lost(queue.output);
            }
        }
    }

    /// Returns true if an output wants to know of the beginnings and refreshes of sessions.
    #[must_use]
    pub fn follow_life(&self) -> bool {
        self.0.iter().any(|queue| queue.output.follows_life())
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
