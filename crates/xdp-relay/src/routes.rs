//! Routes of a worker in the kernel. Only that worker writes them.

mod claims;
mod counters;
pub(crate) mod flow;
pub(crate) mod ring;

use std::collections::{BTreeMap, HashMap, hash_map};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use aya::maps::{self, Map, MapData, MapError};
use fair_share::Share;
use linux_net::Clock;
use turn_types::{AllocationId, Instant, WorkerId};

use crate::bpf::entries::{Entries, Pair};
use crate::bpf::layout::{PORT_FILTER_WORDS, RouteKey, WORKERS_MAX, bucket, cell};
use crate::bpf::object::duplicate;
use crate::bpf::shared::Shared;
use crate::bpf::shares::Shares;
use crate::bpf::slots::Slots;
use crate::error::KernelPathError;
use crate::limits::{LEASE, SILENT_AFTER};

pub use self::counters::FlowCounters;
use self::flow::{Directions, Limit, RouteSlots};
pub use self::flow::{Flow, FlowCookie};
pub use self::ring::{Ring, RingDatagram, RingEntry};

/// Identifier of a flow: a bound channel of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId {
    /// Allocation that the channel belongs to.
    pub allocation: AllocationId,
    /// Channel number.
    pub channel: u16,
}

/// Write access to the map of keys. The value of a key is the index and the generation of an entry.
pub(crate) type RouteMap = maps::HashMap<MapData, RouteKey, u64>;

pub(crate) fn writer(routes: &MapData) -> Result<RouteMap, KernelPathError> {
    Map::HashMap(duplicate(routes)?).try_into().map_err(KernelPathError::of)
}

/// Kernel traffic of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationCounters {
    /// Number of channels that the kernel relays.
    pub flows: u32,
    /// Traffic of these channels since each was installed.
    pub total: FlowCounters,
    /// Time of the last packet. `None` before the first packet.
    pub last_seen: Option<Instant>,
}

/// State of the kernel path that all workers share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) entries: Entries,
    pub(crate) cells: Shared,
    pub(crate) buckets: Shared,
    pub(crate) port_filter: Shared,
    pub(crate) leases: Shared,
    /// Number of cells of a flow: one for each processor.
    pub(crate) processors: u32,
    /// True if a program is attached at tc, where packets can arrive merged.
    pub(crate) by_tc: AtomicBool,
    /// True if the routes are preserved on drop, for a path that continues without this process.
    pub(crate) left: AtomicBool,
    pub(crate) flows: Slots,
    pub(crate) limits: Slots,
    /// Slots in use by each client.
    pub(crate) shares: Shares,
}

impl Common {
    /// Returns the sums of all counts of a flow slot, and the time of the last packet.
    fn counted(&self, flow: u32) -> (FlowCounters, Instant) {
        let (mut sum, mut seen) = (FlowCounters::default(), 0);
        let start = flow as usize * self.processors as usize * cell::WORDS;
        let words = &self.cells.words()[start..][..self.processors as usize * cell::WORDS];
        for cell in words.chunks_exact(cell::WORDS) {
            let word = |index: usize| cell[index].load(Relaxed);
            sum.add(&FlowCounters {
                to_peer_packets: word(cell::TO_PEER_PACKETS),
                to_peer_bytes: word(cell::TO_PEER_BYTES),
                to_client_packets: word(cell::TO_CLIENT_PACKETS),
                to_client_bytes: word(cell::TO_CLIENT_BYTES),
                to_peer_over: word(cell::TO_PEER_OVER),
                to_client_over: word(cell::TO_CLIENT_OVER),
            });
            seen = seen.max(word(cell::SEEN));
        }
        (sum, Instant::from_nanos(seen))
    }

    /// Extends the lease of a worker until a time.
    pub(crate) fn lease(&self, worker: u8, until: Instant) {
        self.leases.words()[usize::from(worker)].store(until.as_nanos(), Relaxed);
    }

    fn bucket(&self, place: u32) -> &[AtomicU64] {
        &self.buckets.words()[place as usize * bucket::WORDS..][..bucket::WORDS]
    }

