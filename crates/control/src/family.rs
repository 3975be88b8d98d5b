//! Names of the counters: families, and the labels that tell their members apart.

use crate::{Histogram, Series};

/// Behaviour of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts of values up to bounds, and their sum.
    Histogram,
}

/// A family of series, whose members differ by their labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, without a prefix or a suffix for its kind.
    pub name: &'static str,
    /// Behaviour of its numbers.
    pub kind: Kind,
    /// Meaning, for operators: a sentence without its full stop.
    pub help: &'static str,
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, help }
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, help }
}

impl Histogram {
    /// The family of its buckets and its sum.
    #[must_use]
    pub const fn family(self) -> Family {
        let (name, help) = match self {
            Self::ReceivedMessages => ("messages_per_receive", "Messages per receive call"),
            Self::ReceivedSegments => (
                "datagrams_per_received_message",
                "Datagrams per message received; above 1 the kernel coalesces (UDP GRO)",
            ),
            Self::SentSegments => {
                ("datagrams_per_sent_message", "Datagrams per message sent; above 1 by UDP GSO")
            }
            Self::Allocate => (
                self.label(),
                "Time from an Allocate to its success response, with the look-up of its user",
            ),
            Self::Lookup => {
                (self.label(), "Time of look-ups in the user database, without cached users")
            }
            Self::TlsHandshake => (
                self.label(),
                "Time from the acceptance of a connection to the end of its TLS handshake",
            ),
            Self::DtlsHandshake => {
                (self.label(), "Time from a DTLS client's cookie to the end of its handshake")
            }
            Self::SessionDuration => (self.label(), "Life of allocations that have ended"),
            Self::SessionBytes => (
                self.label(),
                "Payload that allocations relayed until they ended, both directions together",
            ),
            Self::Turn => (
                self.label(),
                "Busy part of the turns of the workers' loops; a new packet may wait that long",
            ),
        };
        Family { name, kind: Kind::Histogram, help }
    }
}

/// A label of a counter, in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: &'static str,
}

impl Label {
    const fn of(name: &'static str, value: &'static str) -> Option<Self> {
        Some(Self { name, value })
    }
}

impl Series {
    /// Name among all of them, such as `packets{leg=to_peers,path=kernel}`: other versions know it
    /// by that.
    #[must_use]
    pub fn name(self) -> String {
        let family = self.family().name;
        if let Self::Bucket(histogram, bucket) = self {
            let bound = histogram.upper_bound(bucket).map(|bound| bound.to_string());
            return format!("{family}_bucket{{le={}}}", bound.as_deref().unwrap_or("+Inf"));
        }
        if let Self::Sum(_) = self {
            return format!("{family}_sum{{}}");
        }
        let labels = self.labels().into_iter().flatten();
        let labels: Vec<_> =
            labels.map(|label| format!("{}={}", label.name, label.value)).collect();
        format!("{family}{{{}}}", labels.join(","))
    }

    /// The bucket that values of another version's bucket of this [name](Self::name) belong to: the
    /// first that reaches its bound, so that none of them is said to be less than it was. `None`:
    /// it is the name of no bucket, or no histogram has it here.
    #[must_use]
    pub fn bucket_of_name(name: &str) -> Option<Self> {
        let (family, bound) = name.strip_suffix('}')?.split_once("_bucket{le=")?;
        let mut histograms = Histogram::ALL.iter().copied();
        let histogram = histograms.find(|histogram| histogram.family().name == family)?;
        let bounds = histogram.bounds();
        let bucket = if bound == "+Inf" {
            bounds.len()
        } else {
            let bound: u64 = bound.parse().ok()?;
            bounds.partition_point(|own| *own < bound)
        };
        Some(Self::Bucket(histogram, bucket))
    }

