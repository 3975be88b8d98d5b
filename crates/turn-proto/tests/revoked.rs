//! Revoked credentials: their sessions end with the policy, and later requests are refused, only in
//! the realm of the revocation.

use std::sync::Arc;

use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes128Gcm, KeyInit as _};
use stun_wire::*;
use turn_proto::*;
use turn_types::*;

use crate::support::client::Token;
use crate::support::forge::Forge;
use crate::support::*;

const SECRET: &[u8] = b"0123456789abcdef";
const OTHER: &[u8] = b"fedcba9876543210";
const KEY: [u8; 16] = [0x12; 16];

/// Takes users, credentials of two secrets and tokens of two keys.
fn all_ways() -> Policy {
    let secret = |name: &str, text: &[u8]| SharedSecret {
        name: name.into(),
        secret: Secret::new(text.into()),
    };
    let algorithm = TokenAlgorithm::Aes128Gcm(Secret::new(KEY));
    let key = |kid: &str| TokenKey { kid: kid.into(), algorithm: algorithm.clone() };
    let mut policy = policy();
    policy.auth.secrets = vec![secret("web", SECRET), secret("app", OTHER)];
    policy.auth.tokens = Some(TokenAuthority {
        server_name: REALM.into(),
        keys: vec![key("one"), key("two")],
        coturn_clients: false,
    });
    policy
}

fn timed(port: u16, secret: &[u8], name: &'static str) -> Client {
    let mut client = Client::new(port);
    client.user = name;
    client.password = time_limited_password(secret, name).leak();
    client
}

fn with_token(port: u16, kid: &'static str, mac_key: u8, now: Now) -> Client {
    let mac_key = [mac_key; 20];
    let block =
        AccessTokenBlock { mac_key: &mac_key, timestamp: now.unix.0 << 16, lifetime_secs: 3600 };
    let mut plain = [0; 256];
    let len = block.write(&mut plain).unwrap();
    let nonce = *b"twelve bytes";
    let payload = Payload { msg: &plain[..len], aad: REALM.as_bytes() };
    let sealed = Aes128Gcm::new(&KEY.into()).encrypt(&nonce.into(), payload).unwrap();
    let bytes = [&[0, 12], &nonce[..], &sealed].concat();
    Client::new(port).with_token(kid, Token { bytes, mac_key: mac_key.to_vec() })
}

fn revoke(world: &mut World, change: impl FnOnce(&mut Revoked)) {
    let mut revoked = Revoked::default();
    change(&mut revoked);
    let relay = world.policy.relay.clone();
    world.apply(Policy { relay, revoked: Arc::new(revoked), ..all_ways() });
}

fn form(name: &str) -> UserName<'_> {
    UserName::new(name).unwrap()
}

/// The users of live allocations.
fn live(world: &World) -> Vec<String> {
    world.server.allocations().map(|record| record.account.to_string()).collect()
}

fn refused(world: &mut World, client: &mut Client) {
    let _earlier = world.refusals();
    assert_eq!(client.try_allocate(world, |_| ()).code(), Some(401));
    assert_eq!(world.refusals().pop(), Some(Refusal::CredentialRevoked));
}

#[test]
fn a_user_is_cut_off_and_the_others_stay() {
    let mut world = World::with(all_ways());
    let (mut alice, mut bob) = (Client::new(1), Client::new(2).as_bob());
    alice.allocate(&mut world);
    bob.allocate(&mut world);
    let name = form(alice.user);
    revoke(&mut world, |revoked| revoked.refuse_name("elsewhere".into(), &name));
    assert_eq!(live(&world).len(), 2, "another realm's user of this name");
    revoke(&mut world, |revoked| revoked.refuse_name(REALM.into(), &name));
    assert_eq!(world.ends(), [EndReason::Revoked]);
    assert_eq!(live(&world), [bob.user]);
    refused(&mut world, &mut Client::new(3));
    bob.refresh(&mut world, None).success();
    revoke(&mut world, |_| ());
    Client::new(4).allocate(&mut world);
}

