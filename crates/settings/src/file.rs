//! The public format: what may stand in the configuration file. The comments on the keys are the
//! reference page (`docs/configuration.md`) and the JSON schema: they are written for operators.
//!
//! Each key has a default, so that an empty file is a valid one. `x-applied` says whether a reload
//! applies a change of the key (`live`) or the server has to be started again (`restart`).

mod confinement;
mod discovery;
mod quotas;
mod streams;
mod tokens;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use confinement::Confinement;
pub use discovery::{Discovery, ExternalEndpoint};
pub use quotas::Quotas;
pub use streams::{CertificateEntry, Dtls, Tcp, Tls};
pub use tokens::{TokenCipher, TokenKeyEntry};

use crate::value::{
    Bytes, Count, Duration, Endpoint, External, InterfaceName, OpenRelay, PortRange, Prefix,
    RelayEntry, SecretText, Text, WorkerCount,
};

/// The configuration of Turnpike.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// The realm: the name under which users prove who they are, usually the domain of the service.
    /// It goes into every user's key: users added under another realm have to be added again.
    #[schemars(example = &"example.org", extend("x-applied" = "live"))]
    pub realm: Text<1, 127>,
    /// The addresses and ports that clients come to, over UDP and (see `[tcp]`) over TCP. A wildcard (`0.0.0.0`, `[::]`) is every
    /// address of its family, and `[::]` is IPv6 alone.
    #[schemars(example = serde_json::json!(["203.0.113.7:3478"]), extend("x-applied" = "restart"))]
    pub listen: Vec<Endpoint>,
    /// SOFTWARE attribute of responses to authenticated requests; others never carry it. Left out by
    /// default.
    #[schemars(example = &"Turnpike", extend("x-applied" = "live"))]
    pub software: Option<Text<1, 127>>,
    /// Whether clients that ask for it may keep their allocation when they come to have another address
    /// (RFC 8016), as a phone does that leaves a wireless network. Such an allocation goes on without a
    /// connection until its lifetime ends. Those who ask where this is off are told 405, and have to ask
    /// for an allocation without it.
    #[schemars(extend("x-applied" = "live"))]
    pub mobility: bool,
    /// The addresses and ports that are lent to clients.
    pub relay: Relay,
    /// Who may relay.
    pub auth: Auth,
    /// Whom clients may reach. Without rules: every public address, and nothing private, local,
    /// reserved, or of this host itself.
    pub peers: Peers,
    /// How many there may be of what a client can ask for.
    pub quotas: Quotas,
    /// How long things live.
    pub lifetimes: Lifetimes,
    /// What is done for old clients.
    pub compatibility: Compatibility,
    /// NAT behaviour discovery (RFC 5780): lets clients find out how the NAT in front of them treats
    /// them, which takes a server with two addresses.
    pub discovery: Discovery,
    /// Sends every client to another server instead of serving it. Without an address nobody is sent
    /// away.
    pub redirect: Redirect,
    /// The threads that relay.
    pub workers: Workers,
    /// Clients that come over TCP, as from networks that let no UDP out.
    pub tcp: Tcp,
    /// TLS, which clients use where nothing else gets out; there is some once there is a certificate.
    pub tls: Tls,
    /// DTLS, which is TLS for UDP; there is some once there is a certificate, at all addresses of `listen` and of
    /// `tls.listen`.
    pub dtls: Dtls,
    /// How the kernel's sockets are used.
    pub sockets: Sockets,
    /// The kernel path: a BPF program at the network interfaces relays the data of bound channels
    /// (ChannelData, and what peers send back) without the server's threads. All other packets, and
    /// whatever the program is not sure of, come to the sockets.
    pub offload: Offload,
    /// What the running server may do: it confines itself when it starts, so that whoever takes it over has
    /// little by it. `turnpike status` says what is in force.
    pub confinement: Confinement,
    /// What is logged, to standard error.
    pub log: Log,
    /// Where `turnpike status`, `sessions`, `reload` and the other commands reach the running server.
    pub control: Control,
    /// Where the server keeps what it has to remember.
    pub data: Data,
    /// How the server ends.
    pub shutdown: Shutdown,
}

