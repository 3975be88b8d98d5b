//! Routes of the kernel path. The server's channels become routes in the kernel, and the kernel's
//! counters are credited to the server. So limits, statistics and records are equal for both paths.
//!
//! For a client with a connection, the kernel delivers the peer's datagrams through a ring, as
//! *ring flows*. A *sweep* reads the kernel's counters of all flows, in parts.

mod counters;
mod ring;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;

use control::{Series, SessionOffload, WhyNot, WorkerCounters};
use linux_net::Interest;
use turn_proto::{AllocationRecord, Route, RouteId, Server, Traffic};
use turn_types::{AllocationId, Instant, RelayId, Transport};
use xdp_relay::{Flow, FlowCookie, FlowId, KernelPathError};

use crate::io::{Net, RouteTable, Source};
use crate::limits::{RETRIES_PER_SWEEP, SWEEP_CELLS, SWEEP_EVERY, SWEEP_PART_EVERY};
use crate::sockets::ByNumber;
use crate::token::Token;
use counters::{count, traffic};

/// Kernel routes of one worker, if a kernel path exists.
#[derive(Debug)]
pub(crate) struct Offload<N: Net> {
    routes: Option<N::Routes>,
    /// Flows of clients with connections, whose peers' datagrams the kernel delivers through the
    /// ring.
    ring_flows: ByNumber<FlowCookie, RingFlow>,
    /// Ring flows by relay socket and peer, for datagrams that reach the relay socket instead.
    by_peer: HashMap<(RelayId, SocketAddr), FlowId>,
    /// Withdrawn ring flows. Earlier datagrams may still wait in the ring, possibly for a client
    /// that has moved.
    withdrawn: Vec<FlowCookie>,
    /// Channels that the kernel does not relay, with the reason.
    refused: BTreeMap<RouteId, WhyNot>,
    /// Last refused channel that was permitted to claim a slot again.
    retried: RouteId,
    /// Time of the next part of a sweep. `None` without routes.
    sweep_at: Option<Instant>,
    /// Start of the sweep in progress. `None` between two sweeps.
    sweep_began: Option<Instant>,
    /// True while the kernel relays nothing, because the review of a new policy is incomplete.
    is_suspended: bool,
    /// Counters of ended allocations, until the allocations' records are reported.
    last: HashMap<AllocationId, Traffic>,
}

/// Destination of ring datagrams with one flow cookie.
#[derive(Clone, Copy, Debug)]
struct RingFlow {
    relay: RelayId,
    relayed: SocketAddr,
    peer: SocketAddr,
}

impl<N: Net> Offload<N> {
    /// Creates the state, and watches the ring of `routes`, if any.
    ///
    /// # Errors
    /// No memory is left for epoll.
    pub(crate) fn new(net: &N, mut routes: Option<N::Routes>) -> io::Result<Self> {
        if let Some(ring) = routes.as_mut().and_then(|routes| routes.ring()) {
            net.watch(Source::Ring(ring), Token::Ring.number(), Interest::Read)?;
        }
        Ok(Self {
            routes,
            ring_flows: ByNumber::default(),
            by_peer: HashMap::new(),
            withdrawn: Vec::new(),
            refused: BTreeMap::new(),
            retried: first_of(AllocationId(0)),
            sweep_at: None,
            sweep_began: None,
            is_suspended: false,
            last: HashMap::new(),
        })
    }

    /// Returns the time of the next part of a [sweep](Self::sweep).
    pub(crate) const fn next_sweep(&self) -> Option<Instant> {
        self.sweep_at
    }

    /// Suspends the worker's lease, so packets of the worker's routes pass to the sockets.
    pub(crate) fn suspend(&mut self) {
        self.is_suspended = true;
        if let Some(routes) = &self.routes {
            routes.suspend();
        }
    }

