//! ClientHello (RFC 5246 §7.4.1.2, RFC 6347 §4.2.1): the complete message, or the first part with
//! the cookie.

use super::record::{
    CLIENT_HELLO, HANDSHAKE, HANDSHAKE_HEADER, Piece, RECORD_HEADER, Record, take_piece,
    take_record,
};

/// Maximum length in bytes of a datagram accepted as a first message. Typical clients send a
/// quarter of this. Post-quantum key exchange, which DTLS 1.2 does not have, would also fit.
pub const HELLO_MAX: usize = 2048;

/// Maximum number of messages that a client sends before the message with a valid cookie: the first
/// hello, and one message for each expired cookie.
const MESSAGES_BEFORE_MAX: u16 = 7;

/// Offset of the message body in the datagram.
const BODY_AT: usize = RECORD_HEADER + HANDSHAKE_HEADER;

/// ClientHello that is complete, and the only message of its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    datagram: &'a [u8],
    /// Number of the record.
    pub(super) record: u64,
    /// Number of the message.
    pub(super) message: u16,
    /// Newest version that the client supports. Newer versions have lower numbers.
    pub(super) version: u16,
    /// Client random, which identifies the handshake.
    pub(super) random: &'a [u8; 32],
    pub(super) cookie: &'a [u8],
    /// Offset of the cookie's length in the datagram.
    cookie_at: usize,
}

/// Reason why a datagram is not accepted as a first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloError {
    /// The datagram is not a ClientHello.
    Other,
    /// Fragment without the cookie, or a message longer than the limit.
    Piece,
    /// The ClientHello is malformed.
    Malformed,
}

/// First record of a datagram, with a fragment of a ClientHello or the complete message.
pub(super) struct HelloRecord<'a> {
    pub(super) record: Record<'a>,
    pub(super) piece: Piece<'a>,
    /// True if the datagram contains no further records and fragments.
    pub(super) alone: bool,
}

impl<'a> HelloRecord<'a> {
    /// Parses the first record of a datagram.
    ///
    /// # Errors
    /// The datagram contains no ClientHello, or a malformed one.
    pub(super) fn read(datagram: &'a [u8]) -> Result<Self, HelloError> {
        let (record, behind) = take_record(datagram).ok_or(HelloError::Other)?;
        if record.content != HANDSHAKE
            || record.epoch != 0
            || record.body.first() != Some(&CLIENT_HELLO)
        {
            return Err(HelloError::Other);
        }
        let (piece, more) = take_piece(record.body).ok_or(HelloError::Malformed)?;
        Ok(Self { record, piece, alone: behind.is_empty() && more.is_empty() })
    }
}

impl<'a> Hello<'a> {
    /// Parses a datagram with one record, one message and one fragment.
    ///
    /// # Errors
    /// Returns the reason why the datagram is not a complete ClientHello.
    pub fn read(datagram: &'a [u8]) -> Result<Self, HelloError> {
        let HelloRecord { record, piece, alone } = HelloRecord::read(datagram)?;
        if piece.at != 0 || piece.body.len() != piece.len || datagram.len() > HELLO_MAX {
            return Err(HelloError::Piece);
        }
        if !(alone && are_first(record.number, piece.message)) {
            return Err(HelloError::Malformed);
        }
        let fields = Fields::read(piece.body).ok_or(HelloError::Malformed)?;
        Ok(Self {
            datagram,
            record: record.number,
            message: piece.message,
            version: fields.version,
            random: fields.random,
            cookie: fields.cookie,
            cookie_at: BODY_AT + fields.cookie_at,
        })
    }

