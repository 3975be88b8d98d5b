//! Batches over the loopback, with the real kernel.

use std::collections::HashSet;
use std::net::IpAddr;

use crate::support;

use linux_net::{Flow, Part, RxBatch, SendError, SendSocket, SendStats, TxBatch, UdpOptions};
use turn_types::IpMeta;

use crate::support::{V4, V6, bind, bind_with, flow, receive, send, sizes, try_send, wait};

#[test]
fn a_run_arrives_as_one_message_with_its_boundaries() {
    for family in [V4, V6] {
        let (sender, receiver) = (bind(family), bind(family));
        let datagrams: [&[u8]; 4] = [&[1; 200], &[2; 200], &[3; 200], &[4; 10]];
        let stats = send(&sender, flow(receiver.local_addr()), &datagrams);
        let messages = receive(&receiver, 4);
        assert_eq!(messages.len(), 1, "{family}");
        assert_eq!(messages[0].segments, datagrams);
        assert_eq!(messages[0].from, sender.local_addr());
        assert_eq!((stats.calls, stats.datagrams, stats.bytes), (1, 4, 610));
    }
}

#[test]
fn without_gro_a_run_arrives_as_its_datagrams() {
    let receiver = bind_with(V4, &UdpOptions { gro: false, ..UdpOptions::default() });
    send(&bind(V4), flow(receiver.local_addr()), &[&[1; 200], &[2; 200], &[3; 10]]);
    assert_eq!(sizes(&receive(&receiver, 3)), [[200], [200], [10]]);
}

#[test]
fn merging_ceases_when_nothing_waits_and_may_begin_at_any_time() {
    let run: [&[u8]; 3] = [&[1; 200], &[2; 200], &[3; 10]];
    for family in [V4, V6] {
        let (sender, receiver) = (bind(family), bind(family));
        let to = flow(receiver.local_addr());
        send(&sender, to, &run);
        wait(&receiver);
        assert!(!receiver.cease_merging(), "{family}: one that waits is merged");
        assert_eq!(
            sizes(&receive(&receiver, 3)),
            [[200, 200, 10]],
            "{family}: with its boundaries"
        );
        assert!(receiver.cease_merging(), "{family}: nothing waits");
        send(&sender, to, &run);
        assert_eq!(sizes(&receive(&receiver, 3)), [[200], [200], [10]], "{family}");
        send(&sender, to, &run);
        wait(&receiver);
        receiver.merge(true);
        send(&sender, to, &run);
        let mixed = [vec![200], vec![200], vec![10], vec![200, 200, 10]];
        assert_eq!(sizes(&receive(&receiver, 6)), mixed, "{family}");
    }
}

#[test]
fn changes_of_size_split_runs() {
    let (sender, receiver) = (bind(V4), bind(V4));
    let datagrams: [&[u8]; 6] = [&[1; 50], &[2; 50], &[3; 20], &[4; 20], &[5; 50], &[6; 50]];
    let stats = send(&sender, flow(receiver.local_addr()), &datagrams);
    let messages = receive(&receiver, 6);
    assert_eq!(sizes(&messages), [vec![50, 50, 20], vec![20], vec![50, 50]]);
    assert_eq!(messages.concat_segments(), datagrams);
    assert_eq!(stats.calls, 1);
}

#[test]
fn runs_of_more_than_64_are_split() {
    let (sender, receiver) = (bind(V4), bind(V4));
    let datagrams: Vec<Vec<u8>> = (0..130).map(|n| vec![n; 100]).collect();
    let borrowed: Vec<&[u8]> = datagrams.iter().map(Vec::as_slice).collect();
    send(&sender, flow(receiver.local_addr()), &borrowed);
    let messages = receive(&receiver, 130);
    assert_eq!(messages.iter().map(|m| m.segments.len()).collect::<Vec<_>>(), [64, 64, 2]);
    assert_eq!(messages.concat_segments(), datagrams);
}

#[test]
fn the_largest_datagrams_and_runs_arrive_whole() {
    let (sender, receiver) = (bind(V4), bind(V4));
    let (large, half) = (vec![1; 65_507], vec![2; 32_753]);
    let stats = send(&sender, flow(receiver.local_addr()), &[&large, &half, &half]);
    // The device decides if such a large run is merged on arrival.
    assert_eq!(receive(&receiver, 3).concat_segments(), [&large, &half, &half].map(Vec::clone));
    assert_eq!((stats.calls, stats.refused_runs), (1, 0));
    let (stats, failed) = try_send(&sender, flow(receiver.local_addr()), &[&vec![1; 65_508]]);
    assert_eq!((stats.failed, failed), (1, vec![(0, SendError::TooBig)]));
}

