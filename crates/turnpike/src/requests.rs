//! Queue of operators' requests. Changes wait during a hand-over.

use std::collections::VecDeque;

use control::OperatorRequest;
use tokio::sync::mpsc;

use crate::handover::{Change, Changes};
use crate::signals::Signal;

/// Maximum number of deferred changes. Further changes remain in the queue.
const DEFERRED_MAX: usize = 16;

/// Receiver of operators' requests, with deferred changes.
pub(crate) struct Requests {
    queue: mpsc::Receiver<OperatorRequest>,
    pub(crate) changes: Changes,
    /// Changes that wait for the end of a hand-over.
    deferred: VecDeque<OperatorRequest>,
}

/// Next order of an operator.
pub(crate) enum Order {
    /// Request, with a permit for a change.
    Request(OperatorRequest, Option<Change>),
    /// Deferred signal.
    Signal(Signal),
}

impl Requests {
    pub(crate) const fn new(queue: mpsc::Receiver<OperatorRequest>, changes: Changes) -> Self {
        Self { queue, changes, deferred: VecDeque::new() }
    }

    /// Returns the next order. Changes wait during a hand-over. Abandoned changes are dropped.
    pub(crate) async fn next(&mut self) -> Order {
        loop {
            if let Some(signal) = self.changes.kept_signal() {
                return Order::Signal(signal);
            }
            self.deferred.retain(|request| !request.is_abandoned());
            let change = if self.deferred.is_empty() { None } else { self.changes.begin() };
            if change.is_some()
                && let Some(request) = self.deferred.pop_front()
            {
                return Order::Request(request, change);
            }
            if !self.deferred.is_empty() {
                self.changes.note_waiting();
            }
            tokio::select! {
                Some(request) = self.queue.recv(), if self.deferred.len() < DEFERRED_MAX => {
                    if !request.is_change() {
                        return Order::Request(request, None);
                    }
                    self.deferred.push_back(request);
                }
                () = self.changes.released() => {}
            }
        }
    }

    /// Returns a permit for a signal's change. If a hand-over is in progress, stores the signal and
    /// returns `None`.
    pub(crate) fn begin(&self, signal: Signal) -> Option<Change> {
        let change = self.changes.begin();
        if change.is_none() {
            tracing::info!("{signal:?} waits: another process is about to take over");
            self.changes.keep(signal);
            self.changes.note_waiting();
        }
        change
    }
}
