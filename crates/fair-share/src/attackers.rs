//! Attackers of many shapes, for tests.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::boxed::Box;
use std::vec::Vec;

use crate::Claimant;

/// An endless sequence of clients of one attacker.
pub(crate) struct Attacker {
    pub(crate) name: &'static str,
    next: Box<dyn FnMut(u64) -> Claimant<'static>>,
    count: u64,
}

impl Attacker {
    fn new(name: &'static str, next: impl FnMut(u64) -> Claimant<'static> + 'static) -> Self {
        Self { name, next: Box::new(next), count: 0 }
    }

    pub(crate) fn next(&mut self) -> Claimant<'static> {
        self.count += 1;
        (self.next)(self.count)
    }

    /// Attackers that have addresses and no credentials.
    pub(crate) fn strangers() -> Vec<Self> {
        const SITE: u128 = 0x2001_0db8_0001 << 80;
        let v6 = |bits| Claimant::at(Ipv6Addr::from_bits(bits).into());
        std::vec![
            Self::new("one address", |_| Claimant::at(IpAddr::from([198, 51, 100, 7]))),
            Self::new("a /64", move |number| v6(SITE | u128::from(number))),
            Self::new("a /56", move |number| v6(SITE | u128::from(number % 256) << 64)),
            Self::new("a /48", move |number| v6(SITE | u128::from(number % 65_536) << 64)),
            Self::new("a /32", move |number| {
                v6(0x2001_0db8 << 96 | u128::from(scattered(number) as u32) << 64)
            }),
            Self::new("a /24", |number| Claimant::at([198, 51, 100, number as u8].into())),
            Self::new("a /16", |number| {
                let [.., high, low] = number.to_be_bytes();
                Claimant::at([198, 51, high, low].into())
            }),
            Self::new("a botnet", |number| Claimant::at(bot(number))),
        ]
    }

    /// Attackers that have credentials.
    pub(crate) fn users() -> Vec<Self> {
        let [one, two] = [[198, 51, 100, 7], [198, 51, 100, 8]].map(IpAddr::from);
        std::vec![
            Self::new("one account", move |_| Claimant::at(one).with_account("r", "mallory")),
            Self::new("one account from many addresses", |number| {
                Claimant::at(Ipv4Addr::from_bits(scattered(number) as u32).into())
                    .with_account("r", "mallory")
            }),
            Self::new("many names at one address", move |number| {
                Claimant::at(two).with_account("r", name(number))
            }),
            Self::new("many users of one realm", |number| {
                Claimant::at(Ipv4Addr::from_bits(scattered(number) as u32).into())
                    .with_account("hostile", name(number))
            }),
        ]
    }
}

/// Address of a botnet of a thousand hosts in different networks.
fn bot(number: u64) -> IpAddr {
    Ipv4Addr::from_bits(scattered(number % 1000) as u32).into()
}

fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
}

/// Names live as long as the test process.
fn name(number: u64) -> &'static str {
    Box::leak(std::format!("user {number}").into_boxed_str())
}

/// Honest clients of other networks, accounts and realms.
pub(crate) fn honest(number: u8) -> Claimant<'static> {
    let address = match number % 2 {
        0 => IpAddr::from([203, number, 113, 9]),
        _ => IpAddr::from(Ipv6Addr::from_bits(0x2a02 << 112 | u128::from(number) << 80 | 1)),
    };
    Claimant::at(address).with_account("another", name(u64::from(number)))
}
