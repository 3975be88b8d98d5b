use super::*;
use PeerAccess::{Allowed, Denied, OwnAddress};
use proptest::prelude::*;
use std::string::ToString;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn rules(allow: &[&str], deny: &[&str], own: &[&str]) -> PeerRules {
    let own: Vec<IpAddr> = own.iter().map(|text| ip(text)).collect();
    PeerRules::new(&prefixes(allow), &prefixes(deny), &own)
}

/// The registries, written again in another form: a mistake in the table is not repeated here.
const REGISTRY: [&str; 51] = [
    "0.0.0.0/8",
    "0.0.0.0/32",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.0.0/29",
    "192.0.0.8/32",
    "192.0.0.9/32",
    "192.0.0.10/32",
    "192.0.0.170/32",
    "192.0.0.171/32",
    "192.0.2.0/24",
    "192.31.196.0/24",
    "192.52.193.0/24",
    "192.88.99.0/24",
    "192.88.99.2/32",
    "192.168.0.0/16",
    "192.175.48.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "240.0.0.0/4",
    "255.255.255.255/32",
    "::1/128",
    "::/128",
    "::ffff:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "100:0:0:1::/64",
    "2001::/23",
    "2001::/32",
    "2001:1::1/128",
    "2001:1::2/128",
    "2001:1::3/128",
    "2001:2::/48",
    "2001:3::/32",
    "2001:4:112::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:30::/28",
    "2001:db8::/32",
    "2002::/16",
    "2620:4f:8000::/48",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
];

/// Refused ranges outside the registries.
const ALSO: [&str; 4] = ["224.0.0.0/4", "::/8", "fec0::/10", "ff00::/8"];

#[test]
fn every_special_purpose_range_is_denied_from_its_first_to_its_last_address() {
    let rules = rules(&[], &[], &[]);
    for text in REGISTRY.iter().chain(&ALSO) {
        let (network, len) = text.split_once('/').unwrap();
        let (first, width) = match ip(network) {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
            IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        let last = first
            | 1u128
                .checked_shl(width - len.parse::<u32>().unwrap())
                .map_or(u128::MAX, |bit| bit - 1);
        for bits in [first, last] {
            let ip = if width == 32 {
                IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits).unwrap()))
            } else {
                IpAddr::V6(Ipv6Addr::from_bits(bits))
            };
            assert_eq!(rules.judge(ip), Denied, "{ip} of {text}");
        }
    }
}

#[test]
fn ordinary_addresses_next_to_special_ranges_are_allowed() {
    let rules = rules(&[], &[], &["9.9.9.9"]);
    for text in [
        "1.0.0.0",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.3.0",
        "192.31.195.255",
        "192.31.197.0",
        "192.52.192.255",
        "192.88.98.255",
        "192.88.100.0",
        "192.167.255.255",
        "192.169.0.0",
        "192.175.49.0",
        "198.17.255.255",
        "198.20.0.0",
        "198.51.101.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "2001:200::",
        "2001:db7:ffff::1",
        "2001:db9::",
        "2003::",
        "2620:4f:7fff::1",
        "2620:4f:8001::",
        "2a00::1",
        "3ffe::",
        "3fff:1000::",
        "5eff::1",
        "5f01::",
        "fbff::1",
    ] {
        assert_eq!(rules.judge(ip(text)), Allowed, "{text}");
    }
}

#[test]
fn what_is_no_host_stays_denied_though_everything_is_allowed() {
    let everything = rules(&["0.0.0.0/0", "::/0"], &[], &[]);
    // A rule for the exact address does not help either.
    for text in [
        "0.0.0.0",
        "0.0.0.1",
        "0.255.255.255",
        "224.0.0.1",
        "239.255.255.255",
        "255.255.255.255",
        "::",
        "ff02::1",
        "2001::1",
        "2001:0:53aa:64c:1c2d:3e4f:f5ff:fff5",
        "2002:808:808::1",
        "::ffff:8.8.8.8",
        "::ffff:127.0.0.1",
    ] {
        assert_eq!(everything.judge(ip(text)), Denied, "{text}");
        assert_eq!(rules(&[text], &[], &[]).judge(ip(text)), Denied, "{text} by its own rule");
    }
    assert_eq!(everything.judge(ip("10.0.0.1")), Allowed);
    assert_eq!(everything.judge(ip("fd00::1")), Allowed);
}

