//! The other end of a connection for HTTP.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A process of this host, over a Unix socket: its user, if the kernel tells.
    Unix(Option<u32>),
    /// A TCP connection.
    Tcp {
        address: SocketAddr,
        is_encrypted: bool,
        /// Name of the holder, once a request has shown a token.
        holder: Arc<OnceLock<String>>,
    },
}

impl Peer {
    pub(crate) fn tcp(address: SocketAddr, is_encrypted: bool) -> Self {
        Self::Tcp { address, is_encrypted, holder: Arc::default() }
    }

    /// The address that requests are counted for: one for all of a Unix socket.
    pub(crate) const fn ip(&self) -> IpAddr {
        match self {
            Self::Unix(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::Tcp { address, .. } => address.ip(),
        }
    }

    /// Name of the holder whose token the first request with a token has shown. `None` before, and
    /// over a Unix socket.
    pub(crate) fn holder(&self) -> Option<&str> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp { holder, .. } => holder.get().map(String::as_str),
        }
    }

    /// Notes the holder of the token that a request has shown. The first one stays.
    pub(crate) fn make_known(&self, name: &str) {
        if let Self::Tcp { holder, .. } = self {
            holder.get_or_init(|| name.to_owned());
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(Some(uid)) => write!(f, "user id {uid}"),
            Self::Unix(None) => f.write_str("unknown user"),
            Self::Tcp { address, .. } => address.fmt(f),
        }
    }
}
