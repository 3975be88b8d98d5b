//! The one list of counters: names, labels, and storage.

use turn_proto::{DropReason, EndReason, PeerRefusal, Refusal};
use turn_types::{Direction, IpFamily, Transport};

use crate::{Histogram, RecordOutput};

turn_types::labels! {
    /// A direction on one of the two legs of a relay.
    Leg {
        /// From clients to us.
        FromClients => "from_clients",
        /// From us to clients: answers and relayed data.
        ToClients => "to_clients",
        /// From peers to relay sockets.
        FromPeers => "from_peers",
        /// From relay sockets to peers.
        ToPeers => "to_peers",
    }
}

turn_types::labels! {
    /// Fate of a packet that was not dropped. With the drops by reason, these add up to
    /// the packets received and the ICMP errors heard of: each has exactly one fate.
    Fate {
        /// Answered at once with success.
        Reply => "reply",
        /// Answered at once with an error.
        ErrorReply => "error_reply",
        /// Relayed to a peer.
        ToPeer => "to_peer",
        /// Relayed to a client.
        ToClient => "to_client",
        /// A request that waits for something outside; see [`LateAnswer`].
        Waited => "waited",
        /// An ICMP error that the client was told of.
        IcmpReported => "icmp_reported",
        /// A datagram of DTLS that brought no message: it was part of a handshake, or said that the
        /// client goes.
        Dtls => "dtls",
    }
}

turn_types::labels! {
    /// Outcome of a request that had to wait.
    LateAnswer {
        /// With success.
        Success => "success",
        /// With an error.
        Error => "error",
        /// Not at all: the kernel did not take the answer.
        Unsent => "unsent",
    }
}

turn_types::labels! {
    /// Why a connection was not accepted.
    StreamRefusal {
        /// There are as many as there may be.
        Total => "total",
        /// Its address has as many as it may have.
        Address => "address",
        /// Few are free, and the client's network has a full share.
        Network => "network",
        /// No descriptors or no memory left.
        Resources => "resources",
    }
}

turn_types::labels! {
    /// End of a client's connection.
    StreamEnd {
        /// The client closed it.
        ByClient => "closed_by_client",
        /// It broke: a reset, or nothing acknowledged for too long.
        Broken => "broken",
        /// The client was told why, and took its time to go.
        ByUs => "closed_by_us",
        /// No whole message came in time.
        NoMessage => "no_message",
        /// A load balancer did not send the client's address.
        NoProxyHeader => "no_proxy_header",
        /// A PROXY header from an address that is no known load balancer's.
        ProxyNotListed => "proxy_not_listed",
        /// STUN without TLS, where only TLS is served.
        TcpNotServed => "tcp_not_served",
        /// A message took too long.
        TooSlow => "too_slow",
        /// Neither STUN nor ChannelData: where the next message begins cannot be known.
        NotStun => "not_stun",
        /// A message longer than any that a client without an allocation needs.
        TooLong => "too_long",
        /// A TLS handshake, and there is no certificate.
        TlsNotServed => "tls_not_served",
        /// The TLS handshake failed.
        TlsFailed => "tls_failed",
        /// The client did not receive its data in time.
        Stuck => "stuck",
        /// The connection had no allocation and was evicted for another one, as the idlest or of
        /// the network with most connections.
        CrowdedOut => "crowded_out",
        /// It had no allocation and said nothing for long; or it was one with a peer's connection,
        /// one of the two had said all, and the other nothing for long.
        Idle => "idle",
        /// Another connection came with the same addresses and ports, so that this one had ended.
        Replaced => "replaced",
        /// It was one with a peer's connection, and both ends had said all.
        DataDone => "data_done",
        /// It was one with a peer's connection, which broke.
        PeerBroken => "peer_broken",
        /// It was one with a peer's connection, and the allocation ended.
        AllocationEnded => "allocation_ended",
        /// A TLS handshake in progress when another process took over.
        Shutdown => "shutdown",
        /// No memory was left to take it to the worker of its peer's connection.
        Resources => "resources",
    }
}

turn_types::labels! {
    /// Response to a DTLS client's first message, without state.
    HelloAnswer {
        /// To come again with a cookie.
        Cookie => "cookie",
        /// That its versions are too old.
        Version => "version",
    }
}

