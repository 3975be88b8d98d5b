//! From settings to the rules of the server.

use std::net::IpAddr;
use std::sync::Arc;

use turn_proto::limits::TOKEN_KEYS_MAX;
use turn_proto::{
    AuthPolicy, NonceKey, PeerRules, PlacedRule, Policy, RelayAddress, RelayPorts, TokenAuthority,
    TokenKey, UnauthenticatedBudget,
};
use turn_types::{IpFamily, Prefix};

use crate::database_rules::add_secrets;
use crate::file::{DefaultFamily, LogFormat, WhenSilent};
use crate::host_addresses::HostAddresses;
use crate::merged::{FileRules, MergedRealm};
use crate::settings::Settings;
use crate::value::{RelayEntry, RelayPair};

/// An address that the settings want to relay from, and the host does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRelay {
    /// The key that wants it.
    pub key: &'static str,
    /// The settings name the address.
    pub is_named: bool,
    /// What is missing.
    pub what: String,
    /// What helps, if it does not come by itself.
    pub help: &'static str,
}

impl Settings {
    /// The relay addresses on a host: of each family, `"auto"` takes the first public one,
    /// otherwise the first private one. A named address is among them even where the host does not
    /// have it.
    #[must_use]
    pub fn relay_addresses(&self, host: &HostAddresses) -> Vec<RelayPair> {
        let mut pairs: Vec<RelayPair> = Vec::new();
        let mut add = |local: IpAddr, public: Option<IpAddr>| {
            let Some(public) = public.or_else(|| self.public_of(local)) else {
                return; // not found yet
            };
            if pairs.iter().all(|pair| pair.local != local) {
                pairs.push(RelayPair { local, public });
            }
        };
        // Explicit entries first: they count where "auto" finds the same address.
        for entry in &self.relay.addresses {
            if let RelayEntry::Address { local, public } = entry {
                add(*local, *public);
            }
        }
        if self.relay.addresses.contains(&RelayEntry::Auto) {
            automatic(host.usable()).for_each(|local| add(local, None));
        }
        pairs
    }

    /// The relay addresses that are missing on a host. The server serves without them, and takes
    /// them when they come.
    #[must_use]
    pub fn missing_relays(&self, host: &HostAddresses) -> Vec<MissingRelay> {
        let pairs = self.relay_addresses(host);
        let mut missing = Vec::new();
        if pairs.is_empty() && self.is_external_auto() {
            missing.push(MissingRelay {
                key: "relay.external",
                is_named: false,
                what: "\"auto\" has found no public address of this host".to_owned(),
                help: "see that UDP to the servers of relay.external_stun passes, or the cloud of relay.external_metadata is \
                       right, or write the address here",
            });
        } else if pairs.is_empty() {
            missing.push(MissingRelay {
                key: "relay.addresses",
                is_named: false,
                what: "\"auto\" finds no address on this host other than loopback".to_owned(),
                help: "connect the host to a network, or name an address that it has",
            });
        }
        for RelayPair { local, .. } in &pairs {
            if !host.has(*local) {
                missing.push(MissingRelay {
                    key: "relay.addresses",
                    is_named: true,
                    what: format!("{local} is no address of this host"),
                    help: "name one of `ip address`; behind NAT write the host's own address there and the public one in \
                           relay.external",
                });
            }
        }
        for external in self.external() {
            if pairs.iter().all(|pair| pair.public != *external) {
                missing.push(MissingRelay {
                    key: "relay.external",
                    is_named: false,
                    what: format!(
                        "\"auto\" finds no {} address on this host for {external}",
                        IpFamily::of(*external)
                    ),
                    help: "name the local one in relay.addresses, or remove it from relay.external",
                });
            }
        }
        missing
    }

