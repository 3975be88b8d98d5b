//! Path between a client and the server.

use crate::{ClientAddr, ServerAddr, SocketId};

crate::labels! {
    /// Transport of STUN between client and server.
    Transport {
        /// Plain UDP.
        Udp => "udp",
        /// Plain TCP.
        Tcp => "tcp",
        /// TLS over TCP.
        Tls => "tls",
        /// DTLS over UDP.
        Dtls => "dtls",
    }
}

impl Transport {
    /// Returns true if messages may be lost, repeated and reordered. Clients then retransmit their
    /// requests (RFC 8489 §6.2.1).
    #[must_use]
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Udp | Self::Dtls)
    }
}

/// Protocol that an allocation relays (REQUESTED-TRANSPORT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RelayProtocol {
    /// Datagrams (RFC 8656).
    #[default]
    Udp,
    /// Connections (RFC 6062).
    Tcp,
}

impl RelayProtocol {
    /// Returns the lower-case name, as in logs and in the interface for operators.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

/// Key of an allocation on the client's side (RFC 8656 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FiveTuple {
    /// Transport between client and server.
    pub transport: Transport,
    /// Address and port of the client.
    pub client: ClientAddr,
    /// Address and port of the server, as addressed by the client.
    pub server: ServerAddr,
}

/// A [`FiveTuple`] with the worker's socket for responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientPath {
    /// Five-tuple of the client.
    pub five_tuple: FiveTuple,
    /// Socket that received the packet, and sends the response (RFC 8489 §6.3.1.2).
    pub socket: SocketId,
}
