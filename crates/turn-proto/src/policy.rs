//! The settings of a running server: an immutable snapshot, swapped whole at a reload.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use fair_share::Supply;
use turn_types::{IpFamily, Realm, Secret, WorkerId};

pub(crate) mod alternates;
pub(crate) mod discovery;
pub(crate) mod grant_limits;
pub(crate) mod origin;
pub(crate) mod peer_rules;
pub(crate) mod peers;
pub(crate) mod ports;
pub(crate) mod prefixes;
pub(crate) mod realms;
pub(crate) mod revoked;

pub(crate) use self::grant_limits::GrantLimits;
pub(crate) use self::peer_rules::is_tunnel;
pub(crate) use self::ports::{PortLease, PortRange, PortRequirement, RelayPorts};
pub(crate) use self::prefixes::RelayPrefix;
pub(crate) use self::realms::{Entry, RealmRules};

use self::alternates::AlternateServers;
use self::peer_rules::PeerRules;
use self::realms::Realms;
use self::revoked::Revoked;
use crate::limits::CONNECTIONS_MAX;

/// All settings of the rules, checked by `settings`; the core trusts them.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The realm of requests that choose none. It is in their challenges, which a short name keeps
    /// small.
    pub realm: Realm,
    /// The other realms, with rules of their own.
    pub realms: Realms,
    /// Credentials that are refused, in all realms.
    pub revoked: Arc<Revoked>,
    /// SOFTWARE in answers to authenticated requests; `None` leaves it out (RFC 8489 §16.1.2).
    pub software: Option<Arc<str>>,
    /// Ways to authenticate.
    pub auth: AuthPolicy,
    /// Relay addresses of both families; a family with neither one nor a prefix is not served
    /// (440).
    pub relay: Vec<RelayAddress>,
    /// Prefixes whose addresses are relayed from, before the relay addresses of their family.
    pub prefixes: Vec<RelayPrefix>,
    /// Ports that may be allocated.
    pub ports: PortRange,
    /// Lifetimes of allocations and their parts.
    pub lifetimes: Lifetimes,
    /// Limits of allocations and their parts.
    pub quotas: Quotas,
    /// Peers that clients may reach.
    pub peer_rules: PeerRules,
    /// The family of a relayed address whose client names none.
    pub default_family: DefaultFamily,
    /// The servers to redirect clients to instead of serving them.
    pub alternates: AlternateServers,
    /// Rate of responses to unauthenticated requests.
    pub unauthenticated: UnauthenticatedBudget,
    /// Let clients keep an allocation when their 5-tuple changes (RFC 8016).
    pub mobility: bool,
    /// Key of mobility tickets, the same in all workers. Never shared with another server: its
    /// tickets name allocations of its own.
    pub ticket_key: NonceKey,
    /// Serve clients older than RFC 8656 as well: channel numbers up to 0x7FFF (RFC 5766 §11;
    /// coturn picks that one, too), and ADDITIONAL-ADDRESS-FAMILY under the number of its draft.
    pub rfc5766_clients: bool,
    /// Relay TCP for clients over TCP and TLS (RFC 6062). Live allocations stay when it is turned
    /// off.
    pub tcp_relaying: bool,
    /// Relay datagrams, as nearly all clients ask for; without it allocations for UDP are refused
    /// with 442. Live allocations stay when it is turned off.
    pub udp_relaying: bool,
    /// Answer Binding requests; without it they are dropped, those of clients with an allocation as
    /// well.
    pub binding: bool,
    /// Serve Binding alone: requests of TURN are not answered.
    pub stun_only: bool,
    /// Answer Binding to authenticated requests alone (RFC 8489 §12 leaves that to the server). The
    /// budgets of unauthenticated responses are as without it.
    pub binding_login: bool,
    /// Answer Binding requests without the magic cookie as well (RFC 5389 §12.2), over UDP.
    pub rfc3489_clients: bool,
    /// Sockets of NAT behaviour discovery (RFC 5780): at most one entry per family.
    pub discovery: Vec<DiscoverySockets>,
    /// Report refreshes ([`Notice::AllocationRefreshed`](crate::Notice::AllocationRefreshed)), of
    /// each allocation at most one a second: clients refresh as often as they like.
    pub tell_refreshes: bool,
}

