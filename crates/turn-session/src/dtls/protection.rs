//! Protection of records with the keys of a session (RFC 6347 §4.1, RFC 5246 §6.2.3.3) by AES-GCM
//! (RFC 5288) or ChaCha20-Poly1305 (RFC 7905).

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};

use super::keys::DirectionKeys;
use super::record::{DTLS_1_2, RECORD_HEADER, Record};
use super::replay::ReplayWindow;
use super::state::{Reading, Writing};
use super::{PLAINTEXT_MAX, limits};
use crate::aead::TAG;

/// Epoch of the session keys. Sessions have a single handshake.
pub(super) const EPOCH: u16 = 1;

/// Limit of record numbers, which have 48 bits and must not wrap (RFC 6347 §4.1).
const NUMBER_LIMIT: u64 = 1 << 48;

/// Error of sealing: the keys have reached their limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeysUsedUp;

/// Error of opening a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotOpened {
    /// The record is repeated, or older than the replay window.
    Repeated,
    /// The record has no valid tag, or another epoch or version.
    Forged,
    /// The number of forged records has reached the limit of the key.
    KeysUsedUp,
}

/// Protection of the direction to the client.
pub(super) struct Sealer {
    state: Writing,
    key: LessSafeKey,
}

/// Verification and decryption of the direction from the client.
pub(super) struct Opener {
    state: Reading,
    key: LessSafeKey,
}

impl Sealer {
    /// Continues from a state. Returns `None` if the state is invalid.
    pub(super) fn new(state: Writing) -> Option<Self> {
        let key = prepare(&state.keys)?;
        (state.next < NUMBER_LIMIT).then_some(Self { state, key })
    }

    /// Returns true if the keys must not protect more data.
    pub(super) const fn is_used_up(&self) -> bool {
        self.state.blocks >= limits::BLOCKS_PER_KEY_MAX || self.state.next >= NUMBER_LIMIT
    }

    pub(super) const fn state(&self) -> &Writing {
        &self.state
    }

    /// Appends a record with at most [`PLAINTEXT_MAX`] bytes of plaintext to `out`.
    ///
    /// # Errors
    /// The keys must not protect more data. Alerts are still sealed while an unused number exists.
    pub(super) fn seal(
        &mut self,
        content: u8,
        plaintext: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), KeysUsedUp> {
        debug_assert!(plaintext.len() <= PLAINTEXT_MAX);
        let is_data = content == super::record::APPLICATION_DATA;
        if is_data && self.is_used_up() || self.state.next >= NUMBER_LIMIT {
            return Err(KeysUsedUp);
        }
        let keys = &self.state.keys;
        let explicit = keys.cipher.explicit_in_12();
        let number = numbered(self.state.next);
        let [len0, len1] = length(explicit + plaintext.len() + TAG);
        let [v0, v1] = DTLS_1_2.to_be_bytes();
        out.reserve(RECORD_HEADER + explicit + plaintext.len() + TAG);
        out.extend_from_slice(&[content, v0, v1]);
        out.extend_from_slice(&number);
        out.extend_from_slice(&[len0, len1]);
        out.extend_from_slice(&number[..explicit]);
        let start = out.len();
        out.extend_from_slice(plaintext);
        let nonce = nonce(keys, number, number);
        let aad = Aad::from(associated(content, number, plaintext.len()));
        let tag = self.key.seal_in_place_separate_tag(nonce, aad, &mut out[start..]);
        let tag = tag.expect("a record is shorter than what a cipher takes");
        out.extend_from_slice(tag.as_ref());
        self.state.next += 1;
        self.state.blocks = self.state.blocks.saturating_add(blocks(plaintext.len()));
        Ok(())
    }
}

impl Opener {
    /// Continues from a state. Returns `None` if the state is invalid.
    pub(super) fn new(state: Reading) -> Option<Self> {
        let key = prepare(&state.keys)?;
        let goes_on =
            state.forged < limits::FORGERIES_PER_KEY_MAX && state.window.end() <= NUMBER_LIMIT;
        goes_on.then_some(Self { state, key })
    }

    pub(super) const fn state(&self) -> &Reading {
        &self.state
    }

