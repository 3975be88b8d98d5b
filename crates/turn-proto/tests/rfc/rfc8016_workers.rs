//! RFC 8016 with a new 5-tuple at another worker: the complete allocation follows its client.
#![allow(clippy::wildcard_enum_match_arm, reason = "whatever else there will be is a failure")]

use stun_wire::{AttributeType, Method};
use turn_proto::{Command, DropReason, EndReason, Policy, Refusal, limits};
use turn_types::Transport;

use crate::support::workers::*;
use crate::support::*;

/// 8016-3.2.2-05: the allocation remains at its worker until the client sends from the new 5-tuple,
/// and then moves.
#[test]
fn an_allocation_follows_its_client_once_it_is_heard() {
    let mut moving = Moving::new();
    assert_eq!(moving.workers.heard_at(moving.relayed), (0, 1000));
    moving.old.send_channel(&mut moving.workers.worlds[0], 0x4000, b"x").to_peer();
    let before = moving.workers.worlds[0].record();
    moving.arrive();
    assert_eq!(moving.workers.heard_at(moving.relayed), (1, 2000));
    let after = moving.workers.worlds[1].record();
    assert_eq!(
        (after.id, after.created, after.expires),
        (before.id, before.created, before.expires)
    );
    assert_eq!(after.five_tuple, moving.new.path.five_tuple);
    assert_eq!(after.traffic.to_peer_packets, before.traffic.to_peer_packets + 2, "it counts on");
    let left = moving.old.send_channel(&mut moving.workers.worlds[0], 0x4000, b"z").dropped();
    assert_eq!(left, DropReason::NoAllocation);
    assert_eq!(moving.workers.worlds[0].server.allocation_count(), 0);
    assert!(moving.workers.worlds[0].ends().is_empty(), "nothing has ended");
}

/// 8016-3.2.2-02: permissions, channels and all requests continue to work, and the allocation
/// expires as usual.
#[test]
fn it_is_whole_at_its_new_place() {
    let mut moving = Moving::new();
    moving.arrive();
    let world = &mut moving.workers.worlds[1];
    moving.new.send(world, PEER, b"x").to_peer();
    moving.new.permit(world, &["192.0.2.11:1"]).success();
    moving.new.refresh(world, Some(1200)).success();
    moving.workers.advance(1201);
    assert_eq!(moving.workers.worlds[1].ends(), [EndReason::Expired]);
    moving.workers.check();
}

/// A request moves the allocation as data does. The worker that received the request responds.
#[test]
fn a_request_waits_for_its_allocation() {
    let mut moving = Moving::new();
    let request =
        moving.new.sealed(&mut moving.workers.worlds[1], Method::CREATE_PERMISSION, |b| {
            b.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(PEER));
        });
    moving.workers.ask(1, &moving.new, &request).success();
    assert_eq!(moving.workers.heard_at(moving.relayed), (1, 2000));
}

/// 8016-3.2.2-07: also between workers.
#[test]
fn a_retransmission_is_answered_alike() {
    let mut workers = Workers::new();
    let mut old = Client::new(1000);
    let reply = old.try_allocate(&mut workers.worlds[0], |b| {
        b.mobility_ticket(&[]);
    });
    let ticket = ticket_of(&reply.success());
    let mut new = Client::new(2000);
    let request = new.sealed(&mut workers.worlds[1], Method::REFRESH, |b| {
        b.mobility_ticket(&ticket);
    });
    // A retransmission during the query to the other worker causes no second query.
    assert!(matches!(workers.worlds[1].from_client(&new.path, &request), Fate::Wait));
    let twice = workers.worlds[1].from_client(&new.path, &request).dropped();
    assert_eq!(twice, DropReason::AlreadyPending);
    let answers = workers.exchange();
    let first = new.decode(&request, answers[0].2.clone()).success();
    assert_eq!(workers.ask(1, &new, &request).success().bytes, first.bytes);
    assert_eq!(workers.worlds[0].server.allocation_count(), 1, "it was not fetched for that");
    workers.refresh_by(2, &mut Client::new(3000), &ticket).refused(400);
    workers.refresh_by(2, &mut Client::new(3000), &ticket_of(&first)).success();
}

