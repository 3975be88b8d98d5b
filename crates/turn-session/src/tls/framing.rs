//! The bytes of a connection cut into whole TLS records (RFC 8446 §5.1). rustls does not give an
//! incomplete record back, so that it waits here, and goes to another process with the connection.

use std::mem;

/// Length of a record's header: type, version, length.
pub(super) const HEADER: usize = 5;

/// Length from which rustls accepts no body. RFC 5246 §6.2.3 allows one byte more.
const BODY_LIMIT: usize = (1 << 14) + 2048;

/// Bytes at the beginning of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// More bytes tell.
    Incomplete,
    /// A record of this length, header included.
    Record(usize),
    /// A record that is longer than any may be.
    TooLong,
    /// No record of TLS.
    Foreign,
}

impl Header {
    pub(super) const fn of(bytes: &[u8]) -> Self {
        /// Application data, the only records that may be empty.
        const DATA: u8 = 23;
        match *bytes {
            // 24 is heartbeat, which rustls knows and refuses.
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

/// Beginning of an incomplete record.
#[derive(Debug, Default)]
pub(super) struct Partial {
    bytes: Vec<u8>,
    /// Something else than a record came: all bytes are passed on, for an error that rustls names.
    is_foreign: bool,
}

impl Partial {
    /// Returns that of another process; `None`: it is no beginning of a record, or a whole one.
    pub(super) fn restore(bytes: Vec<u8>) -> Option<Self> {
        let is_partial = match Header::of(&bytes) {
            Header::Incomplete => true,
            Header::Record(len) => bytes.len() < len,
            Header::TooLong | Header::Foreign => false,
        };
        is_partial.then_some(Self { bytes, is_foreign: false })
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns true if bytes were passed on that are no records.
    pub(super) const fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Takes whole records from the front of `bytes`, or all bytes if they are no records. `None`:
    /// the rest is kept, until the record is complete.
    pub(super) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Piece<'a>> {
        if self.bytes.is_empty() {
            let len = self.whole(bytes);
            let (front, rest) = bytes.split_at(len);
            *bytes = rest;
            if !front.is_empty() {
                return Some(Piece::Borrowed(front));
            }
        }
        self.complete(bytes).map(Piece::Owned)
    }

    /// Returns the length of the whole records at the front, or of all bytes if they are none.
    fn whole(&mut self, bytes: &[u8]) -> usize {
        let mut len = 0;
        while !self.is_foreign {
            match Header::of(&bytes[len..]) {
                Header::Record(record) if record <= bytes.len() - len => len += record,
                Header::Record(_) | Header::Incomplete => return len,
                Header::TooLong | Header::Foreign => self.is_foreign = true,
            }
        }
        bytes.len()
    }

    /// Appends bytes up to the end of the record, and returns it when it is whole, or no record.
    fn complete(&mut self, bytes: &mut &[u8]) -> Option<Vec<u8>> {
        while !bytes.is_empty() {
            // The header first: it tells the length.
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

/// Whole records.
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

    /// The pieces of such bytes.
    fn pieces(partial: &mut Partial, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(piece) = partial.next(&mut bytes) {
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
            let mut partial = Partial::default();
            let empty = record(0);
            assert_eq!(pieces(&mut partial, &empty[..4]), [[0; 0]; 0]);
            assert_eq!(pieces(&mut partial, &empty[4..]), [empty]);
            assert!(!partial.is_foreign());
            assert_eq!(pieces(&mut partial, foreign), [foreign]);
            assert!(partial.is_foreign());
            // What looks like the beginning of a record does not wait any more.
            assert_eq!(pieces(&mut partial, &[22, 3]), [[22, 3]]);
        }
        let mut partial = Partial::default();
        assert_eq!(pieces(&mut partial, &[22]), [[0; 0]; 0]);
        assert_eq!(pieces(&mut partial, b"GET "), [b"\x16GET "]);
        assert!(partial.is_foreign());
        assert_eq!(pieces(&mut partial, b"/"), [b"/"]);
    }

    #[test]
    fn a_partial_record_of_another_process_is_one() {
        let longest = record(BODY_LIMIT - 1);
        for len in 0..longest.len() {
            assert!(Partial::restore(longest[..len].to_vec()).is_some(), "{len}");
        }
        for foreign in [&longest[..], &record(0), b"GET", b"\x17\x03\x03\x48\x00"] {
            assert!(Partial::restore(foreign.to_vec()).is_none());
        }
    }

    proptest! {
        #[test]
        fn records_come_whole_however_they_are_cut(
            lens in vec(0..3000_usize, 0..8),
            cuts in vec(1..2000_usize, 0..20),
        ) {
            let all: Vec<u8> = lens.into_iter().flat_map(record).collect();
            let (mut partial, mut rest, mut out) = (Partial::default(), &all[..], Vec::new());
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (front, back) = rest.split_at(cut.min(rest.len()));
                for piece in pieces(&mut partial, front) {
                    prop_assert_eq!(Partial::default().whole(&piece), piece.len());
                    out.extend(piece);
                }
                rest = back;
            }
            prop_assert_eq!(out, all);
            prop_assert!(!partial.is_foreign());
            // An idle connection holds no memory.
            prop_assert_eq!(partial.into_bytes().capacity(), 0);
        }
    }
}
