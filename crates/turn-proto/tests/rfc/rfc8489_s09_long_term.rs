//! RFC 8489 §9.2: the long-term credential mechanism, from outside. One test per rule.

use stun_wire::{
    AttributeType, IntegrityKey, IntegrityKind, LongTermKeys, Method, PasswordAlgorithm, userhash,
};
use turn_proto::{Policy, Refusal, shared_nonce_key};
use turn_types::Secret;

use crate::support::forge::{Forge, append};
use crate::support::*;

const METHODS: [Method; 4] =
    [Method::ALLOCATE, Method::REFRESH, Method::CREATE_PERMISSION, Method::CHANNEL_BIND];

/// Attributes that no challenge contains (8489-9.2.4-03, 8489-9.2.4-16).
const CREDENTIALS: [AttributeType; 2] = [AttributeType::USERNAME, AttributeType::USERHASH];

fn with_users(change: impl FnOnce(&mut Policy)) -> World {
    let mut policy = policy();
    change(&mut policy);
    World::with(policy)
}

fn sha1(client: &Client) -> (IntegrityKind, IntegrityKey) {
    (IntegrityKind::Sha1, client.key())
}

fn sealed(forge: Forge, client: &Client) -> Vec<u8> {
    let (kind, key) = sha1(client);
    forge.sealed(kind, &key)
}

/// Demands a challenge: REALM, a NONCE, and PASSWORD-ALGORITHMS because the nonce offers them, but
/// neither a name nor integrity (8489-9.2.4-03, 8489-9.2.4-16, 8489-9.2.5-01).
#[track_caller]
fn challenged(reply: &Reply, code: u16) {
    assert_eq!(reply.code(), Some(code));
    assert!(!reply.sealed);
    assert_eq!(reply.first(AttributeType::REALM), Some(REALM.as_bytes()));
    assert!(reply.nonce().starts_with("obMatJos2"));
    let list = reply.first(AttributeType::PASSWORD_ALGORITHMS);
    assert_eq!(list, Some(&[0, 2, 0, 0, 0, 1, 0, 0][..]));
    assert!(CREDENTIALS.iter().all(|kind| !reply.has(*kind)));
}

/// Demands a 400 that carries nothing of the credentials (8489-9.2.4-09).
#[track_caller]
fn refused_bare(reply: &Reply) {
    assert_eq!(reply.code(), Some(400));
    assert!(!reply.sealed);
    for kind in [AttributeType::REALM, AttributeType::NONCE].iter().chain(&CREDENTIALS) {
        assert!(!reply.has(*kind), "{kind:?} in a 400");
    }
}

/// 8489-9.2-01: indications are not authenticated.
#[test]
fn an_indication_needs_no_credentials() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.allocate(&mut world);
    client.permit(&mut world, &[PEER]).success();
    assert_eq!(client.send(&mut world, PEER, b"data").to_peer(), b"data");
}

/// 8489-9.2-02, 8489-9.2-03, 8489-9.2.4-05, 8489-9.2.4-06: the cookie names the features in use.
#[test]
fn a_nonce_begins_with_the_cookie_of_the_features_in_use() {
    for (anonymity, cookie) in [(false, "obMatJos2gAAA"), (true, "obMatJos2wAAA")] {
        let mut world = with_users(|policy| policy.auth.userhash = anonymity);
        let mut client = Client::new(1000);
        client.log_in(&mut world);
        assert!(client.nonce.unwrap().starts_with(cookie));
    }
}

/// 8489-9.2.1-01: features that the cookie does not offer are not there.
#[test]
fn a_feature_is_in_use_exactly_when_its_bit_is_set() {
    for (anonymity, code) in [(true, None), (false, Some(401))] {
        let mut world = with_users(|policy| policy.auth.userhash = anonymity);
        let mut client = Client::new(1000);
        let forge = Forge::new(&mut client, &mut world, Method::ALLOCATE)
            .without(AttributeType::USERNAME)
            .with(AttributeType::USERHASH, userhash(client.user, REALM).unwrap());
        let request = sealed(forge, &client);
        assert_eq!(client.exchange(&mut world, &request).code(), code, "anonymity {anonymity}");
        assert_eq!(world.looked_up, u32::from(anonymity));
    }
}

