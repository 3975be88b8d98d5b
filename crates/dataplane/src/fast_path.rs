//! The kernel relays what it has routes for. It is told of the server's routes, and the server is told
//! what it carried: limits, statistics and records are the same whichever way packets went.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use control::{Fate, Leg, Series, SessionOffload, WhyNot, WorkerCounters};
use stun_wire::CHANNEL_HEADER_LEN;
use turn_proto::{AllocationRecord, DropReason, Route, RouteId, Server, Traffic};
use turn_types::{AllocationId, Instant, RelayId, Transport};
use xdp_relay::{Flow, FlowCookie, FlowCounters, FlowId, KernelPathError, Ring, Routes};

use crate::limits::{SWEEP_CELLS, SWEEP_EVERY, SWEEP_PART_EVERY};
use crate::relay_sockets::ByNumber;

/// Routes of this worker in the kernel, if there is a kernel path.
#[derive(Debug)]
pub(crate) struct FastPath {
    routes: Option<Routes>,
    /// Flows of clients with connections, of which the kernel hands over what peers send.
    handed: ByNumber<FlowCookie, Handing>,
    /// The same by relay socket and peer, for what comes by that socket all the same.
    by_peer: HashMap<(RelayId, SocketAddr), FlowId>,
    /// Those of them that are withdrawn: what the kernel wrote before waits in the ring, perhaps for a client
    /// that has moved.
    withdrawn: Vec<FlowCookie>,
    /// Channels that the kernel does not relay, and why.
    refused: BTreeMap<RouteId, WhyNot>,
    /// Time at which the next part of a sweep is due; `None` while the kernel has no route.
    sweep_at: Option<Instant>,
    /// Start of the sweep of which that is a part; `None` between two sweeps.
    sweep_began: Option<Instant>,
    /// What it carried for allocations that are gone, until their records are told.
    last: HashMap<AllocationId, Traffic>,
}

/// What a handed over datagram says by its ticket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handing {
    pub(crate) relay: RelayId,
    pub(crate) relayed: SocketAddr,
    pub(crate) peer: SocketAddr,
}

impl FastPath {
    pub(crate) fn new(routes: Option<Routes>) -> Self {
        let (handed, by_peer, last) = (ByNumber::default(), HashMap::new(), HashMap::new());
        let (withdrawn, refused) = (Vec::new(), BTreeMap::new());
        let (sweep_at, sweep_began) = (None, None);
        Self { routes, handed, by_peer, withdrawn, refused, sweep_at, sweep_began, last }
    }

    /// What the kernel hands over, and by which relay sockets it would have come.
    pub(crate) fn handed(&mut self) -> Option<(&mut Ring, &ByNumber<FlowCookie, Handing>)> {
        let Self { routes, handed, .. } = self;
        Some((routes.as_mut()?.ring()?, handed))
    }

    /// Forgets the flows that were withdrawn: the ring is empty.
    pub(crate) fn ring_is_empty(&mut self) {
        for ticket in self.withdrawn.drain(..) {
            self.handed.remove(&ticket);
        }
    }

    /// Returns the time at which the next part of a [sweep](Self::sweep) is due.
    pub(crate) const fn next_sweep(&self) -> Option<Instant> {
        self.sweep_at
    }

    /// Puts a route into the kernel, or what is new of it.
    ///
    /// # Errors
    /// It is relayed by the sockets.
    pub(crate) fn set(
        &mut self,
        now: Instant,
        route: &Route,
        server: &mut Server,
        counters: &WorkerCounters,
    ) -> Result<(), KernelPathError> {
        let Some(routes) = &mut self.routes else { return Ok(()) };
        if self.sweep_at.is_none() {
            routes.renew(now);
            self.sweep_at = Some(now + SWEEP_EVERY);
        }
        if route.five_tuple.transport != Transport::Udp {
            return self.hand(now, route);
        }
        let set = routes.set(now, flow_id(route.id), &flow(route));
        match &set {
            Ok(()) => drop(self.refused.remove(&route.id)),
            Err(error) => {
                self.remove(route.id, server, counters);
                let full = matches!(error, KernelPathError::Full);
                self.refused.insert(route.id, if full { WhyNot::Full } else { WhyNot::Failed });
            }
        }
        set
    }

    /// Has the kernel hand over what the peer of a client with a connection sends.
    fn hand(&mut self, now: Instant, route: &Route) -> Result<(), KernelPathError> {
        let Self { routes, handed, by_peer, withdrawn, .. } = self;
        let Some(routes) = routes else { return Ok(()) };
        let id = flow_id(route.id);
        // What comes of ourselves comes by no interface.
        if route.own || route.to_client_until <= now {
            self.take_back(id);
            return Ok(());
        }
        let before = routes.flow_cookie(id);
        let ticket = routes.deliver_to_ring(id, &flow(route));
        if let Some(before) = before
            && routes.flow_cookie(id) != Some(before)
        {
            if let Some(old) = handed.get(&before) {
                by_peer.remove(&(old.relay, old.peer));
            }
            withdrawn.push(before);
        }
        match ticket {
            Ok(Some(ticket)) => {
                let Route { relay, relayed, peer, .. } = *route;
                handed.insert(ticket, Handing { relay, relayed: relayed.0, peer: peer.0 });
                by_peer.insert((relay, peer.0), id);
            }
            Ok(None) => {}
            Err(_) => self.take_back(id),
        }
        ticket.map(drop)
    }

