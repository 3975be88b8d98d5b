//! Reassembly of ClientHello fragments (RFC 6347 §4.2.3), from clients with small packets or large
//! key shares.
//!
//! The first fragment contains the cookie: the server stores no fragment of an unverified client.
//! Fragments are accepted in order only. After loss or reordering, the client retransmits all
//! fragments after a second.

use super::hello::{HELLO_MAX, HelloError, HelloRecord};
use super::record::{CLIENT_HELLO, HANDSHAKE, HANDSHAKE_HEADER, Piece, RECORD_HEADER};

/// Maximum number of fragments. Packets of 128 bytes can carry the longest hello.
const PIECES_MAX: u8 = 24;

/// Fragment of a ClientHello, the only content of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloPiece<'a> {
    /// Number of the record.
    pub(super) record: u64,
    /// Version of the record.
    pub(super) record_version: u16,
    pub(super) piece: Piece<'a>,
}

impl<'a> HelloPiece<'a> {
    /// Parses a datagram with one record and one fragment.
    ///
    /// # Errors
    /// The datagram has another form, or the message is too long.
    pub fn read(datagram: &'a [u8]) -> Result<Self, HelloError> {
        let HelloRecord { record, piece, alone } = HelloRecord::read(datagram)?;
        let ends = piece.at.checked_add(piece.body.len());
        let is_part = ends.is_some_and(|end| end <= piece.len) && !piece.body.is_empty();
        if !(alone && is_part) {
            return Err(HelloError::Malformed);
        }
        if piece.len > HELLO_MAX - RECORD_HEADER - HANDSHAKE_HEADER {
            return Err(HelloError::Piece);
        }
        let (record, record_version) = (record.number, record.version);
        Ok(Self { record, record_version, piece })
    }

    /// Returns true for the first fragment, which contains the cookie.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.piece.at == 0
    }
}

/// Incomplete ClientHello.
#[derive(Debug)]
pub struct PartialHello {
    /// Received part, as a datagram with one record.
    datagram: Vec<u8>,
    /// Length of the complete datagram in bytes.
    whole: usize,
    /// Number of the message.
    message: u16,
    pieces: u8,
}

impl PartialHello {
    /// Starts with a first fragment whose cookie is verified.
    #[must_use]
    pub fn begin(first: &HelloPiece<'_>) -> Self {
        let HelloPiece { record, record_version, piece, .. } = first;
        let Piece { len, message, body, .. } = *piece;
        // `HelloPiece::read` bounds the length.
        let of_record = ((HANDSHAKE_HEADER + len) as u16).to_be_bytes();
        let of_message = &(len as u32).to_be_bytes()[1..];
        let whole = RECORD_HEADER + HANDSHAKE_HEADER + len;
        let mut datagram = Vec::with_capacity(whole);
        datagram.push(HANDSHAKE);
        datagram.extend(record_version.to_be_bytes());
        // The upper two bytes are epoch 0.
        datagram.extend(record.to_be_bytes());
        datagram.extend(of_record);
        datagram.push(CLIENT_HELLO);
        datagram.extend(of_message);
        datagram.extend(message.to_be_bytes());
        datagram.extend([0; 3]);
        datagram.extend(of_message);
        datagram.extend(body);
        Self { datagram, whole, message, pieces: 1 }
    }

    /// Appends a fragment. Returns false if the fragment belongs to another hello, is out of order,
    /// or exceeds the maximum number.
    pub fn add(&mut self, next: &HelloPiece<'_>) -> bool {
        let Piece { len, message, at, body, .. } = next.piece;
        let have = self.datagram.len() - RECORD_HEADER - HANDSHAKE_HEADER;
        let is_next = at <= have && at + body.len() > have;
        let is_of_it = message == self.message
            && RECORD_HEADER + HANDSHAKE_HEADER + len == self.whole
            && self.pieces < PIECES_MAX;
        if !(is_next && is_of_it) {
            return false;
        }
        self.pieces += 1;
        self.datagram.extend(&body[have - at..]);
        true
    }

