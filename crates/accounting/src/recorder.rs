//! The thread between the workers and the outputs of records. Each record is made once, is in the
//! ledger first, and then goes to every output.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use control::SessionEvent;
use control::limits::SESSION_EVENTS;

use crate::lasting_state::StateLog;
use crate::ledger::Ledger;
use crate::limits::{END_WITHIN, SYNC_EVERY};
use crate::lines::missing_from;
use crate::record::{Record, RecordEvent};

/// Interval of checks whether outputs have stored all, at the end of the server.
const END_CHECK: Duration = Duration::from_millis(10);

/// The queue of an output, at which the recorder puts records in.
pub struct OutputQueue {
    sender: SyncSender<Arc<str>>,
    sent: u64,
    done: Arc<AtomicU64>,
    /// Counts records that the full queue drops.
    lost: Box<dyn Fn(u64) + Send>,
    /// Files in which the output stores records.
    files: Box<dyn Fn() -> Vec<PathBuf> + Send>,
}

/// The queue of an output, from which the output takes lines.
#[derive(Debug)]
pub struct Lines {
    receiver: Receiver<Arc<str>>,
    done: Arc<AtomicU64>,
}

/// Builds the queue of an output.
#[must_use]
pub fn output_queue(
    lost: Box<dyn Fn(u64) + Send>,
    files: Box<dyn Fn() -> Vec<PathBuf> + Send>,
) -> (OutputQueue, Lines) {
    let (sender, receiver) = sync_channel(SESSION_EVENTS);
    let done = Arc::<AtomicU64>::default();
    let lines = Lines { receiver, done: Arc::clone(&done) };
    (OutputQueue { sender, sent: 0, done, lost, files }, lines)
}

impl Lines {
    pub(crate) fn recv_timeout(&self, time: Duration) -> Result<Arc<str>, RecvTimeoutError> {
        self.receiver.recv_timeout(time)
    }

    /// Notes that the latest line is stored, or counted as lost.
    pub(crate) fn done(&self) {
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Number of lines that still come.
    pub(crate) fn count(&self) -> u64 {
        self.receiver.iter().count() as u64
    }
}

impl OutputQueue {
    fn put(&mut self, line: &Arc<str>) {
        match self.sender.try_send(Arc::clone(line)) {
            Ok(()) => self.sent += 1,
            Err(_) => (self.lost)(1),
        }
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) >= self.sent
    }
}

impl std::fmt::Debug for OutputQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OutputQueue").field("sent", &self.sent).finish_non_exhaustive()
    }
}

/// The running thread. It exits when all senders of events are closed and the outputs have stored
/// all.
#[derive(Debug)]
pub struct Recorder(JoinHandle<()>);

