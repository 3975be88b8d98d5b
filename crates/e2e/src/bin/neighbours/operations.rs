//! Operations of honest clients, timed.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::Value;
use stun_wire::{AttributeType, CHANNEL_HEADER_LEN, ChannelNumber, Method, write_channel_header};

use crate::attackers::honest;
use crate::link::{Datagrams, Link, Protocol, handshake, tcp, udp};
use crate::scene::{Places, user};
use crate::stun::{Noise, request};

/// Time after which an operation has failed: a client shows an error to its user.
const PATIENCE: Duration = Duration::from_secs(5);

/// The user of operations that need a known user.
const KNOWN_USER: usize = 0;

/// First users of the database whose names no server has looked up before.
pub(crate) const UNKNOWN_USERS: usize = 1;

/// An operation of an honest client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Allocation,
    Dtls,
    Tls,
    Connect,
    LookUp,
    KernelFlow,
    Health,
    Api,
}

/// An honest client at a time: the number of the operation selects address and user.
pub(crate) struct Honest<'a> {
    pub(crate) places: &'a Places,
    /// Socket of the peer.
    pub(crate) peer: &'a UdpSocket,
    /// Port of the peer that accepts connections.
    pub(crate) accepting: u16,
    /// Numbers of all operations differ.
    pub(crate) number: usize,
    /// A user whom the server has not looked up.
    pub(crate) fresh_user: usize,
    pub(crate) noise: Noise,
}

impl Operation {
    pub(crate) const ALL: [Self; 8] = [
        Self::Allocation,
        Self::Dtls,
        Self::Tls,
        Self::Connect,
        Self::LookUp,
        Self::KernelFlow,
        Self::Health,
        Self::Api,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Allocation => "allocation",
            Self::Dtls => "DTLS",
            Self::Tls => "TLS",
            Self::Connect => "Connect",
            Self::LookUp => "look-up",
            Self::KernelFlow => "kernel flow",
            Self::Health => "health",
            Self::Api => "API",
        }
    }
}

