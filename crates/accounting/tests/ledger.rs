//! Open sessions, for the process after a crash.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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

    /// Names of the files of records.
    fn record_files(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names.filter(|name| name.starts_with("sessions")).collect()
    }

    /// Reasons of the end records of each session.
    fn ends(&self) -> BTreeMap<String, Vec<String>> {
        let mut ends = BTreeMap::<_, Vec<_>>::new();
        for line in self.record_files().iter().flat_map(|name| lines(&self.read(name))) {
            let record: Record = serde_json::from_str(&line).unwrap();
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

/// Complete lines: the last one may be half written.
fn lines(text: &str) -> Vec<String> {
    text.split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
        .map(str::to_owned)
        .collect()
}

impl Running {
    fn start(directory: &Path) -> Self {
        Self::rotating(directory, Rotation { bytes: 1 << 20, files: 1 })
    }

    fn rotating(directory: &Path, rotation: Rotation) -> Self {
        let path = directory.join("sessions");
        let journal = Journal::open(&path, rotation).unwrap();
        let lost = |records| panic!("{records} records are lost");
        let files = Box::new(move || Journal::files(&path));
        let (queue, lines) = output_queue(Box::new(lost), files);
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

/// Files of a process killed before it noted that an end is stored.
fn crash_of_busy(from: &Directory, name: &str, ledger: &[String]) -> Directory {
    let to = Directory::new(name);
    fs::write(to.0.join("open"), ledger.join("\n") + "\n").unwrap();
    for name in from.record_files() {
        fs::copy(from.0.join(&name), to.0.join(&name)).unwrap();
    }
    to
}

/// Starts and closes sessions in one process, for several files of records.
fn busy(running: &Running, directory: &Directory, numbers: RangeInclusive<u64>) -> Vec<String> {
    let last = usize::try_from(*numbers.end()).unwrap();
    let files = directory.record_files().len();
    for number in numbers {
        running.put(&started(number));
        running.put(&ended(number));
    }
    test_support::eventually("the ends", || directory.ends().len() == last);
    assert!(directory.record_files().len() > files + 3);
    records_of_ledger(directory)
}

/// Lines of the ledger without marks.
fn records_of_ledger(directory: &Directory) -> Vec<String> {
    let is_record = |line: &String| !line.contains("\"stored\"");
    lines(&directory.read("open")).into_iter().filter(is_record).collect()
}

/// End records that a busy server has not noted as stored may be in older files.
#[test]
fn no_end_is_written_twice_however_small_the_files_are() {
    const SMALL: Rotation = Rotation { bytes: 3000, files: 100 };
    let first = Directory::new("small-1");
    let running = Running::rotating(&first.0, SMALL);
    let ledger = busy(&running, &first, 1..=50);
    let second = crash_of_busy(&first, "small-2", &ledger);
    running.end();

    let running = Running::rotating(&second.0, SMALL);
    running.put(&SessionEvent::Survivors([].into()));
    let mut ledger = busy(&running, &second, 51..=100);
    // The ledger had hung, and lacks the end of the first session: of it there is an earlier state.
    let first_end = ledger.iter_mut().find(|line| line.contains("\"end\"")).unwrap();
    *first_end = first_end.replace("\"end\"", "\"interim\"");
    let third = crash_of_busy(&second, "small-3", &ledger);
    running.end();
    assert_eq!(twice(&second), [""; 0]);

    let running = Running::rotating(&third.0, SMALL);
    running.put(&SessionEvent::Survivors([].into()));
    running.end();
    assert_eq!(third.ends().len(), 100);
    assert_eq!(twice(&third), [""; 0]);

    // The ledger of the third process has an end of the first session that the file did not need.
    let ledger = records_of_ledger(&third);
    assert!(ledger.iter().any(|line| line.contains("process_lost")));
    let fourth = crash_of_busy(&third, "small-4", &ledger);
    let running = Running::rotating(&fourth.0, SMALL);
    running.put(&SessionEvent::Survivors([].into()));
    running.end();
    assert_eq!(twice(&fourth), [""; 0]);
}

/// A crash may end more sessions than the queue of an output holds.
#[test]
fn all_sessions_of_a_crash_get_their_ends() {
    const SESSIONS: u64 = 40_000;
    let directory = Directory::new("many");
    let line = |number| Record::of(&started(number), SystemTime::now()).unwrap().line();
    let ledger: String = (1..=SESSIONS).map(line).collect();
    fs::write(directory.0.join("open"), ledger).unwrap();
    let running = Running::rotating(&directory.0, Rotation { bytes: 1 << 20, files: 100 });
    running.put(&SessionEvent::Survivors([].into()));
    test_support::eventually("the ends", || directory.ends().len() as u64 == SESSIONS);
    running.end();
    assert_eq!(twice(&directory), [""; 0]);
}

/// Sessions with more than one end.
fn twice(directory: &Directory) -> Vec<String> {
    let ends = directory.ends().into_iter();
    ends.filter(|(_, reasons)| reasons.len() > 1).map(|(id, _)| id).collect()
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
    for number in 2..=3000 {
        running.put(&started(number));
        running.put(&ended(number));
    }
    test_support::eventually("a smaller file", || {
        let bytes = fs::metadata(directory.0.join("open")).map_or(0, |open| open.len());
        directory.ends().len() == 2999 && bytes < 1000
    });
    running.end();
    let running = Running::start(&directory.0);
    running.put(&SessionEvent::Survivors([].into()));
    test_support::eventually("the end of the one that was open", || {
        directory.ends().get(&id(1).to_string()).is_some_and(|ends| ends == &["process_lost"])
    });
    running.end();
}
