//! The ring relays as decided, returns its buffers, and frees the port.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use lab_net::UringUdp;

const PATIENCE: Duration = Duration::from_secs(10);

/// A ring with `buffers` and its address; `None`, and a skip, without io_uring.
fn ring(buffers: usize) -> Option<(UringUdp, SocketAddr)> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let local = socket.local_addr().unwrap();
    match UringUdp::new(socket, buffers) {
        Ok(ring) => Some((ring, local)),
        Err(error) => {
            // ENOSYS, EPERM, EACCES, EINVAL: not there, forbidden, too old.
            assert!([38, 1, 13, 22].contains(&error.raw_os_error().unwrap()), "{error}");
            test_support::skip(format!("no io_uring here: {error}"));
            None
        }
    }
}

fn plain() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut datagram = [0; 4096];
    let (len, from) = socket.recv_from(&mut datagram).unwrap();
    (datagram[..len].to_vec(), from)
}

#[test]
fn datagrams_go_where_they_are_told_many_times_round_all_buffers() {
    let Some((mut ring, local)) = ring(8) else { return };
    let (peer, even, odd) = (plain(), plain(), plain());
    let (even_addr, odd_addr) = (even.local_addr().unwrap(), odd.local_addr().unwrap());
    for number in 0..500_u32 {
        peer.send_to(&number.to_be_bytes(), local).unwrap();
        let (mut seen, wanted) = (0, ring.stats().received + 1);
        while ring.stats().received < wanted || ring.stats().sent < wanted {
            ring.turn(PATIENCE, |datagram| {
                assert_eq!(datagram, &number.to_be_bytes()[..]);
                seen += 1;
                Some(if number % 2 == 0 { even_addr } else { odd_addr })
            })
            .unwrap();
        }
        assert_eq!(seen, 1);
        let client = if number % 2 == 0 { &even } else { &odd };
        assert_eq!(receive(client), (number.to_be_bytes().to_vec(), local));
    }
    let stats = ring.close();
    assert_eq!((stats.received, stats.sent, stats.failed, stats.truncated), (500, 500, 0, 0));
}

#[test]
fn more_than_there_are_buffers_waits_and_is_not_lost() {
    let Some((mut ring, local)) = ring(4) else { return };
    let (peer, client) = (plain(), plain());
    let to = client.local_addr().unwrap();
    for number in 0..100_u32 {
        peer.send_to(&number.to_be_bytes(), local).unwrap();
    }
    while ring.stats().sent < 100 {
        ring.turn(PATIENCE, |_| Some(to)).unwrap();
    }
    for number in 0..100_u32 {
        assert_eq!(receive(&client).0, number.to_be_bytes(), "in the order they came");
    }
    let stats = ring.close();
    assert_eq!((stats.received, stats.sent, stats.failed), (100, 100, 0));
    assert!(stats.starved > 0, "{stats:?}");
}

#[test]
fn what_is_not_wanted_or_too_long_is_dropped_and_its_buffer_used_again() {
    let Some((mut ring, local)) = ring(2) else { return };
    let (peer, client) = (plain(), plain());
    let to = client.local_addr().unwrap();
    for _ in 0..10 {
        peer.send_to(&[1; 3000], local).unwrap();
        peer.send_to(b"unwanted", local).unwrap();
        peer.send_to(b"", local).unwrap();
        peer.send_to(&[2; 2000], local).unwrap();
    }
    while ring.stats().received < 40 || ring.stats().sent < 20 {
        ring.turn(PATIENCE, |datagram| (datagram != b"unwanted").then_some(to)).unwrap();
    }
    for _ in 0..10 {
        assert_eq!(receive(&client).0, b"");
        assert_eq!(receive(&client).0, [2; 2000]);
    }
    let stats = ring.close();
    assert_eq!((stats.received, stats.sent, stats.truncated), (40, 20, 10));
}

#[test]
fn a_destination_that_cannot_be_is_counted_and_harms_nobody() {
    let Some((mut ring, local)) = ring(2) else { return };
    let (peer, client) = (plain(), plain());
    let to = client.local_addr().unwrap();
    for _ in 0..10 {
        peer.send_to(b"nowhere", local).unwrap();
        peer.send_to(b"client", local).unwrap();
    }
    // An address of the other family.
    let nowhere: SocketAddr = "[2001:db8::1]:9".parse().unwrap();
    while ring.stats().sent + ring.stats().failed < 20 {
        ring.turn(PATIENCE, |datagram| Some(if datagram == b"client" { to } else { nowhere }))
            .unwrap();
    }
    let stats = ring.close();
    assert_eq!((stats.received, stats.sent, stats.failed), (20, 10, 10));
    assert_eq!(receive(&client).0, b"client");
}

#[test]
fn a_turn_without_anything_ends_in_time() {
    let Some((mut ring, _)) = ring(2) else { return };
    ring.turn(Duration::from_millis(1), |_| unreachable!()).unwrap();
    assert_eq!(ring.stats().received, 0);
}

#[test]
fn the_port_is_free_once_the_ring_is_gone() {
    for sent in [false, true] {
        let Some((mut ring, local)) = ring(4) else { return };
        if sent {
            // Left with a receive that goes on and a send that was not submitted.
            let (peer, client) = (plain(), plain());
            peer.send_to(b"last", local).unwrap();
            while ring.stats().received == 0 {
                ring.turn(PATIENCE, |_| Some(client.local_addr().unwrap())).unwrap();
            }
            drop(ring);
            assert_eq!(receive(&client).0, b"last");
        } else {
            drop(ring);
        }
        // The kernel lets go of what a ring held a little after the ring.
        let begun = std::time::Instant::now();
        while UdpSocket::bind(local).is_err() {
            assert!(begun.elapsed() < PATIENCE, "the port stays taken");
            std::thread::yield_now();
        }
    }
}
