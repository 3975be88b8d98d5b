//! Open sessions, for the process after a crash.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use accounting::{Journal, Losses, Record, Recorder, Rotation, Writer, output_queue, start};
use control::{RecordOutput, SessionEvent, SessionEvents};
use turn_proto::{AllocationRecord, EndReason};
use turn_types::{AllocationId, WorkerId};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ledger-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    /// Reasons of the end records of each session.
    fn ends(&self) -> BTreeMap<String, Vec<String>> {
        let mut ends = BTreeMap::<_, Vec<_>>::new();
        for line in self.read("sessions").lines() {
            let record: Record = serde_json::from_str(line).unwrap();
            ends.entry(record.id).or_default().extend(record.reason);
        }
        ends
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

struct Running {
    events: SessionEvents,
    writer: Writer,
    recorder: Recorder,
}

impl Running {
    fn start(directory: &Path) -> Self {
        let path = directory.join("sessions");
        let journal = Journal::open(&path, Rotation { bytes: 1 << 20, files: 1 }).unwrap();
        let lost = |records| panic!("{records} records are lost");
        let files = Journal::newest(&path);
        let (queue, lines) = output_queue(Box::new(lost), Box::new(move || files.clone()));
        let losses = Losses { lost: Box::new(lost), refused: Box::new(lost) };
        let writer = start(journal, lines, losses).unwrap();
        let mut events = SessionEvents::default();
        let taken = events.add(&[RecordOutput::File]);
        let recorder =
            Recorder::start(&directory.join("open"), Box::new(lost), taken, vec![queue]).unwrap();
        Self { events, writer, recorder }
    }

    /// Puts an event, as soon as the queue has space.
    fn put(&self, event: &SessionEvent) {
        test_support::eventually("space in the queue", || {
            let mut has_space = true;
            self.events.put(event, |_| has_space = false);
            has_space
        });
    }

    fn end(self) {
        drop(self.events);
        self.writer.join();
        self.recorder.join();
    }
}

fn id(number: u64) -> AllocationId {
    AllocationId::new(WorkerId(0), number)
}

fn record(number: u64) -> Box<AllocationRecord> {
    let mut record = AllocationRecord::sample();
    record.id = id(number);
    Box::new(record)
}

fn started(number: u64) -> SessionEvent {
    SessionEvent::Created(record(number))
}

fn interim(number: u64, packets: u64) -> SessionEvent {
    let mut record = record(number);
    record.traffic.to_peer_packets = packets;
    let at = record.created;
    SessionEvent::Interim { record, at }
}

fn ended(number: u64) -> SessionEvent {
    let mut record = record(number);
    record.end = Some((EndReason::Expired, record.created));
    SessionEvent::Ended(record)
}

/// Files of a process killed after the ledger had `lines` lines, with only the first `stored`
/// records.
fn crash(from: &Directory, name: &str, lines: usize, stored: usize) -> Directory {
    test_support::eventually("all is in the ledger", || {
        let text = from.read("open");
        text.lines().filter(|line| !line.contains("stored")).count() == lines
    });
    let to = Directory::new(name);
    let confirmed = |line: &&str| !line.contains("stored");
    let ledger: Vec<_> = from.read("open").lines().filter(confirmed).map(str::to_owned).collect();
    fs::write(to.0.join("open"), ledger.join("\n") + "\n").unwrap();
    let text = from.read("sessions");
    let records: String = text.lines().take(stored).map(|line| format!("{line}\n")).collect();
    fs::write(to.0.join("sessions"), records).unwrap();
    to
}

#[test]
fn after_a_crash_every_session_has_one_end_and_survivors_go_on() {
    let first = Directory::new("first");
    let running = Running::start(&first.0);
    (1..=4).for_each(|number| running.put(&started(number)));
    running.put(&interim(4, 77));
    running.put(&ended(1));
    running.put(&ended(2));
    test_support::eventually("the records", || first.read("sessions").lines().count() == 3);
    // Of 1 and 2 only the end of 1 had been written; 3 and 4 had none.
    let second = crash(&first, "second", 7, 2);
    assert!(!second.read("sessions").contains(&id(2).to_string()));
    running.end();

    let running = Running::start(&second.0);
    running.put(&started(5));
    running.put(&SessionEvent::Survivors([id(3), id(5)].into()));
    let expired = || vec![EndReason::Expired.label().to_owned()];
    test_support::eventually("the ends", || second.ends().len() == 3);
    running.put(&ended(5));
    running.end();
    let ends = second.ends();
    assert_eq!(ends[&id(1).to_string()], expired());
    assert_eq!(ends[&id(2).to_string()], expired());
    assert_eq!(ends[&id(4).to_string()], ["process_lost"]);
    assert_eq!(ends[&id(5).to_string()], expired());
    assert!(!ends.contains_key(&id(3).to_string()), "it goes on");
    let text = second.read("sessions");
    let lost = text.lines().find(|line| line.contains("process_lost")).unwrap();
    let lost: Record = serde_json::from_str(lost).unwrap();
    assert_eq!(lost.to_peers.packets, 77, "its last known counts");

    // The successor adds only the end of the session that continued.
    let running = Running::start(&second.0);
    running.put(&SessionEvent::Survivors([].into()));
    test_support::eventually("its end", || second.ends().len() == 5);
    running.end();
    let ends = second.ends();
    assert!(ends.values().all(|reasons| reasons.len() == 1), "{ends:?}");
    assert_eq!(ends[&id(3).to_string()], ["process_lost"]);
}

#[test]
fn a_successor_waits_for_the_ledger_of_its_predecessor() {
    let directory = Directory::new("upgrade");
    let predecessor = Running::start(&directory.0);
    (1..=2).for_each(|number| predecessor.put(&started(number)));
    test_support::eventually("the ledger", || directory.read("open").lines().count() == 2);
    let successor = Running::start(&directory.0);
    successor.put(&SessionEvent::Survivors([id(1)].into()));
    successor.put(&ended(1));
    // End record of a session that stayed in the process.
    predecessor.put(&ended(2));
    predecessor.end();
    test_support::eventually("both ends", || directory.ends().len() == 2);
    successor.end();
    let ends = directory.ends();
    let expired = vec![EndReason::Expired.label().to_owned()];
    assert!(ends.values().all(|reasons| *reasons == expired), "{ends:?}");
}

#[test]
fn the_file_of_open_sessions_is_rewritten_when_most_have_ended() {
    let directory = Directory::new("rewritten");
    let running = Running::start(&directory.0);
    running.put(&started(1));
    let most = 1 << 20;
    let mut number = 1;
    test_support::eventually("a smaller file", || {
        for _ in 0..100 {
            number += 1;
            running.put(&started(number));
            running.put(&ended(number));
        }
        let bytes = fs::metadata(directory.0.join("open")).map_or(0, |open| open.len());
        number > 2000 && bytes < most / 2
    });
    running.end();
    let running = Running::start(&directory.0);
    running.put(&SessionEvent::Survivors([].into()));
    test_support::eventually("the end of the one that was open", || {
        directory.ends().get(&id(1).to_string()).is_some_and(|ends| ends == &["process_lost"])
    });
    running.end();
}
