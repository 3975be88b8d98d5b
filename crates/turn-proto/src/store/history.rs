//! Refusals, drops and served requests of an allocation. An empty history takes 16 bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use state_format::{fields, variants};
use turn_types::Instant;

use crate::io::{DropReason, Refusal, ServedRequests, SessionHistory};

/// History of an allocation. Memory is allocated at the first permission, channel, refusal, drop or
/// packet on a fast path, and again for a few further reasons. The number of entries is bounded by
/// the number of reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    refreshes: Served,
    more: Option<Box<More>>,
}

/// Part of the history that an idle allocation does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct More {
    permissions: Served,
    channels: Served,
    reasons: Vec<(Reason, u64)>,
    /// Number of packets that a fast path carried.
    carried: u64,
}

/// Served requests of a method. The fields are narrow, because every allocation has this value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Served {
    count: u32,
    /// Time of the latest request, in seconds on the monotonic clock.
    latest: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Refused(Refusal),
    Dropped(DropReason),
}

fields!(History { 1 => refreshes, 2 => more });
fields!(More { 1 => permissions, 2 => channels, 3 => reasons, 4 => carried });
fields!(Served { 1 => count, 2 => latest });

variants!(Reason, "kind of reason" { 1 => Refused(reason), 2 => Dropped(reason) });

// Each live allocation has a history.
const _: () = assert!(size_of::<History>() <= 16);

impl History {
    /// Counts a served Refresh. Returns true for the first Refresh in a second.
    pub(crate) fn refreshed(&mut self, now: Instant) -> bool {
        let before = self.refreshes;
        self.refreshes.add(now);
        before.count == 0 || before.latest != self.refreshes.latest
    }

    /// Counts a served CreatePermission.
    pub(crate) fn permitted(&mut self, now: Instant) {
        self.more().permissions.add(now);
    }

    /// Counts a served ChannelBind.
    pub(crate) fn bound(&mut self, now: Instant) {
        self.more().channels.add(now);
    }

    /// Counts packets that a fast path carried.
    pub(crate) fn carry(&mut self, packets: u64) {
        if packets > 0 {
            let carried = &mut self.more().carried;
            *carried = carried.saturating_add(packets);
        }
    }

    /// Counts a refused request, except the refusals that well-behaved clients get.
    pub(crate) fn refuse(&mut self, reason: Refusal) {
        // Every client starts without credentials, and a long session gets stale nonces.
        if !matches!(reason, Refusal::NoCredentials | Refusal::StaleNonce) {
            self.count(Reason::Refused(reason), 1);
        }
    }

    /// Counts dropped packets.
    pub(crate) fn drop_packets(&mut self, reason: DropReason, packets: u64) {
        if packets > 0 {
            self.count(Reason::Dropped(reason), packets);
        }
    }

    /// Returns the sum of all counts. The sum grows with each entry.
    pub(crate) fn total(&self) -> u64 {
        let Self { refreshes, more } = self;
        let more = more.as_ref().map(|more| {
            let More { permissions, channels, reasons, carried } = &**more;
            let reasons = reasons.iter().map(|(_, count)| *count);
            let counts = [permissions.count.into(), channels.count.into(), *carried];
            counts.into_iter().chain(reasons).fold(0, u64::wrapping_add)
        });
        more.unwrap_or_default().wrapping_add(refreshes.count.into())
    }

    /// Returns the history for a session record.
    pub(crate) fn record(&self) -> SessionHistory {
        let mut record =
            SessionHistory { refreshes: self.refreshes.record(), ..SessionHistory::default() };
        let Some(more) = &self.more else { return record };
        record.permissions = more.permissions.record();
        record.channels = more.channels.record();
        record.carried_packets = more.carried;
        for &(reason, count) in &more.reasons {
            match reason {
                Reason::Refused(reason) => record.refusals.push((reason, count)),
                Reason::Dropped(reason) => record.drops.push((reason, count)),
            }
        }
        record.refusals.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
        record.drops.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
        record
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    fn count(&mut self, reason: Reason, n: u64) {
        let reasons = &mut self.more().reasons;
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count = count.saturating_add(n),
            None => reasons.push((reason, n)),
        }
    }
}

impl Served {
    fn add(&mut self, now: Instant) {
        self.count = self.count.saturating_add(1);
        self.latest = u32::try_from((now - Instant::ZERO).as_secs()).unwrap_or(u32::MAX);
    }

    fn record(self) -> Option<ServedRequests> {
        let latest = Instant::ZERO + Duration::from_secs(self.latest.into());
        (self.count > 0).then_some(ServedRequests { count: self.count, latest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn an_idle_allocation_that_is_refreshed_needs_no_memory() {
        let mut history = History::default();
        assert!(history.refreshed(at(60)));
        assert!(history.refreshed(at(120)));
        history.refuse(Refusal::StaleNonce);
        history.drop_packets(DropReason::Bandwidth, 0);
        assert!(history.more.is_none());
        let refreshes = Some(ServedRequests { count: 2, latest: at(120) });
        assert_eq!(history.record(), SessionHistory { refreshes, ..SessionHistory::default() });
    }

    /// A client that refreshes continuously does not fill the queues of outputs.
    #[test]
    fn refreshes_of_one_second_are_told_once() {
        let mut history = History::default();
        let told: Vec<_> = [0, 0, 0, 1, 1].map(|second| history.refreshed(at(second))).into();
        assert_eq!(told, [true, false, false, true, false]);
    }

    #[test]
    fn reasons_are_counted_and_the_most_frequent_come_first() {
        let mut history = History::default();
        history.permitted(at(1));
        history.bound(at(2));
        history.refuse(Refusal::PeerForbidden);
        history.drop_packets(DropReason::NoPermission, 1);
        history.drop_packets(DropReason::Bandwidth, 5);
        history.drop_packets(DropReason::NoPermission, 1);
        let record = history.record();
        assert_eq!(record.permissions.map(|served| served.latest), Some(at(1)));
        assert_eq!(record.channels.map(|served| served.count), Some(1));
        assert_eq!(record.refusals, [(Refusal::PeerForbidden, 1)]);
        assert_eq!(record.drops, [(DropReason::Bandwidth, 5), (DropReason::NoPermission, 2)]);
    }
}
