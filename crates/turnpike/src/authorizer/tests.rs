//! Tests of a service that hangs or fails, for some accounts or for all.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicUsize;

use control::{Inbox, Wake, WorkerCounters, mailbox};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use turn_types::{ClientAddr, PendingId, Transport, WorkerId};

use super::*;

/// Deadline of an answer. Clients that wait for a slot are refused after two seconds.
const ANSWER_WITHIN: Duration = Duration::from_millis(1500);

struct Awake;

impl Wake for Awake {
    fn wake(&self) {}
}

/// Service that denies most clients immediately. The service hangs for accounts named `hanging`,
/// fails for accounts named `failing`, and denies accounts named `late` after the deadline.
#[derive(Debug, Default)]
struct Service {
    /// True if the service hangs for all accounts.
    hangs: AtomicBool,
    /// True if the service fails for all accounts.
    fails: AtomicBool,
    /// True if the service also hangs for accounts named `turning`, and responds with 404 about
    /// accounts named `gone`.
    has_turned: AtomicBool,
    /// Number of questions so far.
    asked: AtomicUsize,
}

impl Service {
    async fn start(self: &Arc<Self>) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let service = Arc::clone(self);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&service).serve(stream));
            }
        });
        port
    }

    /// Serves one connection.
    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let mut read = Vec::new();
        while stream.read_buf(&mut read).await.is_ok_and(|bytes| bytes > 0) {
            let text = String::from_utf8_lossy(&read);
            // The last field of a question.
            if !text.contains("client_port") || !text.ends_with('}') {
                continue;
            }
            self.asked.fetch_add(1, Ordering::Relaxed);
            let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
            let has_turned = is(&self.has_turned) && text.contains("\"turning");
            if is(&self.hangs) || has_turned || text.contains("\"hanging") {
                return std::future::pending().await;
            }
            if text.contains("\"late") {
                tokio::time::sleep(ANSWER_WITHIN * 2).await;
            }
            let fails = is(&self.fails) || text.contains("\"failing");
            let is_gone = is(&self.has_turned) && text.contains("\"gone");
            let status = match (fails, is_gone) {
                (true, _) => "500 Internal Server Error",
                (false, true) => "404 Not Found",
                (false, false) => "403 Forbidden",
            };
            let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            read.clear();
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    }
}

/// Authorizer that serves clients in an outage, with the mailbox of its worker.
struct Scene {
    authorizer: WebService,
    inbox: Inbox,
    asked: u64,
    answers: HashMap<u64, Authorization>,
}

impl Scene {
    async fn new(service: &Arc<Service>) -> Self {
        Self::keeping(service, Duration::ZERO).await
    }

    /// Creates a scene with stored answers.
    async fn keeping(service: &Arc<Service>, keep_for: Duration) -> Self {
        let port = service.start().await;
        let (mailbox, inbox) = mailbox(1024, Arc::new(Awake));
        let workers = Workers::new(vec![(mailbox, Arc::new(WorkerCounters::new()))]);
        let asking = Asking {
            client: Client::new(&Roots::public()).unwrap(),
            url: Url::parse(&format!("http://127.0.0.1:{port}/")).unwrap(),
            header: None,
            answer_within: ANSWER_WITHIN,
            questions: Questions::new(),
            is_watched: AtomicBool::new(false),
            keep_for,
            kept: Mutex::new(KeptAnswers::new()),
            outage: Outage::default(),
            known: KnownClients::default(),
            owed: OwedAnswers::new(),
            is_settling: AtomicBool::new(false),
            when_silent: WhenSilentInForce(Arc::new(AtomicBool::new(true))),
            ending: tokio::sync::Mutex::new(()),
            workers,
        };
        let authorizer = WebService { handle: Handle::current(), asking: Arc::new(asking) };
        Self { authorizer, inbox, asked: 0, answers: HashMap::new() }
    }

