//! Delivery of records to a web service on this host, over sockets.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use accounting::{Delivery, Losses, Recorder, Spool, Webhook, output_queue};
use control::{RecordOutput, SessionEvent, SessionEvents};
use outgoing_http::{Client, Roots, Url};
use turn_proto::{AllocationRecord, EndReason};
use turn_types::{AllocationId, WorkerId};

const MIB: u64 = 1 << 20;

/// Longest wait for something that comes.
const PATIENCE: Duration = Duration::from_mins(1);

struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("webhook-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn bytes(&self) -> u64 {
        fs::read_dir(&self.0).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Behaviour of the service at one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Close,
    Hang,
    Answer(u16),
    /// Accepts all but requests with the record of this number.
    RefuseRecord(u16, u64),
}

/// A service: what it does at each request, from a list and then 204, and the ids of records that
/// it accepted.
struct Service {
    url: Url,
    accepted: Receiver<Vec<String>>,
    headers: Arc<Mutex<String>>,
}

impl Service {
    fn new(does: Vec<Does>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/records", listener.local_addr().unwrap());
        let (sender, accepted) = channel();
        let headers = Arc::<Mutex<String>>::default();
        let seen = Arc::clone(&headers);
        let does = Arc::new(Mutex::new(does.into_iter()));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (does, sender, seen) = (Arc::clone(&does), sender.clone(), Arc::clone(&seen));
                thread::spawn(move || {
                    let mut stream = BufReader::new(stream.unwrap());
                    while let Some(ids) = request(&mut stream, &seen) {
                        let next = does.lock().unwrap().next().unwrap_or(Does::Answer(204));
                        if !answer(stream.get_mut(), next, ids, &sender) {
                            break;
                        }
                    }
                });
            }
        });
        Self { url: Url::parse(&url).unwrap(), accepted, headers }
    }

    /// The accepted records by id, with how often each was, once there are `count`.
    fn wait_for(&self, count: usize) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        while all.len() < count {
            for id in self.accepted.recv_timeout(PATIENCE).unwrap() {
                *all.entry(id).or_default() += 1;
            }
        }
        all
    }
}

/// Reads a request; returns the ids of its records. `None` at the end of the connection.
fn request(stream: &mut BufReader<TcpStream>, headers: &Mutex<String>) -> Option<Vec<String>> {
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    *headers.lock().unwrap() = head;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let records: Vec<serde_json::Value> = serde_json::from_slice(&body).unwrap();
    Some(records.iter().map(|record| record["id"].as_str().unwrap().to_owned()).collect())
}

/// False if the connection ends.
fn answer(
    stream: &mut TcpStream,
    does: Does,
    ids: Vec<String>,
    accepted: &Sender<Vec<String>>,
) -> bool {
    match does {
        Does::Close => false,
        Does::Hang => {
            // Until the client gives up.
            let _ = stream.read(&mut [0]);
            false
        }
        Does::RefuseRecord(status, number) => {
            let id = AllocationId::new(WorkerId(0), number).to_string();
            let status = if ids.contains(&id) { status } else { 204 };
            answer(stream, Does::Answer(status), ids, accepted)
        }
        Does::Answer(status) => {
            if (200..300).contains(&status) && accepted.send(ids).is_err() {
                return false;
            }
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).is_ok()
        }
    }
}

struct Running {
    events: SessionEvents,
    delivery: Delivery,
    recorder: Recorder,
    lost: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
}

fn start(directory: &Path, url: &Url, batch: usize, bytes_max: u64) -> Running {
    let mut events = SessionEvents::default();
    let [lost, refused] = [(); 2].map(|()| Arc::<AtomicU64>::default());
    let count = |counter: &Arc<AtomicU64>| {
        let counter = Arc::clone(counter);
        Box::new(move |records| {
            counter.fetch_add(records, Ordering::Relaxed);
        })
    };
    let losses = Losses { lost: count(&lost), refused: count(&refused) };
    let webhook = Webhook {
        client: Client::new(&Roots::public()).unwrap(),
        url: url.clone(),
        authorization: Some("Bearer 1234".to_owned()),
        batch,
        deadline: Duration::from_millis(300),
    };
    let spool = Spool::open(directory, bytes_max).unwrap();
    let (files, none) = (directory.to_owned(), Box::new(|_| panic!("the queue is full")));
    let (queue, lines) = output_queue(none, Box::new(move || Spool::files(&files)));
    let delivery = Delivery::start(webhook, spool, lines, losses).unwrap();
    let ledger = directory.join("open");
    let taken = events.add(&[RecordOutput::Webhook]);
    let recorder =
        Recorder::start(&ledger, Box::new(|lost| panic!("{lost} are lost")), taken, vec![queue])
            .unwrap();
    Running { events, delivery, recorder, lost, refused }
}

fn ended(number: u64) -> SessionEvent {
    let mut record = AllocationRecord::sample();
    record.id = AllocationId::new(WorkerId(0), number);
    record.end = Some((EndReason::ALL[0], record.created));
    SessionEvent::Ended(Box::new(record))
}

