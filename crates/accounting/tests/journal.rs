//! Records in files that rotate.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use accounting::{
    Journal, Lines, Losses, Record, RecordEvent, Recorder, Rotation, output_queue, start,
};
use control::{RecordOutput, SessionEvent, SessionEvents};
use turn_proto::{AllocationRecord, EndReason};
use turn_types::Instant;

struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("accounting-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

const SMALL: Rotation = Rotation { bytes: 10, files: 2 };

#[test]
fn full_files_are_put_aside_and_the_oldest_is_deleted() {
    let directory = Directory::new();
    let mut journal = Journal::open(&directory.file("s"), SMALL).unwrap();
    for line in ["1111\n", "2222\n", "3333\n", "4444\n", "5555\n", "6666\n", "7777\n"] {
        journal.append(line).unwrap();
    }
    assert_eq!(directory.read("s"), "7777\n");
    assert_eq!(directory.read("s.1"), "5555\n6666\n");
    assert_eq!(directory.read("s.2"), "3333\n4444\n");
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 3);
}

#[test]
fn a_record_longer_than_a_file_is_written_whole() {
    let directory = Directory::new();
    let mut journal = Journal::open(&directory.file("s"), SMALL).unwrap();
    journal.append("a record of many bytes\n").unwrap();
    journal.append("b\n").unwrap();
    assert_eq!(directory.read("s.1"), "a record of many bytes\n");
    assert_eq!(directory.read("s"), "b\n");
}

#[test]
fn a_record_that_a_crash_cut_off_spoils_no_other() {
    let directory = Directory::new();
    fs::write(directory.file("s"), "1111\n22").unwrap();
    let mut journal =
        Journal::open(&directory.file("s"), Rotation { bytes: 100, files: 1 }).unwrap();
    journal.append("3333\n").unwrap();
    assert_eq!(directory.read("s"), "1111\n22\n3333\n");
}

#[test]
fn a_full_disk_takes_no_part_of_a_record() {
    let mut full = Journal::open(&PathBuf::from("/dev/full"), SMALL);
    // A device has no length to cut: the error alone counts.
    let refused = full.as_mut().unwrap().append("1111\n").unwrap_err();
    assert!(refused.raw_os_error().is_some());
}

#[test]
fn every_session_that_was_handed_over_is_written_before_the_end() {
    let directory = Directory::new();
    let journal = Journal::open(&directory.file("s"), Rotation { bytes: 1 << 20, files: 1 });
    let mut events = SessionEvents::default();
    let (recorder, lines) = recorder(&directory, &mut events);
    let writer = start(journal.unwrap(), lines, no_losses()).unwrap();
    let mut record = AllocationRecord::sample();
    record.traffic.to_peer_bytes = 1234;
    record.traffic.to_client_packets = 5;
    let at = record.created + std::time::Duration::from_secs(90);
    let lost = |output| panic!("{output:?} lost a record");
    events.put(&SessionEvent::Interim { record: Box::new(record.clone()), at }, lost);
    record.end = Some((EndReason::ALL[0], at));
    for _ in 0..100 {
        events.put(&SessionEvent::Ended(Box::new(record.clone())), lost);
    }
    drop(events);
    writer.join();
    recorder.join();
    let text = directory.read("s");
    let records: Vec<Record> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 101);
    assert_eq!((records[0].event, records[0].reason.as_deref()), (RecordEvent::Interim, None));
    let end = &records[100];
    assert_eq!(
        (end.event, end.reason.as_deref()),
        (RecordEvent::End, Some(EndReason::ALL[0].label()))
    );
    assert_eq!((end.seconds, end.time - end.started), (90, 90));
    assert_eq!((end.to_peers.bytes, end.to_client.packets), (1234, 5));
    assert_eq!((&*end.account, &*end.realm, &*end.transport), ("alice", "example.org", "udp"));
}

/// A recorder for the file `s` of a directory, with its ledger there.
fn recorder(directory: &Directory, events: &mut SessionEvents) -> (Recorder, Lines) {
    let path = directory.file("s");
    let lost = Box::new(|records| panic!("{records} records are lost"));
    let (queue, lines) = output_queue(lost, Box::new(move || Journal::files(&path)));
    let events = events.add(&[RecordOutput::File]);
    let lost = Box::new(|records| panic!("the ledger has lost {records} records"));
    (Recorder::start(&directory.file("open"), lost, events, vec![queue]).unwrap(), lines)
}

