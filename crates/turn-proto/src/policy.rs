//! Settings of a running server, as an immutable snapshot. A reload replaces the complete snapshot.

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

/// All settings that the core applies. The crate `settings` checks the values, and the core trusts
/// these checks.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Realm of requests that choose no other realm. Keep the name short: 401 challenges contain
    /// it.
    pub realm: Realm,
    /// Other realms, each with separate rules.
    pub realms: Realms,
    /// Revoked credentials of all realms.
    pub revoked: Arc<Revoked>,
    /// SOFTWARE in responses to authenticated requests; `None` omits the attribute (RFC 8489
    /// §16.1.2).
    pub software: Option<Arc<str>>,
    /// Authentication of clients.
    pub auth: AuthPolicy,
    /// Relay addresses of both families. A family without a relay address and without a prefix is
    /// not served (440).
    pub relay: Vec<RelayAddress>,
    /// Prefixes to relay from. A prefix takes precedence over the relay addresses of the same
    /// family.
    pub prefixes: Vec<RelayPrefix>,
    /// Ports for allocations.
    pub ports: PortRange,
    /// Lifetimes of allocations, permissions, channels, nonces and reservations.
    pub lifetimes: Lifetimes,
    /// Limits of allocations, permissions, channels, connections and bandwidth.
    pub quotas: Quotas,
    /// Rules for the peers that clients may reach.
    pub peer_rules: PeerRules,
    /// Family of the relayed address if the client requests no family.
    pub default_family: DefaultFamily,
    /// Servers that clients are redirected to instead of being served here.
    pub alternates: AlternateServers,
    /// Rate limit of responses to unauthenticated requests.
    pub unauthenticated: UnauthenticatedBudget,
    /// True if a client can keep an allocation when the client's 5-tuple changes (RFC 8016).
    pub mobility: bool,
    /// Key of mobility tickets, equal in all workers. Never share the key with another server,
    /// because a ticket contains the id of an allocation of this server.
    pub ticket_key: NonceKey,
    /// True if clients older than RFC 8656 are served as well. Channel numbers may then reach
    /// 0x7FFF (RFC 5766 §11), and the client of coturn chooses such numbers.
    /// ADDITIONAL-ADDRESS-FAMILY is also read under the number of its draft.
    pub rfc5766_clients: bool,
    /// True if TCP is relayed for clients over TCP and TLS (RFC 6062). Disabling at a reload keeps
    /// live allocations.
    pub tcp_relaying: bool,
    /// True if datagrams are relayed, which nearly all clients request. Otherwise allocations for
    /// UDP are refused with 442. Disabling at a reload keeps live allocations.
    pub udp_relaying: bool,
    /// True if Binding requests get a response. Otherwise the server drops all Binding requests,
    /// including requests of clients with an allocation.
    pub binding: bool,
    /// True if Binding is the only served method. All other requests are dropped.
    pub stun_only: bool,
    /// True if Binding requires authentication (RFC 8489 §12 permits both). The budgets for
    /// unauthenticated responses do not change.
    pub binding_login: bool,
    /// True if Binding requests over UDP without the magic cookie get a response (RFC 5389 §12.2).
    pub rfc3489_clients: bool,
    /// Sockets of NAT behaviour discovery (RFC 5780), at most one entry per family.
    pub discovery: Vec<DiscoverySockets>,
    /// True if refreshes are reported
    /// ([`Notice::AllocationRefreshed`](crate::Notice::AllocationRefreshed)). Clients choose the
    /// frequency, so an allocation has at most one report per second.
    pub tell_refreshes: bool,
}

/// Authentication of clients.
#[derive(Clone, Debug)]
pub struct AuthPolicy {
    /// True for an open relay, which requires no authentication.
    pub open: bool,
    /// True if user names are looked up in the user database, after the shared secrets.
    pub users: bool,
    /// Shared secrets of time-limited credentials, tried in the listed order.
    pub secrets: Vec<SharedSecret>,
    /// Separator between the parts of a time-limited user name.
    pub separator: char,
    /// True if a Refresh with an expired time-limited credential is refused. Otherwise expiry
    /// applies only to Allocate.
    pub expiry_at_refresh: bool,
    /// True if PASSWORD-ALGORITHMS offers SHA-256. Must be false if a user may have only an MD5
    /// key, because a client that prefers SHA-256 could not authenticate.
    pub sha256: bool,
    /// True if username anonymity (USERHASH) is offered. Requires a user database and no shared
    /// secrets, because a time-limited name cannot be recovered from a hash.
    pub userhash: bool,
    /// True if a time-limited name may contain limits after the user id and a question mark. See
    /// [`GrantLimits`].
    pub limits_in_names: bool,
    /// Fallback of the external authorizer, which decides each Allocate of an authenticated client.
    /// `None` disables the authorizer.
    pub authorizer: Option<WhenSilent>,
    /// Issuer of access tokens (RFC 7635). `None` accepts no token and offers none in a 401.
    pub tokens: Option<TokenAuthority>,
    /// True while secrets, token keys and realms of a database are not available yet. A credential
    /// that these could prove is refused as in an outage of the user database, and not as wrong.
    pub incomplete: bool,
    /// Key of the stateless nonces, equal in all workers. If clients can authenticate, the key must
    /// be random or shared with other servers.
    pub nonce_key: NonceKey,
}

