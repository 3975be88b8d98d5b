//! Routes of bound channels. A route relays only packets that `relay.rs` would relay. Without
//! routes only the speed differs.
//!
//! A channel has no route before the first relayed data. The kernel path has a slot for each route,
//! while binding channels costs a client nothing.
//!
//! Changes are found by comparison. After any change of an allocation, all routes of the allocation
//! are computed again, and differences are updated. A change therefore does not need to determine
//! the affected routes. The route of a removed channel is withdrawn immediately
//! ([`Outbox::withdraw_route`]), so the withdrawal precedes the close of the relay socket.

use alloc::boxed::Box;
use core::mem;

use stun_wire::ChannelNumber;
use turn_types::Instant;

use super::allocation::Allocation;
use super::channel::Channel;
use super::outbox::Outbox;
use super::permission::Permissions;
use crate::io::{Command, InstalledRoute, Route, RouteId};
use crate::policy::Policy;

/// Installs, updates and withdraws the routes of an allocation.
pub(crate) fn update(
    allocation: &mut Allocation,
    policy: &Policy,
    now: Instant,
    outbox: &mut Outbox,
) {
    // Without a path of the client, packets have no destination.
    if !allocation.attached {
        return;
    }
    let mut channels = mem::take(&mut allocation.channels);
    for channel in channels.iter_mut().filter(|channel| !channel.awaits_data) {
        update_one(allocation, channel, policy, now, outbox);
    }
    allocation.channels = channels;
}

/// Installs the route of a channel at the channel's first data.
#[cold]
pub(crate) fn install(
    allocation: &mut Allocation,
    channel: u16,
    policy: &Policy,
    now: Instant,
    outbox: &mut Outbox,
) {
    let mut channels = mem::take(&mut allocation.channels);
    if let Some(channel) = channels.get_mut(channel) {
        channel.awaits_data = false;
        update_one(allocation, channel, policy, now, outbox);
    }
    allocation.channels = channels;
}

/// Installs, updates or withdraws the route of a channel of an attached allocation. The caller has
/// moved the channels out of the allocation.
fn update_one(
    allocation: &Allocation,
    channel: &mut Channel,
    policy: &Policy,
    now: Instant,
    outbox: &mut Outbox,
) {
    let Allocation { id, path, sockets, permissions, to_peer, .. } = allocation;
    let route_id = RouteId { allocation: *id, channel: channel.number.get() };
    let socket = sockets[channel.peer.family().index()].as_ref();
    let route = socket.map(|socket| Route {
        id: route_id,
        five_tuple: path.five_tuple,
        relay: socket.relay,
        relayed: socket.local,
        peer: channel.peer,
        own: channel.own.is_some(),
        to_peer_until: channel.expires.min(socket.expires),
        to_client_until: permitted_until(permissions, channel, now)
            .min(channel.expires)
            .min(socket.expires),
        bytes_per_second: to_peer.rate(),
    });
    let wanted =
        route.filter(|route| now < route.to_peer_until && is_accepted(policy, channel.number));
    let installed = channel.route;
    channel.route = wanted.as_ref().map(InstalledRoute::of);
    match (installed, wanted) {
        (Some(installed), Some(route)) if installed.is_current(&route, now) => {}
        (_, Some(route)) => outbox.command(Command::SetRoute(Box::new(route))),
        (Some(_), None) => outbox.command(Command::RemoveRoute(route_id)),
        (None, None) => {}
    }
}

/// Returns the expiry of the permission for a channel's peer; the epoch without a live permission.
fn permitted_until(permissions: &Permissions, channel: &Channel, now: Instant) -> Instant {
    permissions.live(channel.peer.ip(), now).map_or(Instant::ZERO, |found| found.expires)
}

/// Returns true if ChannelData with this number is accepted. A reload may have disabled support for
/// the clients that bound the number.
fn is_accepted(policy: &Policy, number: ChannelNumber) -> bool {
    policy.rfc5766_clients || ChannelNumber::new(number.get()).is_some()
}