/// 8016-3.2.2-03, 8016-3.2.2-04
#[test]
fn the_worker_that_has_it_judges() {
    let mut moving = Moving::new();
    let (workers, ticket) = (&mut moving.workers, moving.ticket.clone());
    workers.refresh_by(2, &mut Client::new(3000).as_bob(), &ticket).refused(441);
    let mut altered = ticket.clone();
    altered[20] ^= 1;
    workers.refresh_by(2, &mut Client::new(3000), &altered).refused(400);
    workers.refresh_by(2, &mut Client::new(3000), &ticket).success();
    // The expected client is the only user of this 5-tuple.
    let mut thief = Client::new(3000).as_bob();
    thief.refresh(&mut workers.worlds[2], None).refused(441);
    let taken = Client::new(3000).try_allocate(&mut workers.worlds[2], |_| ());
    assert_eq!(taken.code(), Some(437));
}

/// The allocation moves back and forth, and the first worker has no trace of it in between.
#[test]
fn a_client_may_move_again_and_again() {
    let mut moving = Moving::new();
    moving.arrive();
    let mut ticket = moving.ticket.clone();
    for (turn, at) in [2, 0, 1, 0].into_iter().enumerate() {
        let mut client = Client::new(3000 + turn as u16);
        ticket = ticket_of(&moving.workers.refresh_by(at, &mut client, &ticket).success());
        client.send_channel(&mut moving.workers.worlds[at], 0x4000, b"x").queued();
        moving.workers.exchange();
        client.send_channel(&mut moving.workers.worlds[at], 0x4000, b"x").to_peer();
        assert_eq!(moving.workers.heard_at(moving.relayed), (at, 3000 + turn as u16));
    }
}

/// The client has appeared at a third worker since, so the second worker has nothing to fetch.
#[test]
fn the_last_ticket_counts() {
    let mut moving = Moving::new();
    let mut third = Client::new(3000);
    moving.workers.refresh_by(2, &mut third, &moving.ticket).success();
    moving.new.send_channel(&mut moving.workers.worlds[1], 0x4000, b"x").queued();
    moving.workers.exchange();
    assert_eq!(moving.workers.worlds[1].after_queue, [Err(DropReason::NoAllocation)]);
    let gone = moving.new.send_channel(&mut moving.workers.worlds[1], 0x4000, b"x").dropped();
    assert_eq!(gone, DropReason::NoAllocation);
    third.send_channel(&mut moving.workers.worlds[2], 0x4000, b"x").queued();
    moving.workers.exchange();
    third.send_channel(&mut moving.workers.worlds[2], 0x4000, b"x").to_peer();
}

/// An unreachable worker is queried repeatedly. Then the client gets 500, nothing is lost, and the
/// same ticket is still valid later.
#[test]
fn a_worker_that_cannot_be_asked_is_asked_again() {
    let mut moving = Moving::new();
    let mut third = Client::new(3000);
    let request = third.sealed(&mut moving.workers.worlds[2], Method::REFRESH, |b| {
        b.mobility_ticket(&moving.ticket);
    });
    moving.workers.parted = true;
    assert!(matches!(moving.workers.worlds[2].from_client(&third.path, &request), Fate::Wait));
    let mut answers = moving.workers.exchange();
    for _ in 0..3 {
        assert_eq!(answers.len(), 0);
        answers = moving.workers.advance_and_hear(1);
    }
    third.decode(&request, answers.remove(0).2).refused(500);
    let refusals = moving.workers.worlds[2].refusals();
    assert_eq!(refusals.last(), Some(&Refusal::MoveUnavailable));
    assert_eq!(moving.workers.heard_at(moving.relayed), (0, 1000));
    moving.workers.parted = false;
    moving.workers.refresh_by(2, &mut third, &moving.ticket).success();
}

