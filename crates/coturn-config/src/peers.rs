//! Ranges of addresses, and the networks that they consist of.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses of one family, both ends included, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    is_ipv4: bool,
    first: u128,
    last: u128,
}

impl Range {
    /// Reads an address, `first-last`, or `address/length`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        if let Some((first, last)) = text.split_once('-') {
            let (first, last): (IpAddr, IpAddr) =
                (first.trim().parse().ok()?, last.trim().parse().ok()?);
            let range = Self { is_ipv4: first.is_ipv4(), first: number(first), last: number(last) };
            return (first.is_ipv4() == last.is_ipv4() && range.first <= range.last)
                .then_some(range);
        }
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length.trim().parse::<u32>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length = length.unwrap_or(bits);
        let host = u128::MAX.checked_shr(128 - bits + length).unwrap_or(0);
        let first = number(address) & !host;
        (length <= bits).then_some(Self { is_ipv4: address.is_ipv4(), first, last: first | host })
    }

    /// True if an address is in both ranges.
    pub(crate) fn meets(self, other: Self) -> bool {
        self.is_ipv4 == other.is_ipv4 && other.first <= self.last && self.first <= other.last
    }

    /// True if every address of the other range is in this one.
    fn covers(self, other: Self) -> bool {
        self.is_ipv4 == other.is_ipv4 && self.first <= other.first && other.last <= self.last
    }

    /// Returns true for IPv4 addresses in IPv6 (RFC 4291 §2.5.5.2). coturn distinguishes such peers
    /// from IPv4 peers. Turnpike refuses such peers, and needs no such rule.
    pub(crate) fn is_ipv4_in_ipv6(self) -> bool {
        let is = |number: u128| Ipv6Addr::from(number).to_ipv4_mapped().is_some();
        !self.is_ipv4 && is(self.first) && is(self.last)
    }

    /// The fewest networks that make up the range.
    pub(crate) fn networks(self) -> Vec<Network> {
        let mut networks = Vec::new();
        let mut first = self.first;
        loop {
            // The largest network that begins here and does not go beyond the end.
            let mut size = first.trailing_zeros().min(127);
            while size > 0 && (1_u128 << size) - 1 > self.last - first {
                size -= 1;
            }
            if first == 0 && self.last == u128::MAX {
                size = 128;
            }
            let step = 1_u128.checked_shl(size);
            let next = step.and_then(|step| first.checked_add(step));
            let last = next.map_or(u128::MAX, |next| next - 1);
            networks.push(Network { range: Self { first, last, ..self }, size });
            match next {
                Some(next) if next <= self.last => first = next,
                Some(_) | None => return networks,
            }
        }
    }
}

/// A range of 2^`size` addresses that a prefix describes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    range: Range,
    size: u32,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, bits) = match (self.range.is_ipv4, u32::try_from(self.range.first)) {
            (true, Ok(first)) => (IpAddr::V4(Ipv4Addr::from(first)), 32_u32),
            (true, Err(_)) | (false, _) => (IpAddr::V6(Ipv6Addr::from(self.range.first)), 128),
        };
        match bits.saturating_sub(self.size) {
            length if length == bits => write!(f, "{address}"),
            length => write!(f, "{address}/{length}"),
        }
    }
}

/// The fewest networks that make up a range of addresses as coturn writes it: one address,
/// `first-last`, or `address/length`; `None` if the text is none. The list is empty for IPv4
/// addresses in IPv6, because the server refuses such peers.
#[must_use]
pub fn networks(range: &str) -> Option<Vec<String>> {
    let range = Range::read(range.trim())?;
    Some(if range.is_ipv4_in_ipv6() {
        Vec::new()
    } else {
        range.networks().iter().map(Network::to_string).collect()
    })
}

/// Networks of ranges, sorted, each once.
pub(crate) fn networks_of(ranges: &[Range]) -> Vec<String> {
    sorted(ranges.iter().flat_map(|range| range.networks()))
}

/// Networks of denied ranges, except the networks that an allowed one covers: in coturn an allowed
/// range has precedence over every denied one, and here the longest prefix has.
pub(crate) fn denied_networks(denied: &[Range], allowed: &[Range]) -> Vec<String> {
    let allowed: Vec<Network> = allowed.iter().flat_map(|range| range.networks()).collect();
    let is_allowed = |network: &Network| allowed.iter().any(|one| one.range.covers(network.range));
    sorted(denied.iter().flat_map(|range| range.networks()).filter(|one| !is_allowed(one)))
}

fn sorted(networks: impl Iterator<Item = Network>) -> Vec<String> {
    let networks: BTreeSet<String> = networks.map(|network| network.to_string()).collect();
    networks.into_iter().collect()
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => address.into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use super::*;

    fn networks(text: &str) -> Vec<String> {
        super::networks(text).unwrap()
    }

    #[test]
    fn ranges_are_the_fewest_networks() {
        assert_eq!(networks("10.0.0.0-10.255.255.255"), ["10.0.0.0/8"]);
        assert_eq!(networks("0.0.0.0-255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(networks("192.168.1.5"), ["192.168.1.5"]);
        assert_eq!(
            networks("192.168.1.5-192.168.1.8"),
            ["192.168.1.5", "192.168.1.6/31", "192.168.1.8"]
        );
        assert_eq!(networks("172.16.0.0/12"), ["172.16.0.0/12"]);
        assert_eq!(networks("fd00::-fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["fd00::/8"]);
        assert_eq!(networks("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["::/0"]);
        assert_eq!(networks("255.255.255.254-255.255.255.255"), ["255.255.255.254/31"]);
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in
            ["", "x", "10.0.0.2-10.0.0.1", "10.0.0.1-::1", "10.0.0.0/33", "10.0.0.0/x", "1-2"]
        {
            assert_eq!(Range::read(text), None, "{text}");
        }
    }

    #[test]
    fn ipv4_in_ipv6_is_no_ipv4() {
        for text in ["::ffff:10.0.0.1", "::ffff:0.0.0.0-::ffff:255.255.255.255"] {
            assert_eq!(super::networks(text), Some(vec![]), "{text}");
        }
        assert_eq!(super::networks("::/0"), Some(vec!["::/0".to_owned()]));
    }

    #[test]
    fn of_denied_networks_those_in_an_allowed_one_are_omitted() {
        let range = |text| Range::read(text).unwrap();
        let all = [range("0.0.0.0-255.255.255.255")];
        let two = [range("192.0.2.1"), range("10.0.0.0/8")];
        assert_eq!(denied_networks(&all, &two), ["0.0.0.0/0"], "the longer prefix has precedence");
        let mixed = [range("10.1.0.0/16"), range("10.0.0.0/8"), range("10.255.0.0-11.0.0.255")];
        assert_eq!(denied_networks(&mixed, &two), ["11.0.0.0/24"]);
        assert_eq!(denied_networks(&[range("fd00::/8")], &[range("0.0.0.0/0")]), ["fd00::/8"]);
    }
}