    /// Renews the lease of the worker's routes.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.is_suspended = false;
        if let Some(routes) = &self.routes {
            routes.renew(now);
        }
    }

    /// Installs or updates a route.
    ///
    /// # Errors
    /// The kernel refuses the route, and the sockets relay the channel.
    pub(crate) fn set(
        &mut self,
        now: Instant,
        route: &Route,
        server: &mut Server,
        counters: &WorkerCounters,
    ) -> Result<(), KernelPathError> {
        let Some(routes) = &mut self.routes else { return Ok(()) };
        if self.sweep_at.is_none() {
            if !self.is_suspended {
                routes.renew(now);
            }
            self.sweep_at = Some(now + SWEEP_EVERY);
        }
        let set = if route.five_tuple.transport == Transport::Udp {
            let id = flow_id(route.id);
            claim(routes, now, id, server).and_then(|()| routes.set(now, id, &flow(route)))
        } else {
            self.deliver_to_ring(now, route, server)
        };
        match &set {
            Ok(()) => drop(self.refused.remove(&route.id)),
            Err(error) => {
                self.remove(route.id, server, counters);
                self.refused.insert(route.id, why_not(error));
            }
        }
        set
    }

    /// Installs or updates the ring delivery of a peer's datagrams, for a client with a connection.
    fn deliver_to_ring(
        &mut self,
        now: Instant,
        route: &Route,
        server: &Server,
    ) -> Result<(), KernelPathError> {
        let Self { routes, ring_flows, by_peer, withdrawn, .. } = self;
        let Some(routes) = routes else { return Ok(()) };
        if routes.ring().is_none() {
            return Ok(());
        }
        let id = flow_id(route.id);
        // Datagrams of another relay of this server cross no interface.
        if route.own || route.to_client_until <= now {
            self.withdraw_from_ring(id);
            return Ok(());
        }
        let before = routes.flow_cookie(id);
        let claimed = claim(routes, now, id, server);
        let cookie = claimed.and_then(|()| routes.deliver_to_ring(id, &flow(route)));
        if let Some(before) = before
            && routes.flow_cookie(id) != Some(before)
        {
            if let Some(old) = ring_flows.get(&before) {
                by_peer.remove(&(old.relay, old.peer));
            }
            withdrawn.push(before);
        }
        match cookie {
            Ok(Some(cookie)) => {
                let Route { relay, relayed, peer, .. } = *route;
                let flow = RingFlow { relay, relayed: relayed.0, peer: peer.0 };
                ring_flows.insert(cookie, flow);
                by_peer.insert((relay, peer.0), id);
            }
            Ok(None) => {}
            Err(_) => self.withdraw_from_ring(id),
        }
        cookie.map(drop)
    }

    fn withdraw_from_ring(&mut self, id: FlowId) {
        let routes = self.routes.as_mut();
        if let Some(cookie) = routes.and_then(|routes| routes.withdraw_from_ring(id)) {
            if let Some(old) = self.ring_flows.get(&cookie) {
                self.by_peer.remove(&(old.relay, old.peer));
            }
            self.withdrawn.push(cookie);
        }
    }

    /// Returns true if the kernel delivers datagrams of peers to the ring.
    pub(crate) fn fills_ring(&self) -> bool {
        !self.by_peer.is_empty()
    }

    /// Notes that a peer's datagrams reached the relay socket. If the kernel has a route, the
    /// kernel delivers the peer's next datagrams for some seconds.
    pub(crate) fn came_by_socket(&self, relay: RelayId, peer: SocketAddr, datagrams: u32) {
        // Most workers have no ring flow. Datagrams of the ring do not reach this function.
        if self.by_peer.is_empty() {
            return;
        }
        if let (Some(routes), Some(id)) = (&self.routes, self.by_peer.get(&(relay, peer))) {
            routes.prove(*id, datagrams);
        }
    }

    /// Withdraws a route.
    pub(crate) fn remove(&mut self, id: RouteId, server: &mut Server, counters: &WorkerCounters) {
        self.withdraw_from_ring(flow_id(id));
        let Some(routes) = &mut self.routes else { return };
        self.refused.remove(&id);
        let carried = routes.remove(flow_id(id));
        if carried.is_zero() {
            return;
        }
        count(&carried, counters);
        let traffic = traffic(&carried);
        if !server.credit(id.allocation, traffic) {
            self.last.entry(id.allocation).or_default().add(&traffic);
        }
    }

    /// Runs the next part of a sweep: renews the lease of the worker's routes, and credits and
    /// counts the kernel's counters of the next flows.
    pub(crate) fn sweep(&mut self, now: Instant, server: &mut Server, counters: &WorkerCounters) {
        let Some(routes) = &mut self.routes else { return };
        if !self.is_suspended {
            routes.renew(now);
        }
        let began = *self.sweep_began.get_or_insert(now);
        let is_over = routes.sweep(now, SWEEP_CELLS, |id, carried| {
            count(&carried, counters);
            // An ended allocation has withdrawn all routes, so the allocation exists.
            server.credit(id.allocation, traffic(&carried));
        });
        if is_over {
            self.sweep_began = None;
        }
        self.remove_silent(server, counters);
        if is_over {
            self.forget_refused(server);
        }
        let is_idle = self.routes.as_ref().is_none_or(|routes| routes.is_idle());
        let is_done = is_idle && self.refused.is_empty();
        self.sweep_at = (!is_done).then(|| next_part(began, now, is_over));
    }

    /// Removes the routes that the sweep found silent while slots are scarce. The next data of such
    /// a channel passes through the sockets, and installs the route again.
    fn remove_silent(&mut self, server: &mut Server, counters: &WorkerCounters) {
        while let Some(flow) = self.routes.as_mut().and_then(RouteTable::pop_silent) {
            let id = RouteId { allocation: flow.allocation, channel: flow.channel };
            self.remove(id, server, counters);
            server.await_data(id);
            counters.add(Series::SilentFlows, 1);
        }
    }

    /// Permits the next refused channels to claim a slot again. Each channel claims with the next
    /// data.
    fn forget_refused(&mut self, server: &mut Server) {
        let next = self
            .refused
            .extract_if(self.retried.., |_, why| matches!(why, WhyNot::Full | WhyNot::Share));
        self.retried = first_of(AllocationId(0));
        for (id, _) in next.take(RETRIES_PER_SWEEP) {
            server.await_data(id);
            self.retried = id;
        }
    }

    /// Credits and counts the kernel's counters of an allocation since the last sweep. Returns the
    /// sum.
    pub(crate) fn sweep_allocation(
        &mut self,
        id: AllocationId,
        server: &mut Server,
        counters: &WorkerCounters,
    ) -> Traffic {
        let mut sum = Traffic::default();
        if let Some(routes) = &mut self.routes {
            routes.sweep_allocation(id, |_, carried| {
                count(&carried, counters);
                sum.add(&traffic(&carried));
            });
        }
        server.credit(id, sum);
        sum
    }

    /// Returns true if a program at tc processes the packets of this installed route.
    pub(crate) fn takes_at_tc(&self, route: &Route) -> bool {
        route.five_tuple.transport == Transport::Udp
            && self.routes.as_ref().is_some_and(|routes| routes.is_by_tc())
    }

    /// Returns true if the kernel relays channels of an allocation.
    pub(crate) fn relays(&self, id: AllocationId) -> bool {
        self.routes.as_ref().is_some_and(|routes| routes.has_allocation(id))
    }

    /// Returns the number of channels that the kernel relays.
    pub(crate) fn flows(&self) -> u64 {
        self.routes.as_ref().map_or(0, |routes| routes.flows() as u64)
    }

    /// Returns the path of an allocation's channels.
    pub(crate) fn of(&self, record: &AllocationRecord) -> SessionOffload {
        let Some(routes) = &self.routes else { return SessionOffload::Sockets(WhyNot::Off) };
        match routes.of_allocation(record.id) {
            Some(counted) => SessionOffload::Kernel {
                channels: counted.flows,
                packets: counted.total.to_peer_packets + counted.total.to_client_packets,
                bytes: counted.total.to_peer_bytes + counted.total.to_client_bytes,
                last_seen: counted.last_seen,
            },
            None => SessionOffload::Sockets(self.why_not(record)),
        }
    }

    fn why_not(&self, record: &AllocationRecord) -> WhyNot {
        if record.five_tuple.transport != Transport::Udp {
            return WhyNot::Transport;
        }
        let of_it = |id: &RouteId| id.allocation == record.id;
        let refused = self.refused.range(first_of(record.id)..).take_while(|(id, _)| of_it(id));
        let without_reason = if record.channels > 0 { WhyNot::Silent } else { WhyNot::NoChannel };
        refused.map(|(_, why)| *why).next().unwrap_or(without_reason)
    }

    /// Adds the kernel's last counters to the record of an ended allocation, and returns these
    /// counters.
    pub(crate) fn complete(&mut self, record: &mut AllocationRecord) -> Option<Traffic> {
        let traffic = self.last.remove(&record.id)?;
        record.credit(&traffic);
        Some(traffic)
    }
}