/// 8489-9.2.2-01, 8489-9.2.2-02, 8489-9.2.4-10, 8656-5-02: old clients and new ones log in.
#[test]
fn either_key_proves_the_user() {
    for sealing in [Sealing::Md5, Sealing::Sha256] {
        for fingerprint in [false, true] {
            let mut world = World::new();
            let mut client = Client::new(1000).sealing(sealing);
            client.fingerprint = fingerprint;
            client.try_allocate(&mut world, |_| ()).success();
            client.permit(&mut world, &[PEER]).success();
            client.bind(&mut world, 0x4000, PEER).success();
            client.refresh(&mut world, Some(0)).success();
        }
    }
}

/// 8489-9.2.4-01: the first rule that fails decides.
#[test]
fn the_rules_are_checked_in_order() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.log_in(&mut world);
    world.advance(secs(3601)); // the nonce is stale from here on
    let mut code = |change: fn(Forge) -> Forge, password: &'static str| {
        let forge = change(Forge::new(&mut client, &mut world, Method::ALLOCATE));
        let keys = LongTermKeys::new("alice", REALM, password).unwrap();
        let request = forge.sealed(IntegrityKind::Sha1, &IntegrityKey::new(&keys.md5));
        let code = client.exchange(&mut world, &request).code();
        (code.unwrap(), world.refusals().pop().unwrap())
    };
    let list = |forge: Forge| forge.with(AttributeType::PASSWORD_ALGORITHMS, [0, 1, 0, 0]);
    assert_eq!(code(|forge| forge, "wonderland"), (438, Refusal::StaleNonce));
    assert_eq!(code(|forge| forge, "wrong"), (401, Refusal::WrongPassword));
    let unknown = |forge: Forge| forge.with(AttributeType::USERNAME, "nobody");
    assert_eq!(code(unknown, "wonderland"), (401, Refusal::UnknownUser));
    assert_eq!(code(list, "wrong"), (400, Refusal::PasswordAlgorithms));
    let both = |forge: Forge| {
        forge
            .with(AttributeType::USERNAME, "nobody")
            .with(AttributeType::PASSWORD_ALGORITHM, [0; 4])
    };
    assert_eq!(code(both, "wrong"), (400, Refusal::PasswordAlgorithms));
    let nameless = |forge: Forge| {
        forge.without(AttributeType::USERNAME).with(AttributeType::PASSWORD_ALGORITHM, [0; 4])
    };
    assert_eq!(code(nameless, "wrong"), (400, Refusal::IncompleteCredentials));
}

/// 8489-9.2.4-02, 8489-9.2.4-03, 8656-7.2-01: the first step of every client.
#[test]
fn a_request_without_integrity_is_challenged() {
    let mut world = World::new();
    for method in METHODS {
        let mut client = Client::new(1000);
        let request = Forge::empty(&mut client, method).bare();
        challenged(&client.exchange(&mut world, &request), 401);
        // Names and nonces without integrity are no credentials.
        let request = Forge::new(&mut client, &mut world, method).bare();
        challenged(&client.exchange(&mut world, &request), 401);
    }
    assert_eq!(world.looked_up, 0);
}

/// 8489-9.2.4-04: a nonce is for one address and port.
#[test]
fn every_client_has_a_nonce_of_its_own() {
    let mut world = World::new();
    let mut clients: Vec<Client> = (1..=10).map(|port| Client::new(1000 + port)).collect();
    clients.extend((1..=10).map(|host| Client::at(&format!("198.51.100.{host}:900"))));
    let mut nonces = std::collections::BTreeSet::new();
    for client in &mut clients {
        client.log_in(&mut world);
        nonces.insert(client.nonce.clone().unwrap());
    }
    assert_eq!(nonces.len(), 20);
    for other in 1..20 {
        clients[other].nonce = clients[0].nonce.clone();
        let reply = clients[other].try_allocate(&mut world, |_| ());
        challenged(&reply, 438);
    }
    assert_eq!(world.looked_up, 0);
    clients[0].try_allocate(&mut world, |_| ()).success();
}

