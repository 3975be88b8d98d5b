//! HTTP for monitoring, over real sockets, against workers of the test.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use admin::types::{Health, ListenerHealth};
use admin::{Answers, HttpListener, ListenerTest, Other, UnixSocket, monitoring, serve};
use control::{
    CertificateInfo, ConfinementInfo, Handle, Histogram, Leg, MissingAddresses, MonitoringInfo,
    OffloadInfo, RelayInfo, Series, ServerInfo, UnreadParts, Wake, WorkerCounters, Workers,
    mailbox,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use turn_proto::Refusal;
use turn_types::{Direction, Instant, IpFamily, Transport};

const NOW: Instant = Instant::from_nanos(100_000_000_000);

/// A worker that has a turn when it is woken, unless it hangs.
struct Worker {
    counters: Arc<WorkerCounters>,
    hangs: AtomicBool,
}

impl Wake for Worker {
    fn wake(&self) {
        if !self.hangs.load(Ordering::Relaxed) {
            self.counters.count_turn();
        }
    }
}

/// Listeners that answer, or not.
#[derive(Default)]
struct Listeners {
    error: Mutex<Option<String>>,
    asked: AtomicUsize,
}

impl ListenerTest for Listeners {
    fn ask(&self) -> Answers<'_> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let error = self.error.lock().unwrap().clone();
        let (address, transport) = ("192.0.2.1:3478".to_owned(), "udp".to_owned());
        let answer = ListenerHealth { address, transport, microseconds: 40, error };
        Box::pin(async move { vec![answer] })
    }
}

struct Server {
    handle: Handle,
    worker: Arc<Worker>,
    listeners: Arc<Listeners>,
    address: std::net::SocketAddr,
    serving: tokio::task::AbortHandle,
}

impl Server {
    async fn start() -> Self {
        let counters = Arc::new(WorkerCounters::new());
        let worker =
            Arc::new(Worker { counters: Arc::clone(&counters), hangs: AtomicBool::default() });
        let (mailbox, _inbox) = mailbox(16, Arc::clone(&worker) as _);
        let workers = Workers::new(vec![(mailbox, counters)]);
        let (handle, _requests) = Handle::new(workers, info());
        let listeners = Arc::new(Listeners::default());
        let routes = monitoring::router(
            handle.clone(),
            || NOW,
            None,
            Arc::clone(&listeners) as _,
            "/metrics",
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(HttpListener::Tcp(listener, None), routes)).abort_handle();
        Self { handle, worker, listeners, address, serving }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.request(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await
    }

    async fn request(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }

    async fn health(&self, path: &str) -> (u16, Health) {
        let (status, answer) = self.get(path).await;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    fn configure(&self, monitoring: MonitoringInfo) {
        self.handle.set_info(ServerInfo { monitoring, ..info() });
    }
}

fn info() -> ServerInfo {
    ServerInfo {
        version: "1.2.3".into(),
        started: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000),
        realm: "example.org".into(),
        realms: Vec::new(),
        listeners: vec!["192.0.2.1:3478".parse().unwrap()],
        relay: vec![RelayInfo {
            local: "10.0.0.5".parse().unwrap(),
            public: "203.0.113.7".parse().unwrap(),
            is_present: true,
        }],
        missing: MissingAddresses::default(),
        unread: UnreadParts::default(),
        relay_prefixes: Vec::new(),
        relay_ports: (50_000, 50_099),
        workers: 1,
        gro: true,
        gso: true,
        offload: OffloadInfo::default(),
        tls_listeners: Vec::new(),
        dtls: false,
        certificates: vec![CertificateInfo {
            file: "/etc/chain.pem".into(),
            expires: SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000),
        }],
        reload_refused: None,
        needs_restart: Vec::new(),
        took_over: None,
        confinement: ConfinementInfo::default(),
        monitoring: MonitoringInfo::default(),
        redirects: Vec::new(),
    }
}

/// Behind a hand-over the numbers of the process before would be of yesterday.
#[tokio::test]
async fn a_connection_ends_when_another_process_has_the_listener() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let (mut answer, mut end) = (Vec::new(), [0; 1]);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let pause = Duration::from_millis(200);
    while let Ok(Ok(1..)) = tokio::time::timeout(pause, stream.read_buf(&mut answer)).await {}
    assert!(answer.starts_with(b"HTTP/1.1 200"), "it stays open: {answer:?}");
    server.serving.abort();
    assert_eq!(stream.read(&mut end).await.unwrap(), 0);
}

