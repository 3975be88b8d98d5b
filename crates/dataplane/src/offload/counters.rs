//! Conversion of the kernel path's counters to the counters of the sockets.

use control::{Fate, Leg, Series, WorkerCounters};
use stun_wire::CHANNEL_HEADER_LEN;
use turn_proto::{DropReason, Traffic};
use xdp_relay::FlowCounters;

/// Converts the kernel's counters to the traffic of an allocation.
pub(super) fn traffic(carried: &FlowCounters) -> Traffic {
    Traffic {
        to_peer_packets: carried.to_peer_packets,
        to_peer_bytes: carried.to_peer_bytes,
        to_client_packets: carried.to_client_packets,
        to_client_bytes: carried.to_client_bytes,
        dropped_packets: carried.to_peer_over + carried.to_client_over,
    }
}

/// Counts packets of the kernel path like packets of the sockets: each packet as received, and with
/// a fate.
pub(super) fn count(carried: &FlowCounters, counters: &WorkerCounters) {
    let add = |series, n| counters.add(series, n);
    // Packets on the client's side have a ChannelData header.
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
