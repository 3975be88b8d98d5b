//! Life of an allocation after the Allocate: refresh, expiry, and removal.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use turn_types::{ConnectionId, FiveTuple, Instant, IpFamily, Now};

use super::allocations::{Allocations, Slot};
use super::connection::Phase;
use super::outbox::Outbox;
use super::routes;
use crate::credentials::Grant;
use crate::io::{EndReason, Notice, RefreshRequest, Refusal, TcpCommand};
use crate::limits::CONFIRMED_FOR;
use crate::policy::{Lifetimes, Policy};

impl Allocations {
    /// Returns the allocation of a 5-tuple, and removes an expired allocation instead.
    pub(crate) fn live_slot(
        &mut self,
        now: Instant,
        five_tuple: &FiveTuple,
        outbox: &mut Outbox,
    ) -> Option<Slot> {
        let slot = self.of_client(five_tuple)?;
        // Expire also a single socket of a dual allocation, because its channels must not conflict
        // with new channels.
        if self.get(slot).sockets.iter().flatten().any(|socket| socket.expires <= now) {
            self.expire(slot, now, outbox);
        }
        self.of_client(five_tuple)
    }

    /// Removes an allocation with all permissions, channels, relay sockets, ports and the slot in
    /// the quota (RFC 8656 §6).
    pub(crate) fn end(&mut self, slot: Slot, now: Instant, reason: EndReason, outbox: &mut Outbox) {
        let mut allocation = self.remove(slot, outbox);
        outbox.ended(&allocation, reason, now);
        for socket in allocation.sockets.iter_mut().filter_map(Option::take) {
            outbox.close_socket(socket);
        }
    }

    /// Removes the expired parts of an allocation, or the complete allocation. Returns true if the
    /// allocation is live.
    pub(crate) fn expire(&mut self, slot: Slot, now: Instant, outbox: &mut Outbox) -> bool {
        if !self.get(slot).is_live(now) {
            self.end(slot, now, EndReason::Expired, outbox);
            return false;
        }
        self.retain_sockets(slot, outbox, |_, expires| now < expires);
        self.reclaim(slot, now, outbox);
        self.close_overdue_connections(slot, now, outbox);
        self.arm(slot);
        true
    }

    /// Closes the relay sockets for which `keep` returns false. `keep` receives the local address
    /// and the expiry.
    pub(super) fn retain_sockets(
        &mut self,
        slot: Slot,
        outbox: &mut Outbox,
        keep: impl Fn(IpAddr, Instant) -> bool,
    ) {
        for family in IpFamily::ALL {
            let socket = &self.get(slot).sockets[family.index()];
            if socket.as_ref().is_some_and(|socket| !keep(socket.local.ip(), socket.expires)) {
                self.close_socket(slot, family, outbox);
            }
        }
    }

    /// Closes the relay socket of a family, with the permissions, channels and connections of this
    /// family.
    fn close_socket(&mut self, slot: Slot, family: IpFamily, outbox: &mut Outbox) {
        if let Some(socket) = self.remove_socket(slot, family, outbox) {
            outbox.close_socket(socket);
        }
    }

    /// Refreshes or removes an allocation or a single relayed address (RFC 8656 §8.2). Returns the
    /// new lifetime.
    pub(crate) fn refresh(
        &mut self,
        policy: &Policy,
        now: Now,
        slot: Slot,
        grant: &Grant,
        request: RefreshRequest,
        outbox: &mut Outbox,
    ) -> Result<Duration, Refusal> {
        if let Some(family) = request.family {
            let socket = self.get(slot).socket(family, now.instant);
            socket.ok_or(Refusal::PeerFamilyMismatch)?;
        }
        if request.lifetime == Some(0) {
            self.delete(slot, now.instant, request.family, outbox);
            return Ok(Duration::ZERO);
        }
        let lifetimes = policy.of(&grant.realm).lifetimes;
        let lifetime = grant.at_most(lifetimes.granted(request.lifetime), now.unix);
        let allocation = self.get_mut(slot);
        // Only the grant of the allocation contains the limits of the authorizer.
        let lifetime = allocation.grant.limited(lifetime);
        allocation.grant.renew(grant);
        let is_first_in_second = allocation.history.refreshed(now.instant);
        for (family, socket) in IpFamily::ALL.into_iter().zip(&mut allocation.sockets) {
            let meant = request.family.is_none_or(|only| only == family);
            if let Some(socket) = socket
                && meant
                && now.instant < socket.expires
            {
                socket.expires = now.instant + lifetime;
            }
        }
        if policy.tell_refreshes && is_first_in_second {
            let record = Box::new(allocation.record(None));
            outbox.notice(Notice::AllocationRefreshed(record));
        }
        self.arm(slot);
        Ok(lifetime)
    }

    /// Records that the user database has refuted the keys of an allocation. Requests do not wait
    /// for the look-up, so this removes the permissions and channels granted since the confirmation
    /// was due.
    pub(crate) fn refute(&mut self, policy: &Policy, slot: Slot, outbox: &mut Outbox) {
        let allocation = self.get_mut(slot);
        allocation.grant.is_refuted = true;
        allocation.confirm_again = None;
        let due = allocation.confirmed + CONFIRMED_FOR;
        let Lifetimes { permission, channel, .. } = *policy.of(&allocation.grant.realm).lifetimes;
        self.retain_channels(slot, outbox, |one| one.expires < due + channel);
        self.retain_permissions(slot, |one| one.expires < due + permission);
        // Bound connections remain, because the user database has judged each ConnectionBind.
        self.retain_connections(slot, outbox, |one| one.phase == Phase::Bound);
        // Copies of the allocation must receive the change.
        self.arm(slot);
    }

    fn delete(&mut self, slot: Slot, now: Instant, family: Option<IpFamily>, outbox: &mut Outbox) {
        let keeps = |family: IpFamily| self.get(slot).socket(family.other(), now).is_some();
        match family {
            Some(family) if keeps(family) => {
                self.close_socket(slot, family, outbox);
                self.arm(slot);
            }
            Some(_) | None => self.end(slot, now, EndReason::Deleted, outbox),
        }
    }

    /// Installs, updates and withdraws the routes of an allocation after a change. An allocation
    /// gets no routes before its review by the current policy.
    pub(crate) fn update_routes(
        &mut self,
        policy: &Policy,
        now: Instant,
        slot: Slot,
        outbox: &mut Outbox,
    ) {
        if self.has_routes() && self.is_reviewed(slot) {
            routes::update(self.get_mut(slot), policy, now, outbox);
        }
    }

    /// Closes overdue connections. A connection in the phase `Connecting` is only abandoned here.
    /// An event reports the end of the connection.
    fn close_overdue_connections(&mut self, slot: Slot, now: Instant, outbox: &mut Outbox) {
        let connections = self.get(slot).connections.iter();
        let overdue: Vec<_> = connections
            .filter(|connection| connection.is_overdue(now))
            .map(|connection| (connection.id, connection.phase))
            .collect();
        for (id, phase) in overdue {
            match phase {
                Phase::Connecting => {
                    if let Some(connection) = self.get_mut(slot).connections.get_mut(id) {
                        connection.deadline = None;
                    }
                    outbox.tcp(TcpCommand::Close { connection: id });
                }
                Phase::Unbound => self.close_connection(id, outbox),
                Phase::Bound => {}
            }
        }
    }

    /// Closes a connection, if the number exists.
    pub(crate) fn close_connection(&mut self, id: ConnectionId, outbox: &mut Outbox) {
        if self.remove_connection(id) {
            outbox.tcp(TcpCommand::Close { connection: id });
        }
    }
}
