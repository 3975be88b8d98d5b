//! From settings to the rules of the server.

use std::net::IpAddr;
use std::sync::Arc;

use turn_proto::{
    AuthPolicy, NonceKey, PeerRules, Policy, RelayAddress, RelayPorts, TokenAuthority,
};
use turn_types::{IpFamily, Prefix};

use crate::error::{Errors, Place, SettingsErrors};
use crate::settings::{Auth, Settings};
use crate::value::RelayEntry;

/// An address that relay sockets bind to, and what clients are told instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayPair {
    /// The address of this host.
    pub local: IpAddr,
    /// The address in front of it; the same where there is no NAT.
    pub public: IpAddr,
}

impl Settings {
    /// The relay addresses on a host that has `host_addresses`, the ones it reaches others from
    /// first: of each family, `"auto"` takes the first public one, otherwise the first private one,
    /// and loopback only on a host that has nothing else.
    ///
    /// # Errors
    /// When `"auto"` finds no address, or none of a family that has a public address configured.
    pub fn relay_addresses(
        &self,
        host_addresses: &[IpAddr],
    ) -> Result<Vec<RelayPair>, SettingsErrors> {
        let mut pairs: Vec<RelayPair> = Vec::new();
        let mut add = |local: IpAddr, public: Option<IpAddr>| {
            let external =
                self.relay.external.0.iter().find(|ip| IpFamily::of(**ip) == IpFamily::of(local));
            let public = public.or_else(|| external.copied()).unwrap_or(local);
            if pairs.iter().all(|pair| pair.local != local) {
                pairs.push(RelayPair { local, public });
            }
        };
        // Explicit entries first: where "auto" finds the same address, the explicit word counts.
        for entry in &self.relay.addresses {
            if let RelayEntry::Address { local, public } = entry {
                add(*local, *public);
            }
        }
        if self.relay.addresses.contains(&RelayEntry::Auto) {
            automatic(host_addresses).for_each(|local| add(local, None));
        }
        let mut errors = Errors::default();
        if pairs.is_empty() {
            errors.add(
                Place::Default,
                "relay.addresses",
                "\"auto\" found no address on this host",
                "connect the host to a network, or name an address that it has",
            );
        }
        for external in &self.relay.external.0 {
            if pairs.iter().all(|pair| pair.public != *external) {
                errors.add(
                    Place::Default,
                    "relay.external",
                    format!(
                        "\"auto\" found no {} address on this host for {external}",
                        IpFamily::of(*external)
                    ),
                    "name the local one in relay.addresses, or remove it from relay.external",
                );
            }
        }
        errors.or(pairs)
    }

    /// The rules of the server on a host that has `host_addresses` (in the order that
    /// [`Settings::relay_addresses`] wants) and delivers `own` to itself. `previous` are the rules in
    /// force, whose record of used ports goes on.
    ///
    /// # Errors
    /// As [`Settings::relay_addresses`].
    pub fn policy(
        &self,
        host_addresses: &[IpAddr],
        own: &[Prefix],
        nonce_key: NonceKey,
        previous: Option<&Policy>,
    ) -> Result<Policy, SettingsErrors> {
        let pairs = self.relay_addresses(host_addresses)?;
        let relay: Vec<RelayAddress> =
            pairs.into_iter().map(|pair| relay_address(pair, previous)).collect();
        Ok(Policy {
            realm: self.realm.clone(),
            software: self.software.clone(),
            auth: AuthPolicy {
                open: self.auth.open_relay,
                users: self.auth.users,
                secrets: self.auth.secrets.clone(),
                expiry_at_refresh: self.auth.expiry_at_refresh,
                // Of users the store knows, and whoever opens it says so.
                sha256: previous.is_none_or(|previous| previous.auth.sha256),
                userhash: self.auth.userhash && self.auth.users && self.auth.secrets.is_empty(),
                tokens: self.tokens(),
                nonce_key,
            },
            peer_rules: self.peer_rules(own, &relay),
            relay,
            ports: self.relay.ports.into(),
            lifetimes: self.lifetimes,
            quotas: self.quotas,
            alternate: self.redirect.clone(),
            unauthenticated: self.unauthenticated,
            mobility: self.mobility,
            rfc5766_clients: self.rfc5766_clients,
            tcp_relaying: self.tcp.relaying,
            rfc3489_clients: self.rfc3489_clients,
            discovery: self.discovery.clone(),
        })
    }

    /// The peer rules on a host that delivers `own` to itself: none of it can be reached as a peer unless
    /// a rule says so, nor can an address that is relayed from, or that clients are told.
    #[must_use]
    pub fn peer_rules(&self, own: &[Prefix], relay: &[RelayAddress]) -> PeerRules {
        let discovery = self.discovery.iter().flat_map(|square| square.public.iter().flatten());
        let told = relay.iter().flat_map(|relay| [relay.local, relay.public]);
        let told = told.chain(discovery.map(std::net::SocketAddr::ip));
        let own: Vec<Prefix> = own.iter().copied().chain(told.map(Prefix::host)).collect();
        PeerRules::with_own_prefixes(&self.peers.allow, &self.peers.deny, &own)
    }

    /// Whose tokens are taken.
    fn tokens(&self) -> Option<TokenAuthority> {
        let Auth { token_keys, server_name, .. } = &self.auth;
        (!token_keys.is_empty()).then(|| TokenAuthority {
            server_name: server_name.as_ref().unwrap_or(&self.realm).clone(),
            keys: token_keys.clone(),
            coturn_clients: self.coturn_tokens,
        })
    }
}

fn relay_address(pair: RelayPair, previous: Option<&Policy>) -> RelayAddress {
    let known =
        previous.and_then(|policy| policy.relay.iter().find(|relay| relay.local == pair.local));
    RelayAddress {
        local: pair.local,
        public: pair.public,
        ports: known.map_or_else(RelayPorts::new, |relay| Arc::clone(&relay.ports)),
    }
}

/// How far an address reaches; the nearer to the front, the better for a relay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Public,
    Private,
    Loopback,
}

/// What `"auto"` stands for: one address per family.
fn automatic(host_addresses: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
    let best = |family| {
        let of_family = host_addresses.iter().filter(move |ip| IpFamily::of(**ip) == family);
        // `min_by_key` keeps the first of equals.
        of_family
            .filter_map(|ip| reach(*ip).map(|reach| (reach, *ip)))
            .min_by_key(|(reach, _)| *reach)
    };
    let found: Vec<_> = IpFamily::ALL.into_iter().filter_map(best).collect();
    let connected = found.iter().any(|(reach, _)| *reach < Reach::Loopback);
    found
        .into_iter()
        .filter(move |(reach, _)| !connected || *reach < Reach::Loopback)
        .map(|(_, ip)| ip)
}

/// How far an address reaches; `None` when nothing can be relayed from it.
fn reach(ip: IpAddr) -> Option<Reach> {
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if ip.is_unspecified() || ip.is_multicast() || link_local {
        return None;
    }
    if ip.is_loopback() {
        return Some(Reach::Loopback);
    }
    let private = match ip {
        IpAddr::V4(v4) => v4.is_private() || v4.octets()[0] == 100 && v4.octets()[1] & 0xC0 == 64, // RFC 6598
        IpAddr::V6(v6) => v6.is_unique_local(),
    };
    Some(if private { Reach::Private } else { Reach::Public })
}

impl From<crate::value::PortRange> for turn_proto::PortRange {
    fn from(range: crate::value::PortRange) -> Self {
        // A range that was read begins at 1024 or above and does not end before it begins.
        Self::new(range.min, range.max).expect("a checked range of ports")
    }
}
