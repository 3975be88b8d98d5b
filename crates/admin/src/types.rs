//! The JSON of the control socket, version 1. These structs are the public format and nothing else:
//! domain types are never serialised, so that a change inside the server cannot change the
//! interface by accident. Fields are only ever added.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::role::Role;

mod account;
mod minted;
mod overview;
mod revocation;
mod session;

pub use self::account::{
    Account, Accounts, AddAccount, AddedAccount, DeleteAccount, DeletedAccount, ForgetAccounts,
    ForgottenAccounts,
};
pub use self::minted::Minted;
pub use self::overview::{
    ActiveUser, ActiveUsers, CertificateAge, Configuration, ConfiguredKey, HistoryPoint,
    LoggedWarning, Moment, Overview, ProblemNow, ReasonCount, Resources, SessionDetails,
    SessionReason, TrafficHistory, TrafficRates, Usage, Warnings, WorkerLoad,
};
pub use self::revocation::{Revocation, RevocationKind, Revocations, Revoke, Revoked};
pub use self::session::{
    BoundChannel, PermittedPeer, Rate, Session, SessionOffload, SessionPeers, SessionRates,
};

/// `GET /v1/status`: the state of the server and its counters since the start, of the first process
/// where others have taken its place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of the server.
    pub version: String,
    /// Start time, in seconds since 1970.
    pub started_unix: u64,
    /// Whole seconds since then.
    pub uptime_seconds: u64,
    /// The realm that users belong to.
    pub realm: String,
    /// True while new allocations are refused because the server is about to stop.
    pub draining: bool,
    /// Whole seconds until a draining server ends live allocations; absent while it does not drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_seconds_left: Option<u64>,
    /// Addresses clients talk to.
    pub listeners: Vec<String>,
    /// More listeners, for TLS only.
    #[serde(default)]
    pub tls_listeners: Vec<String>,
    /// The certificates in force.
    #[serde(default)]
    pub certificates: Vec<Certificate>,
    /// Addresses that are relayed from.
    pub relay: Vec<RelayAddress>,
    /// Networks of which each allocation has an address of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relay_prefixes: Vec<RelayPrefix>,
    /// First and last relay port, as in `49152-65535`.
    pub relay_ports: String,
    /// The servers that clients are redirected to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirects: Vec<Redirect>,
    /// The process whose calls this one took over, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_over: Option<TookOver>,
    /// Id of the process that has copies of all calls over UDP and DTLS for the case of a crash
    /// (`turnpike keep`), if one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<u32>,
    /// Why the keeper that is there gets no copies, if it gets none: it is of another user, or of
    /// another version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper_unusable: Option<String>,
    /// Differences from coturn, a sentence about each; empty without coturn's configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coturn_differences: Vec<String>,
    /// Worker threads.
    pub workers: u64,
    /// Work of the kernel: batches of datagrams, and relaying.
    pub offload: Offload,
    /// Allocations.
    pub allocations: Allocations,
    /// Connections of clients, over TCP.
    #[serde(default)]
    pub connections: Connections,
    /// Clients over DTLS.
    #[serde(default)]
    pub associations: Associations,
    /// True if DTLS is served, at all listeners, once there is a certificate.
    #[serde(default)]
    pub dtls: bool,
    /// Confinement of the process.
    #[serde(default)]
    pub confinement: Confinement,
    /// All that came and went, over the sockets and through the kernel path.
    pub traffic: Traffic,
    /// Fates of packets from sockets, by name; fates that never happened are left out.
    pub fates: BTreeMap<String, u64>,
    /// Outcomes of requests that had to wait (for a user look-up, for a relay port).
    pub late_answers: BTreeMap<String, u64>,
    /// Packets for which nothing was sent, by reason; reasons that never occurred are left out.
    pub drops: BTreeMap<String, u64>,
    /// Requests answered with an error, by reason; reasons that never occurred are left out.
    pub refusals: BTreeMap<String, u64>,
    /// Allocations that ended, by reason; reasons that never occurred are left out.
    pub ended: BTreeMap<String, u64>,
    /// ICMP errors that the kernel reported for relay sockets.
    pub icmp_errors: u64,
    /// Datagrams the kernel threw away because a receive buffer was full.
    pub kernel_drops: u64,
    /// Receive calls that failed for want of memory or worse.
    pub receive_errors: u64,
    /// Sizes of batches, by name of the histogram.
    pub occupancy: BTreeMap<String, Vec<Bucket>>,
}