/// Result of an Allocate without an answer from the authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenSilent {
    /// The request is refused with 500, and the client can retry.
    Refuse,
    /// The request is served as without an authorizer.
    Serve,
}

/// Authorization server that issues access tokens (RFC 7635).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAuthority {
    /// Name of this server at the authorization server, sent in a 401. Every token is bound to this
    /// name. At most [`limits::SERVER_NAME_BYTES_MAX`](crate::limits::SERVER_NAME_BYTES_MAX) bytes.
    pub server_name: Arc<str>,
    /// Keys shared with the authorization server, at most
    /// [`limits::TOKEN_KEYS_MAX`](crate::limits::TOKEN_KEYS_MAX), with distinct names.
    pub keys: Vec<TokenKey>,
    /// True if a MESSAGE-INTEGRITY keyed with only the first 16 bytes of the session key is
    /// accepted as well. This is the key of coturn and of clients written for coturn.
    pub coturn_clients: bool,
}

/// Key shared with an authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenKey {
    /// Name of the key, which clients send as USERNAME.
    pub kid: Arc<str>,
    /// Algorithm and key.
    pub algorithm: TokenAlgorithm,
}

/// Encryption of access tokens (`alg` in RFC 7635 §4.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenAlgorithm {
    /// AES-128-GCM (`A128GCM`).
    Aes128Gcm(Secret<[u8; 16]>),
    /// AES-256-GCM (`A256GCM`).
    Aes256Gcm(Secret<[u8; 32]>),
}

/// Secret shared with the service that mints time-limited credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSecret {
    /// Name of the secret in logs.
    pub name: String,
    /// Secret of at least 128 bits.
    pub secret: Secret<Arc<[u8]>>,
}

/// Key of the stateless nonces.
pub type NonceKey = Secret<[u8; 32]>;

/// Relay address of the server.
#[derive(Clone, Debug)]
pub struct RelayAddress {
    /// Address that relay sockets bind to.
    pub local: IpAddr,
    /// Address in XOR-RELAYED-ADDRESS, different from `local` with 1:1 NAT.
    pub public: IpAddr,
    /// Ports in use by all workers. A reload keeps this table as long as the address is configured.
    pub ports: Arc<RelayPorts>,
    /// True if the host has the address. Otherwise no allocation is created at the address, and
    /// existing allocations remain.
    pub is_present: bool,
}

/// Family of the relayed address if the client requests no family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultFamily {
    /// IPv4 (RFC 8656 §7.2).
    #[default]
    V4,
    /// IPv6.
    V6,
    /// Family of the client's address.
    Client,
}

/// Lifetimes of allocations, permissions, channels, nonces and reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Lifetime of an allocation without LIFETIME, and the minimum lifetime (RFC 8656 §7.2).
    pub allocation_default: Duration,
    /// Maximum lifetime of an allocation.
    pub allocation_max: Duration,
    /// Lifetime of a permission, 300 s in RFC 8656 §9.
    pub permission: Duration,
    /// Lifetime of a channel binding, 600 s in RFC 8656 §12.
    pub channel: Duration,
    /// Lifetime of a nonce, at most one hour (RFC 8656 §5).
    pub nonce: Duration,
    /// Lifetime of a reserved port, at least 30 s (RFC 8656 §7.2).
    pub reservation: Duration,
}

/// Limits of allocations, permissions, channels, connections and bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Maximum number of live allocations per user; 0 is unlimited.
    pub allocations_per_user: u32,
    /// Maximum number of live allocations per customer, over all users; 0 is unlimited. A customer
    /// is an IPv4 address or an IPv6 /64.
    pub allocations_per_customer: u32,
    /// Maximum number of live allocations of all users; 0 is unlimited except by the number of
    /// ports.
    pub allocations_total: u32,
    /// Maximum number of live allocations of clients over TCP and TLS; [`u32::MAX`] is unlimited.
    pub stream_allocations: u32,
    /// Maximum number of live allocations of clients over DTLS; [`u32::MAX`] is unlimited.
    pub dtls_allocations: u32,
    /// Maximum number of connections with peers per worker (RFC 6062), at most
    /// [`limits::CONNECTIONS_MAX`](crate::limits::CONNECTIONS_MAX).
    pub peer_connections: u32,
    /// Maximum number of live permissions per allocation,
    /// 1..=[`limits::PERMISSIONS_MAX`](crate::limits::PERMISSIONS_MAX).
    pub permissions: u32,
    /// Maximum number of live channels per allocation,
    /// 1..=[`limits::CHANNELS_MAX`](crate::limits::CHANNELS_MAX).
    pub channels: u32,
    /// Maximum number of new peers per second and customer; 0 is unlimited. See `new_peers.rs` for
    /// bursts.
    pub new_peers_per_second: u32,
    /// Maximum bytes per second of an allocation in each direction; 0 is unlimited.
    pub bytes_per_second: u64,
    /// Maximum sum of all allocations' rates in bytes per second, in each direction; 0 is
    /// unlimited.
    pub bytes_per_second_total: u64,
}

