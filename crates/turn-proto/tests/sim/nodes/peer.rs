//! Peers.

use std::net::SocketAddr;
use std::time::Duration;

use netsim::{Body, Outbox, Packet, Rng};
use turn_types::{Instant, Now};

use super::payload::{is_whole, whole_payload};

/// Relayed addresses that a peer remembers.
const RELAYS_MAX: usize = 64;

/// A peer: echoes, sometimes from another port; its port 9 is closed.
pub struct PeerNode {
    pub me: SocketAddr,
    rng: Rng,
    clean: bool,
    /// Known relayed addresses.
    relays: Vec<SocketAddr>,
    pub next: Option<Instant>,
    pub received: u32,
    pub violation: Option<String>,
}

impl PeerNode {
    pub const CLOSED_PORT: u16 = 9;

    pub fn new(me: SocketAddr, rng: Rng, clean: bool) -> Self {
        let next = Some(Instant::ZERO + Duration::from_secs(7));
        Self { me, rng, clean, relays: Vec::new(), next, received: 0, violation: None }
    }

    pub fn receive(&mut self, packet: Packet, out: &mut Outbox) {
        if packet.dst.port() == Self::CLOSED_PORT {
            packet.port_unreachable().into_iter().for_each(|error| out.send(error));
            return;
        }
        let Body::Udp(payload) = packet.body else { return };
        self.received += 1;
        if self.clean && !is_whole(&payload) {
            self.violation = Some(format!("a peer got a broken payload from {}", packet.src));
        }
        if !self.relays.contains(&packet.src) && self.relays.len() < RELAYS_MAX {
            self.relays.push(packet.src);
        }
        let mut from = packet.dst;
        if self.rng.below(5) == 0 {
            from.set_port(from.port() + 1);
        }
        out.send(Packet::udp(from, packet.src, payload));
    }

    /// Sends without a request, also to relays that may have closed.
    pub fn wake(&mut self, now: Now, out: &mut Outbox) {
        self.next = Some(
            now.instant + Duration::from_secs(5) + self.rng.duration_below(Duration::from_secs(40)),
        );
        if !self.relays.is_empty() {
            let to = *self.rng.pick(&self.relays);
            out.send(Packet::udp(self.me, to, whole_payload(&mut self.rng)));
        }
    }
}
