//! Hostile and idle clients of the real binary: the cost of TLS, and resources for other clients.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use e2e::{Account, Caller, Certificates, Config, Host, Lab, Server, Tool, require};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use turn_client::Families;

const PATIENCE: Duration = Duration::from_secs(60);

/// A Binding request.
const BINDING: [u8; 20] = [0, 1, 0, 0, 0x21, 0x12, 0xA4, 0x42, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];

/// Most memory of the server for an idle client with a TLS connection: its buffers are freed, the
/// state of its encryption stays.
const IDLE_KIB_MAX: u64 = 32;

/// Idle clients; `E2E_IDLE=10000` makes it ten thousand.
fn idle_clients() -> u64 {
    std::env::var("E2E_IDLE").ok().and_then(|text| text.parse().ok()).unwrap_or(1000)
}

/// The certificate is not verified here.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

struct Scene {
    lab: Lab,
    server: Server,
    client: Arc<ClientConfig>,
    _certificates: Certificates,
}

impl Scene {
    fn new(tables: &str) -> Option<Self> {
        let lab = require(Lab::new())?;
        let certificates = Certificates::new(&lab);
        let mut config = Config::for_lab(&lab);
        config.tables = format!("{tables}{}", certificates.simple());
        let server = Server::start(&lab, &config);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
            .with_no_client_auth();
        Some(Self { lab, server, client: Arc::new(client), _certificates: certificates })
    }

    fn connect(&self) -> TcpStream {
        let stream = self.lab.connect(Host::Client, SocketAddr::new(self.lab.v4.listen, 3478));
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    fn tls(&self) -> ClientConnection {
        let name = ServerName::try_from("turn.example.org").expect("a name");
        ClientConnection::new(Arc::clone(&self.client), name).expect("a client")
    }

    /// A client that has completed a handshake and received an answer.
    fn served(&self) -> io::Result<TcpStream> {
        let (mut stream, mut tls) = (self.connect(), self.tls());
        let mut over = rustls::Stream::new(&mut tls, &mut stream);
        over.write_all(&BINDING)?;
        let mut answer = [0; 32];
        over.read_exact(&mut answer)?;
        assert_eq!(answer[..2], [1, 1], "a success");
        Ok(stream)
    }

    fn live(&self) -> u64 {
        self.server.json(&["status"])["connections"]["live"].as_u64().expect("a number")
    }

    fn ended(&self, why: &str) -> u64 {
        self.server.json(&["status"])["connections"]["ended"][why].as_u64().unwrap_or(0)
    }
}

#[test]
fn idle_tls_clients_take_little_memory() {
    let clients = idle_clients();
    let files = linux_net::raise_open_files().expect("a limit");
    if files < clients + 1000 {
        return e2e::skip(format!("{clients} clients want as many files, and {files} may be open"));
    }
    let lines = "[tcp]\nconnections = 0\nconnections_per_address = 0\n";
    let Some(scene) = Scene::new(lines) else { return };
    // One-time costs of the first connections are paid.
    let mut held: Vec<TcpStream> = (0..50).map(|_| scene.served().expect("TLS")).collect();
    let before = scene.server.resident_kib();
    held.extend((0..clients).map(|_| scene.served().expect("TLS")));
    let (after, live) = (scene.server.resident_kib(), scene.live());
    let each = (after - before) as f64 / clients as f64;
    println!(
        "{clients} idle TLS clients: {before} KiB before, {after} KiB after, {each:.1} KiB each"
    );
    assert_eq!(live, clients + 50);
    assert!(after - before <= IDLE_KIB_MAX * clients, "{each:.1} KiB each");
}

#[test]
fn handshakes_that_never_end_are_ended() {
    const HALF_OPEN: u64 = 500;
    let Some(scene) = Scene::new("") else { return };
    let mut hello = Vec::new();
    scene.tls().write_tls(&mut hello).expect("a hello");
    let half_open = |_| {
        let mut stream = scene.connect();
        stream.write_all(&hello).expect("sent");
        stream
    };
    let _half_open: Vec<TcpStream> = (0..HALF_OPEN).map(half_open).collect();
    let begun = Instant::now();
    while scene.ended("no_message") < HALF_OPEN {
        assert!(scene.served().is_ok(), "others are served");
        assert!(begun.elapsed() < PATIENCE, "{} of {HALF_OPEN}", scene.ended("no_message"));
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn records_that_are_too_long_and_wanting_it_anew_are_refused() {
    let Some(scene) = Scene::new("") else { return };
    let mut giant = scene.connect();
    giant.write_all(&[&[0x16, 3, 1, 0xFF, 0xFF][..], &[0; 4000]].concat()).expect("sent");
    let mut heard = Vec::new();
    // A connection that is closed over unread bytes is reset.
    let _ = giant.read_to_end(&mut heard);
    assert_eq!(scene.ended("tls_failed"), 1, "{heard:?}");
    // OpenSSL's client starts another handshake on such a line.
    let to = format!("{}:3478", scene.lab.v4.listen);
    let line = format!(
        "(sleep 1; echo R; sleep 2) | timeout 20 openssl s_client -tls1_2 -connect {to} 2>&1"
    );
    let out = Tool::run(scene.lab.command(Host::Client, "sh").args(["-c", &line]), PATIENCE);
    assert!(out.output.contains("RENEGOTIATING"), "{}", out.output);
    assert!(out.output.contains("no renegotiation"), "{}", out.output);
    assert!(scene.served().is_ok());
}

/// A process that may open fewer files than its tables have places by default.
#[test]
fn one_account_leaves_open_files_to_others_and_to_operators() {
    const FILES: u32 = 600;
    let Some(lab) = require(Lab::new()) else { return };
    let mut config = Config::for_lab(&lab);
    let bob = Account { name: "bob", password: "battery-horse-correct" };
    config.accounts.push(bob);
    config.through = vec!["prlimit".to_owned(), format!("--nofile={FILES}")];
    let server = Server::start(&lab, &config);
    let alice = |socket| {
        Caller::ask(socket, (lab.v4.listen, 3478).into(), config.accounts[0], Families::V4)
    };
    // In another network.
    let bob = |socket| Caller::ask(socket, (lab.v6.listen, 3478).into(), bob, Families::V6);
    let mut callers = Vec::new();
    let refused = loop {
        match alice(lab.socket(Host::Client, (lab.v4.client, 0))) {
            Ok(caller) => callers.push(caller),
            Err(code) => break code,
        }
        assert!(callers.len() < FILES as usize, "no limit is reached");
    };
    assert_eq!(refused, 508);
    for _ in 0..4 {
        callers.push(
            bob(lab.socket(Host::Client, (lab.v6.client, 0))).expect("an allocation of another"),
        );
    }
    let status = server.json(&["status"]);
    assert_eq!(status["allocations"]["live"].as_u64(), Some(callers.len() as u64), "{status:#}");
    assert!(status["refusals"]["system_exhausted"].as_u64().is_none_or(|many| many == 0));
}