/// The other worker's response is lost. A repeated query gets an equal response, although the
/// ticket is void by then.
#[test]
fn an_answer_that_is_lost_is_asked_for_again() {
    let mut moving = Moving::new();
    let mut third = Client::new(3000);
    let request = third.sealed(&mut moving.workers.worlds[2], Method::REFRESH, |b| {
        b.mobility_ticket(&moving.ticket);
    });
    assert!(matches!(moving.workers.worlds[2].from_client(&third.path, &request), Fate::Wait));
    let Some((2, Command::AskWorker { question, .. })) = moving.workers.next_command() else {
        panic!()
    };
    let home = &mut moving.workers.worlds[0];
    drop(home.server.answer_worker(home.now, *question));
    home.carry_out();
    let answers = moving.workers.advance_and_hear(1);
    let reply = third.decode(&request, answers[0].2.clone()).success();
    moving.workers.refresh_by(1, &mut Client::new(4000), &ticket_of(&reply)).success();
}

/// A client that missed the response, and starts another transaction on that 5-tuple, shows the
/// previous ticket.
#[test]
fn a_client_that_missed_the_answer_may_ask_anew() {
    let mut workers = Workers::new();
    let mut old = Client::new(1000);
    let reply = old.try_allocate(&mut workers.worlds[0], |b| {
        b.mobility_ticket(&[]);
    });
    let first = ticket_of(&reply.success());
    for at in [0, 1] {
        let mut new = Client::new(2000 + at as u16);
        let ticket = if at == 0 {
            first.clone()
        } else {
            // Its last known ticket, sent from its previous 5-tuple.
            ticket_of(&workers.refresh_by(0, &mut Client::new(2000), &first).success())
        };
        let missed = ticket_of(&workers.refresh_by(at, &mut new, &ticket).success());
        let second = ticket_of(&workers.refresh_by(at, &mut new, &ticket).success());
        assert_ne!(missed, second);
        // The ticket is void from any other 5-tuple.
        workers.refresh_by(2, &mut Client::new(3000), &ticket).refused(400);
    }
}

/// A ticket arrives while the allocation is between two workers, at a third worker or at the source
/// worker. The client gets the response after the arrival of the allocation.
#[test]
fn a_ticket_is_good_while_the_allocation_is_on_its_way() {
    for at in [2, 0] {
        let mut moving = Moving::new();
        moving.new.send_channel(&mut moving.workers.worlds[1], 0x4000, b"x").queued();
        let Some((1, Command::Fetch { fetch, .. })) = moving.workers.next_command() else {
            panic!()
        };
        let departure = moving.workers.depart(0, &fetch);
        let mut third = Client::new(3000);
        let request = third.sealed(&mut moving.workers.worlds[at], Method::REFRESH, |b| {
            b.mobility_ticket(&moving.ticket);
        });
        assert!(matches!(moving.workers.worlds[at].from_client(&third.path, &request), Fate::Wait));
        assert_eq!(moving.workers.exchange_unchecked().len(), 0);
        moving.workers.arrive(1, departure);
        let answers = moving.workers.advance_and_hear(1);
        third.decode(&request, answers[0].2.clone()).success();
    }
}

/// A lost message to fetch the allocation is repeated, and none of the client's packets is lost.
#[test]
fn what_was_not_fetched_is_asked_for_again() {
    let mut moving = Moving::new();
    let world = &mut moving.workers.worlds[1];
    moving.new.send_channel(world, 0x4000, b"x").queued();
    moving.new.send_channel(world, 0x4000, b"y").queued();
    assert_eq!(world.outgoing.len(), 1, "asked once");
    world.outgoing.clear();
    moving.workers.advance(1);
    let sent = [b"x", b"y"].map(|data| Ok((peer(PEER), data.to_vec())));
    assert_eq!(moving.workers.worlds[1].after_queue, sent);
    assert_eq!(moving.workers.heard_at(moving.relayed), (1, 2000));
}

