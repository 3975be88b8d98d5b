//! Refreshes of the allocation, permissions and channels.
//!
//! Permissions and channels are first recorded, and requested when an allocation exists and the
//! number of requests in flight permits. They are refreshed before expiry, and a loss is reported.

use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use stun_wire::ChannelNumber;
use turn_types::{Instant, IpFamily, PeerAddr, RelayedAddr};

use crate::allocation::Allocation;
use crate::limits::{JOIN_WITHIN, PEERS_PER_REQUEST_MAX, REFRESH_MARGIN, RETRY_AFTER};
use crate::transaction::Purpose;

/// Lifetime of the allocation, a permission or a channel, and the time of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Earliest expiry at the server; `None` before the first grant.
    expires: Option<Instant>,
    due: Instant,
    pub(crate) in_flight: bool,
}

impl Lease {
    const fn wanted(now: Instant) -> Self {
        Self { expires: None, due: now, in_flight: false }
    }

    /// Records a grant for `lifetime` by a request first sent at `started`. Returns true for the
    /// first grant.
    fn granted(&mut self, started: Instant, lifetime: Duration) -> bool {
        let news = self.expires.is_none();
        self.expires = Some(started + lifetime);
        self.due = started + lifetime.saturating_sub(REFRESH_MARGIN.min(lifetime / 2));
        self.in_flight = false;
        news
    }

    /// Records a failed request. Returns true if the earlier grant still exists, and another
    /// attempt is useful.
    fn not_granted(&mut self, now: Instant) -> bool {
        self.in_flight = false;
        self.due = now + RETRY_AFTER;
        self.expires.is_some()
    }

    const fn is_granted(&self) -> bool {
        self.expires.is_some()
    }

    fn is_due(&self, by: Instant) -> bool {
        !self.in_flight && self.due <= by
    }

    fn has_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    fn next_expiry(&self) -> Option<Instant> {
        self.expires
    }

    fn next_due(&self) -> Option<Instant> {
        (!self.in_flight).then_some(self.due)
    }
}

#[derive(Clone, Copy, Debug)]
struct Permission {
    peer: IpAddr,
    lease: Lease,
    /// True if the permission is requested separately, after the refusal of a request for several.
    alone: bool,
}

#[derive(Clone, Copy, Debug)]
struct Channel {
    peer: PeerAddr,
    /// `None` if the channel is not refreshed any more. The number remains reserved for the peer,
    /// because for five minutes neither may be bound to another (RFC 8656 §12).
    lease: Option<Lease>,
}

/// State that expired, because no refresh succeeded in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    Allocation,
    Permission(IpAddr),
    Channel(ChannelNumber, PeerAddr),
}

/// State that must be refreshed.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    allocation: Option<Allocation>,
    /// Expiry of each relayed address.
    expiries: [Option<Instant>; 2],
    lease: Option<Lease>,
    /// True while the allocation is being deleted. No refreshes are sent.
    releasing: bool,
    /// True after a change of the client's address. Until a Refresh with the ticket is granted, no
    /// other requests are sent.
    moving: bool,
    permissions: Vec<Permission>,
    /// Channels by channel number, starting at 0x4000.
    channels: Vec<Channel>,
}

impl Upkeep {
    pub(crate) const fn allocation(&self) -> Option<&Allocation> {
        self.allocation.as_ref()
    }

    /// Removes all state.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    // The allocation.

    pub(crate) fn allocated(&mut self, allocation: Allocation, started: Instant) {
        let mut lease = Lease::wanted(started);
        lease.granted(started, allocation.lifetime);
        self.expiries = allocation.relayed.map(|half| half.map(|_| started + allocation.lifetime));
        self.allocation = Some(allocation);
        self.lease = Some(lease);
        self.releasing = false;
    }

    /// Records a change of the client's address. Returns false without an allocation.
    pub(crate) const fn moved(&mut self, now: Instant) -> bool {
        let Some(lease) = &mut self.lease else { return false };
        lease.due = now;
        lease.in_flight = false;
        self.moving = true;
        true
    }

    /// Records the server's response to a Refresh with the ticket.
    pub(crate) const fn move_answered(&mut self) {
        self.moving = false;
    }

    pub(crate) const fn release(&mut self) {
        self.releasing = true;
    }

