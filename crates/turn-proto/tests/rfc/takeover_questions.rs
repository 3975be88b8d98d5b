//! Queries of a server about exported and imported allocations.

use std::sync::Arc;

use state_format::Reader;
use stun_wire::Method;
use turn_proto::{Command, EndReason, Policy, Quotas, RelayPrefix, WhenSilent};
use turn_types::{AllocationId, ClientPath, ConnectionId, RelayedAddr, Transport, WorkerId};

use super::takeover::{ReleasedAllocation, leave, next, restart, take};
use crate::support::tcp::{alice, tcp_world};
use crate::support::*;

/// The successor reserves the granted rate of an allocation.
#[test]
fn the_reserved_rates_are_taken_over() {
    let rules = || {
        let rates = Quotas { bytes_per_second: 100, bytes_per_second_total: 200, ..UNLIMITED };
        Policy { quotas: rates, ..policy() }
    };
    let mut world = World::with(rules());
    let mut clients = [1, 2].map(Client::new);
    for client in &mut clients {
        client.allocate(&mut world);
    }
    Client::new(3).try_allocate(&mut world, |_| ()).refused(508);
    let mut world = restart(world, rules());
    Client::new(3).try_allocate(&mut world, |_| ()).refused(508);
    clients[0].refresh(&mut world, Some(0)).success();
    Client::new(4).allocate(&mut world);
}

/// A disconnected client returns by its ticket, also if another client has the 5-tuple or the
/// successor has no such listener.
#[test]
fn clients_that_are_gone_are_taken_over_beside_others() {
    let rules = || Policy { mobility: true, ..policy() };
    let mut world = World::with(rules());
    let mut gone = Client::new(1000).over(Transport::Tcp);
    let reply = gone.try_allocate(&mut world, |b| {
        b.mobility_ticket(&[]);
    });
    let ticket = workers::ticket_of(&reply.success());
    world.server.close(world.now, &gone.path.five_tuple);
    let mut heir = Client::new(1000).over(Transport::Tcp);
    heir.allocate(&mut world);
    let mut new = next(&world, rules());
    let mut left = leave(&mut world);
    left.reverse();
    for ReleasedAllocation { state, sockets, .. } in &left {
        take(&mut new, state, sockets).unwrap();
    }
    assert_eq!(new.server.allocation_count(), 2);
    heir.refresh(&mut new, None).success();
    let mut back = Client::new(2000).over(Transport::Tcp);
    let returned = back.ask(&mut new, Method::REFRESH, |b| {
        b.mobility_ticket(&ticket);
    });
    returned.success();

    let mut elsewhere = next(&world, rules());
    let none = |_: &ClientPath| None;
    let taken = left.iter().map(|one| {
        let state = Reader::new(&one.state);
        elsewhere.server.import(elsewhere.now, state, none).is_ok()
    });
    assert_eq!(taken.collect::<Vec<_>>(), [false, true]);
}

/// A successor installs only routes of channels in use.
#[test]
fn an_imported_channel_without_data_has_no_route() {
    let mut old = World::with(policy());
    let mut client = Client::new(1000);
    client.allocate(&mut old);
    client.bind(&mut old, 0x4000, PEER).success();
    let mut new = next(&old, policy());
    let ReleasedAllocation { state, sockets, .. } = leave(&mut old).remove(0);
    take(&mut new, &state, &sockets).unwrap();
    assert_eq!(new.routes.len(), 0);
    client.send_channel(&mut new, 0x4000, b"first").to_peer();
    assert_eq!(new.routes.len(), 1);
}

/// A removed import releases port, quota and route, and can be imported again.
#[test]
fn an_allocation_that_is_given_back_may_come_again() {
    let rules = || Policy { quotas: Quotas { allocations_per_user: 1, ..UNLIMITED }, ..policy() };
    let mut old = World::with(rules());
    let mut client = Client::new(1000);
    client.allocate(&mut old);
    client.use_channel(&mut old, 0x4000, PEER);
    let mut new = next(&old, rules());
    let ReleasedAllocation { id, state, sockets } = leave(&mut old).remove(0);
    take(&mut new, &state, &sockets).unwrap();
    assert_eq!(new.routes.len(), 1);
    new.server.revert_import(AllocationId::new(WorkerId(3), 77));
    assert_eq!(new.server.allocation_count(), 1, "another one was not there");
    new.server.revert_import(id);
    new.carry_out();
    assert_eq!((new.server.allocation_count(), new.routes.len()), (0, 0));
    assert_eq!(new.ends(), [], "its end is told by the process that has it");
    new.sockets.clear();
    new.check();
    take(&mut new, &state, &sockets).unwrap();
    client.refresh(&mut new, Some(0)).success();
    assert_eq!(new.ends(), [EndReason::Deleted]);
}

