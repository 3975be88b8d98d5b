//! The thread between the workers and the outputs of records. Each record is made once, goes to the
//! ledger first, and then to every output. A ledger whose disk hangs holds up no output.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use control::SessionEvent;

use crate::lasting_state::StateLog;
use crate::ledger::Ledger;
use crate::ledger_queue::LedgerQueue;
use crate::ledger_thread::{self, LedgerOutput, Open};
use crate::limits::{END_WITHIN, EVENTS_TOGETHER_MAX, SYNC_EVERY};
use crate::outputs::OutputQueue;
use crate::record::{Record, RecordEvent};

/// Interval of checks whether outputs have stored all, at the end of the server, and whether they
/// have space for returned lines.
const END_CHECK: Duration = Duration::from_millis(10);

/// The running thread. It exits when all senders of events are closed and the outputs have stored
/// all.
#[derive(Debug)]
pub struct Recorder(JoinHandle<()>);

impl Recorder {
    /// Starts the thread. The ledger of open sessions is at `ledger`; `lost` counts records that it
    /// loses while its disk takes nothing.
    ///
    /// # Errors
    /// There is no thread left.
    pub fn start(
        ledger: &Path,
        lost: Box<dyn Fn(u64) + Send>,
        events: Receiver<SessionEvent>,
        outputs: Vec<OutputQueue>,
    ) -> io::Result<Self> {
        Self::start_with(ledger, Box::new(Ledger::open), lost, events, outputs)
    }

    fn start_with(
        path: &Path,
        open: Open,
        lost: Box<dyn Fn(u64) + Send>,
        events: Receiver<SessionEvent>,
        mut outputs: Vec<OutputQueue>,
    ) -> io::Result<Self> {
        let ledger = LedgerQueue::default();
        let of_output = |output: &mut OutputQueue| LedgerOutput {
            progress: output.progress(),
            files: output.take_files(),
        };
        let of_outputs = outputs.iter_mut().map(of_output).collect();
        ledger_thread::start(path, open, ledger.clone(), of_outputs)?;
        let work = Work { ledger, lost, outputs, hangs: StateLog::default() };
        let thread = thread::Builder::new().name("records".to_owned());
        Ok(Self(thread.spawn(move || work.run(&events))?))
    }

    /// Waits for the end, after that of all senders and of the outputs.
    pub fn join(self) {
        // A panic of the thread is logged by the panic handler.
        drop(self.0.join());
    }
}

struct Work {
    ledger: LedgerQueue,
    /// Counts records that the ledger's queue has no space for.
    lost: Box<dyn Fn(u64) + Send>,
    outputs: Vec<OutputQueue>,
    hangs: StateLog,
}

impl Work {
    fn run(mut self, events: &Receiver<SessionEvent>) {
        let mut within = SYNC_EVERY;
        loop {
            match events.recv_timeout(within) {
                Ok(event) => {
                    let more = events.try_iter().take(EVENTS_TOGETHER_MAX);
                    self.record(std::iter::once(event).chain(more));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            within = if self.put_returned() { END_CHECK } else { SYNC_EVERY };
        }
        self.end();
    }

    /// Hands the records of events to the ledger and then to the outputs.
    fn record(&mut self, events: impl Iterator<Item = SessionEvent>) {
        let mut lines = Vec::new();
        for event in events {
            if let SessionEvent::Survivors(ids) = &event {
                self.ledger.compare(ids.iter().map(ToString::to_string).collect());
            }
            let Some(record) = Record::of(&event, SystemTime::now()) else { continue };
            let line: Arc<str> = record.line().into();
            if record.event != RecordEvent::Start {
                lines.push(Arc::clone(&line));
            }
            if !self.ledger.put(record, line) {
                (self.lost)(1);
            }
        }
        self.ledger.settle();
        if self.ledger.is_late() {
            self.hangs.failed(HANGS, &"the disk has not taken a record in time");
        } else {
            self.hangs.works("the file of open sessions has all records again");
        }
        for line in lines {
            self.outputs.iter().for_each(|output| output.put(&line));
        }
        self.ledger.note_delivered();
    }

    /// Passes lines of the ledger to outputs while their queues have space: a crash may have closed
    /// more sessions than a queue holds. Returns true if there are others.
    fn put_returned(&self) -> bool {
        for (index, output) in self.outputs.iter().enumerate() {
            let lines = self.ledger.take_returned(index, output.room_for_returned());
            lines.iter().for_each(|line| output.put(line));
        }
        self.ledger.note_returned()
    }

    /// Closes the queues, and waits some seconds at most for the ledger and the outputs. A live
    /// predecessor may have the ledger: without the end records of this process a successor would
    /// end the sessions again.
    fn end(mut self) {
        let until = Instant::now() + END_WITHIN;
        self.ledger.look(END_WITHIN);
        while self.ledger.is_behind() && Instant::now() < until {
            thread::sleep(END_CHECK);
            self.ledger.look(END_WITHIN);
        }
        let until = Instant::now() + END_WITHIN + END_WITHIN;
        while self.put_returned() && Instant::now() < until {
            thread::sleep(END_CHECK);
        }
        let progress: Vec<_> = self.outputs.drain(..).map(|output| output.progress()).collect();
        while !progress.iter().all(|output| output.is_done()) && Instant::now() < until {
            thread::sleep(END_CHECK);
        }
        self.ledger.end(END_WITHIN);
    }
}

const HANGS: &str = "the file of open sessions is not written: records go to their outputs all the same, and after a \
                     crash some sessions may have no end record; check the disk of data.directory";

#[cfg(test)]
mod tests;
