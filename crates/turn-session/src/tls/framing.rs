//! Splitting of a connection's bytes into complete TLS records (RFC 8446 §5.1).
//!
//! rustls cannot return an incomplete record once read. Incomplete records are therefore buffered
//! here, and move to another process with the connection.

use std::mem;

/// Length of a record's header in bytes: type, version, length.
pub(super) const HEADER: usize = 5;

/// Minimum length of a record body that rustls rejects. RFC 5246 §6.2.3 allows one byte more.
const BODY_LIMIT: usize = (1 << 14) + 2048;

/// Result of parsing the first bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// Type or length is still unknown, because bytes are missing.
    Incomplete,
    /// Record of this length in bytes, including the header.
    Record(usize),
    /// Record that exceeds the maximum length.
    TooLong,
    /// Bytes that are not a TLS record.
    Foreign,
}

impl Header {
    pub(super) const fn of(bytes: &[u8]) -> Self {
        /// Application data, the only content type of records that may be empty.
        const DATA: u8 = 23;
        match *bytes {
            // 24 is heartbeat, which rustls recognises and refuses.
            [kind, ..] if kind < 20 || kind > 24 => Self::Foreign,
            [_, major, ..] if major != 3 => Self::Foreign,
            [kind, _, _, high, low, ..] => match u16::from_be_bytes([high, low]) as usize {
                0 if kind != DATA => Self::Foreign,
                BODY_LIMIT.. => Self::TooLong,
                body => Self::Record(HEADER + body),
            },
            _ => Self::Incomplete,
        }
    }
}

/// Limits of one [`take`](super::Tls::take).
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// Maximum number of records.
    pub(super) records: usize,
    /// Maximum total length in bytes of retained records, unless the first record is longer.
    pub(super) kept_bytes: usize,
}

/// Received bytes not yet passed to the record layer: records beyond the [`Most`] of a read, then
/// the first part of an incomplete record.
#[derive(Debug, Default)]
pub(super) struct Untaken {
    bytes: Vec<u8>,
    /// True after bytes that are not a TLS record. All bytes are then passed on, and rustls returns
    /// the specific error.
    is_foreign: bool,
}

impl Untaken {
    /// Restores the bytes of another process. Returns `None` if the bytes are not TLS records.
    pub(super) fn restore(bytes: Vec<u8>) -> Option<Self> {
        let mut untaken = Self::default();
        let mut any = usize::MAX;
        untaken.whole(&bytes, usize::MAX, &mut any);
        (!untaken.is_foreign).then_some(Self { bytes, is_foreign: false })
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns true if bytes that are not TLS records were passed on.
    pub(super) const fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Returns true if [`next`](Self::next) returns a piece without further bytes.
    pub(super) fn has_record(&self) -> bool {
        match Header::of(&self.bytes) {
            Header::Record(len) => len <= self.bytes.len(),
            Header::Incomplete => false,
            Header::TooLong | Header::Foreign => true,
        }
    }

    /// Takes complete records: retained records, otherwise the first of `bytes`. Takes all bytes if
    /// they are not TLS records.
    ///
    /// Returns `None` if no complete record remains, or `most` is exhausted. Further bytes are then
    /// retained for a later call.
    pub(super) fn next<'a>(&mut self, bytes: &mut &'a [u8], most: &mut Most) -> Option<Piece<'a>> {
        let records = &mut most.records;
        if *records == 0 || self.has_record() {
            self.bytes.extend_from_slice(mem::take(bytes));
        }
        if *records == 0 {
            return None;
        }
        if self.has_record() {
            return Some(Piece::Owned(self.take_kept(most)));
        }
        if self.bytes.is_empty() {
            let len = self.whole(bytes, usize::MAX, records);
            let (front, rest) = bytes.split_at(len);
            *bytes = rest;
            if !front.is_empty() {
                return Some(Piece::Borrowed(front));
            }
        }
        let record = self.complete(bytes)?;
        *records = records.saturating_sub(1);
        Some(Piece::Owned(record))
    }

    /// Takes retained records, within the limits of `most`.
    fn take_kept(&mut self, most: &mut Most) -> Vec<u8> {
        let mut taken = mem::take(&mut self.bytes);
        let len = self.whole(&taken, most.kept_bytes, &mut most.records);
        most.kept_bytes = most.kept_bytes.saturating_sub(len);
        self.bytes = taken.split_off(len);
        taken
    }

    /// Returns the length of the first complete records, or of all bytes if they are not TLS
    /// records. The length is at most `most_bytes`, except for a longer first record. Subtracts the
    /// number of records from `records`, the maximum number.
    fn whole(&mut self, bytes: &[u8], most_bytes: usize, records: &mut usize) -> usize {
        let mut len = 0;
        while !self.is_foreign {
            match Header::of(&bytes[len..]) {
                Header::Record(_) if *records == 0 => return len,
                Header::Record(record) if len > 0 && len + record > most_bytes => {
                    // The other records exceed the limit: this read takes no more.
                    *records = 0;
                    return len;
                }
                Header::Record(record) if record <= bytes.len() - len => {
                    len += record;
                    *records -= 1;
                }
                Header::Record(_) | Header::Incomplete => return len,
                Header::TooLong | Header::Foreign => self.is_foreign = true,
            }
        }
        bytes.len()
    }

    /// Appends bytes up to the end of the record. Returns the record if complete, or bytes that are
    /// not a TLS record.
    fn complete(&mut self, bytes: &mut &[u8]) -> Option<Vec<u8>> {
        while !bytes.is_empty() {
            // The header is completed first, because it contains the length.
            let wanted = match Header::of(&self.bytes) {
                Header::Record(len) => len,
                Header::Incomplete | Header::TooLong | Header::Foreign => HEADER,
            };
            let missing = wanted.saturating_sub(self.bytes.len());
            let (front, rest) = bytes.split_at(missing.min(bytes.len()));
            self.bytes.extend_from_slice(front);
            *bytes = rest;
            match Header::of(&self.bytes) {
                Header::Record(len) if len == self.bytes.len() => {}
                Header::Record(_) | Header::Incomplete => continue,
                Header::TooLong | Header::Foreign => self.is_foreign = true,
            }
            return Some(mem::take(&mut self.bytes));
        }
        None
    }
}