/// Ways to authenticate.
#[derive(Clone, Debug)]
pub struct AuthPolicy {
    /// No authentication at all: an open relay.
    pub open: bool,
    /// Look names up in the user database (after the shared secrets).
    pub users: bool,
    /// Secrets of time-limited credentials, each tried in turn.
    pub secrets: Vec<SharedSecret>,
    /// Character between the parts of a time-limited name.
    pub separator: char,
    /// Refuse a Refresh with an expired time-limited credential; otherwise expiry counts in
    /// Allocate only.
    pub expiry_at_refresh: bool,
    /// Offer PASSWORD-ALGORITHMS with SHA-256: false where a user may have an MD5 key alone, and
    /// could not log in from a client that prefers SHA-256.
    pub sha256: bool,
    /// Offer username anonymity (USERHASH); needs a user database and no shared secrets, because a
    /// time-limited name cannot be recovered from its hash.
    pub userhash: bool,
    /// Time-limited names may have limits in them, behind the user id and a question mark: see
    /// [`GrantLimits`].
    pub limits_in_names: bool,
    /// Ask an authorizer outside about each Allocate of an authenticated client; `None` asks
    /// nobody.
    pub authorizer: Option<WhenSilent>,
    /// The issuer of access tokens (RFC 7635); `None` accepts none, and does not mention them.
    pub tokens: Option<TokenAuthority>,
    /// Secrets, token keys and realms of a database are not known yet. A credential that they may
    /// prove is answered as in an outage of the user database, not as a wrong one.
    pub incomplete: bool,
    /// Key of the stateless nonces, the same in all workers; random wherever a client can
    /// authenticate, or shared with other servers.
    pub nonce_key: NonceKey,
}

/// The fate of an Allocate whose authorizer gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenSilent {
    /// It is refused: 500, so that the client tries again.
    Refuse,
    /// It is served as if nobody were asked.
    Serve,
}

/// An authorization server that issues access tokens (RFC 7635).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAuthority {
    /// Its name for this server, sent in a 401; every token is tied to it. At most
    /// [`limits::SERVER_NAME_BYTES_MAX`](crate::limits::SERVER_NAME_BYTES_MAX) bytes.
    pub server_name: Arc<str>,
    /// The keys shared with it, at most [`limits::TOKEN_KEYS_MAX`](crate::limits::TOKEN_KEYS_MAX);
    /// their names differ.
    pub keys: Vec<TokenKey>,
    /// Also take requests with the integrity of the first 16 bytes of the session key alone, as
    /// coturn and clients made for it do.
    pub coturn_clients: bool,
}

/// A key shared with an authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenKey {
    /// Its name, which clients send as USERNAME.
    pub kid: Arc<str>,
    /// The algorithm with the key itself.
    pub algorithm: TokenAlgorithm,
}

/// Encryption of access tokens (RFC 7635 §4.1.1: `alg`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenAlgorithm {
    /// AES-128-GCM: `A128GCM`.
    Aes128Gcm(Secret<[u8; 16]>),
    /// AES-256-GCM: `A256GCM`.
    Aes256Gcm(Secret<[u8; 32]>),
}

/// A secret shared with the service that mints time-limited credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSecret {
    /// Its name in logs.
    pub name: String,
    /// The secret, at least 128 bits.
    pub secret: Secret<Arc<[u8]>>,
}

/// Key of the stateless nonces.
pub type NonceKey = Secret<[u8; 32]>;

/// A relay address of the server.
#[derive(Clone, Debug)]
pub struct RelayAddress {
    /// Address that relay sockets bind to.
    pub local: IpAddr,
    /// Address in XOR-RELAYED-ADDRESS: differs behind 1:1 NAT.
    pub public: IpAddr,
    /// The ports in use, over all workers. Survives a reload with the address.
    pub ports: Arc<RelayPorts>,
    /// The host has the address. Otherwise no allocation begins there, and those that are there
    /// stay.
    pub is_present: bool,
}

/// The family of a relayed address whose client names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultFamily {
    /// IPv4 (RFC 8656 §7.2).
    #[default]
    V4,
    /// IPv6.
    V6,
    /// That of the client's own address.
    Client,
}

