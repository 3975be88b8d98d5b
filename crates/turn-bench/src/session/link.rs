//! A client and what joins it to its server.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linux_net::{ConnectOptions, TcpStream, UdpOptions, UdpSocket, random_bytes};
use turn_client::{AllocateOptions, Client, ClientConfig, Families, Retransmission};
use turn_types::{Instant, IpFamily, ServerAddr};

use super::association::Association;
use super::connection::{Connection, SharedConnection};
use super::login::Credentials;
use super::stream::Stream;
use super::tls;
use super::trouble::Trouble;
use super::wire::Wire;
use crate::traffic::Transport;

/// When requests are sent again: as RFC 8489 recommends, but given up after 7.5 s and not after
/// 39.5. Whoever measures wants to hear of a silent server.
const RETRANSMISSION: Retransmission = Retransmission {
    rto: Duration::from_millis(500),
    sends_max: 4,
    last_wait: 8,
    reliable_timeout: Duration::from_millis(7500),
};

/// Where clients are, and their server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The server.
    pub(crate) server: SocketAddr,
    /// What carries messages to it.
    pub(crate) transport: Transport,
    /// The address that clients send from; `None` is whichever the route gives.
    pub(crate) local: Option<IpAddr>,
    /// Receive buffer of each UDP socket in bytes; 0 is what the system gives.
    pub(crate) receive_buffer: usize,
    /// Send buffer of each connection in bytes; 0 is what the system gives.
    pub(crate) send_buffer: usize,
    /// Whether equal datagrams may arrive merged.
    pub(crate) gro: bool,
}

impl Place {
    /// Datagrams to and from this server, with everything else as the system has it.
    pub(crate) const fn of_datagrams(server: SocketAddr, local: Option<IpAddr>) -> Self {
        let transport = Transport::Udp;
        Self { server, transport, local, receive_buffer: 0, send_buffer: 0, gro: false }
    }

    /// A socket on a port of its own, or a new connection that begins to be made.
    pub(crate) fn wire(&self) -> io::Result<Wire> {
        self.wire_at(0)
    }

    /// The same, on this port if it is not 0. Streams leave their port to the kernel.
    pub(crate) fn wire_at(&self, port: u16) -> io::Result<Wire> {
        let connection = match self.transport {
            Transport::Udp => return self.socket_at(port).map(Wire::Udp),
            Transport::Tcp => Connection::Stream(Stream::new(self.connect()?, None)?),
            Transport::Tls => Connection::Stream(self.secure(tls::Version::Tls13)?),
            Transport::Tls12 => Connection::Stream(self.secure(tls::Version::Tls12)?),
            Transport::Dtls => Connection::Association(Association::new(self.socket_at(port)?)?),
        };
        Ok(Wire::Connection(SharedConnection::new(connection)))
    }

    fn secure(&self, version: tls::Version) -> io::Result<Stream> {
        let tls = tls::connection(self.server.ip(), version)?;
        Stream::new(self.connect()?, Some(tls))
    }

    /// A connection. It is reset when it is closed: a server frees what was its client's all the same,
    /// and the port can be used again at once.
    fn connect(&self) -> io::Result<TcpStream> {
        let local = self.local.map(|ip| SocketAddr::new(ip, 0));
        let options = ConnectOptions { local, send_buffer: self.send_buffer, reset: true };
        TcpStream::connect_to(self.server, &options)
    }

    /// A UDP socket on this port, connected to the server; 0 is any that is free.
    fn socket_at(&self, port: u16) -> io::Result<UdpSocket> {
        let unspecified = IpFamily::of(self.server.ip()).unspecified();
        let local = SocketAddr::new(self.local.unwrap_or(unspecified), port);
        let options =
            UdpOptions { recv_buffer: self.receive_buffer, gro: self.gro, ..UdpOptions::default() };
        let (mut socket, _) = UdpSocket::bind(local, &options)?;
        socket.connect(self.server)?;
        Ok(socket)
    }

    /// How clients with these credentials behave; each wants a seed of its own.
    pub(crate) fn config(&self, credentials: &Credentials) -> ClientConfig {
        ClientConfig {
            username: credentials.username.clone(),
            password: credentials.password.clone(),
            transport: self.transport.of_protocol(),
            retransmission: RETRANSMISSION,
            ..ClientConfig::new(ServerAddr(self.server), "", "", random_bytes())
        }
    }
}

/// A client and what joins it to its server.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) wire: Wire,
    pub(crate) client: Client,
}

impl Link {
    /// A client on a socket or a connection of its own.
    pub(crate) fn open(place: &Place, credentials: &Credentials) -> io::Result<Self> {
        Ok(Self { wire: place.wire()?, client: Client::new(place.config(credentials)) })
    }

    /// Asks for an allocation of this family.
    pub(crate) fn allocate(&mut self, now: Instant, family: IpFamily) -> Result<(), Trouble> {
        let families = match family {
            // Old servers know no families, and give IPv4.
            IpFamily::V4 => Families::Unsaid,
            IpFamily::V6 => Families::V6,
        };
        let options = AllocateOptions { families, ..AllocateOptions::default() };
        self.client.allocate(now, options).map_err(Trouble::from)
    }

    /// Where peers reach it, when there is an allocation.
    pub(crate) fn relayed(&self) -> Option<SocketAddr> {
        let allocation = self.client.allocation()?;
        allocation.relayed.iter().flatten().next().map(|relayed| relayed.0)
    }

    /// Sends what the client wants to send, and returns how many messages that were. What the
    /// kernel would not take is lost like any other datagram, and sent again in time; that a connection
    /// is broken hears whoever receives.
    pub(crate) fn send(&mut self) -> u64 {
        let mut sent = 0;
        while let Some(request) = self.client.poll_transmit() {
            sent += u64::from(self.wire.send(request).unwrap_or(false));
        }
        sent
    }
}
