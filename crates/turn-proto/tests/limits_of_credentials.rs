//! Limits of a credential, in a time-limited name and from the authorizer. Such limits narrow the
//! permissions of the realm, and never widen them.

use stun_wire::*;
use turn_proto::*;
use turn_types::*;

use crate::support::*;

const SECRET: &[u8] = b"0123456789abcdef";

fn with_secret() -> Policy {
    let mut policy = policy();
    let secret = Secret::new(SECRET.into());
    policy.auth.secrets = vec![SharedSecret { name: "web".into(), secret }];
    policy.auth.limits_in_names = true;
    policy
}

/// A client of a credential with these limits.
fn limited(port: u16, limits: &str) -> Client {
    named(port, format!("1900003600:alice?{limits}"))
}

fn named(port: u16, name: String) -> Client {
    let mut client = Client::new(port);
    client.user = name.leak();
    client.password = time_limited_password(SECRET, client.user).leak();
    client
}

fn asked() -> World {
    let mut policy = policy();
    policy.auth.authorizer = Some(WhenSilent::Refuse);
    World::with(policy)
}

fn granted(limits: &str) -> Authorization {
    Authorization::Granted(limits.parse().unwrap())
}

/// The accounts of live allocations.
fn accounts(world: &World) -> Vec<String> {
    world.server.allocations().map(|record| record.account.to_string()).collect()
}

fn refusal(world: &mut World, client: &mut Client) -> (Option<u16>, Option<Refusal>) {
    let _earlier = world.refusals();
    let code = client.try_allocate(world, |_| ()).code();
    (code, world.refusals().pop())
}

#[test]
fn a_name_limits_the_allocations_of_its_account() {
    let mut world = World::with(with_secret());
    limited(1, "allocations=2").allocate(&mut world);
    limited(2, "allocations=2").allocate(&mut world);
    let third = refusal(&mut world, &mut limited(3, "allocations=2"));
    assert_eq!(third, (Some(486), Some(Refusal::UserQuota)));
    // The account does not depend on the limits.
    limited(4, "allocations=3").allocate(&mut world);
    assert_eq!(accounts(&world), ["alice"; 3]);
}

#[test]
fn a_quota_of_the_realm_is_not_widened() {
    let mut policy = with_secret();
    policy.quotas.allocations_per_user = 1;
    policy.quotas.bytes_per_second = 1000;
    let mut world = World::with(policy);
    let mut client = limited(1, "allocations=5&bytes_per_second=9000&lifetime=90000");
    client.allocate(&mut world);
    client.use_channel(&mut world, 0x4000, PEER);
    assert_eq!(world.routes.values().map(|route| route.bytes_per_second).max(), Some(1000));
    assert_eq!(client.refresh(&mut world, Some(86_400)).success().lifetime(), 3600);
    let second = refusal(&mut world, &mut limited(2, "allocations=5"));
    assert_eq!(second, (Some(486), Some(Refusal::UserQuota)));
}

#[test]
fn a_name_limits_rate_and_lifetime_also_after_a_reload() {
    let mut world = World::with(with_secret());
    let mut client = limited(1, "bytes_per_second=700&lifetime=60");
    assert_eq!(client.try_allocate(&mut world, |_| ()).success().lifetime(), 60);
    client.use_channel(&mut world, 0x4000, PEER);
    let rate = |world: &World| world.routes.values().map(|route| route.bytes_per_second).max();
    assert_eq!(rate(&world), Some(700));
    assert_eq!(client.refresh(&mut world, Some(3600)).success().lifetime(), 60);
    let relay = world.policy.relay.clone();
    let mut faster = Policy { relay, ..with_secret() };
    faster.quotas.bytes_per_second = 5000;
    world.apply(faster);
    assert_eq!(rate(&world), Some(700));
}