    /// The rules of the server on a host that delivers `own` to itself. `own_key` is for nonces,
    /// unless one is shared with other servers, and for tickets. `previous` are the rules in force,
    /// and their record of used ports goes on.
    #[must_use]
    pub fn policy(
        &self,
        host: &HostAddresses,
        own: &[Prefix],
        own_key: NonceKey,
        previous: Option<&Policy>,
    ) -> Policy {
        let nonce_key = self.nonce_key.unwrap_or(own_key);
        let relay = self.relays(host, previous);
        let database = self.own_of_database();
        let realms = self.realm_policies(own, &relay, nonce_key, previous);
        let mut secrets = self.secrets.clone();
        add_secrets(&mut secrets, database.map_or(&[], |realm| &realm.secrets));
        let mut quotas: turn_proto::Quotas = (&self.quotas).into();
        if let Some(database) = database {
            let user = database.allocations_per_user;
            quotas.allocations_per_user = user.unwrap_or(quotas.allocations_per_user);
            quotas.bytes_per_second = database.bytes_per_second.unwrap_or(quotas.bytes_per_second);
        }
        Policy {
            realm: (*self.realm).into(),
            realms,
            revoked: previous.map(|previous| Arc::clone(&previous.revoked)).unwrap_or_default(),
            software: self.software.as_deref().map(Into::into),
            auth: AuthPolicy {
                open: self.auth.open_relay.is_open(),
                users: self.auth.users,
                secrets,
                separator: self.separator(),
                limits_in_names: self.auth.limits_in_names,
                authorizer: self.when_silent(),
                expiry_at_refresh: self.auth.expiry_at_refresh,
                // Known from the user store, by the caller.
                sha256: previous.is_none_or(|previous| previous.auth.sha256),
                userhash: self.auth.userhash
                    && self.auth.users
                    && self.secrets.is_empty()
                    // Coturn's layout has no hashes of names to find them by.
                    && !self.user_database().has_coturn_layout(),
                tokens: self.tokens(),
                incomplete: self.of_database.is_incomplete,
                nonce_key,
            },
            peer_rules: self.peer_rules(own, &relay),
            relay,
            // Made at the start, where the number of workers is known.
            prefixes: previous.map(|previous| previous.prefixes.clone()).unwrap_or_default(),
            ports: self.relay.ports.into(),
            lifetimes: (&self.lifetimes).into(),
            quotas,
            default_family: match self.relay.default_family {
                DefaultFamily::Ipv4 => turn_proto::DefaultFamily::V4,
                DefaultFamily::Ipv6 => turn_proto::DefaultFamily::V6,
                DefaultFamily::Client => turn_proto::DefaultFamily::Client,
            },
            alternates: self.alternate_servers(),
            unauthenticated: UnauthenticatedBudget {
                per_second: self.quotas.unauthenticated_responses_per_second.get(),
            },
            mobility: self.mobility,
            ticket_key: own_key,
            rfc5766_clients: self.compatibility.rfc5766_clients,
            tcp_relaying: self.tcp.relaying,
            udp_relaying: self.udp.relaying,
            binding: self.binding,
            stun_only: !self.relay.enabled,
            binding_login: self.auth.binding,
            rfc3489_clients: self.compatibility.rfc3489_clients,
            discovery: self.discovery_sockets.clone(),
            tell_refreshes: self.statistics().is_some() || self.log.format == LogFormat::Coturn,
        }
    }

    /// The fate of clients whose authorizer is silent, where there is one.
    pub(crate) fn when_silent(&self) -> Option<turn_proto::WhenSilent> {
        self.authorizer.url.as_ref()?;
        Some(match self.authorizer.when_silent {
            WhenSilent::Refuse => turn_proto::WhenSilent::Refuse,
            WhenSilent::Serve => turn_proto::WhenSilent::Serve,
        })
    }

    /// The separator of time-limited names.
    pub(crate) fn separator(&self) -> char {
        self.auth.separator.chars().next().unwrap_or(':')
    }

    /// The peer rules on a host that delivers `own` to itself: these, the relay addresses and the
    /// public ones are no peers unless a rule allows them.
    #[must_use]
    pub fn peer_rules(&self, own: &[Prefix], relay: &[RelayAddress]) -> PeerRules {
        self.peer_rules_of(None, own, relay)
    }

    /// The peer rules of the server's own realm, or of another one beside them.
    pub(crate) fn peer_rules_of(
        &self,
        realm: Option<&MergedRealm<'_>>,
        own: &[Prefix],
        relay: &[RelayAddress],
    ) -> PeerRules {
        let discovery =
            self.discovery_sockets.iter().flat_map(|sockets| sockets.public.as_flattened());
        let told = relay.iter().flat_map(|relay| [relay.local, relay.public]);
        let told = told.chain(discovery.map(std::net::SocketAddr::ip)).map(Prefix::host);
        let routed = self.relay.prefixes.iter().map(|prefix| prefix.0);
        let own: Vec<Prefix> = own.iter().copied().chain(told).chain(routed).collect();
        let mut rules = FileRules {
            allow: prefixes(&self.peers.allow),
            deny: prefixes(&self.peers.deny),
            places: Vec::new(),
        };
        let place = |index| self.places.of_entry("peers.deny", index);
        let denied = rules.deny.iter().enumerate();
        rules.places = denied.map(|(index, prefix)| placed(*prefix, &place(index))).collect();
        if let Some(realm) = realm
            && let Some(index) = realm.index
        {
            let peers = &realm.entry.peers;
            rules.allow.extend(prefixes(&peers.allow));
            let place = self.places.of_entry("realms", index);
            let denied = prefixes(&peers.deny);
            rules.places.extend(denied.iter().map(|prefix| placed(*prefix, &place)));
            rules.deny.extend(denied);
        }
        let of_database = realm.map_or_else(|| self.own_of_database(), |realm| realm.database);
        self.add_database_peers(of_database, &own, &mut rules);
        let FileRules { allow, deny, places } = rules;
        PeerRules::with_own_prefixes(&allow, &deny, &own).with_places(places)
    }