/// Complete records, or bytes that are not TLS records.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    Borrowed(&'a [u8]),
    Owned(Vec<u8>),
}

impl Piece<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn record(len: usize) -> Vec<u8> {
        let mut record = vec![23, 3, 3];
        record.extend_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
        record.extend((0..len).map(|index| index as u8));
        record
    }

    const ALL: Most = Most { records: usize::MAX, kept_bytes: usize::MAX };

    /// Splits the bytes into pieces.
    fn pieces(untaken: &mut Untaken, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let (mut all, mut most) = (Vec::new(), ALL);
        while let Some(piece) = untaken.next(&mut bytes, &mut most) {
            all.push(piece.bytes().to_vec());
        }
        assert!(bytes.is_empty());
        all
    }

    #[test]
    fn bytes_that_are_no_record_are_passed_on_at_once() {
        let foreign: [&[u8]; 5] =
            [b"GET / HTTP", b"G", b"\x16\x02", b"\x16\x03\x01\x00\x00", b"\x17\x03\x03\x48\x00"];
        for foreign in foreign {
            let mut untaken = Untaken::default();
            let empty = record(0);
            assert_eq!(pieces(&mut untaken, &empty[..4]), [[0; 0]; 0]);
            assert_eq!(pieces(&mut untaken, &empty[4..]), [empty]);
            assert!(!untaken.is_foreign());
            assert_eq!(pieces(&mut untaken, foreign), [foreign]);
            assert!(untaken.is_foreign());
            // Bytes that look like the start of a record are passed on immediately.
            assert_eq!(pieces(&mut untaken, &[22, 3]), [[22, 3]]);
        }
        let mut untaken = Untaken::default();
        assert_eq!(pieces(&mut untaken, &[22]), [[0; 0]; 0]);
        assert_eq!(pieces(&mut untaken, b"GET "), [b"\x16GET "]);
        assert!(untaken.is_foreign());
        assert_eq!(pieces(&mut untaken, b"/"), [b"/"]);
    }

    #[test]
    fn records_of_another_process_are_some() {
        let longest = record(BODY_LIMIT - 1);
        for len in 0..=longest.len() {
            assert!(Untaken::restore(longest[..len].to_vec()).is_some(), "{len}");
        }
        let many = [record(0), record(7), longest[..9].to_vec()].concat();
        let mut untaken = Untaken::restore(many.clone()).unwrap();
        assert!(untaken.has_record());
        assert_eq!(pieces(&mut untaken, &[]), [many[..17].to_vec()]);
        assert!(!untaken.has_record());
        let begun = [record(3), b"\x17\x03\x03\x48\x00".to_vec()].concat();
        for foreign in [&begun[..], b"GET", b"\x17\x03\x03\x48\x00"] {
            assert!(Untaken::restore(foreign.to_vec()).is_none());
        }
    }

    #[test]
    fn kept_records_are_taken_as_far_as_there_is_room() {
        let all = [record(3000), record(1000), record(90), record(9)].concat();
        let mut untaken = Untaken::restore(all.clone()).unwrap();
        let mut taken = 0;
        for len in [3005, 1005 + 95, 14] {
            let mut most = Most { records: 9, kept_bytes: 1105 };
            let mut none: &[u8] = &[];
            let piece = untaken.next(&mut none, &mut most).unwrap();
            assert_eq!(piece.bytes(), &all[taken..taken + len]);
            assert!(untaken.next(&mut none, &mut most).is_none());
            taken += len;
        }
        assert_eq!(taken, all.len());
        assert_eq!(untaken.into_bytes().capacity(), 0);
    }

    proptest! {
        #[test]
        fn records_come_whole_however_they_are_cut(
            lens in vec(0..3000_usize, 0..8),
            cuts in vec(1..2000_usize, 0..20),
            most in 1..5_usize,
        ) {
            let all: Vec<u8> = lens.into_iter().flat_map(record).collect();
            let (mut untaken, mut rest, mut out) = (Untaken::default(), &all[..], Vec::new());
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (mut front, back) = rest.split_at(cut.min(rest.len()));
                // Retained records are taken before further bytes.
                loop {
                    let mut most = Most { records: most, kept_bytes: usize::MAX };
                    while let Some(piece) = untaken.next(&mut front, &mut most) {
                        let mut records = usize::MAX;
                        let whole = Untaken::default().whole(piece.bytes(), usize::MAX, &mut records);
                        prop_assert_eq!(whole, piece.bytes().len());
                        prop_assert!(usize::MAX - records <= 4);
                        out.extend_from_slice(piece.bytes());
                    }
                    prop_assert!(front.is_empty());
                    if !untaken.has_record() {
                        break;
                    }
                }
                rest = back;
            }
            prop_assert_eq!(out, all);
            prop_assert!(!untaken.is_foreign());
            // An idle connection holds no memory.
            prop_assert_eq!(untaken.into_bytes().capacity(), 0);
        }
    }
}