#[test]
fn a_name_limits_peers() {
    let mut world = World::with(with_secret());
    let mut client = limited(1, "peers=192.0.2.10/32,10.0.0.0/8");
    client.allocate(&mut world);
    client.permit(&mut world, &[PEER]).success();
    client.use_channel(&mut world, 0x4000, PEER);
    for other in ["192.0.2.11:5000", "10.0.0.1:5000"] {
        // The second peer is within the limits, and the rules forbid this peer nevertheless.
        assert_eq!(client.permit(&mut world, &[other]).code(), Some(403), "{other}");
        assert_eq!(client.bind(&mut world, 0x4001, other).code(), Some(403), "{other}");
    }
    let relay = world.policy.relay.clone();
    world.apply(Policy { relay, ..with_secret() });
    client.permit(&mut world, &[PEER]).success();
    assert_eq!(world.routes.len(), 1, "a reload leaves what the limits allow");
}

#[test]
fn a_refusal_names_the_credential_as_its_reason() {
    let mut world = World::with(with_secret());
    let mut client = limited(1, "peers=192.0.2.10/32");
    client.allocate(&mut world);
    while world.server.poll_notice().is_some() {}
    world.notices.clear();
    client.permit(&mut world, &["192.0.2.11:5000"]);
    let by = world.notices.iter().find_map(|notice| {
        let Notice::Refused(refused) = notice else { return None };
        refused.peer.as_ref().map(|peer| peer.by)
    });
    assert_eq!(by, Some(DeniedBy::Credential));
}

#[test]
fn limits_that_cannot_be_read_let_nobody_in() {
    let mut world = World::with(with_secret());
    for limits in ["", "allocations=none", "allocations=2?allocations=9", "color=red"] {
        let answer = refusal(&mut world, &mut limited(1, limits));
        assert_eq!(answer, (Some(403), Some(Refusal::UnreadableLimits)), "{limits}");
    }
    // A client that changes the limits does not have the password.
    let mut forged = limited(2, "allocations=1");
    forged.user = "1900003600:alice?allocations=9";
    assert_eq!(refusal(&mut world, &mut forged), (Some(401), Some(Refusal::WrongSecret)));
}

#[test]
fn an_account_without_a_name_has_a_quota_as_well() {
    let mut world = World::with(with_secret());
    // The second name starts without a time, so it is not a credential of a secret.
    for (name, expected) in [
        ("1900003600:?allocations=1", [None, Some(486)]),
        ("1900003600?allocations=1:x", [Some(401); 2]),
    ] {
        let codes = [1, 2].map(|port| {
            let mut client = named(port, name.to_owned());
            client.try_allocate(&mut world, |_| ()).code()
        });
        assert_eq!(codes, expected, "{name}");
        let now = world.now;
        world.server.end_all(now, EndReason::EndedByOperator);
        world.carry_out();
    }
}

#[test]
fn a_question_mark_is_a_part_of_the_name_unless_names_have_limits() {
    let mut policy = with_secret();
    policy.auth.limits_in_names = false;
    let mut world = World::with(policy);
    limited(1, "allocations=1").allocate(&mut world);
    limited(2, "allocations=1").allocate(&mut world);
    assert_eq!(accounts(&world), ["alice?allocations=1"; 2]);
}

#[test]
fn the_authorizer_decides_behind_all_checks() {
    let mut world = asked();
    let mut wrong = Client::new(1);
    wrong.password = "guessed";
    assert_eq!(wrong.try_allocate(&mut world, |_| ()).code(), Some(401));
    assert!(world.asked.is_empty(), "strangers cost the authorizer nothing");
    let mut alice = Client::new(2);
    alice.allocate(&mut world);
    let applicant = world.asked.pop().unwrap();
    assert_eq!((&*applicant.realm, &*applicant.user), (REALM, "alice"));
    assert_eq!(applicant.client, alice.path.five_tuple.client);
    alice.permit(&mut world, &[PEER]).success();
    alice.refresh(&mut world, None).success();
    assert!(world.asked.is_empty(), "nor do requests for an allocation that is there");

    world.authorizer = Authorization::Denied;
    let opened = world.opened;
    let denied = refusal(&mut world, &mut Client::new(3));
    assert_eq!(denied, (Some(403), Some(Refusal::NotAuthorized)));
    assert_eq!(world.opened, opened, "no port is taken for it");
    alice.refresh(&mut world, None).success();
}