/// The end of the old connection sends the allocation to the expected location of the client.
/// Without an expected location the allocation waits.
#[test]
fn the_end_of_the_old_connection_completes_the_move() {
    let mut moving = Moving::over(Transport::Tcp);
    let world = &mut moving.workers.worlds[0];
    world.server.close(world.now, &moving.old.path.five_tuple);
    world.carry_out();
    moving.workers.exchange();
    assert_eq!(moving.workers.heard_at(moving.relayed), (1, 2000));
    // If the new connection has also closed by then, the allocation waits there for another ticket.
    let mut moving = Moving::over(Transport::Tcp);
    for (at, client) in [(1, &moving.new), (0, &moving.old)] {
        let world = &mut moving.workers.worlds[at];
        world.server.close(world.now, &client.path.five_tuple);
        world.carry_out();
        moving.workers.exchange();
    }
    let lost = moving.workers.worlds[1].from_peer(moving.relayed, PEER, b"x").dropped();
    assert_eq!(lost, DropReason::StreamClosed);
    let mut third = Client::new(3000);
    moving.workers.refresh_by(2, &mut third, &moving.ticket).success();
    third.send_channel(&mut moving.workers.worlds[2], 0x4000, b"x").queued();
    moving.workers.exchange();
    assert_eq!(moving.workers.heard_at(moving.relayed), (2, 3000));
}

/// The allocation could not move, and continues at its worker.
#[test]
fn one_that_cannot_leave_stays() {
    let mut moving = Moving::new();
    moving.new.send_channel(&mut moving.workers.worlds[1], 0x4000, b"x").queued();
    let Some((1, Command::Fetch { fetch, .. })) = moving.workers.next_command() else { panic!() };
    let world = &mut moving.workers.worlds[0];
    assert!(world.server.withdraw(world.now, &fetch));
    world.carry_out();
    assert!(world.routes.is_empty(), "withdrawn before it leaves");
    let departure = world.server.depart(&fetch).unwrap();
    assert_eq!(world.server.allocation_count(), 0);
    world.server.take_back(world.now, departure);
    world.carry_out();
    assert_eq!(world.routes.len(), 1);
    assert_eq!(moving.workers.heard_at(moving.relayed), (0, 1000));
    moving.workers.advance(1);
    assert_eq!(moving.workers.heard_at(moving.relayed), (1, 2000));
    assert_eq!(moving.workers.worlds[1].after_queue, [Ok((peer(PEER), b"x".to_vec()))]);
}

/// A reload during the move is applied after the arrival.
#[test]
fn rules_that_changed_on_the_way_hold() {
    let mut moving = Moving::new();
    let mut policy = moving.workers.worlds[1].policy.clone();
    policy.peer_rules = turn_proto::PeerRules::new(&[], &["192.0.2.0/24".parse().unwrap()], &[]);
    moving.workers.worlds[1].apply(policy);
    moving.new.send_channel(&mut moving.workers.worlds[1], 0x4000, b"x").queued();
    moving.workers.exchange();
    assert_eq!(moving.workers.worlds[1].after_queue, [Err(DropReason::ChannelNotBound)]);
}

/// Routes are withdrawn at the old worker and installed at the new worker.
#[test]
fn routes_move_with_the_allocation() {
    let mut moving = Moving::new();
    assert_eq!(moving.workers.worlds[0].routes.len(), 1);
    moving.arrive();
    assert!(moving.workers.worlds[0].routes.is_empty());
    let told: Vec<_> = moving.workers.worlds[1].routes.values().map(|r| r.five_tuple).collect();
    assert_eq!(told, [moving.new.path.five_tuple]);
}

/// A client that never comes is forgotten with the allocation.
#[test]
fn one_that_does_not_come_is_forgotten() {
    let mut moving = Moving::new();
    moving.workers.advance(602);
    assert_eq!(moving.workers.worlds[0].ends(), [EndReason::Expired]);
    let gone = moving.new.send_channel(&mut moving.workers.worlds[1], 0x4000, b"x").dropped();
    assert_eq!(gone, DropReason::NoAllocation);
    assert_eq!(moving.workers.worlds[1].server.poll_timeout(), None, "nothing is left to run out");
    let mut third = Client::new(3000);
    moving.workers.refresh_by(2, &mut third, &moving.ticket).refused(400);
}