/// Limit of responses to unauthenticated requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnauthenticatedBudget {
    /// Maximum number of responses per second; 0 is unlimited. The limit applies to each network
    /// (IPv4 /24, IPv6 /48) of unproved source addresses, which may be forged. The same limit
    /// applies to each customer (an IPv4 address, IPv6 /64) at a proved address.
    pub per_second: u32,
}

impl AuthPolicy {
    /// Returns a policy without a way to authenticate. SHA-256 is offered.
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
    /// Returns the values of RFC 8656, with nonces of 10 minutes.
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
    /// Returns the defaults of the configuration.
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
    /// Returns the lifetime granted for a LIFETIME in seconds: max(default, min(requested,
    /// maximum)). Without LIFETIME the result is the default (RFC 8656 §7.2).
    pub(crate) fn granted(&self, requested: Option<u32>) -> Duration {
        let requested =
            requested.map_or(self.allocation_default, |secs| Duration::from_secs(secs.into()));
        requested.min(self.allocation_max).max(self.allocation_default)
    }
}

impl UnauthenticatedBudget {
    /// Returns the budget of failed verifications per second and customer: a twentieth of the
    /// responses.
    #[must_use]
    pub const fn failed_verifications(self) -> u32 {
        self.per_second.div_ceil(20)
    }
}

impl TokenAuthority {
    /// Returns the key with the name `kid`.
    #[must_use]
    pub fn key(&self, kid: &str) -> Option<&TokenKey> {
        self.keys.iter().find(|key| *key.kid == *kid)
    }
}

impl Policy {
    /// Returns a policy with the defaults of the configuration. The policy has no relay address,
    /// and therefore serves no client yet.
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

    /// Returns the relay addresses of a family that the host has.
    pub(crate) fn relay_of(&self, family: IpFamily) -> impl Iterator<Item = &RelayAddress> + Clone {
        self.relay.iter().filter(move |relay| relay.is_present && relay.is_of(family))
    }

    /// Returns the prefixes of a family.
    pub(crate) fn prefixes_of(
        &self,
        family: IpFamily,
    ) -> impl Iterator<Item = &RelayPrefix> + Clone {
        self.prefixes.iter().filter(move |prefix| prefix.family() == family)
    }

    /// Returns the prefix that contains an address.
    #[must_use]
    pub fn prefix_of(&self, ip: IpAddr) -> Option<&RelayPrefix> {
        self.prefixes.iter().find(|prefix| prefix.contains(ip))
    }

    /// Returns true if allocations can have an address of a family.
    pub(crate) fn relays_family(&self, family: IpFamily) -> bool {
        self.relay_of(family).next().is_some() || self.prefixes_of(family).next().is_some()
    }

    /// Returns true if allocations of a family are impossible now and may be possible later. The
    /// host does not have the configured addresses, or none is configured.
    pub(crate) fn awaits_family(&self, family: IpFamily) -> bool {
        let is_named = self.relay.iter().any(|relay| relay.is_of(family));
        let has_none = self.relay.is_empty() && self.prefixes.is_empty();
        !self.relays_family(family) && (is_named || has_none)
    }

    /// Returns the capacity and the free number of relayed addresses of a family for a worker. If
    /// the requirement is an even port, relay addresses count pairs of ports.
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

    /// Returns true if an address is a relay address or belongs to a prefix.
    pub(crate) fn relays_from(&self, ip: IpAddr) -> bool {
        self.relay.iter().any(|relay| relay.local == ip) || self.prefix_of(ip).is_some()
    }
}

/// Two addresses of a family, with two ports that both addresses have.
///
/// In both arrays `[0][1]` is the first address with the second port. All four entries of an array
/// differ. A row has a common address, and a column has a common port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscoverySockets {
    /// Addresses of the listening sockets.
    pub local: [[SocketAddr; 2]; 2],
    /// Addresses in responses, different from `local` with 1:1 NAT.
    pub public: [[SocketAddr; 2]; 2],
}
