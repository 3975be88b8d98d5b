//! A server of one worker with one session, served over TCP to holders of tokens.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, SystemTime};

use admin::accounts::{AccountEntry, AccountError, AccountWish, Accounts, AddedAccount};
use admin::api::{self, Access, Rights, Signed, SignedTokenError, SignedTokens, TokenFile};
use admin::routes::Routes;
use admin::{HttpListener, Role, serve};
use control::{
    Asked, CancelReport, ConfinementInfo, DrainReport, Handle, Minted, MissingAddresses,
    MonitoringInfo, OffloadInfo, OperatorRequest, RecentLog, Refused, ReloadReport, Request,
    Revocable, Revocation, RevokeReport, ServerInfo, Session, SessionOffload, UnconfirmedUsers,
    UnreadParts, UserDirectory, UserLookup, Wake, WhyNot, WorkerCounters, Workers, mailbox,
};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use turn_proto::{
    AllocationRecord, DropReason, GrantLimits, Refusal, RefusedRequest, ServedRequests,
    SessionHistory,
};
use turn_types::{AllocationId, Instant, WorkerId};

pub(crate) const NOW: Instant = Instant::from_nanos(100_000_000_000);

/// The page that may ask for credentials.
pub(crate) const PAGE: &str = "https://app.example.org";

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) tokens: TokenFile,
    #[allow(dead_code, reason = "not every test program changes users")]
    pub(crate) forgotten: ForgottenNames,
    #[allow(dead_code, reason = "not every test program hands over")]
    pub(crate) handle: Handle,
    /// Number of requests to the worker for all sessions.
    #[allow(dead_code, reason = "not every test program counts them")]
    pub(crate) listed: Arc<AtomicU32>,
    directory: PathBuf,
}

/// Users by realm and name.
#[derive(Debug, Default)]
struct InMemory(Mutex<BTreeMap<(String, String), Option<u32>>>);

impl Accounts for InMemory {
    fn list(
        &self,
        realm: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<AccountEntry>, AccountError> {
        let users = self.0.lock().unwrap();
        let behind = users.iter().filter(|((of, name), _)| {
            of == realm && after.is_none_or(|after| name.as_str() > after)
        });
        let entry = |((_, name), &allocations_max): (&(String, String), &Option<u32>)| {
            AccountEntry { name: name.clone(), allocations_max, created_unix: None }
        };
        Ok(behind.take(limit as usize).map(entry).collect())
    }

    fn add(&self, wish: AccountWish) -> Result<AddedAccount, AccountError> {
        let AccountWish { realm, name, password, allocations_max, replaces } = wish;
        if password.as_ref().is_some_and(|password| password.expose().len() < 8) {
            return Err(AccountError::Invalid("the password is short".to_owned()));
        }
        let mut users = self.0.lock().unwrap();
        let key = (realm, name.clone());
        if users.contains_key(&key) && !replaces {
            return Err(AccountError::Exists(name));
        }
        let replaced = users.insert(key, allocations_max).is_some();
        let generated = password.is_none().then(|| turn_types::Secret::new("made".to_owned()));
        Ok(AddedAccount { name, generated, replaced })
    }

    fn delete(&self, realm: &str, name: &str) -> Result<Option<String>, AccountError> {
        let key = (realm.to_owned(), name.to_owned());
        Ok(self.0.lock().unwrap().remove(&key).map(|_| name.to_owned()))
    }
}

/// Names that were forgotten, with their realms.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForgottenNames(Arc<Mutex<Vec<(String, String)>>>);

impl ForgottenNames {
    #[allow(dead_code, reason = "not every test program changes users")]
    pub(crate) fn take(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl UserDirectory for ForgottenNames {
    fn find(&self, _: UserLookup) -> Asked {
        Asked::Refused
    }

    fn forget(&self, realm: &str, name: &str) {
        self.0.lock().unwrap().push((realm.to_owned(), name.to_owned()));
    }

    fn unconfirmed(&self) -> UnconfirmedUsers {
        UnconfirmedUsers::default()
    }

    fn distrust(&self, _users: &UnconfirmedUsers) {}
}

/// Tells signed tokens apart by their first part: `good`, `late` while the keys are missing.
#[derive(Debug)]
struct Issuer;

impl SignedTokens for Issuer {
    fn verify(&self, token: &str) -> Result<Signed, SignedTokenError> {
        match token.split('.').next() {
            Some("good") => Ok(Signed { user: "alice".to_owned(), limits: GrantLimits::default() }),
            Some("late") => Err(SignedTokenError::Unavailable("its keys are missing".to_owned())),
            Some(_) | None => Err(SignedTokenError::Denied("it is signed by nobody".to_owned())),
        }
    }
}

struct Knock(mpsc::Sender<()>);

impl Wake for Knock {
    fn wake(&self) {
        let _ = self.0.send(());
    }
}

/// An answer; status 0 when it is no HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    pub(crate) async fn start_with(tls: Option<Arc<ServerConfig>>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("turnpike-api-{}-{next}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("api-tokens.json");
        let (forgotten, listed) = (ForgottenNames::default(), Arc::default());
        let handle = handle(&listed).with_users(Arc::new(forgotten.clone()));
        let router = api::router(
            &Routes::new(handle.clone(), || NOW, None, RecentLog::default())
                .with_accounts(Arc::new(InMemory::default())),
            Access::new(path.clone())
                .with_origins(vec![PAGE.to_owned()])
                .with_signed_tokens(Arc::new(Issuer)),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(HttpListener::Api(listener, tls), router));
        Self { address, tokens: TokenFile::new(path), forgotten, handle, listed, directory }
    }

