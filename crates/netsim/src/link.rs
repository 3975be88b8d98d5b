//! A link between two nodes, with loss, delay, duplication and reordering.

use std::time::Duration;

use crate::packet::{Body, Packet};
use crate::rng::{Chance, Rng};

/// Behaviour of a link, the same in both directions.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// Time from one end to the other.
    pub delay: Duration,
    /// Random time on top, below this. Packets may overtake each other by it.
    pub jitter: Duration,
    /// A packet (a fragment, when it is larger than the MTU) is lost.
    pub loss: Chance,
    /// A packet arrives twice.
    pub duplication: Chance,
    /// A packet is held back by up to [`LinkConfig::REORDER_HOLD`], so that later ones overtake it.
    pub reordering: Chance,
    /// One bit of a datagram's payload is flipped (a checksum that did not notice).
    pub corruption: Chance,
    /// Largest IP packet in bytes. Larger ones travel in fragments, or, with "do not fragment" set,
    /// are dropped and reported to the sender.
    pub mtu: usize,
    /// The link carries packets.
    pub up: bool,
}

impl Default for LinkConfig {
    /// 10 ms, no faults, Ethernet's MTU.
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(10),
            jitter: Duration::ZERO,
            loss: Chance::NEVER,
            duplication: Chance::NEVER,
            reordering: Chance::NEVER,
            corruption: Chance::NEVER,
            mtu: 1500,
            up: true,
        }
    }
}

impl LinkConfig {
    /// Longest extra delay of a reordered packet.
    pub const REORDER_HOLD: Duration = Duration::from_millis(200);

    /// With this delay.
    #[must_use]
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// With this jitter.
    #[must_use]
    pub const fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// With this loss.
    #[must_use]
    pub const fn loss(mut self, loss: Chance) -> Self {
        self.loss = loss;
        self
    }

    /// With this duplication.
    #[must_use]
    pub const fn duplication(mut self, duplication: Chance) -> Self {
        self.duplication = duplication;
        self
    }

    /// With this reordering.
    #[must_use]
    pub const fn reordering(mut self, reordering: Chance) -> Self {
        self.reordering = reordering;
        self
    }

    /// With this corruption.
    #[must_use]
    pub const fn corruption(mut self, corruption: Chance) -> Self {
        self.corruption = corruption;
        self
    }

    /// With this MTU.
    #[must_use]
    pub const fn mtu(mut self, mtu: usize) -> Self {
        self.mtu = mtu;
        self
    }

    /// Decides the fate of one packet.
    pub(crate) fn carry(&self, rng: &mut Rng, mut packet: Packet) -> Fate {
        if !self.up {
            return Fate::Lost;
        }
        let fragments = packet.wire_len().div_ceil(self.mtu.max(1));
        if fragments > 1 && packet.dont_fragment {
            let mtu = u32::try_from(self.mtu).unwrap_or(u32::MAX);
            return packet.too_big(mtu).map_or(Fate::Lost, Fate::Bounced);
        }
        if (0..fragments).any(|_| rng.happens(self.loss)) {
            return Fate::Lost;
        }
        if rng.happens(self.corruption) {
            flip_a_bit(rng, &mut packet);
        }
        let first = self.transit(rng);
        let second = rng.happens(self.duplication).then(|| self.transit(rng));
        Fate::Arrives { packet, first, second }
    }

    fn transit(&self, rng: &mut Rng) -> Duration {
        let mut transit = self.delay + rng.duration_below(self.jitter);
        if rng.happens(self.reordering) {
            transit += rng.duration_below(Self::REORDER_HOLD);
        }
        transit
    }
}

/// Fate of a packet on a link.
pub(crate) enum Fate {
    /// Lost.
    Lost,
    /// Too long for the MTU; the ICMP error for the sender.
    Bounced(Packet),
    /// It arrives after `first`, and once more after `second`.
    Arrives { packet: Packet, first: Duration, second: Option<Duration> },
}

fn flip_a_bit(rng: &mut Rng, packet: &mut Packet) {
    match &mut packet.body {
        Body::Udp(payload) => {
            let at = rng.index(payload.len());
            let bit = 1 << rng.below(8);
            if let Some(byte) = payload.get_mut(at) {
                *byte ^= bit;
            }
        }
        // ICMP's checksum covers all of it and is always there.
        Body::Icmp(_) => {}
    }
}
