//! Channel bindings of an allocation (RFC 8656 §12). A number represents one peer address and port,
//! and a peer has one number.

use alloc::vec::Vec;

use stun_wire::ChannelNumber;
use turn_types::{Instant, PeerAddr};

use super::permission::insert_sparingly;
use crate::io::InstalledRoute;
use crate::policy::peers::OwnPorts;

#[derive(Clone, Debug)]
pub(crate) struct Channel {
    pub(crate) number: ChannelNumber,
    pub(crate) peer: PeerAddr,
    pub(crate) expires: Instant,
    pub(crate) own: OwnPorts,
    /// True if the next data installs the route. False without a kernel path.
    pub(crate) awaits_data: bool,
    /// Route, as last installed or updated; `None` if the channel has no route.
    pub(crate) route: Option<InstalledRoute>,
}

/// Error of a binding: the number is bound to another peer, or the peer to another number (RFC 8656
/// §12.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict;

/// Channels sorted by number, with a second index sorted by peer. Packets from the client name the
/// number, and packets from peers have the address.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    by_number: Vec<Channel>,
    by_peer: Vec<(PeerAddr, u16)>,
}

impl Channels {
    /// Returns the binding of a number, unless the binding has expired.
    pub(crate) fn of_number(&self, number: u16, now: Instant) -> Option<&Channel> {
        self.find(number).ok().map(|at| &self.by_number[at]).filter(|found| now < found.expires)
    }

    /// Returns the binding of a peer, unless the binding has expired.
    pub(crate) fn of_peer(&self, peer: PeerAddr, now: Instant) -> Option<&Channel> {
        let at = self.by_peer.binary_search_by(|entry| entry.0.cmp(&peer)).ok()?;
        self.of_number(self.by_peer[at].1, now)
    }

    /// Checks that `number` and `peer` may be bound to each other at `now`.
    ///
    /// # Errors
    /// [`Conflict`] if the number is bound to another peer, or the peer to another number.
    pub(crate) fn check(
        &self,
        number: ChannelNumber,
        peer: PeerAddr,
        now: Instant,
    ) -> Result<(), Conflict> {
        let other_peer = self.of_number(number.get(), now).is_some_and(|found| found.peer != peer);
        let other_number = self.of_peer(peer, now).is_some_and(|found| found.number != number);
        if other_peer || other_number { Err(Conflict) } else { Ok(()) }
    }

    /// Binds a channel that [`Self::check`] permits, or extends an existing binding of the same
    /// number and peer. Otherwise conflicting bindings, which have expired, are first removed and
    /// passed to `gone`.
    pub(crate) fn bind(&mut self, channel: Channel, gone: impl FnMut(&Channel)) {
        let (number, peer) = (channel.number, channel.peer);
        if let Ok(at) = self.find(number.get())
            && self.by_number[at].peer == peer
        {
            let Channel { awaits_data, route, .. } = self.by_number[at];
            self.by_number[at] = Channel { awaits_data, route, ..channel };
            return;
        }
        self.retain(|found| found.number != number && found.peer != peer, gone);
        let at = self.find(number.get()).unwrap_or_else(|at| at);
        insert_sparingly(&mut self.by_number, at, channel);
        let at = self.by_peer.binary_search_by(|entry| entry.0.cmp(&peer)).unwrap_or_else(|at| at);
        insert_sparingly(&mut self.by_peer, at, (peer, number.get()));
    }

    /// Restores exported bindings, which must be sorted by number and have distinct peers.
    pub(crate) fn restore(channels: impl Iterator<Item = Channel>) -> Self {
        let by_number: Vec<_> = channels.collect();
        let peer = |channel: &Channel| (channel.peer, channel.number.get());
        let mut by_peer: Vec<_> = by_number.iter().map(peer).collect();
        by_peer.sort_unstable();
        Self { by_number, by_peer }
    }

