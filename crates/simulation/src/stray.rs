//! A host without credentials: sends rubbish over UDP, and opens TCP connections that come to no
//! allocation.

use std::net::SocketAddr;
use std::time::Duration;

use netsim::{Outbox, Packet, Rng};
use turn_types::{Instant, Now};

use crate::tcp::{TcpEnd, TcpNet};

/// Connections that it keeps open.
const OPEN_MAX: usize = 12;

/// A Binding request without attributes.
const BINDING: [u8; 20] =
    [0, 1, 0, 0, 0x21, 0x12, 0xA4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

/// First bytes of its connections: HTTP, TLS that goes no further, rubbish, a message that does not
/// end, one that is too long, nothing, and a whole one.
const BEGINNINGS: [&[u8]; 8] = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    &[22, 3, 1, 0, 200, 1, 0, 0, 196],
    &[22, 3, 1, 0, 4, 9, 9, 9, 9],
    b"rubbish that is no STUN at all",
    &[0, 1, 0, 40, 0x21, 0x12, 0xA4, 0x42],
    &[0, 1, 0xFF, 0xFC, 0x21, 0x12, 0xA4, 0x42],
    &[],
    &BINDING,
];

/// A host without credentials.
#[derive(Debug)]
pub struct StrayHost {
    me: SocketAddr,
    targets: Vec<SocketAddr>,
    server: SocketAddr,
    proxy: SocketAddr,
    tcp: TcpNet,
    rng: Rng,
    open: Vec<(TcpEnd, bool)>,
    acts_at: Instant,
    until: Instant,
}

impl StrayHost {
    /// A host that sends to these UDP addresses, and connects to the server, also through a load
    /// balancer.
    #[must_use]
    pub fn new(
        me: SocketAddr,
        (server, proxy, targets): (SocketAddr, SocketAddr, Vec<SocketAddr>),
        tcp: TcpNet,
        rng: Rng,
        until: Instant,
    ) -> Self {
        let (open, acts_at) = (Vec::new(), Instant::ZERO);
        Self { me, targets, server, proxy, tcp, rng, open, acts_at, until }
    }

    /// Acts.
    pub fn wake(&mut self, now: Now, out: &mut Outbox) {
        let at = now.instant;
        self.tcp.advance(at);
        self.acts_at =
            at + Duration::from_millis(200) + self.rng.duration_below(Duration::from_secs(8));
        if at >= self.until {
            self.open.clear();
            return;
        }
        let to = *self.rng.pick(&self.targets);
        let len = self.rng.below(300) as usize;
        let mut bytes = self.rng.bytes(len);
        match self.rng.below(4) {
            0 => bytes = BINDING.to_vec(),
            1 if len > 8 => bytes[..8].copy_from_slice(&[0, 3, 0, 8, 0x21, 0x12, 0xA4, 0x42]),
            2 if len > 13 => bytes[..3].copy_from_slice(&[22, 0xFE, 0xFD]),
            _ => {}
        }
        out.send(Packet::udp(self.me, to, bytes));
        self.use_connections();
    }

    fn use_connections(&mut self) {
        for (end, has_begun) in &mut self.open {
            if !*has_begun && end.is_writable() {
                let beginning: &[u8] = BEGINNINGS[self.rng.index(BEGINNINGS.len())];
                let _ = end.write(beginning);
                *has_begun = true;
            }
        }
        if self.open.len() < OPEN_MAX {
            // Some through the load balancer, which sends no header.
            let ip = if self.rng.below(8) == 0 { self.proxy.ip() } else { self.me.ip() };
            let from = SocketAddr::new(ip, self.tcp.next_port());
            self.open.push((self.tcp.connect(from, self.server), false));
        } else if self.rng.below(6) == 0 {
            let index = self.rng.index(self.open.len());
            let (end, _) = self.open.swap_remove(index);
            if self.rng.below(2) == 0 {
                end.reset();
            }
        }
    }

    /// Time at which it acts next.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        (self.acts_at <= self.until + Duration::from_secs(10)).then_some(self.acts_at)
    }
}
