//! Routes of bound channels. A route says no more than `relay.rs` would do; without any, nothing is
//! different but the speed.
//!
//! A channel has no route before data was relayed by it: the kernel path has a slot for each route,
//! and binding channels costs a client nothing.
//!
//! They are found by comparison: after any change of an allocation its routes are made anew, and
//! differences are updated. So a change does not need to know which routes it affects. The route of
//! a channel that is removed is withdrawn at once ([`Outbox::withdraw_route`]), hence before its
//! relay socket is closed.

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
    // Without a path of the client there is nothing to forward to.
    if !allocation.attached {
        return;
    }
    let mut channels = mem::take(&mut allocation.channels);
    for channel in channels.iter_mut().filter(|channel| !channel.awaits_data) {
        update_one(allocation, channel, policy, now, outbox);
    }
    allocation.channels = channels;
}

/// Installs the route of a channel at its first data.
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

/// Installs, updates or withdraws the route of one channel of an attached allocation. The channels
/// of the allocation are with the caller.
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

/// The end of the permission for a channel's peer; the epoch if there is no live one.
fn permitted_until(permissions: &Permissions, channel: &Channel, now: Instant) -> Instant {
    permissions.live(channel.peer.ip(), now).map_or(Instant::ZERO, |found| found.expires)
}

/// Returns true if ChannelData with this number is accepted: a reload may have ended the support of
/// the clients that bound it.
fn is_accepted(policy: &Policy, number: ChannelNumber) -> bool {
    policy.rfc5766_clients || ChannelNumber::new(number.get()).is_some()
}
