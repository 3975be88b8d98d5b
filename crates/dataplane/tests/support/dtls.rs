//! TURN client with a DTLS session, and handmade datagrams.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use openssl::ssl::{ErrorCode, Ssl, SslContext, SslMethod, SslOptions, SslStream, SslVerifyMode};
use stun_wire::ChannelNumber;
use turn_client::{AllocateOptions, Client, ClientConfig, Event, Incoming};
use turn_session::TlsRules;
use turn_session::dtls::{CookieHandler, Cookies, DtlsConfig};
use turn_types::{IpFamily, PeerAddr, ServerAddr, Transport};

use super::tls::certificates;
use super::user::now;
use super::{PASSWORD, PATIENCE, USER};

/// Returns a DTLS configuration with a self-signed certificate.
pub(crate) fn config() -> DtlsConfig {
    DtlsConfig::new(
        certificates(),
        CookieHandler::new(Cookies::new(&[7; 32])),
        &TlsRules::default(),
    )
    .unwrap()
}

/// Connected socket. Datagrams are read one by one.
#[derive(Debug)]
pub(crate) struct Wire(pub(crate) UdpSocket);

impl Read for Wire {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.0.recv(room)
    }
}

impl Write for Wire {
    fn write(&mut self, datagram: &[u8]) -> io::Result<usize> {
        self.0.send(datagram)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct DtlsUser {
    pub(crate) stream: SslStream<Wire>,
    pub(crate) client: Client,
}

impl DtlsUser {
    /// Returns a client with an association.
    pub(crate) fn connect(server: SocketAddr) -> Self {
        Self::connect_by(socket(server), server)
    }

    /// Returns a client that uses a socket connected to the server.
    pub(crate) fn connect_by(socket: UdpSocket, server: SocketAddr) -> Self {
        let mut stream = handshake(socket);
        let begun = Instant::now();
        // OpenSSL checks its clock only in calls, so the call is repeated after each read timeout.
        while !go_on(&mut stream) {
            assert!(begun.elapsed() < PATIENCE, "no answer");
        }
        let config = ClientConfig {
            transport: Transport::Dtls,
            ..ClientConfig::new(ServerAddr(server), USER, PASSWORD, [3; 32])
        };
        Self { stream, client: Client::new(config) }
    }

    /// Returns a client with an allocation.
    pub(crate) fn allocated(server: SocketAddr) -> Self {
        let mut user = Self::connect(server);
        user.allocate();
        user
    }

    pub(crate) fn allocate(&mut self) {
        self.client.allocate(now(), AllocateOptions::default()).unwrap();
        let event = self.next_event();
        assert!(matches!(event, Event::Allocated(_)), "{event:?}");
    }

    pub(crate) fn relayed(&self) -> SocketAddr {
        self.client.allocation().unwrap().relayed_of(IpFamily::V4).unwrap().0
    }

    pub(crate) fn permit(&mut self, peer: IpAddr) {
        self.client.permit(now(), peer).unwrap();
        self.wait_for(&Event::PermissionReady { peer });
    }

    pub(crate) fn bind_channel(&mut self, peer: SocketAddr) -> ChannelNumber {
        let peer = PeerAddr(peer);
        let channel = self.client.bind_channel(now(), peer).unwrap();
        self.wait_for(&Event::ChannelReady { channel, peer });
        channel
    }

    /// Sends bytes in a separate record.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        assert_eq!(self.stream.ssl_write(bytes).unwrap(), bytes.len());
    }

    pub(crate) fn say(&mut self, channel: ChannelNumber, payload: &[u8]) {
        let mut out = vec![0; payload.len() + 4];
        self.client.write_channel_data(&mut out, channel, payload).unwrap();
        self.write(&out);
    }

    /// Reads the content of the next record. Returns `None` after the server's close_notify.
    pub(crate) fn read(&mut self) -> Option<Vec<u8>> {
        let mut room = vec![0; 1 << 15];
        let begun = Instant::now();
        loop {
            match self.stream.ssl_read(&mut room) {
                Ok(len) => {
                    room.truncate(len);
                    return Some(room);
                }
                Err(error) if error.code() == ErrorCode::ZERO_RETURN => return None,
                Err(error) => assert_eq!(error.code(), ErrorCode::WANT_READ, "{error}"),
            }
            assert!(begun.elapsed() < PATIENCE, "nothing came");
        }
    }

    /// Receives the next data of a peer, and returns the data with the channel.
    pub(crate) fn hear(&mut self) -> (Option<ChannelNumber>, Vec<u8>) {
        let message = self.read().unwrap();
        match self.client.handle_datagram(now(), &message) {
            Incoming::Data { payload, channel, .. } => (channel, payload.to_vec()),
            other @ (Incoming::Icmp { .. } | Incoming::Answer | Incoming::Ignored(_)) => {
                panic!("{other:?}")
            }
        }
    }

    fn wait_for(&mut self, wanted: &Event) {
        loop {
            let event = self.next_event();
            if event == *wanted {
                return;
            }
            assert!(matches!(event, Event::PermissionReady { .. }), "{event:?}");
        }
    }

    fn next_event(&mut self) -> Event {
        loop {
            while let Some(bytes) = self.client.poll_transmit() {
                self.stream.ssl_write(bytes).unwrap();
            }
            if let Some(event) = self.client.poll_event() {
                return event;
            }
            let message = self.read().unwrap();
            assert_eq!(self.client.handle_datagram(now(), &message), Incoming::Answer);
        }
    }
}

/// Returns a client's handshake that has not started.
pub(crate) fn handshake(socket: UdpSocket) -> SslStream<Wire> {
    handshake_offering(socket, "DEFAULT")
}

/// Returns a client's handshake with this list of cipher suites.
pub(crate) fn handshake_offering(socket: UdpSocket, suites: &str) -> SslStream<Wire> {
    let mut context = SslContext::builder(SslMethod::dtls()).unwrap();
    context.set_cipher_list(suites).unwrap();
    context.set_verify(SslVerifyMode::NONE);
    context.set_options(SslOptions::NO_QUERY_MTU);
    let mut ssl = Ssl::new(&context.build()).unwrap();
    ssl.set_mtu(1200).unwrap();
    SslStream::new(ssl, Wire(socket)).unwrap()
}

/// Continues a handshake. Returns true when the handshake is complete.
pub(crate) fn go_on(handshake: &mut SslStream<Wire>) -> bool {
    let Err(error) = handshake.connect() else { return true };
    assert_eq!(error.code(), ErrorCode::WANT_READ, "{error}");
    false
}

/// Returns a new connected socket.
pub(crate) fn socket(server: SocketAddr) -> UdpSocket {
    let here: IpAddr =
        if server.is_ipv4() { [127, 0, 0, 1].into() } else { "::1".parse().unwrap() };
    socket_at(here, server)
}

/// Returns a new connected socket at another client address.
pub(crate) fn socket_at(here: impl Into<IpAddr>, server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((here.into(), 0)).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    socket
}

/// Receives the next datagram of a socket, within `PATIENCE`.
pub(crate) fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut room = [0; 2048];
    let begun = Instant::now();
    loop {
        match socket.recv(&mut room) {
            Ok(len) => return room[..len].to_vec(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        assert!(begun.elapsed() < PATIENCE, "nothing came");
    }
}

/// Returns a handmade ClientHello of DTLS 1.2, with one cipher suite, one group and one signature
/// algorithm.
pub(crate) fn hello(random: [u8; 32], cookie: &[u8]) -> Vec<u8> {
    let mut body = vec![0xFE, 0xFD];
    body.extend(random);
    body.extend([0, cookie.len() as u8]);
    body.extend(cookie);
    // TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, no compression.
    body.extend([0, 2, 0xC0, 0x2B, 1, 0]);
    // Group secp256r1, signatures by ECDSA with SHA-256.
    body.extend([0, 16, 0, 10, 0, 4, 0, 2, 0, 23, 0, 13, 0, 4, 0, 2, 4, 3]);
    let number = u8::from(!cookie.is_empty());
    let len = body.len() as u8;
    let mut hello = vec![22, 0xFE, 0xFF, 0, 0, 0, 0, 0, 0, 0, number, 0, len + 12];
    hello.extend([1, 0, 0, len, 0, number, 0, 0, 0, 0, 0, len]);
    hello.extend(body);
    hello
}

/// Sends a hello, and returns the hello with the cookie of the response.
pub(crate) fn verified(socket: &UdpSocket, random: [u8; 32]) -> Vec<u8> {
    socket.send(&hello(random, &[])).unwrap();
    hello(random, cookie(&receive_cookie(socket)))
}

/// Receives the next HelloVerifyRequest, and skips datagrams of previous handshakes.
fn receive_cookie(socket: &UdpSocket) -> Vec<u8> {
    std::iter::repeat_with(|| receive(socket)).find(|answer| answer[13] == 3).unwrap()
}

/// Starts several handshakes concurrently, so both ends wait less often on a busy machine.
/// Handshakes without a HelloVerifyRequest are left out.
pub(crate) fn begin_all(socket: &UdpSocket, randoms: &[[u8; 32]]) {
    /// Offset of the last byte of a record number. A HelloVerifyRequest repeats the number.
    const NUMBER_AT: usize = 10;
    for (number, random) in (0..).zip(randoms) {
        let mut first = hello(*random, &[]);
        first[NUMBER_AT] = number;
        socket.send(&first).unwrap();
    }
    let mut room = [0; 2048];
    let answers =
        std::iter::from_fn(|| socket.recv(&mut room).ok().map(|len| room[..len].to_vec()));
    let answers: Vec<_> = answers.filter(|answer| answer[13] == 3).take(randoms.len()).collect();
    for answer in answers {
        let random = randoms[usize::from(answer[NUMBER_AT])];
        socket.send(&hello(random, cookie(&answer))).unwrap();
    }
}

/// Sends a hello, and repeats the hello with the cookie. Returns the repetition.
pub(crate) fn begin(socket: &UdpSocket, random: [u8; 32]) -> Vec<u8> {
    let hello = verified(socket, random);
    socket.send(&hello).unwrap();
    hello
}

/// Returns the cookie of a HelloVerifyRequest.
pub(crate) fn cookie(answer: &[u8]) -> &[u8] {
    assert_eq!((answer[0], answer[13]), (22, 3), "a HelloVerifyRequest");
    &answer[28..]
}
