//! OpenSSL's client, the server, and the network between them.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use openssl::ssl::{
    ErrorCode, SslContext, SslContextBuilder, SslMethod, SslOptions, SslStream, SslVerifyMode,
    SslVersion,
};
use state_format::{Reader, Value as _, Writer};
use turn_session::dtls::{
    ANSWER_MAX, Answer, CookieHandler, Cookies, DtlsConfig, DtlsEnd, DtlsEngine, DtlsState,
    Exchange, HelloOutcome, begins_handshake, resume,
};
use turn_session::{AddressPair, Certificate, Certificates, TlsRules};

/// A certificate for a name, with an ECDSA key.
pub(crate) fn certificate(name: &str) -> Certificate {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    Certificate::read(cert.pem().as_bytes(), signing_key.serialize_pem().as_bytes()).unwrap()
}

pub(crate) fn ends() -> AddressPair {
    AddressPair {
        client: "192.0.2.1:5000".parse().unwrap(),
        server: "203.0.113.1:5349".parse().unwrap(),
    }
}

pub(crate) fn config() -> DtlsConfig {
    config_with(&TlsRules::default())
}

pub(crate) fn config_with(rules: &TlsRules) -> DtlsConfig {
    let certificates = Arc::new(Certificates::default());
    certificates.replace(vec![certificate("turn.example.org"), certificate("other.example.org")]);
    DtlsConfig::new(certificates, CookieHandler::new(Cookies::new(&[7; 32])), rules).unwrap()
}

/// The server's end, for one client.
pub(crate) struct Server {
    pub(crate) config: DtlsConfig,
    pub(crate) engine: Option<Box<dyn DtlsEngine>>,
    pub(crate) answers: Vec<Answer>,
    pub(crate) refused: usize,
    pub(crate) plain: Vec<Vec<u8>>,
    pub(crate) end: Option<DtlsEnd>,
    pub(crate) out: VecDeque<Vec<u8>>,
    /// Current time for cookies.
    pub(crate) now: Duration,
    exchange: Exchange,
}

impl Server {
    pub(crate) fn new(config: DtlsConfig) -> Self {
        Self {
            config,
            engine: None,
            answers: Vec::new(),
            refused: 0,
            plain: Vec::new(),
            end: None,
            out: VecDeque::new(),
            now: Duration::from_secs(1_000_000),
            exchange: Exchange::default(),
        }
    }

    pub(crate) fn take(&mut self, datagram: &[u8]) {
        if self.engine.is_none() && begins_handshake(datagram) {
            let mut answer = [0; ANSWER_MAX];
            match self.config.front().take(datagram, ends(), self.now, &mut answer) {
                HelloOutcome::Answer(len, what) => {
                    assert!(len <= datagram.len(), "amplified");
                    self.answers.push(what);
                    self.out.push_back(answer[..len].to_vec());
                    return;
                }
                HelloOutcome::Verified(hello) => {
                    self.engine = Some(self.config.begin(&hello).unwrap())
                }
                HelloOutcome::Dropped(_)
                | HelloOutcome::VerifiedPiece(_)
                | HelloOutcome::LaterPiece(_) => {
                    self.refused += 1;
                    return;
                }
            }
        }
        let Some(engine) = &mut self.engine else {
            self.refused += 1;
            return;
        };
        if engine.take(datagram, &mut self.exchange).is_err() {
            self.refused += 1;
            return;
        }
        let mut room = vec![0; 1 << 16];
        loop {
            match engine.read(&mut room, &mut self.exchange) {
                Ok(Some(len)) => self.plain.push(room[..len].to_vec()),
                Ok(None) => break,
                Err(end) => {
                    self.end = Some(end);
                    break;
                }
            }
        }
        self.drain();
    }

    pub(crate) fn tick(&mut self) {
        if let Some(engine) = &mut self.engine {
            if let Err(end) = engine.resend(&mut self.exchange) {
                self.end = Some(end);
            }
            self.drain();
        }
    }

    pub(crate) fn say(&mut self, plaintext: &[u8]) {
        self.engine.as_mut().unwrap().write(plaintext, &mut self.exchange).unwrap();
        self.drain();
    }

    pub(crate) fn close(&mut self) {
        self.engine.as_mut().unwrap().close(&mut self.exchange);
        self.drain();
    }

