//! Filter of records before the DTLS library, by their unencrypted fields.
//!
//! A DTLS library buffers fragments of messages until they are complete, and records of the next
//! epoch until its keys exist. A client with a valid cookie may still be hostile: each of these is
//! bounded before the library buffers it.

use super::record::{
    ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE, Record, take_piece, take_record,
};

/// Longest handshake message of a client, as declared in any fragment. A ClientKeyExchange has less
/// than 200 bytes; client certificates are not requested.
const MESSAGE_MAX: usize = super::HELLO_MAX;

/// The highest number of a handshake message: with cookies that were too old, a client has come to
/// less.
const MESSAGE_NUMBER_MAX: u16 = 15;

/// Encrypted records before the handshake is done: one Finished, each time that it is sent.
const EARLY_RECORDS_MAX: u8 = 8;

/// Encrypted handshake records after it: a Finished that is sent again for our answer to it was
/// lost.
const LATE_HANDSHAKE_MAX: u8 = 16;

/// Counters of the bounded records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordFilter {
    early: u8,
    late: u8,
}

impl RecordFilter {
    /// True if a datagram may reach the library.
    pub(super) fn admits(&mut self, mut datagram: &[u8], established: bool) -> bool {
        if datagram.is_empty() {
            return false;
        }
        while !datagram.is_empty() {
            let Some((record, rest)) = take_record(datagram) else { return false };
            if !self.admits_record(&record, established) {
                return false;
            }
            datagram = rest;
        }
        true
    }

    fn admits_record(&mut self, record: &Record<'_>, established: bool) -> bool {
        match (record.epoch, record.content) {
            // Unencrypted: anyone can forge it.
            (0, _) if established => false,
            (0, HANDSHAKE) => admits_pieces(record.body),
            (0, CHANGE_CIPHER_SPEC | ALERT) => true,
            (1, HANDSHAKE) if established => take_one(&mut self.late, LATE_HANDSHAKE_MAX),
            (1, ALERT | APPLICATION_DATA) if established => true,
            (1, HANDSHAKE | ALERT | APPLICATION_DATA) => {
                take_one(&mut self.early, EARLY_RECORDS_MAX)
            }
            // A third set of keys comes with a second handshake, which there is none of.
            (_, _) => false,
        }
    }
}

fn admits_pieces(mut body: &[u8]) -> bool {
    if body.is_empty() {
        return false;
    }
    while !body.is_empty() {
        let Some((piece, rest)) = take_piece(body) else { return false };
        if piece.len > MESSAGE_MAX
            || piece.message > MESSAGE_NUMBER_MAX
            || piece.at + piece.body.len() > piece.len
        {
            return false;
        }
        body = rest;
    }
    true
}

fn take_one(count: &mut u8, most: u8) -> bool {
    let more = *count < most;
    *count += u8::from(more);
    more
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(content: u8, epoch: u8, body: &[u8]) -> Vec<u8> {
        let mut record = vec![content, 0xFE, 0xFD, 0, epoch, 0, 0, 0, 0, 0, 9];
        record.extend((body.len() as u16).to_be_bytes());
        record.extend(body);
        record
    }

    fn piece(len: u32, message: u8, at: u8, body: &[u8]) -> Vec<u8> {
        let mut piece = vec![16];
        piece.extend(&len.to_be_bytes()[1..]);
        piece.extend([0, message, 0, 0, at, 0, 0, body.len() as u8]);
        piece.extend(body);
        piece
    }

    #[test]
    fn fragments_of_oversized_messages_are_dropped() {
        let admits =
            |pieces: &[u8]| RecordFilter::default().admits(&record(HANDSHAKE, 0, pieces), false);
        assert!(admits(&piece(100, 2, 0, &[1; 50])));
        assert!(admits(&[piece(100, 2, 0, &[1; 50]), piece(100, 2, 50, &[1; 50])].concat()));
        let longest = u32::try_from(MESSAGE_MAX).unwrap();
        assert!(admits(&piece(longest, 2, 0, &[1; 10])));
        assert!(!admits(&piece(longest + 1, 2, 0, &[1; 10])), "longer than any is");
        assert!(admits(&piece(100, 15, 0, &[1; 10])));
        assert!(!admits(&piece(100, 16, 0, &[1; 10])), "far ahead");
        assert!(!admits(&piece(5, 2, 0, &[1; 10])), "more than all of it");
        assert!(!admits(&piece(100, 2, 0, &[1; 50])[..40]), "cut off");
        assert!(!admits(&[]));
    }

    #[test]
    fn records_that_would_be_kept_are_few() {
        let mut guard = RecordFilter::default();
        let early = record(APPLICATION_DATA, 1, &[0; 40]);
        let taken = (0..100).filter(|_| guard.admits(&early, false)).count();
        assert_eq!(taken, usize::from(EARLY_RECORDS_MAX));
        let finished = record(HANDSHAKE, 1, &[0; 40]);
        assert!(!guard.admits(&finished, false), "records of any type count");
        assert!(guard.admits(&early, true), "data is for what comes after");
        let late = record(HANDSHAKE, 1, &[0; 40]);
        let taken = (0..100).filter(|_| guard.admits(&late, true)).count();
        assert_eq!(taken, usize::from(LATE_HANDSHAKE_MAX));
    }

    #[test]
    fn records_without_use_for_a_session_are_dropped() {
        let admits =
            |datagram: &[u8], established| RecordFilter::default().admits(datagram, established);
        assert!(!admits(&record(ALERT, 0, &[2, 40]), true), "in the clear");
        assert!(!admits(&record(HANDSHAKE, 0, &piece(10, 0, 0, &[1; 10])), true), "in the clear");
        assert!(!admits(&record(APPLICATION_DATA, 0, b"data"), false), "in the clear");
        assert!(!admits(&record(APPLICATION_DATA, 2, b"data"), true), "keys that there are not");
        assert!(!admits(&record(24, 1, b"heartbeat"), true));
        let data = record(APPLICATION_DATA, 1, b"data");
        assert!(admits(&[&data[..], &data].concat(), true));
        assert!(!admits(&[&data[..], b"more"].concat(), true), "something behind it");
        assert!(!admits(&[], true));
    }
}
