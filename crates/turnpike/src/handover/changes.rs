//! One rule for all that operators change while two processes exist: nothing of it is changed until
//! one of the two is gone.
//!
//! The successor reads files and rules while the predecessor serves. A change in that time would be
//! in force in the predecessor alone, and end with it. So changes wait: after a rollback they are
//! carried out, and after a commit their callers hear that this process stops, and ask the
//! successor.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::signals::Signal;

/// Changes by operators, as long as no successor prepares itself.
#[derive(Clone, Default)]
pub(crate) struct Changes(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// A change has ended.
    ended: Condvar,
    released: Notify,
}

#[derive(Default)]
struct State {
    /// A successor prepares itself.
    is_held: bool,
    /// A change is being carried out. There is one at most: all are the main task's.
    is_changing: bool,
    /// The server was told to end: no successor takes its place.
    is_ending: bool,
    /// Signals that wait.
    signals: BTreeSet<Signal>,
}

/// A change that is being carried out, until it is dropped.
pub(crate) struct Change(Arc<Shared>);

/// No change is carried out, until it is dropped or [final](Self::make_final).
pub(super) struct Hold(Option<Arc<Shared>>);

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changes {
    /// Returns true while changes have to wait.
    #[cfg(test)]
    fn are_held(&self) -> bool {
        self.0.state().is_held
    }

    /// Begins a change; `None`: it has to wait.
    pub(crate) fn begin(&self) -> Option<Change> {
        let mut state = self.0.state();
        if state.is_held {
            return None;
        }
        state.is_changing = true;
        Some(Change(Arc::clone(&self.0)))
    }

    /// Keeps a signal for the process that serves when the hold is over.
    pub(crate) fn keep(&self, signal: Signal) {
        self.0.state().signals.insert(signal);
    }

    /// The next signal that was kept and can be obeyed now.
    pub(crate) fn kept_signal(&self) -> Option<Signal> {
        let mut state = self.0.state();
        if state.is_held { None } else { state.signals.pop_first() }
    }

    /// The server was told to end: a hold that goes on ends with a rollback.
    pub(crate) fn end(&self) {
        self.0.state().is_ending = true;
    }

    /// Returns true if the server was told to end.
    pub(super) fn is_ending(&self) -> bool {
        self.0.state().is_ending
    }

    /// The signals that wait, for the successor.
    pub(super) fn signals(&self) -> BTreeSet<Signal> {
        self.0.state().signals.clone()
    }

    /// Waits until changes may be carried out again.
    pub(crate) async fn released(&self) {
        self.0.released.notified().await;
    }

    /// Lets changes wait, behind the one that is being carried out.
    pub(super) fn hold(&self) -> Hold {
        let mut state = self.0.state();
        state.is_held = true;
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
    /// The successor serves: no change is carried out here any more.
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