#[test]
fn binding_is_for_users_alone_where_the_policy_says_so() {
    let mut world = with_users(|policy| policy.binding_login = true);
    let mut client = Client::new(1000);
    let bare = client.bare(Method::BINDING, |_| ());
    let refused = client.exchange(&mut world, &bare);
    challenged(&refused, 401);
    assert!(!refused.has(AttributeType::XOR_MAPPED_ADDRESS));
    client.log_in(&mut world);
    let reply = client.ask(&mut world, Method::BINDING, |_| ()).success();
    assert!(reply.sealed && reply.has(AttributeType::XOR_MAPPED_ADDRESS));
    client.password = "wrong";
    assert_eq!(client.ask(&mut world, Method::BINDING, |_| ()).code(), Some(401));
}

#[test]
fn servers_with_one_secret_accept_the_nonces_of_each_other() {
    let server = |secret: &[u8], ticket| {
        with_users(|policy| {
            policy.auth.nonce_key = shared_nonce_key(secret);
            policy.ticket_key = Secret::new([ticket; 32]);
            policy.mobility = true;
        })
    };
    let (mut first, mut second) = (server(b"of the fleet", 1), server(b"of the fleet", 2));
    let mut client = Client::new(1000);
    client.log_in(&mut first);
    client.try_allocate(&mut second, |_| ()).success();
    challenged(&client.try_allocate(&mut server(b"of another", 1), |_| ()), 438);

    // The allocation remains at its server, because tickets are valid only at their server.
    let mut mobile = Client::new(1001);
    let reply = mobile.try_allocate(&mut first, |b| _ = b.mobility_ticket(&[])).success();
    let ticket = reply.first(AttributeType::MOBILITY_TICKET).unwrap().to_vec();
    let mut moved = Client::new(1002);
    let reply = moved.ask(&mut second, Method::REFRESH, |b| _ = b.mobility_ticket(&ticket));
    assert_eq!(reply.code(), Some(400));
}

/// 8489-9.2.4-05, 8489-16.1.3-01, 8489-14.11-01: SHA-256 is offered before MD5.
#[test]
fn sha_256_is_offered_first() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let request = Forge::empty(&mut client, Method::ALLOCATE).bare();
    let reply = client.exchange(&mut world, &request);
    let list = reply.first(AttributeType::PASSWORD_ALGORITHMS).unwrap();
    let list: Vec<_> = stun_wire::value::password_algorithms(list).map(Result::unwrap).collect();
    assert_eq!(list, [PasswordAlgorithm::SHA256, PasswordAlgorithm::MD5]);
}

/// 8489-9.2.4-07, 8489-14.9-01: REALM is the operator's word.
#[test]
fn the_realm_is_the_configured_one() {
    let mut world = with_users(|policy| policy.realm = "example.com".into());
    let mut client = Client::new(1000);
    let request = Forge::empty(&mut client, Method::ALLOCATE).bare();
    let reply = client.exchange(&mut world, &request);
    assert_eq!(reply.first(AttributeType::REALM), Some(&b"example.com"[..]));
    // An unknown realm does not exist at this server.
    let forge = Forge::empty(&mut client, Method::ALLOCATE)
        .with(AttributeType::USERNAME, "alice")
        .with(AttributeType::REALM, REALM)
        .with(AttributeType::NONCE, reply.nonce());
    let request = sealed(forge, &client);
    assert_eq!(client.exchange(&mut world, &request).code(), Some(401));
    assert_eq!(world.refusals().pop(), Some(Refusal::WrongRealm));
}

/// 8489-9.2.4-08, 8489-9.2.4-09, 8489-14.4-01: integrity, but no name, no realm or no nonce.
#[test]
fn incomplete_credentials_are_refused() {
    let mut world = World::new();
    for method in METHODS {
        let mut client = Client::new(1000);
        for kind in [AttributeType::USERNAME, AttributeType::REALM, AttributeType::NONCE] {
            let forge = Forge::new(&mut client, &mut world, method).without(kind);
            let request = sealed(forge, &client);
            refused_bare(&client.exchange(&mut world, &request));
        }
        let forge = Forge::new(&mut client, &mut world, method)
            .without(AttributeType::USERNAME)
            .with(AttributeType::USERHASH, [0; 31]);
        let request = sealed(forge, &client);
        refused_bare(&client.exchange(&mut world, &request));
    }
    assert_eq!(world.looked_up, 0);
}

