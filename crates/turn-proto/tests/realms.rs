//! Realms as tenants: the choice of a realm for a request, the separate rules of each realm, and
//! credentials that are invalid in another realm.

use std::sync::Arc;

use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes128Gcm, KeyInit as _};
use fair_share::Claimant;
use stun_wire::*;
use turn_proto::*;
use turn_types::*;

use crate::support::client::Token;
use crate::support::*;

const OTHER: &str = "tenant.example";
const THIRD: &str = "third.example";
const PAGE: &str = "https://meet.tenant.example";
const LISTENER: &str = "203.0.113.1:7000";

fn realm(name: &str, policy: &Policy) -> RealmPolicy {
    RealmPolicy {
        name: name.into(),
        origins: Vec::new(),
        server_names: Vec::new(),
        listeners: Vec::new(),
        software: None,
        auth: policy.auth.clone(),
        lifetimes: policy.lifetimes,
        quotas: policy.quotas,
        peer_rules: policy.peer_rules.clone(),
        alternates: AlternateServers::default(),
    }
}

/// Returns a server policy with three realms. `change` alters the rules of the second realm.
fn tenants(change: impl FnOnce(&mut RealmPolicy)) -> Policy {
    let mut policy = policy();
    policy.mobility = true;
    let mut other = realm(OTHER, &policy);
    other.origins = vec![PAGE.parse().unwrap()];
    other.server_names = vec!["turn.tenant.example".to_owned()];
    other.listeners = vec![addr(LISTENER), addr("[::]:7000")];
    change(&mut other);
    policy.realms = Realms::new(vec![other, realm(THIRD, &policy)]);
    policy
}

fn world() -> World {
    World::with(tenants(|_| ()))
}

/// A reload: the ports in use stay known.
fn reload(world: &mut World, policy: Policy) {
    let relay = world.policy.relay.clone();
    world.apply(Policy { relay, mobility: true, ..policy });
}

/// Demands this error without integrity.
fn told(reply: Reply, code: u16) -> Reply {
    assert_eq!((reply.code(), reply.sealed), (Some(code), false));
    reply
}

/// Returns the realm in the challenge that a client gets without credentials.
fn challenged(world: &mut World, client: &mut Client) -> String {
    let request = client.bare(Method::ALLOCATE, |_| ());
    let reply = told(client.exchange(world, &request), 401);
    String::from_utf8(reply.first(AttributeType::REALM).unwrap().to_vec()).unwrap()
}

#[test]
fn page_name_and_listener_choose_the_realm() {
    let mut world = world();
    let plain = || Client::new(1000);
    assert_eq!(challenged(&mut world, &mut plain()), REALM);
    for (origin, realm) in [
        (PAGE, OTHER),
        ("HTTPS://MEET.tenant.example:443", OTHER),
        ("https://meet.tenant.example:444", REALM),
        ("http://meet.tenant.example", REALM),
        ("null", REALM),
    ] {
        assert_eq!(challenged(&mut world, &mut plain().from_page(origin)), realm, "{origin}");
    }

    let mut named = plain().over(Transport::Tls);
    world.server.set_server_name(named.path.five_tuple, "TURN.tenant.example");
    assert_eq!(challenged(&mut world, &mut named), OTHER);
    world.server.close(world.now, &named.path.five_tuple);
    assert_eq!(challenged(&mut world, &mut named), REALM, "its connection has ended");

    let mut elsewhere = plain();
    elsewhere.path.five_tuple.server = ServerAddr(addr(LISTENER));
    assert_eq!(challenged(&mut world, &mut elsewhere), OTHER);
    let mut at_wildcard = Client::v6(1000);
    at_wildcard.path.five_tuple.server = ServerAddr(addr("[2001:db8::1]:7000"));
    assert_eq!(challenged(&mut world, &mut at_wildcard), OTHER);
    assert_eq!(
        challenged(&mut world, &mut elsewhere.from_page("https://unknown.example")),
        OTHER,
        "an origin that chooses nothing leaves the choice to the listener"
    );
}