/// 8016-3.2.2-08: packets during a move are relayed in order of arrival, before or after the
/// response to the Refresh, before the allocation, or between requests.
#[test]
fn what_is_sent_with_a_move_waits_and_keeps_its_order() {
    for looked_up in [false, true] {
        let mut workers = Workers::new();
        let mut old = Client::new(1000);
        let reply = old.try_allocate(&mut workers.worlds[0], |b| {
            b.mobility_ticket(&[]);
        });
        let ticket = ticket_of(&reply.success());
        old.bind(&mut workers.worlds[0], 0x4000, PEER).success();
        let mut new = Client::new(2000);
        let world = &mut workers.worlds[1];
        let request = new.sealed(world, Method::REFRESH, |b| {
            b.mobility_ticket(&ticket);
        });
        let permit = new.sealed(world, Method::CREATE_PERMISSION, |b| {
            b.xor_address(AttributeType::XOR_PEER_ADDRESS, addr("192.0.2.77:7"));
        });
        // While the user is looked up, there is a ticket of ours, and nothing else.
        world.hold = looked_up;
        assert!(matches!(world.from_client(&new.path, &request), Fate::Wait));
        new.send_channel(world, 0x4000, b"1").queued();
        if looked_up {
            assert!(world.release().is_empty());
        }
        assert!(matches!(world.from_client(&new.path, &permit), Fate::Queued));
        new.send(world, "192.0.2.77:7", b"2").queued();
        new.send_channel(world, 0x4000, b"3").queued();
        let answers = workers.exchange();
        assert_eq!(answers.len(), 2, "both requests are answered");
        let sent = [(PEER, b"1"), ("192.0.2.77:7", b"2"), (PEER, b"3")];
        let sent = sent.map(|(to, data)| Ok((peer(to), data.to_vec())));
        assert_eq!(workers.worlds[1].after_queue, sent);
        new.send_channel(&mut workers.worlds[1], 0x4000, b"4").to_peer();
    }
}

/// A refused Refresh releases the packets after it, and so does the end of the connection.
#[test]
fn what_waits_for_nothing_is_dropped() {
    let mut moving = Moving::new();
    let mut thief = Client::new(3000).as_bob();
    let world = &mut moving.workers.worlds[2];
    let request = thief.sealed(world, Method::REFRESH, |b| {
        b.mobility_ticket(&moving.ticket);
    });
    assert!(matches!(world.from_client(&thief.path, &request), Fate::Wait));
    thief.send_channel(world, 0x4000, b"x").queued();
    let answers = moving.workers.exchange();
    thief.decode(&request, answers[0].2.clone()).refused(441);
    let world = &mut moving.workers.worlds[2];
    assert_eq!(world.after_queue, [Err(DropReason::NoAllocation)]);
    let later = thief.send_channel(world, 0x4000, b"x").dropped();
    assert_eq!(later, DropReason::NoAllocation);

    let mut moving = Moving::over(Transport::Tcp);
    let world = &mut moving.workers.worlds[1];
    moving.new.send_channel(world, 0x4000, b"x").queued();
    world.server.close(world.now, &moving.new.path.five_tuple);
    world.carry_out();
    assert_eq!(world.after_queue, [Err(DropReason::NoAllocation)]);
}

/// There is no queue for a bare 5-tuple, an altered ticket, or one of another server.
#[test]
fn without_a_ticket_of_ours_nothing_waits() {
    let mut moving = Moving::new();
    let mut third = Client::new(3000);
    let world = &mut moving.workers.worlds[2];
    let request = |third: &mut Client, world: &mut World, ticket: &[u8]| {
        third.sealed(world, Method::REFRESH, |b| {
            b.mobility_ticket(ticket);
        })
    };
    let mut altered = moving.ticket.clone();
    altered[3] ^= 1;
    let request = request(&mut third, world, &altered);
    world.hold = true;
    assert!(matches!(world.from_client(&third.path, &request), Fate::Wait));
    let none = third.send_channel(world, 0x4000, b"x").dropped();
    assert_eq!(none, DropReason::NoAllocation);
}

/// Only a Refresh by ticket may move an allocation, and only where clients may move: data after
/// another request whose user is looked up does not wait.
#[test]
fn other_requests_with_a_ticket_let_nothing_wait() {
    for (method, mobility) in [(Method::CREATE_PERMISSION, true), (Method::REFRESH, false)] {
        let mut moving = Moving::new();
        let mut third = Client::new(3000);
        let world = &mut moving.workers.worlds[2];
        world.apply(Policy { mobility, ..world.policy.clone() });
        let request = third.sealed(world, method, |b| {
            b.mobility_ticket(&moving.ticket);
        });
        world.hold = true;
        assert!(matches!(world.from_client(&third.path, &request), Fate::Wait));
        let none = third.send_channel(world, 0x4000, b"x").dropped();
        assert_eq!(none, DropReason::NoAllocation, "{method:?}");
    }
}

