//! Log line of an ended allocation.

use std::fmt;
use std::time::Duration;

use turn_proto::{AllocationRecord, DropReason, EndReason, Refusal};
use turn_types::{RelayedAddr, WorkerId};

use super::addresses::LogAddresses;
use crate::limits::LOGGED_REASONS_MAX;

/// Writes the log line, which is the only record of an allocation's usage.
pub(super) fn log(
    worker: WorkerId,
    addresses: &LogAddresses,
    record: &AllocationRecord,
    reason: EndReason,
    lived: Duration,
) {
    let (traffic, history) = (&record.traffic, &record.history);
    let refusals: Vec<_> = labelled(&history.refusals, Refusal::label).collect();
    let drops: Vec<_> = labelled(&history.drops, DropReason::label).collect();
    tracing::info!(
        worker = worker.0,
        id = %record.id,
        reason = EndReason::label(reason),
        user = shown(record),
        realm = &*record.realm,
        client = %addresses.show(record.five_tuple.client.0),
        server = %record.five_tuple.server,
        relayed = %Relayed(&record.relayed),
        seconds = lived.as_secs(),
        to_peer_packets = traffic.to_peer_packets,
        to_peer_bytes = traffic.to_peer_bytes,
        to_client_packets = traffic.to_client_packets,
        to_client_bytes = traffic.to_client_bytes,
        dropped_packets = traffic.dropped_packets,
        drops = (!drops.is_empty()).then(|| tracing::field::display(Counts(&drops))),
        refusals = (!refusals.is_empty()).then(|| tracing::field::display(Counts(&refusals))),
        "allocation ended"
    );
}

fn labelled<R: Copy>(
    counts: &[(R, u64)],
    label: impl Fn(R) -> &'static str,
) -> impl Iterator<Item = (&'static str, u64)> {
    counts.iter().map(move |&(reason, count)| (label(reason), count))
}

/// Returns the user of an allocation for the log, without the time of a time-limited name. A name
/// that consists only of a time is unchanged.
pub(super) fn shown(record: &AllocationRecord) -> &str {
    if record.account.is_empty() { &record.user } else { &record.account }
}

/// Relayed addresses of an allocation: one or two.
pub(super) struct Relayed<'a>(pub(super) &'a [Option<RelayedAddr>; 2]);

impl fmt::Display for Relayed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for address in self.0.iter().flatten() {
            write!(f, "{separator}{address}")?;
            separator = " ";
        }
        Ok(())
    }
}

/// Counts by reason, with names for the most frequent reasons:
/// `no_permission:12,bandwidth:3,others:2`. The text contains no blanks, because logs of
/// `key=value` pairs are split at blanks.
struct Counts<'a>(&'a [(&'static str, u64)]);

impl fmt::Display for Counts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (named, others) = self.0.split_at(self.0.len().min(LOGGED_REASONS_MAX));
        let others: u64 = others.iter().map(|(_, count)| count).sum();
        let others = (others > 0).then_some(("others", others));
        let mut separator = "";
        for (reason, count) in named.iter().copied().chain(others) {
            write!(f, "{separator}{reason}:{count}")?;
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_reasons_are_named_and_the_others_are_summed() {
        let counts = [("a", 9), ("b", 8), ("c", 7), ("d", 6), ("e", 5), ("f", 4)];
        assert_eq!(Counts(&counts[..2]).to_string(), "a:9,b:8");
        assert_eq!(Counts(&counts).to_string(), "a:9,b:8,c:7,d:6,others:9");
    }
}
