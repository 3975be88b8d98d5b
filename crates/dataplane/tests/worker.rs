//! Functions of a worker other than relaying: users, the mailbox, losses, shutdown.

use control::{Histogram, LateAnswer, Leg, Request, Series, SessionFilter};
use dataplane::NetOptions;
use stun_wire::{Class, Message};
use test_support::eventually;
use turn_client::{AllocateOptions, Event, Families, Incoming};
use turn_proto::{
    DropReason, EndReason, PeerRules, Policy, PortRange, Refusal, RelayAddress, RelayPorts,
    UserQuery,
};
use turn_types::{Direction, IpFamily, IpMeta, Transport};

use crate::support::end::End;
use crate::support::user::{TurnUser, now};
use crate::support::{
    LOCALHOST, NOBODY, PATIENCE, PEER, Start, USER, World, policy, relay_address,
};

fn code(event: &Event) -> u16 {
    let Event::Refused { code, .. } = event else { panic!("{event:?}") };
    *code
}

#[test]
fn users_are_looked_up_and_answered_late() {
    let world = World::new();
    TurnUser::allocated(LOCALHOST, world.server);
    let totals = world.totals();
    assert_eq!(*world.directory.asked.lock().unwrap(), [UserQuery::Name(USER.into())]);
    assert_eq!(totals.value(Series::LateAnswer(LateAnswer::Success)), 1);
    assert_eq!(totals.value(Series::Refusal(Refusal::NoCredentials)), 1, "the first step");
    assert_eq!((totals.allocations_live(), totals.allocations_created()), (1, 1));
    world.assert_adds_up();
}

#[test]
fn times_of_answers_and_traffic_are_counted() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let channel = alice.bind_channel(peer.addr());
    alice.say(channel, &[b"four", b"more"], IpMeta::DEFAULT);
    peer.receive_many(2);
    let count = |histogram| world.totals().buckets(histogram).map(|(_, count)| count).sum::<u64>();
    let counts = [Histogram::Allocate, Histogram::Lookup, Histogram::SessionBytes].map(count);
    assert_eq!(counts, [1, 1, 0]);
    assert!(world.count(Series::Sum(Histogram::Allocate)) > 0, "sockets take time");
    let turns = count(Histogram::Turn);
    assert!(turns > 0 && turns <= world.turns(), "{turns} of {}", world.turns());
    let relayed = Series::RelayedBytes(Transport::Udp, IpFamily::V4, Direction::ToPeer);
    assert_eq!(world.count(relayed), 0, "nobody has asked");
    world.ask(|done| Request::CountTraffic { done });
    assert_eq!(world.count(relayed), 8);
    alice.release();
    assert_eq!(world.count(Series::Sum(Histogram::SessionBytes)), 8);
    world.ask(|done| Request::CountTraffic { done });
    assert_eq!(world.count(relayed), 8, "also of allocations that have ended");
}

#[test]
fn unknown_users_are_refused() {
    let world = World::new();
    let mut mallory = TurnUser::named("mallory", LOCALHOST, world.server);
    let event = mallory.allocate(Families::Unsaid);
    assert!(!matches!(event, Event::Allocated(_)), "{event:?}");
    assert!(world.count(Series::Refusal(Refusal::UnknownUser)) > 0);
    assert!(world.all_sessions().is_empty());
    world.assert_adds_up();
}

/// The client repeats the request, and gets a response when the directory accepts look-ups again.
#[test]
fn a_directory_that_takes_no_more_questions_is_asked_again() {
    let world = World::new();
    *world.directory.full.lock().unwrap() = true;
    let mut alice = TurnUser::at(LOCALHOST, world.server);
    alice.client.allocate(now(), AllocateOptions::default()).unwrap();
    let challenge = alice.exchange();
    assert_eq!(alice.client.handle_datagram(now(), &challenge), Incoming::Answer);
    let request = alice.client.poll_transmit().unwrap().to_vec();
    alice.end.send(world.server, &request);
    let full = Series::Refusal(Refusal::UserLookupsOverloaded);
    eventually("it is counted", || world.count(full) == 1);
    assert!(world.all_sessions().is_empty());
    *world.directory.full.lock().unwrap() = false;
    alice.end.send(world.server, &request);
    let answer = alice.end.receive();
    assert_eq!(Message::parse(&answer.bytes).unwrap().class(), Class::Success);
    world.assert_adds_up();
}

