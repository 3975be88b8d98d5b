//! Routes of bound channels, for a path that forwards packets without the server. Routes never
//! forward packets that the server would not forward. [`World`] asserts three facts in every test
//! of this crate. Every route has a socket, is reported only when new, and is withdrawn once and
//! before its socket closes.

use std::net::SocketAddr;
use std::sync::Arc;

use turn_proto::*;
use turn_types::*;

use crate::support::*;

const NUMBER: u16 = 0x4000;
const PEER_2: &str = "192.0.2.20:1";
const UNLIMITED: u64 = 0;

/// A client with an allocation of an hour and a channel to [`PEER`].
fn bound(world: &mut World) -> (Client, SocketAddr) {
    let mut client = Client::new(1);
    let relayed = client.allocate(world);
    client.refresh(world, Some(3600)).success();
    client.use_channel(world, NUMBER, PEER);
    (client, relayed)
}

/// The only route.
fn only(world: &World) -> Route {
    let routes: Vec<Route> = world.routes.values().copied().collect();
    let [route] = routes[..] else { panic!("{routes:?}") };
    route
}

/// Remaining validity of a route: to the peer, to the client.
fn left(world: &World, route: &Route) -> (u64, u64) {
    let left = |until: Instant| until.saturating_since(world.now.instant).as_secs();
    (left(route.to_peer_until), left(route.to_client_until))
}

/// The number of commands about routes that `act` causes.
fn told<R>(world: &mut World, act: impl FnOnce(&mut World) -> R) -> u32 {
    let before = world.route_commands;
    act(world);
    world.route_commands - before
}

#[test]
fn a_bound_channel_has_a_route() {
    let mut world = World::new();
    let (client, relayed) = bound(&mut world);
    let expected = Route {
        id: RouteId { allocation: world.record().id, channel: NUMBER },
        five_tuple: client.path.five_tuple,
        relay: *world.sockets.keys().next().unwrap(),
        relayed: RelayedAddr(relayed),
        peer: peer(PEER),
        own: false,
        to_peer_until: world.now.instant + secs(600),
        to_client_until: world.now.instant + secs(300),
        bytes_per_second: UNLIMITED,
    };
    assert_eq!(only(&world), expected);
}

#[test]
fn a_channel_without_traffic_has_no_route() {
    let mut world = World::new();
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    for number in 0x4000..0x4010 {
        client.bind(&mut world, number, &format!("192.0.2.10:{number}")).success();
    }
    client.bind(&mut world, 0x4000, "192.0.2.10:16384").success();
    world.apply(Policy { rfc5766_clients: true, ..world.policy.clone() });
    client.refresh(&mut world, Some(3600)).success();
    client.send(&mut world, "192.0.2.10:16384", b"no ChannelData").to_peer();
    assert_eq!(world.route_commands, 0);

    client.send_channel(&mut world, 0x4003, b"first").to_peer();
    assert_eq!(only(&world).id.channel, 0x4003);
    world.from_peer(relayed, "192.0.2.10:16389", b"first").to_client();
    let numbers: Vec<u16> = world.routes.keys().map(|id| id.channel).collect();
    assert_eq!((numbers, world.route_commands), (vec![0x4003, 0x4005], 2));
    client.send_channel(&mut world, 0x4003, b"second").to_peer();
    world.from_peer(relayed, "192.0.2.10:16387", b"third").to_client();
    assert_eq!(world.route_commands, 2);
}

#[test]
fn a_channel_that_lost_its_route_gets_one_with_its_next_data() {
    let mut world = World::new();
    let (mut client, relayed) = bound(&mut world);
    let id = only(&world).id;
    for by_peer in [false, true] {
        // The driver has removed it.
        world.routes.clear();
        world.server.await_data(id);
        assert_eq!(told(&mut world, |world| client.bind(world, NUMBER, PEER).success()), 0);
        if by_peer {
            world.from_peer(relayed, PEER, b"next").to_client();
        } else {
            client.send_channel(&mut world, NUMBER, b"next").to_peer();
        }
        assert_eq!(only(&world).id, id);
    }
    world.routes.clear();
    world.server.await_data(id);
    assert_eq!(told(&mut world, |world| client.refresh(world, Some(0)).success()), 0);
    // A route of an ended allocation.
    world.server.await_data(id);
    assert!(world.server.claimant(id.allocation).is_none());
}