turn_types::labels! {
    /// Why a DTLS association was not begun, for a client that is at its address.
    AssociationRefusal {
        /// There are as many as there may be.
        Total => "total",
        /// Its address has as many as it may have.
        Address => "address",
        /// Few are free, and the client's network has a full share.
        Network => "network",
        /// More wait for processor time than may, or it has waited too long: clients ask again.
        Busy => "busy",
        /// Its address has used its share of the processor time for handshakes: clients ask again.
        Share => "share",
        /// No memory left.
        Resources => "resources",
    }
}

turn_types::labels! {
    /// End of a DTLS session.
    AssociationEnd {
        /// The client said that it goes.
        ByClient => "closed_by_client",
        /// The handshake failed: no cipher suite, protocol or kind of certificate in common.
        Failed => "handshake_failed",
        /// The handshake was not done in time.
        NotCompleted => "handshake_timeout",
        /// The session had no allocation and was evicted for another one, as silent or of the
        /// network with most sessions.
        CrowdedOut => "crowded_out",
        /// The client sent a fatal alert, or broke the rules of DTLS otherwise.
        Broken => "broken",
        /// Keys reached the limit of protected data or of forged records.
        KeysUsedUp => "keys_used_up",
        /// The client began anew from the same address and port.
        Replaced => "replaced",
        /// It had no allocation and said nothing for long.
        Idle => "idle",
        /// The server ended.
        Shutdown => "shutdown",
    }
}

turn_types::labels! {
    /// Fate of datagrams of DTLS itself: cookies, handshakes, alerts.
    DtlsOwn {
        /// The kernel took it.
        Sent => "sent",
        /// The kernel did not.
        Unsent => "unsent",
    }
}

/// One number that each worker keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    /// Datagrams over the sockets.
    Packets(Leg),
    /// Their bytes of UDP payload.
    Bytes(Leg),
    /// Datagrams that the kernel relayed, or handed over, past the sockets; none of them is in
    /// [`Self::Packets`].
    Offloaded(Leg),
    /// Their bytes of UDP payload.
    OffloadedBytes(Leg),
    /// Channels that the kernel relays now.
    FlowsOffloaded,
    /// Channels whose slots the kernel path gave to others, as they had no traffic.
    SilentFlows,
    /// Fate of packets that were not dropped.
    Fate(Fate),
    /// Why nothing was sent for a packet.
    Drop(DropReason),
    /// ICMP errors that the kernel reported for relay sockets.
    IcmpErrors,
    /// Outcomes of requests that had to wait.
    LateAnswer(LateAnswer),
    /// Requests refused.
    Refusal(Refusal),
    /// Allocations made.
    AllocationsCreated,
    /// Allocations ended.
    AllocationsEnded(EndReason),
    /// Clients that came to have another 5-tuple and kept their allocation.
    AllocationsMoved,
    /// Allocations live now, by transport of the client.
    AllocationsLive(Transport),
    /// Relayed addresses live now, by family; an allocation has one or two.
    RelayedLive(IpFamily),
    /// Connections of clients accepted.
    StreamsAccepted,
    /// Connections of clients live now.
    StreamsLive,
    /// Connections refused.
    StreamsRefused(StreamRefusal),
    /// Connections ended.
    StreamsEnded(StreamEnd),
    /// First messages of DTLS clients that were answered.
    HellosAnswered(HelloAnswer),
    /// DTLS associations begun, by clients that are at their addresses.
    AssociationsBegun,
    /// Sessions with a finished handshake.
    AssociationsEstablished,
    /// DTLS associations live now.
    AssociationsLive,
    /// Sessions with an unfinished handshake.
    AssociationsHalfOpen,
    /// DTLS associations not begun.
    AssociationsRefused(AssociationRefusal),
    /// DTLS associations ended.
    AssociationsEnded(AssociationEnd),
    /// Connections whose TLS handshake has waited for its address's share of the processor time.
    StreamsPaused,
    /// Datagrams that DTLS itself had to send.
    DtlsOwn(DtlsOwn),
    /// Connections with peers made: called by a client, or come by themselves and permitted.
    PeersConnected,
    /// Connections of peers closed as soon as they were accepted.
    PeersRefused(PeerRefusal),
    /// Live connections with peers, including those being opened.
    PeersLive,
    /// Clients told that a peer has connected.
    ConnectionAttempts,
    /// Bytes of connections that are relayed: read from one end, taken by the other.
    PipedBytes(Leg),
    /// Data from peers, and indications of new connections, that were not delivered before the
    /// client's connection ended.
    PiecesUnsent,
    /// Datagrams that the kernel threw away because a receive buffer was full.
    KernelDrops,
    /// Receive calls that failed for want of memory or worse.
    ReceiveErrors,
    /// Events of the rules that were dropped, being too many at once: as many counts of
    /// refusals and ended allocations are missing.
    NoticesLost,
    /// Records of sessions that an output has lost because they could not be written or delivered
    /// in time.
    SessionRecordsLost(RecordOutput),
    /// Records of sessions that the web service refused for their content, and that were set aside.
    SessionRecordsRefused,
    /// Certificates that could not be used when they were to replace others, which remain in
    /// effect.
    CertificatesRefused,
    /// Packets of relayed data, by transport and family of the client. Brought up to date when it
    /// is asked for.
    RelayedPackets(Transport, IpFamily, Direction),
    /// Their bytes of payload.
    RelayedBytes(Transport, IpFamily, Direction),
    /// A bucket of a histogram.
    Bucket(Histogram, usize),
    /// The sum of a histogram, in its [units](Histogram::units).
    Sum(Histogram),
}

