//! RFC 8016 during an upgrade: the successor continues a move at any step.

use stun_wire::Method;
use turn_proto::{EndedWait, QueuedPacket, Refusal};
use turn_types::{SocketId, Transport};

use super::takeover::{ReleasedAllocation, leave, take};
use crate::support::workers::*;
use crate::support::*;

/// Removes all waiting messages of a worker, the newest first. Returns those of streams, to handle
/// again, and the packets over UDP.
fn end_all_waits(world: &mut World) -> (Vec<Vec<u8>>, Vec<QueuedPacket>) {
    let (mut unserved, mut queued) = (Vec::new(), Vec::new());
    while let Some(ended) = world.server.end_wait(&mut world.reply) {
        match ended {
            EndedWait::Unserved { request, .. } => unserved.push(request.into()),
            EndedWait::Queued(packet) => queued.push(packet),
            EndedWait::Dropped => {}
            EndedWait::Refused(answer) => panic!("{answer:?}"),
        }
        assert!(world.carry_out().is_empty());
    }
    (unserved, queued)
}

fn end_waits(world: &mut World) -> Vec<Vec<u8>> {
    let (unserved, queued) = end_all_waits(world);
    assert_eq!(queued, []);
    unserved
}

/// The workers of the successor, with everything of these.
fn upgrade(workers: &mut Workers) -> Workers {
    let mut next = Workers::new();
    let mut packets = Vec::new();
    for (number, (old, new)) in workers.worlds.iter_mut().zip(&mut next.worlds).enumerate() {
        new.now = old.now;
        let (_, queued) = end_all_waits(old);
        packets.extend(queued.into_iter().rev().map(|packet| (number, packet)));
        for ReleasedAllocation { state, sockets, .. } in leave(old) {
            take(new, &state, &sockets).unwrap();
        }
    }
    for from in 0..next.worlds.len() {
        let now = next.worlds[from].now;
        for (worker, clients) in next.worlds[from].server.expected_elsewhere(now) {
            for client in clients {
                let server = &mut next.worlds[usize::from(worker.0)].server;
                server.expect(now, client, |_| Some(SocketId(9)));
            }
        }
    }
    for (worker, QueuedPacket { path, bytes, .. }) in packets {
        assert!(matches!(next.worlds[worker].from_client(&path, &bytes), Fate::Queued));
    }
    next
}

/// 8016-3.2.2-08: the allocation is fetched, and the worker that has it is paused.
#[test]
fn data_that_waits_for_its_allocation_outlives_an_upgrade() {
    let mut moving = Moving::new();
    for data in [b"first", b"other"] {
        moving.new.send_channel(&mut moving.workers.worlds[1], 0x4000, data).queued();
    }
    moving.workers = upgrade(&mut moving.workers);
    moving.workers.exchange();
    let sent = std::mem::take(&mut moving.workers.worlds[1].after_queue);
    assert_eq!(sent, [b"first", b"other"].map(|data| Ok((peer(PEER), data.to_vec()))));
    moving.new.send_channel(&mut moving.workers.worlds[1], 0x4000, b"later").to_peer();
}

/// The client has got the success response, and sends nothing before the upgrade.
#[test]
fn an_answered_move_outlives_an_upgrade() {
    for has_refreshed in [false, true] {
        let mut moving = Moving::new();
        if has_refreshed {
            // The old 5-tuple is in use until then.
            moving.old.refresh(&mut moving.workers.worlds[0], None).success();
        }
        moving.workers = upgrade(&mut moving.workers);
        assert_eq!(moving.workers.heard_at(moving.relayed), (0, 1000));
        moving.old.send_channel(&mut moving.workers.worlds[0], 0x4000, b"old").to_peer();
        moving.arrive();
        assert_eq!(moving.workers.heard_at(moving.relayed), (1, 2000));
    }
}

#[test]
fn a_request_completes_a_move_after_an_upgrade() {
    let mut moving = Moving::new();
    moving.workers = upgrade(&mut moving.workers);
    let request = moving.new.sealed(&mut moving.workers.worlds[1], Method::REFRESH, |_| ());
    moving.workers.ask(1, &moving.new, &request).success();
    assert_eq!(moving.workers.heard_at(moving.relayed), (1, 2000));
}

/// The response was lost: the client repeats its Refresh.
#[test]
fn a_retransmission_after_an_upgrade_gets_the_same_response() {
    let mut moving = Moving::new();
    let ticket = moving.ticket.clone();
    // The client has moved, and sends from a third 5-tuple.
    moving.arrive();
    let mut third = Client::new(3000);
    third.path.socket = SocketId(9);
    let again = third.sealed(&mut moving.workers.worlds[0], Method::REFRESH, |b| {
        b.mobility_ticket(&ticket);
    });
    let first = ticket_of(&moving.workers.ask(0, &third, &again).success());
    moving.workers = upgrade(&mut moving.workers);
    let Fate::Reply(bytes) = moving.workers.worlds[0].from_client(&third.path, &again) else {
        panic!("no worker is asked")
    };
    assert_eq!(ticket_of(&third.decode(&again, bytes).success()), first);
}

/// The allocation is fetched, and the worker that has it is paused.
#[test]
fn messages_of_a_stream_that_wait_for_their_allocation_come_back() {
    let mut moving = Moving::over(Transport::Tcp);
    let _earlier = moving.workers.worlds[1].refusals();
    moving.new.send_channel(&mut moving.workers.worlds[1], 0x4000, b"data").queued();
    let world = &mut moving.workers.worlds[1];
    let request = moving.new.sealed(world, Method::REFRESH, |_| ());
    // The request waits for the look-up of its user.
    assert!(matches!(world.from_client(&moving.new.path, &request), Fate::Wait));
    let unserved = end_waits(world);
    assert_eq!(unserved.len(), 2);
    assert_eq!(unserved[0], request, "the newest comes first");
    // After a rollback.
    for message in unserved.into_iter().rev() {
        let fate = moving.workers.worlds[1].from_client(&moving.new.path, &message);
        assert!(matches!(fate, Fate::Queued | Fate::Wait));
    }
    moving.workers.worlds[1].outgoing.clear();
    moving.workers.advance_and_hear(1);
    assert_eq!(moving.workers.heard_at(moving.relayed), (1, 2000));
    let sent = std::mem::take(&mut moving.workers.worlds[1].after_queue);
    assert_eq!(sent, [Ok((peer(PEER), b"data".to_vec()))]);
    assert_eq!(moving.workers.worlds[1].refusals(), [] as [Refusal; 0]);
}
