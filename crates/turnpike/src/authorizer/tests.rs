//! A service that hangs for some accounts or for all.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use control::{Inbox, Wake, WorkerCounters, mailbox};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use turn_types::{ClientAddr, Instant, PendingId, Transport, WorkerId};

use super::*;

/// Deadline of an answer. Clients that wait for a slot are refused after two seconds.
const ANSWER_WITHIN: Duration = Duration::from_millis(1500);

struct Awake;

impl Wake for Awake {
    fn wake(&self) {}
}

/// A service that denies all immediately, but hangs for accounts named `hanging`, and for all while
/// `hangs` is set.
async fn start_service(hangs: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(deny(stream, Arc::clone(&hangs)));
        }
    });
    port
}

/// Serves one connection.
async fn deny(mut stream: TcpStream, hangs: Arc<AtomicBool>) {
    let mut read = Vec::new();
    while stream.read_buf(&mut read).await.is_ok_and(|bytes| bytes > 0) {
        let text = String::from_utf8_lossy(&read);
        // The last field of a question.
        if !text.contains("client_port") || !text.ends_with('}') {
            continue;
        }
        if hangs.load(Ordering::Relaxed) || text.contains("\"hanging") {
            return std::future::pending().await;
        }
        read.clear();
        let response = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(response).await.unwrap();
    }
}

/// An authorizer that serves clients in an outage, with the mailbox of its worker.
struct Scene {
    authorizer: WebService,
    inbox: Inbox,
    asked: u64,
    answers: HashMap<u64, Authorization>,
}

impl Scene {
    fn new(port: u16) -> Self {
        let (mailbox, inbox) = mailbox(1024, Arc::new(Awake));
        let workers = Workers::new(vec![(mailbox, Arc::new(WorkerCounters::new()))]);
        let asking = Asking {
            client: Client::new(&Roots::public()).unwrap(),
            url: Url::parse(&format!("http://127.0.0.1:{port}/")).unwrap(),
            header: None,
            answer_within: ANSWER_WITHIN,
            questions: Questions::new(),
            is_watched: AtomicBool::new(false),
            keep_for: Duration::ZERO,
            kept: Mutex::new(KeptAnswers::new()),
            outage: Outage::default(),
            known: KnownClient::default(),
            owed: OwedAnswers::new(),
            is_settling: AtomicBool::new(false),
            when_silent: WhenSilentInForce(Arc::new(AtomicBool::new(true))),
            ending: tokio::sync::Mutex::new(()),
            workers,
        };
        let authorizer = WebService { handle: Handle::current(), asking: Arc::new(asking) };
        Self { authorizer, inbox, asked: 0, answers: HashMap::new() }
    }

    fn ask(&mut self, account: &str, network: u8) -> u64 {
        self.asked += 1;
        let applicant = Applicant {
            realm: "r".into(),
            user: account.into(),
            account: account.into(),
            transport: Transport::Udp,
            client: ClientAddr(([60, network, 2, 1], 1).into()),
        };
        let pending = PendingId(self.asked);
        let request = AuthorizationRequest { worker: WorkerId(0), pending, applicant };
        assert_eq!(self.authorizer.ask(request), None);
        self.asked
    }

    fn read(&mut self) {
        while let Some(Request::Authorized { pending, answer }) = self.inbox.take() {
            self.answers.insert(pending.0, answer);
        }
    }

    async fn answer(&mut self, question: u64) -> Authorization {
        loop {
            self.read();
            if let Some(answer) = self.answers.remove(&question) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Only clients ask for which the service hangs, and one that it denies, but about which it is not
/// asked in time.
#[tokio::test]
async fn a_service_that_hangs_for_those_who_ask_is_no_outage() {
    let mut scene = Scene::new(start_service(Arc::default()).await);
    let question = scene.ask("known", 250);
    assert_eq!(scene.answer(question).await, Authorization::Denied);
    // No answer is recent.
    tokio::time::sleep(ANSWER_WITHIN).await;
    let began = std::time::Instant::now();
    let mut number: u8 = 0;
    while began.elapsed() < ANSWER_WITHIN * 4 {
        for _ in 0..8 {
            number = (number + 1) % 200;
            scene.ask(&format!("hanging {number}"), number);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        scene.read();
    }
    // More clients wait than have a slot.
    let denied = scene.ask("denied", 201);
    assert_ne!(scene.answer(denied).await, Authorization::Unavailable);
    let served = scene.answers.values().filter(|answer| **answer == Authorization::Unavailable);
    assert_eq!(served.count(), 0, "of {}", scene.answers.len());
    assert!(scene.answers.values().any(|answer| *answer == Authorization::Overloaded));
    assert!(!scene.authorizer.asking.is_silent());
}

/// The service hangs for all: clients are served after the deadline, as without a known client.
#[tokio::test]
async fn a_service_that_hangs_for_all_is_an_outage() {
    let hangs = Arc::new(AtomicBool::new(false));
    let mut scene = Scene::new(start_service(Arc::clone(&hangs)).await);
    let question = scene.ask("known", 250);
    assert_eq!(scene.answer(question).await, Authorization::Denied);
    tokio::time::sleep(Duration::from_millis(100)).await;
    hangs.store(true, Ordering::Relaxed);
    let began = std::time::Instant::now();
    let question = scene.ask("alice", 1);
    assert_eq!(scene.answer(question).await, Authorization::Unavailable);
    assert!(began.elapsed() < ANSWER_WITHIN + Duration::from_millis(500), "{:?}", began.elapsed());
    // Who is known is asked about again, and the service recovers.
    hangs.store(false, Ordering::Relaxed);
    let question = scene.ask("bob", 2);
    assert_eq!(scene.answer(question).await, Authorization::Denied);
}

#[test]
fn who_is_denied_late_may_have_moved() {
    let before = AllocationRecord::sample();
    let applicant = Applicant {
        realm: before.realm.clone(),
        user: before.user.clone(),
        account: before.account.clone(),
        transport: before.five_tuple.transport,
        client: before.five_tuple.client,
    };
    let [opened, created] = [10, 11].map(|second| Instant::ZERO + Duration::from_secs(second));
    assert!(is_of(&before, &applicant, opened), "at the same address");
    let mut other = before.clone();
    other.five_tuple.client = ClientAddr(([198, 51, 100, 1], 4000).into());
    other.five_tuple.transport = Transport::Tcp;
    assert!(!is_of(&AllocationRecord { created, ..other.clone() }, &applicant, opened));
    let moved = AllocationRecord { has_moved: true, ..other };
    assert!(!is_of(&moved, &applicant, opened), "an earlier one, which the service permitted");
    let moved = AllocationRecord { created, ..moved };
    assert!(is_of(&moved, &applicant, opened));
    assert!(!is_of(&AllocationRecord { realm: "another".into(), ..moved }, &applicant, opened));
}
