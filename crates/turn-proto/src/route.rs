//! Routes: bound channels, told to a path that could forward their data without us, such as a program
//! in the kernel. A route says no more than `relay.rs` would do; without any, nothing is different but
//! the speed.
//!
//! They are told by comparison: after whatever may have changed an allocation its routes are made anew,
//! and those that are not as they were told last are told again. So nothing that changes a rule has to
//! know which routes it touches. Where a channel is let go of, its route is withdrawn on the spot
//! ([`Outbox::let_go`], called by `table.rs`), hence before its relay socket is closed.

use alloc::boxed::Box;

use stun_wire::ChannelNumber;
use turn_types::{AllocationId, FiveTuple, Instant, PeerAddr, RelayId, RelayedAddr};

use crate::allocation::{Allocation, index_of};
use crate::channel::Channel;
use crate::command::Command;
use crate::outbox::Outbox;
use crate::permission::Permissions;
use crate::policy::Policy;
use crate::state::State;
use crate::table::Slot;

/// One bound channel, as a path that could forward without us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteId {
    /// The allocation.
    pub allocation: AllocationId,
    /// The channel number in it.
    pub channel: u16,
}

/// What is needed to forward the data of one channel as the server would (RFC 8656 §§12.6, 12.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Which channel it is.
    pub id: RouteId,
    /// Where the client's ChannelData comes from and goes to. Where the transport is not UDP nobody else
    /// frames and unframes what a stream carries, or decrypts it: data can be brought here faster than by
    /// the relay socket, not forwarded.
    pub five_tuple: FiveTuple,
    /// The relay socket.
    pub relay: RelayId,
    /// What the relay socket is bound to.
    pub relayed: RelayedAddr,
    /// The peer, in the form that packets carry.
    pub peer: PeerAddr,
    /// Whether the peer is an address of this host, hence another allocation (a hairpin). That one
    /// may be another worker's and end at any time, of which nothing is told here: data goes either
    /// way only while a relay socket is open at the peer's address and port.
    pub own: bool,
    /// Until when ChannelData may go to the peer: channel and half are live. Permissions are not
    /// asked (RFC 8656 §12.6).
    pub to_peer_until: Instant,
    /// Until when the peer's datagrams may go to the client as ChannelData: channel, half and
    /// permission are live. Not in the future when the permission has run out.
    pub to_client_until: Instant,
    /// Payload bytes per second of the allocation in each direction, all its routes together; 0 is
    /// unlimited.
    pub bytes_per_second: u64,
}

/// What was told last about a route, as far as it can change while its channel is bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    own: bool,
    to_peer_until: Instant,
    to_client_until: Instant,
    bytes_per_second: u64,
}

impl Announced {
    const fn of(route: &Route) -> Self {
        let Route { own, to_peer_until, to_client_until, bytes_per_second, .. } = *route;
        Self { own, to_peer_until, to_client_until, bytes_per_second }
    }

    /// Whether `route` is what was told. A permission that has run out is the same as none.
    fn says(&self, route: &Route, now: Instant) -> bool {
        let has_ended = self.to_client_until <= now && route.to_client_until <= now;
        self.own == route.own
            && self.to_peer_until == route.to_peer_until
            && (has_ended || self.to_client_until == route.to_client_until)
            && self.bytes_per_second == route.bytes_per_second
    }
}

impl State {
    /// Tells what is new in the routes of an allocation.
    pub(crate) fn announce(&mut self, policy: &Policy, now: Instant, slot: Slot) {
        if self.routes {
            announce(self.table.get_mut(slot), policy, now, &mut self.outbox);
        }
    }
}

fn announce(allocation: &mut Allocation, policy: &Policy, now: Instant, outbox: &mut Outbox) {
    let Allocation { id, path, attached, halves, permissions, channels, .. } = allocation;
    // Nobody else knows of a client that is not there.
    if !*attached {
        return;
    }
    for channel in channels.iter_mut() {
        let route_id = RouteId { allocation: *id, channel: channel.number.get() };
        let half = halves[index_of(channel.peer.family())].as_ref();
        let route = half.map(|half| Route {
            id: route_id,
            five_tuple: path.five_tuple,
            relay: half.relay,
            relayed: half.local,
            peer: channel.peer,
            own: channel.own.is_some(),
            to_peer_until: channel.expires.min(half.expires),
            to_client_until: permitted_until(permissions, channel, now)
                .min(channel.expires)
                .min(half.expires),
            bytes_per_second: policy.quotas.bytes_per_second,
        });
        let wanted =
            route.filter(|route| now < route.to_peer_until && is_accepted(policy, channel.number));
        let told = channel.announced;
        channel.announced = wanted.as_ref().map(Announced::of);
        match (told, wanted) {
            (Some(told), Some(route)) if told.says(&route, now) => {}
            (_, Some(route)) => outbox.command(Command::SetRoute(Box::new(route))),
            (Some(_), None) => outbox.command(Command::RemoveRoute(route_id)),
            (None, None) => {}
        }
    }
}

/// The end of the permission for a channel's peer; the epoch if there is no live one.
fn permitted_until(permissions: &Permissions, channel: &Channel, now: Instant) -> Instant {
    permissions.live(channel.peer.ip(), now).map_or(Instant::ZERO, |found| found.expires)
}

/// Whether ChannelData with this number is understood: a reload may have given up on the clients
/// that bound it.
fn is_accepted(policy: &Policy, number: ChannelNumber) -> bool {
    policy.rfc5766_clients || ChannelNumber::new(number.get()).is_some()
}
