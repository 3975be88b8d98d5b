use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use turn_types::Secret;

const KEY: NonceKey = Secret::new([7; 32]);
const ISSUER: Issuer<'static> = Issuer { key: &KEY, realm: "example.org" };
const LIFETIME: Duration = Duration::from_secs(600);
const FEATURES: SecurityFeatures =
    SecurityFeatures { password_algorithms: true, username_anonymity: false };
const BOTH: SecurityFeatures =
    SecurityFeatures { password_algorithms: true, username_anonymity: true };
const BORN: UnixSeconds = UnixSeconds(1_700_000_000);

fn client(text: &str) -> ClientAddr {
    ClientAddr(text.parse().unwrap())
}

fn judged(nonce: &[u8], seconds_later: u64, from: ClientAddr) -> NonceState {
    judge(ISSUER, UnixSeconds(BORN.0 + seconds_later), LIFETIME, from, Ports::Own, nonce)
}

#[test]
fn it_begins_with_the_cookie_and_is_plain_text() {
    let at = client("198.51.100.7:4321");
    for (features, cookie) in [
        (FEATURES, "obMatJos2gAAA"),
        (BOTH, "obMatJos2wAAA"),
        (SecurityFeatures::default(), "obMatJos2AAAA"),
    ] {
        let nonce = mint(ISSUER, BORN, at, features);
        let text = core::str::from_utf8(nonce.as_bytes()).unwrap();
        assert!(text.starts_with(cookie), "{text}");
        assert!(
            text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'+' || c == b'/'),
            "{text}"
        );
        assert_eq!(judged(nonce.as_bytes(), 0, at), NonceState::Fresh(features));
    }
}

#[test]
fn it_lives_as_long_as_it_may() {
    let at = client("[2001:db8::7]:4321");
    let nonce = mint(ISSUER, BORN, at, FEATURES);
    assert_eq!(judged(nonce.as_bytes(), 600, at), NonceState::Fresh(FEATURES));
    assert_eq!(judged(nonce.as_bytes(), 601, at), NonceState::Stale(FEATURES));
    let before = judge(ISSUER, UnixSeconds(BORN.0 - 1), LIFETIME, at, Ports::Own, nonce.as_bytes());
    assert_eq!(before, NonceState::Stale(FEATURES), "from the future");
    let wrapped = mint(ISSUER, UnixSeconds(u64::from(u32::MAX)), at, FEATURES);
    let after = UnixSeconds(u64::from(u32::MAX) + 5);
    assert_eq!(
        judge(ISSUER, after, LIFETIME, at, Ports::Own, wrapped.as_bytes()),
        NonceState::Fresh(FEATURES)
    );
}

#[test]
fn it_is_for_one_address_and_port() {
    let at = client("198.51.100.7:4321");
    let nonce = mint(ISSUER, BORN, at, FEATURES);
    for other in
        ["198.51.100.7:4322", "198.51.100.8:4321", "[2001:db8::1]:4321", "[::c633:6407]:4321"]
    {
        assert_eq!(judged(nonce.as_bytes(), 0, client(other)), NonceState::Invalid, "{other}");
    }
    let nonces: BTreeSet<_> = (1000..1020u16)
        .flat_map(|port| {
            [[198, 51, 100, 7], [198, 51, 100, 8]].map(|ip| ClientAddr((ip, port).into()))
        })
        .map(|client| mint(ISSUER, BORN, client, FEATURES).0)
        .collect();
    assert_eq!(nonces.len(), 40);
}

#[test]
fn where_any_port_will_do_the_address_still_counts() {
    let nonce = mint(ISSUER, BORN, client("198.51.100.7:4321"), FEATURES);
    for (other, state) in [
        ("198.51.100.7:4321", NonceState::Fresh(FEATURES)),
        ("198.51.100.7:4322", NonceState::Fresh(FEATURES)),
        ("198.51.100.8:4321", NonceState::Invalid),
    ] {
        let from = client(other);
        assert_eq!(
            judge(ISSUER, BORN, LIFETIME, from, Ports::Any, nonce.as_bytes()),
            state,
            "{other}"
        );
    }
}

#[test]
fn another_key_realm_or_time_makes_another_one() {
    let at = client("198.51.100.7:4321");
    let nonce = mint(ISSUER, BORN, at, FEATURES);
    let other = Secret::new([8; 32]);
    for issuer in [Issuer { key: &other, ..ISSUER }, Issuer { realm: "example.net", ..ISSUER }] {
        assert_eq!(
            judge(issuer, BORN, LIFETIME, at, Ports::Own, nonce.as_bytes()),
            NonceState::Invalid
        );
    }
    assert_ne!(mint(ISSUER, UnixSeconds(BORN.0 + 1), at, FEATURES), nonce);
}

#[test]
fn one_changed_character_makes_it_foreign() {
    let at = client("198.51.100.7:4321");
    let nonce = mint(ISSUER, BORN, at, BOTH);
    for place in 0..NONCE_LEN {
        for character in 0..=u8::MAX {
            let mut changed = nonce.0;
            changed[place] = character;
            if changed != nonce.0 {
                assert_eq!(
                    judged(&changed, 0, at),
                    NonceState::Invalid,
                    "{character:#x} at {place}"
                );
            }
        }
    }
}

#[test]
fn other_lengths_are_foreign() {
    let at = client("198.51.100.7:4321");
    let nonce = mint(ISSUER, BORN, at, FEATURES);
    for len in 0..NONCE_LEN {
        assert_eq!(judged(&nonce.as_bytes()[..len], 0, at), NonceState::Invalid);
    }
    let mut longer = nonce.as_bytes().to_vec();
    for more in [b'=', b'A', 0] {
        longer.push(more);
        assert_eq!(judged(&longer, 0, at), NonceState::Invalid);
    }
}

proptest! {
    #[test]
    fn whatever_a_client_sends_is_judged_and_only_ours_are_ours(
        bytes in prop::collection::vec(any::<u8>(), 0..800),
        text in "obMatJos2[gwA]AAA[A-Za-z0-9+/]{23}",
    ) {
        let at = client("198.51.100.7:4321");
        prop_assert_eq!(judged(&bytes, 0, at), NonceState::Invalid);
        prop_assert_eq!(judged(text.as_bytes(), 0, at), NonceState::Invalid);
    }
}
