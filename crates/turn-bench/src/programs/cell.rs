//! One row: a kind of frame, handled by the program of a hook again and again.

use std::time::Duration;

use anyhow::{Result, ensure};
use linux_net::Clock;
use turn_types::{AllocationId, Direction, WorkerId};
use xdp_relay::device::Hook;
use xdp_relay::limits::FLOWS;
use xdp_relay::{
    EgressContext, Flow, FlowCounters, FlowId, KernelPath, Options, Proof, Routes, Verdict,
};

use super::frame;
use super::place::Place;
use super::ring::{Families, Ring};

const WORKER: WorkerId = WorkerId(0);

/// A bandwidth that is never reached: only the way through the program is to be that of a flow
/// with a limit.
const NEVER_REACHED: u64 = 1 << 40;

/// Programs with a ring of flows.
#[derive(Debug)]
pub(super) struct World {
    pub(super) ring: Ring,
    path: KernelPath,
    routes: Routes,
    /// Counters of passed packets after the proofs.
    proven: Vec<(&'static str, u64)>,
}

impl World {
    /// Loads the programs and writes the routes.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn new(
        place: &Place,
        families: Families,
        flows: u32,
        limited: bool,
    ) -> Result<Self> {
        // Each direction is proven once, and each packet is asked for that.
        let proof = Proof { holds: Duration::MAX, renew_every: Duration::MAX };
        let options = Options { flows: flows.max(*FLOWS.start()), look_up_from: 0, proof };
        let path = place.path(options)?;
        let mut routes = path.routes(WORKER)?;
        let bytes_per_second = if limited { NEVER_REACHED } else { 0 };
        let ring = Ring { families, flows, bytes_per_second };
        for number in scattered(flows) {
            // Each is the channel of an allocation of its own, as with most clients.
            let allocation = AllocationId::new(WORKER, u64::from(number));
            let id = FlowId { allocation, channel: ring.flow(number).channel };
            routes.set(Clock::instant(), id, &ring.flow(number))?;
            routes.renew(Clock::instant());
            prove(&path, &ring.flow(number), place)?;
        }
        let proven = path.passed();
        Ok(Self { ring, path, routes, proven })
    }
}

/// Proves both directions of a flow: a packet of each passes to the stack, and leaves it.
fn prove(path: &KernelPath, flow: &Flow, place: &Place) -> Result<()> {
    const HOPS: u8 = 64;
    let bare = b"data".to_vec();
    let framed = frame::nested(flow.channel, 1, &bare);
    for ((from, to, payload), (source, destination, relayed), by) in [
        ((flow.client, flow.server, &framed), (flow.relayed, flow.peer, &bare), place.index(1)?),
        ((flow.peer, flow.relayed, &bare), (flow.server, flow.client, &framed), place.index(0)?),
    ] {
        let ran = path.run(Hook::Xdp, &frame::datagram(from, to, HOPS, payload), 1)?;
        ensure!(ran.verdict == Verdict::Pass, "a packet without a proof: {:?}", ran.verdict);
        let leaves = frame::datagram(source, destination, HOPS - 1, relayed);
        path.run_tap(&leaves, EgressContext { by, ..EgressContext::default() })?;
    }
    Ok(())
}

/// All numbers below `flows`, such that neighbours in the ring are none in memory: packets of a
/// server come in no order of its tables.
fn scattered(flows: u32) -> impl Iterator<Item = u32> {
    // A prime that divides no number of flows that there can be.
    const STEP: u64 = 100_003;
    (0..flows).map(move |at| (u64::from(at) * STEP % u64::from(flows)) as u32)
}

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of a flow, each time of the next in the ring.
    Relayed(Direction),
    /// Of no flow: the program passes it.
    Passed(Unrelated),
}

/// A frame of no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unrelated {
    /// Not IP: the least work of a program, and the cost of the test run itself.
    Arp,
    /// The common traffic of a host with other services.
    Tcp,
    /// A datagram to a port that is not the server's.
    OtherPort,
    /// A datagram of a client's port that is no ChannelData, such as a Binding request.
    Stun,
    /// ChannelData of a channel that the kernel does not relay.
    OtherChannel,
}

impl Kind {
    pub(super) const ALL: [Self; 7] = [
        Self::Relayed(Direction::ToPeer),
        Self::Relayed(Direction::ToClient),
        Self::Passed(Unrelated::Arp),
        Self::Passed(Unrelated::Tcp),
        Self::Passed(Unrelated::OtherPort),
        Self::Passed(Unrelated::Stun),
        Self::Passed(Unrelated::OtherChannel),
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Relayed(Direction::ToPeer) => "relayed to the peer",
            Self::Relayed(Direction::ToClient) => "relayed to the client",
            Self::Passed(Unrelated::Arp) => "passed: not IP",
            Self::Passed(Unrelated::Tcp) => "passed: TCP",
            Self::Passed(Unrelated::OtherPort) => "passed: UDP to a port that is not ours",
            Self::Passed(Unrelated::Stun) => "passed: STUN to the server's port",
            Self::Passed(Unrelated::OtherChannel) => "passed: ChannelData without a route",
        }
    }
}