#[test]
fn an_address_embedded_in_another_is_judged_too() {
    let default = rules(&[], &[], &["198.41.0.4"]);
    // The wrapping prefixes are open, so each refusal is due to the embedded address.
    let open = rules(&["::/0"], &["8.8.4.4/32"], &["198.41.0.4"]);
    for (inner, reachable) in [
        ("8.8.8.8", true),
        ("127.0.0.1", false),
        ("0.0.0.0", false),
        ("10.1.2.3", false),
        ("169.254.169.254", false),
        ("224.0.0.1", false),
        ("8.8.4.4", false),    // denied by a rule
        ("198.41.0.4", false), // our own
    ] {
        let hex = u32::from(inner.parse::<Ipv4Addr>().unwrap());
        let (high, low) = (hex >> 16, hex & 0xffff);
        for wrapper in [
            std::format!("::{high:x}:{low:x}"),
            std::format!("::ffff:0:{high:x}:{low:x}"),
            std::format!("64:ff9b::{high:x}:{low:x}"),
            std::format!("2600:1:2:3:0:5efe:{high:x}:{low:x}"),
            std::format!("2600:1:2:3:200:5efe:{high:x}:{low:x}"),
        ] {
            if wrapper == "::0:0" {
                continue; // the unspecified address
            }
            let address = ip(&wrapper);
            assert_eq!(canonical(address).to_string(), inner, "{wrapper}");
            assert_eq!(open.judge(address) == Allowed, reachable, "{wrapper} embeds {inner}");
            if !reachable && inner != "8.8.4.4" {
                assert_eq!(default.judge(address), Denied, "{wrapper} embeds {inner}");
            }
        }
    }
    // Tunnels are recognised as well, although they are always refused.
    assert_eq!(canonical(ip("2002:7f00:1::1")), ip("127.0.0.1"));
    assert_eq!(canonical(ip("2001:0:4136:e378:8000:63bf:3fff:fdd2")), ip("192.0.2.45"));
    for text in ["::1", "::", "2a00::1", "8.8.8.8"] {
        assert_eq!(canonical(ip(text)), ip(text));
    }
}

#[test]
fn nat64_of_the_local_use_prefix_is_allowed_only_one_by_one() {
    let address = ip("64:ff9b:1::a00:1");
    assert_eq!(rules(&[], &[], &[]).judge(address), Denied);
    assert_eq!(rules(&["::/0", "64:ff9b:1::/96"], &[], &[]).judge(address), Denied);
    assert_eq!(rules(&["64:ff9b:1::a00:1"], &[], &[]).judge(address), Allowed);
}

#[test]
fn the_longest_rule_decides_and_denies_at_a_tie() {
    let rules = rules(
        &["10.0.0.0/8", "10.1.2.0/24", "192.168.0.0/16", "fd00::/8"],
        &["10.1.0.0/16", "192.168.0.0/16", "8.8.8.0/24", "2a00::/16", "fd00:1::/32"],
        &[],
    );
    for (text, access) in [
        ("10.9.9.9", Allowed),
        ("10.1.9.9", Denied),
        ("10.1.2.9", Allowed),
        ("192.168.1.1", Denied),
        ("8.8.8.8", Denied),
        ("8.8.4.4", Allowed),
        ("2a00::1", Denied),
        ("2a01::1", Allowed),
        ("fd00::1", Allowed),
        ("fd00:1::1", Denied),
    ] {
        assert_eq!(rules.judge(ip(text)), access, "{text}");
    }
}

#[test]
fn a_denied_peer_is_denied_by_the_longest_rule_at_its_place() {
    let denied = ["198.51.0.0/16", "198.51.100.0/24", "2001:db8::/32"];
    let places = denied.iter().enumerate().map(|(line, prefix)| PlacedRule {
        prefix: prefix.parse().unwrap(),
        place: std::format!("turnpike.toml:{line}").into(),
    });
    let rules = rules(&[], &denied, &[]).with_places(places);
    let place = |peer| rules.denying_rule(ip(peer)).map(|rule| &*rule.place);
    assert_eq!(place("198.51.100.1"), Some("turnpike.toml:1"));
    assert_eq!(place("::ffff:198.51.1.1"), Some("turnpike.toml:0"));
    assert_eq!(place("2001:db8::1"), Some("turnpike.toml:2"));
    assert_eq!(place("203.0.113.1"), None);
}

#[test]
fn a_rule_of_one_family_says_nothing_of_the_other() {
    let v6 = rules(&["::/0"], &[], &[]);
    assert_eq!(v6.judge(ip("10.0.0.1")), Denied);
    assert_eq!(v6.judge(ip("fd00::1")), Allowed);
    let v4 = rules(&["0.0.0.0/0"], &[], &[]);
    assert_eq!(v4.judge(ip("10.0.0.1")), Allowed);
    assert_eq!(v4.judge(ip("fd00::1")), Denied);
    assert_eq!(rules(&[], &["::/0"], &[]).judge(ip("8.8.8.8")), Allowed);
    // An IPv4 address written as IPv6 means IPv4.
    assert_eq!(rules(&[], &["::ffff:8.8.8.0/120"], &[]).judge(ip("8.8.8.8")), Denied);
}