#[test]
fn a_look_up_from_before_does_not_let_a_user_in() {
    let mut world = World::with(all_ways());
    let mut alice = Client::new(1);
    let request = alice.sealed(&mut world, Method::ALLOCATE, |builder| {
        builder.requested_transport(17);
    });
    world.hold = true;
    assert!(matches!(world.from_client(&alice.path, &request), Fate::Wait));
    let name = form(alice.user);
    revoke(&mut world, |revoked| revoked.refuse_name(REALM.into(), &name));
    // The database still has the user: the answer is judged when it comes.
    let _earlier = world.refusals();
    let answers = world.release();
    let [(_, answer)] = &answers[..] else { panic!("{} answers", answers.len()) };
    assert_eq!(alice.decode(&request, answer.clone()).code(), Some(401));
    assert_eq!(world.refusals(), [Refusal::CredentialRevoked]);
    assert_eq!(live(&world), [""; 0]);
    refused(&mut world, &mut alice);
}

#[test]
fn the_user_part_of_time_limited_names_counts_for_all_of_them() {
    let mut world = World::with(all_ways());
    let mut first = timed(1, SECRET, "1900003600:alice");
    let mut second = timed(2, OTHER, "1900007200:alice");
    let mut other = timed(3, SECRET, "1900003600:bob");
    for client in [&mut first, &mut second, &mut other] {
        client.allocate(&mut world);
    }
    revoke(&mut world, |revoked| revoked.refuse_name(REALM.into(), &form("1900003600:alice")));
    assert_eq!(live(&world), ["alice", "bob"], "the one credential alone");
    refused(&mut world, &mut timed(4, SECRET, "1900003600:alice"));
    revoke(&mut world, |revoked| revoked.refuse_name(REALM.into(), &form("alice")));
    assert_eq!(live(&world), ["bob"]);
    refused(&mut world, &mut timed(5, SECRET, "1900009999:alice"));
    other.refresh(&mut world, None).success();
}

/// A reload that switches limits in names changes the account of a credential, and accepts none.
#[test]
fn a_name_with_limits_and_the_name_without_are_revoked_together() {
    const LIMITED: &str = "1900003600:alice?allocations=3";
    for (revoked_as, is_other_refused) in [
        ("alice", true),
        ("alice?allocations=3", true),
        ("alice?allocations=2", true),
        (LIMITED, false),
        ("alice?", false),
        ("alice?color=3", false),
    ] {
        for in_names in [false, true] {
            let mut policy = all_ways();
            policy.auth.limits_in_names = !in_names;
            let mut world = World::with(policy.clone());
            timed(1, SECRET, LIMITED).allocate(&mut world);
            timed(2, SECRET, "1900007200:alice").allocate(&mut world);
            timed(3, SECRET, "1900003600:alice?color=4").try_allocate(&mut world, |_| ());
            let mut revoked = Revoked::default();
            revoked.refuse_name(REALM.into(), &form(revoked_as));
            policy.auth.limits_in_names = in_names;
            let relay = world.policy.relay.clone();
            world.apply(Policy { relay, revoked: Arc::new(revoked), ..policy });
            let all = is_other_refused || revoked_as == LIMITED;
            let accepts = |world: &mut World, port, name| {
                timed(port, SECRET, name).try_allocate(world, |_| ()).code().is_none()
            };
            assert_eq!(accepts(&mut world, 4, LIMITED), !all, "{revoked_as} {in_names}");
            let other = accepts(&mut world, 5, "1900007201:alice");
            assert_eq!(other, !is_other_refused, "{revoked_as} {in_names}");
            let is_ended = live(&world).iter().all(|account| account != "alice?allocations=3");
            assert!(!all || is_ended, "{revoked_as} {in_names}");
        }
    }
}

