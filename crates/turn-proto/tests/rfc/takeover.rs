//! A stopping server, and the successor, which continues its allocations. Clients and peers notice
//! nothing.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use netsim::Rng;
use state_format::{Malformed, Reader, Writer};
use stun_wire::{AttributeType, Method};
use test_support::for_each_seed;
use turn_proto::{
    AllocationImportError, AllocationRecord, DropReason, EndReason, HEADER_MAX, ImportedAllocation,
    Notice, PeerRules, Policy, Quotas, RelayPrefix, Revoked, Verdict,
};
use turn_types::{
    AllocationId, ClientPath, IpMeta, PeerAddr, Prefix, RelayId, RelayProtocol, RelayedAddr,
    SocketId, Transport, WorkerId,
};

use crate::support::workers::*;
use crate::support::*;

/// An allocation on its way between two processes.
pub(crate) struct ReleasedAllocation {
    pub(crate) id: AllocationId,
    pub(crate) state: Vec<u8>,
    /// Relay sockets, by their ids in the predecessor.
    pub(crate) sockets: Vec<(RelayId, RelayedAddr)>,
}

/// Exports all allocations.
pub(crate) fn leave(world: &mut World) -> Vec<ReleasedAllocation> {
    let ids: Vec<AllocationId> = world.server.allocations().map(|record| record.id).collect();
    world.server.withdraw_all(|_| true);
    world.carry_out();
    assert!(world.routes.is_empty(), "another process has the packets now");
    ids.into_iter().map(|id| take_out(world, id)).collect()
}

fn take_out(world: &mut World, id: AllocationId) -> ReleasedAllocation {
    let mut out = Writer::new();
    world.server.copy(id).unwrap().write(&mut out);
    let departure = world.server.remove(id).unwrap();
    let sockets = departure.relays().map(|relay| (relay, world.sockets.remove(&relay).unwrap()));
    let sockets = sockets.collect();
    ReleasedAllocation { id, state: out.into_bytes(), sockets }
}

/// Returns a process with these rules and without state, at the time of the old process.
pub(crate) fn next(old: &World, policy: Policy) -> World {
    let mut new = World::worker(WorkerId(3), policy, Arc::new(TestRegistry::default()));
    new.now = old.now;
    new
}

/// The successor has the same sockets with the same numbers.
#[expect(clippy::unnecessary_wraps, reason = "a server may have none")]
const fn as_before(path: &ClientPath) -> Option<SocketId> {
    Some(path.socket)
}

pub(crate) fn take(
    world: &mut World,
    state: &[u8],
    sockets: &[(RelayId, RelayedAddr)],
) -> Result<ImportedAllocation, AllocationImportError> {
    let taken = world.server.import(world.now, Reader::new(state), as_before)?;
    for renamed in taken.renamed.into_iter().flatten() {
        let (_, at) = sockets.iter().find(|(relay, _)| *relay == renamed.from).unwrap();
        world.sockets.insert(renamed.to, *at);
    }
    assert!(world.carry_out().is_empty());
    world.check();
    Ok(taken)
}

/// Moves all state to the successor.
pub(crate) fn restart(mut old: World, policy: Policy) -> World {
    let mut new = next(&old, policy);
    for ReleasedAllocation { state, sockets, .. } in leave(&mut old) {
        take(&mut new, &state, &sockets).unwrap();
    }
    new
}

/// A client with a channel to a peer and a permission for another.
pub(crate) fn bound(world: &mut World) -> (Client, SocketAddr) {
    let mut client = Client::new(1000);
    let relayed = client.allocate(world);
    client.use_channel(world, 0x4000, PEER);
    client.permit(world, &["192.0.2.11:1"]).success();
    (client, relayed)
}

