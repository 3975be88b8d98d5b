//! Attacker, with the traffic that the attacker observes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use netsim::{Body, Outbox, Packet, Rng};
use turn_types::{Instant, Now};

use crate::sim::setup::listeners;

/// Traffic of the server as seen by an eavesdropper.
#[derive(Debug, Default)]
pub struct Tap {
    packets: VecDeque<Packet>,
    relays: VecDeque<SocketAddr>,
}

const TAP_MAX: usize = 64;

impl Tap {
    pub fn see(&mut self, packet: &Packet) {
        if self.packets.len() == TAP_MAX {
            self.packets.pop_front();
        }
        self.packets.push_back(packet.clone());
        let listener = listeners().iter().any(|listener| listener.0 == packet.dst);
        if !listener && !self.relays.contains(&packet.dst) {
            if self.relays.len() == TAP_MAX {
                self.relays.pop_front();
            }
            self.relays.push_back(packet.dst);
        }
    }
}

pub type SharedTap = Rc<RefCell<Tap>>;

/// An attacker: invents, replays and mutates packets, and may forge their source.
pub struct HostileNode {
    pub me: Vec<SocketAddr>,
    rng: Rng,
    tap: SharedTap,
    forges: bool,
    pause: Duration,
    pub next: Option<Instant>,
}

impl HostileNode {
    pub fn new(me: Vec<SocketAddr>, rng: Rng, tap: SharedTap, forges: bool) -> Self {
        let pause = Duration::from_secs(3);
        Self { me, rng, tap, forges, pause, next: Some(Instant::ZERO) }
    }

    pub fn wake(&mut self, now: Now, out: &mut Outbox) {
        self.next =
            Some(now.instant + Duration::from_millis(1) + self.rng.duration_below(self.pause));
        let tap = self.tap.borrow();
        let seen = (!tap.packets.is_empty())
            .then(|| tap.packets[self.rng.index(tap.packets.len())].clone());
        let me = *self.rng.pick(&self.me);
        let own_family = |to: &SocketAddr| to.is_ipv4() == me.is_ipv4();
        let listener = listeners().map(|listener| listener.0).into_iter().find(own_family);
        let Some(listener) = listener else { return };
        let len = self.rng.index(300);
        let packet = match (self.rng.below(6), seen) {
            (0, Some(seen)) if own_family(&seen.dst) => Packet { src: me, ..seen },
            (1, Some(seen)) if own_family(&seen.dst) => {
                Packet { src: me, ..mutated(&mut self.rng, seen) }
            }
            (2, Some(seen)) if self.forges => mutated(&mut self.rng, seen),
            (3, Some(seen)) if self.forges => seen,
            (4, _) if !tap.relays.is_empty() => {
                let to = tap.relays[self.rng.index(tap.relays.len())];
                if !own_family(&to) {
                    return;
                }
                Packet::udp(me, to, self.rng.bytes(len))
            }
            _ => {
                let mut junk = self.rng.bytes(len);
                if let Some(first) = junk.first_mut() {
                    // Pass the first check more often than one time in four.
                    *first &= *self.rng.pick(&[0xFF, 0x7F, 0x4F, 0x03, 0x01]);
                }
                Packet::udp(me, listener, junk)
            }
        };
        out.send(packet);
    }
}

/// The packet with a few bytes changed, cut, or added.
fn mutated(rng: &mut Rng, mut packet: Packet) -> Packet {
    let Body::Udp(payload) = &mut packet.body else { return packet };
    for _ in 0..=rng.below(4) {
        match rng.below(8) {
            0 => payload.truncate(rng.index(payload.len() + 1)),
            1 => payload.extend(rng.bytes(4)),
            2 if payload.len() >= 4 => {
                let len = (payload.len() as u16).wrapping_sub(20).to_be_bytes();
                payload[2..4].copy_from_slice(&len);
            }
            _ => {
                let at = rng.index(payload.len());
                let bit = 1 << rng.below(8);
                if let Some(byte) = payload.get_mut(at) {
                    *byte ^= bit;
                }
            }
        }
    }
    packet
}
