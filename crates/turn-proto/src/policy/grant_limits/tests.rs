use alloc::string::ToString;

use super::*;

const ALL: &str =
    "allocations=2&bytes_per_second=100000&lifetime=600&peers=203.0.113.0/24,2001:db8::/32";

fn limits(text: &str) -> GrantLimits {
    text.parse().unwrap()
}

#[test]
fn text_and_limits_are_the_same() {
    for text in [ALL, "allocations=4294967295", "peers=10.0.0.1/32", "lifetime=1&peers=::/0"] {
        assert_eq!(limits(text).to_string(), text);
    }
    assert_eq!(limits("peers=::/0&allocations=1").to_string(), "allocations=1&peers=::/0");
    assert!(GrantLimits::default().is_empty() && !limits(ALL).is_empty());
}

#[test]
fn what_is_no_limit_is_told() {
    for (text, expected) in [
        ("", LimitsError::Form),
        ("allocations", LimitsError::Form),
        ("allocations=2&", LimitsError::Form),
        ("Allocations=2", LimitsError::Name),
        ("color=red", LimitsError::Name),
        ("allocations=2&allocations=3", LimitsError::Twice),
        ("allocations=0", LimitsError::Number),
        ("allocations=+2", LimitsError::Number),
        ("allocations=4294967296", LimitsError::Number),
        ("lifetime=", LimitsError::Number),
        ("peers=", LimitsError::Peers),
        ("peers=example.org", LimitsError::Peers),
        ("peers=10.0.0.1/8", LimitsError::Peers),
    ] {
        assert_eq!(text.parse::<GrantLimits>(), Err(expected), "{text}");
    }
    let many = |count| (0..count).map(|n| alloc::format!("10.0.{n}.0/24")).collect::<Vec<_>>();
    let named = |count| alloc::format!("peers={}", many(count).join(","));
    assert!(named(GRANT_PEERS_MAX).parse::<GrantLimits>().is_ok());
    let error = named(GRANT_PEERS_MAX + 1).parse::<GrantLimits>();
    assert_eq!(error, Err(LimitsError::TooManyPeers));
    assert!(LimitsError::TooManyPeers.to_string().contains(&GRANT_PEERS_MAX.to_string()));
}

#[test]
fn the_narrower_limit_counts() {
    let two = limits(ALL);
    assert_eq!([0, 1, 2, 3].map(|quota| two.allocations(quota)), [2, 1, 2, 2]);
    assert_eq!([0, 99_999, 100_001].map(|rate| two.rate(rate)), [100_000, 99_999, 100_000]);
    let seconds = [60, 3600].map(Duration::from_secs);
    assert_eq!(seconds.map(|time| two.lifetime(time).as_secs()), [60, 600]);
    let none = GrantLimits::default();
    assert_eq!((none.allocations(7), none.rate(0), none.lifetime(seconds[1])), (7, 0, seconds[1]));

    let both = two.and(&limits("allocations=5&lifetime=60&peers=203.0.113.128/25,10.0.0.0/8,::/0"));
    let expected =
        "allocations=2&bytes_per_second=100000&lifetime=60&peers=203.0.113.128/25,2001:db8::/32";
    assert_eq!(both.to_string(), expected);
    assert_eq!(two.and(&none), two);
    assert!(!limits("peers=::/0").allow_peer([10, 0, 0, 1].into(), [10, 0, 0, 1].into()));
    let nobody = limits("peers=10.0.0.0/8").and(&limits("peers=192.0.2.0/24"));
    assert!(!nobody.allow_peer([10, 0, 0, 1].into(), [10, 0, 0, 1].into()));
}

/// A translator makes the named address differ from the address in packets. Either is allowed.
#[test]
fn a_peer_is_allowed_by_either_of_its_addresses() {
    let [named, local, other] =
        ["203.0.113.9", "2001:db8::9", "198.51.100.9"].map(|ip| ip.parse().unwrap());
    for text in ["peers=203.0.113.0/24", "peers=2001:db8::/32"] {
        let limits = limits(text);
        assert!(limits.allow_peer(local, named) && limits.allow_peer(named, local), "{text}");
        assert!(!limits.allow_peer(other, other), "{text}");
    }
}

#[test]
fn no_other_spelling_of_a_peer_passes() {
    let ours = limits("peers=203.0.113.0/24,2001:db8::/32");
    let allows = |ip: &str| ours.allow_peer(ip.parse().unwrap(), ip.parse().unwrap());
    for (ip, expected) in [
        ("203.0.113.9", true),
        ("::ffff:203.0.113.9", true),
        ("203.0.114.1", false),
        ("::ffff:10.0.0.1", false),
        ("2001:db8::1", true),
        ("2001:db9::1", false),
    ] {
        assert_eq!(allows(ip), expected, "{ip}");
    }
}