#[test]
fn ids_go_on_behind_those_of_the_process_before() {
    let mut world = World::new();
    world.server.skip_ids(AllocationId::new(WorkerId(3), 40));
    Client::new(1).allocate(&mut world);
    assert_eq!(world.record().id, AllocationId::new(WorkerId(3), 41));
    assert_eq!(world.server.last_id(), AllocationId::new(WorkerId(3), 41));
}

#[test]
fn an_allocation_is_found_by_its_id_and_its_connections() {
    let mut world = tcp_world();
    let mut client = alice(1);
    let reply = client.ask(&mut world, Method::ALLOCATE, |b| {
        b.requested_transport(6);
    });
    let relayed = reply.success().relayed()[0];
    client.permit(&mut world, &[PEER]).success();
    let (connection, ..) = world.peer_connects(relayed, PEER).unwrap();
    let id = world.record().id;
    let (record, peers) = world.server.allocation(id).unwrap();
    assert_eq!((record.id, record.connections), (id, 1));
    assert_eq!(peers.permissions.len(), 1);
    assert!(world.server.allocation(AllocationId::new(WorkerId(3), 99)).is_none());
    let of = |id| world.server.client_of_connection(id);
    assert_eq!(of(connection), Some(client.path.five_tuple));
    assert_eq!(of(ConnectionId(connection.0 ^ 1)), None);
}

#[test]
fn changes_are_there_until_they_are_taken() {
    let mut world = World::new();
    Client::new(1).allocate(&mut world);
    assert!(!world.server.has_changes(), "nobody asks");
    world.server.keep_changes(true);
    assert!(world.server.has_changes());
    assert_eq!(world.server.take_changed(usize::MAX).count(), 1);
    assert!(!world.server.has_changes());
}

#[test]
fn addresses_of_a_prefix_are_known_as_such() {
    let prefix = RelayPrefix::new("2001:db8:7::/64".parse().unwrap(), 49_994, 4).unwrap();
    let world = World::with(Policy { prefixes: vec![prefix], ..policy() });
    let is_of_prefix = |at: &str| world.server.has_prefix_of(RelayedAddr(addr(at)));
    assert!(is_of_prefix("[2001:db8:7::5]:50000"));
    assert!(!is_of_prefix("[2001:db8:1::1]:50000"));
    assert!(!is_of_prefix("203.0.113.1:50000"));
}

/// The arrival time is available while a request waits for a user, the authorizer or relay sockets.
#[test]
fn a_waiting_request_has_a_time_of_arrival() {
    let mut world = World::new();
    world.policy.auth.authorizer = Some(WhenSilent::Refuse);
    world.server.apply(world.now, Arc::new(world.policy.clone()));
    let mut client = Client::new(1);
    client.log_in(&mut world);
    let request = client.sealed(&mut world, Method::ALLOCATE, |b| {
        b.requested_transport(17);
    });
    world.hold = true;
    let began = world.now.instant;
    assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    // The second look-up of the user has a separate start.
    for (answers, since) in [(0, began), (0, began), (0, began + secs(2)), (1, began)] {
        world.advance_silently(secs(1));
        let command = world.held.remove(0);
        let (Command::FindUser { pending, .. }
        | Command::Authorize { pending, .. }
        | Command::OpenRelay { pending, .. }) = command
        else {
            panic!("{command:?}")
        };
        assert_eq!(world.server.waits_since(pending), Some(since));
        assert_eq!(world.carry_out_one(command).iter().count(), answers);
        assert_eq!(world.server.waits_since(pending), None);
        world.carry_out();
    }
}