/// Kinds of relayed data: transport and family of the client, and direction.
const KINDS_OF_DATA: usize = Transport::ALL.len() * IpFamily::ALL.len() * Direction::ALL.len();

const fn kind_of_data(transport: Transport, family: IpFamily, direction: Direction) -> usize {
    (transport.index() * IpFamily::ALL.len() + family.index()) * Direction::ALL.len()
        + direction as usize
}

fn kinds_of_data() -> impl Iterator<Item = (Transport, IpFamily, Direction)> {
    let families = |&transport| IpFamily::ALL.into_iter().map(move |family| (transport, family));
    let directions = |(transport, family)| {
        Direction::ALL.into_iter().map(move |direction| (transport, family, direction))
    };
    Transport::ALL.iter().flat_map(families).flat_map(directions)
}

/// Every bucket and sum.
fn histogram_numbers() -> impl Iterator<Item = Series> {
    Histogram::ALL.iter().flat_map(|&histogram| {
        let buckets = (0..histogram.buckets()).map(move |bucket| Series::Bucket(histogram, bucket));
        buckets.chain([Series::Sum(histogram)])
    })
}

// Where each family begins in a worker's table.
const PACKETS: usize = 0;
const BYTES: usize = PACKETS + Leg::ALL.len();
const OFFLOADED: usize = BYTES + Leg::ALL.len();
const OFFLOADED_BYTES: usize = OFFLOADED + Leg::ALL.len();
const FLOWS_OFFLOADED: usize = OFFLOADED_BYTES + Leg::ALL.len();
const SILENT_FLOWS: usize = FLOWS_OFFLOADED + 1;
const FATES: usize = SILENT_FLOWS + 1;
const ICMP_ERRORS: usize = FATES + Fate::ALL.len();
const LATE_ANSWERS: usize = ICMP_ERRORS + 1;
const CREATED: usize = LATE_ANSWERS + LateAnswer::ALL.len();
const MOVED: usize = CREATED + 1;
const LIVE: usize = MOVED + 1;
const RELAYED: usize = LIVE + Transport::ALL.len();
const STREAMS_ACCEPTED: usize = RELAYED + IpFamily::ALL.len();
const STREAMS_LIVE: usize = STREAMS_ACCEPTED + 1;
const PEERS_CONNECTED: usize = STREAMS_LIVE + 1;
const PEERS_LIVE: usize = PEERS_CONNECTED + 1;
const CONNECTION_ATTEMPTS: usize = PEERS_LIVE + 1;
const PIECES_UNSENT: usize = CONNECTION_ATTEMPTS + 1;
const PIPED_BYTES: usize = PIECES_UNSENT + 1;
const KERNEL_DROPS: usize = PIPED_BYTES + Leg::ALL.len();
const RECEIVE_ERRORS: usize = KERNEL_DROPS + 1;
const NOTICES_LOST: usize = RECEIVE_ERRORS + 1;
const SESSION_RECORDS_LOST: usize = NOTICES_LOST + 1;
const SESSION_RECORDS_REFUSED: usize = SESSION_RECORDS_LOST + RecordOutput::ALL.len();
const CERTIFICATES_REFUSED: usize = SESSION_RECORDS_REFUSED + 1;
const HISTOGRAMS: usize = CERTIFICATES_REFUSED + 1;
const RELAYED_PACKETS: usize = HISTOGRAMS + Histogram::NUMBERS;
const RELAYED_BYTES: usize = RELAYED_PACKETS + KINDS_OF_DATA;
const DROPS: usize = RELAYED_BYTES + KINDS_OF_DATA;
const REFUSALS: usize = DROPS + DropReason::ALL.len();
const ENDED: usize = REFUSALS + Refusal::ALL.len();
const STREAMS_REFUSED: usize = ENDED + EndReason::ALL.len();
const STREAMS_ENDED: usize = STREAMS_REFUSED + StreamRefusal::ALL.len();

