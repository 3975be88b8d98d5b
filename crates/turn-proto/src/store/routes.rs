//! Routes of bound channels. A route says no more than `relay.rs` would do; without any, nothing is
//! different but the speed.
//!
//! They are found by comparison: after any change of an allocation its routes are made anew, and
//! differences are updated. So a change does not need to know which routes it affects. The route of
//! a channel that is removed is withdrawn at once ([`Outbox::withdraw_route`]), hence before its
//! relay socket is closed.

use alloc::boxed::Box;

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
    let Allocation { id, path, attached, sockets, permissions, channels, to_peer, .. } = allocation;
    // Without a path of the client there is nothing to forward to.
    if !*attached {
        return;
    }
    for channel in channels.iter_mut() {
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
