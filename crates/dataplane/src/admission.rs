//! Connection limits and output queue memory, shared by all workers.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fair_share::{CLIENTS, Claimant, Share, Shortage, Slots, system_hasher};

use turn_types::SocketId;

use crate::limits::{
    BACKLOGS_BYTES, EVICTABLE_AFTER, NAMED_WITHIN, OWN_CONNECTIONS_BEYOND_LIMITS,
    STREAM_BACKLOG_BYTES, STREAM_BACKLOG_BYTES_MIN,
};

/// Limits of connections. A limit of 0 means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum number of all connections.
    pub total: u32,
    /// Maximum number of connections of one [customer](turn_types::Prefix::customer).
    pub per_address: u32,
}

/// Part of the free memory for output queues that one connection's queue may use, as a divisor.
const BACKLOG_PART: usize = 64;

/// Counters of connections. The lock is taken when a connection opens or closes, never for a
/// packet.
#[derive(Debug)]
pub struct Admission {
    limits: ConnectionLimits,
    counts: Mutex<Counts>,
    /// Number of bytes of all output queues.
    backlogs: AtomicUsize,
}

#[derive(Debug)]
struct Counts {
    /// Number of connections with an unknown client.
    unknown: u32,
    /// Slots of connections with a known client.
    known: Slots,
}

/// Permit of one connection. Dropping the permit frees the connection's slot.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    /// Slot of the client. `None` until a load balancer has named the client.
    client: Option<Share>,
    /// Number of bytes of the connection's output queue.
    backlog: usize,
}

/// Limit that a further connection would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitReached {
    /// [`ConnectionLimits::total`] is reached.
    Total,
    /// [`ConnectionLimits::per_address`] is reached.
    Address,
    /// Few connections of [`ConnectionLimits::total`] are free, and the client's network has used
    /// up its share.
    Network,
}

/// Connection without an allocation, which may be evicted for a connection of another network.
#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) id: SocketId,
    pub(crate) permit: &'a Admitted,
    /// Time since the last message.
    pub(crate) silence: Duration,
    /// Client address, if equal to the server address of the connection.
    pub(crate) own: Option<IpAddr>,
}

impl LimitReached {
    /// Returns true for a limit that all clients compete for.
    pub(crate) const fn is_shared(self) -> bool {
        matches!(self, Self::Total | Self::Network)
    }
}

impl Admission {
    /// Creates limits with all counters at zero.
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Self {
        let capacity = if limits.total == 0 { u32::MAX } else { limits.total };
        let counts = Counts { unknown: 0, known: Slots::new(&CLIENTS, capacity, system_hasher()) };
        Self { limits, counts: Mutex::new(counts), backlogs: AtomicUsize::new(0) }
    }

    /// Returns true if each address belongs to one customer. Without a limit per address, many
    /// customers may share an address, for example through a load balancer that does not name the
    /// clients.
    pub(crate) const fn is_by_customer(&self) -> bool {
        self.limits.per_address > 0
    }

    /// Admits a client's connection.
    pub(crate) fn admit(self: &Arc<Self>, client: IpAddr) -> Result<Admitted, LimitReached> {
        let client = self.counts().admit(self.limits, client)?;
        Ok(self.permit(Some(client)))
    }

    /// Admits a connection of this host beyond the limits, such as a health check of the server.
    /// Returns `None` if this host has [`OWN_CONNECTIONS_BEYOND_LIMITS`] connections.
    pub(crate) fn admit_own(self: &Arc<Self>, own: IpAddr) -> Option<Admitted> {
        let mut counts = self.counts();
        let held = counts.known.held_by(&Claimant::at(own));
        let client = (held < OWN_CONNECTIONS_BEYOND_LIMITS).then(|| counts.keep(own))?;
        Some(self.permit(Some(client)))
    }

    /// Admits a connection with a client that is not known yet.
    pub(crate) fn admit_unknown(self: &Arc<Self>) -> Result<Admitted, LimitReached> {
        let mut counts = self.counts();
        if counts.is_full(self.limits) {
            return Err(LimitReached::Total);
        }
        counts.unknown += 1;
        Ok(self.permit(None))
    }

    /// Counts a connection without checking the limits. The connection was imported, or another
    /// connection is evicted for it. `client` is `None` if the client is not known yet.
    pub(crate) fn keep(self: &Arc<Self>, client: Option<IpAddr>) -> Admitted {
        let mut counts = self.counts();
        let client = client.map(|client| counts.keep(client));
        counts.unknown += u32::from(client.is_none());
        self.permit(client)
    }