#[test]
fn credentials_name_their_realm_wherever_they_are_shown() {
    let mut world = world();
    // A client with the right realm and a nonce of another realm gets a new nonce, and can
    // continue.
    let mut client = Client::new(1000).of_realm(OTHER);
    let stale = told(client.try_allocate(&mut world, |_| ()), 438);
    assert_eq!(stale.first(AttributeType::REALM), Some(OTHER.as_bytes()));
    client.nonce = Some(stale.nonce());
    client.try_allocate(&mut world, |_| ()).success();
    client.refresh(&mut world, None).success();
    assert_eq!(client.permit(&mut world, &["192.0.2.5:1"]).code(), None);
}

#[test]
fn an_unknown_realm_gets_the_challenge_of_the_one_that_serves_it() {
    let mut world = world();
    let mut client = Client::new(1000).from_page(PAGE).of_realm("nobody.example");
    let reply = told(client.try_allocate(&mut world, |_| ()), 401);
    assert_eq!(reply.first(AttributeType::REALM), Some(OTHER.as_bytes()));
    assert_eq!(world.refusals().last(), Some(&Refusal::WrongRealm));
}

/// A nonce of a realm is invalid in another realm, even for the same client.
#[test]
fn nonces_stay_in_their_realm() {
    let mut world = world();
    let mut tenant = Client::new(1000).from_page(PAGE).of_realm(OTHER);
    tenant.log_in(&mut world);
    let mut own = Client::new(1000);
    own.nonce.clone_from(&tenant.nonce);
    told(own.try_allocate(&mut world, |_| ()), 438);
    assert_eq!(world.refusals().last(), Some(&Refusal::InvalidNonce));
    assert_eq!(world.looked_up, 0, "nothing is looked up for it");
    tenant.try_allocate(&mut world, |_| ()).success();
}

/// An equal name with an equal password is another user in another realm.
#[test]
fn an_allocation_belongs_to_the_user_of_its_realm() {
    let mut world = world();
    let mut tenant = Client::new(1000).from_page(PAGE).of_realm(OTHER);
    tenant.allocate(&mut world);
    let mut namesake = Client::new(1000);
    for reply in [
        namesake.refresh(&mut world, Some(0)),
        namesake.permit(&mut world, &["192.0.2.5:1"]),
        namesake.bind(&mut world, 0x4000, "192.0.2.5:1"),
    ] {
        assert_eq!(reply.code(), Some(441));
    }
    tenant.refresh(&mut world, None).success();
}

#[test]
fn keys_of_another_realm_prove_nothing() {
    let mut world = world();
    // The key depends on the client's own realm, regardless of the claimed realm.
    let mut client = Client::new(1000).from_page(PAGE).of_realm(OTHER);
    client.log_in(&mut world);
    client.password = "made for another realm";
    told(client.try_allocate(&mut world, |_| ()), 401);

    let mut policy = tenants(|other| other.auth.users = false);
    policy.auth.users = true;
    reload(&mut world, policy);
    let mut client = Client::new(1001).from_page(PAGE).of_realm(OTHER);
    told(client.try_allocate(&mut world, |_| ()), 401);
    assert_eq!(world.refusals().last(), Some(&Refusal::UnknownUser), "it has no users");
    Client::new(1002).allocate(&mut world);
}

