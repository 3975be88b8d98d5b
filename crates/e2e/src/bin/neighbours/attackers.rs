//! Attackers: the addresses and credentials that each has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use stun_wire::time_limited_password;

use crate::scene::{HOSTILE, SECRET, mallory};
use crate::stun::{Login, Noise};

/// Number of addresses of the botnet.
const BOTS: u64 = 1000;

/// An attacker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attacker {
    /// A single IPv4 address.
    Address,
    /// Addresses of one `/64`.
    Site64,
    /// Addresses of one `/48`.
    Site48,
    /// Addresses of one `/32`.
    Provider,
    /// Scattered IPv4 addresses.
    Botnet,
    /// An account at a single address.
    Account,
    /// An account at the addresses of the botnet.
    SpreadAccount,
    /// Many users of one realm at the addresses of the botnet.
    Realm,
}

impl Attacker {
    pub(crate) const ALL: [Self; 8] = [
        Self::Address,
        Self::Site64,
        Self::Site48,
        Self::Provider,
        Self::Botnet,
        Self::Account,
        Self::SpreadAccount,
        Self::Realm,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Address => "one address",
            Self::Site64 => "a `/64`",
            Self::Site48 => "a `/48`",
            Self::Provider => "a `/32`",
            Self::Botnet => "1,000 IPv4 addresses",
            Self::Account => "one account",
            Self::SpreadAccount => "one account, 1,000 addresses",
            Self::Realm => "users of one realm",
        }
    }

    /// The next address.
    pub(crate) fn address(self, noise: &mut Noise) -> IpAddr {
        const SITE: u128 = 0x2001_0db8_0001 << 80;
        let random = noise.next();
        let v6 = |bits: u128| IpAddr::from(Ipv6Addr::from_bits(bits | u128::from(random >> 32)));
        match self {
            Self::Address | Self::Account => [198, 51, 100, 7].into(),
            Self::Site64 => v6(SITE),
            Self::Site48 => v6(SITE | u128::from(random & 0xFFFF) << 64),
            Self::Provider => v6(0x2001_0db8 << 96 | u128::from(random as u32) << 64),
            Self::Botnet | Self::SpreadAccount | Self::Realm => bot(random % BOTS),
        }
    }

    /// The credentials of the next client.
    pub(crate) fn login(self, noise: &mut Noise) -> Login {
        if self != Self::Realm {
            return mallory();
        }
        // 2100-01-01.
        let name = format!("4102444800:{}", noise.next() % 100_000);
        let password = time_limited_password(SECRET.as_bytes(), &name);
        Login::new(&name, HOSTILE, &password)
    }
}

/// An address of the botnet, in 16.0.0.0 to 63.255.255.255.
fn bot(number: u64) -> IpAddr {
    const FIRST: u64 = 16 << 24;
    const COUNT: u64 = 48 << 24;
    let scattered = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
    Ipv4Addr::from_bits((FIRST + scattered % COUNT) as u32).into()
}

/// Address of an honest client: each has a separate network.
pub(crate) fn honest(number: usize) -> IpAddr {
    let number = number as u32;
    if number.is_multiple_of(2) {
        Ipv4Addr::from_bits(203 << 24 | (number % 65_536) << 8 | 9).into()
    } else {
        Ipv6Addr::from_bits(0x2a02 << 112 | u128::from(number) << 80 | 1).into()
    }
}