const HELLOS_ANSWERED: usize = STREAMS_ENDED + StreamEnd::ALL.len();
const ASSOCIATIONS_BEGUN: usize = HELLOS_ANSWERED + HelloAnswer::ALL.len();
const ASSOCIATIONS_ESTABLISHED: usize = ASSOCIATIONS_BEGUN + 1;
const ASSOCIATIONS_LIVE: usize = ASSOCIATIONS_ESTABLISHED + 1;
const ASSOCIATIONS_HALF_OPEN: usize = ASSOCIATIONS_LIVE + 1;
const ASSOCIATIONS_REFUSED: usize = ASSOCIATIONS_HALF_OPEN + 1;
const ASSOCIATIONS_ENDED: usize = ASSOCIATIONS_REFUSED + AssociationRefusal::ALL.len();
const DTLS_OWN: usize = ASSOCIATIONS_ENDED + AssociationEnd::ALL.len();
const STREAMS_PAUSED: usize = DTLS_OWN + DtlsOwn::ALL.len();
const PEERS_REFUSED: usize = STREAMS_PAUSED + 1;

impl Series {
    /// Their number.
    pub const COUNT: usize = PEERS_REFUSED + PeerRefusal::ALL.len();

    /// Every series, family by family.
    pub fn all() -> impl Iterator<Item = Self> {
        let legs = Leg::ALL.iter().copied();
        legs.clone()
            .map(Self::Packets)
            .chain(legs.clone().map(Self::Bytes))
            .chain(legs.clone().map(Self::Offloaded))
            .chain(legs.clone().map(Self::OffloadedBytes))
            .chain([Self::FlowsOffloaded, Self::SilentFlows])
            .chain(Fate::ALL.iter().copied().map(Self::Fate))
            .chain(DropReason::ALL.iter().copied().map(Self::Drop))
            .chain([Self::IcmpErrors])
            .chain(LateAnswer::ALL.iter().copied().map(Self::LateAnswer))
            .chain(Refusal::ALL.iter().copied().map(Self::Refusal))
            .chain([Self::AllocationsCreated, Self::AllocationsMoved])
            .chain(EndReason::ALL.iter().copied().map(Self::AllocationsEnded))
            .chain(Transport::ALL.iter().copied().map(Self::AllocationsLive))
            .chain(IpFamily::ALL.map(Self::RelayedLive))
            .chain([Self::StreamsAccepted, Self::StreamsLive])
            .chain(StreamRefusal::ALL.iter().copied().map(Self::StreamsRefused))
            .chain(StreamEnd::ALL.iter().copied().map(Self::StreamsEnded))
            .chain(HelloAnswer::ALL.iter().copied().map(Self::HellosAnswered))
            .chain([Self::AssociationsBegun, Self::AssociationsEstablished])
            .chain([Self::AssociationsLive, Self::AssociationsHalfOpen])
            .chain(AssociationRefusal::ALL.iter().copied().map(Self::AssociationsRefused))
            .chain(AssociationEnd::ALL.iter().copied().map(Self::AssociationsEnded))
            .chain(DtlsOwn::ALL.iter().copied().map(Self::DtlsOwn))
            .chain([Self::StreamsPaused])
            .chain([Self::PeersConnected, Self::PeersLive])
            .chain(PeerRefusal::ALL.iter().copied().map(Self::PeersRefused))
            .chain([Self::ConnectionAttempts])
            .chain(legs.map(Self::PipedBytes))
            .chain([Self::PiecesUnsent])
            .chain([Self::KernelDrops])
            .chain([Self::ReceiveErrors, Self::NoticesLost])
            .chain(RecordOutput::ALL.iter().copied().map(Self::SessionRecordsLost))
            .chain([Self::SessionRecordsRefused, Self::CertificatesRefused])
            .chain(kinds_of_data().map(|(transport, family, direction)| {
                Self::RelayedPackets(transport, family, direction)
            }))
            .chain(kinds_of_data().map(|(transport, family, direction)| {
                Self::RelayedBytes(transport, family, direction)
            }))
            .chain(histogram_numbers())
    }

