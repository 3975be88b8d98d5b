//! Limits of one session's keys.

/// Most blocks of 16 bytes that one key protects: those of 2^24 records of the longest kind, the
/// limit of AES-GCM in RFC 9147 §4.5.3. Records of TURN are short, so that it is 275 GB and not a
/// number of records that ends a session: ten days of a call of 2.5 Mbit/s.
pub(super) const BLOCKS_PER_KEY_MAX: u64 = 1 << 34;

/// Most records that fail to verify with one key: the limit of RFC 9147 §4.5.3 for both kinds of
/// ciphers.
pub(super) const FORGERIES_PER_KEY_MAX: u64 = 1 << 36;

/// Most answers to handshake messages of an established session: to a Finished that is repeated
/// because the answer was lost, and to a wish for another handshake.
pub(super) const ANSWERS_MAX: u8 = 16;

/// Encrypted records before the handshake is done: one Finished, each time that it is sent.
pub(super) const EARLY_RECORDS_MAX: usize = 8;

/// Longest of these. A Finished has less than 64 bytes.
pub(super) const EARLY_RECORD_MAX: usize = 256;