    /// Resets a bucket.
    pub(crate) fn empty(&self, place: u32) {
        self.bucket(place).iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Sets the rate of a bucket.
    fn limit(&self, place: u32, bytes_per_second: u64) {
        let Limit { cost, window } = Limit::of(bytes_per_second);
        self.bucket(place)[bucket::COST].store(cost, Relaxed);
        self.bucket(place)[bucket::WINDOW].store(window, Relaxed);
    }

    /// Opens the ports of a flow in the programs' port filter. Ports are never closed again. An
    /// open port costs one look-up per packet.
    pub(crate) fn open_ports(&self, flow: &Flow) {
        for (bitmap, at) in [(0, flow.server), (PORT_FILTER_WORDS, flow.relayed)] {
            let port = usize::from(at.port());
            // The programs read the bitmap by bytes, in the order of this machine, which is
            // little-endian.
            self.port_filter.words()[bitmap + port / 64].fetch_or(1 << (port % 64), Relaxed);
        }
    }
}

/// Flow that the kernel relays.
#[derive(Debug)]
struct InstalledFlow {
    pair: Pair,
    routes: Directions,
    place: RouteSlots,
    /// Counts of the slot at installation.
    at_first: FlowCounters,
    /// Counts at the last report.
    before: FlowCounters,
    /// Time of installation.
    since: Instant,
}

impl InstalledFlow {
    /// Reports the traffic since the last report, if there was any. Returns the time of the last
    /// packet, or the time of the installation if that is later.
    fn report(
        &mut self,
        common: &Common,
        id: FlowId,
        report: &mut impl FnMut(FlowId, FlowCounters),
    ) -> Instant {
        let (total, seen) = common.counted(self.place.flow);
        let carried = total.less(&self.before);
        if !carried.is_zero() {
            self.before = total;
            report(id, carried);
        }
        seen.max(self.since)
    }
}

/// Route of a flow whose datagrams from the peer are delivered to the ring.
#[derive(Debug)]
struct RingRoute {
    key: RouteKey,
    pair: Pair,
    /// Slot of the flow's counters. Contains the time of the last punt.
    place: u32,
    flow_cookie: FlowCookie,
    /// Time of installation.
    since: Instant,
}

/// Bucket of an allocation.
#[derive(Debug)]
struct AllocationBucket {
    bucket: u32,
    flows: u32,
}

/// Routes of one worker.
#[derive(Debug)]
pub struct Routes {
    worker: WorkerId,
    common: Arc<Common>,
    map: RouteMap,
    /// Ring of this worker, if the kernel supports rings.
    ring: Option<Ring>,
    /// Routes that deliver to the ring, by flow.
    ring_routes: BTreeMap<FlowId, RingRoute>,
    /// Last assigned flow cookie.
    flow_cookies: u64,
    held: BTreeMap<FlowId, InstalledFlow>,
    /// Claimed shares of the flow table, by flow.
    shares: HashMap<FlowId, Share>,
    /// Flows that remain in the present round of [`Routes::sweep`]. `None` between two rounds.
    unvisited: Option<RangeInclusive<FlowId>>,
    /// Last visited ring route. `None` at the start of a round.
    ring_visited: Option<FlowId>,
    /// Flows that a sweep found silent while slots were scarce.
    silent: Vec<FlowId>,
    allocations: HashMap<AllocationId, AllocationBucket>,
}

impl Routes {
    pub(crate) fn new(
        worker: WorkerId,
        common: Arc<Common>,
        routes: &MapData,
        ring: Option<Ring>,
    ) -> Result<Self, KernelPathError> {
        let map = writer(routes)?;
        let (ring_routes, held, allocations) = (BTreeMap::new(), BTreeMap::new(), HashMap::new());
        let (flow_cookies, unvisited, ring_visited) = (0, None, None);
        let silent = Vec::new();
        let shares = HashMap::new();
        Ok(Self {
            worker,
            common,
            map,
            ring,
            ring_routes,
            flow_cookies,
            held,
            shares,
            unvisited,
            ring_visited,
            silent,
            allocations,
        })
    }

    /// Returns true if the calling thread may write routes. Linux before 5.19 may require
    /// `CAP_BPF`.
    #[must_use]
    pub fn is_writable(&mut self) -> bool {
        let removed = self.map.remove(&RouteKey::NONE).map_err(KernelPathError::of);
        removed.err().is_none_or(|error| error.os_error() != Some(libc::EPERM))
    }

    /// Returns the ring of this worker, or `None` if the kernel does not support rings.
    pub const fn ring(&mut self) -> Option<&mut Ring> {
        self.ring.as_mut()
    }