    /// Keeps the channels for which `keep` returns true, and passes the removed channels to `gone`.
    pub(crate) fn retain(
        &mut self,
        mut keep: impl FnMut(&mut Channel) -> bool,
        mut gone: impl FnMut(&Channel),
    ) {
        let before = self.by_number.len();
        let removed = self.by_number.extract_if(.., |channel| !keep(channel));
        removed.for_each(|channel| gone(&channel));
        if self.by_number.len() != before {
            let left = &self.by_number;
            self.by_peer.retain(|(_, number)| {
                left.binary_search_by(|c| c.number.get().cmp(number)).is_ok()
            });
        }
    }

    /// Returns the binding of a number for changes. The caller must not change number and peer.
    pub(crate) fn get_mut(&mut self, number: u16) -> Option<&mut Channel> {
        self.find(number).ok().map(|at| &mut self.by_number[at])
    }

    /// Returns all channels sorted by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.by_number.iter()
    }

    /// Returns all channels sorted by number, for changes. The caller must not change number and
    /// peer.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.by_number.iter_mut()
    }

    /// Returns the number of channels, including expired channels that are not reclaimed yet.
    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Returns the earliest expiry.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.by_number.iter().map(|channel| channel.expires).min()
    }

    fn find(&self, number: u16) -> Result<usize, usize> {
        self.by_number.binary_search_by(|channel| channel.number.get().cmp(&number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    const END: Instant = Instant::from_nanos(600_000_000_000);

    fn peer(port: u16) -> PeerAddr {
        PeerAddr((([198, 51, 100, 7]), port).into())
    }

    fn number(raw: u16) -> ChannelNumber {
        ChannelNumber::new(raw).unwrap()
    }

    fn channel(raw: u16, port: u16, expires: Instant) -> Channel {
        let (number, peer) = (number(raw), peer(port));
        Channel { number, peer, expires, own: None, awaits_data: false, route: None }
    }

    fn bound(pairs: &[(u16, u16)]) -> Channels {
        let mut channels = Channels::default();
        for &(raw, port) in pairs {
            channels.bind(channel(raw, port, END), |gone| panic!("{gone:?}"));
        }
        channels
    }

    #[test]
    fn is_found_from_both_sides_until_its_end() {
        let channels = bound(&[(0x4002, 9), (0x4000, 5), (0x4001, 7)]);
        let before = Instant::from_nanos(END.as_nanos() - 1);
        assert_eq!(channels.of_number(0x4001, before).unwrap().peer, peer(7));
        assert_eq!(channels.of_peer(peer(9), before).unwrap().number, number(0x4002));
        assert!(channels.of_number(0x4001, END).is_none());
        assert!(channels.of_peer(peer(9), END).is_none());
        assert!(channels.of_peer(peer(8), before).is_none());
    }

    #[test]
    fn one_number_one_peer() {
        let channels = bound(&[(0x4000, 5), (0x4001, 7)]);
        let now = Instant::ZERO;
        assert_eq!(channels.check(number(0x4000), peer(5), now), Ok(()));
        assert_eq!(channels.check(number(0x4000), peer(6), now), Err(Conflict));
        assert_eq!(channels.check(number(0x4002), peer(5), now), Err(Conflict));
        assert_eq!(channels.check(number(0x4000), peer(7), now), Err(Conflict));
        assert_eq!(channels.check(number(0x4000), peer(6), END), Ok(()), "free once it ran out");
    }

    #[test]
    fn rebinding_leaves_no_trace_of_what_ran_out() {
        let mut channels = bound(&[(0x4000, 5), (0x4001, 7)]);
        let later = END + Duration::from_secs(600);
        let mut gone = Vec::new();
        channels.bind(channel(0x4000, 7, later), |channel| gone.push(channel.number.get()));
        assert_eq!(gone, [0x4000, 0x4001]);
        assert_eq!(channels.of_peer(peer(7), END).unwrap().number, number(0x4000));
        assert!(channels.of_peer(peer(5), Instant::ZERO).is_none());
        assert!(channels.of_number(0x4001, Instant::ZERO).is_none());
        assert_eq!(channels.len(), 1);
    }
}