#[test]
fn own_addresses_are_peers_only_for_allocations_unless_one_is_named() {
    let own = ["203.0.114.7", "10.0.0.5", "2a00::7", "127.0.0.1"];
    let none = rules(&[], &[], &own);
    let wide = rules(&["0.0.0.0/0", "::/0", "203.0.114.0/24"], &[], &own);
    let named = rules(&own, &[], &own);
    for text in own {
        assert_eq!(none.judge(ip(text)), OwnAddress, "{text}");
        assert_eq!(wide.judge(ip(text)), OwnAddress, "{text}, in an allowed network");
        assert_eq!(named.judge(ip(text)), Allowed, "{text}, by name");
        assert_eq!(rules(&own, &own, &own).judge(ip(text)), Denied, "{text}, named twice");
    }
    assert_eq!(rules(&[], &["203.0.114.0/24"], &own).judge(ip("203.0.114.7")), Denied);
    // IPv4-mapped, as an interface list may contain it.
    assert_eq!(rules(&[], &[], &["::ffff:9.9.9.9"]).judge(ip("9.9.9.9")), OwnAddress);
}

#[test]
fn prefixes_of_this_host_are_our_own_as_a_whole() {
    let own = ["9.9.9.0/24", "2a00::/64", "127.0.0.0/8"].map(|text| text.parse().unwrap());
    let rules = |allow: &[&str]| {
        let allow: Vec<Prefix> = allow.iter().map(|text| text.parse().unwrap()).collect();
        PeerRules::with_own_prefixes(&allow, &[], &own)
    };
    let none = rules(&[]);
    for text in ["9.9.9.0", "9.9.9.77", "9.9.9.255", "2a00::", "2a00::7", "127.0.0.2"] {
        assert_eq!(none.judge(ip(text)), OwnAddress, "{text}");
    }
    for text in ["9.9.8.255", "9.9.10.0", "2a00:0:0:1::"] {
        assert_eq!(none.judge(ip(text)), Allowed, "{text}");
    }
    let allowing = rules(&["9.9.9.0/24", "9.9.9.77/32"]);
    assert_eq!(allowing.judge(ip("9.9.9.77")), Allowed, "by name");
    assert_eq!(allowing.judge(ip("9.9.9.78")), OwnAddress, "in an allowed network");
}

#[test]
fn all_of_one_family_says_nothing_of_the_other() {
    let own = |text: &str| PeerRules::with_own_prefixes(&[], &[], &[text.parse().unwrap()]);
    assert_eq!(own("::/0").judge(ip("8.8.8.8")), Allowed);
    assert_eq!(own("::/0").judge(ip("2a00::1")), OwnAddress);
    assert_eq!(own("0.0.0.0/0").judge(ip("8.8.8.8")), OwnAddress);
    assert_eq!(own("0.0.0.0/0").judge(ip("2a00::1")), Allowed);
}

#[test]
fn all_of_loopback_is_our_own() {
    assert_eq!(rules(&[], &[], &[]).judge(ip("127.0.0.2")), Denied);
    let wide = rules(&["127.0.0.0/8", "0.0.0.0/0", "::/0"], &[], &[]);
    assert_eq!(wide.judge(ip("127.0.0.2")), OwnAddress);
    assert_eq!(wide.judge(ip("::1")), OwnAddress);
    let named = rules(&["127.0.0.2", "::1"], &[], &[]);
    assert_eq!(named.judge(ip("127.0.0.2")), Allowed);
    assert_eq!(named.judge(ip("::1")), Allowed);
}

#[test]
fn tunnels_are_known() {
    for text in ["2001::1", "2001:0:ffff:ffff::", "2002::", "2002:ffff::1"] {
        assert!(is_tunnel(ip(text)), "{text}");
    }
    for text in ["2001:1::1", "2001:db8::1", "2003::1", "8.8.8.8", "32.1.0.0"] {
        assert!(!is_tunnel(ip(text)), "{text}");
    }
}

proptest! {
    /// However an IPv4 address is embedded, and whichever IPv6 prefixes are allowed, no address is
    /// reached through IPv6 that IPv4 refuses.
    #[test]
    fn no_wrapper_reaches_what_the_inner_address_does_not(
        inner in any::<u32>(),
        site in any::<u64>(),
        loopback in any::<bool>(),
    ) {
        let inner = if loopback { 0x7f00_0001 } else { inner };
        let rules = rules(&["::/0"], &["8.0.0.0/8"], &["9.9.9.9"]);
        let refused = rules.judge(IpAddr::V4(Ipv4Addr::from_bits(inner))) != Allowed;
        let low = u128::from(inner);
        let isatap = u128::from(site) << 64 | 0x5efe << 32;
        for bits in [low, 0xffff << 32 | low, 0xffff << 48 | low, 0x0064_ff9b << 96 | low, isatap | low, isatap | 0x200 << 48 | low] {
            let outer = IpAddr::V6(Ipv6Addr::from_bits(bits));
            if outer == ip("::1") {
                continue;
            }
            prop_assert!(!refused || rules.judge(outer) == Denied, "{outer}");
        }
    }
}