    fn permit(self: &Arc<Self>, client: Option<Share>) -> Admitted {
        Admitted { admission: Arc::clone(self), client, backlog: 0 }
    }

    /// Returns the connection to evict for a client's new connection. `client` is `None` until a
    /// load balancer has named the client.
    ///
    /// The result is the most silent candidate of the most crowded network. That network must have
    /// more connections than the newcomer's network. With equal numbers, the candidate must have
    /// been silent for [`EVICTABLE_AFTER`]. If many customers share an address, only silence
    /// decides. A connection whose client was not named within [`NAMED_WITHIN`] is evicted first.
    ///
    /// The caller [keeps](Self::keep) the newcomer, then closes the candidate.
    pub(crate) fn rival<'a>(
        &self,
        client: Option<IpAddr>,
        candidates: impl Iterator<Item = Candidate<'a>>,
    ) -> Option<SocketId> {
        let counts = self.counts();
        let is_by_customer = self.is_by_customer();
        let client = client.filter(|_| is_by_customer);
        let before = client.map_or(0, |client| counts.known.use_before(&Claimant::at(client)));
        // Up to this number, all connections of this host are within the reserve.
        let reserves =
            |own| counts.known.held_by(&Claimant::at(own)) <= OWN_CONNECTIONS_BEYOND_LIMITS;
        let others = candidates.filter_map(|Candidate { id, permit, silence, own }| {
            if own.is_some_and(reserves) {
                return None;
            }
            let used = match &permit.client {
                None if silence < NAMED_WITHIN => return None,
                None => u64::MAX,
                Some(share) if is_by_customer => counts.known.use_beyond(share),
                Some(_) => 0,
            };
            Some((used, silence, id))
        });
        let (used, silence, id) = others.max_by_key(|(used, silence, _)| (*used, *silence))?;
        let makes_room = used > before || used == before && silence >= EVICTABLE_AFTER;
        makes_room.then_some(id)
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // No panic can interrupt an update of the counts.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    const fn is_full(&self, limits: ConnectionLimits) -> bool {
        limits.total > 0 && self.known.held() + self.unknown >= limits.total
    }

    fn admit(&mut self, limits: ConnectionLimits, client: IpAddr) -> Result<Share, LimitReached> {
        self.check(limits, client)?;
        if self.is_full(limits) {
            return Err(LimitReached::Total);
        }
        Ok(self.keep(client))
    }

    /// Checks the limits of the client and the client's network.
    fn check(&self, limits: ConnectionLimits, client: IpAddr) -> Result<(), LimitReached> {
        if limits.per_address == 0 {
            return Ok(());
        }
        let claimant = Claimant::at(client);
        if self.known.held_by(&claimant) >= limits.per_address {
            return Err(LimitReached::Address);
        }
        self.known.check(&claimant).map_err(|shortage| match shortage {
            Shortage::Table => LimitReached::Total,
            Shortage::Share => LimitReached::Network,
        })
    }

    fn keep(&mut self, client: IpAddr) -> Share {
        self.known.keep(&Claimant::at(client))
    }
}

impl Admitted {
    /// Counts the connection for the client that a load balancer has named.
    pub(crate) fn assign(&mut self, client: IpAddr) -> Result<(), LimitReached> {
        let mut counts = self.admission.counts();
        // A balancer on this host may have a slot beyond the limits.
        if let Some(balancer) = self.client.take() {
            counts.known.release(balancer);
            counts.unknown += 1;
        }
        counts.check(self.admission.limits, client)?;
        self.client = Some(counts.keep(client));
        counts.unknown -= 1;
        Ok(())
    }
}

impl Admitted {
    /// Returns the maximum number of data bytes in the connection's output queue. The maximum is
    /// [`STREAM_BACKLOG_BYTES`], and less while the queues of all connections are large. The limit
    /// is equal for all connections, regardless of the number of clients that do not read.
    pub(crate) fn backlog_max(&self) -> usize {
        let used = self.admission.backlogs.load(Ordering::Relaxed);
        let part = BACKLOGS_BYTES.saturating_sub(used) / BACKLOG_PART;
        part.clamp(STREAM_BACKLOG_BYTES_MIN, STREAM_BACKLOG_BYTES)
    }