    /// Installs or updates a route that delivers a peer's datagrams to the ring, for a client with
    /// a connection. The worker handles the other direction and the limits. Returns `None` if the
    /// kernel does not support rings.
    ///
    /// # Errors
    /// No slot is free, or the kernel refused the route. The caller must then
    /// [withdraw](Self::withdraw_from_ring) the route.
    pub fn deliver_to_ring(
        &mut self,
        id: FlowId,
        flow: &Flow,
    ) -> Result<Option<FlowCookie>, KernelPathError> {
        if self.ring.is_none() {
            return Ok(None);
        }
        // The channel was bound to another peer. Queued datagrams belong to the previous peer.
        if self.ring_routes.get(&id).is_some_and(|route| route.key != flow.key_of_peer()) {
            self.free_ring_route(id);
        }
        if let Some(route) = self.ring_routes.get(&id) {
            let place = RouteSlots { flow: route.place, ..self.unlimited() };
            let (_, value) = flow.ring_route(place, route.flow_cookie);
            self.common.entries.refresh(route.pair.to_client(), &value);
            return Ok(Some(route.flow_cookie));
        }
        let now = Clock::instant();
        let common = &self.common;
        let place = common.flows.take(now).ok_or_else(|| common.shares.full(now))?;
        let Some(pair) = common.entries.take(now) else {
            common.flows.put_back(now, place);
            return Err(common.shares.full(now));
        };
        self.flow_cookies += 1;
        let flow_cookie = FlowCookie(self.flow_cookies);
        let (key, value) =
            flow.ring_route(RouteSlots { flow: place, ..self.unlimited() }, flow_cookie);
        self.ring_routes.insert(id, RingRoute { key, pair, place, flow_cookie, since: now });
        self.common.open_ports(flow);
        let found = self.common.entries.publish(pair.to_client(), key, value);
        self.map.insert(key, found, 0).map(|()| Some(flow_cookie)).map_err(refused)
    }

    /// Returns the number of the worker in the programs' arrays.
    const fn number(&self) -> u8 {
        // The number of leases is the maximum number of workers.
        (self.worker.0 as usize % WORKERS_MAX) as u8
    }

    /// Returns the slots of a route of this worker without a bucket.
    const fn unlimited(&self) -> RouteSlots {
        RouteSlots { flow: 0, bucket: 0, worker: self.number(), flow_label: 0, probe: false }
    }

    /// Records that `datagrams` datagrams of a ring route arrived on the relay socket. The arrival
    /// proves that the host's rules let the datagrams pass.
    pub fn prove(&self, id: FlowId, datagrams: u32) {
        if let Some(route) = self.ring_routes.get(&id) {
            // The program compares this time, which must be the present time, with that of the last
            // punt.
            let now = Clock::instant();
            self.common.entries.prove(route.pair.to_client(), now, datagrams);
        }
    }

    /// Returns the flow cookie of a ring route, or `None` if the flow has no ring route.
    #[must_use]
    pub fn flow_cookie(&self, id: FlowId) -> Option<FlowCookie> {
        self.ring_routes.get(&id).map(|route| route.flow_cookie)
    }

    /// Withdraws a ring route. Returns the route's flow cookie, since datagrams with the cookie may
    /// still be in the ring.
    pub fn withdraw_from_ring(&mut self, id: FlowId) -> Option<FlowCookie> {
        self.release(id);
        self.free_ring_route(id)
    }

    fn free_ring_route(&mut self, id: FlowId) -> Option<FlowCookie> {
        let RingRoute { key, pair, place, flow_cookie, since: _ } = self.ring_routes.remove(&id)?;
        // An absent key is not an error here.
        drop(self.map.remove(&key));
        let now = Clock::instant();
        self.common.entries.put_back(now, pair);
        self.common.flows.put_back(now, place);
        Some(flow_cookie)
    }

    /// Installs or updates the routes of a flow.
    ///
    /// # Errors
    /// No slot is free, or the kernel refused a route. The caller must then [remove](Self::remove)
    /// the flow, which returns the last traffic. The kernel relays none of the flow's packets.
    pub fn set(&mut self, now: Instant, id: FlowId, flow: &Flow) -> Result<(), KernelPathError> {
        let Some(held) = self.held.get_mut(&id) else { return self.install(now, id, flow) };
        let (before, routes) = (held.routes, flow.directions(held.place));
        if before.differ_by_refresh(&routes) {
            held.routes = routes;
            self.common.limit(held.place.bucket, flow.bytes_per_second);
            self.common.entries.refresh(held.pair.to_peer(), &routes.to_peer.1);
            self.common.entries.refresh(held.pair.to_client(), &routes.to_client.1);
            return Ok(());
        }
        // The client moved, or the channel has another peer. Published entries are never rewritten.
        let pair = self.common.entries.take(now).ok_or_else(|| self.common.shares.full(now))?;
        let old = std::mem::replace(&mut held.pair, pair);
        held.routes = routes;
        self.common.limit(held.place.bucket, flow.bytes_per_second);
        let published = self.publish(pair, flow, &routes);
        for key in [before.to_peer.0, before.to_client.0] {
            if key != routes.to_peer.0 && key != routes.to_client.0 {
                drop(self.map.remove(&key));
            }
        }
        self.common.entries.put_back(now, old);
        published
    }

