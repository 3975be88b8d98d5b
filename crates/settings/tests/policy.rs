//! From settings to the rules of the server, on hosts of all kinds.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use settings::{Environment, HostAddresses, Settings, parse};
use turn_proto::{NonceKey, PeerAccess, Policy};
use turn_types::Prefix;

fn good(text: &str) -> Settings {
    parse(Path::new("turnpike.toml"), text, &Environment::empty())
        .unwrap_or_else(|errors| panic!("{errors}"))
}

fn ips(text: &str) -> Vec<IpAddr> {
    text.split_whitespace().map(|ip| ip.parse().unwrap()).collect()
}

fn host(text: &str) -> HostAddresses {
    HostAddresses::new(ips(text))
}

/// `local=public` of each relay address, on a host with these addresses.
fn relays(text: &str, addresses: &str) -> String {
    let pairs = good(text).relay_addresses(&host(addresses));
    let shown = pairs.iter().map(|pair| format!("{}={}", pair.local, pair.public));
    shown.collect::<Vec<_>>().join(" ")
}

fn policy(text: &str, addresses: &str, previous: Option<&Policy>) -> Policy {
    on(text, &host(addresses), previous)
}

fn on(text: &str, host: &HostAddresses, previous: Option<&Policy>) -> Policy {
    let own: Vec<Prefix> = host.usable().iter().copied().map(Prefix::host).collect();
    good(text).policy(host, &own, NonceKey::new([7; 32]), previous)
}

#[test]
fn auto_finds_the_address_that_others_can_reach() {
    for (text, host, expected) in [
        // A host with its public addresses.
        (
            "",
            "203.0.113.7 2001:db8::7 127.0.0.1 ::1",
            "203.0.113.7=203.0.113.7 2001:db8::7=2001:db8::7",
        ),
        // Behind 1:1 NAT.
        ("relay.external = '203.0.113.7'", "10.0.0.5 fe80::1 127.0.0.1", "10.0.0.5=203.0.113.7"),
        // A bridge for containers, listed first, is no reason to relay from it.
        ("", "172.17.0.1 203.0.113.7", "203.0.113.7=203.0.113.7"),
        // Of equals the first: what the host reaches others from.
        ("", "192.168.1.5 172.17.0.1", "192.168.1.5=192.168.1.5"),
        // Shared address space is not public either.
        ("", "100.64.0.9 203.0.113.7", "203.0.113.7=203.0.113.7"),
        // No client elsewhere reaches a relay on loopback.
        ("", "127.0.0.1 ::1", ""),
        ("", "127.0.0.1 ::1 192.168.1.5", "192.168.1.5=192.168.1.5"),
        // An explicit address beside "auto" counts once, as it was written.
        (
            "relay.addresses = ['auto', { local = '10.0.0.5', public = '203.0.113.7' }]",
            "10.0.0.5 fd00::5",
            "10.0.0.5=203.0.113.7 fd00::5=fd00::5",
        ),
        ("relay.addresses = ['203.0.113.9']", "10.0.0.5", "203.0.113.9=203.0.113.9"),
    ] {
        assert_eq!(relays(text, host), expected, "{text} on {host}");
    }
}

#[test]
fn missing_addresses_are_named_and_waited_for() {
    let external = "relay.external = ['203.0.113.7', '2001:db8::7']";
    let named = "relay.addresses = ['203.0.113.9', 'auto']";
    for (text, addresses, expected) in [
        ("", "10.0.0.5", &[][..]),
        (
            "",
            "fe80::1",
            &["relay.addresses: \"auto\" finds no address on this host other than loopback"],
        ),
        (
            external,
            "10.0.0.5",
            &["relay.external: \"auto\" finds no IPv6 address on this host for 2001:db8::7"],
        ),
        (named, "10.0.0.5", &["relay.addresses: 203.0.113.9 is no address of this host"]),
    ] {
        let missing = good(text).missing_relays(&host(addresses));
        let shown: Vec<String> =
            missing.iter().map(|missing| format!("{}: {}", missing.key, missing.what)).collect();
        assert_eq!(shown, expected, "{text} on {addresses}");
    }
    let present = |text, addresses| {
        let policy = policy(text, addresses, None);
        policy.relay.iter().map(|relay| (relay.local.to_string(), relay.is_present)).collect()
    };
    let expected = [("203.0.113.9", false), ("10.0.0.5", true)];
    let found: Vec<(String, bool)> = present(named, "10.0.0.5");
    assert_eq!(found, expected.map(|(ip, is_present)| (ip.to_owned(), is_present)));
}

/// An address that is gone may come back within moments, as when a network manager starts anew.
#[test]
fn allocations_stay_on_an_address_that_has_just_gone() {
    let old = policy("", "10.0.0.5 fd00::5", None);
    let (lease, _) =
        old.relay[0].ports.claim(old.ports, turn_proto::PortRequirement::Any, 1).unwrap();
    let leaving = host("fd00::5").with_leaving(ips("10.0.0.5"));
    let without = on("", &leaving, Some(&old));
    let of = |policy: &Policy| -> Vec<(IpAddr, bool)> {
        policy.relay.iter().map(|relay| (relay.local, relay.is_present)).collect()
    };
    assert_eq!(of(&without), [(ips("fd00::5")[0], true), (ips("10.0.0.5")[0], false)]);
    let back = on("", &host("10.0.0.5 fd00::5"), Some(&without));
    assert_eq!(of(&back), of(&old));
    assert!(lease.is_of(&back.relay[0].ports));
    let other = on("", &host("10.0.0.6").with_leaving(ips("10.0.0.5")), Some(&old));
    assert_eq!(of(&other), [(ips("10.0.0.6")[0], true), (ips("10.0.0.5")[0], false)]);
    assert_eq!(of(&on("", &host("10.0.0.6"), Some(&other))), [(ips("10.0.0.6")[0], true)]);
}