/// Returns the time of the next part of a sweep. A sweep with more parts than fit into
/// [`SWEEP_EVERY`] lasts longer, and the next sweep follows immediately as a further part.
fn next_part(began: Instant, now: Instant, is_over: bool) -> Instant {
    let soon = now + SWEEP_PART_EVERY;
    if is_over { soon.max(began + SWEEP_EVERY) } else { soon }
}

/// Claims the slot of a flow for the client of the flow's allocation.
fn claim(
    routes: &mut impl RouteTable,
    now: Instant,
    id: FlowId,
    server: &Server,
) -> Result<(), KernelPathError> {
    let Some(claimant) = server.claimant(id.allocation) else { return Ok(()) };
    routes.claim(now, id, &claimant)
}

const fn why_not(error: &KernelPathError) -> WhyNot {
    match error {
        KernelPathError::Full => WhyNot::Full,
        KernelPathError::Share => WhyNot::Share,
        KernelPathError::Kernel(_)
        | KernelPathError::Bpf(_)
        | KernelPathError::SelfTest(_)
        | KernelPathError::Missing(_) => WhyNot::Failed,
    }
}

/// Returns the smallest route of an allocation.
const fn first_of(allocation: AllocationId) -> RouteId {
    RouteId { allocation, channel: 0 }
}

