//! The other end of a connection for HTTP.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A process of this host, over a Unix socket: its user, if the kernel tells.
    Unix(Option<u32>),
    /// A TCP connection.
    Tcp {
        address: SocketAddr,
        is_encrypted: bool,
        /// Set once a request has shown a token.
        is_known: Arc<AtomicBool>,
    },
}

impl Peer {
    pub(crate) fn tcp(address: SocketAddr, is_encrypted: bool) -> Self {
        Self::Tcp { address, is_encrypted, is_known: Arc::default() }
    }

    /// Returns whether it may stay: over a Unix socket, or once it has shown a token.
    pub(crate) fn is_known(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { is_known, .. } => is_known.load(Ordering::Relaxed),
        }
    }

    /// It has shown a token.
    pub(crate) fn make_known(&self) {
        if let Self::Tcp { is_known, .. } = self {
            is_known.store(true, Ordering::Relaxed);
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
