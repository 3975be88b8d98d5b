//! Records on the way to the ledger, and lines of the ledger on the way back to the outputs.
//!
//! The recorder puts records in, and waits a moment for the ledger before the outputs get them. The
//! thread of the ledger takes them out. A disk that hangs stops only that thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::limits::SESSION_EVENTS;

use crate::limits::{CLOSED_SESSIONS_MAX, LEDGER_WITHIN};
use crate::record::{Record, RecordEvent};

/// The queue. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct LedgerQueue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Entry>,
    /// Ended sessions without space for their records in the queue. The outputs have the records.
    closed: VecDeque<ClosedSession>,
    /// Numbers of records that were accepted, that the ledger has, and that outputs have.
    accepted: u64,
    appended: u64,
    delivered: u64,
    /// Lines for outputs, by the index of the output. None is empty.
    returned: BTreeMap<usize, VecDeque<Arc<str>>>,
    /// The recorder puts returned lines into the queues of outputs.
    is_returning: bool,
    /// Ids of the sessions that this process has taken over, until they are compared.
    survivors: Option<BTreeSet<String>>,
    is_look_wanted: bool,
    /// The ledger belongs to another process, or its disk fails.
    is_stuck: bool,
    /// The disk has not taken a record in time; until it takes one.
    is_late: bool,
    is_ending: bool,
    has_ended: bool,
}

/// A record and its line.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) record: Record,
    pub(crate) line: Arc<str>,
}

/// Part of an end record by which the ledger knows the session.
#[derive(Clone, Debug)]
pub(crate) struct ClosedSession {
    pub(crate) id: String,
    pub(crate) started: u64,
}

/// Line of the ledger for an output.
#[derive(Clone, Debug)]
pub(crate) struct Returned {
    /// Index of the output.
    pub(crate) output: usize,
    pub(crate) line: Arc<str>,
}

/// Work of the ledger's thread.
#[derive(Debug)]
pub(crate) enum Work {
    Append(Box<Entry>),
    Close(ClosedSession),
}

/// The recorder's side.
impl LedgerQueue {
    /// Adds a record. Never blocks. Without space an ended session leaves its id only.
    /// Returns false if the record is lost: after a crash the ledger has an earlier state of the
    /// session.
    pub(crate) fn put(&self, record: Record, line: Arc<str>) -> bool {
        let mut state = self.state();
        if state.waiting.len() < SESSION_EVENTS {
            state.waiting.push_back(Entry { record, line });
        } else if record.event == RecordEvent::End && state.closed.len() < CLOSED_SESSIONS_MAX {
            let Record { id, started, .. } = record;
            state.closed.push_back(ClosedSession { id, started });
        } else {
            return false;
        }
        state.accepted += 1;
        self.0.changed.notify_all();
        true
    }

    /// Waits until the ledger has all records, as long as it takes one now and then. Does not wait
    /// for a ledger that is stuck or late.
    pub(crate) fn settle(&self) {
        let mut state = self.state();
        let is_behind =
            |state: &State| state.appended < state.accepted && !state.is_stuck && !state.is_late;
        while is_behind(&state) {
            let before = state.appended;
            let is_waiting = |state: &mut State| is_behind(state) && state.appended == before;
            let (waited, is_over) = self.wait(state, LEDGER_WITHIN, is_waiting);
            state = waited;
            state.is_late |= is_over;
        }
    }

    /// Returns true while the ledger lacks records.
    pub(crate) fn is_behind(&self) -> bool {
        let state = self.state();
        state.appended < state.accepted
    }

    /// Returns true while the disk does not take records in time.
    pub(crate) fn is_late(&self) -> bool {
        self.state().is_late
    }

    /// Notes that outputs have the records that were accepted before.
    pub(crate) fn note_delivered(&self) {
        let mut state = self.state();
        state.delivered = state.accepted;
    }

    /// Takes up to `most` lines for an output. [`note_returned`](Self::note_returned) must follow.
    pub(crate) fn take_returned(&self, output: usize, most: usize) -> Vec<Arc<str>> {
        let mut state = self.state();
        let Some(lines) = state.returned.get_mut(&output) else { return Vec::new() };
        let taken = lines.drain(..most.min(lines.len())).collect();
        if lines.is_empty() {
            state.returned.remove(&output);
        }
        state.is_returning = true;
        taken
    }

    /// Notes that outputs have all lines that were taken. Returns true if there are others.
    pub(crate) fn note_returned(&self) -> bool {
        let mut state = self.state();
        state.is_returning = false;
        !state.returned.is_empty()
    }