    /// Returns the length of the datagram in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.datagram.len()
    }

    /// Returns false: a hello always contains a version and other fields.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.datagram.is_empty()
    }

    /// Returns the client random, which identifies the handshake.
    #[must_use]
    pub const fn random(&self) -> &'a [u8; 32] {
        self.random
    }

    /// Returns the cookie, which is empty in a first hello.
    #[must_use]
    pub const fn cookie(&self) -> &'a [u8] {
        self.cookie
    }

    /// Writes the hello that the client sent `back` messages earlier. That hello is identical,
    /// except for the numbers and the missing cookie (RFC 6347 §4.2.1).
    pub(super) fn without_cookie(&self, back: u16, to: &mut Vec<u8>) {
        let before = &self.datagram[..self.cookie_at];
        let behind = &self.datagram[self.cookie_at + 1 + self.cookie.len()..];
        let len = before.len() + 1 + behind.len();
        to.clear();
        to.extend_from_slice(before);
        to.push(0);
        to.extend_from_slice(behind);
        // The result is not longer than the hello that was read, so all lengths fit their fields.
        let of_message = (len - BODY_AT) as u32;
        let of_record = (len - RECORD_HEADER) as u16;
        let record = self.record - u64::from(back);
        to[5..11].copy_from_slice(&record.to_be_bytes()[2..]);
        to[11..13].copy_from_slice(&of_record.to_be_bytes());
        to[14..17].copy_from_slice(&of_message.to_be_bytes()[1..]);
        to[17..19].copy_from_slice(&(self.message - back).to_be_bytes());
        to[22..25].copy_from_slice(&of_message.to_be_bytes()[1..]);
    }
}

/// Returns true if these numbers are possible for a first record and message. Clients increment
/// both numbers together.
pub(super) fn are_first(record: u64, message: u16) -> bool {
    message <= MESSAGES_BEFORE_MAX && u64::from(message) <= record
}

/// Fields of the message that are used before the handshake.
pub(super) struct Fields<'a> {
    pub(super) version: u16,
    pub(super) random: &'a [u8; 32],
    pub(super) cookie: &'a [u8],
    /// Offset of the cookie's length in the message.
    cookie_at: usize,
}

impl<'a> Fields<'a> {
    /// Parses the complete message. A malformed message must be rejected before a handshake starts.
    fn read(body: &'a [u8]) -> Option<Self> {
        let (fields, rest) = Self::read_beginning(body)?;
        let (suites, rest) = take_long(rest)?;
        let (compression, extensions) = take_short(rest)?;
        let has_form = !suites.is_empty()
            && suites.len().is_multiple_of(2)
            && !compression.is_empty()
            && (extensions.is_empty() || are_extensions(extensions));
        has_form.then_some(fields)
    }

    /// Parses the message up to the cookie, and returns the remaining bytes.
    pub(super) fn read_beginning(body: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (version, rest) = body.split_first_chunk::<2>()?;
        let (random, rest) = rest.split_first_chunk::<32>()?;
        let (session, rest) = take_short(rest)?;
        let cookie_at = body.len() - rest.len();
        let (cookie, rest) = take_short(rest)?;
        let version = u16::from_be_bytes(*version);
        (session.len() <= 32).then_some((Self { version, random, cookie, cookie_at }, rest))
    }
}

fn are_extensions(bytes: &[u8]) -> bool {
    let Some((mut list, [])) = take_long(bytes) else { return false };
    while !list.is_empty() {
        let Some((_, behind)) = list.split_first_chunk::<2>().and_then(|(_, rest)| take_long(rest))
        else {
            return false;
        };
        list = behind;
    }
    true
}

/// Splits off bytes with a length prefix of one byte.
fn take_short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