/// The predecessor's look-up is lost, and the successor repeats the look-up.
#[test]
fn peers_granted_before_an_unfinished_look_up_are_taken_back() {
    let mut world = World::new();
    let (mut client, _) = bound(&mut world);
    world.advance(secs(61));
    world.no_database = true;
    client.bind(&mut world, 0x4001, "192.0.2.12:1").success();
    let mut world = restart(world, policy());
    world.users.remove("alice");
    client.send_channel(&mut world, 0x4001, b"no look-up yet").to_peer();
    world.advance(secs(1));
    let fate = client.send_channel(&mut world, 0x4001, b"data");
    assert!(!matches!(fate, Fate::ToPeer { .. }), "{fate:?}");
}

#[test]
fn data_and_requests_go_on() {
    let mut world = World::new();
    let (mut client, relayed) = bound(&mut world);
    client.send_channel(&mut world, 0x4000, b"before").to_peer();
    let before = world.record();
    let mut world = restart(world, policy());
    let after = world.record();
    assert_eq!(
        (after.id, after.created, after.expires, after.traffic, after.history),
        (before.id, before.created, before.expires, before.traffic, before.history)
    );
    assert_eq!(client.send_channel(&mut world, 0x4000, b"after").to_peer(), b"after");
    client.send(&mut world, "192.0.2.11:9", b"by the permission").to_peer();
    world.from_peer(relayed, PEER, b"back").to_client();
    world.from_peer(relayed, "192.0.2.11:9", b"back").to_client();
    assert_eq!(world.routes.len(), 1, "the channel's");
    // The client continues with its nonce.
    client.refresh(&mut world, Some(1200)).success();
    client.bind(&mut world, 0x4001, "192.0.2.12:1").success();
    world.advance(secs(1201));
    assert_eq!(world.ends(), [EndReason::Expired]);
    world.check();
}

#[test]
fn deadlines_are_as_they_were() {
    let mut world = World::new();
    let (mut client, relayed) = bound(&mut world);
    client.refresh(&mut world, Some(3600)).success();
    world.advance(secs(200));
    let mut world = restart(world, policy());
    world.advance_silently(secs(99));
    client.send(&mut world, "192.0.2.11:9", b"x").to_peer();
    world.advance_silently(secs(1));
    client.send(&mut world, "192.0.2.11:9", b"x").dropped();
    world.from_peer(relayed, PEER, b"its permission has ended").dropped();
    client.send_channel(&mut world, 0x4000, b"x").to_peer();
    world.advance_silently(secs(300));
    client.send_channel(&mut world, 0x4000, b"x").dropped();
}

#[test]
fn a_retransmitted_allocate_gets_the_same_answer() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let request = client.sealed(&mut world, Method::ALLOCATE, |b| {
        b.requested_transport(17);
    });
    let first = client.exchange(&mut world, &request).success();
    let mut world = restart(world, policy());
    let again = client.exchange(&mut world, &request).success();
    assert_eq!(again.relayed(), first.relayed());
}

#[test]
fn no_id_port_or_address_is_given_again() {
    let mut world = World::with(with_ports(50_000, 50_003));
    let (mut a, mut b) = (Client::new(1), Client::new(2));
    let taken = [a.allocate(&mut world), b.allocate(&mut world)];
    let ids: Vec<_> = world.server.allocations().map(|record| record.id).collect();
    let mut world = restart(world, with_ports(50_000, 50_003));
    for port in [3, 4] {
        let relayed = Client::new(port).allocate(&mut world);
        assert!(!taken.contains(&relayed), "{relayed}");
    }
    Client::new(5).try_allocate(&mut world, |_| ()).refused(508);
    let all: Vec<_> = world.server.allocations().map(|record| record.id).collect();
    assert!(all.len() == 4 && ids.iter().all(|id| all.contains(id)));
    a.refresh(&mut world, Some(0)).success();
    assert_eq!(Client::new(6).allocate(&mut world), taken[0], "it is free again");
}

