//! Budgets of what unauthenticated sources can cause: responses, verifications and user look-ups. None
//! of them may be used up by one source at the cost of another that has proved more.

mod support;

use stun_wire::*;
use support::*;
use turn_proto::*;
use turn_types::*;

/// A world that grants each network this many unauthenticated responses per second.
fn granting(per_second: u32) -> World {
    World::with(Policy { strangers: StrangerBudget { per_second }, ..policy() })
}

/// Whether a request without credentials is answered.
fn is_answered(world: &mut World, client: &mut Client, method: Method) -> bool {
    let request = client.bare(method, |_| ());
    matches!(world.from_client(&client.path, &request), Fate::Reply(_))
}

/// Floods from addresses of 198.51.100.0/24 with ports of their own: a forger's packets.
fn flood(world: &mut World, hosts: core::ops::Range<u8>, each: u16, method: Method) -> usize {
    let answered =
        hosts.flat_map(|host| (1..=each).map(move |port| (host, port))).filter(|(host, port)| {
            let mut forged = Client::at(&format!("198.51.100.{host}:{port}"));
            is_answered(world, &mut forged, method)
        });
    answered.count()
}

#[test]
fn forged_datagrams_keep_nobody_from_a_connection() {
    let mut world = granting(2000);
    for transport in [Transport::Tcp, Transport::Tls, Transport::Dtls] {
        flood(&mut world, 0..255, 20, Method::ALLOCATE);
        flood(&mut world, 0..255, 20, Method::BINDING);
        let mut client = Client::at("198.51.100.7:5000").over(transport);
        assert!(is_answered(&mut world, &mut client, Method::BINDING), "{transport:?}");
        client.allocate(&mut world);
    }
}

#[test]
fn forged_datagrams_keep_nobody_from_logging_in_who_has_a_nonce() {
    let mut world = granting(2000);
    let mut client = Client::at("198.51.100.7:5000");
    client.log_in(&mut world);
    flood(&mut world, 0..255, 20, Method::ALLOCATE);
    flood(&mut world, 0..255, 20, Method::BINDING);
    client.allocate(&mut world);
    // The same for whoever has to be told that a password is wrong.
    let mut wrong = Client::at("198.51.100.8:5000");
    world.advance(secs(2));
    wrong.log_in(&mut world);
    flood(&mut world, 0..255, 20, Method::ALLOCATE);
    wrong.password = "looking-glass";
    let request = wrong.sealed(&mut world, Method::ALLOCATE, |_| ());
    let Fate::Reply(reply) = world.from_client(&wrong.path, &request) else {
        panic!("a wrong password is told so");
    };
    assert_eq!(wrong.decode(&request, reply).code(), Some(401));
}

#[test]
fn a_flood_from_three_addresses_leaves_the_rest_of_their_network_alone() {
    for flooded in [Method::BINDING, Method::ALLOCATE] {
        let mut world = granting(2000);
        for _ in 0..10 {
            flood(&mut world, 1..4, 1000, flooded);
            world.advance(secs(1) / 10);
        }
        for host in 10..200 {
            for method in [Method::BINDING, Method::ALLOCATE] {
                let mut client = Client::at(&format!("198.51.100.{host}:5000"));
                assert!(is_answered(&mut world, &mut client, method), "{host}: {method:?}");
            }
        }
    }
}

#[test]
fn a_flood_of_bindings_leaves_challenges_alone() {
    let mut world = granting(2000);
    flood(&mut world, 0..255, 100, Method::BINDING);
    assert!(!is_answered(&mut world, &mut Client::at("198.51.100.7:9999"), Method::BINDING));
    assert_eq!(flood(&mut world, 0..255, 1, Method::ALLOCATE), 255);
}

#[test]
fn what_a_network_is_sent_is_bounded_whoever_asks() {
    // Over ten seconds: the figure, and its burst once.
    let mut world = granting(200);
    let mut answered = 0;
    for step in 0..1000_u16 {
        let host = u8::try_from(step % 256).unwrap();
        for method in [Method::BINDING, Method::ALLOCATE] {
            for port in 0..4 {
                let from = format!("198.51.100.{host}:{}", 1000 + step * 4 + port);
                answered += u32::from(is_answered(&mut world, &mut Client::at(&from), method));
            }
        }
        world.advance(secs(1) / 100);
    }
    assert!((1900..=2200).contains(&answered), "{answered}");
}

#[test]
fn a_spent_budget_is_told_once_a_minute_with_the_source() {
    let mut world = granting(20);
    for _ in 0..3 {
        flood(&mut world, 1..4, 100, Method::BINDING);
    }
    let spent = |world: &mut World| {
        let notices = std::mem::take(&mut world.notices);
        let source = |notice| {
            let Notice::BudgetSpent { budget, source } = notice else { return None };
            Some((budget, source))
        };
        notices.into_iter().filter_map(source).collect::<Vec<_>>()
    };
    let network: Prefix = "198.51.100.0/24".parse().unwrap();
    assert_eq!(spent(&mut world), [(Budget::Bindings, network)]);
    world.advance(secs(59));
    flood(&mut world, 1..4, 100, Method::BINDING);
    assert_eq!(spent(&mut world), []);
    world.advance(secs(1));
    flood(&mut world, 1..4, 100, Method::BINDING);
    assert_eq!(spent(&mut world), [(Budget::Bindings, network)]);
}