impl Honest<'_> {
    /// Executes an operation, and returns its time.
    ///
    /// # Errors
    /// The server refused, or did not answer in time.
    pub(crate) fn run(&mut self, operation: Operation) -> io::Result<Duration> {
        match operation {
            Operation::Allocation => self.allocation(KNOWN_USER),
            Operation::LookUp => self.allocation(self.fresh_user),
            Operation::Dtls | Operation::Tls => self.secure(operation),
            Operation::Connect => self.connect(),
            Operation::KernelFlow => self.kernel_flow(),
            Operation::Health => self.health(),
            Operation::Api => self.api(),
        }
    }

    fn address(&self) -> IpAddr {
        honest(self.number)
    }

    fn server(&self) -> SocketAddr {
        self.places.turn(self.address())
    }

    /// Time from the first request to the success, challenge included.
    fn allocation(&mut self, of: usize) -> io::Result<Duration> {
        let mut link = Link::lossy(Datagrams(udp(self.address(), self.server())?));
        let start = Instant::now();
        let nonce = link.allocate(17, &user(of), &mut self.noise, start + PATIENCE)?;
        let time = start.elapsed();
        self.release(&mut link, of, &nonce)?;
        Ok(time)
    }

    fn release(&mut self, link: &mut Link, of: usize, nonce: &str) -> io::Result<()> {
        let login = user(of);
        let release = request(Method::REFRESH, &mut self.noise, Some((&login, nonce)), |builder| {
            builder.lifetime(0);
        });
        link.exchange(&release, Instant::now() + PATIENCE)?.success()
    }

    /// Time from the first packet to the answer of a Binding request.
    fn secure(&mut self, operation: Operation) -> io::Result<Duration> {
        let (from, to) = (self.address(), self.server());
        let start = Instant::now();
        let deadline = start + PATIENCE;
        let mut link = if operation == Operation::Dtls {
            let datagrams = Datagrams(udp(from, to)?);
            Link::lossy(handshake(Protocol::Dtls, datagrams, deadline)?)
        } else {
            Link::reliable(handshake(Protocol::Tls, tcp(from, to)?, deadline)?)
        };
        let binding = request(Method::BINDING, &mut self.noise, None, |_| ());
        link.exchange(&binding, deadline)?.success()?;
        Ok(start.elapsed())
    }

    /// Time from the Connect request to its success.
    fn connect(&mut self) -> io::Result<Duration> {
        let mut link = Link::reliable(tcp(self.address(), self.server())?);
        let login = user(KNOWN_USER);
        let nonce = link.allocate(6, &login, &mut self.noise, Instant::now() + PATIENCE)?;
        let peer = SocketAddr::new(self.places.peer, self.accepting);
        let connect =
            request(Method::CONNECT, &mut self.noise, Some((&login, &nonce)), |builder| {
                builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
            });
        let start = Instant::now();
        link.exchange(&connect, start + PATIENCE)?.success()?;
        Ok(start.elapsed())
    }

    /// Time from the first data of a channel to its arrival at the peer. The channel must then have
    /// a slot.
    fn kernel_flow(&mut self) -> io::Result<Duration> {
        let socket = udp(self.address(), self.server())?;
        let client = socket.local_addr()?;
        let mut link = Link::lossy(Datagrams(socket));
        let login = user(KNOWN_USER);
        let nonce = link.allocate(17, &login, &mut self.noise, Instant::now() + PATIENCE)?;
        let peer = self.peer.local_addr()?;
        let number = ChannelNumber::new(0x4000).expect("a channel");
        let bind = request(Method::CHANNEL_BIND, &mut self.noise, Some((&login, &nonce)), |it| {
            it.channel_number(number).xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
        });
        link.exchange(&bind, Instant::now() + PATIENCE)?.success()?;
        let start = Instant::now();
        let payload = (self.number as u64).to_be_bytes();
        link.send(&channel_data(number, &payload))?;
        let mut received = [0; 100];
        loop {
            let len = self.peer.recv(&mut received)?;
            if received[..len] == payload {
                break;
            }
        }
        let time = start.elapsed();
        let has_slot = self.has_slot(client);
        self.release(&mut link, KNOWN_USER, &nonce)?;
        if has_slot { Ok(time) } else { Err(io::Error::other("no slot of the kernel path")) }
    }

    fn has_slot(&self, client: SocketAddr) -> bool {
        let listed = self.places.operator.ask(&["sessions", "--json", "--user", "user0"]);
        let listed: Value = serde_json::from_str(&listed.output).unwrap_or_default();
        let sessions = listed["sessions"].as_array().into_iter().flatten();
        let mut own = sessions.filter(|session| session["client"] == *client.to_string());
        own.any(|session| session["offload"]["channels"] == 1)
    }

    /// Time from the first packet to the end of an answer about health.
    fn health(&self) -> io::Result<Duration> {
        let start = Instant::now();
        let stream = tcp(self.address(), self.places.http(self.address()))?;
        get(stream, "/healthz", "", start + PATIENCE)?;
        Ok(start.elapsed())
    }

    /// Time from the first packet to the end of an answer to an operator.
    fn api(&self) -> io::Result<Duration> {
        let start = Instant::now();
        let deadline = start + PATIENCE;
        let stream = tcp(self.address(), self.places.api(self.address()))?;
        let stream = handshake(Protocol::Tls, stream, deadline)?;
        let token = format!("Authorization: Bearer {}\r\n", self.places.token);
        get(stream, "/v1/status", &token, deadline)?;
        Ok(start.elapsed())
    }
}

/// Requests a path with a header, and reads the answer to its end.
fn get(
    mut stream: impl io::Read + io::Write,
    path: &str,
    header: &str,
    deadline: Instant,
) -> io::Result<()> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n{header}Connection: close\r\n\r\n")?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 8192]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => answer.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                crate::link::check(deadline)?;
            }
            Err(error) => return Err(error),
        }
    }
    if answer.starts_with(b"HTTP/1.1 200") {
        return Ok(());
    }
    let line = String::from_utf8_lossy(answer.split(|byte| *byte == b'\r').next().unwrap_or(b""));
    Err(io::Error::other(format!("{path}: {line}")))
}

/// A payload as ChannelData.
pub(crate) fn channel_data(number: ChannelNumber, payload: &[u8]) -> Vec<u8> {
    let mut header = [0; CHANNEL_HEADER_LEN];
    write_channel_header(&mut header, number, payload.len() as u16);
    [&header[..], payload].concat()
}