#[test]
fn secrets_count_in_their_realm_alone() {
    let secret = |bytes: &[u8]| SharedSecret {
        name: "web".to_owned(),
        secret: Secret::new(Arc::from(bytes)),
    };
    let (mine, theirs) = (b"0123456789abcdef", b"fedcba9876543210");
    let mut policy = tenants(|other| {
        other.auth.users = false;
        other.auth.secrets = vec![secret(theirs)];
    });
    policy.auth.secrets = vec![secret(mine)];
    policy.auth.users = false;
    let mut world = World::with(policy);
    let user = "1900003600:alice";
    let password = |secret: &[u8]| -> &'static str {
        Box::leak(time_limited_password(secret, user).into_boxed_str())
    };
    for (realm, secret, code) in [
        (OTHER, theirs, None),
        (OTHER, mine, Some(401)),
        (REALM, mine, None),
        (REALM, theirs, Some(401)),
    ] {
        let mut client = Client::new(1000 + u16::from(secret[0])).of_realm(realm);
        client
            .path
            .five_tuple
            .client
            .0
            .set_port(if realm == OTHER { 2000 } else { 3000 } + u16::from(secret[0]));
        client.origin = (realm == OTHER).then_some(PAGE);
        (client.user, client.password) = (user, password(secret));
        assert_eq!(client.try_allocate(&mut world, |_| ()).code(), code, "{realm}");
    }
}

/// A key of access tokens called `shared`, and a client with a token under it for a server of this
/// name.
fn token_key(byte: u8) -> TokenKey {
    let algorithm = TokenAlgorithm::Aes128Gcm(Secret::new([byte; 16]));
    TokenKey { kid: "shared".into(), algorithm }
}

fn with_token(port: u16, key: u8, server_name: &str, now: Now) -> Client {
    let mac_key = [key; 20];
    let timestamp = now.unix.0 << 16;
    let block = AccessTokenBlock { mac_key: &mac_key, timestamp, lifetime_secs: 3600 };
    let mut plain = [0; 256];
    let len = block.write(&mut plain).unwrap();
    let nonce = *b"twelve bytes";
    let payload = Payload { msg: &plain[..len], aad: server_name.as_bytes() };
    let sealed = Aes128Gcm::new(&[key; 16].into()).encrypt(&nonce.into(), payload).unwrap();
    let bytes = [&[0, 12], &nonce[..], &sealed].concat();
    Client::new(port).with_token("shared", Token { bytes, mac_key: mac_key.to_vec() })
}

/// Keys with an equal name in two realms are different keys, and a token is valid only in its
/// realm.
#[test]
fn access_tokens_count_in_their_realm_alone() {
    let authority = |server_name: &str, key: u8| {
        let keys = vec![token_key(key)];
        Some(TokenAuthority { server_name: server_name.into(), keys, coturn_clients: false })
    };
    let (mine, theirs) = (1, 2);
    let mut policy = tenants(|other| other.auth.tokens = authority(OTHER, theirs));
    policy.auth.tokens = authority(REALM, mine);
    let mut world = World::with(policy);
    let now = world.now;
    for (port, realm, key, made_for, code) in [
        (2000, OTHER, theirs, OTHER, None),
        (2001, OTHER, mine, REALM, Some(401)),
        (2002, OTHER, mine, OTHER, Some(401)),
        (2003, OTHER, theirs, REALM, Some(401)),
        (2004, REALM, mine, REALM, None),
        (2005, REALM, theirs, OTHER, Some(401)),
        (2006, REALM, theirs, REALM, Some(401)),
        (2007, REALM, mine, OTHER, Some(401)),
    ] {
        let mut client = with_token(port, key, made_for, now).of_realm(realm);
        client.origin = (realm == OTHER).then_some(PAGE);
        let reply = client.try_allocate(&mut world, |_| ());
        assert_eq!(reply.code(), code, "{realm}: key {key} for {made_for}");
    }
}

#[test]
fn a_reservation_is_redeemed_in_its_realm() {
    let mut world = world();
    let mut tenant = Client::new(1000).from_page(PAGE).of_realm(OTHER);
    let reply = tenant.try_allocate(&mut world, |b| _ = b.even_port(true)).success();
    let token = reply.token().unwrap();
    let mut thief = Client::new(1001);
    thief.try_allocate(&mut world, |b| _ = b.reservation_token(token)).refused(508);
    let mut second = Client::new(1002).from_page(PAGE).of_realm(OTHER);
    second.try_allocate(&mut world, |b| _ = b.reservation_token(token)).success();
}