#[test]
fn a_silent_authorizer_refuses_or_serves_as_configured() {
    let mut world = asked();
    world.authorizer = Authorization::Unavailable;
    let silent = refusal(&mut world, &mut Client::new(1));
    assert_eq!(silent, (Some(500), Some(Refusal::AuthorizerUnavailable)));
    let mut policy = policy();
    policy.auth.authorizer = Some(WhenSilent::Serve);
    let mut world = World::with(policy);
    world.authorizer = Authorization::Unavailable;
    Client::new(1).allocate(&mut world);
}

/// Overloaded is not unavailable: a client with many requests would be served otherwise.
#[test]
fn an_overloaded_authorizer_refuses_whatever_is_configured() {
    for when_silent in [WhenSilent::Serve, WhenSilent::Refuse] {
        let mut policy = policy();
        policy.auth.authorizer = Some(when_silent);
        let mut world = World::with(policy);
        world.authorizer = Authorization::Overloaded;
        let refused = refusal(&mut world, &mut Client::new(1));
        assert_eq!(refused, (Some(500), Some(Refusal::AuthorizerOverloaded)));
    }
}

#[test]
fn the_authorizer_narrows_limits() {
    let mut world = asked();
    world.authorizer =
        granted("allocations=1&bytes_per_second=700&lifetime=60&peers=192.0.2.10/32");
    let mut alice = Client::new(1);
    assert_eq!(alice.try_allocate(&mut world, |_| ()).success().lifetime(), 60);
    alice.use_channel(&mut world, 0x4000, PEER);
    assert_eq!(world.routes.values().map(|route| route.bytes_per_second).max(), Some(700));
    assert_eq!(alice.permit(&mut world, &["192.0.2.11:5000"]).code(), Some(403));
    assert_eq!(alice.refresh(&mut world, Some(3600)).success().lifetime(), 60);
    let second = refusal(&mut world, &mut Client::new(2));
    assert_eq!(second, (Some(486), Some(Refusal::UserQuota)));
    alice.refresh(&mut world, Some(0)).success();
    Client::new(3).allocate(&mut world);
}

#[test]
fn an_answer_that_never_comes_leaves_nothing() {
    let mut world = asked();
    world.hold = true;
    let mut alice = Client::new(1);
    alice.log_in(&mut world);
    world.release();
    world.hold = true;
    let request = alice.sealed(&mut world, Method::ALLOCATE, |builder| {
        builder.requested_transport(17);
    });
    assert!(matches!(world.from_client(&alice.path, &request), Fate::Wait));
    world.advance(secs(60));
    world.held.clear();
    world.hold = false;
    assert_eq!(world.sockets.len(), 0);
    // The slot in the quotas is free again, and so is the 5-tuple.
    alice.allocate(&mut world);
}

/// Permission after the removal of the secret allocates nothing.
#[test]
fn a_secret_that_is_removed_during_the_question_allocates_nothing() {
    let mut policy = with_secret();
    policy.auth.authorizer = Some(WhenSilent::Refuse);
    let mut world = World::with(policy);
    world.hold = true;
    let mut client = named(1, "1900003600:alice".into());
    let request = client.sealed(&mut world, Method::ALLOCATE, |builder| {
        builder.requested_transport(17);
    });
    assert_eq!(client.refusal_unless_it_waits(&mut world, &request), None);
    let mut without = world.policy.clone();
    without.auth.secrets[0].secret = Secret::new(b"another secret of a reload".as_slice().into());
    world.apply(without);
    let Command::Authorize { pending, .. } = world.held.remove(0) else { panic!() };
    let answer = Authorization::Granted(GrantLimits::default());
    assert!(world.handle_event(Event::Authorized { pending, answer }).is_some());
    world.carry_out();
    assert_eq!(world.refusals().last(), Some(&Refusal::CredentialRevoked));
    assert_eq!(accounts(&world), [""; 0]);
}