fn line(number: u64) -> String {
    format!("{{\"id\":\"{number}\"}}\n")
}

#[test]
fn each_record_arrives_whatever_the_service_does_before() {
    let directory = Directory::new();
    let bad = [Does::Close, Does::Hang, Does::Answer(500), Does::Answer(302)];
    let service = Service::new(bad.into());
    let running = start(&directory.0, &service.url, 10, MIB);
    for number in 0..25 {
        running.events.put(&ended(number), |_| panic!("the queue is full"));
    }
    let arrived = service.wait_for(25);
    assert!(arrived.values().all(|times| *times == 1), "{arrived:?}");
    let headers = service.headers.lock().unwrap().to_lowercase();
    assert!(headers.contains("authorization: bearer 1234\r\n"), "{headers}");
    drop(running.events);
    running.delivery.join();
    running.recorder.join();
    assert_eq!(running.lost.load(Ordering::Relaxed), 0);
}

#[test]
fn a_record_that_the_service_refuses_holds_up_no_other() {
    let directory = Directory::new();
    let service = Service::new(vec![Does::RefuseRecord(422, 7); 1000]);
    let running = start(&directory.0, &service.url, 10, MIB);
    for number in 0..25 {
        running.events.put(&ended(number), |_| panic!("the queue is full"));
    }
    let arrived = service.wait_for(24);
    assert!(arrived.values().all(|times| *times == 1), "{arrived:?}");
    drop(running.events);
    running.delivery.join();
    running.recorder.join();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((count(&running.refused), count(&running.lost)), (1, 0));
    let refused = fs::read_to_string(directory.0.join("refused.jsonl")).unwrap();
    let record: serde_json::Value = serde_json::from_str(refused.trim_end()).unwrap();
    assert_eq!(record["id"], AllocationId::new(WorkerId(0), 7).to_string());
}

#[test]
fn a_refusal_that_concerns_all_requests_sets_nothing_aside() {
    for status in [401, 403, 404, 408, 429] {
        let directory = Directory::new();
        let service = Service::new(vec![Does::Answer(status); 2]);
        let running = start(&directory.0, &service.url, 10, MIB);
        for number in 0..3 {
            running.events.put(&ended(number), |_| panic!("the queue is full"));
        }
        assert_eq!(service.wait_for(3).len(), 3, "{status}");
        drop(running.events);
        running.delivery.join();
        running.recorder.join();
        assert!(!directory.0.join("refused.jsonl").exists(), "{status}");
    }
}

#[test]
fn a_spool_that_cannot_begin_a_file_goes_on_with_the_full_one() {
    let directory = Directory::new();
    let mut spool = Spool::open(&directory.0, 800).unwrap();
    let obstacle = directory.0.join("000000000002.jsonl");
    fs::create_dir(&obstacle).unwrap();
    for number in 0..20 {
        spool.append(&line(number)).unwrap();
    }
    assert!(spool.take_failure().is_some(), "an operator learns why the file grows");
    assert_eq!(spool.take_dropped(), 0, "the file grows up to the bound of the spool");
    let mut appended = 20;
    while spool.take_dropped() == 0 {
        spool.append(&line(20)).unwrap();
        appended += 1;
        assert!(directory.bytes() <= 800 + 4096, "a directory has some bytes as well");
    }
    fs::remove_dir(&obstacle).unwrap();
    let mut dropped = 1;
    test_support::eventually("the next file", || {
        spool.append(&line(20)).unwrap();
        appended += 1;
        dropped += spool.take_dropped();
        obstacle.is_file()
    });
    dropped += spool.take_dropped();
    let mut records = Vec::new();
    while let Some(batch) = spool.batch(100).unwrap() {
        records.extend(batch.records.clone());
        spool.accept(&batch).unwrap();
    }
    let first: Vec<_> = (0..20).map(|number| line(number).trim_end().to_owned()).collect();
    assert_eq!(records[..20], first);
    assert_eq!(records.len() + dropped as usize, appended);
}

#[test]
fn records_that_were_not_accepted_are_delivered_after_the_next_start() {
    let directory = Directory::new();
    let nobody = Url::parse("http://127.0.0.1:1/").unwrap();
    let running = start(&directory.0, &nobody, 10, MIB);
    for number in 0..25 {
        running.events.put(&ended(number), |_| panic!("the queue is full"));
    }
    drop(running.events);
    running.delivery.join();
    running.recorder.join();

    let service = Service::new(Vec::new());
    let running = start(&directory.0, &service.url, 10, MIB);
    assert_eq!(service.wait_for(25).len(), 25);
    drop(running.events);
    running.delivery.join();
    running.recorder.join();
    // What was delivered is not delivered again.
    let mut spool = Spool::open(&directory.0, MIB).unwrap();
    assert_eq!(spool.batch(10).unwrap(), None);
}

