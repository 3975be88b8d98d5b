//! The server of a client, the transport to it, and socket options.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use linux_net::{ConnectOptions, TcpStream, UdpOptions, UdpSocket};
use openssl::ssl::SslContext;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use turn_types::IpFamily;

use crate::connection::{Connection, SharedConnection};
use crate::dtls::DtlsSession;
use crate::stream::Stream;
use crate::wire::Wire;

/// Transport between client and server, with the caller's choice of versions, cipher suites and
/// verification.
#[derive(Clone)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// TLS over TCP, to a server of this name.
    Tls(Arc<ClientConfig>, ServerName<'static>),
    /// DTLS over UDP.
    Dtls(SslContext),
}

impl Transport {
    /// Returns `true` for streams of bytes: no loss, and backpressure for senders.
    #[must_use]
    pub const fn is_stream(&self) -> bool {
        matches!(self, Self::Tcp | Self::Tls(..))
    }

    /// Returns `true` where a handshake precedes the first message, and the end of the connection
    /// ends the allocation.
    #[must_use]
    pub const fn has_connections(&self) -> bool {
        !matches!(self, Self::Udp)
    }

    /// The transport as [`turn_client::ClientConfig`] names it.
    #[must_use]
    pub const fn protocol(&self) -> turn_types::Transport {
        match self {
            Self::Udp => turn_types::Transport::Udp,
            Self::Tcp => turn_types::Transport::Tcp,
            Self::Tls(..) => turn_types::Transport::Tls,
            Self::Dtls(_) => turn_types::Transport::Dtls,
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.protocol(), f)
    }
}

/// A server, the transport to it, and socket options.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The server.
    pub server: SocketAddr,
    /// Transport to the server.
    pub transport: Transport,
    /// Source address; `None` leaves it to the route.
    pub local: Option<IpAddr>,
    /// Receive buffer of each UDP socket in bytes; 0 is the system's default.
    pub receive_buffer: usize,
    /// Send buffer of each TCP connection in bytes; 0 is the system's default.
    pub send_buffer: usize,
    /// Equal datagrams may arrive merged (`UDP_GRO`).
    pub gro: bool,
    /// Closing a TCP connection resets it, which frees its port at once.
    pub reset: bool,
}

impl Endpoint {
    /// A server with the system's defaults.
    #[must_use]
    pub const fn new(server: SocketAddr, transport: Transport) -> Self {
        let (receive_buffer, send_buffer) = (0, 0);
        Self {
            server,
            transport,
            local: None,
            receive_buffer,
            send_buffer,
            gro: false,
            reset: false,
        }
    }

    /// Opens a socket on a free port, or begins a connection.
    ///
    /// # Errors
    /// No descriptors or ports left; a source address that this host does not have.
    pub fn open(&self) -> io::Result<Wire> {
        self.open_at(0)
    }

    /// Opens a socket on this port, or any for 0. Streams leave their port to the kernel.
    ///
    /// # Errors
    /// As [`Endpoint::open`]; the port is in use.
    pub fn open_at(&self, port: u16) -> io::Result<Wire> {
        let connection = match &self.transport {
            Transport::Udp => return self.socket_at(port).map(Wire::Udp),
            Transport::Tcp => Connection::Stream(Stream::new(self.connect()?, None)?),
            Transport::Tls(config, name) => {
                let mut tls = ClientConnection::new(Arc::clone(config), name.clone())
                    .map_err(io::Error::other)?;
                // `Stream` has bounds of its own, and needs messages taken whole.
                tls.set_buffer_limit(None);
                Connection::Stream(Stream::new(self.connect()?, Some(tls))?)
            }
            Transport::Dtls(context) => {
                Connection::Dtls(DtlsSession::new(self.socket_at(port)?, context)?)
            }
        };
        Ok(Wire::Connection(SharedConnection::new(connection)))
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let local = self.local.map(|ip| SocketAddr::new(ip, 0));
        let options = ConnectOptions { local, send_buffer: self.send_buffer, reset: self.reset };
        TcpStream::connect_to(self.server, &options)
    }

    fn socket_at(&self, port: u16) -> io::Result<UdpSocket> {
        let unspecified = IpFamily::of(self.server.ip()).unspecified();
        let local = SocketAddr::new(self.local.unwrap_or(unspecified), port);
        let options =
            UdpOptions { recv_buffer: self.receive_buffer, gro: self.gro, ..UdpOptions::default() };
        let (mut socket, _) = UdpSocket::bind(local, &options)?;
        socket.connect(self.server)?;
        Ok(socket)
    }
}