/// Splits off bytes with a length prefix of two bytes.
fn take_long(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Fields of the message after the random.
    pub(in super::super) struct Parts {
        session: Vec<u8>,
        cookie: Vec<u8>,
        suites: Vec<u8>,
        compression: Vec<u8>,
        extensions: Vec<u8>,
    }

    pub(in super::super) fn parts(cookie: &[u8]) -> Parts {
        Parts {
            session: vec![4; 32],
            cookie: cookie.to_vec(),
            suites: vec![0xC0, 0x2B, 0xC0, 0x2F],
            compression: vec![0],
            // A list of two extensions, the second of which is empty.
            extensions: vec![0, 10, 0, 10, 0, 2, 0, 23, 0, 23, 0, 0],
        }
    }

    fn short(bytes: &[u8]) -> Vec<u8> {
        [&[bytes.len() as u8], bytes].concat()
    }

    pub(in super::super) fn datagram(record: u8, message: u8, parts: &Parts) -> Vec<u8> {
        let Parts { session, cookie, suites, compression, extensions } = parts;
        let random = [[0xFE, 0xFD].as_slice(), &[7; 32]].concat();
        let suites = [&(suites.len() as u16).to_be_bytes(), &suites[..]].concat();
        let (session, cookie, compression) = (short(session), short(cookie), short(compression));
        let body = [&random, &session, &cookie, &suites, &compression, extensions]
            .map(|part| &part[..])
            .concat();
        let len = (body.len() as u32).to_be_bytes();
        let mut out = vec![HANDSHAKE, 0xFE, 0xFF, 0, 0, 0, 0, 0, 0, 0, record];
        out.extend(((body.len() + HANDSHAKE_HEADER) as u16).to_be_bytes());
        out.extend([CLIENT_HELLO, len[1], len[2], len[3], 0, message, 0, 0, 0]);
        out.extend(&len[1..]);
        out.extend(body);
        out
    }

    /// OpenSSL receives the client's earlier hello, and counts from that message.
    #[test]
    fn an_earlier_hello_is_restored_byte_for_byte() {
        let second = datagram(9, 3, &parts(&[5; 32]));
        let hello = Hello::read(&second).unwrap();
        assert_eq!(hello.cookie(), [5; 32]);
        assert_eq!((hello.len(), hello.is_empty()), (second.len(), false));
        for back in 1..=3 {
            let mut restored = vec![0xFF; 3];
            hello.without_cookie(back.into(), &mut restored);
            assert_eq!(restored, datagram(9 - back, 3 - back, &parts(&[])), "{back}");
        }
    }

    #[test]
    fn records_and_messages_are_counted_together() {
        for (record, message, is_read) in
            [(0, 0, true), (7, 7, true), (200, 7, true), (200, 8, false), (6, 7, false)]
        {
            let datagram = datagram(record, message, &parts(&[]));
            let read = Hello::read(&datagram);
            assert_eq!(read.is_ok(), is_read, "record {record}, message {message}");
            assert!(is_read || read == Err(HelloError::Malformed));
        }
    }

    #[test]
    fn the_longest_hello_is_read_and_no_longer_one() {
        let room = HELLO_MAX - datagram(0, 0, &parts(&[])).len();
        for (more, wanted) in [(room, Ok(())), (room + 1, Err(HelloError::Piece))] {
            let mut parts = parts(&[]);
            parts.extensions.extend(vec![0; more]);
            let list = parts.extensions.len() - 2;
            parts.extensions[..2].copy_from_slice(&(list as u16).to_be_bytes());
            parts.extensions[10..12].copy_from_slice(&(more as u16).to_be_bytes());
            assert_eq!(Hello::read(&datagram(0, 0, &parts)).map(|_| ()), wanted);
        }
    }

    #[test]
    fn each_field_has_its_form() {
        let is_read = |change: fn(&mut Parts)| {
            let mut parts = parts(&[]);
            change(&mut parts);
            match Hello::read(&datagram(0, 0, &parts)) {
                Ok(_) => true,
                Err(why) => {
                    assert_eq!(why, HelloError::Malformed);
                    false
                }
            }
        };
        assert!(is_read(|_| ()));
        assert!(is_read(|parts| parts.extensions.clear()), "extensions are optional");
        assert!(!is_read(|parts| parts.session.push(4)));
        assert!(!is_read(|parts| parts.suites.clear()));
        assert!(!is_read(|parts| parts.suites.push(0xC0)), "half a suite");
        assert!(!is_read(|parts| parts.compression.clear()));
        assert!(!is_read(|parts| parts.extensions.push(0)), "behind the list");
        assert!(!is_read(|parts| parts.extensions[1] -= 1), "shorter than its content");
        assert!(!is_read(|parts| parts.extensions[5] += 1), "the second lacks a byte");
    }
}