/// Packets after a Refresh that no worker answers are dropped with it, and hold no memory.
#[test]
fn what_waits_for_a_worker_that_hangs_is_given_up() {
    let mut moving = Moving::new();
    let mut third = Client::new(3000);
    let world = &mut moving.workers.worlds[2];
    let request = third.sealed(world, Method::REFRESH, |b| {
        b.mobility_ticket(&moving.ticket);
    });
    assert!(matches!(world.from_client(&third.path, &request), Fate::Wait));
    third.send_channel(world, 0x4000, b"x").queued();
    world.advance(limits::PENDING_LIFETIME - secs(1));
    assert_eq!(world.after_queue, []);
    world.advance(secs(1));
    assert_eq!(world.after_queue, [Err(DropReason::NoAllocation)]);
}

/// The allocation of a client that is late by a moment arrives without the client, and waits for
/// another ticket.
#[test]
fn a_client_is_expected_until_the_end_that_it_was_told() {
    let mut moving = Moving::new();
    for world in &mut moving.workers.worlds {
        world.advance_silently(secs(599));
    }
    let [home, there, _] = &mut moving.workers.worlds;
    moving.old.refresh(home, Some(3600)).success();
    moving.old.permit(home, &[PEER]).success();
    moving.new.send_channel(there, 0x4000, b"x").queued();
    let Some((1, Command::Fetch { fetch, .. })) = moving.workers.next_command() else { panic!() };
    let parcel = moving.workers.depart(0, &fetch);
    moving.workers.worlds[1].advance_silently(secs(1));
    moving.workers.arrive(1, parcel);
    let lost = moving.workers.worlds[1].from_peer(moving.relayed, PEER, b"x").dropped();
    assert_eq!(lost, DropReason::StreamClosed);
    let late = moving.new.send_channel(&mut moving.workers.worlds[1], 0x4000, b"x").dropped();
    assert_eq!(late, DropReason::NoAllocation);
    let mut third = Client::new(3000);
    moving.workers.refresh_by(2, &mut third, &moving.ticket).success();
}

/// LIFETIME 0 by ticket at another worker.
#[test]
fn an_allocation_can_be_given_back_at_another_worker() {
    let mut moving = Moving::new();
    let mut third = Client::new(3000);
    let request = third.sealed(&mut moving.workers.worlds[2], Method::REFRESH, |b| {
        b.mobility_ticket(&moving.ticket).lifetime(0);
    });
    let reply = moving.workers.ask(2, &third, &request).success();
    assert_eq!((reply.lifetime(), reply.has(AttributeType::MOBILITY_TICKET)), (0, false));
    assert_eq!(moving.workers.worlds[0].ends(), [EndReason::Deleted]);
    let (path, world) = (third.path.five_tuple, &mut moving.workers.worlds[2]);
    assert!(!world.server.serves(&path), "nobody is expected there");
    third.try_allocate(world, |_| ()).success();
}

/// A worker serves the clients of its allocations, and the clients of allocations that may be
/// arriving.
#[test]
fn a_worker_serves_those_that_it_has_or_expects() {
    let mut moving = Moving::new();
    let (old, new) = (moving.old.path.five_tuple, moving.new.path.five_tuple);
    let serves = |workers: &mut Workers| {
        [0, 1].map(|at| [old, new].map(|client| workers.worlds[at].server.serves(&client)))
    };
    assert_eq!(serves(&mut moving.workers), [[true, false], [false, true]]);
    moving.arrive();
    assert_eq!(serves(&mut moving.workers), [[false, false], [false, true]]);
    moving.new.refresh(&mut moving.workers.worlds[1], Some(0)).success();
    assert_eq!(serves(&mut moving.workers), [[false, false], [false, false]]);
}

