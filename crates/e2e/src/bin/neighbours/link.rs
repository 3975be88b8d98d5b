//! Connections and sockets of one client, from a separate address.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use linux_net::ConnectOptions;
use openssl::ssl::{Ssl, SslContext, SslMethod, SslStream, SslVerifyMode};

use crate::stun::{Answer, Login, Noise, allocate};

/// First interval of retransmissions (RFC 8489 §6.2.1).
const RETRANSMIT_AFTER: Duration = Duration::from_millis(500);

/// Interval of the checks of a deadline.
const STEP: Duration = Duration::from_millis(100);

/// Maximum length of a datagram of a handshake.
const DATAGRAM: u32 = 1200;

/// Error code of a nonce that is stale, or of another realm.
const STALE_NONCE: u16 = 438;

/// A stream or datagrams, blocking for [`STEP`] at most.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// A client's path to the server.
pub(crate) struct Link {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
    lossy: bool,
}

/// Datagrams as a stream of which each read and write is one datagram.
pub(crate) struct Datagrams(pub(crate) UdpSocket);

impl Read for Datagrams {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buffer)
    }
}

impl Write for Datagrams {
    fn write(&mut self, datagram: &[u8]) -> io::Result<usize> {
        self.0.send(datagram)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A UDP socket between an address and the server.
pub(crate) fn udp(from: IpAddr, server: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((from, 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(STEP))?;
    Ok(socket)
}

/// A TCP connection in progress from an address; closing it resets it.
pub(crate) fn tcp_begun(from: IpAddr, server: SocketAddr) -> io::Result<TcpStream> {
    let local = Some(SocketAddr::new(from, 0));
    let options = ConnectOptions { local, send_buffer: 0, reset: true };
    let stream = linux_net::TcpStream::connect_to(server, &options)?;
    Ok(TcpStream::from(stream.as_fd().try_clone_to_owned()?))
}

/// A blocking TCP connection from an address. A write waits for the connection.
pub(crate) fn tcp(from: IpAddr, server: SocketAddr) -> io::Result<TcpStream> {
    let stream = tcp_begun(from, server)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(STEP))?;
    Ok(stream)
}

/// Protocol of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tls,
    Dtls,
}

impl Protocol {
    /// A client that verifies no certificate.
    pub(crate) fn client(self) -> Ssl {
        let method = match self {
            Self::Tls => SslMethod::tls_client(),
            Self::Dtls => SslMethod::dtls_client(),
        };
        let mut builder = SslContext::builder(method).expect("OpenSSL");
        builder.set_verify(SslVerifyMode::NONE);
        let mut ssl = Ssl::new(&builder.build()).expect("OpenSSL");
        if self == Self::Dtls {
            ssl.set_mtu(DATAGRAM).expect("an MTU");
        }
        ssl.set_connect_state();
        ssl
    }
}

/// Completes a handshake over a stream.
///
/// # Errors
/// The server refuses, or does not answer until the deadline.
pub(crate) fn handshake<S: Read + Write>(
    protocol: Protocol,
    stream: S,
    deadline: Instant,
) -> io::Result<SslStream<S>> {
    let mut stream = SslStream::new(protocol.client(), stream)?;
    loop {
        match stream.do_handshake() {
            Ok(()) => return Ok(stream),
            Err(error) if error.io_error().is_some_and(timed_out) => check(deadline)?,
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

/// # Errors
/// The deadline has passed.
pub(crate) fn check(deadline: Instant) -> io::Result<()> {
    if Instant::now() < deadline { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
}

fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Link {
    /// Datagrams, retransmitted by this link.
    pub(crate) fn lossy(stream: impl Read + Write + 'static) -> Self {
        Self { stream: Box::new(stream), received: Vec::new(), lossy: true }
    }

    /// A stream.
    pub(crate) fn reliable(stream: impl Read + Write + 'static) -> Self {
        Self { lossy: false, ..Self::lossy(stream) }
    }

    /// Sends bytes and does not wait.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// The deadline has passed without an answer, or the connection has ended.
    pub(crate) fn exchange(&mut self, request: &[u8], deadline: Instant) -> io::Result<Answer> {
        self.send(request)?;
        let mut interval = RETRANSMIT_AFTER;
        let mut due = Instant::now() + interval;
        let mut buffer = [0; 2048];
        loop {
            while let Some(message) = self.next_message() {
                if let Some(answer) = Answer::to(request, &message) {
                    return Ok(answer);
                }
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.received.extend_from_slice(&buffer[..len]),
                Err(error) if timed_out(&error) => check(deadline)?,
                Err(error) => return Err(error),
            }
            if self.lossy && Instant::now() >= due {
                self.send(request)?;
                interval *= 2;
                due += interval;
            }
        }
    }

    /// Allocates a relay of a transport, and returns the nonce.
    ///
    /// # Errors
    /// The server refuses, or does not answer until the deadline.
    pub(crate) fn allocate(
        &mut self,
        transport: u8,
        login: &Login,
        noise: &mut Noise,
        deadline: Instant,
    ) -> io::Result<String> {
        let challenge = self.exchange(&allocate(transport, noise, None), deadline)?;
        let nonce = challenge.nonce.ok_or_else(|| io::Error::other("no nonce"))?;
        self.allocate_with(transport, (login, nonce), noise, deadline)
    }

    /// Allocates a relay of a transport with a nonce, and returns the nonce that was accepted.
    ///
    /// # Errors
    /// The server refuses, or does not answer until the deadline.
    pub(crate) fn allocate_with(
        &mut self,
        transport: u8,
        (login, mut nonce): (&Login, String),
        noise: &mut Noise,
        deadline: Instant,
    ) -> io::Result<String> {
        // The nonce of the first challenge is that of the server's own realm.
        for _ in 0..2 {
            let request = allocate(transport, noise, Some((login, &nonce)));
            let answer = self.exchange(&request, deadline)?;
            if answer.code != Some(STALE_NONCE) {
                answer.success()?;
                return Ok(nonce);
            }
            nonce = answer.nonce.unwrap_or(nonce);
        }
        Err(io::Error::other("refused: every nonce is stale"))
    }

    fn next_message(&mut self) -> Option<Vec<u8>> {
        let length = self.received.get(2..4)?;
        let len = 20 + usize::from(u16::from_be_bytes([length[0], length[1]]));
        (self.received.len() >= len).then(|| self.received.drain(..len).collect())
    }
}