/// The link may be from another user of the host.
#[test]
fn no_record_is_written_through_a_link_in_a_directory_of_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = Directory::new();
    let foreign = directory.file("foreign");
    fs::write(&foreign, "precious").unwrap();
    fs::create_dir(directory.file("shared")).unwrap();
    fs::set_permissions(directory.file("shared"), fs::Permissions::from_mode(0o777)).unwrap();
    let link = directory.file("shared/s");
    std::os::unix::fs::symlink(&foreign, &link).unwrap();
    let refused = Journal::open(&link, Rotation { bytes: 1000, files: 1 }).unwrap_err();
    assert!(refused.to_string().contains("symbolic link"), "{refused}");
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "precious");
    // In a directory of the server's own, links are the operator's.
    let link = directory.file("own");
    std::os::unix::fs::symlink(&foreign, &link).unwrap();
    Journal::open(&link, Rotation { bytes: 1000, files: 1 }).unwrap();
}

fn no_losses() -> Losses {
    let none = || Box::new(|records| panic!("{records} records are lost"));
    Losses { lost: none(), refused: none() }
}

#[test]
fn a_file_that_cannot_be_put_aside_grows_and_no_other_is_deleted() {
    let directory = Directory::new();
    // Nothing can be renamed to this.
    let obstacle = directory.file("s.3");
    fs::create_dir_all(obstacle.join("full")).unwrap();
    fs::write(directory.file("s.2"), "older\n").unwrap();
    fs::write(directory.file("s.1"), "old\n").unwrap();
    let rotation = Rotation { bytes: 10, files: 3 };
    let mut journal = Journal::open(&directory.file("s"), rotation).unwrap();
    for line in ["1111\n", "2222\n", "3333\n", "4444\n"] {
        journal.append(line).unwrap();
    }
    assert!(journal.take_failure().is_some(), "an operator learns why the file grows");
    assert_eq!(directory.read("s"), "1111\n2222\n3333\n4444\n");
    assert_eq!((directory.read("s.1"), directory.read("s.2")), ("old\n".into(), "older\n".into()));

    fs::remove_dir_all(&obstacle).unwrap();
    // Attempts have a pause between them.
    test_support::eventually("the next file", || {
        journal.append("5555\n").unwrap();
        directory.file("s.3").exists()
    });
    assert_eq!((directory.read("s.2"), directory.read("s.3")), ("old\n".into(), "older\n".into()));
    assert!(directory.read("s.1").starts_with("1111\n2222\n3333\n4444\n"));
    assert_eq!(directory.read("s"), "5555\n");
}

#[test]
fn a_file_that_was_given_its_number_by_a_failed_attempt_moves_once() {
    let directory = Directory::new();
    let mut journal = Journal::open(&directory.file("s"), SMALL).unwrap();
    journal.append("a record of many bytes\n").unwrap();
    // State after an attempt that stopped between two renames.
    fs::rename(directory.file("s"), directory.file("s.1")).unwrap();
    fs::write(directory.file("s.2"), "older\n").unwrap();
    journal.append("b\n").unwrap();
    assert_eq!(directory.read("s.1"), "a record of many bytes\n");
    assert_eq!((directory.read("s.2"), directory.read("s")), ("older\n".into(), "b\n".into()));
}

#[test]
fn records_that_a_disk_never_takes_are_counted_at_the_end() {
    let journal = Journal::open(&PathBuf::from("/dev/full"), SMALL).unwrap();
    let mut events = SessionEvents::default();
    let directory = Directory::new();
    let (recorder, lines) = recorder(&directory, &mut events);
    let counted = Arc::<AtomicU64>::default();
    let count = Arc::clone(&counted);
    let lost = Box::new(move |records| {
        count.fetch_add(records, Ordering::Relaxed);
    });
    let writer = start(journal, lines, Losses { lost, ..no_losses() }).unwrap();
    for _ in 0..5 {
        events.put(&SessionEvent::Ended(Box::new(AllocationRecord::sample())), |_| panic!());
    }
    drop(events);
    writer.join();
    recorder.join();
    assert_eq!(counted.load(Ordering::Relaxed), 5);
}

#[test]
fn a_full_queue_refuses_and_never_blocks() {
    let mut events = SessionEvents::default();
    let _taken = events.add(&[RecordOutput::File]);
    let read = events.add(&[RecordOutput::Webhook]);
    let event =
        SessionEvent::Interim { record: Box::new(AllocationRecord::sample()), at: Instant::ZERO };
    let most = control::limits::SESSION_EVENTS;
    let mut lost = Vec::new();
    for _ in 0..=most {
        events.put(&event, |output| lost.push(output));
        read.recv().unwrap();
    }
    assert_eq!(lost, [RecordOutput::File], "an output that keeps up loses nothing");
}