    /// A token with this role, named for it.
    pub(crate) fn token(&self, role: Role) -> String {
        self.tokens.add(role.name(), Rights::of(role), SystemTime::now()).unwrap()
    }

    /// A token with this role, of a realm alone.
    #[allow(dead_code, reason = "not every test program has one")]
    pub(crate) fn token_of(&self, realm: &str, role: Role) -> String {
        let name = format!("{realm}-{}", role.name());
        self.tokens.add(&name, Rights::of(role).in_realm(Some(realm)), SystemTime::now()).unwrap()
    }

    /// The answer to a request with a token.
    pub(crate) async fn with(&self, token: &str, method: &str, path: &str) -> Answer {
        self.ask(method, path, &format!("authorization: Bearer {token}\r\n"), "").await
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        self.raw(&format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost:9642\r\nconnection: close\r\n{headers}content-length: \
             {length}\r\n\r\n{body}"
        ))
        .await
    }

    /// The beginning of an answer that goes on: until `end` has come `times` times.
    #[allow(dead_code, reason = "not every test program watches a stream")]
    pub(crate) async fn beginning(
        &self,
        path: &str,
        headers: &str,
        end: &str,
        times: usize,
    ) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost:9642\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let (mut bytes, mut text) = ([0; 4096], String::new());
        while text.matches(end).count() < times {
            let len = stream.read(&mut bytes).await.unwrap();
            assert_ne!(len, 0, "it ended: {text}");
            text.push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
        text
    }