/// Permission after the expiry of the credential allocates nothing.
#[test]
fn a_credential_that_expires_during_the_question_allocates_nothing() {
    let mut policy = with_secret();
    policy.auth.authorizer = Some(WhenSilent::Refuse);
    let mut world = World::with(policy);
    world.hold = true;
    let expires = world.now.unix.0 + 2;
    let mut client = named(1, format!("{expires}:alice"));
    let request = client.sealed(&mut world, Method::ALLOCATE, |builder| {
        builder.requested_transport(17);
    });
    assert_eq!(client.refusal_unless_it_waits(&mut world, &request), None);
    let Command::Authorize { pending, .. } = world.held.remove(0) else { panic!() };
    world.advance(secs(2));
    let answer = Authorization::Granted(GrantLimits::default());
    assert!(world.handle_event(Event::Authorized { pending, answer }).is_some());
    world.carry_out();
    assert_eq!(world.refusals().last(), Some(&Refusal::CredentialExpired));
    assert_eq!(accounts(&world), [""; 0]);
}

/// An Allocate of a database user, up to the authorizer's question.
fn asked_about_alice() -> (World, Client, Vec<u8>, Event) {
    let mut world = asked();
    let mut alice = Client::new(1);
    alice.log_in(&mut world);
    let request = alice.sealed(&mut world, Method::ALLOCATE, |builder| {
        builder.requested_transport(17);
    });
    world.hold = true;
    assert!(matches!(world.from_client(&alice.path, &request), Fate::Wait));
    let found = world.held.remove(0);
    assert!(matches!(found, Command::FindUser { .. }));
    assert!(world.carry_out_one(found).is_none());
    assert!(world.carry_out().is_empty());
    let Command::Authorize { pending, .. } = world.held.remove(0) else { panic!() };
    let answer = Authorization::Granted(GrantLimits::default());
    (world, alice, request, Event::Authorized { pending, answer })
}

/// The late consent of the authorizer, and all that follows from it.
fn consent(world: &mut World, late: Event) -> Vec<Vec<u8>> {
    world.hold = false;
    let _earlier = world.refusals();
    let first = world.handle_event(late);
    let more = world.carry_out();
    first.into_iter().chain(more).map(|(_, answer)| answer).collect()
}

/// Change during the question, and the refusal of the user's Allocate.
type Change = (fn(&mut World), Refusal);

#[test]
fn a_late_consent_serves_no_former_user() {
    let changes: [Change; 3] = [
        (|world| world.users.retain(|name, _| *name != "alice"), Refusal::UnknownUser),
        (|world| world.users.extend([("alice", "another password")]), Refusal::WrongPassword),
        (|world| world.database_is_overloaded = true, Refusal::UserLookupsOverloaded),
    ];
    for (change, refusal) in changes {
        let (mut world, alice, request, late) = asked_about_alice();
        change(&mut world);
        let answers = consent(&mut world, late);
        let [answer] = &answers[..] else { panic!("{} answers", answers.len()) };
        assert_eq!(alice.decode(&request, answer.clone()).code(), Some(refusal.code()));
        assert_eq!(world.refusals(), [refusal]);
        assert_eq!(accounts(&world), [""; 0]);
        assert_eq!(world.opened, 0, "no port is claimed");
        world.check();
    }
}

/// The database has confirmed the user before the question: its outage refuses no user.
#[test]
fn a_user_who_cannot_be_confirmed_after_the_question_is_served() {
    let (mut world, alice, request, late) = asked_about_alice();
    world.no_database = true;
    let answers = consent(&mut world, late);
    alice.decode(&request, answers[0].clone()).success();

    let (mut world, alice, request, late) = asked_about_alice();
    world.database_hangs = true;
    assert!(consent(&mut world, late).is_empty());
    let answers = world.advance_and_hear(limits::USER_LOOKUP_WITHIN);
    alice.decode(&request, answers[0].1.clone()).success();
    assert_eq!(accounts(&world), ["alice"]);
}

/// A revocation during the look-up after the question.
#[test]
fn a_user_who_is_revoked_during_the_last_look_up_allocates_nothing() {
    let (mut world, alice, request, late) = asked_about_alice();
    assert!(world.handle_event(late).is_none());
    assert!(world.carry_out().is_empty());
    let mut revoked = Revoked::default();
    revoked.refuse_name(REALM.into(), &UserName::new("alice").unwrap());
    let policy = Policy { revoked: std::sync::Arc::new(revoked), ..world.policy.clone() };
    world.apply(policy);
    let answers = world.release();
    assert_eq!(alice.decode(&request, answers[0].1.clone()).code(), Some(401));
    assert_eq!(accounts(&world), [""; 0]);
}

