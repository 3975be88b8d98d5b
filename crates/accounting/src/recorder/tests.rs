#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use control::limits::SESSION_EVENTS;
use control::{RecordOutput, SessionEvents};
use turn_proto::{AllocationRecord, EndReason};
use turn_types::{AllocationId, WorkerId};

use super::*;
use crate::outputs::{Lines, output_queue};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("recorder-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn ledger(&self) -> PathBuf {
        self.0.join("open")
    }

    /// Ids of the sessions that a successor would end.
    fn lost(&self) -> Vec<String> {
        let ledger = Ledger::open(&self.ledger()).unwrap().unwrap();
        let lost = ledger.lost(&BTreeSet::new()).unwrap();
        lost.into_iter().map(|record| record.id).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn record(number: u64) -> Box<AllocationRecord> {
    let mut record = AllocationRecord::sample();
    record.id = AllocationId::new(WorkerId(0), number);
    Box::new(record)
}

fn started(number: u64) -> SessionEvent {
    SessionEvent::Created(record(number))
}

fn ended(number: u64) -> SessionEvent {
    let mut record = record(number);
    record.end = Some((EndReason::Expired, record.created));
    SessionEvent::Ended(record)
}

/// A recorder, and the queue of its only output.
struct Running {
    events: SessionEvents,
    recorder: Recorder,
    lines: Lines,
    lost: Arc<AtomicU64>,
}

impl Running {
    fn start(directory: &Directory, open: Open) -> Self {
        let none = Box::new(|lost| panic!("{lost} records are lost"));
        let (queue, lines) = output_queue(none, Box::new(Vec::new));
        let mut events = SessionEvents::default();
        let taken = events.add(&[RecordOutput::File]);
        let lost = Arc::<AtomicU64>::default();
        let count = Arc::clone(&lost);
        let count = Box::new(move |records| {
            count.fetch_add(records, Ordering::Relaxed);
        });
        let path = directory.ledger();
        let recorder = Recorder::start_with(&path, open, count, taken, vec![queue]).unwrap();
        Self { events, recorder, lines, lost }
    }

    /// Waits for the line of an output.
    fn line(&self) -> Record {
        let line = self.lines.recv_timeout(Duration::from_secs(60)).unwrap();
        self.lines.done();
        serde_json::from_str(&line).unwrap()
    }

    fn put(&self, event: &SessionEvent) {
        let queue = &self.events.queues()[0];
        test_support::eventually("space", || queue.put(event.clone()));
    }

    fn end(self) {
        drop(self.events);
        self.recorder.join();
    }
}

/// Opens a ledger after `release` is dropped: the disk hangs.
fn hanging() -> (Sender<()>, Open) {
    let (release, hangs) = channel::<()>();
    let open: Open = Box::new(move |path| {
        let _ = hangs.recv();
        Ledger::open(path)
    });
    (release, open)
}

#[test]
fn outputs_get_records_while_the_disk_of_the_ledger_hangs() {
    let directory = Directory::new("hangs");
    let (release, open) = hanging();
    let running = Running::start(&directory, open);
    running.put(&started(1));
    running.put(&ended(1));
    assert_eq!(running.line().event, RecordEvent::End);

    // More sessions than the queue has space for: their starts are lost, and counted.
    const MORE: u64 = 50;
    let waiting = SESSION_EVENTS as u64 - 2;
    (2..2 + waiting).for_each(|number| running.put(&started(number)));
    (0..MORE).for_each(|number| running.put(&started(1_000_000 + number)));
    // Ended sessions are closed later, and not ended a second time.
    for number in 2..2 + MORE {
        running.put(&ended(number));
        assert_eq!(running.line().event, RecordEvent::End);
    }
    assert_eq!(running.lost.load(Ordering::Relaxed), MORE);

    drop(release);
    let open = waiting - MORE;
    test_support::eventually("the ledger has the rest", || {
        let text = std::fs::read_to_string(directory.ledger()).unwrap_or_default();
        text.matches("\"closed\"").count() as u64 == MORE
    });
    running.end();
    assert_eq!(directory.lost().len() as u64, open, "only those that have no end");
}

#[test]
fn the_end_of_the_server_does_not_wait_for_ever_for_a_disk() {
    let directory = Directory::new("hangs-at-the-end");
    let (release, open) = hanging();
    let running = Running::start(&directory, open);
    running.put(&started(1));
    running.end();
    drop(release);
}

/// Two upgrades within a second: the first process has the ledger while the second exits.
#[test]
fn ends_reach_a_ledger_that_the_predecessor_still_has() {
    let directory = Directory::new("predecessor");
    let mut predecessor = Ledger::open(&directory.ledger()).unwrap().unwrap();
    let start = Record::of(&started(1), SystemTime::now()).unwrap();
    predecessor.append(&start, &start.line()).unwrap();
    let running = Running::start(&directory, Box::new(Ledger::open));
    running.put(&ended(1));
    assert_eq!(running.line().event, RecordEvent::End);
    let end = thread::spawn(move || running.end());
    thread::sleep(10 * END_CHECK);
    drop(predecessor);
    end.join().unwrap();
    assert_eq!(directory.lost(), Vec::<String>::new());
}

/// Two upgrades within a second: the third process may not have the ledger before the second.
#[test]
fn processes_get_the_ledger_in_the_order_of_their_starts() {
    let directory = Directory::new("order");
    let start = || Running::start(&directory, Box::new(Ledger::open));
    let [first, second, third] = [start(), start(), start()];
    first.put(&started(1));
    first.put(&started(2));
    second.put(&ended(1));
    assert_eq!(second.line().event, RecordEvent::End);
    third.put(&started(3));
    first.end();
    third.put(&SessionEvent::Survivors([record(2).id].into()));
    thread::sleep(10 * END_CHECK);
    second.end();
    third.put(&ended(2));
    assert_eq!(third.line().reason.as_deref(), Some("expired"));
    third.end();
    assert_eq!(directory.lost(), [record(3).id.to_string()]);
    let names = std::fs::read_dir(&directory.0).unwrap();
    assert_eq!(names.count(), 2, "the ledger and its lock");
}

/// An error while lost sessions are read must not leave them without an end for good.
#[test]
fn lost_sessions_get_their_ends_after_an_error_of_the_disk() {
    let directory = Directory::new("unreadable");
    let running = Running::start(&directory, Box::new(Ledger::open));
    running.put(&started(1));
    running.end();

    // The disk returns errors for the first attempt.
    let queue = LedgerQueue::default();
    let mut ledger = Ledger::open(&directory.ledger()).unwrap().unwrap();
    let path = directory.ledger();
    let unreadable = File::options().append(true).open(&path).unwrap();
    let readable = ledger.swap_file(unreadable);
    let mut ledgers = [Some(ledger)];
    let open: Open = Box::new(move |_| Ok(ledgers[0].take()));
    let mut writer = ledger_thread::LedgerWriter::for_test(&path, open, queue.clone());
    queue.compare(BTreeSet::new());
    writer.look();
    assert!(queue.take_returned(0, 10).is_empty());
    writer.ledger_mut().swap_file(readable);
    writer.look();
    writer.look();
    let returned = queue.take_returned(0, 10);
    assert_eq!(returned.len(), 1, "one end");
    assert!(returned[0].contains("process_lost"));
    drop(writer);
    assert_eq!(directory.lost(), [""; 0]);
}

/// A busy server has records on their way at every moment. Ends that outputs have stored must not
/// wait for one without: a successor would search for all of them.
#[test]
fn ends_are_noted_as_stored_while_others_are_on_their_way() {
    let directory = Directory::new("busy");
    let running = Running::start(&directory, Box::new(Ledger::open));
    let mut number = 1;
    running.put(&ended(number));
    test_support::eventually("most are noted", || {
        number += 1;
        running.put(&ended(number));
        // A further record is in the queue.
        running.line();
        let text = std::fs::read_to_string(directory.ledger()).unwrap();
        number > 100 && text.contains("\"stored\"")
    });
    let last = record(number).id.to_string();
    test_support::eventually("the last one is in the ledger", || {
        std::fs::read_to_string(directory.ledger()).unwrap().contains(&last)
    });
    let copy = Directory::new("busy-copy");
    std::fs::copy(directory.ledger(), copy.ledger()).unwrap();
    let ledger = Ledger::open(&copy.ledger()).unwrap().unwrap();
    let unconfirmed = ledger.unconfirmed().unwrap();
    assert!(unconfirmed.iter().any(|line| line.contains(&last)), "it is on its way");
    running.line();
    running.end();
}

/// A ledger is rewritten while outputs still lack ends.
#[test]
fn a_rewritten_ledger_has_the_ends_that_outputs_may_lack() {
    let directory = Directory::new("rewritten");
    let mut ledger = Ledger::open(&directory.ledger()).unwrap().unwrap();
    let append = |ledger: &mut Ledger, event: &SessionEvent| {
        let record = Record::of(event, SystemTime::now()).unwrap();
        ledger.append(&record, &record.line()).unwrap();
    };
    (1..4000).for_each(|number| append(&mut ledger, &ended(number)));
    // A session of the successor has the same id as a closed session.
    append(&mut ledger, &started(3999));
    ledger.confirm(3997).unwrap();
    let unconfirmed = ledger.unconfirmed().unwrap();
    assert_eq!(unconfirmed.len(), 2);
    ledger.compact().unwrap();
    assert!(std::fs::metadata(directory.ledger()).unwrap().len() < 3000);
    assert_eq!(ledger.unconfirmed().unwrap(), unconfirmed);
    append(&mut ledger, &ended(4000));
    ledger.confirm(1).unwrap();
    drop(ledger);

    let ledger = Ledger::open(&directory.ledger()).unwrap().unwrap();
    let after = ledger.unconfirmed().unwrap();
    assert_eq!(after.len(), 2);
    assert_eq!(after[0], unconfirmed[1]);
    drop(ledger);
    assert_eq!(directory.lost(), [record(3999).id.to_string()]);
}
