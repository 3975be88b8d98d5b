//! A real server on the loopback, for tests that measure it.
#![allow(dead_code, reason = "each test file uses its own part")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod delay;

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use turn_bench::engine::{self, PeerOptions};
use turn_bench::session::Login;
use turn_bench::traffic::Transport;

pub(crate) use self::delay::Delay;

/// All transports.
pub(crate) const TRANSPORTS: [Transport; 5] =
    [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Tls12, Transport::Dtls];

/// The secret that the server shares.
pub(crate) const SECRET: &str = "a-secret-of-the-tests";

/// A running server; it ends with this value.
pub(crate) struct Server {
    process: Child,
    /// Held open, so that the server can go on writing.
    _log: BufReader<ChildStderr>,
    directory: PathBuf,
    /// Directory of its certificate.
    certificates: Option<PathBuf>,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts one that relays for clients with [`SECRET`], to the loopback too. `tables` are
    /// further lines of the configuration.
    pub(crate) fn start(tables: &str) -> Self {
        let loopback = Ipv4Addr::LOCALHOST.into();
        Self::start_at(free_address(), loopback, loopback, tables)
    }

    /// Starts one that serves TLS too, with a self-signed certificate.
    pub(crate) fn start_secure(tables: &str) -> Self {
        let directory = Self::directory();
        let (chain, key) = (directory.join("turn.pem"), directory.join("turn.key"));
        let made = rcgen::generate_simple_self_signed(["turn.test".to_owned()]).unwrap();
        std::fs::write(&chain, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let (chain, key) = (chain.display(), key.display());
        let loopback = Ipv4Addr::LOCALHOST.into();
        let tables = format!(
            "[tls]\nlisten = []\ncertificates = [{{ chain = \"{chain}\", key = \"{key}\" }}]\n{tables}"
        );
        let mut server = Self::start_at(free_address(), loopback, loopback, &tables);
        server.certificates = Some(directory);
        server
    }

    /// A new directory.
    fn directory() -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("turnpike-bench-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    /// Starts one that listens there, relays from one address, and lets a peer be reached.
    pub(crate) fn start_at(address: SocketAddr, relay: IpAddr, peer: IpAddr, tables: &str) -> Self {
        let directory = Self::directory();
        let config = directory.join("turnpike.toml");
        let text = format!(
            "realm = \"turn.test\"\nlisten = [\"{address}\"]\n[auth]\nsecret = \"{SECRET}\"\n\
             [relay]\naddresses = [\"{relay}\"]\n[peers]\nallow = [\"{peer}\"]\n{tables}\n"
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(binary());
        command.arg("run").arg("--config").arg(&config).arg("--data").arg(&directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut seen = String::new();
        while !seen.contains("ready") {
            let read = log.read_line(&mut seen).unwrap();
            assert!(read > 0, "the server ended before it was ready:\n{seen}");
        }
        Self { process, _log: log, directory, certificates: None, address }
    }

    /// The id of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Its status, for the message of a failed test.
    pub(crate) fn status(&self) -> String {
        self.ask(&["status"])
    }

    /// The answer to a command of its operator, with complaints behind it.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(binary());
        let answer = command.args(arguments).arg("--data").arg(&self.directory).output().unwrap();
        String::from_utf8_lossy(&answer.stdout).into_owned()
            + &String::from_utf8_lossy(&answer.stderr)
    }

    /// Its login.
    pub(crate) fn login() -> Login {
        Login::shared_secret("bench", SECRET)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        for directory in [Some(&self.directory), self.certificates.as_ref()].into_iter().flatten() {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// A peer that ends with this value.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    halt: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    pub(crate) fn start() -> Self {
        let listen = "127.0.0.1:0".parse().unwrap();
        let peer = engine::Peer::bind(&PeerOptions { listen, threads: 2 }, None).unwrap();
        let (address, halt) = (peer.address(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&halt);
        let thread = Some(thread::spawn(move || peer.serve(&told, false).unwrap()));
        Self { address, halt, thread }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.halt.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// A free address, on a port below ephemeral and relay ports.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let offset = std::process::id() * 16 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + u16::try_from(offset % 20_000).unwrap();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return (Ipv4Addr::LOCALHOST, port).into();
        }
    }
}

/// The server that Cargo built beside this test.
fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // target/<profile>/deps/<test> -> target/<profile>/turnpike
    let path = test.parent().unwrap().parent().unwrap().join("turnpike");
    assert!(path.exists(), "{} is missing: `cargo build -p turnpike`", path.display());
    path
}