/// Lifetimes of allocations and their parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// An allocation without LIFETIME, and the least that is granted (RFC 8656 §7.2).
    pub allocation_default: Duration,
    /// The most that is granted.
    pub allocation_max: Duration,
    /// A permission: 300 s in RFC 8656 §9.
    pub permission: Duration,
    /// A channel binding: 600 s in RFC 8656 §12.
    pub channel: Duration,
    /// A nonce; at most an hour (RFC 8656 §5).
    pub nonce: Duration,
    /// A reserved port; at least 30 s (RFC 8656 §7.2).
    pub reservation: Duration,
}

/// Limits of allocations and their parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Live allocations of one user; 0 is unlimited.
    pub allocations_per_user: u32,
    /// Live allocations of one customer, over all users; 0 is unlimited.
    pub allocations_per_customer: u32,
    /// Live allocations of all users; 0 is bounded by ports alone.
    pub allocations_total: u32,
    /// Live allocations of clients over TCP and TLS; [`u32::MAX`] is unlimited.
    pub stream_allocations: u32,
    /// Live allocations of clients over DTLS; [`u32::MAX`] is unlimited.
    pub dtls_allocations: u32,
    /// Connections with peers in one worker (RFC 6062),
    /// at most [`limits::CONNECTIONS_MAX`](crate::limits::CONNECTIONS_MAX).
    pub peer_connections: u32,
    /// Live permissions in one allocation,
    /// 1..=[`limits::PERMISSIONS_MAX`](crate::limits::PERMISSIONS_MAX).
    pub permissions: u32,
    /// Live channels in one allocation, 1..=[`limits::CHANNELS_MAX`](crate::limits::CHANNELS_MAX).
    pub channels: u32,
    /// Peers per second that one customer's clients may begin to send to (see `new_peers.rs` for
    /// bursts); 0 is unlimited.
    pub new_peers_per_second: u32,
    /// Bytes per second of one allocation, in each direction; 0 is unlimited.
    pub bytes_per_second: u64,
    /// The most that the bytes per second of all live allocations add up to, in each direction; 0
    /// is unlimited.
    pub bytes_per_second_total: u64,
}

/// Bound on responses to unauthenticated requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnauthenticatedBudget {
    /// Responses per second to one network (/24 of IPv4, /48 of IPv6) of possibly forged addresses,
    /// and as many to one customer (an address of IPv4, /64 of IPv6) at a proved address; 0 is
    /// unlimited.
    pub per_second: u32,
}

impl AuthPolicy {
    /// No way to authenticate yet; SHA-256 is offered.
    #[must_use]
    pub const fn new(nonce_key: NonceKey) -> Self {
        Self {
            open: false,
            users: false,
            secrets: Vec::new(),
            separator: ':',
            expiry_at_refresh: false,
            sha256: true,
            userhash: false,
            limits_in_names: false,
            authorizer: None,
            tokens: None,
            incomplete: false,
            nonce_key,
        }
    }
}

impl RelayAddress {
    fn is_of(&self, family: IpFamily) -> bool {
        IpFamily::of(self.local) == family
    }
}

impl Default for Lifetimes {
    /// The values of RFC 8656, and nonces of 10 minutes.
    fn default() -> Self {
        Self {
            allocation_default: Duration::from_mins(10),
            allocation_max: Duration::from_hours(1),
            permission: Duration::from_mins(5),
            channel: Duration::from_mins(10),
            nonce: Duration::from_mins(10),
            reservation: Duration::from_secs(30),
        }
    }
}

impl Default for Quotas {
    /// The defaults of the configuration.
    fn default() -> Self {
        Self {
            allocations_per_user: 1000,
            allocations_per_customer: 2000,
            allocations_total: 0,
            stream_allocations: u32::MAX,
            dtls_allocations: u32::MAX,
            peer_connections: CONNECTIONS_MAX,
            permissions: 128,
            channels: 128,
            new_peers_per_second: 100,
            bytes_per_second: 0,
            bytes_per_second_total: 0,
        }
    }
}

impl Default for UnauthenticatedBudget {
    fn default() -> Self {
        Self { per_second: 2000 }
    }
}

impl Lifetimes {
    /// The lifetime that is granted for LIFETIME in seconds: max(default, min(requested, maximum));
    /// the default without LIFETIME (RFC 8656 §7.2).
    pub(crate) fn granted(&self, requested: Option<u32>) -> Duration {
        let requested =
            requested.map_or(self.allocation_default, |secs| Duration::from_secs(secs.into()));
        requested.min(self.allocation_max).max(self.allocation_default)
    }
}