    /// Compares the open sessions of predecessors with those that this process has taken over.
    pub(crate) fn compare(&self, survivors: BTreeSet<String>) {
        let mut state = self.state();
        state.survivors = Some(survivors);
        state.is_look_wanted = true;
        self.0.changed.notify_all();
    }

    /// Has the thread check the ledger, and waits for the end of the check.
    pub(crate) fn look(&self, within: Duration) {
        let mut state = self.state();
        state.is_look_wanted = true;
        self.0.changed.notify_all();
        drop(self.wait(state, within, |state| state.is_look_wanted && !state.has_ended));
    }

    /// Has the thread exit, and waits for the exit.
    pub(crate) fn end(&self, within: Duration) {
        let mut state = self.state();
        state.is_ending = true;
        self.0.changed.notify_all();
        drop(self.wait(state, within, |state| !state.has_ended));
    }
}

/// The side of the ledger's thread.
impl LedgerQueue {
    /// Waits for records, a wanted check or the end. After a failure waits for the full time.
    pub(crate) fn wait_for_work(&self, within: Duration) {
        let is_idle = |state: &mut State| {
            let has_work = !state.waiting.is_empty() || !state.closed.is_empty();
            (!has_work || state.is_stuck) && !state.is_look_wanted && !state.is_ending
        };
        drop(self.wait(self.state(), within, is_idle));
    }

    /// Takes the oldest record, or an ended session after all records.
    pub(crate) fn take(&self) -> Option<Work> {
        let mut state = self.state();
        let record = state.waiting.pop_front().map(Box::new).map(Work::Append);
        record.or_else(|| state.closed.pop_front().map(Work::Close))
    }

    /// Puts work back that the disk did not take.
    pub(crate) fn put_back(&self, work: Work) {
        let mut state = self.state();
        match work {
            Work::Append(entry) => state.waiting.push_front(*entry),
            Work::Close(session) => state.closed.push_front(session),
        }
        self.set_stuck(state);
    }

    /// Notes that the ledger has the work that was taken last.
    pub(crate) fn note_appended(&self) {
        let mut state = self.state();
        state.appended += 1;
        (state.is_stuck, state.is_late) = (false, false);
        self.0.changed.notify_all();
    }

    /// Notes that the ledger takes no records.
    pub(crate) fn note_stuck(&self) {
        self.set_stuck(self.state());
    }

    fn set_stuck(&self, mut state: MutexGuard<'_, State>) {
        state.is_stuck = true;
        self.0.changed.notify_all();
    }

    /// Returns a line to outputs.
    pub(crate) fn give_back(&self, lines: impl IntoIterator<Item = Returned>) {
        let mut state = self.state();
        for Returned { output, line } in lines {
            state.returned.entry(output).or_default().push_back(line);
        }
    }

    /// Most lines that still wait for an output.
    pub(crate) fn returned_len(&self) -> usize {
        self.state().returned.values().map(VecDeque::len).max().unwrap_or(0)
    }

    pub(crate) fn take_survivors(&self) -> Option<BTreeSet<String>> {
        self.state().survivors.take()
    }

    /// Puts survivors back after a failure, if there are no newer ones.
    pub(crate) fn put_survivors_back(&self, survivors: BTreeSet<String>) {
        self.state().survivors.get_or_insert(survivors);
    }

    /// Number of records that were accepted, which the ledger has or gets.
    pub(crate) fn accepted(&self) -> u64 {
        self.state().accepted
    }

    /// Returns true if the queues of outputs have got so many of the accepted records, and all
    /// returned lines.
    pub(crate) fn has_delivered(&self, accepted: u64) -> bool {
        let state = self.state();
        state.delivered >= accepted && state.returned.is_empty() && !state.is_returning
    }

    /// Notes the end of a check. Returns true if the thread is to exit.
    pub(crate) fn note_look(&self) -> bool {
        let mut state = self.state();
        state.is_look_wanted = false;
        self.0.changed.notify_all();
        state.is_ending
    }

    /// Returns true if a check is wanted, or the thread is to exit.
    pub(crate) fn is_look_wanted(&self) -> bool {
        let state = self.state();
        state.is_look_wanted || state.is_ending
    }

    /// Notes that the thread exits.
    pub(crate) fn note_end(&self) {
        self.state().has_ended = true;
        self.0.changed.notify_all();
    }
}

impl LedgerQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the condition holds. Also returns true if the time is over.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        within: Duration,
        condition: impl FnMut(&mut State) -> bool,
    ) -> (MutexGuard<'a, State>, bool) {
        let waited = self.0.changed.wait_timeout_while(state, within, condition);
        let (state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        (state, result.timed_out())
    }
}