/// `[relay]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Relay {
    /// The addresses of this host that relayed addresses are taken from: `"auto"` (of each family, the
    /// address that the host reaches others from), an address, or `{ local, public }` where clients
    /// have to be told another one than the host has.
    #[schemars(
        example = serde_json::json!(["203.0.113.7", "2001:db8::7"]),
        example = serde_json::json!([{ "local": "10.0.0.5", "public": "203.0.113.7" }]),
        extend("x-applied" = "live")
    )]
    pub addresses: Vec<RelayEntry>,
    /// The public address, or one per family, of a host behind 1:1 NAT (as in most clouds): what
    /// clients are told instead of the host's own. Leave it out where the host has its public address.
    #[schemars(example = &"203.0.113.7", extend("x-applied" = "live"))]
    pub external: Option<External>,
    /// The UDP ports that relayed addresses are taken from. A firewall has to let them in.
    #[schemars(example = &"50000-59999", extend("x-applied" = "live"))]
    pub ports: PortRange,
}

/// `[auth]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// A secret shared with the service that hands out time-limited credentials: the name is
    /// `<expiry>:<user>`, `<user>:<expiry>` or `<expiry>` alone, the expiry in seconds since 1970, and
    /// the password the base64 of HMAC-SHA1(secret, name). In the file it can be read by whoever reads
    /// the file: `secret_file` is better.
    #[schemars(extend("x-applied" = "live", "x-secret" = true))]
    pub secret: Option<SecretText>,
    /// The file that `secret` is in, without the blanks and line breaks at its ends. Relative to the
    /// configuration file. A reload reads it again.
    #[schemars(example = &"/etc/turnpike/secret", extend("x-applied" = "live"))]
    pub secret_file: Option<String>,
    /// More shared secrets, each with a name for the logs: to change a secret, add the new one, move
    /// the service over, and remove the old one. Each is tried in turn.
    #[schemars(
        example = serde_json::json!([{ "name": "2027", "secret_file": "/etc/turnpike/secret-2027" }]),
        extend("x-applied" = "live", "x-secret" = true)
    )]
    pub secrets: Vec<SecretEntry>,
    /// Whether users of the database (`turnpike user add`) may relay, beside those with a credential
    /// from a shared secret. The running server knows of a user who is added or deleted within a
    /// second; one who is deleted, or given another password, cannot prolong the allocations they
    /// have. To end those at once: `turnpike session end`.
    #[schemars(extend("x-applied" = "live"))]
    pub users: bool,
    /// Whether anybody at all may relay through this host without proving who they are. An open relay
    /// is found and abused within hours.
    #[schemars(extend("x-applied" = "live"))]
    pub open_relay: OpenRelay,
    /// Whether a time-limited credential that has run out stops its user from prolonging what they
    /// have; otherwise it stops new allocations alone, and a call lasts as long as it lasts.
    #[schemars(extend("x-applied" = "live"))]
    pub expiry_at_refresh: bool,
    /// Whether clients may send the hash of their name instead of the name (RFC 8489 §14.4). Offered
    /// only while there are no shared secrets: a time-limited name cannot be told from its hash.
    #[schemars(extend("x-applied" = "live"))]
    pub userhash: bool,
    /// Keys shared with an authorization server whose access tokens let clients in (RFC 7635), beside
    /// or instead of the above. A token says until when its client may relay: allocations end with it
    /// unless they are refreshed with another. `quotas.allocations_per_user` counts by token. To change
    /// a key, add the new one under a name of its own, move the authorization server over, and remove
    /// the old one.
    #[schemars(
        example = serde_json::json!([{ "kid": "2027", "key_file": "/etc/turnpike/token-key-2027" }]),
        extend("x-applied" = "live", "x-secret" = true)
    )]
    pub token_keys: Vec<TokenKeyEntry>,
    /// What the authorization server calls this server: clients are told it, and tokens that were made
    /// for another name are refused. Left out: the realm.
    #[schemars(example = &"turn1.example.org", extend("x-applied" = "live"))]
    pub server_name: Option<Text<1, { turn_proto::limits::SERVER_NAME_BYTES_MAX }>>,
}

