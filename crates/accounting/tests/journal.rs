//! Records in files that rotate.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use accounting::{Journal, Record, RecordEvent, Rotation, start};
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
    let taken = events.add(RecordOutput::File);
    let writer = start(journal.unwrap(), taken).unwrap();
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

#[test]
fn a_full_queue_refuses_and_never_blocks() {
    let mut events = SessionEvents::default();
    let _taken = events.add(RecordOutput::File);
    let read = events.add(RecordOutput::Webhook);
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
