//! Receiving and sending do not allocate after warm-up.

mod support;

use lab_net::allocations::{Counting, on_this_thread};
use linux_net::{Epoll, Events, Flow, Interest, Part, RxBatch, SendSocket, SendStats, TxBatch};
use support::{V4, bind, flow};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_relayed_packet_costs_no_allocation() {
    let sockets = vec![bind(V4), bind(V4)];
    let client = bind(V4);
    let peer = bind(V4);
    let epoll = Epoll::new().unwrap();
    epoll.add(&sockets[0], 0, Interest::Read).unwrap();
    let mut events = Events::new(8);
    let (mut rx, mut tx) = (RxBatch::new(32), TxBatch::new());
    let (mut from_client, mut stats) = (TxBatch::new(), SendStats::default());
    let mut failed = 0;

    let mut round = |rx: &mut RxBatch, tx: &mut TxBatch| {
        for n in 0..10 {
            let part = from_client.arena_write(&[n; 200]).unwrap();
            from_client.push(flow(sockets[0].local_addr()), &[part], 0).unwrap();
        }
        from_client.flush(rx, &client, &mut stats, |_, _| failed += 1);
        epoll.wait(&mut events, None).unwrap();
        for message in 0..rx.recv(&sockets[0]).unwrap() {
            for (start, segment) in rx.message(message).segments() {
                let payload = Part::Rx { message, start: start + 4, len: segment.len() - 4 };
                let header = tx.arena_write(&[0; 4]).unwrap();
                let flow = Flow { socket: SendSocket(1), ..flow(peer.local_addr()) };
                tx.push(flow, &[header, payload], 0).unwrap();
            }
        }
        tx.flush(rx, &sockets, &mut stats, |_, _| failed += 1);
        rx.recv(&peer).unwrap();
    };

    round(&mut rx, &mut tx);
    let before = on_this_thread();
    assert!(before > 0, "the counter counts");
    for _ in 0..100 {
        round(&mut rx, &mut tx);
    }
    assert_eq!(on_this_thread() - before, 0);
    assert_eq!((failed, stats.datagrams), (0, 101 * 20));
}