/// 8489-9.2.4-11, 8489-9.2.4-09, 8489-14.12-01: the list must equal the offered list, and must
/// contain the chosen algorithm.
#[test]
fn altered_password_algorithms_are_refused() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let offered = [0, 2, 0, 0, 0, 1, 0, 0];
    for (list, chosen) in [
        (None, Some(&[0, 1, 0, 0][..])),
        (Some(&offered[..]), None),
        (Some(&[0, 1, 0, 0][..]), Some(&[0, 1, 0, 0][..])),
        (Some(&[0, 2, 0, 0][..]), Some(&[0, 2, 0, 0][..])),
        (Some(&[0, 1, 0, 0, 0, 2, 0, 0][..]), Some(&[0, 1, 0, 0][..])),
        (Some(&[0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0][..]), Some(&[0, 2, 0, 0][..])),
        (Some(&[][..]), Some(&[0, 2, 0, 0][..])),
        (Some(&offered[..]), Some(&[0, 3, 0, 0][..])),
        (Some(&offered[..]), Some(&[0, 2][..])),
        (Some(&offered[..]), Some(&[][..])),
        (Some(&offered[..]), Some(&[0, 2, 0, 0, 0, 0, 0, 0][..])),
    ] {
        let mut forge = Forge::new(&mut client, &mut world, Method::ALLOCATE);
        if let Some(list) = list {
            forge = forge.with(AttributeType::PASSWORD_ALGORITHMS, list);
        }
        if let Some(chosen) = chosen {
            forge = forge.with(AttributeType::PASSWORD_ALGORITHM, chosen);
        }
        let request = sealed(forge, &client);
        refused_bare(&client.exchange(&mut world, &request));
        assert_eq!(
            world.refusals().pop(),
            Some(Refusal::PasswordAlgorithms),
            "{list:?} {chosen:?}"
        );
    }
    assert_eq!(world.looked_up, 0, "nothing is looked up for it");
}

/// 8489-9.2.4-12, 8489-14.3-01: an unknown name.
#[test]
fn an_unknown_user_is_challenged() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let long = "n".repeat(763);
    let (unknown, invalid) = (Refusal::UnknownUser, Refusal::InvalidUsername);
    for (name, reason) in [
        ("nobody", unknown),
        ("Alice", unknown),
        ("alice ", unknown),
        ("", invalid),
        ("alice\0", invalid),
        (long.as_str(), invalid),
    ] {
        let forge = Forge::new(&mut client, &mut world, Method::ALLOCATE)
            .with(AttributeType::USERNAME, name);
        let request = sealed(forge, &client);
        challenged(&client.exchange(&mut world, &request), 401);
        assert_eq!(world.refusals().pop(), Some(reason), "{name}");
    }
    let forge = Forge::new(&mut client, &mut world, Method::ALLOCATE)
        .without(AttributeType::USERNAME)
        .with(AttributeType::USERHASH, [1; 32]);
    let request = sealed(forge, &client);
    challenged(&client.exchange(&mut world, &request), 401);
}

/// 8489-9.2.4-06, 8489-14.4-01: a name that stays hidden on the path.
#[test]
fn a_userhash_stands_for_the_name() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    for method in [Method::ALLOCATE, Method::REFRESH] {
        let forge = Forge::new(&mut client, &mut world, method)
            .without(AttributeType::USERNAME)
            .with(AttributeType::USERHASH, userhash("alice", REALM).unwrap());
        let request = sealed(forge, &client);
        client.exchange(&mut world, &request).success();
    }
    let record = world.server.allocations().next().unwrap();
    assert_eq!(&*record.user, "alice");
    assert_eq!(world.looked_up, 2, "once for the Allocate, once for what prolongs it");
}

