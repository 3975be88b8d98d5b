//! Rules of each realm, and the choice of a realm for a request.
//!
//! A request is judged in the realm of the REALM attribute. Without a known REALM, the realm is
//! chosen by ORIGIN, then by the TLS server name of the client, then by the server's address.
//! Otherwise the server's own realm applies. Nonces, keys, accounts and tickets are bound to the
//! name of a realm, so they are invalid in another realm.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use stun_wire::{AttributeType, Message};
use turn_types::{FiveTuple, Realm};

use super::alternates::AlternateServers;
use super::origin::Origin;
use super::peer_rules::PeerRules;
use super::revoked::Revoked;
use super::{AuthPolicy, Lifetimes, Policy, Quotas};
use crate::limits::ORIGINS_READ_MAX;

/// Realm in addition to the server's own realm, with separate rules.
#[derive(Clone, Debug)]
pub struct RealmPolicy {
    /// Unique name of the realm.
    pub name: Realm,
    /// Origins of web pages that choose the realm (ORIGIN). No two realms share an origin.
    pub origins: Vec<Origin>,
    /// Server names that choose the realm (SNI), in lower case. No two realms share a server name.
    pub server_names: Vec<String>,
    /// Addresses of listeners that choose the realm. No two realms share a listener.
    pub listeners: Vec<SocketAddr>,
    /// SOFTWARE, as in [`Policy`].
    pub software: Option<Arc<str>>,
    /// Authentication of clients. The key of the nonces is the server's key.
    pub auth: AuthPolicy,
    /// Lifetimes of allocations, permissions, channels, nonces and reservations.
    pub lifetimes: Lifetimes,
    /// Limits of the realm, where `allocations_total` and `bytes_per_second_total` apply to this
    /// realm only. The limits of customers are the server's limits.
    pub quotas: Quotas,
    /// Rules for the peers that clients may reach.
    pub peer_rules: PeerRules,
    /// Servers to redirect clients to.
    pub alternates: AlternateServers,
}

/// Realms in addition to the server's own realm.
#[derive(Clone, Debug, Default)]
pub struct Realms {
    all: Vec<RealmPolicy>,
    /// Indexes into `all`.
    by_name: BTreeMap<Realm, usize>,
    by_origin: BTreeMap<Origin, usize>,
    by_server_name: BTreeMap<String, usize>,
    by_listener: BTreeMap<SocketAddr, usize>,
    takes_tokens: bool,
    /// Maximum number of live allocations in the server's own realm; 0 leaves only the server's
    /// limit.
    own_allocations_max: u32,
}

/// Rules of a realm. The rules are looked up once for a request, for a new or imported allocation,
/// and after a reload. Packets need no look-up, because an allocation stores its rate, and peers
/// are judged in advance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RealmRules<'a> {
    pub(crate) name: &'a Realm,
    pub(crate) software: Option<&'a Arc<str>>,
    pub(crate) auth: &'a AuthPolicy,
    pub(crate) revoked: &'a Revoked,
    pub(crate) lifetimes: &'a Lifetimes,
    pub(crate) quotas: &'a Quotas,
    /// Maximum number of live allocations in this realm; 0 leaves only the server's limit.
    pub(crate) allocations_max: u32,
    /// Maximum sum of the rates of this realm's live allocations, in bytes per second; 0 leaves
    /// only the server's limit.
    pub(crate) bytes_per_second_max: u64,
    pub(crate) peer_rules: &'a PeerRules,
    pub(crate) alternates: &'a AlternateServers,
}

impl Realms {
    /// Returns the realms, which the crate `settings` has checked.
    #[must_use]
    pub fn new(all: Vec<RealmPolicy>) -> Self {
        let mut realms = Self::default();
        for (place, realm) in all.iter().enumerate() {
            realms.takes_tokens |= realm.auth.tokens.is_some();
            realms.by_name.insert(realm.name.clone(), place);
            realms.by_origin.extend(realm.origins.iter().map(|origin| (origin.clone(), place)));
            let names = realm.server_names.iter();
            realms.by_server_name.extend(names.map(|name| (name.clone(), place)));
            realms.by_listener.extend(realm.listeners.iter().map(|addr| (*addr, place)));
        }
        Self { all, ..realms }
    }

    /// Sets the maximum number of live allocations in the server's own realm; 0 leaves only the
    /// server's limit.
    #[must_use]
    pub fn with_own_allocations_max(mut self, most: u32) -> Self {
        self.own_allocations_max = most;
        self
    }

