//! Flows by number, for tests of the table of flows.

use std::net::SocketAddr;

use turn_types::{AllocationId, Instant};
use xdp_relay::{Flow, FlowId};

use super::network::{OWN_V4, address, near};
use super::world::PORT;

/// Returns the id of [`flow`].
pub fn flow_id(number: u16) -> FlowId {
    FlowId { allocation: AllocationId(u64::from(number)), channel: 0x4000 }
}

/// Returns a flow of one client that never expires. `number` selects the ports.
pub fn flow(number: u16) -> Flow {
    let [own, peer] = [address(OWN_V4[1]), near(1, 7)[0]];
    Flow {
        client: SocketAddr::new(near(0, 7)[0], 10_000 + number),
        server: SocketAddr::new(address(OWN_V4[0]), PORT),
        channel: 0x4000,
        relayed: SocketAddr::new(own, 20_000 + number),
        peer: SocketAddr::new(peer, 5000),
        hairpin: false,
        to_peer_until: Instant::FAR_FUTURE,
        to_client_until: Instant::FAR_FUTURE,
        bytes_per_second: 0,
    }
}