/// An entry of `auth.secrets`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SecretEntry {
    /// What logs call it.
    pub name: Option<Text<1, 64>>,
    /// The secret, 16 bytes or more.
    pub secret: Option<SecretText>,
    /// The file that the secret is in, instead of `secret`.
    pub secret_file: Option<String>,
}

/// `[peers]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Peers {
    /// Networks that clients may reach although they would not by default, such as the network of a
    /// media server. The longest matching entry of both lists decides. An address of this host itself
    /// has to be written alone, not as part of a network.
    #[schemars(example = serde_json::json!(["10.20.0.0/16", "10.30.0.5"]), extend("x-applied" = "live"))]
    pub allow: Vec<Prefix>,
    /// Networks that clients may not reach although they would by default.
    #[schemars(example = serde_json::json!(["198.51.100.0/24"]), extend("x-applied" = "live"))]
    pub deny: Vec<Prefix>,
}

/// `[lifetimes]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Lifetimes {
    /// An allocation, when the client asks for no time or for less than this (RFC 8656 §7.2).
    #[schemars(extend("x-applied" = "live"))]
    pub allocation_default: Duration<60, 3600>,
    /// The longest time that an allocation is granted at once; clients prolong it as they need.
    #[schemars(extend("x-applied" = "live"))]
    pub allocation_max: Duration<60, 86_400>,
    /// A permission. RFC 8656 §9 says 5 minutes and clients rely on no less.
    #[schemars(extend("x-applied" = "live"))]
    pub permission: Duration<300, 3600>,
    /// A channel. RFC 8656 §12 says 10 minutes and clients rely on no less.
    #[schemars(extend("x-applied" = "live"))]
    pub channel: Duration<600, 3600>,
    /// A nonce, after which a client is asked for a new proof (RFC 8656 §5: an hour at most).
    #[schemars(extend("x-applied" = "live"))]
    pub nonce: Duration<60, 3600>,
    /// A port held for a client's next request (RFC 8656 §7.2: 30 seconds at least).
    #[schemars(extend("x-applied" = "live"))]
    pub reservation: Duration<30, 300>,
}

/// `[compatibility]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Compatibility {
    /// Serve clients older than RFC 8656 as well: channel numbers up to 0x7FFF, as RFC 5766 and coturn had them,
    /// and dual allocations by their draft's attribute number. coturn's own test client up to 4.6
    /// needs it; browsers and current libraries do not. Without it such a channel is refused with 400,
    /// and `turnpike status` counts it as `channel_number`.
    #[schemars(extend("x-applied" = "live"))]
    pub rfc5766_clients: bool,
    /// Takes access tokens (`auth.token_keys`) from clients that were made for coturn, too: they seal
    /// requests with the first 16 bytes of a token's session key, where RFC 7635 has them use all.
    #[schemars(extend("x-applied" = "live"))]
    pub coturn_tokens: bool,
    /// Answer STUN Binding requests of RFC 3489 ("classic STUN", without the magic cookie) as well, over
    /// UDP. Nothing that was written since 2008 sends them, and anything may look like them.
    #[schemars(extend("x-applied" = "live"))]
    pub rfc3489_clients: bool,
}

/// `[redirect]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Redirect {
    /// The server that clients who came over IPv4 are sent to.
    #[schemars(example = &"198.51.100.7:3478", extend("x-applied" = "live"))]
    pub ipv4: Option<Endpoint>,
    /// The server that clients who came over IPv6 are sent to.
    #[schemars(example = &"[2001:db8::7]:3478", extend("x-applied" = "live"))]
    pub ipv6: Option<Endpoint>,
    /// The name in that server's certificate (ALTERNATE-DOMAIN, RFC 8489 §14.16).
    #[schemars(example = &"turn2.example.org", extend("x-applied" = "live"))]
    pub domain: Option<Text<1, 255>>,
}