    /// Publishes the entries of a flow, so the programs find them.
    fn publish(
        &mut self,
        pair: Pair,
        flow: &Flow,
        routes: &Directions,
    ) -> Result<(), KernelPathError> {
        let Directions { to_peer, to_client } = *routes;
        self.common.open_ports(flow);
        let entries = &self.common.entries;
        let to_peer = (to_peer.0, entries.publish(pair.to_peer(), to_peer.0, to_peer.1));
        let to_client = (to_client.0, entries.publish(pair.to_client(), to_client.0, to_client.1));
        // The client's direction is published last: responses to the client's first packet need the
        // peer's route.
        for (key, place) in [to_client, to_peer] {
            self.map.insert(key, place, 0).map_err(refused)?;
        }
        Ok(())
    }

    /// Removes a flow from the kernel. Returns the traffic since the last report, which is zero if
    /// the flow was not installed.
    pub fn remove(&mut self, id: FlowId) -> FlowCounters {
        self.release(id);
        let Some(held) = self.held.remove(&id) else { return FlowCounters::default() };
        // An absent key is not an error here.
        drop(self.map.remove(&held.routes.to_peer.0));
        drop(self.map.remove(&held.routes.to_client.0));
        let now = Clock::instant();
        self.common.entries.put_back(now, held.pair);
        let (total, _) = self.common.counted(held.place.flow);
        self.common.flows.put_back(now, held.place.flow);
        if let Some(limited) = self.allocations.get_mut(&id.allocation) {
            limited.flows -= 1;
            if limited.flows == 0 {
                self.common.limits.put_back(now, limited.bucket);
                self.allocations.remove(&id.allocation);
            }
        }
        total.less(&held.before)
    }

    /// Returns true if a program is attached at tc. Packets may arrive merged there, and the
    /// program passes merged packets to the sockets.
    #[must_use]
    pub fn is_by_tc(&self) -> bool {
        self.common.by_tc.load(Relaxed)
    }

    /// Reports the traffic of flows since the last report, if there was any. One call visits the
    /// next flows by id. The visited flows have up to `cells_max` cells (one for each processor and
    /// flow), but at least one flow is visited. Ring routes are not included.
    ///
    /// Returns true at the end of a round. In a round every flow is visited that existed at the
    /// start, unless the flow was removed before its visit. Flows with ids after the last id at the
    /// start wait for the next round, so new flows do not delay others.
    ///
    /// While slots are scarce, silent flows are also collected for
    /// [`pop_silent`](Self::pop_silent). These are silent flows among the visited flows, and among
    /// the next ring routes.
    pub fn sweep(
        &mut self,
        now: Instant,
        cells_max: usize,
        mut report: impl FnMut(FlowId, FlowCounters),
    ) -> bool {
        let are_scarce = self.common.shares.are_scarce(now);
        self.silent.clear();
        if are_scarce {
            self.find_silent_ring_routes(now, cells_max);
        }
        let Some(unvisited) = self.unvisited.take().or_else(|| self.all_flows()) else {
            return true;
        };
        let last = *unvisited.end();
        let flows_max = (cells_max / self.common.processors as usize).max(1);
        let mut flows = self.held.range_mut(unvisited);
        for (id, held) in flows.by_ref().take(flows_max) {
            let seen = held.report(&self.common, *id, &mut report);
            if are_scarce && seen + SILENT_AFTER <= now {
                self.silent.push(*id);
            }
        }
        // Stores ids instead of positions, which removals would shift.
        self.unvisited = flows.next().map(|(next, _)| *next..=last);
        self.unvisited.is_none()
    }

    fn all_flows(&self) -> Option<RangeInclusive<FlowId>> {
        Some(*self.held.first_key_value()?.0..=*self.held.last_key_value()?.0)
    }

    /// Reports the traffic of an allocation's flows since the last report, like
    /// [`sweep`](Self::sweep), but independent of rounds.
    pub fn sweep_allocation(
        &mut self,
        allocation: AllocationId,
        mut report: impl FnMut(FlowId, FlowCounters),
    ) {
        for (id, held) in self.held.range_mut(flows_of(allocation)) {
            held.report(&self.common, *id, &mut report);
        }
    }

