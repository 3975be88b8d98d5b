//! Filter of a handshake's records before the DTLS library, by their unencrypted fields.
//!
//! A DTLS library buffers fragments of messages until they are complete, and records of the next
//! epoch until its keys exist. A client with a valid cookie may still be hostile. The filter bounds
//! both kinds before the library buffers them.

use super::limits::{EARLY_RECORD_MAX, EARLY_RECORDS_MAX};
use super::record::{ALERT, CHANGE_CIPHER_SPEC, HANDSHAKE, Record, take_piece, take_record};

/// Maximum length in bytes of a client's handshake message, as declared in any fragment. A
/// ClientKeyExchange has fewer than 200 bytes. Client certificates are not requested.
const MESSAGE_MAX: usize = super::HELLO_MAX;

/// Maximum number of a handshake message. A client remains below this limit, even after several
/// expired cookies.
const MESSAGE_NUMBER_MAX: u16 = 15;

/// Filter for one handshake. Counts the admitted encrypted records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordFilter {
    early: usize,
}

impl RecordFilter {
    /// Returns true if a datagram may reach the library.
    pub(super) fn admits(&mut self, mut datagram: &[u8]) -> bool {
        if datagram.is_empty() {
            return false;
        }
        while !datagram.is_empty() {
            let Some((record, rest)) = take_record(datagram) else { return false };
            if !self.admits_record(&record) {
                return false;
            }
            datagram = rest;
        }
        true
    }

    fn admits_record(&mut self, record: &Record<'_>) -> bool {
        match (record.epoch, record.content) {
            (0, HANDSHAKE) => admits_pieces(record.body),
            (0, CHANGE_CIPHER_SPEC | ALERT) => true,
            // A client has no data to send before it receives the server's Finished.
            (1, HANDSHAKE | ALERT) => {
                let admits =
                    self.early < EARLY_RECORDS_MAX && record.body.len() <= EARLY_RECORD_MAX;
                self.early += usize::from(admits);
                admits
            }
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
        let admits = |pieces: &[u8]| RecordFilter::default().admits(&record(HANDSHAKE, 0, pieces));
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
    fn records_that_would_be_kept_are_few_and_short() {
        let mut guard = RecordFilter::default();
        let finished = record(HANDSHAKE, 1, &[0; EARLY_RECORD_MAX]);
        assert!(!guard.admits(&record(HANDSHAKE, 1, &[0; EARLY_RECORD_MAX + 1])));
        let taken = (0..100).filter(|_| guard.admits(&finished)).count();
        assert_eq!(taken, EARLY_RECORDS_MAX);
        assert!(!guard.admits(&record(ALERT, 1, &[0; 40])), "records of any type count");
    }

    #[test]
    fn records_without_use_for_a_handshake_are_dropped() {
        let admits = |datagram: &[u8]| RecordFilter::default().admits(datagram);
        for (content, epoch) in [(23, 0), (23, 1), (HANDSHAKE, 2), (20, 1), (24, 0), (24, 1)] {
            assert!(!admits(&record(content, epoch, b"data")), "{content} of epoch {epoch}");
        }
        let alert = record(ALERT, 0, &[2, 40]);
        assert!(admits(&[&alert[..], &alert].concat()));
        assert!(!admits(&[&alert[..], b"more"].concat()), "something behind it");
        assert!(!admits(&[]));
    }
}
