//! Ends of sessions, and their state meanwhile, on the way from the workers to the outputs of their
//! records.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use turn_proto::AllocationRecord;
use turn_types::{AllocationId, Instant};

use crate::limits::SESSION_EVENTS;

/// An event of a session that is accounted for.
#[derive(Clone, Debug)]
pub enum SessionEvent {
    /// A session has ended.
    Ended(Box<AllocationRecord>),
    /// A session has started.
    Created(Box<AllocationRecord>),
    /// A session was refreshed, for outputs that follow the life of sessions.
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
    /// The sessions that this process has taken over: all other sessions of predecessors have
    /// ended.
    Survivors(Arc<[AllocationId]>),
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
        /// The file of open sessions, the source of end records after a crash.
        Ledger => "ledger",
    }
}

impl RecordOutput {
    /// Returns true if it gets refreshes of sessions as well.
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
    outputs: Vec<RecordOutput>,
    sender: SyncSender<SessionEvent>,
}

impl SessionEvents {
    /// Adds the queue of some outputs. Returns the end at which their events are taken out.
    #[must_use]
    pub fn add(&mut self, outputs: &[RecordOutput]) -> Receiver<SessionEvent> {
        let (sender, receiver) = sync_channel(SESSION_EVENTS);
        self.0.push(EventQueue { outputs: outputs.to_vec(), sender });
        receiver
    }

    /// Puts an event into all queues. Never blocks: calls `lost` for each output whose queue is
    /// full, where the event is lost.
    pub fn put(&self, event: &SessionEvent, mut lost: impl FnMut(RecordOutput)) {
        let is_refresh = matches!(event, SessionEvent::Refreshed { .. });
        let is_of_life = is_refresh || matches!(event, SessionEvent::Created(_));
        for queue in &self.0 {
            let follows_life = queue.follows_life();
            if is_refresh && !follows_life || queue.put(event.clone()) {
                continue;
            }
            // A start is not recorded by an output that does not follow the life of sessions.
            if !is_of_life || follows_life {
                queue.outputs.iter().copied().for_each(&mut lost);
            }
        }
    }

    /// Returns true if an output receives refreshes of sessions.
    #[must_use]
    pub fn follow_life(&self) -> bool {
        self.0.iter().any(EventQueue::follows_life)
    }

    /// The queues.
    #[must_use]
    pub fn queues(&self) -> &[EventQueue] {
        &self.0
    }
}

impl EventQueue {
    fn follows_life(&self) -> bool {
        self.outputs.iter().any(|output| output.follows_life())
    }

    /// Puts an event in. Never blocks: false if the queue is full, and the event not in it.
    #[must_use]
    pub fn put(&self, event: SessionEvent) -> bool {
        self.sender.try_send(event).is_ok()
    }
}