const fn flow_id(id: RouteId) -> FlowId {
    FlowId { allocation: id.allocation, channel: id.channel }
}

fn flow(route: &Route) -> Flow {
    Flow {
        client: route.five_tuple.client.0,
        server: route.five_tuple.server.0,
        channel: route.id.channel,
        relayed: route.relayed.0,
        peer: route.peer.0,
        hairpin: route.own,
        to_peer_until: route.to_peer_until,
        to_client_until: route.to_client_until,
        bytes_per_second: route.bytes_per_second,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BEGAN: Instant = Instant::from_nanos(1_000_000_000_000);

    #[test]
    fn a_sweep_begins_each_second_whatever_its_parts_took() {
        let within = BEGAN + SWEEP_EVERY / 2;
        assert_eq!(next_part(BEGAN, BEGAN, true), BEGAN + SWEEP_EVERY);
        assert_eq!(next_part(BEGAN, within, false), within + SWEEP_PART_EVERY);
        assert_eq!(next_part(BEGAN, within, true), BEGAN + SWEEP_EVERY);
    }

    #[test]
    fn a_sweep_that_lasts_longer_leaves_time_before_the_next_one() {
        let late = BEGAN + SWEEP_EVERY + Duration::from_millis(500);
        assert_eq!(next_part(BEGAN, late, true), late + SWEEP_PART_EVERY);
        let almost = BEGAN + (SWEEP_EVERY - Duration::from_nanos(1));
        assert_eq!(next_part(BEGAN, almost, true), almost + SWEEP_PART_EVERY);
    }
}