    /// Returns the complete hello as one datagram, or `None` while fragments are missing.
    #[must_use]
    pub fn whole(&self) -> Option<&[u8]> {
        (self.datagram.len() == self.whole).then_some(&self.datagram[..])
    }
}

#[cfg(test)]
mod tests {
    use super::super::hello::Hello;
    use super::super::hello::tests::{datagram, parts};
    use super::*;

    fn some_hello(cookie: &[u8]) -> Vec<u8> {
        datagram(3, 1, &parts(cookie))
    }

    /// Splits a hello into fragments of this length, one record each.
    fn in_pieces(whole: &[u8], most: usize) -> Vec<Vec<u8>> {
        let (headers, body) = whole.split_at(RECORD_HEADER + HANDSHAKE_HEADER);
        let piece = |(number, part): (usize, &[u8])| {
            let mut piece = [headers, part].concat();
            let (at, len) = ((number * most) as u32, part.len() as u32);
            piece[10] += number as u8;
            piece[11..13].copy_from_slice(&((HANDSHAKE_HEADER + part.len()) as u16).to_be_bytes());
            piece[19..22].copy_from_slice(&at.to_be_bytes()[1..]);
            piece[22..25].copy_from_slice(&len.to_be_bytes()[1..]);
            piece
        };
        body.chunks(most).enumerate().map(piece).collect()
    }

    fn read(datagram: &[u8]) -> HelloPiece<'_> {
        HelloPiece::read(datagram).unwrap()
    }

    #[test]
    fn fragments_of_any_length_become_the_hello_that_they_were() {
        let whole = some_hello(&[5; 32]);
        for most in [12, 40, 100, whole.len()] {
            let pieces = in_pieces(&whole, most);
            let mut hello = PartialHello::begin(&read(&pieces[0]));
            for piece in &pieces[1..] {
                assert_eq!(hello.whole(), None);
                let added = hello.add(&read(piece));
                assert!(added || pieces.len() > PIECES_MAX.into(), "{most}");
            }
            if pieces.len() <= PIECES_MAX.into() {
                assert_eq!(hello.whole(), Some(&whole[..]), "{most}");
                assert_eq!(Hello::read(&whole).unwrap().cookie(), [5; 32]);
            } else {
                assert_eq!(hello.whole(), None);
            }
        }
    }

    #[test]
    fn what_is_not_the_next_fragment_is_not_added() {
        let whole = some_hello(&[5; 32]);
        let pieces = in_pieces(&whole, 40);
        let mut hello = PartialHello::begin(&read(&pieces[0]));
        assert!(!hello.add(&read(&pieces[0])), "again");
        assert!(!hello.add(&read(&pieces[2])), "a gap");
        // Fragments of another message, and of a message of another length.
        for at in [RECORD_HEADER + 3, RECORD_HEADER + 5] {
            let mut other = pieces[1].clone();
            other[at] += 1;
            assert!(!hello.add(&read(&other)), "byte {at}");
        }
        assert!(hello.add(&read(&pieces[1])));
    }

    #[test]
    fn fragments_beyond_their_message_or_the_bound_are_refused() {
        let pieces = in_pieces(&some_hello(&[]), 40);
        let changed = |at: usize, value: u8| {
            let mut piece = pieces[1].clone();
            piece[at] = value;
            HelloPiece::read(&piece).map(drop)
        };
        assert_eq!(changed(RECORD_HEADER + 7, 0xFF), Err(HelloError::Malformed), "behind its end");
        assert_eq!(changed(RECORD_HEADER + 2, 8), Err(HelloError::Piece), "2,048 bytes and more");
        assert_eq!(changed(RECORD_HEADER, 2), Err(HelloError::Other), "a ServerHello");
        let two = [&pieces[0][..], &pieces[1]].concat();
        assert_eq!(HelloPiece::read(&two), Err(HelloError::Malformed));
        let empty = [&pieces[0][..11], &[0, 12], &pieces[0][13..22], &[0, 0, 0]].concat();
        assert_eq!(HelloPiece::read(&empty), Err(HelloError::Malformed));
    }
}
