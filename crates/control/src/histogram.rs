//! Histograms: fixed buckets and a sum, which a worker counts without locks and without allocation.

turn_types::labels! {
    /// A distribution that each worker keeps.
    Histogram {
        /// Messages per receive call.
        ReceivedMessages => "received_messages",
        /// Datagrams per message received: above one is the kernel's merging at work.
        ReceivedSegments => "received_segments",
        /// Datagrams per message sent.
        SentSegments => "sent_segments",
        /// Time from an Allocate to its success response, with the look-up of its user.
        Allocate => "allocate_seconds",
        /// Time of a look-up in the user database, of users that are not cached.
        Lookup => "lookup_seconds",
        /// Time from the acceptance of a TLS connection to the end of its handshake, with waiting
        /// for processor time.
        TlsHandshake => "tls_handshake_seconds",
        /// Time from a DTLS client's cookie to the end of its handshake.
        DtlsHandshake => "dtls_handshake_seconds",
        /// Life of ended allocations.
        SessionDuration => "session_duration_seconds",
        /// Bytes that ended allocations relayed, both directions together.
        SessionBytes => "session_bytes",
        /// Busy part of a turn of a worker's loop: the time that a new packet may have to wait.
        Turn => "loop_turn_seconds",
    }
}

/// Sizes of batches: neither a receive batch nor a run exceeds 64.
const BATCH: &[u64] = &[1, 2, 4, 8, 16];

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// From a key derived at hand to a database that hangs: requests are given up after some seconds.
const ANSWER: &[u64] = &[
    50 * MICROSECOND,
    100 * MICROSECOND,
    250 * MICROSECOND,
    500 * MICROSECOND,
    MILLISECOND,
    2_500 * MICROSECOND,
    5 * MILLISECOND,
    10 * MILLISECOND,
    25 * MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND,
    250 * MILLISECOND,
    500 * MILLISECOND,
    SECOND,
    3 * SECOND,
];

/// From a client in the same house to one over a satellite that repeats its messages.
const HANDSHAKE: &[u64] = &[
    MILLISECOND,
    5 * MILLISECOND,
    10 * MILLISECOND,
    25 * MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND,
    250 * MILLISECOND,
    500 * MILLISECOND,
    SECOND,
    2 * SECOND,
    5 * SECOND,
];

/// From a call that failed to a day.
const DURATION: &[u64] = &[
    SECOND,
    5 * SECOND,
    15 * SECOND,
    60 * SECOND,
    300 * SECOND,
    900 * SECOND,
    1_800 * SECOND,
    3_600 * SECOND,
    7_200 * SECOND,
    21_600 * SECOND,
    86_400 * SECOND,
];

/// From connectivity checks alone to a day of video.
const BYTES: &[u64] = &[
    0,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
    100_000_000_000,
];

/// From a single packet to a delay that a call can hear.
const TURN: &[u64] = &[
    10 * MICROSECOND,
    25 * MICROSECOND,
    50 * MICROSECOND,
    100 * MICROSECOND,
    250 * MICROSECOND,
    500 * MICROSECOND,
    MILLISECOND,
    2_500 * MICROSECOND,
    5 * MILLISECOND,
    10 * MILLISECOND,
    25 * MILLISECOND,
    100 * MILLISECOND,
];

impl Histogram {
    /// The sizes of batches, counted where they are made.
    pub const BATCHES: [Self; 3] =
        [Self::ReceivedMessages, Self::ReceivedSegments, Self::SentSegments];

    /// Inclusive upper bounds of the buckets, in [units](Self::units); behind them is one without a
    /// bound.
    #[must_use]
    pub const fn bounds(self) -> &'static [u64] {
        match self {
            Self::ReceivedMessages | Self::ReceivedSegments | Self::SentSegments => BATCH,
            Self::Allocate | Self::Lookup => ANSWER,
            Self::TlsHandshake | Self::DtlsHandshake => HANDSHAKE,
            Self::SessionDuration => DURATION,
            Self::SessionBytes => BYTES,
            Self::Turn => TURN,
        }
    }

    /// Number of buckets.
    #[must_use]
    pub const fn buckets(self) -> usize {
        self.bounds().len() + 1
    }

    /// The inclusive upper bound of a bucket; the last one has none.
    #[must_use]
    pub fn upper_bound(self, bucket: usize) -> Option<u64> {
        self.bounds().get(bucket).copied()
    }

    /// Units of values and bounds in one unit of the metric: nanoseconds in a second, or 1.
    #[must_use]
    pub const fn units(self) -> u64 {
        match self {
            Self::ReceivedMessages
            | Self::ReceivedSegments
            | Self::SentSegments
            | Self::SessionBytes => 1,
            Self::Allocate
            | Self::Lookup
            | Self::TlsHandshake
            | Self::DtlsHandshake
            | Self::SessionDuration
            | Self::Turn => SECOND,
        }
    }

    /// Numbers of all histograms before this one, in a worker's table: buckets and sums.
    pub(crate) const fn offset(self) -> usize {
        let (mut offset, mut index) = (0, 0);
        while index < self.index() {
            offset += Self::ALL[index].buckets() + 1;
            index += 1;
        }
        offset
    }

    /// Numbers of all histograms.
    pub(crate) const NUMBERS: usize = {
        let last = Self::ALL[Self::ALL.len() - 1];
        last.offset() + last.buckets() + 1
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_rise() {
        for &histogram in Histogram::ALL {
            assert!(histogram.bounds().is_sorted_by(|a, b| a < b), "{histogram:?}");
        }
    }
}