    /// Records the memory size of the connection's output queue.
    pub(crate) fn note_backlog(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.backlog, bytes);
        if bytes != before {
            // Wraps around if the queue became smaller.
            self.admission.backlogs.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.note_backlog(0);
        let mut counts = self.admission.counts();
        match self.client.take() {
            Some(share) => counts.known.release(share),
            None => counts.unknown -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(total: u32, per_address: u32) -> Arc<Admission> {
        Arc::new(Admission::new(ConnectionLimits { total, per_address }))
    }

    /// Returns candidates numbered by position, each silent for the number of seconds given.
    fn candidates<'a>(
        permits: impl Iterator<Item = &'a Admitted>,
        seconds: impl IntoIterator<Item = u64>,
    ) -> impl Iterator<Item = Candidate<'a>> {
        permits.zip(seconds).zip(0..).map(|((permit, silence), id)| Candidate {
            id: SocketId(id),
            permit,
            silence: Duration::from_secs(silence),
            own: None,
        })
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let admission = admission(3, 2);
        let from = |address: &str| admission.admit(address.parse().unwrap());
        let first = from("192.0.2.1").unwrap();
        let _second = from("192.0.2.1").unwrap();
        assert_eq!(from("192.0.2.1").unwrap_err(), LimitReached::Address);
        let third = from("192.0.2.2").unwrap();
        assert_eq!(from("192.0.2.3").unwrap_err(), LimitReached::Total);
        drop(first);
        let again = from("192.0.2.1").unwrap();
        drop((third, again));
        assert_eq!(admission.counts().known.held(), 1);
    }

    #[test]
    fn connections_of_the_process_before_are_kept_and_count() {
        let admission = admission(2, 1);
        let kept: Vec<_> = (0..3).map(|_| admission.keep(Some([192, 0, 2, 1].into()))).collect();
        let refused = admission.admit([192, 0, 2, 2].into()).unwrap_err();
        assert_eq!(refused, LimitReached::Total);
        drop(kept);
        assert!(admission.admit([192, 0, 2, 1].into()).is_ok());
        assert_eq!(admission.counts().known.held(), 0);
    }

    #[test]
    fn a_customer_of_ipv6_has_many_addresses() {
        let admission = admission(0, 1);
        let from = |address: &str| admission.admit(address.parse().unwrap());
        let _first = from("2001:db8::1").unwrap();
        assert_eq!(from("2001:db8::ffff:1").unwrap_err(), LimitReached::Address);
        assert!(from("2001:db8:0:1::1").is_ok());
    }

    #[test]
    fn a_site_leaves_connections_to_others() {
        let admission = admission(1000, 1000);
        let from = |number: u16| format!("2001:db8:1:{number:x}::1").parse::<IpAddr>().unwrap();
        let admitted: Vec<_> = (0..2000).map(|number| admission.admit(from(number))).collect();
        assert_eq!(admitted.last().unwrap().as_ref().unwrap_err(), &LimitReached::Network);
        let count = admitted.iter().filter(|admitted| admitted.is_ok()).count();
        assert!((875..1000).contains(&count), "{count}");
        for other in ["192.0.2.1", "2001:db8:2::1", "203.0.113.1"] {
            assert!(admission.admit(other.parse().unwrap()).is_ok(), "{other}");
        }
    }

    #[test]
    fn the_most_crowded_network_makes_room_and_of_equals_a_silent_one() {
        let limits = admission(6, 1000);
        let admit = |from: [u8; 4]| limits.admit(from.into()).unwrap();
        let crowd = [5, 6, 6, 7].map(|last| admit([192, 0, 2, last]));
        let lone = [198, 203].map(|first| admit([first, 51, 100, 1]));
        let rival = |client: Option<[u8; 4]>, seconds: [u64; 6]| {
            let candidates = candidates(crowd.iter().chain(&lone), seconds);
            limits.rival(client.map(IpAddr::from), candidates)
        };
        let newcomer = Some([203, 0, 113, 1]);
        assert_eq!(
            rival(newcomer, [9, 1, 2, 9, 9, 9]),
            Some(SocketId(2)),
            "of the address with two"
        );
        assert_eq!(rival(None, [9, 1, 2, 9, 9, 9]), Some(SocketId(2)));
        assert_eq!(rival(Some([192, 0, 2, 6]), [60; 6]), None, "its own network has most");
        let of_equals = |seconds: [u64; 2]| {
            limits.rival(Some([100, 64, 0, 1].into()), candidates(lone.iter(), seconds))
        };
        assert_eq!((of_equals([60, 0]), of_equals([9, 0])), (Some(SocketId(0)), None));
        assert_eq!(limits.rival(Some([1, 1, 1, 1].into()), std::iter::empty()), None);
    }