impl Recorder {
    /// Starts the thread. The ledger of open sessions is at `ledger`.
    ///
    /// # Errors
    /// There is no thread left.
    pub fn start(
        ledger: &Path,
        events: Receiver<SessionEvent>,
        outputs: Vec<OutputQueue>,
    ) -> io::Result<Self> {
        let work = Work {
            path: ledger.to_owned(),
            ledger: None,
            waiting: VecDeque::new(),
            outputs,
            survivors: None,
            looked: None,
            failures: StateLog::default(),
        };
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
    path: PathBuf,
    /// `None` while the predecessor has it, or the disk fails.
    ledger: Option<Ledger>,
    /// Records that wait for the ledger.
    waiting: VecDeque<(Record, Arc<str>)>,
    outputs: Vec<OutputQueue>,
    /// Ids of the sessions that this process has taken over, until they are compared.
    survivors: Option<BTreeSet<String>>,
    looked: Option<Instant>,
    failures: StateLog,
}

impl Work {
    fn run(mut self, events: &Receiver<SessionEvent>) {
        loop {
            match events.recv_timeout(SYNC_EVERY) {
                Ok(SessionEvent::Survivors(ids)) => {
                    self.survivors = Some(ids.iter().map(ToString::to_string).collect());
                    self.looked = None;
                }
                Ok(event) => {
                    if let Some(record) = Record::of(&event, SystemTime::now()) {
                        self.record(record);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.looked.is_none_or(|looked| looked.elapsed() >= SYNC_EVERY) {
                self.looked = Some(Instant::now());
                self.look();
            }
        }
        self.end();
    }

    fn record(&mut self, record: Record) {
        let line: Arc<str> = record.line().into();
        let is_start = record.event == RecordEvent::Start;
        // Records beyond the limit belong to a server whose disk fails.
        if self.waiting.len() < SESSION_EVENTS {
            self.waiting.push_back((record, Arc::clone(&line)));
        }
        self.append_waiting();
        if !is_start {
            self.outputs.iter_mut().for_each(|output| output.put(&line));
        }
    }

    /// Appends the records that wait, sorted by time, until the disk refuses one.
    fn append_waiting(&mut self) {
        let Some(ledger) = &mut self.ledger else { return };
        while let Some((record, line)) = self.waiting.front() {
            if let Err(error) = ledger.append(record, line) {
                return self.failures.failed(CANNOT, &error);
            }
            self.waiting.pop_front();
        }
    }

    /// Opens the ledger, ends lost sessions, and confirms ends that outputs have stored.
    fn look(&mut self) {
        if self.ledger.is_none() {
            match Ledger::open(&self.path) {
                Ok(None) => return,
                Ok(Some(ledger)) => self.begin(ledger),
                Err(error) => return self.failures.failed(CANNOT, &error),
            }
        }
        self.append_waiting();
        let Some(ledger) = &mut self.ledger else { return };
        if let Some(survivors) = self.survivors.take() {
            match ledger.lost(&survivors) {
                Ok(lost) => {
                    if !lost.is_empty() {
                        let sessions = lost.len();
                        tracing::warn!(
                            sessions,
                            "sessions of a process that ended unexpectedly have their end records now"
                        );
                    }
                    lost.into_iter().for_each(|record| self.record(record));
                }
                Err(error) => self.failures.failed(CANNOT, &error),
            }
        }
        self.confirm();
    }

    /// Takes a ledger: what outputs may lack is sent again, and what waited is appended.
    fn begin(&mut self, ledger: Ledger) {
        match ledger.unconfirmed() {
            Ok(unconfirmed) if unconfirmed.is_empty() => {}
            Ok(unconfirmed) => {
                for output in &mut self.outputs {
                    for line in missing_from(&(output.files)(), &unconfirmed) {
                        output.put(&line.into());
                    }
                }
            }
            Err(error) => self.failures.failed(CANNOT, &error),
        }
        self.ledger = Some(ledger);
    }

    fn confirm(&mut self) {
        let Some(ledger) = &mut self.ledger else { return };
        // An output that is stuck loses and counts what its queue does not hold.
        let is_over = ledger.unconfirmed_len() >= SESSION_EVENTS
            || self.outputs.iter().all(OutputQueue::is_done);
        let confirmed = if is_over { ledger.confirm() } else { Ok(()) };
        match confirmed.and_then(|()| ledger.sync()) {
            Ok(()) => self.failures.works("the file of open sessions is written again"),
            Err(error) => self.failures.failed(CANNOT, &error),
        }
    }

    /// Closes the queues, and waits for the outputs some seconds at the most.
    fn end(mut self) {
        self.look();
        let until = Instant::now() + END_WITHIN + END_WITHIN;
        let done: Vec<_> =
            self.outputs.drain(..).map(|output| (output.sent, output.done)).collect();
        let is_done = |(sent, done): &(u64, Arc<AtomicU64>)| done.load(Ordering::Acquire) >= *sent;
        while !done.iter().all(is_done) {
            if Instant::now() >= until {
                return;
            }
            thread::sleep(END_CHECK);
        }
        self.confirm();
    }
}

const CANNOT: &str = "the file of open sessions cannot be written: after a crash they may have no end record; see that \
                      the server may write to data.directory";
