//! Accounting of sent datagrams. A datagram is counted after the kernel has accepted or refused the
//! datagram.

use control::{DtlsOwn, Fate, LateAnswer, Leg, Series, WorkerCounters};
use turn_proto::DropReason;

/// Kind of a sent datagram or message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Reply,
    ErrorReply,
    ToPeer,
    ToClient,
    IcmpReported,
    LateSuccess,
    LateError,
    /// DTLS protocol data: cookies, handshakes, alerts.
    Dtls,
    /// Bytes of a peer's connection for the bound client connection (RFC 6062), not a packet.
    Piped,
    ConnectionAttempt,
}

impl Sent {
    /// All kinds by number. The order is part of the exported connection state, and must not
    /// change.
    const ALL: [Self; 10] = [
        Self::Reply,
        Self::ErrorReply,
        Self::ToPeer,
        Self::ToClient,
        Self::IcmpReported,
        Self::LateSuccess,
        Self::LateError,
        Self::Dtls,
        Self::Piped,
        Self::ConnectionAttempt,
    ];

    /// Returns the counter of accepted datagrams, or `None` if only bytes are counted.
    const fn taken(self) -> Option<Series> {
        Some(match self {
            Self::Reply => Series::Fate(Fate::Reply),
            Self::ErrorReply => Series::Fate(Fate::ErrorReply),
            Self::ToPeer => Series::Fate(Fate::ToPeer),
            Self::ToClient => Series::Fate(Fate::ToClient),
            Self::IcmpReported => Series::Fate(Fate::IcmpReported),
            Self::LateSuccess => Series::LateAnswer(LateAnswer::Success),
            Self::LateError => Series::LateAnswer(LateAnswer::Error),
            Self::Dtls => Series::DtlsOwn(DtlsOwn::Sent),
            Self::ConnectionAttempt => Series::ConnectionAttempts,
            Self::Piped => return None,
        })
    }

    /// Returns the counter of refused datagrams. The request of a late answer has a fate already.
    pub(crate) const fn refused(self, reason: DropReason) -> Series {
        match self {
            Self::Reply | Self::ErrorReply | Self::ToPeer | Self::ToClient | Self::IcmpReported => {
                Series::Drop(reason)
            }
            Self::LateSuccess | Self::LateError => Series::LateAnswer(LateAnswer::Unsent),
            Self::Dtls => Series::DtlsOwn(DtlsOwn::Unsent),
            Self::Piped | Self::ConnectionAttempt => Series::PiecesUnsent,
        }
    }

    const fn leg(self) -> Leg {
        match self {
            Self::ToPeer => Leg::ToPeers,
            Self::Reply
            | Self::ErrorReply
            | Self::ToClient
            | Self::IcmpReported
            | Self::LateSuccess
            | Self::LateError
            | Self::Dtls
            | Self::Piped
            | Self::ConnectionAttempt => Leg::ToClients,
        }
    }
}

/// Kind and length of a datagram, as the tag that a transmit batch returns for an unsent datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) sent: Sent,
    pub(crate) bytes: usize,
}

const KIND_BITS: u32 = 4;
const _: () = assert!(Sent::ALL.len() <= 1 << KIND_BITS);

impl Tag {
    pub(crate) const fn number(self) -> u32 {
        // A datagram is shorter than 2^16 bytes, and one read of a pipe is not much longer.
        (self.bytes as u32) << KIND_BITS | self.sent as u32
    }

    /// Returns true for a number that [`of`](Self::of) accepts.
    pub(crate) const fn is_known(number: u32) -> bool {
        ((number & ((1 << KIND_BITS) - 1)) as usize) < Sent::ALL.len()
    }

    pub(crate) const fn of(number: u32) -> Self {
        let kind = number & ((1 << KIND_BITS) - 1);
        Self { sent: Sent::ALL[kind as usize], bytes: (number >> KIND_BITS) as usize }
    }
}

/// Number of datagrams and bytes of each kind in the current batch.
#[derive(Debug, Default)]
pub(crate) struct BatchSums {
    packets: [u64; Sent::ALL.len()],
    bytes: [u64; Sent::ALL.len()],
}

impl BatchSums {
    pub(crate) fn sending(&mut self, tag: Tag) {
        self.packets[tag.sent as usize] += 1;
        self.bytes[tag.sent as usize] += tag.bytes as u64;
    }

    /// Moves a counted datagram that was not sent to the datagram's drop reason.
    pub(crate) fn refused(&mut self, tag: Tag, reason: DropReason, counters: &WorkerCounters) {
        self.packets[tag.sent as usize] -= 1;
        self.bytes[tag.sent as usize] -= tag.bytes as u64;
        counters.add(tag.sent.refused(reason), 1);
    }

    /// Counts the remaining datagrams as sent, and clears the sums.
    pub(crate) fn publish(&mut self, counters: &WorkerCounters) {
        for sent in Sent::ALL {
            let packets = std::mem::take(&mut self.packets[sent as usize]);
            let bytes = std::mem::take(&mut self.bytes[sent as usize]);
            if packets == 0 {
                continue;
            }
            if let Some(taken) = sent.taken() {
                counters.add(taken, packets);
                counters.add(Series::Packets(sent.leg()), packets);
                counters.add(Series::Bytes(sent.leg()), bytes);
            } else {
                counters.add(Series::PipedBytes(sent.leg()), bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_read_back() {
        for (index, sent) in Sent::ALL.into_iter().enumerate() {
            assert_eq!(sent as usize, index);
            for bytes in [0, 1, 65_535] {
                let tag = Tag { sent, bytes };
                assert_eq!(Tag::of(tag.number()), tag);
            }
        }
    }

    #[test]
    fn a_refused_datagram_is_counted_once() {
        let counters = WorkerCounters::new();
        let mut sums = BatchSums::default();
        let tag = |sent| Tag { sent, bytes: 100 };
        for sent in [Sent::ToPeer, Sent::ToPeer, Sent::ToClient, Sent::LateError] {
            sums.sending(tag(sent));
        }
        sums.refused(tag(Sent::ToPeer), DropReason::SendBufferFull, &counters);
        sums.refused(tag(Sent::LateError), DropReason::SendBufferFull, &counters);
        sums.publish(&counters);
        sums.publish(&counters);

        let counted: Vec<_> =
            Series::all().map(|s| (s, counters.value(s))).filter(|(_, n)| *n > 0).collect();
        assert_eq!(
            counted,
            [
                (Series::Packets(Leg::ToClients), 1),
                (Series::Packets(Leg::ToPeers), 1),
                (Series::Bytes(Leg::ToClients), 100),
                (Series::Bytes(Leg::ToPeers), 100),
                (Series::Fate(Fate::ToPeer), 1),
                (Series::Fate(Fate::ToClient), 1),
                (Series::Drop(DropReason::SendBufferFull), 1),
                (Series::LateAnswer(LateAnswer::Unsent), 1),
            ]
        );
    }
}