#[test]
fn both_halves_and_addresses_of_a_prefix_go_on() {
    let routed = || {
        let network = "2001:db8:7::/64";
        let own: Vec<Prefix> =
            [RELAY_V4, RELAY_V6, network].iter().map(|own| own.parse().unwrap()).collect();
        let allow: Vec<Prefix> =
            ["192.0.2.0/24", "2001:db8::/32"].iter().map(|own| own.parse().unwrap()).collect();
        Policy {
            prefixes: vec![RelayPrefix::new(network.parse().unwrap(), 49_994, 4).unwrap()],
            peer_rules: PeerRules::with_own_prefixes(&allow, &[], &own),
            ..policy()
        }
    };
    let mut world = World::with(routed());
    let (mut a, mut b) = (Client::new(1), Client::new(2));
    let (v4, v6) = a.allocate_both(&mut world);
    let at_b = b.allocate_v6(&mut world);
    a.permit(&mut world, &[PEER, PEER_V6, &at_b.to_string()]).success();
    let mut world = restart(world, routed());
    world.from_peer(v4, PEER, b"x").to_client();
    world.from_peer(v6, PEER_V6, b"x").to_client();
    assert!(world.socket_at(at_b).is_shared(), "it has no socket of its own");
    // An address of another allocation is a peer as before.
    a.send(&mut world, &at_b.to_string(), b"x").to_peer();
    drop(b.refresh(&mut world, Some(0)));
    a.refresh_half(&mut world, 2, 0).success();
    world.from_peer(v4, PEER, b"x").to_client();
}

#[test]
fn a_client_may_move_with_the_ticket_that_it_had() {
    let rules = || Policy { mobility: true, ..policy() };
    let mut world = World::with(rules());
    let mut old = Client::new(1000);
    let reply = old.try_allocate(&mut world, |b| {
        b.mobility_ticket(&[]);
    });
    let reply = reply.success();
    let ticket = reply.first(AttributeType::MOBILITY_TICKET).unwrap().to_vec();
    old.bind(&mut world, 0x4000, PEER).success();
    let mut world = restart(world, rules());
    let mut new = Client::new(2000);
    new.path.socket = SocketId(9);
    new.ask(&mut world, Method::REFRESH, |b| {
        b.mobility_ticket(&ticket);
    })
    .success();
    new.send_channel(&mut world, 0x4000, b"x").to_peer();
}

#[test]
fn routes_are_set_again_after_a_move_that_was_given_up() {
    let mut world = World::new();
    bound(&mut world);
    let routes = world.routes.clone();
    world.server.withdraw_all(|transport| transport != Transport::Udp);
    world.carry_out();
    assert_eq!((routes.len(), &world.routes), (1, &routes), "of another transport");
    world.server.withdraw_all(|transport| transport == Transport::Udp);
    world.carry_out();
    assert!(world.routes.is_empty());
    world.server.set_all_routes(world.now);
    world.carry_out();
    assert_eq!(world.routes, routes);
}

#[test]
fn quotas_count_what_was_taken_over_and_refuse_more() {
    let two = || Policy { quotas: Quotas { allocations_per_user: 2, ..UNLIMITED }, ..policy() };
    let mut world = World::with(two());
    let (mut a, mut b) = (Client::new(1), Client::new(2));
    a.allocate(&mut world);
    b.allocate(&mut world);
    let one = Policy { quotas: Quotas { allocations_per_user: 1, ..UNLIMITED }, ..policy() };
    let mut world = restart(world, one);
    assert_eq!(world.server.allocation_count(), 2, "calls go on");
    Client::new(3).try_allocate(&mut world, |_| ()).refused(486);
    a.refresh(&mut world, Some(0)).success();
    b.refresh(&mut world, Some(0)).success();
    Client::new(4).allocate(&mut world);
}

#[test]
fn rules_of_the_new_process_count() {
    let mut world = World::new();
    let (client, relayed) = bound(&mut world);
    let forbidding = Policy { peer_rules: rules(&["192.0.2.10/32"]), ..policy() };
    let mut world = restart(world, forbidding);
    client.send_channel(&mut world, 0x4000, b"x").dropped();
    world.from_peer(relayed, PEER, b"x").dropped();
    assert!(world.routes.is_empty());

    let mut revoked = Revoked::default();
    revoked.refuse_name(REALM.into(), &stun_wire::UserName::new("alice").unwrap());
    let mut world = restart(world, Policy { revoked: Arc::new(revoked), ..policy() });
    assert_eq!((world.server.allocation_count(), world.sockets.len()), (0, 0));
    assert_eq!(world.ends(), [EndReason::Revoked]);
}