#[test]
fn data_that_is_dropped_installs_no_route() {
    let mut policy = policy();
    policy.quotas.bytes_per_second = 100_000;
    let mut world = World::with(policy);
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    client.bind(&mut world, NUMBER, PEER).success();
    world.server.credit(world.record().id, CARRIED);
    let fate = client.send_channel(&mut world, NUMBER, &[0; 1000]);
    assert_eq!(fate.dropped(), DropReason::Bandwidth);
    assert_eq!(world.route_commands, 0);
    world.advance(secs(301));
    let fate = world.from_peer(relayed, PEER, b"x");
    assert_eq!(fate.dropped(), DropReason::NoPermission);
    assert_eq!(world.route_commands, 0);
}

#[test]
fn without_a_channel_there_is_none() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.permit(&mut world, &[PEER]).success();
    client.bind(&mut world, NUMBER, "127.0.0.1:80").refused(403);
    client.refresh(&mut world, Some(0)).success();
    assert_eq!(world.route_commands, 0);
}

#[test]
fn nobody_is_told_what_nobody_wants() {
    let mut world = World::new();
    world.server = Server::new(ServerConfig {
        worker: WorkerId(3),
        policy: Arc::new(world.policy.clone()),
        registry: Arc::clone(&world.registry) as Arc<dyn SharedRegistry>,
        seed: SEED,
        routes: false,
    });
    let (mut client, _) = bound(&mut world);
    world.apply(Policy { rfc5766_clients: true, ..world.policy.clone() });
    world.advance(secs(600));
    client.use_channel(&mut world, NUMBER, PEER_2);
    client.refresh(&mut world, Some(0)).success();
    assert_eq!(world.route_commands, 0);
}

#[test]
fn a_rebind_prolongs_both_directions() {
    let mut world = World::new();
    let (mut client, _) = bound(&mut world);
    world.advance(secs(100));
    assert_eq!(left(&world, &only(&world)), (500, 200));
    assert_eq!(told(&mut world, |world| client.use_channel(world, NUMBER, PEER)), 1);
    assert_eq!(left(&world, &only(&world)), (600, 300));
    assert_eq!(told(&mut world, |world| client.use_channel(world, NUMBER, PEER)), 0);
}

#[test]
fn a_number_that_ran_out_may_lead_to_another_peer() {
    for reclaimed in [false, true] {
        let mut world = World::new();
        let (mut client, _) = bound(&mut world);
        if reclaimed {
            world.advance(secs(602))
        } else {
            world.advance_silently(secs(600))
        }
        assert_eq!(world.routes.is_empty(), reclaimed);
        client.use_channel(&mut world, NUMBER, PEER_2);
        client.use_channel(&mut world, 0x4001, PEER);
        let peers: Vec<PeerAddr> = world.routes.values().map(|route| route.peer).collect();
        assert_eq!(peers, [peer(PEER_2), peer(PEER)]);
    }
}

#[test]
fn what_ran_out_is_withdrawn_even_by_a_request_that_is_refused() {
    let mut world = World::new();
    let (mut client, _) = bound(&mut world);
    world.advance_silently(secs(600));
    client.permit(&mut world, &["192.0.2.1:1"]).success();
    assert_eq!(world.routes.len(), 0);
    client.use_channel(&mut world, NUMBER, PEER);
    world.policy.quotas.permissions = 1;
    world.apply(world.policy.clone());
    world.advance_silently(secs(600));
    client.permit(&mut world, &[PEER, PEER_2]).refused(508);
    assert_eq!(world.routes.len(), 0);
}

#[test]
fn a_permission_opens_the_way_to_the_client() {
    let mut world = World::new();
    let (mut client, _) = bound(&mut world);
    world.advance(secs(200));
    // Ports do not count.
    client.permit(&mut world, &["192.0.2.10:9"]).success();
    assert_eq!(left(&world, &only(&world)), (400, 300));
    client.permit(&mut world, &[PEER_2]).success();
    assert_eq!(left(&world, &only(&world)), (400, 300), "somebody else's");
    // No longer than the channel.
    world.advance(secs(200));
    client.permit(&mut world, &[PEER]).success();
    assert_eq!(left(&world, &only(&world)), (200, 200));
}