/// 8489-9.2.4-13: with both integrity attributes, only MESSAGE-INTEGRITY-SHA256 is verified.
#[test]
fn of_both_integrity_attributes_sha256_counts() {
    let mut world = World::new();
    for (flipped, accepted) in
        [(AttributeType::MESSAGE_INTEGRITY, true), (AttributeType::MESSAGE_INTEGRITY_SHA256, false)]
    {
        let mut client = Client::new(1000);
        let forge = Forge::new(&mut client, &mut world, Method::CREATE_PERMISSION);
        let mut request = forge.sealed_both(&client.key());
        // MESSAGE-INTEGRITY (4 + 20 bytes) precedes MESSAGE-INTEGRITY-SHA256 (4 + 32).
        let len = request.len();
        if flipped == AttributeType::MESSAGE_INTEGRITY {
            // MESSAGE-INTEGRITY-SHA256 covers the changed bytes, so the message is sealed again.
            let mut wrong = request[..len - 36].to_vec();
            *wrong.last_mut().unwrap() ^= 1;
            request = reseal_sha256(wrong, &client.key());
        } else {
            request[len - 1] ^= 1;
        }
        let reply = client.exchange(&mut world, &request);
        if accepted {
            reply.refused(437);
        } else {
            challenged(&reply, 401);
        }
    }
}

/// Appends MESSAGE-INTEGRITY-SHA256 by hand: the HMAC of the message so far, with a length that
/// includes the attribute.
fn reseal_sha256(message: Vec<u8>, key: &IntegrityKey) -> Vec<u8> {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    let mut covered = message.clone();
    let len = u16::try_from(message.len() - 20 + 36).unwrap();
    covered[2..4].copy_from_slice(&len.to_be_bytes());
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key.raw()).unwrap();
    mac.update(&covered);
    let tag = mac.finalize().into_bytes();
    append(message, AttributeType::MESSAGE_INTEGRITY_SHA256, &tag)
}

/// 8489-9.2.4-14, 8489-14.5-01, 8489-14.6-01: one bit, or another length.
#[test]
fn a_wrong_integrity_is_challenged() {
    let mut world = World::new();
    for kind in [IntegrityKind::Sha1, IntegrityKind::Sha256] {
        let mut client = Client::new(1000);
        let forge = Forge::new(&mut client, &mut world, Method::ALLOCATE);
        let sound = forge.clone().sealed(kind, &client.key());
        for bit in 0..8 {
            let mut request = sound.clone();
            *request.last_mut().unwrap() ^= 1 << bit;
            challenged(&client.exchange(&mut world, &request), 401);
        }
        // Any other change of the request on the way is refused as well.
        let mut request = sound.clone();
        let at = request.windows(5).position(|window| window == b"alice").unwrap();
        request[at..at + 5].copy_from_slice(b"bobby");
        challenged(&client.exchange(&mut world, &request), 401);
        let (attribute, lengths) = match kind {
            IntegrityKind::Sha1 => (AttributeType::MESSAGE_INTEGRITY, [0, 4, 16]),
            IntegrityKind::Sha256 => (AttributeType::MESSAGE_INTEGRITY_SHA256, [0, 4, 36]),
        };
        for len in lengths {
            let request = append(forge.clone().bare(), attribute, &vec![0; len]);
            challenged(&client.exchange(&mut world, &request), 401);
        }
    }
    let mut client = Client::new(1000);
    for len in [16, 20, 24, 28] {
        let forge = Forge::new(&mut client, &mut world, Method::ALLOCATE);
        let request = forge.sealed_truncated(&client.key(), len);
        challenged(&client.exchange(&mut world, &request), 401);
    }
    assert_eq!(world.server.allocation_count(), 0);
}

