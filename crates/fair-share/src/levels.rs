//! Table of shares: the levels at which clients are counted, with weights.

/// Units of use of a single entry at a level of weight 1.
pub(crate) const UNIT: u32 = 256;

/// Number of levels of one client, at most.
pub(crate) const LEVELS_MAX: usize = 6;

/// A level of networks: a prefix length for each family, and a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixLevel {
    /// Prefix length for IPv4, 0..=32. `None`: IPv4 has no such level.
    pub v4: Option<u8>,
    /// Prefix length for IPv6, 0..=64.
    pub v6: u8,
    /// Share of a network, in shares of one address. A power of two, 1..=256.
    pub weight: u32,
}

/// The levels at which the clients of a table or budget are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Levels of networks, from the smallest network to the largest.
    pub prefixes: &'static [PrefixLevel],
    /// Share of an account, in shares of one address. `None`: accounts are not counted.
    pub account: Option<u32>,
    /// Share of a realm, in shares of one address. `None`: realms are not counted.
    pub realm: Option<u32>,
}

/// Levels of networks of clients at proved addresses.
///
/// A customer of an access provider has one address of IPv4, or a `/64` of IPv6, and can obtain a
/// `/56` or a `/48`. A hosting company assigns a `/24` or a `/48` to one customer. Registries
/// assign a `/16` or a `/32` to a provider with many customers. One attacker rarely has a larger
/// network.
const CLIENT_NETWORKS: &[PrefixLevel] = &[
    PrefixLevel { v4: Some(32), v6: 64, weight: 1 },
    PrefixLevel { v4: None, v6: 56, weight: 4 },
    PrefixLevel { v4: Some(24), v6: 48, weight: 16 },
    PrefixLevel { v4: Some(16), v6: 32, weight: 64 },
];

/// Levels of clients that have proved their address and nothing else.
pub const CLIENTS: Levels = Levels { prefixes: CLIENT_NETWORKS, account: None, realm: None };

/// Levels of clients that have logged in.
///
/// An account is a person with several devices, or all clients of an application: the weight is
/// that of a company's network. A realm is a tenant, with the weight of a provider.
pub const LOGGED_IN: Levels =
    Levels { prefixes: CLIENT_NETWORKS, account: Some(16), realm: Some(64) };

/// Levels of budgets that bound the attempts of each user. Realms do not compete for them.
pub const USERS: Levels = Levels { realm: None, ..LOGGED_IN };

/// Levels of a budget of the processor's time in thirty-seconds, of which no account, provider or
/// realm gets more than half.
pub const PROCESSOR_USERS: Levels = Levels {
    prefixes: &[
        PrefixLevel { v4: Some(32), v6: 64, weight: 1 },
        PrefixLevel { v4: None, v6: 56, weight: 4 },
        PrefixLevel { v4: Some(24), v6: 48, weight: 8 },
        PrefixLevel { v4: Some(16), v6: 32, weight: 16 },
    ],
    account: Some(4),
    realm: Some(16),
};

/// Levels of the networks that forged source addresses may make the server send to.
///
/// The target of reflection is a `/24`, or a `/48` of IPv6. No larger network is counted: forging
/// the addresses of another network costs nothing. The share of an address is a 256th.
pub const REFLECTION_TARGETS: Levels = Levels {
    prefixes: &[
        PrefixLevel { v4: Some(32), v6: 64, weight: 1 },
        PrefixLevel { v4: Some(24), v6: 48, weight: 256 },
    ],
    account: None,
    realm: None,
};

const _: () = {
    let mut index = 0;
    while index < CLIENT_NETWORKS.len() {
        assert!(UNIT.is_multiple_of(CLIENT_NETWORKS[index].weight));
        index += 1;
    }
    assert!(CLIENT_NETWORKS.len() + 2 <= LEVELS_MAX);
};