    pub(crate) fn is_established(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| engine.is_established())
    }

    /// Returns the session's state, as read by another process.
    pub(crate) fn state(&self) -> DtlsState {
        let mut out = Writer::new();
        self.engine.as_ref().unwrap().state().unwrap().write(&mut out);
        Reader::new(&out.into_bytes()).last().unwrap()
    }

    /// Moves the session to another process, which skips `skipped` numbers.
    pub(crate) fn moves(&mut self, skipped: u64) {
        let mut state = self.state();
        state.skip(skipped);
        self.engine = Some(resume(state).unwrap());
    }

    fn drain(&mut self) {
        self.out.extend(self.exchange.datagrams().map(<[u8]>::to_vec));
        self.exchange.clear();
    }
}

/// Datagrams to and from OpenSSL's client.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    pub(crate) incoming: VecDeque<Vec<u8>>,
    pub(crate) outgoing: VecDeque<Vec<u8>>,
}

impl Read for Pipe {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let datagram = self.incoming.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        room[..datagram.len()].copy_from_slice(&datagram);
        Ok(datagram.len())
    }
}

impl Write for Pipe {
    fn write(&mut self, datagram: &[u8]) -> io::Result<usize> {
        self.outgoing.push_back(datagram.to_vec());
        Ok(datagram.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) type Client = SslStream<Pipe>;

pub(crate) fn client_with(change: impl FnOnce(&mut SslContextBuilder)) -> Client {
    client_for(None, change)
}

pub(crate) fn client_for(
    name: Option<&str>,
    change: impl FnOnce(&mut SslContextBuilder),
) -> Client {
    let mut context = SslContext::builder(SslMethod::dtls()).unwrap();
    context.set_min_proto_version(Some(SslVersion::DTLS1_2)).unwrap();
    context.set_verify(SslVerifyMode::NONE);
    context.set_options(SslOptions::NO_QUERY_MTU);
    change(&mut context);
    let mut ssl = openssl::ssl::Ssl::new(&context.build()).unwrap();
    ssl.set_mtu(1200).unwrap();
    if let Some(name) = name {
        ssl.set_hostname(name).unwrap();
    }
    ssl.set_connect_state();
    SslStream::new(ssl, Pipe::default()).unwrap()
}

pub(crate) fn client() -> Client {
    client_with(|_| ())
}

/// Runs the client until it blocks; returns the messages read, or its error.
pub(crate) fn go_on(client: &mut Client) -> Result<Vec<Vec<u8>>, openssl::ssl::Error> {
    let mut read = Vec::new();
    let mut room = vec![0; 1 << 15];
    loop {
        match client.ssl_read(&mut room) {
            Ok(len) => read.push(room[..len].to_vec()),
            Err(error) if error.code() == ErrorCode::WANT_READ => return Ok(read),
            Err(error) => return Err(error),
        }
    }
}

/// Carries datagrams in both directions until there are no more. `is_lost` selects lost datagrams.
pub(crate) fn carry(
    client: &mut Client,
    server: &mut Server,
    is_lost: &mut dyn FnMut() -> bool,
) -> Result<Vec<Vec<u8>>, openssl::ssl::Error> {
    let mut read = Vec::new();
    loop {
        let went_on = go_on(client);
        while let Some(datagram) = client.get_mut().outgoing.pop_front() {
            if !is_lost() {
                server.take(&datagram);
            }
        }
        read.extend(went_on?);
        if server.out.is_empty() {
            return Ok(read);
        }
        while let Some(datagram) = server.out.pop_front() {
            if !is_lost() {
                client.get_mut().incoming.push_back(datagram);
            }
        }
    }
}

/// Returns a client and a server after the handshake.
pub(crate) fn established() -> (Client, Server) {
    let (mut client, mut server) = (client(), Server::new(config()));
    carry(&mut client, &mut server, &mut || false).unwrap();
    assert!(server.is_established() && client.ssl().is_init_finished());
    (client, server)
}

/// Returns a client and a server, with the client's second flight before delivery.
pub(crate) fn half_open() -> (Client, Server, Vec<Vec<u8>>) {
    let (mut client, mut server) = (client(), Server::new(config()));
    for _ in 0..2 {
        go_on(&mut client).unwrap();
        while let Some(datagram) = client.get_mut().outgoing.pop_front() {
            server.take(&datagram);
        }
        client.get_mut().incoming.append(&mut server.out);
    }
    go_on(&mut client).unwrap();
    assert!(server.engine.is_some() && !server.is_established());
    let flight = client.get_mut().outgoing.drain(..).collect();
    (client, server, flight)
}
