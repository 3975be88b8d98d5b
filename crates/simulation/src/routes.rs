//! A table of kernel routes: it relays nothing, and delivers datagrams of peers to the ring of
//! their worker.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

use dataplane::io::{RingIo, RouteTable};
use fair_share::Claimant;
use netsim::{Chance, Rng};
use turn_types::{AllocationId, Instant};
use xdp_relay::{
    AllocationCounters, Flow, FlowCookie, FlowCounters, FlowId, KernelPathError, RingDatagram,
};

/// Datagrams in a ring; more go to the sockets.
const RING_MAX: usize = 64;

/// Chance of a datagram to go to the ring: the kernel path punts some, and delivers none without a
/// recent proof.
const TO_RING: Chance = Chance::percent(60);

/// Chance of a datagram in the ring to be damaged.
const DAMAGED: Chance = Chance::percent(4);

/// Chance of a sweep to find a silent flow, whose slot others want.
const SILENT: Chance = Chance::percent(10);

/// Source and destination of a peer's datagrams.
type Ends = (SocketAddr, SocketAddr);

/// State of a ring, shared by the kernel and the worker.
#[derive(Debug)]
pub(crate) struct RingState {
    flows: BTreeMap<Ends, FlowCookie>,
    datagrams: VecDeque<RingDatagram<Vec<u8>>>,
    is_suspended: bool,
    rng: Rng,
}

impl RingState {
    pub(crate) fn is_readable(&self) -> bool {
        !self.datagrams.is_empty()
    }

    /// Takes a peer's datagram. Returns false if it is for the sockets.
    pub(crate) fn deliver(&mut self, peer: SocketAddr, relayed: SocketAddr, bytes: &[u8]) -> bool {
        let Some(cookie) = self.flows.get(&(peer, relayed)) else { return false };
        if self.is_suspended || self.datagrams.len() >= RING_MAX || !self.rng.happens(TO_RING) {
            return false;
        }
        // A wrong checksum, but for one of 65,535.
        let checksum =
            if self.rng.happens(DAMAGED) { 1 + self.rng.below(65_535) as u16 } else { 0 };
        self.datagrams.push_back(RingDatagram::simulated(*cookie, bytes, checksum));
        true
    }
}

/// Ring of one worker.
#[derive(Debug)]
pub struct SimRing(pub(crate) Rc<RefCell<RingState>>);

impl RingIo for SimRing {
    type Entry<'a> = Vec<u8>;

    fn next(&mut self) -> Option<RingDatagram<Vec<u8>>> {
        self.0.borrow_mut().datagrams.pop_front()
    }
}

/// Routes of one worker.
#[derive(Debug)]
pub struct SimRoutes {
    routes: BTreeMap<FlowId, Flow>,
    ring: SimRing,
    ring_flows: BTreeMap<FlowId, (FlowCookie, Ends)>,
    next_cookie: u64,
    rng: Rng,
    refused: Chance,
    /// Flow that the last sweep found silent.
    silent: Option<FlowId>,
}

impl SimRoutes {
    pub(crate) fn new(mut rng: Rng, refused: Chance) -> Self {
        let (flows, datagrams) = (BTreeMap::new(), VecDeque::new());
        let ring = RingState { flows, datagrams, is_suspended: false, rng: rng.fork() };
        Self {
            routes: BTreeMap::new(),
            ring: SimRing(Rc::new(RefCell::new(ring))),
            ring_flows: BTreeMap::new(),
            next_cookie: 1,
            rng,
            refused,
            silent: None,
        }
    }

    pub(crate) fn ring_state(&self) -> Rc<RefCell<RingState>> {
        Rc::clone(&self.ring.0)
    }
}

impl RouteTable for SimRoutes {
    type Ring = SimRing;

    fn ring(&mut self) -> Option<&mut SimRing> {
        Some(&mut self.ring)
    }

    fn claim(&mut self, _: Instant, _: FlowId, _: &Claimant<'_>) -> Result<(), KernelPathError> {
        if self.rng.happens(self.refused) { Err(KernelPathError::Share) } else { Ok(()) }
    }

    fn set(&mut self, _: Instant, id: FlowId, flow: &Flow) -> Result<(), KernelPathError> {
        if self.rng.happens(self.refused) {
            self.routes.remove(&id);
            return Err(KernelPathError::Full);
        }
        self.routes.insert(id, *flow);
        Ok(())
    }

    fn remove(&mut self, id: FlowId) -> FlowCounters {
        self.routes.remove(&id);
        FlowCounters::default()
    }

    fn deliver_to_ring(
        &mut self,
        id: FlowId,
        flow: &Flow,
    ) -> Result<Option<FlowCookie>, KernelPathError> {
        if self.rng.happens(self.refused) {
            return Err(KernelPathError::Full);
        }
        let ends = (flow.peer, flow.relayed);
        if self.ring_flows.get(&id).is_some_and(|(_, before)| *before == ends) {
            return Ok(None);
        }
        self.withdraw_from_ring(id);
        let cookie = FlowCookie(self.next_cookie);
        self.next_cookie += 1;
        self.ring_flows.insert(id, (cookie, ends));
        self.ring.0.borrow_mut().flows.insert(ends, cookie);
        Ok(Some(cookie))
    }

    fn withdraw_from_ring(&mut self, id: FlowId) -> Option<FlowCookie> {
        let (cookie, ends) = self.ring_flows.remove(&id)?;
        self.ring.0.borrow_mut().flows.remove(&ends);
        Some(cookie)
    }

    fn flow_cookie(&self, id: FlowId) -> Option<FlowCookie> {
        self.ring_flows.get(&id).map(|(cookie, _)| *cookie)
    }

    fn prove(&self, _: FlowId, _: u32) {}

    fn renew(&self, _: Instant) {
        self.ring.0.borrow_mut().is_suspended = false;
    }

    fn suspend(&self) {
        self.ring.0.borrow_mut().is_suspended = true;
    }

    fn sweep(&mut self, _: Instant, _: usize, _: impl FnMut(FlowId, FlowCounters)) -> bool {
        if self.rng.happens(SILENT) {
            let mut flows = self.routes.keys().chain(self.ring_flows.keys());
            let flows_max = self.routes.len() + self.ring_flows.len();
            self.silent = flows.nth(self.rng.index(flows_max.max(1))).copied();
        }
        true
    }

    fn pop_silent(&mut self) -> Option<FlowId> {
        self.silent.take()
    }

    fn sweep_allocation(&mut self, _: AllocationId, _: impl FnMut(FlowId, FlowCounters)) {}

    fn of_allocation(&self, _: AllocationId) -> Option<AllocationCounters> {
        None
    }

    fn has_allocation(&self, allocation: AllocationId) -> bool {
        self.routes.keys().any(|id| id.allocation == allocation)
    }

    fn is_by_tc(&self) -> bool {
        true
    }

    fn is_idle(&self) -> bool {
        self.routes.is_empty() && self.ring_flows.is_empty()
    }

    fn flows(&self) -> usize {
        self.routes.len() + self.ring_flows.len()
    }
}