/// A process whose calls this one took over: in an upgrade or a restart, or after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TookOver {
    /// Its process id.
    pub process: u32,
    /// Allocations that came from it.
    pub allocations: u64,
    /// Time in which no process served, in microseconds. Packets waited meanwhile.
    pub pause_microseconds: u64,
}

/// Confinement of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confinement {
    /// Files, by landlock.
    pub landlock: ConfinementLayer,
    /// System calls, by seccomp.
    pub seccomp: ConfinementLayer,
    /// The capabilities that it has kept.
    pub capabilities: Vec<Capability>,
}

/// A layer of the confinement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfinementLayer {
    /// True if it is in force.
    pub on: bool,
    /// Why it is not, or not as a whole; empty where there is nothing to explain.
    pub why: String,
}

/// A capability of the server's process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capability {
    /// Its name: `CAP_BPF`.
    pub name: String,
    /// Purpose.
    pub why: String,
}

/// A certificate of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// The file that it was read from.
    pub file: String,
    /// Expiry, in seconds since 1970.
    pub expires_unix: u64,
}

/// A network of which each allocation has an address of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RelayPrefix {
    /// The network, as in `2001:db8:1:2::/64`.
    pub network: String,
    /// The port of each worker.
    pub ports: Vec<u16>,
    /// Transport addresses in use or reserved.
    pub used: u32,
    /// Allocations that may have an address at a time.
    pub most: u64,
}

/// One address that is relayed from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RelayAddress {
    /// Address that relay sockets are bound to.
    pub local: String,
    /// Public address; differs behind 1:1 NAT.
    pub public: String,
    /// True while this host does not have the address, so that no allocation begins there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_missing: bool,
}

/// Work of the kernel: batches of datagrams in one call, and relaying without the server (the
/// kernel path).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Offload {
    /// Several datagrams in one call on receive (`UDP_GRO`).
    pub gro: bool,
    /// Several datagrams in one call on send (`UDP_SEGMENT`).
    pub gso: bool,
    /// `offload.mode` as configured: `auto`, `xdp`, `xdp-generic`, `tc` or `off`.
    #[serde(default)]
    pub mode: String,
    /// The network interfaces, with the state of each.
    #[serde(default)]
    pub interfaces: Vec<OffloadInterface>,
    /// Why the kernel relays nothing; absent where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_because: Option<String>,
    /// Settings of the kernel that are on for it, such as `net.ipv4.conf.lo.forwarding`, and are
    /// put back when the last server of this network namespace ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// Channels that the kernel relays now.
    #[serde(default)]
    pub flows: u64,
    /// Channels that it may relay at once.
    #[serde(default)]
    pub flows_max: u64,
    /// Kernel memory of the path.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Traffic that the kernel relayed past the sockets, or delivered from peers of clients with
    /// connections.
    #[serde(default)]
    pub by_kernel: Traffic,
    /// Traffic of the sockets; with `by_kernel` it is the `traffic` of the server.
    #[serde(default)]
    pub by_sockets: Traffic,
    /// Packets of channels in the kernel that it left to the sockets, by reason; reasons that never
    /// occurred are left out.
    #[serde(default)]
    pub passed: BTreeMap<String, u64>,
    /// Packets of `by_kernel` that came from senders on the same machine, with partial checksums.
    #[serde(default)]
    pub partial_checksums: u64,
    /// Frames that XDP redirected and that did not leave, of all programs of the host: among them
    /// packets that were counted as relayed. Left out where no interface has the program at XDP, or
    /// the kernel does not let them be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirects_lost: Option<u64>,
}