    /// Position in a worker's table, below [`Self::COUNT`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Packets(leg) => PACKETS + leg.index(),
            Self::Bytes(leg) => BYTES + leg.index(),
            Self::Offloaded(leg) => OFFLOADED + leg.index(),
            Self::OffloadedBytes(leg) => OFFLOADED_BYTES + leg.index(),
            Self::FlowsOffloaded => FLOWS_OFFLOADED,
            Self::SilentFlows => SILENT_FLOWS,
            Self::Fate(fate) => FATES + fate.index(),
            Self::Drop(reason) => DROPS + reason.index(),
            Self::IcmpErrors => ICMP_ERRORS,
            Self::LateAnswer(answer) => LATE_ANSWERS + answer.index(),
            Self::Refusal(reason) => REFUSALS + reason.index(),
            Self::AllocationsCreated => CREATED,
            Self::AllocationsMoved => MOVED,
            Self::AllocationsEnded(reason) => ENDED + reason.index(),
            Self::AllocationsLive(transport) => LIVE + transport.index(),
            Self::RelayedLive(family) => RELAYED + family.index(),
            Self::StreamsAccepted => STREAMS_ACCEPTED,
            Self::StreamsLive => STREAMS_LIVE,
            Self::StreamsRefused(reason) => STREAMS_REFUSED + reason.index(),
            Self::StreamsEnded(end) => STREAMS_ENDED + end.index(),
            Self::HellosAnswered(answer) => HELLOS_ANSWERED + answer.index(),
            Self::AssociationsBegun => ASSOCIATIONS_BEGUN,
            Self::AssociationsEstablished => ASSOCIATIONS_ESTABLISHED,
            Self::AssociationsLive => ASSOCIATIONS_LIVE,
            Self::AssociationsHalfOpen => ASSOCIATIONS_HALF_OPEN,
            Self::AssociationsRefused(reason) => ASSOCIATIONS_REFUSED + reason.index(),
            Self::AssociationsEnded(end) => ASSOCIATIONS_ENDED + end.index(),
            Self::DtlsOwn(outcome) => DTLS_OWN + outcome.index(),
            Self::StreamsPaused => STREAMS_PAUSED,
            Self::PeersConnected => PEERS_CONNECTED,
            Self::PeersLive => PEERS_LIVE,
            Self::PeersRefused(reason) => PEERS_REFUSED + reason.index(),
            Self::ConnectionAttempts => CONNECTION_ATTEMPTS,
            Self::PipedBytes(leg) => PIPED_BYTES + leg.index(),
            Self::PiecesUnsent => PIECES_UNSENT,
            Self::KernelDrops => KERNEL_DROPS,
            Self::ReceiveErrors => RECEIVE_ERRORS,
            Self::NoticesLost => NOTICES_LOST,
            Self::SessionRecordsLost(output) => SESSION_RECORDS_LOST + output.index(),
            Self::SessionRecordsRefused => SESSION_RECORDS_REFUSED,
            Self::CertificatesRefused => CERTIFICATES_REFUSED,
            Self::RelayedPackets(transport, family, direction) => {
                RELAYED_PACKETS + kind_of_data(transport, family, direction)
            }
            Self::RelayedBytes(transport, family, direction) => {
                RELAYED_BYTES + kind_of_data(transport, family, direction)
            }
            Self::Bucket(histogram, bucket) => {
                assert!(bucket < histogram.buckets());
                HISTOGRAMS + histogram.offset() + bucket
            }
            Self::Sum(histogram) => HISTOGRAMS + histogram.offset() + histogram.buckets(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_series_has_a_place_of_its_own() {
        let places: BTreeSet<usize> = Series::all().map(Series::index).collect();
        assert_eq!(Series::all().count(), Series::COUNT);
        assert_eq!(places, (0..Series::COUNT).collect());
    }
}
