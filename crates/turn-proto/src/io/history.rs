//! Refusals, drops and served requests of one allocation, for its session record.

use alloc::vec::Vec;

use turn_types::Instant;

use super::refusal::Refusal;
use super::verdict::DropReason;

/// Successful requests of one method for one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedRequests {
    /// Number of requests.
    pub count: u32,
    /// Time of the latest request, in whole seconds.
    pub latest: Instant,
}

/// Refusals, drops and served requests of one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionHistory {
    /// Refresh requests.
    pub refreshes: Option<ServedRequests>,
    /// CreatePermission requests.
    pub permissions: Option<ServedRequests>,
    /// ChannelBind requests.
    pub channels: Option<ServedRequests>,
    /// Refused requests by reason, the most frequent first. Excludes the first steps of every
    /// client ([`Refusal::NoCredentials`], [`Refusal::StaleNonce`]).
    pub refusals: Vec<(Refusal, u64)>,
    /// Packets of [`Traffic::dropped_packets`](super::notice::Traffic::dropped_packets) by reason,
    /// the most frequent first.
    pub drops: Vec<(DropReason, u64)>,
    /// Relayed packets carried by a fast path. [`Traffic`](super::notice::Traffic) includes these
    /// packets.
    pub carried_packets: u64,
}

impl SessionHistory {
    /// Adds packets carried by a fast path.
    pub(super) const fn add_carried(&mut self, packets: u64) {
        self.carried_packets = self.carried_packets.saturating_add(packets);
    }

    /// Adds packets dropped and counted by a fast path.
    pub(super) fn add_drops(&mut self, reason: DropReason, packets: u64) {
        if packets == 0 {
            return;
        }
        match self.drops.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count = count.saturating_add(packets),
            None => self.drops.push((reason, packets)),
        }
        self.drops.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_a_fast_path_count_with_those_of_their_reason() {
        let drops = alloc::vec![(DropReason::NoPermission, 3), (DropReason::Bandwidth, 2)];
        let mut history = SessionHistory { drops, ..SessionHistory::default() };
        history.add_drops(DropReason::ChannelNotBound, 0);
        history.add_drops(DropReason::Bandwidth, 2);
        history.add_drops(DropReason::NoAllocation, 1);
        let expected = [
            (DropReason::Bandwidth, 4),
            (DropReason::NoPermission, 3),
            (DropReason::NoAllocation, 1),
        ];
        assert_eq!(history.drops, expected);
    }
}
