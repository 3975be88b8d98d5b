//! Refreshes of the allocation, permissions and channels.
//!
//! Permissions and channels are recorded first: they are requested once there is an allocation and
//! room for a request, refreshed before they expire, and reported when they are lost.

use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use stun_wire::ChannelNumber;
use turn_types::{Instant, IpFamily, PeerAddr, RelayedAddr};

use crate::allocation::Allocation;
use crate::limits::{JOIN_WITHIN, PEERS_PER_REQUEST_MAX, REFRESH_MARGIN, RETRY_AFTER};
use crate::transaction::Purpose;

/// Lifetime of a permission or channel, and the time of its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Earliest expiry at the server; `None` before it was granted.
    expires: Option<Instant>,
    due: Instant,
    pub(crate) in_flight: bool,
}

impl Lease {
    const fn wanted(now: Instant) -> Self {
        Self { expires: None, due: now, in_flight: false }
    }

    /// Granted for `lifetime` by a request first sent at `started`. Returns whether that is news.
    fn granted(&mut self, started: Instant, lifetime: Duration) -> bool {
        let news = self.expires.is_none();
        self.expires = Some(started + lifetime);
        self.due = started + lifetime.saturating_sub(REFRESH_MARGIN.min(lifetime / 2));
        self.in_flight = false;
        news
    }

    /// Not granted. Returns whether it is still held, and so worth another try.
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
    /// Requested alone, after a request for several was refused.
    alone: bool,
}

#[derive(Clone, Copy, Debug)]
struct Channel {
    peer: PeerAddr,
    /// `None`: no longer refreshed. The number stays reserved for the peer, because for five
    /// minutes neither may be bound to another (RFC 8656 §12).
    lease: Option<Lease>,
}

/// Something that ended because it was not refreshed in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    Allocation,
    Permission(IpAddr),
    Channel(ChannelNumber, PeerAddr),
}

/// All refreshed state.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    allocation: Option<Allocation>,
    /// Expiry of each relayed address.
    expiries: [Option<Instant>; 2],
    lease: Option<Lease>,
    /// The allocation is being deleted: nothing is refreshed any more.
    releasing: bool,
    /// The client's address has changed: until a Refresh by ticket is granted, nothing else is
    /// requested.
    moving: bool,
    permissions: Vec<Permission>,
    /// By channel number, from 0x4000 on.
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

    /// The client's address has changed. Returns false without an allocation.
    pub(crate) const fn moved(&mut self, now: Instant) -> bool {
        let Some(lease) = &mut self.lease else { return false };
        lease.due = now;
        lease.in_flight = false;
        self.moving = true;
        true
    }

    /// The server has answered a Refresh by ticket.
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

    /// A Refresh of one half or of all was granted. Returns false when nothing is left.
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
        // Due by the address that expires first; lost with the one that expires last.
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

    /// True if this client requested the permission, so that it may be installed.
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

    /// Returns whether the permission is new.
    pub(crate) fn permission_granted(
        &mut self,
        peer: IpAddr,
        started: Instant,
        lifetime: Duration,
    ) -> bool {
        self.permission_mut(peer)
            .is_some_and(|permission| permission.lease.granted(started, lifetime))
    }

    /// Handles a failed request for these. If the server `refused` several, they are requested
    /// again one by one, since one of them may have caused it; otherwise only the installed ones
    /// are kept.
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

    /// The number that belongs to the peer, wanted from now on; a fresh one when it has none.
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

    /// Returns whether the channel is new.
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

    /// Peer that a channel is, or may already be, bound to.
    pub(crate) fn channel_peer(&self, number: u16) -> Option<PeerAddr> {
        let at = usize::from(number.checked_sub(ChannelNumber::MIN.get())?);
        self.channels.get(at).filter(|channel| channel.lease.is_some()).map(|channel| channel.peer)
    }

    /// The channel that is bound to a peer.
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

    /// Takes the next request to make, and marks it as in flight.
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

    /// Removes and returns the next state that expired.
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

    /// Time of the next item of [`Upkeep::next_due`] or [`Upkeep::next_lost`]. Without room for
    /// another request only losses count.
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

/// The channel number at this index of the table.
fn number_at(at: usize) -> Option<ChannelNumber> {
    let at = u16::try_from(at).ok()?;
    ChannelNumber::new(ChannelNumber::MIN.get().checked_add(at)?)
}