#[test]
fn a_permission_that_ran_out_needs_no_word_until_there_is_a_new_one() {
    let mut world = World::new();
    let (mut client, _) = bound(&mut world);
    assert_eq!(told(&mut world, |world| world.advance(secs(302))), 0);
    assert_eq!(left(&world, &only(&world)), (298, 0));
    let other = |world: &mut World| client.permit(world, &[PEER_2]).success();
    assert_eq!(told(&mut world, other), 0);
    world.policy.quotas.bytes_per_second = 1 << 40;
    world.apply(world.policy.clone());
    assert_eq!(left(&world, &only(&world)), (298, 0));
    client.permit(&mut world, &[PEER]).success();
    assert_eq!(left(&world, &only(&world)), (298, 298));
}

#[test]
fn a_shorter_lifetime_of_permissions_is_told() {
    let mut world = World::new();
    let (mut client, _) = bound(&mut world);
    world.policy.lifetimes.permission = secs(60);
    let policy = world.policy.clone();
    assert_eq!(told(&mut world, |world| world.apply(policy)), 0, "it counts from the next one");
    client.permit(&mut world, &[PEER]).success();
    assert_eq!(left(&world, &only(&world)), (600, 60));
}

#[test]
fn a_route_is_good_no_longer_than_its_half() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate_both(&mut world);
    world.advance(secs(400));
    client.use_channel(&mut world, NUMBER, PEER);
    client.use_channel(&mut world, 0x4001, PEER_V6);
    let ends = |world: &World| -> Vec<(u64, u64)> {
        world.routes.values().map(|route| left(world, route)).collect()
    };
    assert_eq!(ends(&world), [(200, 200), (200, 200)]);
    client.refresh_half(&mut world, 2, 3600).success();
    assert_eq!(ends(&world), [(200, 200), (600, 300)]);
    client.refresh(&mut world, Some(700)).success();
    assert_eq!(ends(&world), [(600, 300), (600, 300)]);
    client.refresh_half(&mut world, 1, 3600).success();
    world.advance(secs(250));
    client.use_channel(&mut world, NUMBER, PEER);
    client.use_channel(&mut world, 0x4001, PEER_V6);
    assert_eq!(ends(&world), [(600, 300), (450, 300)]);
    world.advance(secs(451));
    assert_eq!(ends(&world), [(149, 0)], "of the half that has not run out");
}

#[test]
fn a_shorter_refresh_is_told() {
    let mut world = World::new();
    let (mut client, _) = bound(&mut world);
    world.policy.lifetimes.allocation_default = secs(60);
    world.apply(world.policy.clone());
    client.refresh(&mut world, Some(60)).success();
    assert_eq!(left(&world, &only(&world)), (60, 60));
}

#[test]
fn a_half_that_is_deleted_takes_its_routes_along() {
    for (family, stays) in [(1, PEER_V6), (2, PEER)] {
        let mut world = World::new();
        let mut client = Client::new(1);
        let (v4, v6) = client.allocate_both(&mut world);
        client.use_channel(&mut world, NUMBER, PEER);
        client.use_channel(&mut world, 0x4001, PEER_V6);
        let relayed: Vec<SocketAddr> = world.routes.values().map(|one| one.relayed.0).collect();
        assert_eq!(relayed, [v4, v6]);
        client.refresh_half(&mut world, family, 0).success();
        assert_eq!(only(&world).peer, peer(stays));
    }
}

#[test]
fn expiry_withdraws() {
    let mut world = World::new();
    let (mut client, relayed) = bound(&mut world);
    world.advance(secs(602));
    assert_eq!(world.routes.len(), 0);
    assert!(world.is_open(relayed), "the channel's end, not the allocation's");
    world.advance(secs(2600));
    client.nonce = None;
    client.use_channel(&mut world, NUMBER, PEER);
    assert_eq!(left(&world, &only(&world)), (398, 300));
    world.advance(secs(400));
    assert_eq!((world.routes.len(), world.server.allocation_count()), (0, 0));
}

#[test]
fn what_ran_out_is_not_told_anew_before_it_is_reclaimed() {
    let mut world = World::new();
    bound(&mut world);
    world.advance_silently(secs(600));
    world.policy.quotas.bytes_per_second = 1 << 20;
    let policy = world.policy.clone();
    assert_eq!(told(&mut world, |world| world.apply(policy)), 1);
    assert_eq!(world.routes.len(), 0);
    assert_eq!(told(&mut world, |world| world.advance(secs(2))), 0);
}