    /// The family. The buckets of a histogram are told apart by
    /// [`Histogram::upper_bound`](crate::Histogram::upper_bound).
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "a table with an entry for each series")]
    pub const fn family(self) -> Family {
        match self {
            Self::Packets(_) | Self::Offloaded(_) => counter(
                "packets",
                "Packets received or sent, by leg, over the sockets or past them by the kernel path",
            ),
            Self::Bytes(_) | Self::OffloadedBytes(_) => {
                counter("bytes", "Bytes of UDP payload and of messages over connections, likewise")
            }
            Self::FlowsOffloaded => {
                gauge("kernel_channels", "Channels that the kernel path relays")
            }
            Self::SilentFlows => counter(
                "kernel_channels_silent",
                "Channels without traffic that lost their slot in the kernel path",
            ),
            Self::Fate(_) => counter(
                "fates",
                "Packets that were not dropped, by fate, those of the kernel path included",
            ),
            Self::Drop(_) => counter("drops", "Packets for which nothing was sent, by reason"),
            Self::IcmpErrors => {
                counter("icmp_errors", "ICMP errors that the kernel reported for relay sockets")
            }
            Self::LateAnswer(_) => counter(
                "late_answers",
                "Requests that had to wait for a user look-up or a relay port, by outcome",
            ),
            Self::Refusal(_) => counter("refusals", "Requests answered with an error, by reason"),
            Self::AllocationsCreated => counter("allocations_created", "Allocations made"),
            Self::AllocationsMoved => {
                counter("allocations_moved", "Moves of clients to another address (RFC 8016)")
            }
            Self::AllocationsEnded(_) => {
                counter("allocations_ended", "Allocations that ended, by reason")
            }
            Self::AllocationsLive(_) => {
                gauge("allocations", "Live allocations, by transport of the client")
            }
            Self::RelayedLive(_) => {
                gauge("relayed_addresses", "Relayed addresses in use, each a port, by family")
            }
            Self::StreamsAccepted => {
                counter("connections_accepted", "Connections of clients (TCP, TLS) accepted")
            }
            Self::StreamsLive => gauge("connections", "Live connections of clients (TCP, TLS)"),
            Self::StreamsRefused(_) => counter(
                "connections_refused",
                "Connections of clients closed as they came, by reason",
            ),
            Self::StreamsEnded(_) => {
                counter("connections_ended", "Connections of clients that ended, by reason")
            }
            Self::StreamsPaused => counter(
                "tls_handshakes_paused",
                "TLS handshakes that waited for processor time within the share of their address",
            ),
            Self::HellosAnswered(_) => counter(
                "dtls_hellos_answered",
                "First messages of DTLS clients answered without state, by answer",
            ),
            Self::AssociationsBegun => counter(
                "dtls_handshakes_begun",
                "DTLS handshakes begun, with clients that are at their addresses",
            ),
            Self::AssociationsEstablished => {
                counter("dtls_sessions_established", "DTLS sessions with a finished handshake")
            }
            Self::AssociationsLive => gauge(
                "dtls_sessions",
                "Live DTLS sessions, those with an unfinished handshake included",
            ),
            Self::AssociationsHalfOpen => gauge("dtls_handshakes", "Unfinished DTLS handshakes"),
            Self::AssociationsRefused(_) => {
                counter("dtls_sessions_refused", "DTLS sessions not begun, by reason")
            }
            Self::AssociationsEnded(_) => {
                counter("dtls_sessions_ended", "DTLS sessions that ended, by reason")
            }
            Self::DtlsOwn(_) => counter(
                "dtls_own_datagrams",
                "Datagrams that DTLS itself had to send: cookies, handshakes, alerts",
            ),
            Self::PeersConnected => {
                counter("peer_connections_made", "Connections with peers (RFC 6062) made")
            }
            Self::PeersRefused(_) => counter(
                "peer_connections_refused",
                "Connections of peers closed as soon as they were accepted, by reason",
            ),
            Self::PeersLive => gauge(
                "peer_connections",
                "Live connections with peers, those being opened included",
            ),
            Self::ConnectionAttempts => {
                counter("connection_attempts", "Clients told that a peer has connected")
            }
            Self::PipedBytes(_) => {
                counter("stream_bytes", "Bytes relayed between connections (RFC 6062), by leg")
            }
            Self::PiecesUnsent => counter(
                "undelivered_pieces",
                "Data from peers over connections not delivered before the client's connection ended",
            ),
            Self::KernelDrops => counter(
                "receive_buffer_drops",
                "Datagrams that the kernel dropped because a receive buffer was full",
            ),
            Self::ReceiveErrors => {
                counter("receive_errors", "Receive calls that failed for want of memory or worse")
            }
            Self::NoticesLost => counter(
                "notices_lost",
                "Events that came too many at once: as many counts of refusals and ends are missing",
            ),
            Self::SessionRecordsLost(_) => counter(
                "session_records_lost",
                "Records of sessions (section `accounting`) lost because the disk or the web service did not take them in time, by output",
            ),
            Self::SessionRecordsRefused => counter(
                "session_records_refused",
                "Records of sessions that the web service refused for their content, kept in refused.jsonl",
            ),
            Self::CertificatesRefused => counter(
                "certificates_refused",
                "New certificates that cannot be used, of files or of an ACME authority; the previous ones stay in force",
            ),
            Self::RelayedPackets(..) => counter(
                "relayed_packets",
                "Packets of relayed data, by transport and family of the client",
            ),
            Self::RelayedBytes(..) => counter("relayed_bytes", "Their bytes of payload"),
            Self::Bucket(histogram, _) | Self::Sum(histogram) => histogram.family(),
        }
    }

    /// The labels that tell the members of a family apart.
    #[must_use]
    pub const fn labels(self) -> [Option<Label>; 3] {
        const NONE: [Option<Label>; 3] = [None; 3];
        const SOCKETS: Option<Label> = Label::of("path", "sockets");
        const KERNEL: Option<Label> = Label::of("path", "kernel");
        let label = match self {
            Self::Packets(leg) | Self::Bytes(leg) => {
                return [Label::of("leg", leg.label()), SOCKETS, None];
            }
            Self::Offloaded(leg) | Self::OffloadedBytes(leg) => {
                return [Label::of("leg", leg.label()), KERNEL, None];
            }
            Self::RelayedPackets(transport, family, direction)
            | Self::RelayedBytes(transport, family, direction) => {
                return [
                    Label::of("transport", transport.label()),
                    Label::of("family", family.label()),
                    Label::of("direction", direction.label()),
                ];
            }
            Self::PipedBytes(leg) => Label::of("leg", leg.label()),
            Self::Fate(fate) => Label::of("fate", fate.label()),
            Self::Drop(reason) => Label::of("reason", reason.label()),
            Self::LateAnswer(answer) => Label::of("answer", answer.label()),
            Self::Refusal(reason) => Label::of("reason", reason.label()),
            Self::AllocationsEnded(reason) => Label::of("reason", reason.label()),
            Self::StreamsRefused(reason) => Label::of("reason", reason.label()),
            Self::StreamsEnded(reason) => Label::of("reason", reason.label()),
            Self::HellosAnswered(answer) => Label::of("answer", answer.label()),
            Self::AssociationsRefused(reason) => Label::of("reason", reason.label()),
            Self::AssociationsEnded(reason) => Label::of("reason", reason.label()),
            Self::DtlsOwn(outcome) => Label::of("outcome", outcome.label()),
            Self::PeersRefused(reason) => Label::of("reason", reason.label()),
            Self::SessionRecordsLost(output) => Label::of("output", output.label()),
            Self::AllocationsLive(transport) => Label::of("transport", transport.label()),
            Self::RelayedLive(family) => Label::of("family", family.label()),
            Self::FlowsOffloaded
            | Self::SilentFlows
            | Self::IcmpErrors
            | Self::AllocationsCreated
            | Self::AllocationsMoved
            | Self::StreamsAccepted
            | Self::StreamsLive
            | Self::StreamsPaused
            | Self::AssociationsBegun
            | Self::AssociationsEstablished
            | Self::AssociationsLive
            | Self::AssociationsHalfOpen
            | Self::PeersConnected
            | Self::PeersLive
            | Self::ConnectionAttempts
            | Self::PiecesUnsent
            | Self::KernelDrops
            | Self::ReceiveErrors
            | Self::NoticesLost
            | Self::SessionRecordsRefused
            | Self::CertificatesRefused
            | Self::Bucket(..)
            | Self::Sum(..) => return NONE,
        };
        [label, None, None]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn every_series_has_a_name_of_its_own_and_families_agree() {
        let mut families = BTreeMap::new();
        let named: Vec<_> = Series::all()
            .filter(|series| !matches!(series, Series::Bucket(..) | Series::Sum(..)))
            .map(|series| (series.family().name, series.labels()))
            .collect();
        assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len());
        let names: BTreeSet<String> = Series::all().map(Series::name).collect();
        assert_eq!(names.len(), Series::COUNT);
        assert_eq!(Series::IcmpErrors.name(), "icmp_errors{}");
        let drop = Series::Drop(turn_proto::DropReason::NotStun);
        assert_eq!(drop.name(), "drops{reason=not_stun}");
        for series in Series::all() {
            let bucket = Series::bucket_of_name(&series.name());
            let is_bucket = matches!(series, Series::Bucket(..));
            assert_eq!(bucket, is_bucket.then_some(series));
            let family = series.family();
            assert_eq!(*families.entry(family.name).or_insert(family), family);
        }
    }

    #[test]
    fn values_of_other_bounds_belong_to_the_next_greater_bucket() {
        let bucket =
            |bound: &str| Series::bucket_of_name(&format!("session_bytes_bucket{{le={bound}}}"));
        let own = |index| Some(Series::Bucket(Histogram::SessionBytes, index));
        assert_eq!((bucket("0"), bucket("1"), bucket("1000")), (own(0), own(1), own(1)));
        assert_eq!((bucket("1001"), bucket("99999")), (own(2), own(3)));
        let last = Histogram::SessionBytes.buckets() - 1;
        assert_eq!((bucket("100000000001"), bucket("+Inf")), (own(last), own(last)));
        for none in ["", "-1", "x", "1.5", "18446744073709551616"] {
            assert_eq!(bucket(none), None, "{none}");
        }
        assert_eq!(Series::bucket_of_name("of_a_later_version_bucket{le=1}"), None);
    }
}
