//! Datagrams that do not arrive: error queues, pending errors, refused runs.

use std::os::fd::AsRawFd;

use crate::support;

use linux_net::{
    Epoll, Events, IcmpReport, Interest, RxBatch, SendStats, TxBatch, UdpOptions, Warning,
};
use turn_types::IpFamily;

use crate::support::{V4, V6, bind, bind_with, closed_port, errors, flow, receive, send, sizes};

#[test]
fn a_closed_port_is_reported_with_the_peer_it_was_sent_to() {
    for (family, version, kind, code) in [(V4, IpFamily::V4, 3, 3), (V6, IpFamily::V6, 1, 4)] {
        let (sender, closed) = (bind(family), closed_port(family));
        send(&sender, flow(closed), &[b"anyone?"]);
        let reported = errors(&sender);
        assert_eq!(reported.len(), 1, "{family}");
        assert_eq!(reported[0].peer, closed);
        assert_eq!(reported[0].errno, libc::ECONNREFUSED);
        let expected = IcmpReport { family: version, kind, code, mtu_or_zero: 0 };
        assert_eq!(reported[0].icmp, Some(expected));
        assert_eq!(sender.recv_errors(|_| ()).unwrap(), 0, "the queue is empty now");
    }
}

#[test]
fn errors_left_by_icmp_fail_no_other_datagram() {
    let (sender, receiver, closed) = (bind(V4), bind(V4), closed_port(V4));
    let (mut batch, mut stats) = (TxBatch::new(), SendStats::default());
    for tag in 0..20 {
        // Increasing sizes, so no run is formed.
        let part = batch.arena_write(&vec![tag as u8; 10 + tag as usize]).unwrap();
        let to = if tag % 2 == 0 { closed } else { receiver.local_addr() };
        batch.push(flow(to), &[part], tag).unwrap();
    }
    let mut failed = Vec::new();
    batch.flush(&RxBatch::new(1), &sender, &mut stats, |tag, _| failed.push(tag));
    assert_eq!(failed, []);
    assert_eq!(stats.datagrams, 20);
    let seen: Vec<u8> = receive(&receiver, 10).iter().map(|m| m.segments[0][0]).collect();
    assert_eq!(seen, [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]);
}

#[test]
fn errors_left_by_icmp_do_not_hide_received_datagrams() {
    let (socket, other, closed) = (bind(V4), bind(V4), closed_port(V4));
    send(&other, flow(socket.local_addr()), &[b"hello"]);
    send(&socket, flow(closed), &[b"anyone?"]);
    support::wait(&socket);
    let mut rx = RxBatch::new(4);
    assert_eq!(rx.recv(&socket).unwrap(), 1);
    assert_eq!(rx.message(0).data, b"hello");
    assert_eq!(rx.recv(&socket).unwrap(), 0);
}

#[test]
fn epoll_reports_the_error_queue_until_it_is_empty() {
    let (sender, closed) = (bind(V4), closed_port(V4));
    let epoll = Epoll::new().unwrap();
    epoll.add(&sender, 5, Interest::Read).unwrap();
    for _ in 0..100 {
        send(&sender, flow(closed), &[b"x"]);
    }
    let mut events = Events::new(4);
    let mut takes = Vec::new();
    while epoll.wait(&mut events, Some(std::time::Duration::ZERO)).unwrap() > 0 {
        let event = events.iter().next().unwrap();
        assert!(event.error && event.token == 5, "{event:?}");
        takes.push(sender.recv_errors(|_| ()).unwrap());
    }
    // ICMP is rate-limited, so the number of errors for the 100 datagrams varies.
    assert!(takes.iter().all(|&taken| taken > 0 && taken <= 64), "{takes:?}");
}

#[test]
fn without_the_error_queue_nothing_is_kept() {
    let sender = bind_with(V4, &UdpOptions { error_queue: false, ..UdpOptions::default() });
    send(&sender, flow(closed_port(V4)), &[b"anyone?"]);
    send(&sender, flow(closed_port(V4)), &[b"anyone?"]);
    assert_eq!(sender.recv_errors(|_| ()).unwrap(), 0);
}

#[test]
fn a_run_that_the_kernel_refuses_arrives_all_the_same() {
    let (sender, receiver) = (bind(V4), bind(V4));
    // The kernel does not send runs without checksums. This refusal needs no special device.
    disable_checksums(&sender);
    let (mut batch, mut stats) = (TxBatch::new(), SendStats::default());
    for round in 1..=2 {
        for tag in 0..3 {
            let part = batch.arena_write(&[tag as u8; 100]).unwrap();
            batch.push(flow(receiver.local_addr()), &[part], tag).unwrap();
        }
        let rx = RxBatch::new(1);
        batch.flush(&rx, &sender, &mut stats, |tag, error| panic!("{tag}: {error:?}"));
        assert_eq!(sizes(&receive(&receiver, 3)), [[100], [100], [100]]);
        assert_eq!((stats.refused_runs, stats.datagrams), (1, 3 * round));
    }
    let expected = Warning::RunRefused { segment_size: 100, errno: libc::EINVAL };
    assert_eq!(batch.take_warnings(), Some(expected));
    assert_eq!(batch.take_warnings(), None);
}

fn disable_checksums(socket: &impl AsRawFd) {
    let on: libc::c_int = 1;
    // SAFETY: `on` lives until the call returns, and has the given length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0);
}

/// A socket with many addresses receives the address that an error concerns.
#[test]
fn errors_name_the_address_that_the_datagram_was_sent_from() {
    let options = UdpOptions { packet_info: true, ..UdpOptions::default() };
    let from: [std::net::IpAddr; 2] = [[127, 0, 0, 77].into(), "::1".parse().unwrap()];
    for ((wildcard, any), from) in [("0.0.0.0:0", V4), ("[::]:0", V6)].into_iter().zip(from) {
        let (sender, closed) = (bind_with(wildcard, &options), closed_port(any));
        send(&sender, linux_net::Flow { from: Some(from), ..flow(closed) }, &[b"anyone?"]);
        let reported = errors(&sender);
        assert_eq!(reported.len(), 1, "{wildcard}");
        assert_eq!((reported[0].peer, reported[0].local), (closed, Some(from)));
    }
}