    /// Creates a scene in which the service has denied these accounts, and no answer is recent.
    async fn with_known(service: &Arc<Service>, accounts: &[&str]) -> Self {
        let mut scene = Self::new(service).await;
        for account in accounts {
            let question = scene.ask(account, 250);
            assert_eq!(scene.answer(question).await, Authorization::Denied);
        }
        tokio::time::sleep(ANSWER_WITHIN).await;
        scene
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

/// The service hangs for most clients, and denies another client, whose question waits too long.
#[tokio::test]
async fn a_service_that_hangs_for_those_who_ask_is_no_outage() {
    let mut scene = Scene::with_known(&Arc::default(), &["known"]).await;
    let began = Instant::now();
    let mut number: u8 = 0;
    while began.elapsed() < ANSWER_WITHIN * 4 {
        for _ in 0..8 {
            number = (number + 1) % 200;
            scene.ask(&format!("hanging {number}"), number);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        scene.read();
    }
    // More clients wait than slots exist.
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
    let service = Arc::new(Service::default());
    let mut scene = Scene::new(&service).await;
    let question = scene.ask("known", 250);
    assert_eq!(scene.answer(question).await, Authorization::Denied);
    tokio::time::sleep(Duration::from_millis(100)).await;
    service.hangs.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let question = scene.ask("alice", 1);
    assert_eq!(scene.answer(question).await, Authorization::Unavailable);
    assert!(began.elapsed() < ANSWER_WITHIN + Duration::from_millis(500), "{:?}", began.elapsed());
    // The service recovers.
    service.hangs.store(false, Ordering::Relaxed);
    let question = scene.ask("bob", 2);
    assert_eq!(scene.answer(question).await, Authorization::Denied);
}

/// The service now hangs for the account that was known first, and the other accounts send no
/// requests.
#[tokio::test]
async fn one_of_the_known_clients_shows_that_there_is_no_outage() {
    let service = Arc::new(Service::default());
    let mut scene = Scene::with_known(&service, &["turning", "alice", "bob"]).await;
    service.has_turned.store(true, Ordering::Relaxed);
    for round in 0..3 {
        let question = scene.ask("hanging", round);
        assert_eq!(scene.answer(question).await, Authorization::Overloaded);
    }
}

/// The service has deleted the accounts of all known clients.
#[tokio::test]
async fn a_response_without_a_decision_about_a_known_client_is_no_silence() {
    let service = Arc::new(Service::default());
    let mut scene = Scene::with_known(&service, &["gone one", "gone two"]).await;
    service.has_turned.store(true, Ordering::Relaxed);
    let question = scene.ask("hanging", 1);
    assert_eq!(scene.answer(question).await, Authorization::Overloaded);
}

/// The service fails briefly, as during a restart, and hangs for one client afterwards.
#[tokio::test]
async fn a_moment_of_failure_makes_no_client_unknown() {
    let service = Arc::new(Service::default());
    let mut scene = Scene::with_known(&service, &["alice", "bob"]).await;
    service.fails.store(true, Ordering::Relaxed);
    for round in 0..3 {
        let question = scene.ask("hanging", round);
        tokio::time::sleep(ANSWER_WITHIN / 2).await;
        service.fails.store(false, Ordering::Relaxed);
        assert_eq!(scene.answer(question).await, Authorization::Overloaded, "{round}");
        tokio::time::sleep(ANSWER_WITHIN).await;
    }
}

/// The service fails immediately for some accounts, and other clients are idle.
#[tokio::test]
async fn a_service_that_fails_for_those_who_ask_is_no_outage() {
    let mut scene = Scene::with_known(&Arc::default(), &["known"]).await;
    for round in 0..3 {
        let question = scene.ask("failing", round);
        assert_eq!(scene.answer(question).await, Authorization::Unusable);
    }
}

/// The first client waits for repetitions of its question. The second client does not wait.
#[tokio::test]
async fn each_client_that_is_served_in_an_outage_is_asked_about_later() {
    let service = Arc::new(Service::default());
    service.fails.store(true, Ordering::Relaxed);
    let mut scene = Scene::new(&service).await;
    for account in ["alice", "bob"] {
        let question = scene.ask(account, 1);
        assert_eq!(scene.answer(question).await, Authorization::Unavailable);
    }
    let owed = std::iter::from_fn(|| scene.authorizer.asking.owed.take());
    let owed: Vec<_> = owed.map(|owed| owed.applicant.account.to_string()).collect();
    assert_eq!(owed, ["alice", "bob"]);
}

/// The service has recovered, and is slow for the client that it denies.
#[tokio::test]
async fn a_late_no_ends_sessions_while_others_get_prompt_answers() {
    let service = Arc::new(Service::default());
    service.hangs.store(true, Ordering::Relaxed);
    let mut scene = Scene::new(&service).await;
    let question = scene.ask("late", 1);
    assert_eq!(scene.answer(question).await, Authorization::Unavailable);
    // Further questions about the client are lost as well.
    tokio::time::sleep(ANSWER_WITHIN * 2).await;
    service.hangs.store(false, Ordering::Relaxed);
    let mut network = 2;
    loop {
        match scene.inbox.take() {
            Some(Request::Authorized { .. }) => {}
            // The authorizer searches for the sessions of the client.
            Some(_) => return,
            None => {
                network = network % 200 + 1;
                scene.ask("another", network);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Questions of one account are put one after another.
#[tokio::test]
async fn an_answer_counts_for_the_waiting_questions_of_its_client() {
    let service = Arc::new(Service::default());
    let mut scene = Scene::keeping(&service, Duration::from_secs(10)).await;
    let questions: Vec<_> = (0..6).map(|_| scene.ask("alice", 1)).collect();
    for question in questions {
        assert_eq!(scene.answer(question).await, Authorization::Denied);
    }
    assert_eq!(service.asked.load(Ordering::Relaxed), 1);
}
