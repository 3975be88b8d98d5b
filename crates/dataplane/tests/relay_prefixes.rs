//! Relaying from addresses of a prefix through one socket, on the real kernel.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use control::Series;
use test_support::eventually;
use turn_proto::DropReason;
use turn_types::{IpFamily, IpMeta, PeerAddr};

use crate::support::data::{Alice, Caller};
use crate::support::dtls::{DtlsUser, config};
use crate::support::end::End;
use crate::support::user::TurnUser;
use crate::support::{LOCALHOST, PEER, Start, World, prefix};

fn world() -> World {
    World::start(Start { policy: prefix::policy(1), ..Start::default() })
}

fn allocated(world: &World) -> (TurnUser, SocketAddr) {
    let user = TurnUser::allocated(LOCALHOST, world.server);
    let relayed = user.relayed(IpFamily::V4);
    assert!(world.policy.prefixes[0].contains(relayed.ip()), "{relayed}");
    (user, relayed)
}

#[test]
fn each_client_hears_what_comes_to_its_address() {
    let world = world();
    let mut peer = End::at(PEER);
    let mut users: Vec<_> = (0..20).map(|_| allocated(&world)).collect();
    let addresses: BTreeSet<_> = users.iter().map(|(_, relayed)| relayed.ip()).collect();
    assert_eq!(addresses.len(), users.len());
    let channels: Vec<_> =
        users.iter_mut().map(|(user, _)| user.bind_channel(peer.addr())).collect();
    for ((user, relayed), channel) in users.iter_mut().zip(&channels) {
        user.say(*channel, &[b"one", b"two"], IpMeta::DEFAULT);
        for payload in [b"one", b"two"] {
            let heard = peer.receive();
            assert_eq!((heard.from, &heard.bytes[..]), (*relayed, &payload[..]));
        }
    }
    for (index, (_, relayed)) in users.iter().enumerate() {
        peer.send(*relayed, &[index as u8]);
    }
    for (index, (user, _)) in users.iter_mut().enumerate() {
        assert_eq!(user.hear().payload, [index as u8]);
    }
    world.assert_adds_up();
}

#[test]
fn two_of_its_clients_reach_each_other() {
    let world = world();
    let ((mut a, at_a), (mut b, at_b)) = (allocated(&world), allocated(&world));
    let (to_b, to_a) = (a.bind_channel(at_b), b.bind_channel(at_a));
    a.say(to_b, &[b"to b"], IpMeta::DEFAULT);
    let heard = b.hear();
    assert_eq!((heard.channel, &heard.payload[..]), (Some(to_a), &b"to b"[..]));
    assert_eq!(heard.peer, PeerAddr(at_a));
    b.say(to_a, &[b"to a"], IpMeta::DEFAULT);
    assert_eq!(a.hear().payload, b"to a");
    world.assert_adds_up();
}

#[test]
fn errors_of_the_network_reach_the_client_that_sent() {
    let world = world();
    let ((mut a, _), (mut b, _)) = (allocated(&world), allocated(&world));
    let closed = End::at(PEER).addr();
    let (on_a, on_b) = (a.bind_channel(closed), b.bind_channel(closed));
    a.say(on_a, &[b"anyone?"], IpMeta::DEFAULT);
    let (about, icmp) = a.hear_icmp();
    assert_eq!((about, icmp.kind, icmp.code), (PeerAddr(closed), 3, 3));
    b.say(on_b, &[b"anyone?"], IpMeta::DEFAULT);
    assert_eq!(b.hear_icmp().0, PeerAddr(closed));
    world.assert_adds_up();
}

#[test]
fn datagrams_to_addresses_without_an_allocation_are_dropped_and_counted() {
    let world = world();
    let mut peer = End::at(PEER);
    let (mut alice, relayed) = allocated(&world);
    alice.permit(PEER);
    // Free addresses of the prefix, another address of this host, and the address of an ended
    // allocation.
    let (mut other, gone) = allocated(&world);
    other.release();
    let free = SocketAddr::new("127.77.250.250".parse().unwrap(), relayed.port());
    for to in [gone, free, SocketAddr::new(LOCALHOST, relayed.port())] {
        peer.send(to, b"stray");
    }
    peer.send(relayed, b"meant");
    assert_eq!(alice.hear().payload, b"meant");
    assert_eq!(world.count(Series::Drop(DropReason::RelayClosed)), 3);
    world.assert_adds_up();
}

#[test]
fn a_packet_that_must_not_be_fragmented_binds_no_other() {
    let world = world();
    let mut peer = End::at(PEER);
    let ((mut a, _), (mut b, _)) = (allocated(&world), allocated(&world));
    let (on_a, on_b) = (a.bind_channel(peer.addr()), b.bind_channel(peer.addr()));
    // Longer than the link's MTU, sent in fragments.
    let long = vec![7; 60_000];
    let forbidden = IpMeta { dont_fragment: true, ..IpMeta::DEFAULT };
    for _ in 0..3 {
        a.say(on_a, &[b"whole"], forbidden);
        b.say(on_b, &[&long], IpMeta::DEFAULT);
        let sizes: BTreeSet<_> =
            peer.receive_many(2).iter().map(|heard| heard.bytes.len()).collect();
        assert_eq!(sizes, BTreeSet::from([5, 60_000]));
    }
    world.assert_adds_up();
}

#[test]
fn a_relay_for_tcp_calls_and_is_called_at_its_own_address() {
    let world = world();
    let (mut alice, relayed) = Alice::allocated(world.server);
    assert!(world.policy.prefixes[0].contains(relayed.ip()), "{relayed}");
    let listener = TcpListener::bind(SocketAddr::new(PEER, 0)).unwrap();
    let connection = alice.call(listener.local_addr().unwrap()).unwrap();
    let (mut peer, from) = listener.accept().unwrap();
    assert_eq!(from, relayed);
    let mut data = Alice::data(world.server, connection, b"hello");
    let mut heard = [0; 5];
    peer.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    peer.write_all(b"good day").unwrap();
    assert_eq!(data.hear(8), b"good day");

    alice.permit(PEER);
    let caller = Caller::call(PEER, relayed);
    let (from, connection) = alice.attempt();
    assert_eq!(from, caller.addr());
    let mut data = Alice::data(world.server, connection, b"");
    caller.say(b"calling");
    assert_eq!(data.hear(7), b"calling");
    world.assert_adds_up();
}

/// Allocations of clients over UDP and DTLS are exported, with the session in the case of DTLS.
/// After a rollback both clients continue.
#[test]
fn a_session_of_dtls_leaves_with_its_allocation() {
    let (policy, dtls) = (prefix::policy(1), Some(config()));
    let world = World::start(Start { policy, dtls, ..Start::default() });
    let mut peer = End::at(PEER);
    let (_other, left_at) = allocated(&world);
    let mut client = DtlsUser::allocated(world.server);
    let channel = client.bind_channel(peer.addr());
    for _ in 0..2 {
        let left = world.channels.export().unwrap();
        assert_eq!((left[0].snapshot.allocations.len(), left[0].snapshot.sessions.len()), (2, 1));
        world.channels.roll_back();
        peer.send(left_at, b"for the other");
        peer.send(client.relayed(), b"as before");
        assert_eq!(client.hear(), (Some(channel), b"as before".to_vec()));
    }
    world.channels.export().unwrap();
    world.channels.commit();
    eventually("the next process has it", || {
        world.count(Series::AssociationsLive) == 0 && world.totals().allocations_live() == 0
    });
}