    /// Decrypts a record to the start of `out`, and returns the length of the plaintext. After an
    /// error, `out` contains no valid data.
    ///
    /// # Errors
    /// The record is repeated or forged, or the keys have reached their limit.
    pub(super) fn open(&mut self, record: &Record<'_>, out: &mut [u8]) -> Result<usize, NotOpened> {
        if record.epoch != EPOCH || record.version != DTLS_1_2 {
            return Err(NotOpened::Forged);
        }
        if !self.state.window.is_new(record.number) {
            return Err(NotOpened::Repeated);
        }
        let keys = &self.state.keys;
        let number = numbered(record.number);
        let parts = split(record.body, keys.cipher.explicit_in_12(), out.len());
        let (explicit, ciphertext, tag) = parts.ok_or(NotOpened::Forged)?;
        let mut of_record = number;
        of_record[..explicit.len()].copy_from_slice(explicit);
        let nonce = nonce(keys, number, of_record);
        let aad = Aad::from(associated(record.content, number, ciphertext.len()));
        let plaintext = &mut out[..ciphertext.len()];
        let opened = self.key.open_separate_gather(nonce, aad, ciphertext, tag, plaintext);
        if opened.is_err() {
            self.state.forged = self.state.forged.saturating_add(1);
            let may_go_on = self.state.forged < limits::FORGERIES_PER_KEY_MAX;
            return Err(if may_go_on { NotOpened::Forged } else { NotOpened::KeysUsedUp });
        }
        self.state.window.mark(record.number);
        Ok(plaintext.len())
    }
}

/// Returns the reading state after these records. Forged records are ignored.
pub(super) fn reading_after<'a>(
    keys: DirectionKeys,
    records: impl Iterator<Item = Record<'a>>,
) -> Option<Reading> {
    let reading = Reading { keys, window: ReplayWindow::default(), forged: 0 };
    let mut opener = Opener::new(reading)?;
    let mut room = Vec::new();
    for record in records {
        room.resize(record.body.len(), 0);
        let _is_authentic = opener.open(&record, &mut room).is_ok();
    }
    Some(Reading { forged: 0, ..opener.state })
}

fn prepare(keys: &DirectionKeys) -> Option<LessSafeKey> {
    let fits = keys.fixed.bytes().len() == keys.cipher.fixed_in_12();
    keys.cipher.prepare(&keys.key).filter(|_| fits)
}

/// Splits a record body into explicit nonce, ciphertext of at most `max` bytes, and tag.
fn split(body: &[u8], explicit: usize, max: usize) -> Option<(&[u8], &[u8], &[u8])> {
    let (explicit, rest) = body.split_at_checked(explicit)?;
    let len = rest.len().checked_sub(TAG)?;
    let (ciphertext, tag) = rest.split_at(len);
    (len <= PLAINTEXT_MAX.min(max)).then_some((explicit, ciphertext, tag))
}

/// Returns epoch and number in the form of a record header.
const fn numbered(number: u64) -> [u8; 8] {
    (((EPOCH as u64) << 48) | number).to_be_bytes()
}

/// Returns the nonce of a record. RFC 5288 allows any unique explicit part: this server uses epoch
/// and number. OpenSSL's Finished has 64 random bits instead.
fn nonce(keys: &DirectionKeys, number: [u8; 8], explicit: [u8; 8]) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    let fixed = keys.fixed.bytes();
    nonce[..fixed.len()].copy_from_slice(fixed);
    let rest = &mut nonce[NONCE_LEN - 8..];
    if fixed.len() < NONCE_LEN {
        rest.copy_from_slice(&explicit);
    } else {
        rest.iter_mut().zip(number).for_each(|(byte, number)| *byte ^= number);
    }
    Nonce::assume_unique_for_key(nonce)
}

/// Returns the additional data of a record: epoch and number, type, version, length of the
/// plaintext (RFC 5246 §6.2.3.3).
fn associated(content: u8, number: [u8; 8], len: usize) -> [u8; 13] {
    let mut associated = [0; 13];
    associated[..8].copy_from_slice(&number);
    let ([v0, v1], [len0, len1]) = (DTLS_1_2.to_be_bytes(), length(len));
    associated[8..].copy_from_slice(&[content, v0, v1, len0, len1]);
    associated
}

/// Returns the length field of a record. Lengths of records fit 16 bits.
const fn length(len: usize) -> [u8; 2] {
    (len as u16).to_be_bytes()
}

/// Returns the number of 16-byte blocks charged for a record: plaintext, tag and lengths.
const fn blocks(len: usize) -> u64 {
    len.div_ceil(16) as u64 + 2
}
