//! Limits of one session's keys.

/// Maximum number of 16-byte blocks under one key: 2^24 records of maximum length, the limit of
/// AES-GCM in RFC 9147 §4.5.3. TURN records are short, so the limit is 275 GB rather than a number
/// of records: ten days of a call with 2.5 Mbit/s.
pub(super) const BLOCKS_PER_KEY_MAX: u64 = 1 << 34;

/// Most records that fail to verify with one key: the limit of RFC 9147 §4.5.3 for both kinds of
/// ciphers.
pub(super) const FORGERIES_PER_KEY_MAX: u64 = 1 << 36;

/// Maximum number of responses to handshake messages of an established session: to a repeated
/// Finished after a loss, and to a request for renegotiation.
pub(super) const ANSWERS_MAX: u8 = 16;

/// Most records of one datagram of an established session. Clients send one message in a record,
/// and one record in a datagram; 64 KiB of empty records would take two milliseconds.
pub(super) const RECORDS_PER_DATAGRAM_MAX: usize = 16;

/// Encrypted records before the handshake is done: one Finished, each time that it is sent.
pub(super) const EARLY_RECORDS_MAX: usize = 8;

/// Longest of these. A Finished has less than 64 bytes.
pub(super) const EARLY_RECORD_MAX: usize = 256;