/// 8489-9.2.4-15, 8489-9.2.4-16, 8656-5-03: a nonce that is too old, or never was.
#[test]
fn a_stale_nonce_is_replaced_by_one_that_works() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.log_in(&mut world);
    world.advance(secs(3600));
    client.try_allocate(&mut world, |_| ()).success();
    world.advance(secs(1));
    let reply = client.refresh(&mut world, None);
    challenged(&reply, 438);
    assert_eq!(world.refusals().pop(), Some(Refusal::StaleNonce));
    client.nonce = Some(reply.nonce());
    client.refresh(&mut world, None).success();

    for nonce in ["", "x", "obMatJos2gAAA", "obMatJos2wAAAAAAAAAAAAAAAAAAAAAAAAAA", "\"quoted\""] {
        client.nonce = Some(nonce.to_owned());
        let reply = client.refresh(&mut world, None);
        challenged(&reply, 438);
        assert_eq!(world.refusals().pop(), Some(Refusal::InvalidNonce));
        client.nonce = Some(reply.nonce());
        client.refresh(&mut world, None).success();
    }
}

/// 8489-16-01: a nonce cannot be changed.
#[test]
fn a_nonce_with_one_changed_character_is_refused() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.log_in(&mut world);
    let nonce = client.nonce.clone().unwrap().into_bytes();
    for at in 0..nonce.len() {
        let mut changed = nonce.clone();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        client.nonce = Some(String::from_utf8(changed).unwrap());
        let reply = client.try_allocate(&mut world, |_| ());
        challenged(&reply, 438);
    }
    assert_eq!(world.looked_up, 0);
}

/// The departure from 8489-9.2.4-01: a client without a nonce causes no look-up, whichever other
/// parts are wrong.
#[test]
fn an_invalid_nonce_is_refused_before_anything_is_looked_up() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.nonce = Some("obMatJos2wAAAAAAAAAAAAAAAAAAAAAAAAAA".to_owned());
    let forge = Forge::new(&mut client, &mut world, Method::ALLOCATE)
        .with(AttributeType::USERNAME, "nobody")
        .with(AttributeType::PASSWORD_ALGORITHM, [0, 9, 0, 0]);
    let request = forge.sealed(IntegrityKind::Sha1, &IntegrityKey::new(b"wrong"));
    challenged(&client.exchange(&mut world, &request), 438);
    assert_eq!((world.looked_up, world.server.poll_timeout()), (0, None));
}

/// 8489-9.2.4-17: neither 438 nor 401 carries integrity, although it may.
#[test]
fn challenges_are_not_sealed() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.try_allocate(&mut world, |_| ()).success();
    client.nonce = Some("other".to_owned());
    challenged(&client.refresh(&mut world, None), 438);
    client.nonce = None;
    client.password = "wrong";
    challenged(&client.refresh(&mut world, None), 401);
}

/// 8489-9.2.4-18, 8489-9.2.4-19, 8489-6.3.1.1-03: the algorithm attributes decide how an answer is
/// sealed, not the kind of integrity of the request. Reply::decode demands the kind, the key, and
/// that nothing of the credentials is repeated.
#[test]
fn answers_are_sealed_as_the_algorithms_of_the_request_say() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.allocate(&mut world);
    for (algorithm, kind) in [
        (None, IntegrityKind::Sha1),
        (None, IntegrityKind::Sha256),
        (Some(1), IntegrityKind::Sha1),
        (Some(1), IntegrityKind::Sha256),
        (Some(2), IntegrityKind::Sha1),
        (Some(2), IntegrityKind::Sha256),
    ] {
        client.sealing = if algorithm == Some(2) { Sealing::Sha256 } else { Sealing::Md5 };
        let mut exchange = |method, change: &dyn Fn(Forge) -> Forge| {
            let mut forge = change(Forge::new(&mut client, &mut world, method));
            if let Some(algorithm) = algorithm {
                forge = forge.choosing(algorithm);
            }
            let request = forge.sealed(kind, &client.key());
            client.exchange(&mut world, &request)
        };
        exchange(Method::REFRESH, &|forge| forge).success();
        exchange(Method::ALLOCATE, &|forge| forge).refused(437);
        exchange(Method::CREATE_PERMISSION, &|forge| forge).refused(400);
        exchange(Method::REFRESH, &|forge| forge.with(AttributeType(0x7001), [])).refused(420);
        let v6 = |forge: Forge| forge.with(AttributeType::REQUESTED_ADDRESS_FAMILY, [2, 0, 0, 0]);
        exchange(Method::REFRESH, &v6).refused(443);
        let loopback = |forge: Forge| {
            let port_and_ip = [0, 1, 0x21 ^ 0x13, 0x12 ^ 0x88, 0x21 ^ 127, 0x12, 0xA4, 0x42 ^ 1];
            forge.with(AttributeType::XOR_PEER_ADDRESS, port_and_ip)
        };
        exchange(Method::CREATE_PERMISSION, &loopback).refused(403);
    }
}