/// The realm has users of the database, and the server's own realm has some, too.
#[test]
fn sessions_of_a_realm_that_is_gone_end_on_request() {
    let mut world = world();
    let now = world.now;
    let mut own = Client::new(1000);
    own.allocate(&mut world);
    let mut tenant = Client::new(1001).from_page(PAGE).of_realm(OTHER);
    tenant.allocate(&mut world);
    reload(&mut world, policy());
    for _ in 0..2 {
        let reply = tenant.refresh(&mut world, None);
        assert!([401, 438, 441].contains(&reply.code().unwrap()), "{:?}", reply.code());
    }
    let part = world.server.end_unaccepted(now, None, None, 100);
    assert_eq!(part.ended, 1);
    own.refresh(&mut world, None).success();
}

#[test]
fn a_ticket_moves_nothing_for_another_realm() {
    let mut world = world();
    let mut tenant = Client::new(1000).from_page(PAGE).of_realm(OTHER);
    let reply = tenant.try_allocate(&mut world, |b| _ = b.mobility_ticket(&[])).success();
    let ticket = reply.first(AttributeType::MOBILITY_TICKET).unwrap().to_vec();
    let mut thief = Client::new(1001);
    let reply = thief.ask(&mut world, Method::REFRESH, |b| _ = b.mobility_ticket(&ticket));
    assert_eq!(reply.code(), Some(441));
    let mut moved = Client::new(1002).from_page(PAGE).of_realm(OTHER);
    let reply = moved.ask(&mut world, Method::REFRESH, |b| _ = b.mobility_ticket(&ticket));
    assert_eq!(reply.code(), None);
}

#[test]
fn each_realm_has_its_own_rules() {
    let alternates = AlternateServers::of(vec![addr("203.0.113.99:3478")]);
    let mut world = World::with(tenants(|other| {
        other.peer_rules = rules(&["192.0.2.0/28"]);
        other.quotas.allocations_per_user = 2;
        other.quotas.channels = 1;
        other.lifetimes.allocation_default = secs(120);
        other.lifetimes.allocation_max = secs(120);
        other.software = Some("Tenant".into());
    }));
    let tenant = |port| Client::new(port).from_page(PAGE).of_realm(OTHER);
    let mut first = tenant(1000);
    let reply = first.try_allocate(&mut world, |_| ()).success();
    assert_eq!(reply.lifetime(), 120);
    assert_eq!(reply.first(AttributeType::SOFTWARE), Some(&b"Tenant"[..]));
    assert_eq!(first.permit(&mut world, &["192.0.2.5:1"]).code(), Some(403));
    first.bind(&mut world, 0x4000, "192.0.2.50:1").success();
    assert_eq!(first.bind(&mut world, 0x4001, "192.0.2.51:1").code(), Some(508));
    tenant(1001).allocate(&mut world);
    tenant(1002).try_allocate(&mut world, |_| ()).refused(486);

    let mut own = Client::new(1003);
    let reply = own.try_allocate(&mut world, |_| ()).success();
    assert_eq!(reply.lifetime(), 600);
    assert_eq!(reply.first(AttributeType::SOFTWARE), Some(&b"Turnpike"[..]));
    own.permit(&mut world, &["192.0.2.5:1"]).success();
    (1004..1010).for_each(|port| _ = Client::new(port).allocate(&mut world));

    reload(&mut world, tenants(|other| other.alternates = alternates));
    tenant(1020).try_allocate(&mut world, |_| ()).refused(300);
    Client::new(1021).allocate(&mut world);
}