    /// The relay addresses of the rules behind `previous`, with those that the host had a moment
    /// ago: their allocations stay.
    #[must_use]
    pub fn relays(&self, host: &HostAddresses, previous: Option<&Policy>) -> Vec<RelayAddress> {
        let pairs = self.relay_addresses(host).into_iter();
        let mut relays: Vec<RelayAddress> =
            pairs.map(|pair| relay_address(pair, host, previous)).collect();
        let is_wanted = self.relay.addresses.contains(&RelayEntry::Auto);
        for known in previous.iter().filter(|_| is_wanted).flat_map(|policy| &policy.relay) {
            let is_leaving = host.had(known.local);
            if is_leaving && relays.iter().all(|relay| relay.local != known.local) {
                relays.push(RelayAddress { is_present: false, ..known.clone() });
            }
        }
        relays
    }

    /// Addresses that `relay.external` = `"auto"` finds public ones for, on a host with these
    /// addresses.
    #[must_use]
    pub fn addresses_behind_nat(&self, host: &HostAddresses) -> Vec<IpAddr> {
        if !self.is_external_auto() {
            return Vec::new();
        }
        let mut all: Vec<IpAddr> = Vec::new();
        for entry in &self.relay.addresses {
            match entry {
                RelayEntry::Auto => all.extend(automatic(host.usable())),
                RelayEntry::Address { local, public: None } => all.push(*local),
                RelayEntry::Address { public: Some(_), .. } => {}
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The public address of a local one; `None` while it is not found.
    fn public_of(&self, local: IpAddr) -> Option<IpAddr> {
        if self.is_external_auto() {
            return self.found.iter().find(|pair| pair.local == local).map(|pair| pair.public);
        }
        let external = self.external().iter().find(|ip| IpFamily::of(**ip) == IpFamily::of(local));
        Some(external.copied().unwrap_or(local))
    }

    /// Public addresses of `relay.external`.
    fn external(&self) -> &[IpAddr] {
        self.relay.external.as_ref().map_or(&[], |external| &external.0)
    }

    /// The authorization server for access tokens of the server's own realm.
    fn tokens(&self) -> Option<TokenAuthority> {
        let server_name = self.auth.server_name.as_deref().unwrap_or(&self.realm);
        let of_database = self.own_of_database().map_or(&[][..], |realm| &realm.token_keys);
        self.token_authority(server_name, self.token_keys.iter().chain(of_database))
    }

    /// The authorization server with these keys, of which the first of a name counts; `None`
    /// without any.
    pub(crate) fn token_authority<'a>(
        &self,
        server_name: &str,
        keys: impl Iterator<Item = &'a TokenKey>,
    ) -> Option<TokenAuthority> {
        let mut all: Vec<TokenKey> = Vec::new();
        for key in keys.take(TOKEN_KEYS_MAX) {
            if all.iter().all(|known| known.kid != key.kid) {
                all.push(key.clone());
            }
        }
        (!all.is_empty()).then(|| TokenAuthority {
            server_name: server_name.into(),
            keys: all,
            coturn_clients: self.compatibility.coturn_tokens,
        })
    }
}

fn prefixes(list: &[crate::value::Prefix]) -> Vec<Prefix> {
    list.iter().map(|prefix| prefix.0).collect()
}

fn placed(prefix: Prefix, place: &crate::error::Place) -> PlacedRule {
    PlacedRule { prefix, place: place.to_string().into() }
}

fn relay_address(pair: RelayPair, host: &HostAddresses, previous: Option<&Policy>) -> RelayAddress {
    let known =
        previous.and_then(|policy| policy.relay.iter().find(|relay| relay.local == pair.local));
    RelayAddress {
        local: pair.local,
        public: pair.public,
        ports: known.map_or_else(RelayPorts::new, |relay| Arc::clone(&relay.ports)),
        is_present: host.has(pair.local),
    }
}

/// Scope of an address; the nearer to the front, the better for a relay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Public,
    Private,
}

/// The addresses of `"auto"`: one per family.
fn automatic(host_addresses: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
    let best = |family| {
        let of_family = host_addresses.iter().filter(move |ip| IpFamily::of(**ip) == family);
        // `min_by_key` keeps the first of equals.
        of_family
            .filter_map(|ip| reach(*ip).map(|reach| (reach, *ip)))
            .min_by_key(|(reach, _)| *reach)
    };
    IpFamily::ALL.into_iter().filter_map(best).map(|(_, ip)| ip)
}

/// Scope of an address; `None` when nothing can be relayed from it.
fn reach(ip: IpAddr) -> Option<Reach> {
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || link_local {
        return None;
    }
    let private = match ip {
        // The last two conditions: RFC 6598.
        IpAddr::V4(v4) => v4.is_private() || v4.octets()[0] == 100 && v4.octets()[1] & 0xC0 == 64,
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