/// 8489-9-01, 8489-9-02: attributes after the integrity are not authentic, and are ignored.
#[test]
fn attributes_behind_the_integrity_are_ignored() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    for kind in [IntegrityKind::Sha1, IntegrityKind::Sha256] {
        let key = client.key();
        let without = Forge::new(&mut client, &mut world, Method::ALLOCATE)
            .without(AttributeType::REQUESTED_TRANSPORT);
        let behind = append(
            without.clone().sealed(kind, &key),
            AttributeType::REQUESTED_TRANSPORT,
            &[17, 0, 0, 0],
        );
        client.exchange(&mut world, &behind).refused(400);
        let unknown = append(without.sealed(kind, &key), AttributeType(0x7001), &[]);
        assert_eq!(client.exchange(&mut world, &unknown).code(), Some(400), "not 420");
        // A USERNAME after the integrity is ignored.
        let forge =
            Forge::new(&mut client, &mut world, Method::ALLOCATE).without(AttributeType::USERNAME);
        let request = append(forge.sealed(kind, &key), AttributeType::USERNAME, b"alice");
        refused_bare(&client.exchange(&mut world, &request));
    }
    // MESSAGE-INTEGRITY after MESSAGE-INTEGRITY-SHA256 has no effect.
    let forge = Forge::new(&mut client, &mut world, Method::CREATE_PERMISSION);
    let request = forge.sealed(IntegrityKind::Sha256, &client.key());
    let request = append(request, AttributeType::MESSAGE_INTEGRITY, &[0; 20]);
    client.exchange(&mut world, &request).refused(437);
}

/// 8489-16.1.2-02: a request gets one small response, because its source may be forged.
#[test]
fn a_challenge_is_small() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let request = Forge::empty(&mut client, Method::ALLOCATE)
        .with(AttributeType::REQUESTED_TRANSPORT, [17, 0, 0, 0])
        .bare();
    let reply = client.exchange(&mut world, &request);
    assert_eq!(request.len(), 28);
    // Header 20, ERROR-CODE 24, REALM 4 + 16, NONCE 4 + 36, PASSWORD-ALGORITHMS 4 + 8.
    assert_eq!(reply.bytes.len(), 116);
}

/// Another user's credentials, though right, are no key to an allocation (8656-5-04 has more).
#[test]
fn credentials_of_the_allocation_are_not_looked_up_again() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.allocate(&mut world);
    for _ in 0..3 {
        client.permit(&mut world, &[PEER]).success();
        client.bind(&mut world, 0x4000, PEER).success();
    }
    client.refresh(&mut world, Some(0)).success();
    client.allocate(&mut world);
    client.permit(&mut world, &[PEER]).success();
    assert_eq!(world.looked_up, 2, "once for each Allocate");
    let mut bob = Client::new(1000).as_bob();
    bob.nonce = client.nonce.clone();
    bob.refresh(&mut world, Some(0)).refused(441);
    assert_eq!((world.looked_up, world.server.allocation_count()), (3, 1));
    // A new password applies from the next request on.
    world.users.insert("alice", "changed");
    client.password = "changed";
    client.refresh(&mut world, None).success();
}

/// An open relay needs no credentials, by explicit configuration (8656-7.2-01).
#[test]
fn an_open_relay_serves_without_credentials() {
    let mut world = with_users(|policy| policy.auth.open = true);
    let mut client = Client::new(1000);
    let request = Forge::empty(&mut client, Method::ALLOCATE)
        .with(AttributeType::REQUESTED_TRANSPORT, [17, 0, 0, 0])
        .bare();
    let reply = client.exchange(&mut world, &request);
    assert_eq!((reply.code(), reply.sealed, world.looked_up), (None, false, 0));
}
