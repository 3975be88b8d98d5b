//! Limits of a session's keys.

/// Maximum number of 16-byte blocks under one key: 2^24 records of maximum length, the limit of
/// AES-GCM in RFC 9147 §4.5.3.
///
/// TURN records are short, so the limit is 275 GB rather than a number of records. A call with 2.5
/// Mbit/s reaches the limit after ten days.
pub(super) const BLOCKS_PER_KEY_MAX: u64 = 1 << 34;

/// Maximum number of records that fail to verify with one key. RFC 9147 §4.5.3 sets this limit for
/// both kinds of ciphers.
pub(super) const FORGERIES_PER_KEY_MAX: u64 = 1 << 36;

/// Maximum number of responses to handshake messages of an established session: to a repeated
/// Finished after a loss, and to a request for renegotiation.
pub(super) const ANSWERS_MAX: u8 = 16;

/// Maximum number of records in one datagram of an established session. Clients send one record per
/// datagram, with one message. 64 KiB of empty records would take two milliseconds.
pub(super) const RECORDS_PER_DATAGRAM_MAX: usize = 16;

/// Maximum number of encrypted records before the handshake is complete: a Finished, and its
/// retransmissions.
pub(super) const EARLY_RECORDS_MAX: usize = 8;

/// Maximum length in bytes of such an early record. A Finished has fewer than 64 bytes.
pub(super) const EARLY_RECORD_MAX: usize = 256;