    fn take_back(&mut self, id: FlowId) {
        if let Some(ticket) = self.routes.as_mut().and_then(|routes| routes.withdraw_from_ring(id))
        {
            if let Some(old) = self.handed.get(&ticket) {
                self.by_peer.remove(&(old.relay, old.peer));
            }
            self.withdrawn.push(ticket);
        }
    }

    /// Notes that a peer's datagram came by its relay socket: the kernel hands over its next ones for some
    /// seconds, if it has a route for them.
    pub(crate) fn came_by_socket(&self, relay: RelayId, peer: SocketAddr) {
        // Most workers have none, and what is handed over does not come this way.
        if self.by_peer.is_empty() {
            return;
        }
        if let (Some(routes), Some(id)) = (&self.routes, self.by_peer.get(&(relay, peer))) {
            routes.prove(*id);
        }
    }

    /// Takes a route out of the kernel.
    pub(crate) fn remove(&mut self, id: RouteId, server: &mut Server, counters: &WorkerCounters) {
        self.take_back(flow_id(id));
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

    /// Does the next part of a sweep: renews the lease of the worker's routes, and credits and counts what the
    /// kernel carried on the next flows.
    pub(crate) fn sweep(&mut self, now: Instant, server: &mut Server, counters: &WorkerCounters) {
        let Some(routes) = &mut self.routes else { return };
        routes.renew(now);
        let began = *self.sweep_began.get_or_insert(now);
        let is_over = routes.sweep(SWEEP_CELLS, |id, carried| {
            count(&carried, counters);
            // One that ended withdrew its routes.
            server.credit(id.allocation, traffic(&carried));
        });
        if is_over {
            self.sweep_began = None;
        }
        self.sweep_at = (!routes.is_idle()).then(|| next_part(began, now, is_over));
    }

    /// Returns what the kernel carried for an allocation since its last sweep, credited and counted.
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

    /// Whether a program at tc takes what is to go by this route, which the kernel has.
    pub(crate) fn takes_at_tc(&self, route: &Route) -> bool {
        route.five_tuple.transport == Transport::Udp
            && self.routes.as_ref().is_some_and(Routes::is_by_tc)
    }

    /// How many channels the kernel relays.
    pub(crate) fn flows(&self) -> u64 {
        self.routes.as_ref().map_or(0, |routes| routes.len() as u64)
    }

    /// What relays the channels of an allocation.
    pub(crate) fn of(&self, record: &AllocationRecord) -> SessionOffload {
        let Some(routes) = &self.routes else { return SessionOffload::Sockets(WhyNot::Off) };
        match routes.of_allocation(record.id) {
            Some(told) => SessionOffload::Kernel {
                channels: told.flows,
                packets: told.total.to_peer_packets + told.total.to_client_packets,
                bytes: told.total.to_peer_bytes + told.total.to_client_bytes,
                last_seen: told.last_seen,
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
        refused.map(|(_, why)| *why).next().unwrap_or(WhyNot::NoChannel)
    }

    /// Completes the record of an allocation that ended: with what the kernel carried for it since it
    /// was last asked.
    pub(crate) fn complete(&mut self, record: &mut AllocationRecord) {
        if let Some(traffic) = self.last.remove(&record.id) {
            record.traffic.add(&traffic);
        }
    }
}

/// Returns the time at which the part after this one is due. A sweep of more parts than fit into [`SWEEP_EVERY`] lasts longer, and the
/// next one follows it as one more part.
fn next_part(began: Instant, now: Instant, is_over: bool) -> Instant {
    let soon = now + SWEEP_PART_EVERY;
    if is_over { soon.max(began + SWEEP_EVERY) } else { soon }
}

/// Before all channels of an allocation.
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

fn traffic(carried: &FlowCounters) -> Traffic {
    Traffic {
        to_peer_packets: carried.to_peer_packets,
        to_peer_bytes: carried.to_peer_bytes,
        to_client_packets: carried.to_client_packets,
        to_client_bytes: carried.to_client_bytes,
        dropped_packets: carried.to_peer_over + carried.to_client_over,
    }
}

/// Counts what the kernel carried as if it had come by here: each packet as received, and its fate.
fn count(carried: &FlowCounters, counters: &WorkerCounters) {
    let add = |series, n| counters.add(series, n);
    // On the client's side a ChannelData header is in front.
    let header = CHANNEL_HEADER_LEN as u64;
    for (from, to, fate, packets, over, bytes) in [
        (
            (Leg::FromClients, header),
            (Leg::ToPeers, 0),
            Fate::ToPeer,
            carried.to_peer_packets,
            carried.to_peer_over,
            carried.to_peer_bytes,
        ),
        (
            (Leg::FromPeers, 0),
            (Leg::ToClients, header),
            Fate::ToClient,
            carried.to_client_packets,
            carried.to_client_over,
            carried.to_client_bytes,
        ),
    ] {
        add(Series::Offloaded(from.0), packets + over);
        add(Series::OffloadedBytes(from.0), bytes + packets * from.1);
        add(Series::Fate(fate), packets);
        add(Series::Offloaded(to.0), packets);
        add(Series::OffloadedBytes(to.0), bytes + packets * to.1);
        add(Series::Drop(DropReason::Bandwidth), over);
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