    /// Returns the kernel traffic of an allocation, or `None` if no flow of the allocation is in
    /// the kernel.
    #[must_use]
    pub fn of_allocation(&self, allocation: AllocationId) -> Option<AllocationCounters> {
        let flows = self.allocations.get(&allocation)?.flows;
        let mut counters = AllocationCounters { flows, ..AllocationCounters::default() };
        for held in self.held.range(flows_of(allocation)).map(|(_, held)| held) {
            let (total, seen) = self.common.counted(held.place.flow);
            let carried = total.less(&held.at_first);
            // The time may belong to an earlier flow of the slot. The programs' clock may lag.
            let relayed = carried.to_peer_packets + carried.to_client_packets > 0;
            counters.last_seen = counters.last_seen.max(relayed.then_some(seen.max(held.since)));
            counters.total.add(&carried);
        }
        Some(counters)
    }

    /// Returns true if the kernel relays channels of an allocation.
    #[must_use]
    pub fn has_allocation(&self, allocation: AllocationId) -> bool {
        self.allocations.contains_key(&allocation)
    }

    /// Returns the number of installed flows, without ring routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns true if no flow is installed. Ring routes are not included.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns true if no route needs [renewal](Self::renew).
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.ring_routes.is_empty()
    }

    /// Renews the lease of the worker. The routes are valid for [`LEASE`] from `now`.
    pub fn renew(&self, now: Instant) {
        self.common.lease(self.number(), now + LEASE);
    }

    /// Suspends the lease of the worker until [`renew`](Self::renew). Until then packets pass to
    /// the sockets.
    pub fn suspend(&self) {
        self.common.lease(self.number(), Instant::ZERO);
    }

    /// Allocates the slots of a new flow, and installs the routes.
    fn install(&mut self, now: Instant, id: FlowId, flow: &Flow) -> Result<(), KernelPathError> {
        let common = Arc::clone(&self.common);
        let pair = common.entries.take(now).ok_or_else(|| common.shares.full(now))?;
        let Some(slot) = common.flows.take(now) else {
            common.entries.put_back(now, pair);
            return Err(common.shares.full(now));
        };
        let limited = match self.allocations.entry(id.allocation) {
            hash_map::Entry::Occupied(entry) => entry.into_mut(),
            hash_map::Entry::Vacant(entry) => {
                // The number of buckets is equal to the number of flows.
                let Some(bucket) = common.limits.take(now) else {
                    common.entries.put_back(now, pair);
                    common.flows.put_back(now, slot);
                    return Err(common.shares.full(now));
                };
                common.empty(bucket);
                entry.insert(AllocationBucket { bucket, flows: 0 })
            }
        };
        limited.flows += 1;
        common.limit(limited.bucket, flow.bytes_per_second);
        let place = RouteSlots {
            flow: slot,
            bucket: limited.bucket,
            worker: self.number(),
            flow_label: label(flow),
            probe: false,
        };
        let routes = flow.directions(place);
        let (before, _) = common.counted(slot);
        let held = InstalledFlow { pair, routes, place, at_first: before, before, since: now };
        self.held.insert(id, held);
        self.publish(pair, flow, &routes)
    }
}

impl Drop for Routes {
    /// Removes the routes of the worker, unless the routes are preserved for a successor.
    fn drop(&mut self) {
        if self.common.left.load(Relaxed) {
            return;
        }
        self.common.lease(self.number(), Instant::ZERO);
        let ids: Vec<FlowId> = self.held.keys().copied().collect();
        for id in ids {
            self.remove(id);
        }
        let ids: Vec<FlowId> = self.ring_routes.keys().copied().collect();
        for id in ids {
            self.withdraw_from_ring(id);
        }
    }
}

/// Returns the range of all flows that an allocation may have.
const fn flows_of(allocation: AllocationId) -> RangeInclusive<FlowId> {
    FlowId { allocation, channel: 0 }..=FlowId { allocation, channel: u16::MAX }
}

/// Returns the flow label (RFC 6437) of a flow. The label depends only on addresses in the packet,
/// so all packets of the flow have one label.
fn label(flow: &Flow) -> u32 {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let of = |hash: u32, at: SocketAddr| {
        let bytes = crate::bpf::layout::address(at.ip());
        bytes.into_iter().chain(at.port().to_be_bytes()).fold(hash, mix)
    };
    let hash = of(of(0x811C_9DC5, flow.client), flow.peer);
    (hash ^ hash >> 20) & 0xF_FFFF
}

fn refused(error: MapError) -> KernelPathError {
    let trouble = KernelPathError::of(error);
    if trouble.os_error() == Some(libc::E2BIG) { KernelPathError::Full } else { trouble }
}