    /// Returns an iterator over the realms.
    pub fn iter(&self) -> core::slice::Iter<'_, RealmPolicy> {
        self.all.iter()
    }

    /// Returns the realm with this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&RealmPolicy> {
        self.all.get(*self.by_name.get(name)?)
    }

    /// Applies `change` to each realm. `change` must not alter the name, the origins, the server
    /// names or the listeners.
    #[must_use]
    pub fn map(mut self, change: impl FnMut(&mut RealmPolicy)) -> Self {
        self.all.iter_mut().for_each(change);
        self
    }

    /// Returns true if the server has only its own realm.
    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns true if server names choose realms.
    pub(crate) fn have_server_names(&self) -> bool {
        !self.by_server_name.is_empty()
    }

    fn of_request(&self, request: &Entry<'_>) -> Option<&RealmPolicy> {
        let by_origin = || {
            let origins = request.message.all(AttributeType::ORIGIN).take(ORIGINS_READ_MAX);
            origins.filter_map(Origin::read).find_map(|origin| self.by_origin.get(&origin))
        };
        let by_server_name = || self.by_server_name.get(request.server_name?);
        let by_listener = || self.listener(request.five_tuple.server.0);
        let place = by_origin().or_else(by_server_name).or_else(by_listener)?;
        self.all.get(*place)
    }

    /// Returns the index of a listener's realm, by the exact address or by the wildcard address
    /// with the port.
    fn listener(&self, at: SocketAddr) -> Option<&usize> {
        let wildcard: IpAddr =
            if at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let listeners = &self.by_listener;
        listeners.get(&at).or_else(|| listeners.get(&SocketAddr::new(wildcard, at.port())))
    }
}

/// Parts of a request that choose the realm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) five_tuple: &'a FiveTuple,
    /// Server name from the TLS or DTLS client, in lower case.
    pub(crate) server_name: Option<&'a str>,
    pub(crate) message: &'a Message<'a>,
}

impl RealmPolicy {
    fn rules<'a>(&'a self, revoked: &'a Revoked) -> RealmRules<'a> {
        RealmRules {
            name: &self.name,
            software: self.software.as_ref(),
            auth: &self.auth,
            revoked,
            lifetimes: &self.lifetimes,
            quotas: &self.quotas,
            allocations_max: self.quotas.allocations_total,
            bytes_per_second_max: self.quotas.bytes_per_second_total,
            peer_rules: &self.peer_rules,
            alternates: &self.alternates,
        }
    }
}

impl Policy {
    /// Returns the rules of the server's own realm.
    pub(crate) fn own_rules(&self) -> RealmRules<'_> {
        RealmRules {
            name: &self.realm,
            software: self.software.as_ref(),
            auth: &self.auth,
            revoked: &self.revoked,
            lifetimes: &self.lifetimes,
            quotas: &self.quotas,
            allocations_max: self.realms.own_allocations_max,
            bytes_per_second_max: 0,
            peer_rules: &self.peer_rules,
            alternates: &self.alternates,
        }
    }

    /// Returns true if any realm accepts access tokens.
    pub(crate) fn takes_tokens(&self) -> bool {
        self.auth.tokens.is_some() || self.realms.takes_tokens
    }

    /// Returns the rules of a realm. If the realm was removed or renamed, the server's own rules
    /// apply.
    pub(crate) fn of(&self, realm: &Realm) -> RealmRules<'_> {
        if self.realms.all.is_empty() || *realm == self.realm {
            return self.own_rules();
        }
        let named = self.realms.named(realm);
        named.map_or_else(|| self.own_rules(), |realm| realm.rules(&self.revoked))
    }

    /// Returns the rules that judge a request.
    pub(crate) fn of_request(&self, request: &Entry<'_>) -> RealmRules<'_> {
        if self.realms.all.is_empty() {
            return self.own_rules();
        }
        let named = request.message.first(AttributeType::REALM);
        if named == Some(self.realm.as_bytes()) {
            return self.own_rules();
        }
        let named = named.and_then(|name| self.realms.named(core::str::from_utf8(name).ok()?));
        let chosen = named.or_else(|| self.realms.of_request(request));
        chosen.map_or_else(|| self.own_rules(), |realm| realm.rules(&self.revoked))
    }
}