/// State of one network interface on the kernel path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OffloadInterface {
    /// Its name.
    pub name: String,
    /// Hook of the program: `xdp`, `xdp-generic` or `tc`; absent where it is not attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// Why there and not at a faster one, or why nowhere; empty where nothing is to be explained.
    pub why: String,
}

/// Numbers of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Allocations {
    /// Live now.
    pub live: u64,
    /// Made since the start.
    pub total: u64,
    /// Moves of clients to another address (RFC 8016).
    #[serde(default)]
    pub moved: u64,
}

/// Connections of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// Live now.
    pub live: u64,
    /// Accepted since the start.
    pub total: u64,
    /// Closed as they came, by reason; reasons that never occurred are left out.
    pub refused: BTreeMap<String, u64>,
    /// Ended ones, by reason; reasons that never occurred are left out.
    pub ended: BTreeMap<String, u64>,
}

/// DTLS associations of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Associations {
    /// Live now.
    pub live: u64,
    /// Of these, with a handshake that is not done.
    pub half_open: u64,
    /// Begun since the start.
    pub begun: u64,
    /// Finished handshakes since the start.
    pub established: u64,
    /// Responses to first messages, without state, by kind.
    pub hellos_answered: BTreeMap<String, u64>,
    /// Not begun, by reason; reasons that never occurred are left out.
    pub refused: BTreeMap<String, u64>,
    /// Ended ones, by reason; reasons that never occurred are left out.
    pub ended: BTreeMap<String, u64>,
    /// Datagrams of DTLS itself, by fate.
    pub own_datagrams: BTreeMap<String, u64>,
}

/// Packets and bytes since the start. Bytes are of UDP payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    /// From clients to the server.
    pub from_clients: Volume,
    /// From the server to clients.
    pub to_clients: Volume,
    /// From peers to relay sockets.
    pub from_peers: Volume,
    /// From relay sockets to peers.
    pub to_peers: Volume,
}

/// An amount of traffic in one direction on one leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Volume {
    /// Datagrams.
    pub packets: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
}

/// One bucket of a histogram: how often a value was at most `up_to` and more than the bucket
/// before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bucket {
    /// Upper bound, inclusive; absent in the last bucket, which has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to: Option<u64>,
    /// Count.
    pub count: u64,
}

/// `GET /v1/sessions`: live allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sessions {
    /// At most as many as asked for.
    pub sessions: Vec<Session>,
    /// True if there are more.
    pub more: bool,
    /// Number of all that the query selects.
    #[serde(default)]
    pub total: u64,
    /// Value of `after` for the next page; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// `POST /v1/reload`: outcome of each difference between the old and the new configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reload {
    /// In force now.
    pub applied: Vec<Change>,
    /// Will be in force after a restart; the old value still is.
    pub needs_restart: Vec<Change>,
    /// Sessions that were ended, as their secret, key or realm counts no longer; absent unless that
    /// was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Certificates whose files cannot be used now, with the reasons: the previous certificates
    /// remain in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates_kept: Vec<String>,
    /// Why nothing was changed at all: the old configuration is still in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Body of `POST /v1/reload`; none at all is the same as an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReloadRequest {
    /// Ends sessions whose shared secret, token key or realm is not in the configuration any
    /// more.
    pub end_sessions: bool,
}

/// One difference between two configurations. Secrets are shown as `<secret>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The key, as in the configuration file: `quotas.allocations_per_user`.
    pub key: String,
    /// The value so far.
    pub old: String,
    /// The value in the file.
    pub new: String,
}

/// A client or user whose events are logged in detail; body of `POST /v1/traces`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// Only clients of this address or network; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Only this user, by name or account; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Seconds until it ends, 1..=86400.
    pub seconds: u64,
}

/// `GET /v1/traces`: all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Traces {
    /// The traces.
    pub traces: Vec<Trace>,
}

/// Body of `POST /v1/drain`; it may be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// Seconds after which allocations still live are ended, 604800 (7 days) at most. Without it
    /// `shutdown.drain`; where that is nothing, the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u64>,
}