/// A refused allocation leaves neither ports nor slots in quotas behind.
#[test]
fn what_does_not_fit_is_refused() {
    let mut old = World::new();
    let (_, relayed) = bound(&mut old);
    let mut left = leave(&mut old);
    let ReleasedAllocation { state, sockets, .. } = left.remove(0);
    let refused = |mut world: World, error| {
        let before = world.server.allocation_count();
        assert_eq!(take(&mut world, &state, &sockets), Err(error));
        assert_eq!(world.server.allocation_count(), before);
        world.check();
    };
    let mut late = next(&old, policy());
    late.advance_silently(secs(600));
    refused(late, AllocationImportError::Expired);
    let elsewhere = Policy { relay: Vec::new(), ..policy() };
    refused(next(&old, elsewhere), AllocationImportError::RelayAddress(relayed.ip()));
    let ports = with_ports(relayed.port(), relayed.port() + 1);
    let mut here = World::worker(WorkerId(4), ports, Arc::new(TestRegistry::default()));
    here.now = old.now;
    Client::new(7).allocate(&mut here);
    Client::new(8).allocate(&mut here);
    refused(here, AllocationImportError::Port(relayed));
    let mut twice = next(&old, policy());
    take(&mut twice, &state, &sockets).unwrap();
    refused(twice, AllocationImportError::Exists);
    // The 5-tuple belongs to an allocation with another id, or the id to another 5-tuple.
    for (worker, port) in [(WorkerId(4), 1000), (WorkerId(3), 1001)] {
        let mut same = World::worker(worker, policy(), Arc::new(TestRegistry::default()));
        same.now = old.now;
        Client::new(port).allocate(&mut same);
        refused(same, AllocationImportError::Exists);
    }
}

/// A session has its record, with the traffic until the commit.
#[test]
fn the_end_of_a_refused_allocation_is_told_once() {
    let mut old = World::new();
    let (client, relayed) = bound(&mut old);
    let id = old.record().id;
    let mut state = Writer::new();
    old.server.copy(id).unwrap().write(&mut state);
    let state = state.into_bytes();
    client.send_channel(&mut old, 0x4000, b"behind the copy").to_peer();
    let (progress, before) = (old.server.progress(id), old.record());
    let elsewhere = Policy { relay: Vec::new(), ..policy() };
    let ends = [
        (AllocationImportError::Expired, Some(EndReason::Expired)),
        (AllocationImportError::RelayAddress(relayed.ip()), Some(EndReason::RelayAddressRemoved)),
        (AllocationImportError::Port(relayed), Some(EndReason::RelayAddressRemoved)),
        (AllocationImportError::Client(before.five_tuple.server), Some(EndReason::ListenerRemoved)),
        // Another allocation is live.
        (AllocationImportError::Exists, None),
        (AllocationImportError::Malformed(Malformed::Trailing), None),
    ];
    for (error, reason) in ends {
        let mut new = next(&old, elsewhere.clone());
        new.server.end_refused(new.now, Reader::new(&state), error, progress.clone());
        let told = new.server.poll_notice();
        let end = reason.map(|reason| (reason, new.now.instant));
        let record = end.map(|_| Box::new(AllocationRecord { end, ..before.clone() }));
        assert_eq!(told, record.map(Notice::AllocationEnded), "{error:?}");
        assert_eq!((new.server.poll_notice(), new.server.allocation_count()), (None, 0));
        new.check();
    }
}