#[test]
fn the_rates_of_a_realm_add_up() {
    let mut world = World::with(tenants(|other| {
        other.quotas.bytes_per_second = 1000;
        other.quotas.bytes_per_second_total = 2500;
    }));
    let tenant = |port| Client::new(port).from_page(PAGE).of_realm(OTHER);
    let mut first = tenant(1000);
    first.allocate(&mut world);
    tenant(1001).allocate(&mut world);
    tenant(1002).try_allocate(&mut world, |_| ()).refused(508);
    assert_eq!(world.refusals().last(), Some(&Refusal::BandwidthQuota));
    Client::new(1003).allocate(&mut world);
    first.refresh(&mut world, Some(0)).success();
    tenant(1004).allocate(&mut world);
}

#[test]
fn a_realm_has_a_total_of_its_own() {
    let mut world = World::with(tenants(|other| other.quotas.allocations_total = 1));
    let tenant = |port| Client::new(port).from_page(PAGE).of_realm(OTHER);
    tenant(1000).allocate(&mut world);
    tenant(1001).as_bob().try_allocate(&mut world, |_| ()).refused(486);
    assert_eq!(world.refusals().last(), Some(&Refusal::RealmQuota));
    Client::new(1002).allocate(&mut world);
    let mut third = Client::new(1003).of_realm(THIRD);
    let nonce = told(third.try_allocate(&mut world, |_| ()), 438).nonce();
    third.nonce = Some(nonce);
    third.allocate(&mut world);
}

#[test]
fn the_servers_own_realm_has_a_total_as_well() {
    let mut policy = tenants(|_| ());
    policy.realms = policy
        .realms
        .with_own_allocations_max(1)
        .map(|realm| realm.quotas.allocations_total = if *realm.name == *OTHER { 2 } else { 0 });
    let mut world = World::with(policy);
    Client::new(1000).allocate(&mut world);
    Client::new(1001).as_bob().try_allocate(&mut world, |_| ()).refused(486);
    assert_eq!(world.refusals().last(), Some(&Refusal::RealmQuota));
    let tenant = |port| Client::new(port).from_page(PAGE).of_realm(OTHER);
    tenant(1002).allocate(&mut world);
    tenant(1003).allocate(&mut world);
    tenant(1004).try_allocate(&mut world, |_| ()).refused(486);
    assert_eq!(world.refusals().last(), Some(&Refusal::RealmQuota));
}

/// A reload changes one realm's peers, and takes another realm away.
#[test]
fn a_reload_acts_on_its_realm() {
    let mut world = world();
    let mut tenant = Client::new(1000).from_page(PAGE).of_realm(OTHER);
    let mut own = Client::new(1001);
    for client in [&mut tenant, &mut own] {
        client.allocate(&mut world);
        client.permit(&mut world, &["192.0.2.5:1"]).success();
    }
    reload(&mut world, tenants(|other| other.peer_rules = rules(&["192.0.2.0/28"])));
    assert_eq!(tenant.send(&mut world, "192.0.2.5:1", b"x").dropped(), DropReason::NoPermission);
    own.send(&mut world, "192.0.2.5:1", b"x").to_peer();

    reload(&mut world, policy());
    let reply = tenant.refresh(&mut world, None);
    assert!(matches!(reply.code(), Some(401 | 438)), "its realm is gone: {:?}", reply.code());
    world.advance(secs(300));
    own.refresh(&mut world, None).success();
    world.advance(secs(301));
    assert_eq!(world.sockets.len(), 1, "the tenant's allocation ends with its lifetime");
}

#[test]
fn the_only_realm_is_not_counted_in_tables_that_realms_share() {
    let realms_compete = |mut world: World| {
        Client::new(1).allocate(&mut world);
        let AllocationRecord { id, realm, account, five_tuple, .. } = world.record();
        let client = Claimant::at(five_tuple.client.ip()).with_account(&realm, &account);
        let counted = world.server.claimant(id).unwrap();
        assert!(counted == client || counted == client.within_realm(), "{counted:?}");
        counted == client
    };
    assert!(!realms_compete(World::new()));
    assert!(realms_compete(world()));
}