impl UnauthenticatedBudget {
    /// Failed verifications per second and customer: a twentieth of the responses.
    #[must_use]
    pub const fn failed_verifications(self) -> u32 {
        self.per_second.div_ceil(20)
    }
}

impl TokenAuthority {
    /// The key of this name.
    #[must_use]
    pub fn key(&self, kid: &str) -> Option<&TokenKey> {
        self.keys.iter().find(|key| *key.kid == *kid)
    }
}

impl Policy {
    /// A policy with the defaults of the configuration and without a relay address, so that it
    /// serves no client yet.
    #[must_use]
    pub fn new(realm: Realm, auth: AuthPolicy) -> Self {
        let ticket_key = auth.nonce_key;
        Self {
            realm,
            realms: Realms::default(),
            revoked: Arc::default(),
            software: None,
            auth,
            relay: Vec::new(),
            prefixes: Vec::new(),
            ports: PortRange::default(),
            lifetimes: Lifetimes::default(),
            quotas: Quotas::default(),
            peer_rules: PeerRules::default(),
            default_family: DefaultFamily::default(),
            alternates: AlternateServers::default(),
            unauthenticated: UnauthenticatedBudget::default(),
            mobility: false,
            ticket_key,
            rfc5766_clients: false,
            tcp_relaying: false,
            udp_relaying: true,
            binding: true,
            stun_only: false,
            binding_login: false,
            rfc3489_clients: false,
            discovery: Vec::new(),
            tell_refreshes: false,
        }
    }

    /// Relay addresses of one family that the host has.
    pub(crate) fn relay_of(&self, family: IpFamily) -> impl Iterator<Item = &RelayAddress> + Clone {
        self.relay.iter().filter(move |relay| relay.is_present && relay.is_of(family))
    }

    /// Prefixes of one family.
    pub(crate) fn prefixes_of(
        &self,
        family: IpFamily,
    ) -> impl Iterator<Item = &RelayPrefix> + Clone {
        self.prefixes.iter().filter(move |prefix| prefix.family() == family)
    }

    /// The prefix that an address is relayed from.
    #[must_use]
    pub fn prefix_of(&self, ip: IpAddr) -> Option<&RelayPrefix> {
        self.prefixes.iter().find(|prefix| prefix.contains(ip))
    }

    /// Returns true if allocations can have an address of a family.
    pub(crate) fn relays_family(&self, family: IpFamily) -> bool {
        self.relay_of(family).next().is_some() || self.prefixes_of(family).next().is_some()
    }

    /// Returns true if allocations may have an address of a family later, and now cannot: the host
    /// does not have the address.
    pub(crate) fn awaits_family(&self, family: IpFamily) -> bool {
        let is_named = self.relay.iter().any(|relay| relay.is_of(family));
        let has_none = self.relay.is_empty() && self.prefixes.is_empty();
        !self.relays_family(family) && (is_named || has_none)
    }

    /// Returns the number of relayed addresses of a family that a worker has, and can still give;
    /// of pairs of ports, where a pair is required.
    pub(crate) fn port_supply(
        &self,
        family: IpFamily,
        worker: WorkerId,
        requirement: PortRequirement,
    ) -> Supply {
        let ports_of_one = match requirement {
            PortRequirement::Any => 1,
            PortRequirement::Even | PortRequirement::EvenWithNext => 2,
        };
        let mut supply = Supply { free: 0, capacity: 0 };
        for relay in self.relay_of(family) {
            supply.free += relay.ports.free(self.ports, requirement);
            supply.capacity += relay.ports.capacity(self.ports) / ports_of_one;
        }
        for prefix in self.prefixes_of(family) {
            let Supply { free, capacity } = prefix.supply(worker);
            supply.free += free;
            supply.capacity += capacity;
        }
        supply
    }

    /// Returns true if an address is relayed from.
    pub(crate) fn relays_from(&self, ip: IpAddr) -> bool {
        self.relay.iter().any(|relay| relay.local == ip) || self.prefix_of(ip).is_some()
    }
}

/// Two addresses of one family with the same two ports on each.
///
/// In both arrays `[0][1]` is the first address with the second port. All four of an array differ,
/// and a row has one address, a column one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscoverySockets {
    /// Addresses of the listening sockets.
    pub local: [[SocketAddr; 2]; 2],
    /// Address of each in responses: differs behind 1:1 NAT.
    pub public: [[SocketAddr; 2]; 2],
}
