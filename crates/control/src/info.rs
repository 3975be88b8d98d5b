//! Facts about a server, for operators.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use turn_proto::RelayPrefix;

/// Facts about a running server. They change at a reload, if at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Version of the program.
    pub version: String,
    /// Start time.
    pub started: SystemTime,
    /// The realm of requests that choose none.
    pub realm: String,
    /// The other realms.
    pub realms: Vec<String>,
    /// Addresses that clients talk to.
    pub listeners: Vec<SocketAddr>,
    /// Addresses that are relayed from.
    pub relay: Vec<RelayInfo>,
    /// Addresses of the settings that the host does not have.
    pub missing: MissingAddresses,
    /// Parts of the configuration that the server cannot read.
    pub unread: UnreadParts,
    /// Networks of which each allocation has an address of its own.
    pub relay_prefixes: Vec<RelayPrefix>,
    /// First and last relay port.
    pub relay_ports: (u16, u16),
    /// Worker threads.
    pub workers: usize,
    /// True if the kernel coalesces received datagrams (`UDP_GRO`).
    pub gro: bool,
    /// True if the kernel segments batches of equal datagrams (`UDP_SEGMENT`).
    pub gso: bool,
    /// The kernel path, as it was started.
    pub offload: OffloadInfo,
    /// More listeners, for TLS only.
    pub tls_listeners: Vec<SocketAddr>,
    /// True if DTLS is served, at all listeners, once there is a certificate.
    pub dtls: bool,
    /// The certificates in force.
    pub certificates: Vec<CertificateInfo>,
    /// Confinement of the process.
    pub confinement: ConfinementInfo,
    /// Answers for monitoring.
    pub monitoring: MonitoringInfo,
    /// The servers that clients are redirected to.
    pub redirects: Vec<RedirectInfo>,
    /// Why the last reload was refused, if it was: the files would not start a server.
    pub reload_refused: Option<String>,
    /// Keys whose values in the files take effect at a restart.
    pub needs_restart: Vec<String>,
    /// The process whose calls this one took over, if it did.
    pub took_over: Option<TookOverInfo>,
}

/// A process whose calls this one took over: in an upgrade or a restart, or after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TookOverInfo {
    /// Its process id.
    pub process: u32,
    /// Allocations that came from it.
    pub allocations: usize,
    /// Time in which no process served.
    pub pause: Duration,
}

/// The keeper of a server's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeeperState {
    /// There is none.
    #[default]
    Absent,
    /// The process of this id has copies of all calls over UDP and DTLS.
    Connected(u32),
    /// One is there that gets no copies, and the reason.
    Unusable(String),
}

/// A server that clients are redirected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectInfo {
    /// Its address.
    pub server: SocketAddr,
    /// The transport of the clients that it is for: `any`, `udp`, `tcp`, or `tls` with DTLS.
    pub transport: &'static str,
    /// False if it does not answer, so that no client is sent to it.
    pub answers: bool,
}

/// Answers for monitoring, as configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonitoringInfo {
    /// True if there are metrics under coturn's names as well.
    pub coturn_metrics: bool,
    /// True if the server calls itself ready while it drains.
    pub ready_while_draining: bool,
}

/// Confinement of a process. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfinementInfo {
    /// Files, by landlock.
    pub files: ConfinementLayer,
    /// System calls, by seccomp.
    pub calls: ConfinementLayer,
    /// The capabilities that it has kept.
    pub capabilities: Vec<KeptCapability>,
}

/// A layer of the confinement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfinementLayer {
    /// True if it is in force.
    pub on: bool,
    /// Why it is not, or not as a whole; empty where there is nothing to explain.
    pub why: String,
}

/// A capability of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCapability {
    /// Its name: `CAP_BPF`.
    pub name: String,
    /// Purpose.
    pub why: String,
}

/// A certificate of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The file that it was read from.
    pub file: String,
    /// Expiry.
    pub expires: SystemTime,
}

/// The kernel path: a BPF program that relays for bound channels beside the sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffloadInfo {
    /// `offload.mode` as configured.
    pub mode: String,
    /// One for each interface that was looked at.
    pub interfaces: Vec<OffloadInterface>,
    /// Why nothing is relayed by the kernel, if nothing is: a reason for an operator, without a
    /// capital or a full stop.
    pub off_because: Option<String>,
    /// Channels that the kernel may relay at once.
    pub flows_max: u32,
    /// Kernel memory of the path, in bytes; 0 when there is none.
    pub memory_bytes: u64,
}

/// State of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadInterface {
    /// Its name.
    pub name: String,
    /// Hook of the program: `xdp`, `xdp-generic` or `tc`; `None` where it is not attached.
    pub hook: Option<String>,
    /// Why by this hook and not by a faster one, or why by none; empty where there is nothing to
    /// explain. A reason for an operator, without a capital or a full stop.
    pub why: String,
}

/// State of the kernel path. Called from the control plane: it may make a few system
/// calls, and no worker waits for it.
pub trait OffloadWatch: Send + Sync {
    /// The interfaces as they are now; they come and go.
    fn interfaces(&self) -> Vec<OffloadInterface>;

    /// Why no interface has the program now: a reason for an operator, without a capital or a full
    /// stop. `None`: one has.
    fn idle_because(&self) -> Option<String>;

    /// Settings of the kernel that are on for the kernel path, such as
    /// `net.ipv4.conf.lo.forwarding`; they are put back at the end.
    fn settings(&self) -> Vec<String>;

    /// Packets of known flows that the program left to the sockets since the start, by reason
    /// (lower case, words joined by `_`, each once).
    fn passed(&self) -> Vec<(&'static str, u64)>;

    /// Packets that the program relayed or delivered from senders on the same machine, which leave
    /// the completion of checksums to others, since the start.
    fn partial_checksums(&self) -> u64;

    /// Frames that XDP redirected and that did not leave, of all programs of the host, since the
    /// server has one on an interface. `None`: it has none, or the kernel does not let them be
    /// seen.
    fn redirects_lost(&self) -> Option<u64>;
}

/// An address that is relayed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayInfo {
    /// Address that relay sockets are bound to.
    pub local: IpAddr,
    /// Public address; differs behind 1:1 NAT.
    pub public: IpAddr,
    /// True if the host has the address. Otherwise no allocation begins there.
    pub is_present: bool,
}

/// Addresses of the settings that the host does not have. The server waits for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingAddresses {
    /// A clause about each, with its key and without a full stop.
    pub clauses: Vec<String>,
    /// True if the server serves nobody without them.
    pub are_all: bool,
}

/// Parts of the configuration that the server cannot read. The server serves without them, and
/// reads them when it can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadParts {
    /// A clause about each certificate that cannot be used, without a full stop.
    pub certificates: Vec<String>,
    /// A clause about the tables of the user database, without a full stop.
    pub tables: Option<String>,
    /// True if the server serves nobody without them.
    pub are_all: bool,
}

/// A key of the configuration in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredKey {
    /// Its name, such as `relay.ports`.
    pub key: String,
    /// Its value as in a file; secrets are `<secret>`.
    pub value: String,
    /// Place of the value: `FILE:LINE` or an environment variable; `None` for a default. With
    /// coturn's configuration, a default comes with the option that sets it.
    pub origin: Option<String>,
    /// True if a reload changes it, false if only a restart does.
    pub is_live: bool,
}