#[test]
fn sessions_are_listed_by_user() {
    let world = World::new();
    let alice = TurnUser::allocated(LOCALHOST, world.server);
    let listed = |user: &str| {
        world.sessions(SessionFilter { user: Some(user.into()), ..SessionFilter::default() })
    };
    let records = listed(USER);
    assert_eq!(records.len(), 1);
    assert_eq!(&*records[0].user, USER);
    assert_eq!(records[0].five_tuple.client.0, alice.end.addr());
    assert_eq!(records[0].relayed, alice.client.allocation().unwrap().relayed);
    assert_eq!(records[0].end, None);
    assert!(listed("somebody else").is_empty());
}

#[test]
fn an_operator_ends_a_session_and_its_port_is_closed() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let relayed = alice.relayed(IpFamily::V4);
    let channel = alice.bind_channel(peer.addr());
    let id = world.all_sessions()[0].id;
    let end = |id| world.ask(|reply| Request::End { id, reply });
    assert!(!end(NOBODY), "no such session");
    assert!(end(id));
    assert!(!end(id), "not twice");

    assert!(world.all_sessions().is_empty());
    assert_eq!(world.count(Series::AllocationsEnded(EndReason::EndedByOperator)), 1);
    let free = std::net::UdpSocket::bind(relayed);
    assert!(free.is_ok(), "the port is free again: {free:?}");
    alice.say(channel, &[b"too late"], IpMeta::DEFAULT);
    assert_eq!(world.count(Series::Drop(DropReason::NoAllocation)), 1);
    assert!(peer.is_quiet());
}

#[test]
fn what_came_before_the_end_of_an_allocation_is_relayed_and_nothing_after_it() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let channel = alice.bind_channel(peer.addr());

    // The worker is held, so all three datagrams are received in one batch.
    let released = world.hold();
    alice.say(channel, &[b"before"], IpMeta::DEFAULT);
    alice.client.release(now()).unwrap();
    let request = alice.client.poll_transmit().unwrap().to_vec();
    alice.end.send(world.server, &request);
    alice.say(channel, &[b"after"], IpMeta::DEFAULT);
    drop(released);

    alice.wait_for(&Event::Released);
    assert_eq!(peer.receive().bytes, b"before");
    assert_eq!(world.count(Series::Drop(DropReason::NoAllocation)), 1);
    assert!(peer.is_quiet());
    assert!(world.all_sessions().is_empty());
    world.assert_adds_up();
}

#[test]
fn a_relay_that_is_ready_when_its_allocation_ends_is_forgotten() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let relayed = alice.relayed(IpFamily::V4);
    alice.permit(PEER);
    peer.send(relayed, b"in time");
    assert_eq!(alice.hear().payload, b"in time");

    // Both sockets are ready in the same iteration. The listener, which receives the end of the
    // allocation, is served first.
    let released = world.hold();
    alice.client.release(now()).unwrap();
    let request = alice.client.poll_transmit().unwrap().to_vec();
    alice.end.send(world.server, &request);
    peer.send(relayed, b"too late");
    drop(released);

    alice.wait_for(&Event::Released);
    assert_eq!(world.totals().volume(Leg::FromPeers).packets, 1, "the one that came in time");
    world.assert_adds_up();
}

#[test]
fn a_draining_worker_takes_no_allocation_and_serves_those_it_has() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let channel = alice.bind_channel(peer.addr());
    world.mailbox.post(Request::Drain(true)).unwrap();

    let mut bob = TurnUser::at(LOCALHOST, world.server);
    assert_eq!(code(&bob.allocate(Families::Unsaid)), Refusal::Draining.code());
    alice.say(channel, &[b"still here"], IpMeta::DEFAULT);
    assert_eq!(peer.receive().bytes, b"still here");

    world.mailbox.post(Request::Drain(false)).unwrap();
    let event = bob.allocate(Families::Unsaid);
    assert!(matches!(event, Event::Allocated(_)), "{event:?}");
}