#[test]
fn whatever_ends_an_allocation_withdraws_first() {
    type End = fn(&mut World, &mut Client);
    let ends: [(EndReason, End); 5] = [
        (EndReason::Deleted, |world, client| {
            world.hold = true;
            client.refresh(world, Some(0)).success();
        }),
        (EndReason::Expired, |world, _| {
            world.advance_silently(secs(3602));
            world.server.handle_timeout(world.now);
        }),
        (EndReason::EndedByOperator, |world, _| {
            let id = world.record().id;
            assert!(world.server.end_allocation(world.now, id, EndReason::EndedByOperator));
        }),
        (EndReason::Shutdown, |world, _| world.server.end_all(world.now, EndReason::Shutdown)),
        (EndReason::RelayAddressRemoved, |world, _| {
            let none = Policy { relay: Vec::new(), ..world.policy.clone() };
            world.server.apply(world.now, Arc::new(none));
        }),
    ];
    for (reason, end) in ends {
        let mut world = World::new();
        let mut client = Client::new(1);
        client.allocate_both(&mut world);
        client.refresh(&mut world, Some(3600)).success();
        for (number, peer) in [(0x4000, PEER), (0x4001, PEER_V6), (0x4002, PEER_2)] {
            client.use_channel(&mut world, number, peer);
        }
        let routes: Vec<RouteId> = world.routes.keys().copied().collect();
        world.ends();
        end(&mut world, &mut client);
        world.hold = true;
        world.carry_out();
        let (mut withdrawn, mut closed) = (Vec::new(), 0);
        for command in &world.held {
            match command {
                Command::RemoveRoute(id) => withdrawn.push(*id),
                Command::CloseRelay { .. } => closed += 1,
                Command::SetRoute(_)
                | Command::SuspendRoutes
                | Command::ResumeRoutes
                | Command::FindUser { .. }
                | Command::Authorize { .. }
                | Command::OpenRelay { .. }
                | Command::AskWorker { .. }
                | Command::Fetch { .. }
                | Command::HandOver(_)
                | Command::UserOverdue { .. }
                | Command::Tcp(_) => panic!("{command:?} at the end"),
            }
        }
        withdrawn.sort_unstable();
        assert_eq!((withdrawn, closed), (routes, 2), "{reason:?}");
        assert_eq!(world.ends(), [reason]);
        // In this order, or the world finds a route without its socket.
        world.release();
        assert_eq!(world.routes.len(), 0, "{reason:?}");
    }
}

#[test]
fn a_peer_that_is_forbidden_by_a_reload_loses_its_route() {
    let mut world = World::new();
    let (mut client, _) = bound(&mut world);
    client.use_channel(&mut world, 0x4001, PEER_2);
    let policy = Policy { peer_rules: rules(&["192.0.2.10/32"]), ..world.policy.clone() };
    assert_eq!(told(&mut world, |world| world.apply(policy)), 1);
    assert_eq!(only(&world).peer, peer(PEER_2));
    let policy = Policy { peer_rules: rules(&[]), ..world.policy.clone() };
    assert_eq!(told(&mut world, |world| world.apply(policy)), 0, "the channel is gone");
}

#[test]
fn a_relay_address_that_goes_takes_its_routes_along() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate_both(&mut world);
    client.use_channel(&mut world, NUMBER, PEER);
    client.use_channel(&mut world, 0x4001, PEER_V6);
    let mut policy = world.policy.clone();
    policy.relay.remove(0);
    world.apply(policy);
    assert_eq!(only(&world).peer, peer(PEER_V6));
}

#[test]
fn a_new_bandwidth_is_told() {
    let mut world = World::new();
    bound(&mut world);
    for rate in [1 << 20, 1 << 10, UNLIMITED] {
        world.policy.quotas.bytes_per_second = rate;
        let policy = world.policy.clone();
        assert_eq!(told(&mut world, |world| world.apply(policy)), 1);
        assert_eq!(only(&world).bytes_per_second, rate);
        let policy = world.policy.clone();
        assert_eq!(told(&mut world, |world| world.apply(policy)), 0, "nothing is new");
    }
}

#[test]
fn a_hairpin_is_marked() {
    let mut world = World::new();
    let other = Client::new(2).allocate(&mut world);
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.use_channel(&mut world, NUMBER, &other.to_string());
    let route = only(&world);
    assert_eq!((route.own, route.peer.0), (true, other));
    // An address that this host has lost is an ordinary peer.
    let allow = ["203.0.113.0/24".parse().unwrap()];
    let policy = Policy { peer_rules: PeerRules::new(&allow, &[], &[]), ..world.policy.clone() };
    world.apply(policy);
    assert!(!only(&world).own);
}

