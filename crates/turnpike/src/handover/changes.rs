//! Lock that delays changes by operators during a hand-over.
//!
//! The successor reads files and rules while the predecessor still serves, and would miss a later
//! change. After a rollback the predecessor carries out the delayed changes. After a commit the
//! callers get an error and repeat the request at the successor, which also receives the delayed
//! signals.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::signals::Signal;

/// Lock for changes by operators.
#[derive(Clone, Default)]
pub(crate) struct Changes(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified after each change.
    ended: Condvar,
    released: Notify,
}

#[derive(Default)]
struct State {
    /// True during a hand-over.
    is_held: bool,
    /// True during a change. Only the main task makes changes: there is one at most.
    is_changing: bool,
    /// True after a signal to shut down: no hand-over follows.
    is_ending: bool,
    /// Delayed signals.
    signals: BTreeSet<Signal>,
    /// Time since which a change has been waiting for the end of the hand-over.
    waits_since: Option<Instant>,
}

/// Permit for one change by an operator. Dropping the permit completes the change.
pub(crate) struct Change(Arc<Shared>);

/// Prevents changes until dropped, or permanently after [`make_final`](Self::make_final).
pub(super) struct Hold(Option<Arc<Shared>>);

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changes {
    /// Returns true during a hand-over.
    #[cfg(test)]
    fn are_held(&self) -> bool {
        self.0.state().is_held
    }

    /// Returns a permit for a change, or `None` during a hand-over.
    pub(crate) fn begin(&self) -> Option<Change> {
        let mut state = self.0.state();
        if state.is_held {
            return None;
        }
        state.is_changing = true;
        Some(Change(Arc::clone(&self.0)))
    }

    /// Records that a change by an operator waits for the end of the hand-over.
    pub(crate) fn note_waiting(&self) {
        self.0.state().waits_since.get_or_insert_with(Instant::now);
    }

    /// Returns true if a change has waited longer than `patience`.
    pub(super) fn have_waited(&self, patience: Duration) -> bool {
        self.0.state().waits_since.is_some_and(|since| since.elapsed() > patience)
    }

    /// Stores a signal until the hand-over is over.
    pub(crate) fn keep(&self, signal: Signal) {
        self.0.state().signals.insert(signal);
    }

    /// Returns a stored signal, or `None` during a hand-over.
    pub(crate) fn kept_signal(&self) -> Option<Signal> {
        let mut state = self.0.state();
        if state.is_held { None } else { state.signals.pop_first() }
    }

    /// Records a signal to shut down: a hand-over in progress is rolled back.
    pub(crate) fn end(&self) {
        self.0.state().is_ending = true;
    }

    /// Returns true after a signal to shut down.
    pub(super) fn is_ending(&self) -> bool {
        self.0.state().is_ending
    }

    /// Returns the delayed signals, for the successor.
    pub(super) fn signals(&self) -> BTreeSet<Signal> {
        self.0.state().signals.clone()
    }

    /// Waits for the end of a hand-over.
    pub(crate) async fn released(&self) {
        self.0.released.notified().await;
    }

    /// Prevents changes. Blocks until the current change is complete.
    pub(super) fn hold(&self) -> Hold {
        let mut state = self.0.state();
        (state.is_held, state.waits_since) = (true, None);
        let changing = |state: &mut State| state.is_changing;
        let waited = self.0.ended.wait_while(state, changing);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        Hold(Some(Arc::clone(&self.0)))
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.0.state().is_changing = false;
        self.0.ended.notify_all();
    }
}

impl Hold {
    /// Prevents changes permanently, because the successor serves from now on.
    pub(super) fn make_final(mut self) {
        self.0 = None;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.state().is_held = false;
            shared.released.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_change_waits_for_the_end_of_a_hold_and_a_hold_for_that_of_a_change() {
        let changes = Changes::default();
        let change = changes.begin().unwrap();
        let (tell, told) = channel();
        let other = changes.clone();
        let holder = thread::spawn(move || {
            let hold = other.hold();
            tell.send(()).unwrap();
            hold
        });
        test_support::eventually("it is asked for", || changes.are_held());
        assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
        assert!(changes.begin().is_none());
        drop(change);
        let hold = holder.join().unwrap();
        assert!(changes.begin().is_none());
        drop(hold);
        assert!(changes.begin().is_some());
        changes.hold().make_final();
        assert!(changes.begin().is_none(), "they are the successor's");
    }

    #[tokio::test]
    async fn its_end_is_heard_also_by_one_that_asks_later() {
        let changes = Changes::default();
        drop(changes.hold());
        changes.released().await;
        assert!(!changes.are_held());
    }
}