/// `[workers]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Workers {
    /// How many there are, 256 at most; `"auto"` is one per processor that the server may run on, and no
    /// more than the CPU time that its cgroup grants (`cpu.max`), rounded up.
    #[schemars(example = 4, extend("x-applied" = "restart"))]
    pub count: WorkerCount,
    /// Whether each stays on a processor of its own. They do where there are as many as processors that
    /// the server may use, and its cgroup grants the time of all; fewer workers are left to the scheduler,
    /// since another server could have chosen the same processors. To pin fewer, give the server those
    /// processors alone (`AllowedCPUs=` in systemd, a cpuset, `taskset`).
    #[schemars(extend("x-applied" = "restart"))]
    pub pin: bool,
}

/// `[sockets]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sockets {
    /// The kernel's receive buffer of each socket. The kernel grants no more than
    /// `net.core.rmem_max`.
    #[schemars(extend("x-applied" = "restart"))]
    pub receive_buffer: Bytes<{ 64 << 10 }, { 256 << 20 }>,
    /// The kernel's send buffer of each socket. The kernel grants no more than `net.core.wmem_max`.
    #[schemars(extend("x-applied" = "restart"))]
    pub send_buffer: Bytes<{ 64 << 10 }, { 256 << 20 }>,
    /// Whether the kernel may hand over several packets of one sender at once (UDP GRO). Off costs
    /// speed; for finding faults of a network card or its driver. Where a program at tc relays (see
    /// `offload.mode`) sockets use it only while many packets come to them all the same.
    #[schemars(extend("x-applied" = "restart"))]
    pub gro: bool,
    /// Whether several packets to one receiver are handed to the kernel at once (UDP GSO). Off costs
    /// speed; for finding faults of a network card or its driver.
    #[schemars(extend("x-applied" = "restart"))]
    pub gso: bool,
}

/// `[offload]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Offload {
    /// Where the program is attached. `xdp` is the hook in the driver of the network card;
    /// `xdp-generic` is the same behind the driver, slower, and with any driver; `tc` is the hook of
    /// traffic control, which every interface with Ethernet frames has. `auto` takes for each
    /// interface the one that suits it. `off` leaves all packets to the sockets.
    ///
    /// It needs the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; without them the server says so and
    /// relays by sockets.
    ///
    /// Firewall rules of this host (nftables, iptables) see one packet of each flow and direction in two
    /// seconds, which takes the long way through them and the sockets. What they do to it decides about the others: a
    /// ban stops a flow within five seconds. Counters and rate limits miss the others. Where such rules
    /// have to see every packet, write `off`.
    #[schemars(example = &"off", extend("x-applied" = "restart"))]
    pub mode: OffloadMode,
    /// The network interfaces that the program is attached to, by name, 64 at most. Without any:
    /// those that carry the traffic of the listeners and of the relayed addresses. What comes by
    /// another interface is relayed by sockets.
    #[schemars(example = serde_json::json!(["eth0", "eth1"]), extend("x-applied" = "restart"))]
    pub interfaces: Vec<InterfaceName>,
    /// Channels that the kernel may relay at once; those beyond are relayed by sockets. Each takes
    /// about 0.5 KiB of the kernel's memory, and 64 bytes for each processor that is online: by default
    /// 9 MiB, and 1 MiB for each processor.
    #[schemars(example = 131_072, extend("x-applied" = "restart"))]
    pub flows: Count<1024, 1_048_576>,
}

/// Where the program of the kernel path is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum OffloadMode {
    /// What suits each interface.
    Auto,
    /// In the driver of the network card.
    Xdp,
    /// Behind the driver.
    XdpGeneric,
    /// At the ingress of traffic control.
    Tc,
    /// Nowhere: sockets relay everything.
    Off,
}

impl OffloadMode {
    /// The word in the file.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xdp => "xdp",
            Self::XdpGeneric => "xdp-generic",
            Self::Tc => "tc",
            Self::Off => "off",
        }
    }
}