/// Answer to `POST /v1/drain`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drain {
    /// Seconds after which allocations still live are ended.
    pub deadline_seconds: u64,
    /// Allocations live when draining began.
    pub allocations_live: u64,
    /// Whole seconds that were left of the drain that this one replaces; absent when it is the
    /// first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_seconds_left: Option<u64>,
}

/// Answer to `DELETE /v1/drain`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrainCancelled {
    /// Whole seconds that were left of the drain.
    pub seconds_left: u64,
}

/// Answer to `DELETE /v1/sessions/{id}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ended {
    /// The id of the allocation that was ended.
    pub id: String,
}

/// `GET /v1/refusals`: recent refusals, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusals {
    /// At most as many as asked for.
    pub refusals: Vec<Refusal>,
    /// True if there are more.
    pub more: bool,
}

/// Requests of one user and network that were refused for one reason; the details are of the
/// latest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// Whole seconds since the latest.
    pub seconds_ago: u64,
    /// Whole seconds since the first.
    pub first_seconds_ago: u64,
    /// Their number.
    pub count: u64,
    /// Address of the client.
    pub client: String,
    /// `udp`, `tcp`, `tls` or `dtls`.
    pub transport: String,
    /// The listener it talks to.
    pub server: String,
    /// Method of the request.
    pub method: String,
    /// The user, as authenticated; absent where the request proved none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The name in a request that proved none: anybody may have written it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_user: Option<String>,
    /// True if requests without proof claimed other names as well, which are not stored.
    #[serde(default)]
    pub other_claimed_users: bool,
    /// The forbidden peer, where one is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The rule that forbids it: `never`, `peers_deny`, `own_address`, `credential` or
    /// `special_purpose`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_by: Option<String>,
    /// The entry of `peers.deny`, where that is the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Place of the rule: file and line, or `built in`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_at: Option<String>,
    /// Level of the share that is used up, where one is the reason: `network`, `account` or
    /// `realm`. The largest part of the client's use is at this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_level: Option<String>,
    /// Prefix of that network, name of that account or realm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_holder: Option<String>,
    /// The reason; `docs/operate/reasons.md` has all.
    pub reason: String,
    /// The STUN error code that the client was told.
    pub code: u16,
    /// Meaning of the reason.
    pub meaning: String,
    /// Advice; empty where nothing is to be done.
    pub advice: String,
    /// Settings that the advice names, each with its value in force and its place, such as
    /// `quotas.allocations_per_user = 1000 (default)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
}

/// `GET /healthz` and `GET /readyz`: whether the server serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// True if every worker and every listener answered in time.
    pub healthy: bool,
    /// True while new allocations are refused because the server is about to stop.
    pub draining: bool,
    /// Numbers of the workers that did nothing in time.
    pub hanging_workers: Vec<u64>,
    /// Addresses of the settings that this host does not have. A server that serves nobody without
    /// them is not ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_addresses: Vec<String>,
    /// The listeners that were asked, as by a client.
    pub listeners: Vec<ListenerHealth>,
}

/// The answer of a listener to a Binding request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListenerHealth {
    /// Its address.
    pub address: String,
    /// `udp`, `tcp` or `tls`.
    pub transport: String,
    /// Time that the answer took.
    pub microseconds: u64,
    /// Why there is none; absent when it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Body of `POST /v1/sign-in`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// The token.
    pub token: String,
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignIn(<secret>)")
    }
}

/// A server that clients are redirected to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Redirect {
    /// Its address and port.
    pub server: String,
    /// The transport of the clients that it is for: `any`, `udp`, `tcp`, or `tls` with DTLS.
    pub transport: String,
    /// False if it does not answer, so that no client is sent to it.
    pub answers: bool,
}

/// `GET /v1/me`: the token of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Me {
    /// Its name.
    pub token: String,
    /// Its rights.
    pub role: Role,
    /// The only realm that it is for; left out for the whole server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realm: Option<String>,
}

/// Every answer that is not 2xx.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Error.
    pub error: String,
    /// Advice.
    pub hint: String,
}