/// The more clients a worker expects, the fewer may have a common address. Clients of other
/// addresses can move to the worker.
#[test]
fn the_clients_that_a_worker_expects_are_shared() {
    let mut workers = Workers::new();
    let mut wait_at_1 = |address: &str, port: u16| {
        let mut old = Client::new(port);
        let world = &mut workers.worlds[0];
        let allocated = old.try_allocate(world, |b| {
            b.mobility_ticket(&[]);
        });
        let ticket = ticket_of(&allocated.success());
        let mut new = Client::at(&format!("{address}:{port}"));
        new.nonce = None;
        workers.refresh_by(1, &mut new, &ticket).code()
    };
    let ports = 1..=u16::try_from(limits::EXPECTED_CLIENTS_MAX).unwrap() + 1;
    let refused = ports.clone().find(|port| wait_at_1("192.0.2.200", *port).is_some());
    assert!(refused.is_some_and(|port| port > ports.end() / 2), "{refused:?}");
    assert_eq!(wait_at_1("192.0.2.200", 8000), Some(508));
    assert_eq!(wait_at_1("203.0.113.200", 8001), None);
}

/// A request that waits for a user and then for an allocation is counted once: the queued packet is
/// marked.
#[test]
fn a_queued_request_tells_that_it_had_waited_for_its_user() {
    let mut moving = Moving::new();
    let permit = |client: &mut Client, world: &mut World| {
        client.sealed(world, Method::CREATE_PERMISSION, |b| {
            b.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(PEER));
        })
    };
    // The user of an expected client is known.
    let world = &mut moving.workers.worlds[1];
    let request = permit(&mut moving.new, world);
    moving.workers.ask(1, &moving.new, &request).success();
    assert_eq!(moving.workers.worlds[1].had_waited, [false]);
    // The user of a client before its move is looked up.
    let mut third = Client::new(3000);
    let world = &mut moving.workers.worlds[2];
    let request = permit(&mut third, world);
    let refresh = third.sealed(world, Method::REFRESH, |b| {
        b.mobility_ticket(&moving.ticket);
    });
    world.hold = true;
    for request in [&request, &refresh] {
        assert!(matches!(world.from_client(&third.path, request), Fate::Wait));
    }
    assert!(world.release().is_empty());
    assert_eq!(moving.workers.exchange().len(), 2, "answers to both");
    assert_eq!(moving.workers.worlds[2].had_waited, [true]);
}

/// A client that exceeds its queue loses the newest packets, with a separate drop reason.
#[test]
fn a_queue_is_bounded() {
    let mut moving = Moving::new();
    let world = &mut moving.workers.worlds[1];
    let mut taken = 0;
    let full = loop {
        match moving.new.send_channel(world, 0x4000, &[0; 1000]) {
            Fate::Queued => taken += 1,
            other => break other.dropped(),
        }
    };
    assert_eq!(full, DropReason::Moving);
    assert_eq!(
        taken,
        limits::QUEUED_BYTES_PER_CLIENT_MAX / (1004 + limits::QUEUED_PACKET_OVERHEAD)
    );
    moving.workers.exchange();
    assert_eq!(moving.workers.worlds[1].after_queue.len(), taken);
}

/// The operator ends an allocation that is between two workers. The allocation ends on arrival, for
/// any order of queries, and the others continue.
#[test]
fn an_operator_ends_what_is_on_its_way() {
    for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0]] {
        let mut moving = Moving::new();
        let id = moving.workers.worlds[0].record().id;
        moving.new.send_channel(&mut moving.workers.worlds[1], 0x4000, b"x").queued();
        let Some((1, Command::Fetch { fetch, .. })) = moving.workers.next_command() else {
            panic!()
        };
        let departure = moving.workers.depart(0, &fetch);
        for at in order {
            let world = &mut moving.workers.worlds[at];
            assert!(world.server.end_for_operator(world.now, id), "{order:?}");
        }
        moving.workers.arrive(1, departure);
        moving.workers.check();
        assert_eq!(moving.workers.worlds[1].ends(), [EndReason::EndedByOperator]);
        assert_eq!(moving.workers.worlds[1].after_queue, [Err(DropReason::NoAllocation)]);
        let world = &mut moving.workers.worlds[1];
        assert!(!world.server.end_for_operator(world.now, id), "it has ended");
    }
}