#[test]
fn a_new_policy_acts_at_once() {
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    let channel = alice.bind_channel(peer.addr());
    alice.say(channel, &[b"still allowed"], IpMeta::DEFAULT);
    assert_eq!(peer.receive().bytes, b"still allowed");
    let deny = ["127.0.0.0/8".parse().unwrap()];
    let peer_rules = PeerRules::new(&[], &deny, &[LOCALHOST]);
    world.apply(Policy { peer_rules, ..world.policy.clone() });

    alice.say(channel, &[b"not any more"], IpMeta::DEFAULT);
    assert_eq!(world.count(Series::Drop(DropReason::ChannelNotBound)), 1);
    world.assert_adds_up();
    assert!(peer.is_quiet());
    assert_eq!(world.all_sessions().len(), 1);
}

#[test]
fn stopping_ends_every_allocation_and_tells_of_each() {
    let world = World::new();
    let users: Vec<_> = (0..3).map(|_| TurnUser::allocated(LOCALHOST, world.server)).collect();
    let totals = world.stop();
    assert_eq!(totals.value(Series::AllocationsEnded(EndReason::Shutdown)), 3);
    assert_eq!(totals.allocations_live(), 0);
    for user in users {
        let relayed = user.relayed(IpFamily::V4);
        assert!(std::net::UdpSocket::bind(relayed).is_ok(), "the sockets are closed");
    }
}

#[test]
fn a_worker_is_stopped_while_its_mailbox_is_busy() {
    let world = World::new();
    let released = world.hold();
    for _ in 0..1000 {
        world.mailbox.post(Request::Drain(false)).unwrap();
    }
    drop(released);
    world.stop();
}

#[test]
fn what_the_kernel_throws_away_is_counted() {
    const SENT: u64 = 500;
    let net = NetOptions { recv_buffer: 4096, ..NetOptions::default() };
    let world = World::start(Start { net, ..Start::default() });
    let before = world.totals().volume(Leg::FromClients).packets;
    let released = world.hold();
    let mut flood = End::at(LOCALHOST);
    for _ in 0..SENT {
        flood.send(world.server, &[0xFF; 100]);
    }
    drop(released);
    world.totals();
    // The next datagram that is not lost reports the number of losses.
    flood.send(world.server, &[0xFF; 100]);
    let totals = world.totals();
    let received = totals.volume(Leg::FromClients).packets - before;
    assert!(totals.kernel_drops() > 0);
    assert_eq!(received + totals.kernel_drops(), SENT + 1);
    // The kernel continues the sum, and the successor counts only later losses.
    let left = world.channels.export().unwrap();
    let counted = u32::try_from(totals.kernel_drops()).unwrap();
    assert_eq!(left[0].snapshot.losses, [(world.server, counted)]);
    world.channels.roll_back();
}

#[test]
fn refreshes_and_time_do_not_disturb_each_other() {
    let world = World::new();
    let mut alice = TurnUser::allocated(LOCALHOST, world.server);
    alice.release();
    assert_eq!(world.count(Series::AllocationsEnded(EndReason::Deleted)), 1);
    assert_eq!(world.totals().allocations_live(), 0);
    // The 5-tuple may allocate again immediately.
    assert!(matches!(alice.allocate(Families::Unsaid), Event::Allocated(_)));
}

#[test]
fn a_port_that_others_hold_is_not_given_out() {
    // Two ports, one of which another program uses.
    let local = relay_address();
    let relay =
        vec![RelayAddress { local, public: local, ports: RelayPorts::new(), is_present: true }];
    let ports = PortRange::new(50_000, 50_001).unwrap();
    let _other = std::net::UdpSocket::bind((local, 50_000)).unwrap();
    let policy = Policy { relay, ports, ..policy() };
    let world = World::start(Start { policy, ..Start::default() });
    let alice = TurnUser::allocated(LOCALHOST, world.server);
    assert_eq!(alice.relayed(IpFamily::V4).port(), 50_001);
    let mut bob = TurnUser::at(LOCALHOST, world.server);
    assert_eq!(code(&bob.allocate(Families::Unsaid)), Refusal::PortsExhausted.code());
    world.assert_adds_up();
}

#[test]
fn a_worker_that_waits_has_a_turn_when_it_is_woken() {
    let world = World::new();
    for _ in 0..3 {
        let before = world.turns();
        world.mailbox.wake();
        let begun = std::time::Instant::now();
        while world.turns() == before {
            assert!(begun.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
    }
}
