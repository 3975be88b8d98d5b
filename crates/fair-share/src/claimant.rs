//! A client as it is counted.

use core::net::IpAddr;

use ahash::RandomState;
use turn_types::Prefix;

use crate::levels::{LEVELS_MAX, Levels, PrefixLevel, UNIT};

/// A client that takes an entry of a table, or a part of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claimant<'a> {
    address: Option<IpAddr>,
    login: Option<Login<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Login<'a> {
    realm: &'a str,
    account: &'a str,
    is_within_realm: bool,
}

/// A network, account or realm, as the key of its counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) key: u64,
    /// Units of use of a single entry, 1..=[`UNIT`]: the inverse of the weight. 0: no node.
    pub(crate) units: u16,
    pub(crate) kind: NodeKind,
}

/// Kind of a node: the counted network, account or realm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodeKind {
    #[default]
    Network,
    Account,
    Realm,
}

/// Counters of one client, from the smallest network to the realm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes([Node; LEVELS_MAX]);

impl Nodes {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Node> {
        self.0.into_iter().take_while(|node| node.units > 0)
    }
}

impl<'a> Claimant<'a> {
    /// A client at an address.
    #[must_use]
    pub const fn at(address: IpAddr) -> Self {
        Self { address: Some(address), login: None }
    }

    /// A client at an address of many customers: no network is counted.
    #[must_use]
    pub const fn at_shared_address() -> Self {
        Self { address: None, login: None }
    }

    /// The client with its account and realm. An account without a name, as on an open relay, is
    /// not counted.
    #[must_use]
    pub const fn with_account(self, realm: &'a str, account: &'a str) -> Self {
        let login = Login { realm, account, is_within_realm: false };
        Self { login: Some(login), ..self }
    }

    /// The client in a table of its realm: the realm is not counted.
    #[must_use]
    pub const fn within_realm(mut self) -> Self {
        if let Some(login) = &mut self.login {
            login.is_within_realm = true;
        }
        self
    }

    /// Counted networks around the address, from the smallest to the largest, with weights.
    pub(crate) fn networks(&self, levels: &Levels) -> impl Iterator<Item = (Prefix, u32)> + use<> {
        let address = self.address.map(|address| address.to_canonical());
        let network = move |level: &PrefixLevel| {
            let address = address?;
            let length = match address {
                IpAddr::V4(_) => level.v4?,
                IpAddr::V6(_) => level.v6,
            };
            Some((Prefix::containing(address, length), level.weight))
        };
        levels.prefixes.iter().filter_map(network)
    }

    /// Counters of the client. Keys are hashes under a secret seed: no client can choose whose
    /// counter it shares.
    pub(crate) fn nodes(&self, levels: &Levels, hasher: &RandomState) -> Nodes {
        let mut nodes = Nodes::default();
        let mut free = nodes.0.iter_mut();
        let mut push = |key, weight: u32, kind| {
            if let Some(node) = free.next() {
                // A weight is at least 1, so the quotient fits.
                *node = Node { key, units: (UNIT / weight) as u16, kind };
            }
        };
        for (network, weight) in self.networks(levels) {
            push(hasher.hash_one(network), weight, NodeKind::Network);
        }
        if let Some(Login { realm, account, is_within_realm }) = self.login {
            if let Some(weight) = levels.account.filter(|_| !account.is_empty()) {
                push(hasher.hash_one((realm, account)), weight, NodeKind::Account);
            }
            if let Some(weight) = levels.realm.filter(|_| !is_within_realm) {
                push(hasher.hash_one(realm), weight, NodeKind::Realm);
            }
        }
        nodes
    }
}