#[test]
fn empty_datagrams_arrive_as_such() {
    for family in [V4, V6] {
        let (sender, receiver) = (bind(family), bind(family));
        send(&sender, flow(receiver.local_addr()), &[b"", b"", b"a", b""]);
        let messages = receive(&receiver, 4);
        assert_eq!(sizes(&messages), [[0], [0], [1], [0]]);
        assert_eq!(messages[0].from, sender.local_addr());
        // Also a datagram without any part.
        let mut batch = TxBatch::new();
        batch.push(flow(receiver.local_addr()), &[], 0).unwrap();
        assert_eq!(support::flush(&mut batch, &sender).1, []);
        assert_eq!(sizes(&receive(&receiver, 1)), [[0]]);
    }
}

#[test]
fn marks_are_carried_both_ways() {
    let marked = IpMeta { ttl: 17, tos: 0b1011_1001, dont_fragment: false };
    for family in [V4, V6] {
        let (sender, receiver) = (bind(family), bind(family));
        let to = flow(receiver.local_addr());
        for meta in [marked, IpMeta::DEFAULT, IpMeta { ttl: 255, ..IpMeta::DEFAULT }] {
            send(&sender, Flow { meta, ..to }, &[b"one", b"two"]);
            let message = &receive(&receiver, 2)[0];
            assert_eq!(message.segments.len(), 2, "a run carries header fields too");
            let ttl = if meta.ttl == 0 { 64 } else { meta.ttl };
            assert_eq!(message.meta, IpMeta { ttl, ..meta }, "{family}");
        }
    }
}

/// Fields change repeatedly, and remain equal long enough to become socket options. Some calls
/// contain datagrams with different fields.
#[test]
fn an_adapting_socket_sends_each_datagram_with_its_own_marks() {
    let (voice, plain) = ((63, 0xB8), (63, 0));
    let mixed = [voice, plain, (0, 0), voice, voice, (0, 0), (12, 1)];
    let fields: Vec<(u8, u8)> =
        [&[voice; 40][..], &mixed, &[plain; 40], &mixed, &[(0, 0); 40], &mixed].concat();
    for family in [V4, V6] {
        let options = UdpOptions { adapts: true, ..UdpOptions::default() };
        let single = UdpOptions { gro: false, ..UdpOptions::default() };
        let (sender, receiver) = (bind_with(family, &options), bind_with(family, &single));
        let to = flow(receiver.local_addr());
        for at_once in [1, 7] {
            let mut got = Vec::new();
            for some in fields.chunks(at_once) {
                let mut batch = TxBatch::new();
                for &(ttl, tos) in some {
                    let part = batch.arena_write(b"x").unwrap();
                    let meta = IpMeta { ttl, tos, dont_fragment: false };
                    batch.push(Flow { meta, ..to }, &[part], 0).unwrap();
                }
                assert_eq!(support::flush(&mut batch, &sender).1, []);
                let messages = receive(&receiver, some.len());
                got.extend(messages.iter().map(|message| (message.meta.ttl, message.meta.tos)));
            }
            let expected = fields.iter().map(|&(ttl, tos)| (if ttl == 0 { 64 } else { ttl }, tos));
            assert_eq!(got, expected.collect::<Vec<_>>(), "{family}, {at_once} at once");
        }
    }
}

#[test]
fn the_source_address_is_selected_and_the_destination_reported() {
    let options = UdpOptions { packet_info: true, ..UdpOptions::default() };
    let server = bind_with("0.0.0.0:0", &options);
    let client = bind(V4);
    let second: IpAddr = [127, 0, 0, 2].into();
    let mut to = server.local_addr();
    to.set_ip(second);
    send(&client, flow(to), &[b"ping"]);
    let message = &receive(&server, 1)[0];
    assert_eq!(message.to, Some(second));

    let answer = Flow { from: message.to, ..flow(message.from) };
    send(&server, answer, &[b"pong", b"pong"]);
    assert_eq!(receive(&client, 2)[0].from, to, "the answer comes from where the question went");

    let server = bind_with("[::]:0", &options);
    let client = bind(V6);
    let mut to = server.local_addr();
    to.set_ip(client.local_addr().ip());
    send(&client, flow(to), &[b"ping"]);
    let message = &receive(&server, 1)[0];
    assert_eq!(message.to, Some(to.ip()));
    send(&server, Flow { from: message.to, ..flow(message.from) }, &[b"pong"]);
    assert_eq!(receive(&client, 1)[0].from, to);
}

#[test]
fn an_address_that_is_not_ours_fails_its_datagrams() {
    let receiver = bind(V4);
    let from = Some([192, 0, 2, 1].into());
    let (_, failed) =
        try_send(&bind("0.0.0.0:0"), Flow { from, ..flow(receiver.local_addr()) }, &[b"a", b"b"]);
    assert_eq!(failed.len(), 2, "{failed:?}");
}

