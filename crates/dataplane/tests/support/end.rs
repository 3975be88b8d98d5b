//! Socket of a client or a peer.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use linux_net::{
    Epoll, Events, Flow, Interest, RxBatch, SendSocket, SendStats, TxBatch, UdpOptions, UdpSocket,
};
use turn_types::IpMeta;

use super::PATIENCE;

/// A received datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddr,
    pub(crate) meta: IpMeta,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct End {
    socket: UdpSocket,
    epoll: Epoll,
    rx: RxBatch,
    tx: TxBatch,
    stats: SendStats,
    waiting: VecDeque<Datagram>,
}

impl End {
    /// Binds a socket to a free port of the address. Datagrams are received one by one, as sent.
    pub(crate) fn at(ip: IpAddr) -> Self {
        let options = UdpOptions { gro: false, error_queue: false, ..UdpOptions::default() };
        let (socket, _) = UdpSocket::bind(SocketAddr::new(ip, 0), &options).unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(&socket, 0, Interest::Read).unwrap();
        Self {
            socket,
            epoll,
            rx: RxBatch::new(32),
            tx: TxBatch::new(),
            stats: SendStats::default(),
            waiting: VecDeque::new(),
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    pub(crate) fn send(&mut self, to: SocketAddr, bytes: &[u8]) {
        self.send_burst(to, &[bytes], IpMeta::DEFAULT);
    }

    /// Sends datagrams in one call. Datagrams of equal sizes are sent as one message, also over
    /// loopback.
    pub(crate) fn send_burst(&mut self, to: SocketAddr, datagrams: &[&[u8]], meta: IpMeta) {
        for bytes in datagrams {
            let part = self.tx.arena_write(bytes).unwrap();
            let flow = Flow { socket: SendSocket(0), to, from: None, meta };
            self.tx.push(flow, &[part], 0).unwrap();
        }
        let Self { tx, rx, socket, stats, .. } = self;
        tx.flush(rx, socket, stats, |_, error| panic!("cannot send to {to}: {error:?}"));
    }

    /// Receives the next datagram. Panics if no datagram arrives.
    pub(crate) fn receive(&mut self) -> Datagram {
        while self.waiting.is_empty() {
            let ready = self.epoll.wait(&mut Events::new(1), Some(PATIENCE)).unwrap();
            assert!(ready > 0, "nothing came to {} within {PATIENCE:?}", self.addr());
            self.take();
        }
        self.waiting.pop_front().unwrap()
    }

    pub(crate) fn receive_many(&mut self, count: usize) -> Vec<Datagram> {
        (0..count).map(|_| self.receive()).collect()
    }

    /// Returns true if nothing was received so far.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.take();
        self.waiting.is_empty()
    }

    fn take(&mut self) {
        let messages = self.rx.recv(&self.socket).unwrap();
        for index in 0..messages {
            let message = self.rx.message(index);
            assert!(!message.truncated);
            for (_, bytes) in message.segments() {
                let (from, meta, bytes) = (message.from, message.meta, bytes.to_vec());
                self.waiting.push_back(Datagram { from, meta, bytes });
            }
        }
    }
}