/// `[log]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Lines for people (`text`) or one JSON object per line for machines (`json`).
    #[schemars(extend("x-applied" = "restart"))]
    pub format: LogFormat,
    /// The least serious kind of line that is logged: `info` has one line at the end of each
    /// allocation, `debug` one for each refused request, at most 10 a second from each worker, but for
    /// those that merely came without credentials, as every first request does. `trace` adds nothing
    /// yet.
    #[schemars(example = &"debug", extend("x-applied" = "live"))]
    pub level: LogLevel,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The least serious kind of line that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogLevel {
    /// The server ends.
    Error,
    /// An operator has to act.
    Warn,
    /// Life events.
    Info,
    /// What clients do wrong.
    Debug,
    /// Everything.
    Trace,
}

/// `[control]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Control {
    /// The Unix socket, which its owner alone may use. By default `control.sock` in `data.directory`.
    #[schemars(example = &"/run/turnpike/control.sock", extend("x-applied" = "restart"))]
    pub socket: Option<String>,
}

/// `[data]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// The directory of the user database (`users.sqlite`). Created, for its owner alone, when it is
    /// not there. `--data` on the command line overrides it.
    #[schemars(example = &"/srv/turnpike", extend("x-applied" = "restart"))]
    pub directory: String,
}

/// `[shutdown]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// How long allocations may go on, without new ones, after the server was told to end (SIGTERM,
    /// or `turnpike drain` without `--deadline`); it ends when the last one has. `"0 s"` ends them at
    /// once at SIGTERM, and leaves a `turnpike drain` seven days, the most there may be.
    #[schemars(example = &"30 min", extend("x-applied" = "live"))]
    pub drain: Duration<0, 604_800>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            realm: Text::fixed("turnpike"),
            listen: vec![
                Endpoint(([0, 0, 0, 0], 3478).into()),
                Endpoint((std::net::Ipv6Addr::UNSPECIFIED, 3478).into()),
            ],
            software: None,
            mobility: false,
            relay: Relay::default(),
            auth: Auth::default(),
            peers: Peers::default(),
            quotas: Quotas::default(),
            lifetimes: Lifetimes::default(),
            compatibility: Compatibility::default(),
            discovery: Discovery::default(),
            redirect: Redirect::default(),
            workers: Workers::default(),
            tcp: Tcp::default(),
            tls: Tls::default(),
            dtls: Dtls::default(),
            sockets: Sockets::default(),
            offload: Offload::default(),
            confinement: Confinement::default(),
            log: Log::default(),
            control: Control::default(),
            data: Data::default(),
            shutdown: Shutdown::default(),
        }
    }
}

impl Default for Relay {
    fn default() -> Self {
        Self {
            addresses: vec![RelayEntry::Auto],
            external: None,
            ports: PortRange { min: 49_152, max: 65_535 }, // RFC 8656 §7.2: the dynamic ports
        }
    }
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            secret: None,
            secret_file: None,
            secrets: Vec::new(),
            users: true,
            open_relay: OpenRelay::No,
            expiry_at_refresh: true,
            userhash: true,
            token_keys: Vec::new(),
            server_name: None,
        }
    }
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            allocation_default: Duration::seconds(600),
            allocation_max: Duration::seconds(3600),
            permission: Duration::seconds(300),
            channel: Duration::seconds(600),
            nonce: Duration::seconds(600),
            reservation: Duration::seconds(30),
        }
    }
}

impl Default for Workers {
    fn default() -> Self {
        Self { count: WorkerCount::Auto, pin: true }
    }
}

impl Default for Sockets {
    fn default() -> Self {
        Self {
            receive_buffer: Bytes::new(4 << 20),
            send_buffer: Bytes::new(4 << 20),
            gro: true,
            gso: true,
        }
    }
}

impl Default for Offload {
    fn default() -> Self {
        Self { mode: OffloadMode::Auto, interfaces: Vec::new(), flows: Count::new(16_384) }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: LogLevel::Info }
    }
}

impl Default for Data {
    fn default() -> Self {
        Self { directory: "/var/lib/turnpike".to_owned() }
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { drain: Duration::seconds(0) }
    }
}
