//! The thread that writes the ledger.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crate::lasting_state::StateLog;
use crate::ledger::Ledger;
use crate::ledger_queue::{LedgerQueue, Returned, Work};
use crate::limits::{SYNC_EVERY, UNCONFIRMED_MAX};
use crate::lines::{ended_in, missing_from};
use crate::outputs::{Files, Progress};
use crate::record::{PROCESS_LOST, Record};
use crate::turn::Turn;

/// Parts of an output that the ledger needs.
pub(crate) struct LedgerOutput {
    pub(crate) progress: Progress,
    pub(crate) files: Files,
}

/// Opens a ledger; `None` while another process has it.
pub(crate) type Open = Box<dyn FnMut(&Path) -> io::Result<Option<Ledger>> + Send>;

/// Starts the thread, until [`LedgerQueue::end`].
///
/// # Errors
/// There is no thread left.
pub(crate) fn start(
    path: &Path,
    open: Open,
    queue: LedgerQueue,
    outputs: Vec<LedgerOutput>,
) -> io::Result<()> {
    let path = path.to_owned();
    let failures = StateLog::default();
    let turn = Turn::take(&path).inspect_err(|error| tracing::error!(%error, "{CANNOT}")).ok();
    let (ledger, wait) = (None, None);
    let writer = LedgerWriter { path, open, turn, ledger, queue, outputs, wait, failures };
    thread::Builder::new().name("ledger".to_owned()).spawn(move || writer.run())?;
    Ok(())
}

/// The state of the thread.
pub(crate) struct LedgerWriter {
    path: PathBuf,
    open: Open,
    /// `None` after a failure of the disk.
    turn: Option<Turn>,
    /// `None` while a predecessor lives, or the disk fails.
    ledger: Option<Ledger>,
    queue: LedgerQueue,
    outputs: Vec<LedgerOutput>,
    /// Wait for all unconfirmed end records, or for the oldest.
    wait: Option<Wait>,
    failures: StateLog,
}

/// A wait until outputs have stored ends. Later ends do not prolong it: on a busy server some are
/// on their way at every moment.
struct Wait {
    /// Number of the oldest unconfirmed ends of the ledger.
    ends: usize,
    /// Number of accepted records, with those of the ends.
    accepted: u64,
    /// Number of lines of each output, including the end records, once it has received them.
    sent: Option<Vec<u64>>,
}

impl Wait {
    fn is_over(&mut self, queue: &LedgerQueue, outputs: &[LedgerOutput]) -> bool {
        if self.sent.is_none() && queue.has_delivered(self.accepted) {
            self.sent = Some(outputs.iter().map(|output| output.progress.sent()).collect());
        }
        let have_all = |sent: &Vec<u64>| {
            outputs.iter().zip(sent).all(|(output, sent)| output.progress.has_done(*sent))
        };
        self.sent.as_ref().is_some_and(have_all)
    }
}

impl LedgerWriter {
    fn run(mut self) {
        let mut looked: Option<Instant> = None;
        loop {
            // A later look repeats a failed append.
            let _ = self.append_waiting();
            let is_due = looked.is_none_or(|looked| looked.elapsed() >= SYNC_EVERY);
            if is_due || self.queue.is_look_wanted() {
                looked = Some(Instant::now());
                self.look();
                if self.queue.note_look() {
                    break;
                }
            }
            self.queue.wait_for_work(SYNC_EVERY);
        }
        // The ledger is free before the recorder continues.
        drop((self.ledger, self.turn));
        self.queue.note_end();
    }

    /// Appends the waiting records, sorted by time. Returns false if the disk refuses a record.
    fn append_waiting(&mut self) -> bool {
        let Some(ledger) = &mut self.ledger else { return true };
        while let Some(work) = self.queue.take() {
            let appended = match &work {
                Work::Append(entry) => ledger.append(&entry.record, &entry.line),
                Work::Close(session) => ledger.close(session),
            };
            if let Err(error) = appended {
                self.queue.put_back(work);
                self.failures.failed(CANNOT, &error);
                return false;
            }
            self.queue.note_appended();
        }
        true
    }

    /// Opens the ledger, ends lost sessions, and confirms ends that outputs have stored.
    pub(crate) fn look(&mut self) {
        if self.ledger.is_none() {
            match self.open().and_then(|ledger| ledger.map(|one| self.begin(one)).transpose()) {
                Ok(Some(ledger)) => self.ledger = Some(ledger),
                Ok(None) => return self.queue.note_stuck(),
                Err(error) => {
                    self.queue.note_stuck();
                    return self.failures.failed(CANNOT, &error);
                }
            }
        }
        if !self.append_waiting() {
            return;
        }
        if let Err(error) = self.end_lost().and_then(|()| self.confirm()) {
            return self.failures.failed(CANNOT, &error);
        }
        self.failures.works("the file of open sessions is written again");
    }