    /// A balancer may send the header with the client's first data. A client that sends nothing is
    /// charged to no share, and could take all connections.
    #[test]
    fn connections_without_a_client_make_room_first() {
        let limits = admission(4, 1000);
        let crowd = [5, 5].map(|last| limits.admit([192, 0, 2, last].into()).unwrap());
        let unnamed = [(), ()].map(|()| limits.admit_unknown().unwrap());
        let rival = |client: Option<[u8; 4]>, seconds: [u64; 4]| {
            let candidates = candidates(crowd.iter().chain(&unnamed), seconds);
            limits.rival(client.map(IpAddr::from), candidates)
        };
        for newcomer in [None, Some([203, 0, 113, 1]), Some([192, 0, 2, 5])] {
            assert_eq!(rival(newcomer, [0, 0, 1, 2]), Some(SocketId(3)), "{newcomer:?}");
        }
        assert_eq!(rival(None, [9, 5, 0, 0]), Some(SocketId(0)), "their headers may follow");
    }

    #[test]
    fn behind_an_address_of_many_customers_silence_alone_makes_room() {
        let limits = admission(2, 0);
        let both = [0, 1].map(|_| limits.admit([192, 0, 2, 1].into()).unwrap());
        let rival = |seconds: [u64; 2]| {
            limits.rival(Some([192, 0, 2, 1].into()), candidates(both.iter(), seconds))
        };
        assert_eq!((rival([9, 1]), rival([3, 10])), (None, Some(SocketId(1))));
    }

    #[test]
    fn a_connection_counts_once_when_its_client_is_named() {
        let admission = admission(2, 1);
        let mut one = admission.admit_unknown().unwrap();
        let mut two = admission.admit_unknown().unwrap();
        assert_eq!(admission.admit_unknown().unwrap_err(), LimitReached::Total);
        one.assign([192, 0, 2, 1].into()).unwrap();
        assert_eq!(two.assign([192, 0, 2, 1].into()).unwrap_err(), LimitReached::Address);
        drop((one, two));
        let counts = admission.counts();
        assert_eq!((counts.unknown, counts.known.held()), (0, 0));
    }

    #[test]
    fn a_connection_of_this_host_counts_for_the_client_that_is_named() {
        let admission = admission(1, 1);
        let own = IpAddr::from([127, 0, 0, 1]);
        let _other = admission.admit_unknown().unwrap();
        let mut one = admission.admit_own(own).unwrap();
        one.assign([192, 0, 2, 1].into()).unwrap();
        let held = |client: IpAddr| admission.counts().known.held_by(&Claimant::at(client));
        assert_eq!((held(own), held([192, 0, 2, 1].into())), (0, 1));
        drop(one);
        let counts = admission.counts();
        assert_eq!((counts.unknown, counts.known.held()), (1, 0));
    }

    #[test]
    fn zero_is_any_number() {
        let admission = admission(0, 0);
        let all: Vec<_> = (0..100).map(|_| admission.admit([192, 0, 2, 1].into())).collect();
        assert!(all.iter().all(Result::is_ok));
    }

    /// Simulates many clients that read nothing, at any number of addresses.
    #[test]
    fn output_queues_are_bounded_together_and_each_connection_has_the_same() {
        let admission = admission(0, 0);
        let mut silent: Vec<_> = (0..4000).map(|_| admission.keep(None)).collect();
        assert_eq!(silent[0].backlog_max(), STREAM_BACKLOG_BYTES);
        for _ in 0..3 {
            for permit in &mut silent {
                let most = permit.backlog_max();
                permit.note_backlog(most);
            }
        }
        let used: usize = silent.iter().map(|permit| permit.backlog).sum();
        assert!(used < BACKLOGS_BYTES + silent.len() * STREAM_BACKLOG_BYTES_MIN, "{used}");
        let honest = admission.keep(None);
        assert!(honest.backlog_max() >= STREAM_BACKLOG_BYTES_MIN);
        drop(silent);
        assert_eq!(honest.backlog_max(), STREAM_BACKLOG_BYTES);
    }
}