#[test]
fn a_full_spool_drops_the_oldest_counts_them_and_stays_within_its_bound() {
    let directory = Directory::new();
    let mut spool = Spool::open(&directory.0, 1000).unwrap();
    let mut dropped = 0;
    for number in 0..500 {
        spool.append(&line(number)).unwrap();
        dropped += spool.take_dropped();
        assert!(directory.bytes() <= 1000);
    }
    let mut left = Vec::new();
    while let Some(batch) = spool.batch(7).unwrap() {
        assert!(batch.records.len() <= 7);
        left.extend(batch.records.clone());
        spool.accept(&batch).unwrap();
    }
    assert_eq!(left.len() as u64 + dropped, 500);
    assert!(left.len() > 40, "only the oldest file was dropped at a time: {}", left.len());
    assert_eq!(left.last().unwrap(), line(499).trim_end());
}

/// During an upgrade the predecessor still appends and delivers records.
#[test]
fn a_spool_of_two_processes_loses_no_record_and_delivers_none_twice() {
    let directory = Directory::new();
    let mut predecessor = Spool::open(&directory.0, 4000).unwrap();
    predecessor.append(&line(0)).unwrap();
    let mut successor = Spool::open(&directory.0, 4000).unwrap();
    successor.append(&line(100)).unwrap();
    assert_eq!(successor.batch(9).unwrap(), None, "the predecessor delivers");
    let first = predecessor.batch(9).unwrap().unwrap();
    predecessor.accept(&first).unwrap();
    // Both need further segments during that time.
    for number in 1..20 {
        predecessor.append(&line(number)).unwrap();
        successor.append(&line(100 + number)).unwrap();
    }
    assert_eq!(successor.batch(9).unwrap(), None);
    let second = predecessor.batch(1).unwrap().unwrap();
    predecessor.accept(&second).unwrap();
    drop(predecessor);
    let mut delivered = [first.records, second.records].concat();
    while let Some(batch) = successor.batch(9).unwrap() {
        successor.accept(&batch).unwrap();
        delivered.extend(batch.records);
    }
    delivered.sort();
    let all = (0..20).chain(100..120).map(|number| line(number).trim_end().to_owned());
    let mut all: Vec<_> = all.collect();
    all.sort();
    assert_eq!(delivered, all);
    assert_eq!(successor.take_dropped(), 0);
}

/// Two consecutive upgrades: the second process starts to deliver while the third process appends.
#[test]
fn a_spool_of_three_processes_loses_no_record() {
    let directory = Directory::new();
    let [first, mut second, mut third] = [0; 3].map(|_| Spool::open(&directory.0, MIB).unwrap());
    drop(first);
    third.append(&line(1)).unwrap();
    second.append(&line(0)).unwrap();
    let deliver = |spool: &mut Spool| {
        let mut delivered = Vec::new();
        while let Some(batch) = spool.batch(9).unwrap() {
            spool.accept(&batch).unwrap();
            delivered.extend(batch.records);
        }
        delivered
    };
    assert_eq!(deliver(&mut second), [line(0).trim_end()]);
    third.append(&line(2)).unwrap();
    assert_eq!(deliver(&mut second), Vec::<String>::new());
    assert_eq!(third.batch(9).unwrap(), None);
    drop(second);
    assert_eq!(deliver(&mut third), [1, 2].map(|number| line(number).trim_end().to_owned()));
    assert_eq!(third.take_dropped(), 0);
}

#[test]
fn a_spool_that_was_removed_is_made_again_and_the_loss_is_counted() {
    let directory = Directory::new();
    let spooled = directory.0.join("webhook");
    let mut spool = Spool::open(&spooled, MIB).unwrap();
    spool.append(&line(0)).unwrap();
    fs::remove_dir_all(&spooled).unwrap();
    assert_eq!(spool.batch(9).unwrap(), None);
    assert_eq!(spool.take_dropped(), 1);
    spool.append(&line(1)).unwrap();
    assert_eq!(spool.batch(9).unwrap().unwrap().records, [line(1).trim_end()]);
}

#[test]
fn a_batch_whose_file_was_dropped_meanwhile_marks_nothing_as_delivered() {
    let directory = Directory::new();
    let mut spool = Spool::open(&directory.0, 1000).unwrap();
    spool.append(&line(0)).unwrap();
    let posted = spool.batch(10).unwrap().unwrap();
    (1..200).for_each(|number| spool.append(&line(number)).unwrap());
    let first = spool.batch(1).unwrap().unwrap();
    spool.accept(&posted).unwrap();
    assert_eq!(spool.batch(1).unwrap().unwrap(), first);
}

#[test]
fn a_record_that_a_crash_cut_off_is_left_out() {
    let directory = Directory::new();
    let mut spool = Spool::open(&directory.0, MIB).unwrap();
    spool.append(&line(1)).unwrap();
    spool.append("{\"id\":\"2").unwrap();
    drop(spool);
    let mut spool = Spool::open(&directory.0, MIB).unwrap();
    spool.append(&line(3)).unwrap();
    let mut records = Vec::new();
    while let Some(batch) = spool.batch(10).unwrap() {
        assert!(serde_json::from_slice::<serde_json::Value>(&batch.body()).is_ok());
        records.extend(batch.records.clone());
        spool.accept(&batch).unwrap();
    }
    assert_eq!(records, [line(1).trim_end(), line(3).trim_end()]);
}
