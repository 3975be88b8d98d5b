//! Ends of sessions, and their state meanwhile, on the way from the workers to the writer of their records.

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

/// The end of the queue at which events are put in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SessionEvents(SyncSender<SessionEvent>);

impl SessionEvents {
    /// A queue, and the end at which its events are taken out.
    #[must_use]
    pub fn new() -> (Self, Receiver<SessionEvent>) {
        let (sender, receiver) = sync_channel(SESSION_EVENTS);
        (Self(sender), receiver)
    }

    /// Puts an event in. Never blocks: false if the queue is full, and the event lost.
    #[must_use]
    pub fn put(&self, event: SessionEvent) -> bool {
        self.0.try_send(event).is_ok()
    }
}