/// Requests of one account that wait for the authorizer use a share of the slots until
/// the answer. No configuration serves a client without an answer.
#[test]
fn requests_of_one_account_that_wait_for_the_authorizer_leave_slots_to_others() {
    let mut policy = with_secret();
    policy.auth.authorizer = Some(WhenSilent::Serve);
    let mut world = World::with(policy);
    world.hold = true;
    let mut port = 0;
    let mut ask = |world: &mut World, name: &str| {
        port += 1;
        let mut client = named(port, format!("1900003600:{name}"));
        let request = client.sealed(world, Method::ALLOCATE, |builder| {
            builder.requested_transport(17);
        });
        client.refusal_unless_it_waits(world, &request)
    };
    let most = limits::PENDING_AUTHORIZATIONS_MAX;
    let mut waiting = 0;
    while ask(&mut world, "alice").is_none() {
        waiting += 1;
    }
    assert_eq!(world.refusals().last(), Some(&Refusal::AuthorizerOverloaded));
    assert!((most / 8 * 7..most).contains(&waiting), "{waiting}");
    for _ in 0..most / 8 {
        let Command::Authorize { pending, .. } = world.held.remove(0) else { panic!() };
        let denied = Event::Authorized { pending, answer: Authorization::Denied };
        assert!(world.handle_event(denied).is_some());
    }
    assert_eq!(ask(&mut world, "alice"), None);
}

/// Operators see the account of a refused name, with the separator of the server.
#[test]
fn a_refusal_names_the_account_of_a_name_with_another_separator() {
    let mut policy = with_secret();
    policy.auth.separator = '|';
    policy.quotas.allocations_per_user = 1;
    let mut world = World::with(policy);
    let refused = |world: &mut World, client: &mut Client| {
        client.try_allocate(world, |_| ()).code().unwrap();
        let refused = world.notices.iter().rev().find_map(|notice| {
            if let Notice::Refused(refused) = notice { Some(refused.clone()) } else { None }
        });
        let RefusedRequest { user, claimed, account, .. } = refused.unwrap();
        (user.is_some(), claimed.is_some(), account.unwrap().to_string())
    };
    named(1, "1900003600|alice".into()).allocate(&mut world);
    let mut second = named(2, "1900003601|alice?allocations=5".into());
    assert_eq!(refused(&mut world, &mut second), (true, false, "alice".into()));
    let mut wrong = named(3, "bob|1900003600".into());
    wrong.password = "wrong";
    assert_eq!(refused(&mut world, &mut wrong), (false, true, "bob".into()));
    let mut other = named(4, "1900003600:carol".into());
    assert_eq!(refused(&mut world, &mut other), (false, true, "1900003600:carol".into()));
}

/// The authorizer has let the client in without an answer, and answers later.
#[test]
fn limits_that_come_late_narrow_a_live_allocation() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.use_channel(&mut world, 0x4000, PEER);
    client.use_channel(&mut world, 0x4001, "192.0.2.77:5000");
    let id = world.record().id;
    let limits: GrantLimits =
        "bytes_per_second=700&lifetime=60&peers=192.0.2.77/32".parse().unwrap();
    assert!(world.server.limit(world.now.instant, id, &limits));
    world.carry_out();
    client.send_channel(&mut world, 0x4001, b"x").to_peer();
    assert_eq!(
        client.send_channel(&mut world, 0x4000, b"x").dropped(),
        DropReason::ChannelNotBound
    );
    client.permit(&mut world, &[PEER]).refused(403);
    assert_eq!(client.refresh(&mut world, Some(3600)).success().lifetime(), 60);
    let rates = world.routes.values().map(|route| route.bytes_per_second);
    assert_eq!(rates.max(), Some(700));
    let nobody = AllocationId::new(WorkerId(0), 99);
    assert!(!world.server.limit(world.now.instant, nobody, &limits));
}
