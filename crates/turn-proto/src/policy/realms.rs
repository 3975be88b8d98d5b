//! Realms: each one's rules, and the choice of one for a request.
//!
//! A request is judged in one realm: the one that its REALM names; otherwise that of its ORIGIN, of
//! the name that a TLS client asked for, of the address it came to; otherwise the one of the
//! server. Nonces, keys, accounts and tickets are bound to the name of their realm, so that none of
//! them is of use in another.

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

/// A realm beside the server's own, with rules of its own.
#[derive(Clone, Debug)]
pub struct RealmPolicy {
    /// Its name; differs from those of all others.
    pub name: Realm,
    /// Origins of web pages whose clients it serves (ORIGIN); no two realms have the same.
    pub origins: Vec<Origin>,
    /// Names of this server that choose it (SNI), in lower case; no two realms have the same.
    pub server_names: Vec<String>,
    /// Addresses of listeners that choose it; no two realms have the same.
    pub listeners: Vec<SocketAddr>,
    /// SOFTWARE, as in [`Policy`].
    pub software: Option<Arc<str>>,
    /// Ways to authenticate. The key of the nonces is the server's.
    pub auth: AuthPolicy,
    /// Lifetimes of allocations and their parts.
    pub lifetimes: Lifetimes,
    /// Limits of allocations and their parts; `allocations_total` and `bytes_per_second_total` are
    /// of this realm. The limits of customers are the server's.
    pub quotas: Quotas,
    /// Peers that clients may reach.
    pub peer_rules: PeerRules,
    /// The servers to redirect clients to.
    pub alternates: AlternateServers,
}

/// The realms beside the server's own.
#[derive(Clone, Debug, Default)]
pub struct Realms {
    all: Vec<RealmPolicy>,
    /// Places in `all`.
    by_name: BTreeMap<Realm, usize>,
    by_origin: BTreeMap<Origin, usize>,
    by_server_name: BTreeMap<String, usize>,
    by_listener: BTreeMap<SocketAddr, usize>,
    takes_tokens: bool,
    /// Live allocations of the server's own realm alone; 0 is bounded by the server's limit.
    own_allocations_max: u32,
}

/// The rules of one realm, looked up once for a request, for an allocation that is made or arrives,
/// and after a reload. Packets do not need them: an allocation keeps its rate, and its peers are
/// judged in advance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RealmRules<'a> {
    pub(crate) name: &'a Realm,
    pub(crate) software: Option<&'a Arc<str>>,
    pub(crate) auth: &'a AuthPolicy,
    pub(crate) revoked: &'a Revoked,
    pub(crate) lifetimes: &'a Lifetimes,
    pub(crate) quotas: &'a Quotas,
    /// Live allocations of this realm alone; 0 is bounded by the server's limit.
    pub(crate) allocations_max: u32,
    /// Bytes per second of all live allocations of this realm; 0 is bounded by the server's limit.
    pub(crate) bytes_per_second_max: u64,
    pub(crate) peer_rules: &'a PeerRules,
    pub(crate) alternates: &'a AlternateServers,
}

impl Realms {
    /// These realms, checked by `settings`.
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

    /// These realms beside a server's own with so many live allocations; 0 is bounded by the
    /// server's limit.
    #[must_use]
    pub fn with_own_allocations_max(mut self, most: u32) -> Self {
        self.own_allocations_max = most;
        self
    }

    /// The realms.
    pub fn iter(&self) -> core::slice::Iter<'_, RealmPolicy> {
        self.all.iter()
    }

    /// The realm of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&RealmPolicy> {
        self.all.get(*self.by_name.get(name)?)
    }

    /// These realms with a change to each; not to its name, nor to what chooses it.
    #[must_use]
    pub fn map(mut self, change: impl FnMut(&mut RealmPolicy)) -> Self {
        self.all.iter_mut().for_each(change);
        self
    }

    /// Returns true if the server has only its own realm.
    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns true if a realm is chosen by a name of this server.
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

    /// The realm of a listener: of the address, or of the wildcard with its port.
    fn listener(&self, at: SocketAddr) -> Option<&usize> {
        let wildcard: IpAddr =
            if at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let listeners = &self.by_listener;
        listeners.get(&at).or_else(|| listeners.get(&SocketAddr::new(wildcard, at.port())))
    }
}

/// The parts of a request that choose its realm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) five_tuple: &'a FiveTuple,
    /// The name that a client over TLS or DTLS asked for, in lower case.
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
    /// The rules of the server's own realm.
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

    /// Returns true if a realm takes access tokens.
    pub(crate) fn takes_tokens(&self) -> bool {
        self.auth.tokens.is_some() || self.realms.takes_tokens
    }

    /// The rules of a realm. An allocation of a realm that is gone, or was renamed, has those of
    /// the server's own.
    pub(crate) fn of(&self, realm: &Realm) -> RealmRules<'_> {
        if self.realms.all.is_empty() || *realm == self.realm {
            return self.own_rules();
        }
        let named = self.realms.named(realm);
        named.map_or_else(|| self.own_rules(), |realm| realm.rules(&self.revoked))
    }

    /// The rules that a request is judged by.
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