#[test]
fn no_address_of_the_host_is_a_peer_by_default() {
    let text = "relay.external = '198.18.7.7'\npeers.allow = ['198.18.0.0/15', '10.0.0.0/8']";
    let policy = policy(text, "10.0.0.5 8.8.4.4 127.0.0.1", None);
    let judge = |ip: &str| policy.peer_rules.judge(ip.parse().unwrap());
    assert_eq!(judge("10.0.0.5"), PeerAccess::OwnAddress, "the relay's local address");
    assert_eq!(judge("198.18.7.7"), PeerAccess::OwnAddress, "its public form");
    assert_eq!(judge("8.8.4.4"), PeerAccess::OwnAddress, "another address of the host");
    assert_eq!(judge("10.0.0.6"), PeerAccess::Allowed);
    assert_eq!(judge("127.0.0.53"), PeerAccess::Denied);
    assert_eq!(judge("192.168.1.1"), PeerAccess::Denied);
}

#[test]
fn used_ports_survive_a_reload_with_their_address() {
    let old = policy("relay.addresses = ['203.0.113.7', '203.0.113.8']", "", None);
    let (lease, _) =
        old.relay[1].ports.claim(old.ports, turn_proto::PortRequirement::Any, 1).unwrap();
    let new = policy("relay.addresses = ['203.0.113.8', '203.0.113.9']", "", Some(&old));
    assert!(
        Arc::ptr_eq(&old.relay[1].ports, &new.relay[0].ports) && lease.is_of(&new.relay[0].ports)
    );
    assert_eq!(new.relay[1].ports.used(), 0);
}

#[test]
fn hashed_names_are_offered_only_where_they_can_be_told() {
    let offered = |text: &str| policy(text, "203.0.113.7", None).auth.userhash;
    assert!(offered(""));
    assert!(!offered("auth.userhash = false"));
    assert!(!offered("auth.secret = '0123456789abcdef'"));
}

#[test]
fn the_rest_is_handed_on() {
    let policy = policy(
        "realm = 'example.org'\nsoftware = 'T'\nrelay.ports = '50000-50009'",
        "203.0.113.7",
        None,
    );
    assert_eq!((&*policy.realm, policy.software.as_deref()), ("example.org", Some("T")));
    assert_eq!((policy.ports.min(), policy.ports.max()), (50_000, 50_009));
    assert_eq!(*policy.auth.nonce_key.expose(), [7; 32]);
    assert!(!policy.auth.open && policy.auth.users && policy.auth.expiry_at_refresh);
    assert!(policy.alternates.is_empty());
}

/// Where nobody listens yet, discovery has the server listen; clients are told the public
/// addresses, and cannot have them as peers.
#[test]
fn discovery_listens_where_nobody_does() {
    let on = "discovery.addresses = ['10.0.0.5', '10.0.0.6']\n";
    for (listen, expected) in [
        ("", "0.0.0.0:3478 [::]:3478 10.0.0.5:3479 10.0.0.6:3479"),
        (
            "listen = ['[::]:3478', '10.0.0.6:3479']\n",
            "[::]:3478 10.0.0.6:3479 10.0.0.5:3478 10.0.0.5:3479 10.0.0.6:3478",
        ),
    ] {
        let listeners = good(&format!("{listen}{on}")).listeners();
        let listeners: Vec<String> = listeners.iter().map(ToString::to_string).collect();
        assert_eq!(listeners.join(" "), expected);
    }
    let external = "discovery.external = [\
        { local = '10.0.0.6:3479', public = '8.8.8.8:3479' },\
        { local = '10.0.0.5:3478', public = '8.8.4.4:3478' },\
        { local = '10.0.0.5:3479', public = '8.8.4.4:3479' },\
        { local = '10.0.0.6:3478', public = '8.8.8.8:3478' }]";
    let policy = policy(&format!("{on}{external}"), "10.0.0.5 10.0.0.6", None);
    let public = policy.discovery[0].public.as_flattened();
    let told = ["8.8.4.4:3478", "8.8.4.4:3479", "8.8.8.8:3478", "8.8.8.8:3479"];
    assert!(public.iter().map(ToString::to_string).eq(told), "{public:?}");
    assert_eq!(policy.discovery[0].local[1][0].to_string(), "10.0.0.6:3478");
    for own in ["8.8.8.8", "8.8.4.4"] {
        assert_eq!(policy.peer_rules.judge(own.parse().unwrap()), PeerAccess::OwnAddress);
    }
}

#[test]
fn a_denied_peer_is_told_with_the_line_of_its_rule() {
    let text = "[peers]\ndeny = [\n  \"198.51.0.0/16\",\n  \"198.51.100.0/24\",\n]\n";
    let rules = good(text).peer_rules(&[], &[]);
    let rule = rules.denying_rule("198.51.100.7".parse().unwrap()).unwrap();
    assert_eq!(rule.prefix, "198.51.100.0/24".parse().unwrap());
    assert!(rule.place.ends_with(":4"), "{}", rule.place);
    assert_eq!(
        rules.denying_rule("::ffff:198.51.1.1".parse().unwrap()).unwrap().prefix.to_string(),
        "198.51.0.0/16"
    );
    assert_eq!(rules.denying_rule("203.0.113.1".parse().unwrap()), None);
}