/// Two workers may have copies of an allocation after a crash. The allocation is live at only one
/// of them.
#[test]
fn the_second_copy_of_a_live_allocation_has_no_record() {
    let mut old = Workers::new();
    let mut client = Client::new(1000);
    let reply = client.try_allocate(&mut old.worlds[0], |b| {
        b.mobility_ticket(&[]);
    });
    let ticket = ticket_of(&reply.success());
    let id = old.worlds[0].record().id;
    let mut state = Writer::new();
    old.worlds[0].server.copy(id).unwrap().write(&mut state);
    let state = state.into_bytes();
    let mut new = Workers::new();
    let [first, second] = [0, 1].map(|worker| {
        let World { server, now, .. } = &mut new.worlds[worker];
        server.import(*now, Reader::new(&state), as_before)
    });
    let first = first.unwrap().renamed[0].unwrap();
    new.worlds[0].sockets.insert(first.to, old.worlds[0].sockets[&first.from]);
    let error = second.unwrap_err();
    let World { server, now, .. } = &mut new.worlds[1];
    server.end_refused(*now, Reader::new(&state), error, None);
    assert_eq!(server.poll_notice(), None, "{error}");
    // The allocation is found at the first worker.
    let mut moved = Client::new(2000);
    moved.path.socket = SocketId(9);
    new.refresh_by(2, &mut moved, &ticket).success();
}

/// Without the relay address of one family an allocation keeps the other, as at a reload.
#[test]
fn the_other_family_of_an_allocation_stays() {
    let mut old = World::new();
    let mut dual = Client::new(2);
    let (_, v6) = dual.allocate_both(&mut old);
    dual.permit(&mut old, &[PEER, PEER_V6]).success();
    let mut of_v6 = policy();
    of_v6.relay.remove(0);
    let mut world = restart(old, of_v6);
    world.from_peer(v6, PEER_V6, b"x").to_client();
    assert_eq!(dual.send(&mut world, PEER, b"x").dropped(), DropReason::PeerFamily);
    assert!(world.ends().is_empty());
}

/// The successor has different numbers for listeners and connections, and lacks some of them.
#[test]
fn clients_are_reached_by_the_sockets_of_the_next_process() {
    let mut old = World::new();
    let (client, _) = bound(&mut old);
    let ReleasedAllocation { state, .. } = leave(&mut old).remove(0);
    let mut world = next(&old, policy());
    let none = |_: &ClientPath| None;
    let refused = world.server.import(world.now, Reader::new(&state), none);
    assert_eq!(refused, Err(AllocationImportError::Client(client.path.five_tuple.server)));
    assert_eq!(world.server.allocation_count(), 0);
    world.check();
    let seventh = |_: &ClientPath| Some(SocketId(7));
    let taken = world.server.import(world.now, Reader::new(&state), seventh).unwrap();
    let relay = taken.renamed[0].unwrap().to;
    let mut header = [0; HEADER_MAX];
    let from = PeerAddr(PEER.parse().unwrap());
    let verdict = world.server.handle_peer(world.now, relay, from, IpMeta::DEFAULT, 4, &mut header);
    let by_seventh = |verdict| matches!(verdict, Verdict::ToClient { socket: SocketId(7), .. });
    assert!(by_seventh(verdict), "{verdict:?}");
}

/// A truncated or altered state is refused, or is another state. Nothing panics, and a refused
/// state leaves nothing.
#[test]
fn damaged_states_do_no_harm() {
    let mut old = World::new();
    bound(&mut old);
    let ReleasedAllocation { state, sockets, .. } = leave(&mut old).remove(0);
    for len in 0..state.len() {
        let mut world = next(&old, policy());
        let refused = take(&mut world, &state[..len], &sockets);
        assert!(matches!(refused, Err(AllocationImportError::Malformed(_))), "{len}: {refused:?}");
    }
    let longer = [&state[..], &[0]].concat();
    let refused = take(&mut next(&old, policy()), &longer, &sockets);
    assert_eq!(refused, Err(AllocationImportError::Malformed(Malformed::Trailing)));
    for_each_seed(0..200, |seed| {
        let mut rng = Rng::new(seed);
        let mut altered = state.clone();
        let at = rng.below(altered.len() as u64) as usize;
        altered[at] ^= 1 << rng.below(8);
        let mut world = next(&old, policy());
        if world.server.import(world.now, Reader::new(&altered), as_before).is_ok() {
            assert_eq!(world.server.allocation_count(), 1);
            world.server.end_all(world.now, EndReason::EndedByOperator);
            while world.server.poll_command().is_some() {}
        }
        let used: u32 = world.policy.relay.iter().map(|relay| relay.ports.used()).sum();
        assert_eq!(used, 0);
    });
}

