//! Datagrams of peers that the kernel delivers through the ring, for clients with connections.

use control::{Leg, Series};
use turn_proto::DropReason;
use turn_types::PeerAddr;

use super::{Offload, RingFlow};
use crate::context::{Connections, Context, Output};
use crate::io::{Net, RingIo as _, RouteTable as _};
use crate::limits::{RING_BYTES_PER_ROUND, RING_DATAGRAMS_PER_ROUND};

impl<N: Net> Offload<N> {
    /// Serves one round of datagrams. Returns true if more may wait, or `None` if the ring was
    /// empty.
    pub(crate) fn receive(
        &mut self,
        cx: &mut Context<N>,
        clients: &mut impl Connections<N>,
    ) -> Option<bool> {
        let Context { server, egress, rx, sockets, observer, now, .. } = cx;
        let Self { routes, ring_flows, withdrawn, .. } = self;
        let ring = routes.as_mut().and_then(|routes| routes.ring())?;
        let (mut datagrams, mut bytes) = (0, 0);
        let mut is_full = false;
        while !is_full && let Some(datagram) = ring.next() {
            let payload = datagram.payload();
            datagrams += 1;
            bytes += payload.len() as u64;
            is_full = datagrams >= RING_DATAGRAMS_PER_ROUND || bytes >= RING_BYTES_PER_ROUND;
            // The route may have been withdrawn while the datagram waited.
            let flow = ring_flows.get(&datagram.flow_cookie()).copied();
            let Some(RingFlow { relay, relayed, peer }) = flow else {
                egress.dropped(DropReason::RelayClosed);
                continue;
            };
            if !datagram.is_intact(peer, relayed) {
                egress.dropped(DropReason::Checksum);
                continue;
            }
            egress.make_room(rx, sockets);
            let (meta, header) = (datagram.meta(), egress.header_buffer());
            let (peer, len) = (PeerAddr(peer), payload.len());
            let verdict = server.handle_peer(*now, relay, peer, meta, len, header);
            Output { egress, rx, sockets }.peer_bytes(verdict, payload, clients);
        }
        if !is_full {
            for cookie in withdrawn.drain(..) {
                ring_flows.remove(&cookie);
            }
        }
        if datagrams == 0 {
            return None;
        }
        observer.count(Series::Offloaded(Leg::FromPeers), datagrams);
        observer.count(Series::OffloadedBytes(Leg::FromPeers), bytes);
        Some(is_full)
    }
}
