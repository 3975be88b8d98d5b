//! Map from prefixes to values. A look-up returns the value of the longest prefix that contains an
//! address.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use turn_types::Prefix;

/// Map from prefixes to values. Prefixes are nested or disjoint, so they divide the address space
/// into runs with one value each. A look-up is a binary search over the first addresses of the
/// runs.
#[derive(Clone, Debug)]
pub(super) struct PrefixMap<T> {
    /// First address of each run and the value of its longest prefix, ascending by address.
    runs: Vec<(u128, Option<T>)>,
}

impl<T: Copy> PrefixMap<T> {
    /// Returns a map of the entries. The last of equal prefixes has precedence.
    pub(super) fn new(entries: impl Iterator<Item = (Prefix, T)>) -> Self {
        let mut entries: Vec<_> =
            entries.map(|(prefix, value)| (Span::of(prefix), value)).collect();
        // An outer prefix precedes its inner prefixes. The sort is stable, so the last of equal
        // prefixes remains last.
        entries.sort_by_key(|(span, _)| (span.first, u128::MAX - span.last));
        let mut runs = Vec::with_capacity(2 * entries.len());
        // Prefixes that contain the position of the sweep, outermost first.
        let mut open: Vec<(Span, T)> = Vec::new();
        for (span, value) in entries {
            close_before(Some(span.first), &mut open, &mut runs);
            runs.push((span.first, Some(value)));
            open.push((span, value));
        }
        close_before(None, &mut open, &mut runs);
        Self { runs }
    }

    /// Returns the value of the longest prefix that contains `ip`.
    pub(super) fn get(&self, ip: IpAddr) -> Option<T> {
        let bits = bits_of(ip);
        let behind = self.runs.partition_point(|(first, _)| *first <= bits);
        // If several runs start at an address, the last run belongs to the longest prefix.
        self.runs[..behind].last().and_then(|(_, value)| *value)
    }
}

/// Closes the prefixes whose last address is below `next`, innermost first. A run of the enclosing
/// prefix starts after each closed prefix.
fn close_before<T: Copy>(
    next: Option<u128>,
    open: &mut Vec<(Span, T)>,
    runs: &mut Vec<(u128, Option<T>)>,
) {
    while let Some((span, _)) = open.last()
        && next.is_none_or(|next| span.last < next)
    {
        let behind = span.last.checked_add(1);
        open.pop();
        // No run starts after the last address of all.
        if let Some(behind) = behind {
            runs.push((behind, open.last().map(|(_, value)| *value)));
        }
    }
}

/// First and last address of a prefix.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u128,
    last: u128,
}

impl Span {
    fn of(prefix: Prefix) -> Self {
        let host_bits = u128::MAX.checked_shr(u32::from(prefix.len_128())).unwrap_or(0);
        Self { first: prefix.bits(), last: prefix.bits() | host_bits }
    }
}

/// Returns an address in the 128-bit form of prefixes.
fn bits_of(ip: IpAddr) -> u128 {
    let v6 = match ip {
        IpAddr::V4(v4) => Ipv4Addr::to_ipv6_mapped(&v4),
        IpAddr::V6(v6) => v6,
    };
    v6.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv6Addr;
    use proptest::prelude::*;
    use std::vec;

    fn prefix(bits: u128, len: u8) -> Prefix {
        let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
        Prefix::new(IpAddr::V6(Ipv6Addr::from_bits(bits & mask)), len).unwrap()
    }

    #[test]
    fn the_longest_prefix_wins_and_the_outer_one_returns_behind_it() {
        let map = PrefixMap::new(
            [("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("10.1.2.3/32", 3), ("255.255.255.255/32", 4)]
                .into_iter()
                .map(|(text, value)| (text.parse().unwrap(), value)),
        );
        for (ip, value) in [
            ("9.255.255.255", None),
            ("10.0.0.0", Some(1)),
            ("10.1.0.0", Some(2)),
            ("10.1.2.3", Some(3)),
            ("10.1.2.4", Some(2)),
            ("10.2.0.0", Some(1)),
            ("11.0.0.0", None),
            ("255.255.255.255", Some(4)),
            ("::1", None),
            ("::1:0:0:0", None),
        ] {
            assert_eq!(map.get(ip.parse().unwrap()), value, "{ip}");
        }
    }

    #[test]
    fn of_equal_prefixes_the_last_counts() {
        let same = prefix(1 << 64, 64);
        assert_eq!(
            PrefixMap::new(vec![(same, 1), (same, 2)].into_iter())
                .get("0:0:0:1::".parse().unwrap()),
            Some(2)
        );
    }

    proptest! {
        /// The runs return the result of a search through all prefixes. Lengths around a few bit
        /// positions and few distinct bits make nesting and equal prefixes common.
        #[test]
        fn agrees_with_a_linear_search(
            entries in prop::collection::vec((any::<u8>(), 0u8..=128), 0..40),
            probes in prop::collection::vec((any::<u8>(), any::<bool>()), 1..40),
        ) {
            let spread = |seed: u8| {
                let nibble = |shift: u32| u128::from(seed >> shift & 3);
                nibble(0) << 126 | nibble(2) << 62 | nibble(4) << 32 | nibble(6)
            };
            let entries: Vec<(Prefix, usize)> =
                entries.into_iter().enumerate().map(|(i, (seed, len))| (prefix(spread(seed), len), i)).collect();
            let map = PrefixMap::new(entries.iter().copied());
            for (seed, below) in probes {
                let ip = IpAddr::V6(Ipv6Addr::from_bits(spread(seed).wrapping_sub(u128::from(below))));
                let expected = entries
                    .iter()
                    .filter(|(prefix, _)| bits_of(ip) & !(u128::MAX.checked_shr(u32::from(prefix.len_128())).unwrap_or(0)) == prefix.bits())
                    .max_by_key(|(prefix, i)| (prefix.len_128(), *i))
                    .map(|(_, i)| *i);
                prop_assert_eq!(map.get(ip), expected);
            }
        }
    }
}