/// Services and keyboards write a name in several ways. A revocation applies to all spellings.
#[test]
fn each_spelling_of_a_name_is_revoked() {
    for (sent, shown, account) in [
        ("1900003600:zoe\u{308}", "1900003600:zo\u{eb}", "zo\u{eb}"),
        ("1900003600:anna\u{a0}k", "1900003600:anna k", "anna k"),
        ("zoe\u{308}:1900003600", "zo\u{eb}:1900003600", "zo\u{eb}"),
    ] {
        for revoked_as in [sent, shown, account] {
            let mut world = World::with(all_ways());
            let mut client = timed(1, SECRET, sent);
            client.allocate(&mut world);
            client.refresh(&mut world, None).success();
            let record = world.server.allocations().next().unwrap();
            assert_eq!((&*record.user, &*record.account), (shown, account));
            revoke(&mut world, |revoked| revoked.refuse_name(REALM.into(), &form(revoked_as)));
            assert_eq!(live(&world), [""; 0], "{revoked_as}");
            refused(&mut world, &mut timed(2, SECRET, sent));
        }
    }
}

/// The password of a time-limited credential is made of the spelling that its service has written.
#[test]
fn a_reload_ends_no_session_for_its_spelling() {
    let mut world = World::with(all_ways());
    let now = world.now;
    timed(1, SECRET, "1900003600:zoe\u{308}").allocate(&mut world);
    assert_eq!(world.server.end_unaccepted(now, None, None, 100).ended, 0);
    assert_eq!(live(&world), ["zo\u{eb}"]);
}

#[test]
fn a_name_that_no_user_can_have_is_refused() {
    let mut world = World::with(all_ways());
    for name in [
        "1900003600:a\u{200d}b",
        "1900003600:a\u{202e}b",
        "1900003600:a\u{200b}b",
        "1900003600:a\u{e000}b",
        "1900003600:a\nb",
        "1900003600:a\0b",
        "alice\0",
    ] {
        let _earlier = world.refusals();
        assert_eq!(timed(1, SECRET, name).try_allocate(&mut world, |_| ()).code(), Some(401));
        assert_eq!(world.refusals().pop(), Some(Refusal::InvalidUsername), "{name:?}");
    }
    assert_eq!(live(&world), [""; 0]);
}

#[test]
fn a_token_and_a_key_of_tokens_can_be_revoked() {
    let mut world = World::with(all_ways());
    let now = world.now;
    for (port, kid, mac) in [(1, "one", 1), (2, "one", 2), (3, "two", 3)] {
        with_token(port, kid, mac, now).allocate(&mut world);
    }
    assert!(world.server.allocations().all(|record| record.is_by_token));
    let account = live(&world)[0].clone();
    revoke(&mut world, |revoked| revoked.refuse_name(REALM.into(), &form(&account)));
    assert_eq!(live(&world).len(), 2, "the one token alone");
    refused(&mut world, &mut with_token(4, "one", 1, now));
    revoke(&mut world, |revoked| revoked.refuse_name(REALM.into(), &form("one")));
    assert_eq!(live(&world).len(), 2, "a kid is no user");
    revoke(&mut world, |revoked| revoked.refuse_token_key(REALM.into(), "one".into()));
    assert_eq!(live(&world).len(), 1);
    refused(&mut world, &mut with_token(5, "one", 9, now));
    with_token(6, "two", 8, now).allocate(&mut world);
}

/// A session that is created with one token and refreshed with another token.
#[test]
fn a_session_ends_with_the_token_that_prolonged_it() {
    let mut world = World::with(all_ways());
    let now = world.now;
    with_token(1, "one", 2, now).allocate(&mut world);
    let second = live(&world)[0].clone();
    let mut client = with_token(2, "one", 1, now);
    client.allocate(&mut world);
    client.token = with_token(2, "one", 2, now).token;
    client.refresh(&mut world, None).success();
    client.permit(&mut world, &[PEER]).success();
    revoke(&mut world, |revoked| revoked.refuse_name(REALM.into(), &form(&second)));
    assert_eq!(live(&world), [""; 0]);
    assert!(client.permit(&mut world, &[PEER]).code().is_some());
}