    /// Opens the ledger after the exit of all predecessors: the ledger is complete then.
    fn open(&mut self) -> io::Result<Option<Ledger>> {
        match self.turn.as_mut().map(Turn::has_come).transpose()? {
            Some(false) => Ok(None),
            Some(true) | None => (self.open)(&self.path),
        }
    }

    /// Repeats records that outputs may lack. After an error reopens the ledger.
    fn begin(&self, ledger: Ledger) -> io::Result<Ledger> {
        let unconfirmed = ledger.unconfirmed()?;
        if !unconfirmed.is_empty() {
            for (output, LedgerOutput { files, .. }) in self.outputs.iter().enumerate() {
                let files = files();
                let (mut lost, mut own) = (Vec::new(), Vec::new());
                for line in missing_from(&files, &unconfirmed) {
                    let record = serde_json::from_str::<Record>(&line).ok();
                    let line: Arc<str> = line.into();
                    match record.filter(|one| one.reason.as_deref() == Some(PROCESS_LOST)) {
                        Some(record) => lost.push((record, line)),
                        None => own.push(Returned { output, line }),
                    }
                }
                self.queue.give_back(own);
                self.give_back_lost(output, &files, &lost);
            }
        }
        Ok(ledger)
    }

    /// Writes end records of sessions that no process has. After an error the others follow later.
    fn end_lost(&mut self) -> io::Result<()> {
        let Some(survivors) = self.queue.take_survivors() else { return Ok(()) };
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        let (mut ended, mut outcome) = (Vec::new(), Ok(()));
        match ledger.lost(&survivors) {
            Ok(lost) => {
                for record in lost {
                    let line = record.line();
                    outcome = ledger.append(&record, &line);
                    if outcome.is_err() {
                        break;
                    }
                    ended.push((record, Arc::<str>::from(line)));
                }
            }
            Err(error) => outcome = Err(error),
        }
        if outcome.is_err() {
            self.queue.put_survivors_back(survivors);
        }
        if !ended.is_empty() {
            let sessions = ended.len();
            tracing::warn!(
                sessions,
                "sessions of a process that ended unexpectedly have their end records now"
            );
            for (output, LedgerOutput { files, .. }) in self.outputs.iter().enumerate() {
                self.give_back_lost(output, &files(), &ended);
            }
        }
        outcome
    }

    /// Returns end records of lost sessions to an output with these files, unless it has an end of
    /// the session. Its end record may be missing in the ledger, whose disk hung before the crash.
    fn give_back_lost(&self, output: usize, files: &[PathBuf], ended: &[(Record, Arc<str>)]) {
        if ended.is_empty() {
            return;
        }
        let sessions = ended.iter().map(|(record, _)| (record.id.as_str(), record.started));
        let has_end = ended_in(files, &sessions.collect());
        let lines = ended
            .iter()
            .filter(|(record, _)| !has_end.contains(&(record.id.clone(), record.started)));
        let line = |(_, line): &(Record, Arc<str>)| Returned { output, line: Arc::clone(line) };
        self.queue.give_back(lines.map(line));
    }

    fn confirm(&mut self) -> io::Result<()> {
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        // After a completed wait, the following wait may be complete, too.
        for _ in 0..2 {
            let (ends, accepted) = (ledger.unconfirmed_len(), self.queue.accepted());
            let mut wait = self.wait.take().unwrap_or(Wait { ends, accepted, sent: None });
            if wait.is_over(&self.queue, &self.outputs) {
                ledger.confirm(wait.ends)?;
            } else {
                self.wait = Some(wait);
            }
        }
        // An output that is stuck loses and counts what its queue does not hold.
        let most = UNCONFIRMED_MAX + self.queue.returned_len();
        let excess = ledger.unconfirmed_len().saturating_sub(most);
        if let Some(wait) = &mut self.wait {
            wait.ends = wait.ends.saturating_sub(excess);
        }
        ledger.confirm(excess)?;
        ledger.compact()?;
        ledger.sync()
    }
}

const CANNOT: &str = "the file of open sessions cannot be written: after a crash they may have no end record; see that \
                      the server may write to data.directory";

#[cfg(test)]
impl LedgerWriter {
    /// A writer for one output without files.
    pub(crate) fn for_test(path: &Path, open: Open, queue: LedgerQueue) -> Self {
        let output = LedgerOutput { progress: Progress::default(), files: Box::new(Vec::new) };
        let failures = StateLog::default();
        let (path, outputs) = (path.to_owned(), vec![output]);
        let (turn, ledger, wait) = (None, None, None);
        Self { path, open, turn, ledger, queue, outputs, wait, failures }
    }

    pub(crate) fn ledger_mut(&mut self) -> &mut Ledger {
        self.ledger.as_mut().expect("an open ledger")
    }
}