/// Returns a state with all parts that an allocation of a client over UDP can have, written by a
/// separate world.
fn full_state() -> (World, ReleasedAllocation) {
    let mut world = World::with(Policy { mobility: true, ..policy() });
    let mut client = Client::new(1000);
    let reply = client.try_allocate(&mut world, |b| {
        b.mobility_ticket(&[]);
        b.additional_address_family(2);
    });
    reply.success();
    client.bind(&mut world, 0x4000, PEER).success();
    client.bind(&mut world, 0x4001, PEER_V6).success();
    client.permit(&mut world, &["192.0.2.11:1"]).success();
    client.send_channel(&mut world, 0x4000, b"counted").to_peer();
    client.refresh(&mut world, Some(1200)).success();
    let left = leave(&mut world).remove(0);
    (world, left)
}

/// Returns the relay sockets of a state, by their ids in the predecessor. A build draws its own
/// random ports.
fn sockets_of(old: &World, state: &[u8]) -> Vec<(RelayId, RelayedAddr)> {
    let mut trial = next(old, Policy { mobility: true, ..policy() });
    let taken = trial.server.import(trial.now, Reader::new(state), as_before).unwrap();
    let relayed = trial.server.allocations().next().unwrap().relayed;
    let names = taken.renamed.into_iter().flatten().map(|renamed| renamed.from);
    names.zip(relayed.into_iter().flatten()).collect()
}

/// Every state written by an earlier build can be read. When the form changes, the newest file
/// differs from the present output, and a file is added. No file is altered. A file is removed only
/// when its version is no longer supported.
#[test]
fn states_of_earlier_builds_are_read() {
    let (old, left) = full_state();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/states");
    let mut files: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    if files.last().is_none_or(|newest| fs::read(newest).unwrap() != left.state) {
        let name = directory.join(format!("{:04}.state", files.len() + 1));
        let written = Path::new(env!("CARGO_TARGET_TMPDIR")).join("state");
        fs::write(&written, &left.state).unwrap();
        panic!("the form has changed: cp {} {}", written.display(), name.display());
    }
    for file in files {
        let state = fs::read(&file).unwrap();
        let mut world = next(&old, Policy { mobility: true, ..policy() });
        take(&mut world, &state, &sockets_of(&old, &state))
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut client = Client::new(1000);
        assert_eq!(client.send_channel(&mut world, 0x4000, b"x").to_peer(), b"x");
        client.send_channel(&mut world, 0x4001, b"x").to_peer();
        client.send(&mut world, "192.0.2.11:9", b"x").to_peer();
        client.refresh(&mut world, Some(600)).success();
        world.advance_silently(secs(599));
        client.refresh(&mut world, Some(0)).success();
        world.check();
    }
}

#[test]
fn clients_over_streams_and_their_connections_with_peers_go_on() {
    let rules = || Policy { tcp_relaying: true, ..policy() };
    let mut world = World::with(rules());
    let mut client = Client::new(1000).over(Transport::Tcp);
    let reply = client.ask(&mut world, Method::ALLOCATE, |b| {
        b.requested_transport(6);
    });
    let relayed = reply.success().relayed()[0];
    client.permit(&mut world, &[PEER]).success();
    let copy = world.server.copy(world.record().id).unwrap();
    assert_eq!(copy.protocol(), RelayProtocol::Tcp);
    let (connection, ..) = world.peer_connects(relayed, PEER).unwrap();
    let before = world.connections.clone();
    let mut world = restart(world, rules());
    world.connections = before;
    // The connection waits for its client as before, and is closed in time if the client does not
    // bind it.
    world.advance(secs(31));
    assert!(!world.connections.contains_key(&connection));
}