#[test]
fn sessions_of_a_removed_secret_or_key_end_on_request() {
    let mut world = World::with(all_ways());
    let now = world.now;
    Client::new(1).allocate(&mut world);
    timed(2, SECRET, "1900003600:carol").allocate(&mut world);
    timed(3, OTHER, "1900003600:bob").allocate(&mut world);
    with_token(4, "one", 1, now).allocate(&mut world);
    with_token(5, "two", 1, now).allocate(&mut world);

    let mut policy = Policy { relay: world.policy.relay.clone(), ..all_ways() };
    policy.auth.secrets.remove(0);
    policy.auth.tokens.as_mut().unwrap().keys.remove(0);
    world.apply(policy);
    assert_eq!(live(&world).len(), 5, "a reload alone ends none");
    let none = world.server.end_unaccepted(now, Some(&"elsewhere".into()), None, 100);
    assert_eq!(none, EndedPart { ended: 0, next: None });

    let (mut ended, mut after) = (0, None);
    loop {
        let part = world.server.end_unaccepted(now, None, after, 1);
        ended += part.ended;
        after = part.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(ended, 2, "in parts");
    let live = live(&world);
    assert_eq!(live.len(), 3);
    assert_eq!(live[..2], ["alice", "bob"], "neither carol nor the first token: {live:?}");
}

/// A service rotates its secrets during calls. Clients get credentials of the new secret for their
/// name.
#[test]
fn a_session_belongs_to_the_secret_of_its_latest_refresh() {
    const FIRST: &str = "1900003600:zoe\u{308}";
    for later in [FIRST, "1900003600:zo\u{eb}"] {
        let mut world = World::with(all_ways());
        let now = world.now;
        let mut client = timed(1, SECRET, FIRST);
        client.allocate(&mut world);
        let next = timed(1, OTHER, later);
        (client.user, client.password) = (next.user, next.password);
        client.refresh(&mut world, None).success();
        let mut policy = Policy { relay: world.policy.relay.clone(), ..all_ways() };
        for (removed, ended) in [(0, 0), (0, 1)] {
            policy.auth.secrets.remove(removed);
            world.apply(policy.clone());
            assert_eq!(world.server.end_unaccepted(now, None, None, 100).ended, ended, "{later}");
        }
    }
}

/// The key has another value under its name.
#[test]
fn sessions_of_a_rotated_key_end_on_request() {
    let mut world = World::with(all_ways());
    let now = world.now;
    let mut old = with_token(1, "one", 1, now);
    old.allocate(&mut world);
    with_token(2, "two", 1, now).allocate(&mut world);
    assert_eq!(world.server.end_unaccepted(now, None, None, 100).ended, 0);

    let mut policy = Policy { relay: world.policy.relay.clone(), ..all_ways() };
    let keys = &mut policy.auth.tokens.as_mut().unwrap().keys;
    keys[0].algorithm = TokenAlgorithm::Aes128Gcm(Secret::new([0x34; 16]));
    world.apply(policy);
    // The key of the session would prove a request without the token.
    let key = old.key();
    let refresh = Forge::new(&mut old, &mut world, Method::REFRESH);
    let refresh = refresh.sealed(IntegrityKind::Sha1, &key);
    let _earlier = world.refusals();
    assert_eq!(old.exchange(&mut world, &refresh).code(), Some(401));
    assert_eq!(world.refusals().pop(), Some(Refusal::UnknownTokenKey));
    assert_eq!(world.server.end_unaccepted(now, None, None, 100).ended, 1);
    assert!(live(&world)[0].starts_with("two"), "{:?}", live(&world));
}
