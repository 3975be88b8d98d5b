//! Checked values: what the rest of the program works with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use turn_proto::{
    AlternateServer, DiscoverySockets, Lifetimes, Quotas, SharedSecret, TokenKey,
    UnauthenticatedBudget,
};
use turn_types::Prefix;

use crate::file::{LogFormat, LogLevel, OffloadMode};
use crate::value::{External, PortRange, RelayEntry, WorkerCount};

/// What the control socket is called in the data directory.
pub const CONTROL_SOCKET: &str = "control.sock";

/// A configuration that has been checked. Two of them are compared by [`diff`](crate::diff()), and one
/// becomes the rules of the server by [`Settings::policy`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The realm, 1 to 127 bytes.
    pub realm: Arc<str>,
    /// SOFTWARE in answers to authenticated requests.
    pub software: Option<Arc<str>>,
    /// Where clients come to, over UDP and TCP; at least one, no two alike, port never 0.
    pub listen: Vec<SocketAddr>,
    /// Whether clients may move.
    pub mobility: bool,
    /// Where relayed addresses come from.
    pub relay: Relay,
    /// Who may relay.
    pub auth: Auth,
    /// Exceptions to the rules about peers.
    pub peers: Peers,
    /// How many there may be.
    pub quotas: Quotas,
    /// Rate of responses to unauthenticated requests.
    pub unauthenticated: UnauthenticatedBudget,
    /// How long things live.
    pub lifetimes: Lifetimes,
    /// Whether clients older than RFC 8656 are served as well.
    pub rfc5766_clients: bool,
    /// Whether tokens are taken from clients made for coturn as well.
    pub coturn_tokens: bool,
    /// Whether clients of RFC 3489 are told their addresses.
    pub rfc3489_clients: bool,
    /// Where NAT behaviour discovery is served: at most one entry per family.
    pub discovery: Vec<DiscoverySockets>,
    /// Where clients are sent instead of being served.
    pub redirect: Option<AlternateServer>,
    /// The threads that relay.
    pub workers: Workers,
    /// Clients over TCP.
    pub tcp: Tcp,
    /// TLS.
    pub tls: Tls,
    /// DTLS.
    pub dtls: Dtls,
    /// How the kernel's sockets are used.
    pub sockets: Sockets,
    /// The kernel path.
    pub offload: Offload,
    /// What the running server may do.
    pub confinement: Confinement,
    /// What is logged.
    pub log: Log,
    /// Where the control socket is, if that was said; otherwise [`Settings::control_socket`].
    pub control: Option<PathBuf>,
    /// Where the server keeps what it has to remember. The command line may set it after loading.
    pub data_directory: PathBuf,
    /// How long allocations may go on after the server was told to end.
    pub drain: Duration,
}

/// Where relayed addresses come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// At least one; local addresses differ.
    pub addresses: Vec<RelayEntry>,
    /// At most one address per family.
    pub external: External,
    /// The ports.
    pub ports: PortRange,
}

/// Who may relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Anybody.
    pub open_relay: bool,
    /// Those with a credential made with one of these; names and secrets differ.
    pub secrets: Vec<SharedSecret>,
    /// Those in the user database.
    pub users: bool,
    /// Whether a credential that ran out stops a Refresh.
    pub expiry_at_refresh: bool,
    /// Whether names may be sent as hashes where that is possible.
    pub userhash: bool,
    /// Those with an access token made with one of these; names differ.
    pub token_keys: Vec<TokenKey>,
    /// What tokens call this server; the realm where it was not said.
    pub server_name: Option<Arc<str>>,
}

/// Exceptions to the rules about peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    /// Reachable although not by default.
    pub allow: Vec<Prefix>,
    /// Not reachable although by default; shares no entry with `allow`.
    pub deny: Vec<Prefix>,
}

/// The threads that relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// How many.
    pub count: WorkerCount,
    /// Whether each stays on one processor.
    pub pin: bool,
}

/// Clients over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Whether there are any.
    pub enabled: bool,
    /// Connections at once; 0 is any number.
    pub connections: u32,
    /// Of one address; 0 is any number.
    pub connections_per_address: u32,
    /// Whether TCP is relayed for them (RFC 6062).
    pub relaying: bool,
    /// Where the PROXY protocol is spoken.
    pub proxy_protocol: Vec<Prefix>,
    /// Where certificate authorities are sent, with a token appended.
    pub acme_redirect: Option<String>,
}

/// TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Where clients come to besides, for TLS and DTLS; none without a certificate, and none that is among
    /// [`Settings::listen`].
    pub listen: Vec<SocketAddr>,
    /// Whether such addresses were written and are not listened at, for want of a certificate.
    pub listen_unused: bool,
    /// The files of each certificate.
    pub certificates: Vec<CertificateFiles>,
    /// Authorities one of which has to have signed a client's certificate; `None`: clients show none.
    pub client_authorities: Option<PathBuf>,
}

/// DTLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtls {
    /// Whether it is spoken once there is a certificate.
    pub enabled: bool,
    /// Associations at once; 0 is any number.
    pub associations: u32,
    /// Of one address; 0 is any number.
    pub associations_per_address: u32,
}

/// Where a certificate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain.
    pub chain: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// How the kernel's sockets are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sockets {
    /// SO_RCVBUF in bytes.
    pub receive_buffer: u32,
    /// SO_SNDBUF in bytes.
    pub send_buffer: u32,
    /// UDP GRO.
    pub gro: bool,
    /// UDP GSO.
    pub gso: bool,
}

/// The kernel path: how a BPF program relays beside the sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Where the program is attached.
    pub mode: OffloadMode,
    /// The interfaces it is attached to, 64 at most, no two alike, each a name that the kernel takes;
    /// none: those that carry the traffic of the listeners and relays.
    pub interfaces: Vec<String>,
    /// Channels that may be in the kernel at once, 1024..=1_048_576.
    pub flows: u32,
}

/// What the running server may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// Whether landlock confines files.
    pub landlock: bool,
    /// Whether seccomp refuses system calls.
    pub seccomp: bool,
    /// Directories that may be read besides those of the configuration's files.
    pub readable: Vec<PathBuf>,
}

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// How lines look.
    pub format: LogFormat,
    /// The least serious kind.
    pub level: LogLevel,
}

impl Settings {
    /// The control socket: as configured, or in the data directory.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(|| self.data_directory.join(CONTROL_SOCKET))
    }

    /// All addresses that are listened at: `listen`, and those of NAT behaviour discovery that are not
    /// among them.
    #[must_use]
    pub fn listeners(&self) -> Vec<SocketAddr> {
        let mut all = self.listen.clone();
        for corner in self.discovery.iter().flat_map(|square| square.local.iter().flatten()) {
            let covers = |listener: &SocketAddr| {
                listener == corner
                    || listener.ip().is_unspecified()
                        && listener.is_ipv4() == corner.is_ipv4()
                        && listener.port() == corner.port()
            };
            if !all.iter().any(covers) {
                all.push(*corner);
            }
        }
        all
    }

    /// The user database.
    #[must_use]
    pub fn user_database(&self) -> PathBuf {
        self.data_directory.join("users.sqlite")
    }
}
