//! Helpers of all tests: sockets on the loopback, and waiting without sleeping.
#![allow(dead_code, reason = "each test file uses its own part")]
#![expect(clippy::unwrap_used, reason = "a test may fail here as well")]

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use linux_net::{
    Epoll, Events, Flow, Interest, RxBatch, SendError, SendSocket, SendStats, SocketError,
    SocketTable, TxBatch, UdpOptions, UdpSocket,
};
use turn_types::IpMeta;

/// Time limit that exceeds every wait here, so a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const V4: &str = "127.0.0.1:0";
pub(crate) const V6: &str = "[::1]:0";

pub(crate) fn bind(addr: &str) -> UdpSocket {
    bind_with(addr, &UdpOptions::default())
}

pub(crate) fn bind_with(addr: &str, options: &UdpOptions) -> UdpSocket {
    UdpSocket::bind(addr.parse().unwrap(), options).unwrap().0
}

/// Returns the address of a closed port, in the family of `like`.
pub(crate) fn closed_port(like: &str) -> SocketAddr {
    bind(like).local_addr()
}

pub(crate) fn flow(to: SocketAddr) -> Flow {
    Flow { socket: SendSocket(0), to, from: None, meta: IpMeta::DEFAULT }
}

/// Waits until the descriptor is readable or has an error.
pub(crate) fn wait(fd: impl AsFd) {
    let epoll = Epoll::new().unwrap();
    epoll.add(fd, 0, Interest::Read).unwrap();
    let mut events = Events::new(1);
    assert_eq!(epoll.wait(&mut events, Some(PATIENCE)).unwrap(), 1, "nothing came");
}

/// Sends datagrams. The test fails if the kernel accepts fewer.
pub(crate) fn send(sockets: &impl SocketTable, flow: Flow, datagrams: &[&[u8]]) -> SendStats {
    let (stats, failed) = try_send(sockets, flow, datagrams);
    assert_eq!(failed, []);
    stats
}

/// Sends datagrams with tags that count from 0.
pub(crate) fn try_send(
    sockets: &impl SocketTable,
    flow: Flow,
    datagrams: &[&[u8]],
) -> (SendStats, Vec<(u32, SendError)>) {
    let mut batch = TxBatch::new();
    for (tag, datagram) in (0..).zip(datagrams) {
        let part = batch.arena_write(datagram).unwrap();
        batch.push(flow, &[part], tag).unwrap();
    }
    flush(&mut batch, sockets)
}

pub(crate) fn flush(
    batch: &mut TxBatch,
    sockets: &impl SocketTable,
) -> (SendStats, Vec<(u32, SendError)>) {
    let (mut stats, mut failed) = (SendStats::default(), Vec::new());
    let rx = RxBatch::new(1);
    batch.flush(&rx, sockets, &mut stats, |tag, error| failed.push((tag, error)));
    (stats, failed)
}

/// Copy of a received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) from: SocketAddr,
    pub(crate) to: Option<IpAddr>,
    pub(crate) meta: IpMeta,
    pub(crate) segments: Vec<Vec<u8>>,
    pub(crate) kernel_drops: u32,
}

/// Receives `datagrams` datagrams, and checks that no further datagrams arrive.
pub(crate) fn receive(socket: &UdpSocket, datagrams: usize) -> Vec<Message> {
    let mut rx = RxBatch::new(32);
    let mut messages = Vec::new();
    let mut count = 0;
    while count < datagrams {
        wait(socket);
        for index in 0..rx.recv(socket).unwrap() {
            let message = rx.message(index);
            assert!(!message.truncated);
            let segments: Vec<_> = message.segments().map(|(_, data)| data.to_vec()).collect();
            count += segments.len();
            let (from, to, meta) = (message.from, message.to, message.meta);
            messages.push(Message { from, to, meta, segments, kernel_drops: message.kernel_drops });
        }
    }
    assert_eq!(count, datagrams);
    assert_eq!(rx.recv(socket).unwrap(), 0, "more than was sent");
    assert_eq!(rx.stats().datagrams, datagrams as u64);
    messages
}

/// Returns the sizes of all datagrams, message by message.
pub(crate) fn sizes(messages: &[Message]) -> Vec<Vec<usize>> {
    messages.iter().map(|m| m.segments.iter().map(Vec::len).collect()).collect()
}

/// Waits for the error queue and reads it.
pub(crate) fn errors(socket: &UdpSocket) -> Vec<SocketError> {
    wait(socket);
    let mut errors = Vec::new();
    let count = socket.recv_errors(|error| errors.push(error)).unwrap();
    assert_eq!(count, errors.len());
    errors
}