#[tokio::test]
async fn metrics_are_the_counters_with_their_labels() {
    let server = Server::start().await;
    let counters = &server.worker.counters;
    counters.add(Series::Packets(Leg::FromClients), 12);
    counters.add(Series::Offloaded(Leg::FromClients), 500);
    counters.add(Series::Refusal(Refusal::WrongPassword), 3);
    counters.set(Series::AllocationsLive(Transport::Tls), 7);
    counters.set(Series::RelayedLive(IpFamily::V6), 9);
    let data = (Transport::Tls, IpFamily::V6, Direction::ToPeer);
    counters.set(Series::RelayedBytes(data.0, data.1, data.2), 55);
    for milliseconds in [3, 4, 30_000] {
        counters.record(Histogram::Lookup, milliseconds * 1_000_000);
    }

    let (status, text) = server.get("/metrics").await;
    assert_eq!(status, 200);
    assert!(text.contains("content-type: text/plain; version=0.0.4"), "{text}");
    for line in [
        "# TYPE turnpike_packets_total counter",
        "turnpike_packets_total{leg=\"from_clients\",path=\"sockets\"} 12",
        "turnpike_packets_total{leg=\"from_clients\",path=\"kernel\"} 500",
        "turnpike_refusals_total{reason=\"wrong_password\",code=\"401\"} 3",
        "# TYPE turnpike_allocations gauge",
        "turnpike_allocations{transport=\"tls\"} 7",
        "turnpike_allocations{transport=\"udp\"} 0",
        "turnpike_relayed_addresses{family=\"ipv6\"} 9",
        "turnpike_relayed_addresses_max{family=\"ipv4\"} 100",
        "turnpike_relayed_bytes_total{transport=\"tls\",family=\"ipv6\",direction=\"to_peer\"} 55",
        "# TYPE turnpike_lookup_seconds histogram",
        "turnpike_lookup_seconds_bucket{le=\"0.0025\"} 0",
        "turnpike_lookup_seconds_bucket{le=\"0.005\"} 2",
        "turnpike_lookup_seconds_bucket{le=\"+Inf\"} 3",
        "turnpike_lookup_seconds_count 3",
        "turnpike_lookup_seconds_sum 30.007",
        "turnpike_build_info{version=\"1.2.3\"} 1",
        "turnpike_certificate_expiry_timestamp_seconds{file=\"/etc/chain.pem\"} 2000000000.0",
        "process_start_time_seconds 1000000.0",
        "turnpike_draining 0",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is missing:\n{text}");
    }
    assert!(text.contains("\nprocess_open_fds "), "{text}");
    assert!(!text.contains("turn_total_allocations"), "{text}");

    server.configure(MonitoringInfo { coturn_metrics: true, ..MonitoringInfo::default() });
    let (_, text) = server.get("/metrics").await;
    assert!(text.contains("\nturn_total_allocations{type=\"TLS/TCP\"} 7\n"), "{text}");
    assert!(text.contains("\nturn_total_traffic_rcvp 512\n"), "{text}");
}

#[tokio::test]
async fn a_client_that_takes_open_metrics_is_given_it() {
    let server = Server::start().await;
    let request = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                   accept: application/openmetrics-text;version=1.0.0\r\n\r\n";
    let (_, text) = server.request(request).await;
    assert!(text.contains("content-type: application/openmetrics-text; version=1.0.0"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[tokio::test]
async fn a_listener_that_does_not_answer_is_ill_health() {
    let server = Server::start().await;
    *server.listeners.error.lock().unwrap() = Some("no answer in time".to_owned());
    let (status, health) = server.health("/healthz").await;
    assert_eq!((status, health.healthy), (503, false));
    assert_eq!(health.listeners[0].error.as_deref(), Some("no answer in time"));
    assert_eq!(server.health("/readyz").await.0, 503);
    assert_eq!(server.listeners.asked.load(Ordering::Relaxed), 1, "once for both");
}

#[tokio::test]
async fn a_worker_that_hangs_is_ill_health() {
    let server = Server::start().await;
    server.worker.hangs.store(true, Ordering::Relaxed);
    let (status, health) = server.health("/healthz").await;
    assert_eq!((status, health.hanging_workers), (503, vec![0]));
}

#[tokio::test]
async fn a_draining_server_is_healthy_and_ready_if_it_is_to_be() {
    let server = Server::start().await;
    assert_eq!(server.health("/readyz").await.0, 200);
    let _ = server.handle.workers.drain(true);
    let (status, health) = server.health("/healthz").await;
    assert_eq!((status, health.draining), (200, true));
    assert_eq!(server.health("/readyz").await.0, 503);
    server.configure(MonitoringInfo { ready_while_draining: true, ..MonitoringInfo::default() });
    assert_eq!(server.health("/readyz").await.0, 200);
}

#[tokio::test]
async fn nothing_else_is_there_and_nothing_can_be_changed() {
    let server = Server::start().await;
    for path in ["/", "/v1/status", "/v1/sessions", "/metrics/"] {
        assert_eq!(server.get(path).await.0, 404, "{path}");
    }
    for method in ["POST", "PUT", "DELETE"] {
        let request = format!(
            "{method} /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        assert_eq!(server.request(&request).await.0, 405, "{method}");
    }
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!("GET /metrics HTTP/1.1\r\nx: {}", "y".repeat(64 * 1024));
    // The server may close while this is being written.
    let _ = stream.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    // A reset may take the answer away.
    let refused = answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 ");
    assert!(refused, "{}", String::from_utf8_lossy(&answer));
    assert_eq!(server.get("/metrics").await.0, 200, "others are served");
}

#[tokio::test]
async fn a_unix_socket_serves_the_same() {
    let server = Server::start().await;
    let directory: PathBuf =
        std::env::temp_dir().join(format!("turnpike-monitoring-{}", std::process::id()));
    let path = directory.join("http.sock");
    let socket = UnixSocket::monitoring(&path, Other::Stays).unwrap();
    let routes = monitoring::router(
        server.handle.clone(),
        || NOW,
        None,
        Arc::clone(&server.listeners) as _,
        "/metrics",
    );
    tokio::spawn(serve(HttpListener::Unix(socket), routes));
    let mut stream = UnixStream::connect(&path).await.unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    std::fs::remove_dir_all(directory).unwrap();
}

/// A monitor asks some times a second, and does not wait.
#[tokio::test]
async fn requests_without_a_pause_have_a_pace() {
    const REQUESTS: usize = 150;
    let server = Server::start().await;
    for path in ["/metrics", "/healthz", "/nowhere"] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        let last = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let began = std::time::Instant::now();
        server.request(&(request.repeat(REQUESTS - 1) + &last)).await;
        // 50 do not wait, the others have 2 ms each.
        assert!(began.elapsed() >= Duration::from_millis(200), "{path}: {:?}", began.elapsed());
    }
}
