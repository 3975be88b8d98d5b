//! Relayed packets cause no heap allocation in the worker after warm-up.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod support;

use control::Request;
use stun_wire::ChannelNumber;
use support::dtls::{DtlsUser, config};
use support::end::End;
use support::user::TurnUser;
use support::{LOCALHOST, NOBODY, PEER, Start, World};
use turn_types::{IpFamily, IpMeta};

#[global_allocator]
static ALLOCATOR: lab_net::allocations::Counting = lab_net::allocations::Counting;

/// Returns the number of allocations of the worker's thread so far. The worker calls a reply on
/// this thread, here the reply to a request without effect.
fn allocations(world: &World) -> u64 {
    // Unlike `channel`, a bounded channel allocates nothing when a value is sent.
    let (sender, count) = std::sync::mpsc::sync_channel(1);
    let reply = Box::new(move |_| sender.send(lab_net::allocations::on_this_thread()).unwrap());
    world.mailbox.post(Request::End { id: NOBODY, reply }).unwrap();
    count.recv_timeout(support::PATIENCE).unwrap()
}

/// Relays in both directions: channels and indications, single datagrams and bursts, and drops.
fn relay(user: &mut TurnUser, peer: &mut End, path: (ChannelNumber, std::net::SocketAddr)) {
    let (channel, relayed) = path;
    let burst = [&[1_u8; 300][..]; 20];
    let mixed: [&[u8]; 4] = [&[2; 10], &[3; 20], &[4; 5], &[]];
    for payloads in [&burst[..], &burst[..1], &mixed] {
        user.say(channel, payloads, IpMeta::DEFAULT);
        peer.receive_many(payloads.len());
        peer.send_burst(relayed, payloads, IpMeta::DEFAULT);
        payloads.iter().for_each(|_| drop(user.hear()));
    }
    user.indicate(peer.addr(), b"indication", IpMeta { ttl: 9, tos: 0x88, dont_fragment: false });
    peer.receive();
    user.end.send(user.server(), b"\xFFnonsense");
}

#[test]
fn relaying_allocates_nothing() {
    const ROUNDS: u32 = 50;
    let world = World::new();
    let mut peer = End::at(PEER);
    let mut user = TurnUser::allocated(LOCALHOST, world.server);
    let relayed = user.relayed(IpFamily::V4);
    let channel = user.bind_channel(peer.addr());

    relay(&mut user, &mut peer, (channel, relayed));
    let warm = allocations(&world);
    assert!(warm > 0, "the counter counts");
    for _ in 0..ROUNDS {
        relay(&mut user, &mut peer, (channel, relayed));
    }
    let after = allocations(&world);
    assert_eq!(after - warm, 0, "in {ROUNDS} rounds");
    assert!(world.totals().allocations_live() == 1);
    world.assert_adds_up();
}

/// OpenSSL's allocations are not included. OpenSSL keeps its buffers for the lifetime of the
/// association.
#[test]
fn relaying_over_dtls_allocates_nothing() {
    let world = World::start(Start { dtls: Some(config()), ..Start::default() });
    let mut peer = End::at(PEER);
    let mut user = DtlsUser::allocated(world.server);
    let (channel, relayed) = (user.bind_channel(peer.addr()), user.relayed());
    let mut relay = |rounds: u32| {
        for _ in 0..rounds {
            user.say(channel, &[1; 1200]);
            assert_eq!(peer.receive().bytes.len(), 1200);
            peer.send(relayed, &[2; 900]);
            assert_eq!(user.hear().1.len(), 900);
        }
        allocations(&world)
    };
    let warm = relay(5);
    assert_eq!(relay(50) - warm, 0);
    world.assert_adds_up();
}
