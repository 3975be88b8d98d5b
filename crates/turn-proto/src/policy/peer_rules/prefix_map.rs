//! Prefixes with values, looked up by the longest that holds an address.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use turn_types::Prefix;

/// A map from prefixes to values. Prefixes are nested or disjoint, so they cut the address space
/// into runs with one value each, and a look-up is one binary search over where the runs begin.
#[derive(Clone, Debug)]
pub(super) struct PrefixMap<T> {
    /// First address of each run and the value of its longest prefix, ascending by address.
    runs: Vec<(u128, Option<T>)>,
}

impl<T: Copy> PrefixMap<T> {
    /// A map of these prefixes; of equal prefixes the last one counts.
    pub(super) fn new(entries: impl Iterator<Item = (Prefix, T)>) -> Self {
        let mut entries: Vec<_> =
            entries.map(|(prefix, value)| (Span::of(prefix), value)).collect();
        // An outer prefix comes before those within it; the sort is stable, so the last stays last.
        entries.sort_by_key(|(span, _)| (span.first, u128::MAX - span.last));
        let mut runs = Vec::with_capacity(2 * entries.len());
        // The prefixes around the place that the sweep has reached, outermost first.
        let mut open: Vec<(Span, T)> = Vec::new();
        for (span, value) in entries {
            close_before(Some(span.first), &mut open, &mut runs);
            runs.push((span.first, Some(value)));
            open.push((span, value));
        }
        close_before(None, &mut open, &mut runs);
        Self { runs }
    }

    /// The value of the longest prefix that holds `ip`.
    pub(super) fn get(&self, ip: IpAddr) -> Option<T> {
        let bits = bits_of(ip);
        let behind = self.runs.partition_point(|(first, _)| *first <= bits);
        // Where runs begin at the same address, the last of them is the one of the longest prefix.
        self.runs[..behind].last().and_then(|(_, value)| *value)
    }
}

/// Ends the prefixes that end before `next`, innermost first: behind each begins a run of the
/// prefix around it.
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
        // Behind the very last address nothing begins.
        if let Some(behind) = behind {
            runs.push((behind, open.last().map(|(_, value)| *value)));
        }
    }
}

/// The first and the last address of a prefix.
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

/// An address in the 128-bit form that prefixes have.
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
        /// The runs say what a search through all prefixes says. Lengths around a few bit positions
        /// and few distinct bits make nesting and equal prefixes common.
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