impl Unrelated {
    fn frame(self, ring: &Ring) -> Vec<u8> {
        const HOPS: u8 = 64;
        // 20 bytes of a Binding request; a channel that no flow of a ring has.
        let binding = [&[0, 1, 0, 0, 0x21, 0x12, 0xA4, 0x42][..], &[7; 12]].concat();
        let channel = frame::nested(0x4FFF, 1, &binding);
        let (from, to) = (ring.x(0), ring.y(0));
        let mut other = to;
        other.set_port(443);
        match self {
            Self::Arp => frame::as_arp(frame::datagram(from, to, HOPS, &binding)),
            Self::Tcp => frame::as_tcp(frame::datagram(from, other, HOPS, &binding)),
            Self::OtherPort => frame::datagram(from, other, HOPS, &binding),
            Self::Stun => frame::datagram(from, to, HOPS, &binding),
            Self::OtherChannel => frame::datagram(from, to, HOPS, &channel),
        }
    }
}

/// Repetitions of one frame in a test run.
pub(super) const fn times(hook: Hook, kind: Kind) -> u32 {
    match (kind, hook) {
        // Every time costs a hop, of 255; and one time with a frame of 1 KiB is like another.
        (Kind::Passed(_) | Kind::Relayed(Direction::ToPeer), _) => 200,
        // A test run leaves room for headers in front: of XDP 256 bytes, of which 40 are the
        // kernel's. Each time takes 4, and 24 the first of mixed families.
        (Kind::Relayed(Direction::ToClient), Hook::Xdp | Hook::XdpGeneric) => 48,
        // Of tc 64. With less the kernel makes room by copying, as it hardly ever has to for
        // packets of a card.
        (Kind::Relayed(Direction::ToClient), Hook::Tc) => 10,
    }
}

/// A kind of frame in a world, and how far it has come round the ring.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) world: usize,
    pub(super) hook: Hook,
    pub(super) kind: Kind,
    /// The frame of each test run, and its expected bytes behind the IP header: once round the
    /// ring.
    trips: Vec<(Vec<u8>, Vec<u8>)>,
    next: usize,
    /// A value of each round.
    pub(super) rounds: Vec<f64>,
}

impl Cell {
    /// `number`: the world of this ring.
    pub(super) fn new(number: usize, ring: &Ring, hook: Hook, kind: Kind) -> Self {
        let trips = match kind {
            Kind::Relayed(direction) => {
                let times = times(hook, kind);
                let starts = (0..ring.flows).step_by(times as usize);
                starts.map(|from| ring.trip(direction, from, times)).collect()
            }
            Kind::Passed(unrelated) => {
                let frame = unrelated.frame(ring);
                let behind = frame::behind_ip(&frame).to_vec();
                vec![(frame, behind)]
            }
        };
        Self { world: number, hook, kind, trips, next: 0, rounds: Vec::new() }
    }

    /// So many test runs: nanoseconds per packet of each, the test's own loop included.
    ///
    /// # Errors
    /// A program with a wrong result.
    pub(super) fn run(&mut self, world: &mut World, runs: u32) -> Result<Vec<f64>> {
        // All runs take far less than the lease lasts.
        world.routes.renew(Clock::instant());
        world.routes.sweep(Clock::instant(), usize::MAX, |_, _| {});
        // Once round without counting: then the caches hold the traces of one packet of every other
        // flow.
        for _ in 0..self.trips.len() {
            self.run_once(world)?;
        }
        let values = (0..runs).map(|_| self.run_once(world)).collect::<Result<Vec<f64>>>()?;
        let mut carried = FlowCounters::default();
        world.routes.sweep(Clock::instant(), usize::MAX, |_, flow| {
            carried.to_peer_packets += flow.to_peer_packets;
            carried.to_client_packets += flow.to_client_packets;
        });
        let runs = self.trips.len() as u64 + u64::from(runs);
        let all = runs * u64::from(times(self.hook, self.kind));
        let wanted = match self.kind {
            Kind::Relayed(Direction::ToPeer) => (all, 0),
            Kind::Relayed(Direction::ToClient) => (0, all),
            Kind::Passed(_) => (0, 0),
        };
        let counted = (carried.to_peer_packets, carried.to_client_packets);
        ensure!(
            counted == wanted,
            "{} by {}: relayed {counted:?} packets to peers and to clients instead of {wanted:?}; \
             left to user space: {:?}",
            self.kind.name(),
            self.hook,
            world.path.passed()
        );
        Ok(values)
    }

    fn run_once(&mut self, world: &World) -> Result<f64> {
        let (frame, becomes) = &self.trips[self.next];
        self.next = (self.next + 1) % self.trips.len();
        let ran = world.path.run(self.hook, frame, times(self.hook, self.kind))?;
        let verdict = match self.kind {
            Kind::Relayed(_) => Verdict::Redirect,
            Kind::Passed(_) => Verdict::Pass,
        };
        ensure!(
            ran.verdict == verdict && frame::behind_ip(&ran.frame) == becomes,
            "{} by {}: it came out as {:?}, {} bytes; left to user space: {:?}",
            self.kind.name(),
            self.hook,
            ran.verdict,
            ran.frame.len(),
            world.path.passed()
        );
        Ok(ran.each.as_nanos() as f64)
    }
}

impl World {
    /// Checks that no packet of a known route was left to user space.
    ///
    /// # Errors
    /// Some were.
    pub(super) fn left_nothing(&self) -> Result<()> {
        let passed = self.path.passed().into_iter();
        let left: Vec<_> = passed.filter(|counter| !self.proven.contains(counter)).collect();
        ensure!(left.is_empty(), "packets of known routes were left to user space: {left:?}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_has_its_place() {
        for flows in [2, 1000, 16_384] {
            let mut all: Vec<_> = scattered(flows).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..flows));
        }
    }
}
