//! Routes: bound channels for a fast path, which forwards without the server, such as a program in
//! the kernel.

use turn_types::{AllocationId, FiveTuple, Instant, PeerAddr, RelayId, RelayedAddr};

/// Name of one bound channel as a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteId {
    /// Allocation of the channel.
    pub allocation: AllocationId,
    /// Channel number in the allocation.
    pub channel: u16,
}

/// Data needed to forward packets of one channel exactly as the server would (RFC 8656 §§12.6,
/// 12.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Name of the route.
    pub id: RouteId,
    /// Source and destination of the client's ChannelData. Over other transports than UDP only the
    /// server frames and decrypts the stream. A fast path can then bring peers' data to the server
    /// faster than the relay socket, and cannot forward data.
    pub five_tuple: FiveTuple,
    /// Relay socket of the allocation.
    pub relay: RelayId,
    /// Address to which the relay socket is bound.
    pub relayed: RelayedAddr,
    /// Address of the peer in packets.
    pub peer: PeerAddr,
    /// True if the peer is an address of this host, and therefore another allocation (a hairpin).
    /// That allocation may belong to another worker, and may end without notice. Data may pass in
    /// either direction only while a relay socket is open at the peer's address and port.
    pub own: bool,
    /// Time until which ChannelData may pass to the peer, while channel and relay socket are live.
    /// Permissions are not checked (RFC 8656 §12.6).
    pub to_peer_until: Instant,
    /// Time until which the peer's datagrams may pass to the client as ChannelData, while channel,
    /// relay socket and permission are live. Not in the future after the permission has expired.
    pub to_client_until: Instant,
    /// Maximum payload bytes per second of the allocation in each direction, shared by all routes
    /// of the allocation; 0 is unlimited.
    pub bytes_per_second: u64,
}

/// Parts of an installed route that can change while the channel is bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstalledRoute {
    own: bool,
    to_peer_until: Instant,
    to_client_until: Instant,
    bytes_per_second: u64,
}

impl InstalledRoute {
    pub(crate) const fn of(route: &Route) -> Self {
        let Route { own, to_peer_until, to_client_until, bytes_per_second, .. } = *route;
        Self { own, to_peer_until, to_client_until, bytes_per_second }
    }

    /// Returns true if `route` needs no update. An expired permission is treated as a missing
    /// permission.
    pub(crate) fn is_current(&self, route: &Route, now: Instant) -> bool {
        let has_ended = self.to_client_until <= now && route.to_client_until <= now;
        self.own == route.own
            && self.to_peer_until == route.to_peer_until
            && (has_ended || self.to_client_until == route.to_client_until)
            && self.bytes_per_second == route.bytes_per_second
    }
}
