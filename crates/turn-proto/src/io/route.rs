//! A route: one bound channel, for a driver with a path that forwards without the server, such as a
//! program in the kernel.

use turn_types::{AllocationId, FiveTuple, Instant, PeerAddr, RelayId, RelayedAddr};

/// One bound channel, as a path that could forward without us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteId {
    /// The allocation.
    pub allocation: AllocationId,
    /// The channel number in it.
    pub channel: u16,
}

/// All that is needed to forward the data of one channel as the server would (RFC 8656 §§12.6,
/// 12.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Which channel it is.
    pub id: RouteId,
    /// Source and destination of the client's ChannelData. For other transports than UDP only the
    /// server frames and decrypts a stream: data can be brought here faster than by the relay
    /// socket, not forwarded.
    pub five_tuple: FiveTuple,
    /// The relay socket.
    pub relay: RelayId,
    /// The address that the relay socket is bound to.
    pub relayed: RelayedAddr,
    /// The peer, in the form that packets carry.
    pub peer: PeerAddr,
    /// The peer is an address of this host, hence another allocation (a hairpin). That one
    /// may be another worker's and end at any time, of which nothing is told here: data goes either
    /// way only while a relay socket is open at the peer's address and port.
    pub own: bool,
    /// Until when ChannelData may go to the peer: channel and relay socket are live. Permissions
    /// are not asked (RFC 8656 §12.6).
    pub to_peer_until: Instant,
    /// Until when the peer's datagrams may go to the client as ChannelData: channel, relay socket
    /// and permission are live. Not in the future once the permission has expired.
    pub to_client_until: Instant,
    /// Payload bytes per second of the allocation in each direction, all its routes together; 0 is
    /// unlimited.
    pub bytes_per_second: u64,
}

/// The parts of an installed route that can change while its channel is bound.
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

    /// Returns true if `route` needs no update. An expired permission is the same as none.
    pub(crate) fn is_current(&self, route: &Route, now: Instant) -> bool {
        let has_ended = self.to_client_until <= now && route.to_client_until <= now;
        self.own == route.own
            && self.to_peer_until == route.to_peer_until
            && (has_ended || self.to_client_until == route.to_client_until)
            && self.bytes_per_second == route.bytes_per_second
    }
}