#[test]
fn payload_goes_from_receive_to_send_with_a_header_in_front() {
    let (client, server, relay, peer) = (bind(V4), bind(V4), bind(V4), bind(V4));
    send(&client, flow(server.local_addr()), &[b"hdr1AAAA", b"hdr2BBBB", b"hdr3CC"]);
    wait(&server);
    let mut rx = RxBatch::new(4);
    assert_eq!(rx.recv(&server).unwrap(), 1);
    let (mut tx, mut stats) = (TxBatch::new(), SendStats::default());
    for (start, segment) in rx.message(0).segments() {
        let stripped = Part::Rx { message: 0, start: start + 4, len: segment.len() - 4 };
        let relayed = Flow { socket: SendSocket(1), ..flow(peer.local_addr()) };
        tx.push(relayed, &[stripped], 0).unwrap();
        let header = tx.arena_write(b"<>").unwrap();
        let back = Flow { socket: SendSocket(0), ..flow(client.local_addr()) };
        tx.push(back, &[header, stripped], 0).unwrap();
    }
    tx.flush(&rx, &vec![server, relay], &mut stats, |tag, error| panic!("{tag}: {error:?}"));
    assert!(tx.is_empty());
    assert_eq!(receive(&peer, 3).concat_segments(), [&b"AAAA"[..], b"BBBB", b"CC"]);
    assert_eq!(receive(&client, 3).concat_segments(), [&b"<>AAAA"[..], b"<>BBBB", b"<>CC"]);
}

#[test]
fn both_handles_of_a_socket_send_and_receive() {
    let (one, other) = (bind(V4), bind(V4));
    let handle = one.try_clone().unwrap();
    assert_eq!(handle.local_addr(), one.local_addr());
    send(&handle, flow(other.local_addr()), &[b"out"]);
    assert_eq!(receive(&other, 1)[0].from, one.local_addr());
    send(&other, flow(one.local_addr()), &[b"in"]);
    assert_eq!(sizes(&receive(&handle, 1)), [[2]]);
}

#[test]
fn datagrams_lost_to_a_full_buffer_are_counted() {
    let small = UdpOptions { recv_buffer: 4096, gro: false, ..UdpOptions::default() };
    let (sender, receiver) = (bind(V4), bind_with(V4, &small));
    for _ in 0..100 {
        send(&sender, flow(receiver.local_addr()), &[&[7; 500]]);
    }
    let mut rx = RxBatch::new(64);
    let mut arrived = 0;
    loop {
        match rx.recv(&receiver).unwrap() {
            0 => break,
            count => arrived += count,
        }
    }
    assert!(arrived < 100, "the buffer took all");
    assert_eq!(receiver.dropped().unwrap() as usize, 100 - arrived);
    // Losses are reported with the next datagram that fits.
    send(&sender, flow(receiver.local_addr()), &[b"after"]);
    assert_eq!(receive(&receiver, 1)[0].kernel_drops as usize, 100 - arrived);
}

#[test]
fn a_batch_takes_what_it_holds_and_leaves_the_rest() {
    let (sender, receiver) = (bind(V4), bind(V4));
    for n in 0..5 {
        send(&sender, flow(receiver.local_addr()), &[&[n; 3]]);
    }
    let mut rx = RxBatch::new(2);
    let mut seen = Vec::new();
    for expected in [2, 2, 1, 0] {
        assert_eq!(rx.recv(&receiver).unwrap(), expected);
        assert_eq!(rx.len(), expected);
        seen.extend((0..expected).map(|index| rx.message(index).data[0]));
    }
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    assert_eq!(rx.stats().messages_per_call.counts(), &[1, 2, 0, 0, 0, 0]);
    assert_eq!((rx.stats().datagrams, rx.stats().bytes), (5, 15));
}

#[test]
fn options_are_granted_and_reported() {
    let options = UdpOptions { recv_buffer: 65_536, send_buffer: 32_768, ..UdpOptions::default() };
    let (first, applied) = linux_net::UdpSocket::bind(V4.parse().unwrap(), &options).unwrap();
    assert_eq!((applied.recv_buffer, applied.send_buffer, applied.gro), (65_536, 32_768, true));
    let taken = linux_net::UdpSocket::bind(first.local_addr(), &options).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    let shared = UdpOptions { reuse_port: true, ..options };
    let first = bind_with(V4, &shared);
    assert!(linux_net::UdpSocket::bind(first.local_addr(), &shared).is_ok());
}

#[test]
fn a_port_that_the_kernel_chose_is_shared_with_no_other_program() {
    let shared = UdpOptions { reuse_port: true, gro: false, ..UdpOptions::default() };
    // The kernel selects from 28,000 ports. Random ports would all differ in one of 6,000 runs.
    let sockets: Vec<_> = (0..700).map(|_| bind_with(V4, &shared)).collect();
    let ports: HashSet<_> = sockets.iter().map(|socket| socket.local_addr().port()).collect();
    assert_eq!(ports.len(), sockets.len());
}

trait ConcatSegments {
    fn concat_segments(&self) -> Vec<Vec<u8>>;
}

impl ConcatSegments for Vec<support::Message> {
    fn concat_segments(&self) -> Vec<Vec<u8>> {
        self.iter().flat_map(|message| message.segments.clone()).collect()
    }
}