    pub(crate) const fn refreshing(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.in_flight = true;
        }
    }

    /// Records a granted Refresh of one relayed address or of all. Returns false if no address
    /// remains.
    pub(crate) fn refreshed(
        &mut self,
        started: Instant,
        half: Option<IpFamily>,
        lifetime: Duration,
    ) -> bool {
        let (Some(allocation), Some(lease)) = (&mut self.allocation, &mut self.lease) else {
            return false;
        };
        for family in IpFamily::ALL {
            let at = family as usize;
            if self.expiries[at].is_none() || half.is_some_and(|half| half != family) {
                continue;
            }
            self.expiries[at] = (!lifetime.is_zero()).then_some(started + lifetime);
            allocation.relayed[at] =
                allocation.relayed[at].filter(|_: &RelayedAddr| !lifetime.is_zero());
        }
        lease.in_flight = false;
        let live = || self.expiries.iter().flatten().copied();
        let (Some(first), Some(last)) = (live().min(), live().max()) else { return false };
        // Due before the first address expires; lost when the last address expires.
        lease.granted(started, first.saturating_since(started));
        lease.expires = Some(last);
        allocation.lifetime = last.saturating_since(started);
        true
    }

    pub(crate) fn refresh_not_granted(&mut self, now: Instant) {
        if let Some(lease) = &mut self.lease {
            lease.not_granted(now);
        }
    }

    // Permissions.

    pub(crate) fn permission_count(&self) -> usize {
        self.permissions.len()
    }

    /// Returns true if this client requested the permission, which may then be installed.
    pub(crate) fn wants_permission(&self, peer: IpAddr) -> bool {
        self.permissions.iter().any(|permission| permission.peer == peer)
    }

    pub(crate) fn is_permitted(&self, peer: IpAddr) -> bool {
        self.permission(peer).is_some_and(|permission| permission.lease.is_granted())
    }

    pub(crate) fn want_permission(&mut self, now: Instant, peer: IpAddr) {
        if !self.wants_permission(peer) {
            self.permissions.push(Permission { peer, lease: Lease::wanted(now), alone: false });
        }
    }

    pub(crate) fn drop_permission(&mut self, peer: IpAddr) {
        self.permissions.retain(|permission| permission.peer != peer);
    }

    /// Records a granted permission. Returns true for the first grant.
    pub(crate) fn permission_granted(
        &mut self,
        peer: IpAddr,
        started: Instant,
        lifetime: Duration,
    ) -> bool {
        self.permission_mut(peer)
            .is_some_and(|permission| permission.lease.granted(started, lifetime))
    }

    /// Records a failed request for these permissions. If the server `refused` a request for
    /// several, each is requested again separately, since any of them may have caused the refusal.
    /// Otherwise only installed permissions are retained.
    pub(crate) fn permissions_not_granted(
        &mut self,
        now: Instant,
        peers: &[IpAddr],
        refused: bool,
    ) {
        let again = refused && peers.len() > 1;
        for peer in peers {
            let Some(permission) = self.permission_mut(*peer) else { continue };
            let held = permission.lease.not_granted(now);
            if again {
                permission.alone = true;
                permission.lease.due = now;
            } else if !held {
                self.drop_permission(*peer);
            }
        }
    }

    fn permission(&self, peer: IpAddr) -> Option<&Permission> {
        self.permissions.iter().find(|permission| permission.peer == peer)
    }

    fn permission_mut(&mut self, peer: IpAddr) -> Option<&mut Permission> {
        self.permissions.iter_mut().find(|permission| permission.peer == peer)
    }

    // Channels.

    /// Returns the channel number of the peer, and starts refreshes. A peer without a number gets a
    /// new one.
    pub(crate) fn want_channel(&mut self, now: Instant, peer: PeerAddr) -> Option<ChannelNumber> {
        let at = match self.channels.iter().position(|channel| channel.peer == peer) {
            Some(at) => at,
            None => {
                number_at(self.channels.len())?;
                self.channels.push(Channel { peer, lease: None });
                self.channels.len() - 1
            }
        };
        self.channels[at].lease.get_or_insert_with(|| Lease::wanted(now));
        number_at(at)
    }

    pub(crate) fn drop_channel(&mut self, number: ChannelNumber) {
        if let Some(channel) = self.channel_mut(number) {
            channel.lease = None;
        }
    }

    /// Records a granted channel. Returns true for the first grant.
    pub(crate) fn channel_granted(
        &mut self,
        number: ChannelNumber,
        started: Instant,
        lifetime: Duration,
    ) -> bool {
        let lease = self.channel_mut(number).and_then(|channel| channel.lease.as_mut());
        lease.is_some_and(|lease| lease.granted(started, lifetime))
    }

    pub(crate) fn channel_not_granted(&mut self, now: Instant, number: ChannelNumber) {
        if let Some(channel) = self.channel_mut(number) {
            channel.lease = channel.lease.filter(Lease::is_granted);
            if let Some(lease) = &mut channel.lease {
                lease.not_granted(now);
            }
        }
    }

    /// Returns the peer that a channel is, or may already be, bound to.
    pub(crate) fn channel_peer(&self, number: u16) -> Option<PeerAddr> {
        let at = usize::from(number.checked_sub(ChannelNumber::MIN.get())?);
        self.channels.get(at).filter(|channel| channel.lease.is_some()).map(|channel| channel.peer)
    }

    /// Returns the channel bound to a peer.
    pub(crate) fn channel_of(&self, peer: PeerAddr) -> Option<ChannelNumber> {
        let bound = |channel: &Channel| {
            channel.peer == peer && channel.lease.is_some_and(|lease| lease.is_granted())
        };
        self.channels.iter().position(bound).and_then(number_at)
    }

    fn channel_mut(&mut self, number: ChannelNumber) -> Option<&mut Channel> {
        self.channels.get_mut(usize::from(number.get() - ChannelNumber::MIN.get()))
    }

    // Time.

    /// Returns the next request to send, and marks the lease as in flight.
    pub(crate) fn next_due(&mut self, now: Instant, lifetime_secs: Option<u32>) -> Option<Purpose> {
        if self.releasing {
            return None;
        }
        let lease = self.lease.as_mut()?;
        if lease.is_due(now) {
            lease.in_flight = true;
            return Some(if self.moving {
                Purpose::Move { lifetime_secs }
            } else {
                Purpose::Refresh { half: None, lifetime_secs }
            });
        }
        if self.moving {
            return None;
        }
        self.due_channel(now).or_else(|| self.due_permissions(now))
    }

    fn due_channel(&mut self, now: Instant) -> Option<Purpose> {
        let due = |channel: &Channel| channel.lease.is_some_and(|lease| lease.is_due(now));
        let at = self.channels.iter().position(due)?;
        let channel = &mut self.channels[at];
        channel.lease.as_mut()?.in_flight = true;
        Some(Purpose::ChannelBind { channel: number_at(at)?, peer: channel.peer })
    }

    fn due_permissions(&mut self, now: Instant) -> Option<Purpose> {
        let first = self.permissions.iter().position(|one| one.lease.is_due(now))?;
        let alone = self.permissions[first].alone;
        let mut peers = Vec::new();
        for permission in &mut self.permissions[first..] {
            let joins = permission.lease.is_due(now + JOIN_WITHIN) && !permission.alone;
            if (peers.is_empty() || (joins && !alone)) && peers.len() < PEERS_PER_REQUEST_MAX {
                permission.lease.in_flight = true;
                peers.push(permission.peer);
            }
        }
        Some(Purpose::CreatePermission { peers })
    }

    /// Removes and returns the next expired state.
    pub(crate) fn next_lost(&mut self, now: Instant) -> Option<Lost> {
        if self.lease.is_some_and(|lease| lease.has_expired(now)) {
            self.clear();
            return Some(Lost::Allocation);
        }
        if let Some(at) = self.permissions.iter().position(|one| one.lease.has_expired(now)) {
            return Some(Lost::Permission(self.permissions.remove(at).peer));
        }
        let lost = |channel: &Channel| channel.lease.is_some_and(|lease| lease.has_expired(now));
        let at = self.channels.iter().position(lost)?;
        self.channels[at].lease = None;
        Some(Lost::Channel(number_at(at)?, self.channels[at].peer))
    }

    /// Returns the time of the next result of [`Upkeep::next_due`] or [`Upkeep::next_lost`]. If no
    /// further request can be sent, only losses are considered.
    pub(crate) fn next_at(&self, room: bool) -> Option<Instant> {
        let lease = self.lease.as_ref()?;
        let leases = || {
            let permissions = self.permissions.iter().map(|permission| &permission.lease);
            let channels = self.channels.iter().filter_map(|channel| channel.lease.as_ref());
            core::iter::once(lease).chain(permissions).chain(channels)
        };
        let lost = leases().filter_map(Lease::next_expiry).min();
        let due = match (room && !self.releasing, self.moving) {
            (true, false) => leases().filter_map(Lease::next_due).min(),
            (true, true) => lease.next_due(),
            (false, _) => None,
        };
        [lost, due].into_iter().flatten().min()
    }
}

/// Returns the channel number at this index of the table.
fn number_at(at: usize) -> Option<ChannelNumber> {
    let at = u16::try_from(at).ok()?;
    ChannelNumber::new(ChannelNumber::MIN.get().checked_add(at)?)
}