    pub(crate) async fn raw(&self, request: &str) -> Answer {
        exchange(TcpStream::connect(self.address).await.unwrap(), request).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub(crate) async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> Answer {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or(("", ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// A server of one worker, which counts the requests for all sessions.
pub(crate) fn handle(listed: &Arc<AtomicU32>) -> Handle {
    let listed = Arc::clone(listed);
    let (knock, knocks) = mpsc::channel();
    let (mailbox, inbox) = mailbox(16, Arc::new(Knock(knock)));
    std::thread::spawn(move || {
        let sessions = Mutex::new(vec![session()]);
        while knocks.recv().is_ok() {
            while let Some(request) = inbox.take() {
                let is_list = matches!(request, Request::List { .. });
                listed.fetch_add(u32::from(is_list), Ordering::Relaxed);
                answer(&mut sessions.lock().unwrap(), request);
            }
        }
    });
    let workers = Workers::new(vec![(mailbox, Arc::new(WorkerCounters::new()))]);
    let (handle, mut requests) = Handle::new(workers, info());
    tokio::spawn(async move {
        while let Some(request) = requests.recv().await {
            operate(request);
        }
    });
    handle
}

fn revocation(what: Revocable) -> Revocation {
    let Revocable { kind, realm, name } = what;
    let realm = realm.unwrap_or_else(|| "example.org".to_owned());
    Revocation { kind, realm, name, since_unix: 1_800_000_000, until_unix: None }
}

fn operate(request: OperatorRequest) {
    match request {
        OperatorRequest::Reload { reply, .. } => reply.send(ReloadReport::default()).unwrap(),
        OperatorRequest::Revoke { wish, reply } => {
            // Tells a test who has asked.
            let ended = if wish.by_tenant { 1 } else { 2 };
            let revocation = revocation(wish.what);
            reply.send(Ok(RevokeReport { revocation, ended })).unwrap();
        }
        OperatorRequest::Mint { wish, reply } => {
            let minted = Minted {
                username: format!("1900000000:{}", wish.user),
                password: turn_types::Secret::new("of-the-credential".to_owned()),
                ttl: wish.lasts.unwrap_or(Duration::from_secs(86_400)),
                uris: vec!["turn:192.0.2.1:3478".to_owned()],
            };
            reply.send(Ok(minted)).unwrap();
        }
        OperatorRequest::Restore { what, reply } => reply.send(Ok(revocation(what))).unwrap(),
        OperatorRequest::Revocations(reply) => reply.send(Vec::new()).unwrap(),
        OperatorRequest::Drain { reply, .. } => {
            let deadline = Duration::from_secs(7);
            let report = DrainReport { deadline, allocations_live: 1, replaced: None };
            reply.send(report).unwrap();
        }
        OperatorRequest::CancelDrain(reply) => reply.send(CancelReport::NotDraining).unwrap(),
    }
}

fn answer(sessions: &mut Vec<Session>, request: Request) {
    match request {
        Request::List { filter, limit, reply } => {
            let taken = sessions.iter().filter(|one| filter.takes(&one.record)).take(limit);
            reply(taken.cloned().collect());
        }
        Request::Show { id, reply } => {
            let found = sessions.iter().find(|session| session.record.id == id);
            reply(found.map(|session| (session.clone(), turn_proto::AllocationPeers::default())));
        }
        Request::End { id, reply } => {
            let before = sessions.len();
            sessions.retain(|session| session.record.id != id);
            let has_ended = sessions.len() < before;
            if has_ended && id == session().record.id {
                // The client allocates again: a look-up from before has the old keys.
                let record =
                    AllocationRecord { id: AllocationId::new(WorkerId(0), 2), ..session().record };
                sessions.push(Session { record, ..session() });
            }
            reply(has_ended);
        }
        Request::Refusals { reply, .. } => reply(refusals()),
        Request::CountTraffic { done } => done(()),
        Request::Apply { .. }
        | Request::EndUnaccepted { .. }
        | Request::Limit { .. }
        | Request::Drain(_)
        | Request::UserFound { .. }
        | Request::Authorized { .. }
        | Request::Stop => {
            panic!("the interface never asks this of a worker")
        }
    }
}

/// Refusals of the session's client: one that its session counts, and one before its Allocate.
fn refusals() -> Vec<Refused> {
    let of = |reason, seconds: u64| {
        let mut latest = RefusedRequest::sample(reason);
        latest.path.five_tuple = AllocationRecord::sample().five_tuple;
        let at = Instant::from_nanos(seconds * 1_000_000_000);
        Refused::new(latest, at)
    };
    vec![of(Refusal::PeerForbidden, 90), of(Refusal::WrongPassword, 10)]
}

pub(crate) fn session() -> Session {
    let record = AllocationRecord {
        id: AllocationId::new(WorkerId(0), 1),
        user: "<img src=x onerror=alert(1)>".into(),
        history: SessionHistory {
            refusals: vec![(Refusal::PeerForbidden, 2)],
            drops: vec![(DropReason::NoPermission, 3)],
            refreshes: Some(ServedRequests {
                count: 3,
                latest: Instant::from_nanos(95_000_000_000),
            }),
            ..SessionHistory::default()
        },
        ..AllocationRecord::sample()
    };
    Session { record, offload: SessionOffload::Sockets(WhyNot::NoChannel) }
}

fn info() -> ServerInfo {
    ServerInfo {
        version: "1.2.3".into(),
        started: SystemTime::now(),
        realm: "example.org".into(),
        realms: Vec::new(),
        listeners: vec!["192.0.2.1:3478".parse().unwrap()],
        relay: Vec::new(),
        missing: MissingAddresses::default(),
        unread: UnreadParts::default(),
        relay_prefixes: Vec::new(),
        relay_ports: (49_152, 65_535),
        workers: 1,
        gro: true,
        gso: true,
        offload: OffloadInfo::default(),
        tls_listeners: Vec::new(),
        dtls: false,
        reload_refused: None,
        needs_restart: Vec::new(),
        took_over: None,
        confinement: ConfinementInfo::default(),
        monitoring: MonitoringInfo::default(),
        redirects: Vec::new(),
        certificates: Vec::new(),
    }
}