#[test]
fn behind_nat_a_route_has_the_addresses_of_packets() {
    let mut world = World::with(behind_nat());
    let other = Client::new(2).allocate(&mut world);
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    client.use_channel(&mut world, NUMBER, PEER);
    client.use_channel(&mut world, 0x4001, &other.to_string());
    let local = |public: SocketAddr| SocketAddr::new(ip("10.0.0.5"), public.port());
    let rows: Vec<_> =
        world.routes.values().map(|one| (one.relayed.0, one.peer.0, one.own)).collect();
    assert_eq!(rows, [(local(relayed), addr(PEER), false), (local(relayed), local(other), true)]);
}

#[test]
fn routes_of_clients_with_connections_say_so() {
    for transport in [Transport::Tcp, Transport::Tls, Transport::Dtls] {
        let mut world = World::new();
        let mut client = Client::new(1).over(transport);
        client.allocate(&mut world);
        client.use_channel(&mut world, NUMBER, PEER);
        assert_eq!(only(&world).five_tuple.transport, transport);
        client.refresh(&mut world, Some(0)).success();
        assert!(world.routes.is_empty(), "{transport:?}");
    }
}

#[test]
fn numbers_of_rfc_5766_have_routes_while_they_are_served() {
    let serving =
        |rfc5766_clients| move |policy: &Policy| Policy { rfc5766_clients, ..policy.clone() };
    let mut world = World::with(serving(true)(&policy()));
    let (mut client, _) = bound(&mut world);
    client.use_channel(&mut world, 0x5000, PEER_2);
    let numbers = |world: &World| -> Vec<u16> {
        world.routes.values().map(|route| route.id.channel).collect()
    };
    assert_eq!(numbers(&world), [NUMBER, 0x5000]);
    world.apply(serving(false)(&world.policy));
    assert_eq!(numbers(&world), [NUMBER]);
    world.apply(serving(true)(&world.policy));
    assert_eq!(numbers(&world), [NUMBER, 0x5000]);
    world.apply(serving(false)(&world.policy));
    client.refresh(&mut world, Some(0)).success();
    assert_eq!(numbers(&world), []);
}

// Traffic carried by a fast path.

const CARRIED: Traffic = Traffic {
    to_peer_packets: 1,
    to_peer_bytes: 200_000,
    to_client_packets: 3,
    to_client_bytes: 50_000,
    dropped_packets: 5,
};

#[test]
fn what_was_carried_is_in_the_record() {
    let mut world = World::new();
    let (client, _) = bound(&mut world);
    let id = world.record().id;
    assert!(world.server.credit(id, CARRIED));
    client.send_channel(&mut world, NUMBER, b"four").to_peer();
    assert!(world.server.credit(id, CARRIED));
    let expected = Traffic {
        to_peer_packets: 4,
        to_peer_bytes: 400_004,
        to_client_packets: 6,
        to_client_bytes: 100_000,
        dropped_packets: 10,
    };
    assert_eq!(world.record().traffic, expected);
    assert_eq!(world.record().history.drops, [(DropReason::Bandwidth, 10)]);
    assert_eq!(world.record().history.carried_packets, 8, "without those of the sockets");
    let mut ended = world.record();
    ended.credit(&CARRIED);
    assert_eq!(ended.history.carried_packets, 12);
    world.server.end_allocation(world.now, id, EndReason::EndedByOperator);
    assert!(!world.server.credit(id, CARRIED));
    assert!(!world.server.credit(AllocationId(0), CARRIED));
}

#[test]
fn what_was_carried_counts_against_the_bandwidth_of_its_direction() {
    let mut policy = policy();
    policy.quotas.bytes_per_second = 200_000;
    let mut world = World::with(policy);
    let (mut client, relayed) = bound(&mut world);
    let passes = |world: &mut World, client: &mut Client, len| {
        let payload = vec![0; len];
        let sent = matches!(client.send(world, PEER, &payload), Fate::ToPeer { .. });
        (sent, matches!(world.from_peer(relayed, PEER, &payload), Fate::ToClient { .. }))
    };
    assert!(world.server.credit(world.record().id, CARRIED));
    assert_eq!(passes(&mut world, &mut client, 1), (false, true), "to the peer nothing is left");
    for _ in 0..2 {
        world.from_peer(relayed, PEER, &[0; 60_000]).to_client();
    }
    assert_eq!(passes(&mut world, &mut client, 60_000), (false, false));
    world.advance(secs(1));
    assert_eq!(passes(&mut world, &mut client, 60_000), (true, true));
}
