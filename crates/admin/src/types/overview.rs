//! The JSON of the page's views: overview, users, one session, configuration, recent log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Volume;
use super::session::{BoundChannel, PermittedPeer, Rate, Session, SessionRates};

/// `GET /v1/overview`, and each event of `GET /v1/events`: the server of the last seconds: one
/// while it is watched, five at most else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Overview {
    /// The server's clock, in seconds since 1970.
    pub time_unix: u64,
    /// Version of the server.
    pub version: String,
    /// The realm that users belong to.
    pub realm: String,
    /// Whole seconds since the start.
    pub uptime_seconds: u64,
    /// True while new allocations are refused because the server is about to stop.
    pub draining: bool,
    /// Whole seconds until a draining server ends live allocations; absent while it does not drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_seconds_left: Option<u64>,
    /// Live allocations.
    pub allocations: u64,
    /// Live connections of clients, over TCP and TLS.
    pub connections: u64,
    /// Live DTLS sessions of clients.
    pub dtls_sessions: u64,
    /// Rates of traffic, in each direction on each leg.
    pub rates: TrafficRates,
    /// Percentage of relayed packets that the kernel path relayed; absent without traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_share_percent: Option<u64>,
    /// Refused requests by reason, the most frequent of the last minute first; reasons that never
    /// occurred are left out.
    pub refusals: Vec<ReasonCount>,
    /// Dropped packets by reason, in the same way.
    pub drops: Vec<ReasonCount>,
    /// Load of each worker's thread.
    pub workers: Vec<WorkerLoad>,
    /// The certificates in force.
    pub certificates: Vec<CertificateAge>,
    /// Present faults, as sentences; empty without any.
    pub problems: Vec<ProblemNow>,
    /// Name of the host.
    #[serde(default)]
    pub host: String,
    /// Addresses that clients talk to, those for TLS only included.
    #[serde(default)]
    pub listeners: Vec<String>,
    /// Resources in use, with their limits.
    #[serde(default)]
    pub resources: Resources,
    /// Why the kernel path relays nothing; absent where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_path_off: Option<String>,
}

/// Resources of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// Ports of `relay.ports` in use on the relay addresses of the family closest to its limit.
    pub relay_ports: Usage,
    /// Resident memory of the process in bytes, and the limit of its control group; absent where it
    /// cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<Usage>,
    /// Open file descriptors; absent where they cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<Usage>,
}

/// Use of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Amount in use.
    pub used: u64,
    /// Limit; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
}

/// `GET /v1/history`: the last hour of the server, of the process that serves now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficHistory {
    /// Least time between two points, in seconds.
    pub seconds: u64,
    /// The oldest first.
    pub points: Vec<HistoryPoint>,
}

/// Rates since the point before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryPoint {
    /// Time of the point, in seconds since 1970.
    pub time_unix: u64,
    /// Live allocations.
    pub allocations: u64,
    /// Rates of traffic.
    pub rates: TrafficRates,
    /// Refused requests in a minute.
    pub refusals_per_minute: u64,
}

/// Rates of traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficRates {
    /// From clients to the server.
    pub from_clients: Rate,
    /// From the server to clients.
    pub to_clients: Rate,
    /// From peers to relay sockets.
    pub from_peers: Rate,
    /// From relay sockets to peers.
    pub to_peers: Rate,
}

/// Number of occurrences for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReasonCount {
    /// The reason.
    pub reason: String,
    /// Since the start of the server.
    pub total: u64,
    /// In the last minute.
    pub last_minute: u64,
    /// Meaning of the reason.
    pub meaning: String,
    /// Advice; empty where nothing is to be done.
    pub advice: String,
}

/// Load of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerLoad {
    /// Number of the worker.
    pub worker: u64,
    /// Processor time of its thread, in percent of a core.
    pub cpu_percent: u64,
}

/// Age of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateAge {
    /// The file that it was read from.
    pub file: String,
    /// Whole days until it expires; negative once it has.
    pub days_left: i64,
}

/// Something wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProblemNow {
    /// True if clients are affected.
    pub is_severe: bool,
    /// A sentence.
    pub text: String,
}

/// `GET /v1/sessions/{id}`: a live allocation with its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionDetails {
    /// The allocation.
    pub session: Session,
    /// Its permissions.
    pub permissions: Vec<PermittedPeer>,
    /// Its channels.
    pub channels: Vec<BoundChannel>,
    /// Peers that it has connections with, of a session that relays TCP.
    pub connected_peers: Vec<String>,
    /// The path of its data and the reason for it, as a sentence.
    pub path: String,
    /// Its refused requests by reason, the most frequent first; without the first steps of every
    /// client (`no_credentials`, `stale_nonce`).
    #[serde(default)]
    pub refusals: Vec<SessionReason>,
    /// Its dropped packets by reason, the most frequent first.
    #[serde(default)]
    pub drops: Vec<SessionReason>,
    /// Known events of its past, the latest first.
    pub timeline: Vec<Moment>,
}

/// Refused requests, or dropped packets, of a session for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionReason {
    /// The reason; `docs/operate/reasons.md` has all.
    pub reason: String,
    /// Their number since the session began.
    pub count: u64,
    /// Meaning of the reason.
    pub meaning: String,
    /// Advice; empty where nothing is to be done.
    pub advice: String,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moment {
    /// Whole seconds since then.
    pub seconds_ago: u64,
    /// A sentence.
    pub text: String,
}

/// `GET /v1/users`: users with live allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActiveUsers {
    /// At most as many as asked for.
    pub users: Vec<ActiveUser>,
    /// True if there are more.
    pub more: bool,
    /// Number of all that the query selects.
    pub total: u64,
}

/// A user with live allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActiveUser {
    /// The account: the user without the time stamp of a time-limited name; empty on an open relay.
    pub account: String,
    /// The realm.
    pub realm: String,
    /// Live allocations.
    pub sessions: u64,
    /// Payload relayed from clients to peers, of live allocations.
    pub to_peers: Volume,
    /// Payload relayed from peers to clients, of live allocations.
    pub to_client: Volume,
    /// Rates of the last second.
    pub rates: SessionRates,
}

/// `GET /v1/configuration`: the configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Configuration {
    /// All keys, in the order of the reference page.
    pub keys: Vec<ConfiguredKey>,
}

/// A key of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfiguredKey {
    /// Its name, such as `relay.ports`.
    pub key: String,
    /// Its value as in a file; `none` when it was left out; secrets are `<secret>`.
    pub value: String,
    /// `FILE:LINE` or the environment variable that it comes from; absent for a default, or with
    /// coturn's configuration the option that sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// True if a reload applies a change, false if only a restart does.
    pub is_live: bool,
}

/// `GET /v1/warnings`: recent warnings and errors of the log, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warnings {
    /// At most 100.
    pub warnings: Vec<LoggedWarning>,
}

/// A line of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoggedWarning {
    /// Time of the latest, in seconds since 1970.
    pub time_unix: u64,
    /// `warn` or `error`.
    pub level: String,
    /// The message and its fields.
    pub text: String,
    /// Number of occurrences without another line between.
    pub count: u64,
}
