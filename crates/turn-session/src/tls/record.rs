//! Protection of records with known keys: TLS 1.3 (RFC 8446 §5), and the AEAD suites of TLS 1.2
//! (RFC 5246 §6.2.3.3) with AES-GCM (RFC 5288) and ChaCha20-Poly1305 (RFC 7905).

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use rustls::{ContentType, Error, InvalidMessage, PeerMisbehaved};

use super::framing::HEADER;
use super::state::{DirectionState, Version};
use crate::aead::{Cipher, TAG};

/// Maximum length of a record's plaintext in bytes.
pub(super) const PLAINTEXT_MAX: usize = 1 << 14;

/// Maximum number of encrypted bytes waiting to be written. Above the limit no plaintext is
/// accepted, so queued data can still be dropped (see [`OutQueue`](crate::OutQueue)).
pub(super) const CIPHERTEXT_BYTES: usize = 64 << 10;

/// Maximum number of data records protected with one AES-GCM key. This is rustls' limit, a little
/// below the 2^24.5 of RFC 8446 §5.5.
pub(super) const GCM_RECORDS_MAX: u64 = 1 << 24;

/// Sequence number at which a direction stops accepting records. Numbers must not wrap (RFC 8446
/// §5.3), and the remaining numbers are reserved for alerts.
pub(super) const SEQUENCE_LIMIT: u64 = u64::MAX << 16;

/// Content type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ChangeCipherSpec = 20,
    Alert = 21,
    Handshake = 22,
    Data = 23,
}

impl Kind {
    /// Parses the content type of a record.
    ///
    /// # Errors
    /// The content type is unknown.
    fn of(number: u8) -> Result<Self, Error> {
        Ok(match number {
            20 => Self::ChangeCipherSpec,
            21 => Self::Alert,
            22 => Self::Handshake,
            23 => Self::Data,
            _ => return Err(InvalidMessage::InvalidContentType.into()),
        })
    }
}

/// Returns the error for a record that is not permitted after the handshake.
pub(super) fn unexpected(kind: u8) -> Error {
    let (expect_types, got_type) = (vec![ContentType::ApplicationData], ContentType::from(kind));
    Error::InappropriateMessage { expect_types, got_type }
}

/// One direction of a connection.
pub(super) struct Direction {
    version: Version,
    state: DirectionState,
    iv: [u8; NONCE_LEN],
    key: LessSafeKey,
}

/// Complete protected record.
pub(super) struct Sealed<'a> {
    header: [u8; HEADER],
    /// Explicit part of the nonce.
    explicit: &'a [u8],
    ciphertext: &'a [u8],
    tag: &'a [u8],
}

impl Sealed<'_> {
    /// Returns the number of bytes required for the plaintext. In TLS 1.3, this includes the
    /// content type and padding.
    pub(super) const fn len(&self) -> usize {
        self.ciphertext.len()
    }
}

impl Direction {
    /// Continues a direction from a state. Returns `None` if the key, IV or sequence number is
    /// invalid.
    pub(super) fn new(version: Version, state: DirectionState) -> Option<Self> {
        if state.sequence >= SEQUENCE_LIMIT {
            return None;
        }
        let key = state.cipher.prepare(&state.key)?;
        let iv = state.iv.expose().try_into().ok()?;
        Some(Self { version, state, iv, key })
    }

    /// Returns the state of this direction, for another process.
    pub(super) fn into_state(self) -> DirectionState {
        self.state
    }

    /// Returns true if the key must not protect more data. An alert is still permitted (as in
    /// rustls).
    pub(super) const fn is_exhausted(&self) -> bool {
        self.state.sequence
            >= match self.state.cipher {
                Cipher::Aes128Gcm | Cipher::Aes256Gcm => GCM_RECORDS_MAX,
                Cipher::ChaCha20Poly1305 => SEQUENCE_LIMIT,
            }
    }

    /// Splits a complete record into its parts.
    ///
    /// # Errors
    /// The record is too short or too long (RFC 8446 §5.2), or not protected.
    pub(super) fn parse<'a>(&self, record: &'a [u8]) -> Result<Sealed<'a>, Error> {
        let (&header, body) = record.split_first_chunk().ok_or(Error::DecryptError)?;
        let inner = usize::from(self.version == Version::V13);
        if self.version == Version::V13 && header[0] != Kind::Data as u8 {
            return Err(unexpected(header[0]));
        }
        let (explicit, rest) = body.split_at_checked(self.explicit()).ok_or(Error::DecryptError)?;
        let len = rest.len().checked_sub(TAG).ok_or(Error::DecryptError)?;
        if len > PLAINTEXT_MAX + inner {
            return Err(Error::PeerSentOversizedRecord);
        }
        let (ciphertext, tag) = rest.split_at(len);
        Ok(Sealed { header, explicit, ciphertext, tag })
    }

    /// Decrypts a record to the start of `out`, and returns the type and length of the content.
    /// `out` needs at least [`Sealed::len`] bytes. After an error, the contents of `out` are
    /// meaningless.
    ///
    /// # Errors
    /// The record is altered, out of order, or has no content.
    pub(super) fn open(
        &mut self,
        sealed: &Sealed<'_>,
        out: &mut [u8],
    ) -> Result<(Kind, usize), Error> {
        let Sealed { header, explicit, ciphertext, tag } = *sealed;
        let out = out.get_mut(..ciphertext.len()).ok_or(Error::DecryptError)?;
        if self.state.sequence >= SEQUENCE_LIMIT {
            return Err(Error::DecryptError);
        }
        let mut nonce = self.nonce();
        nonce[NONCE_LEN - explicit.len()..].copy_from_slice(explicit);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = match self.version {
            Version::V13 => {
                self.key.open_separate_gather(nonce, Aad::from(header), ciphertext, tag, out)
            }
            Version::V12 => {
                let aad = Aad::from(self.aad_of_12(header, ciphertext.len()));
                self.key.open_separate_gather(nonce, aad, ciphertext, tag, out)
            }
        };
        opened.map_err(|_| Error::DecryptError)?;
        self.state.sequence += 1;
        match self.version {
            Version::V13 => inner_content(out),
            Version::V12 => Ok((Kind::of(header[0])?, out.len())),
        }
    }

    /// Appends a record with at most [`PLAINTEXT_MAX`] bytes of plaintext to `out`.
    pub(super) fn seal(&mut self, kind: Kind, plaintext: &[u8], out: &mut Vec<u8>) {
        let explicit = self.explicit();
        let inner = usize::from(self.version == Version::V13);
        let len = explicit + plaintext.len() + inner + TAG;
        let outer = if self.version == Version::V13 { Kind::Data } else { kind };
        let [high, low] = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
        let header = [outer as u8, 3, 3, high, low];
        out.reserve(HEADER + len);
        out.extend_from_slice(&header);
        out.extend_from_slice(&self.nonce()[NONCE_LEN - explicit..]);
        let start = out.len();
        out.extend_from_slice(plaintext);
        if inner > 0 {
            out.push(kind as u8);
        }
        let tag = self.encrypt(header, &mut out[start..]);
        out.extend_from_slice(&tag);
    }

    /// Encrypts the content of the next record in place, and returns the tag.
    fn encrypt(&mut self, header: [u8; HEADER], content: &mut [u8]) -> [u8; TAG] {
        let nonce = Nonce::assume_unique_for_key(self.nonce());
        let sealed = match self.version {
            Version::V13 => self.key.seal_in_place_separate_tag(nonce, Aad::from(header), content),
            Version::V12 => {
                let aad = Aad::from(self.aad_of_12(header, content.len()));
                self.key.seal_in_place_separate_tag(nonce, aad, content)
            }
        };
        self.state.sequence += 1;
        // Fails only for lengths that no record has.
        let tag = sealed.ok().and_then(|tag| tag.as_ref().try_into().ok());
        tag.expect("a record is shorter, and all tags are of this length")
    }

    /// Returns the length in bytes of the nonce's explicit part in each record.
    const fn explicit(&self) -> usize {
        match self.version {
            Version::V12 => self.state.cipher.explicit_in_12(),
            Version::V13 => 0,
        }
    }

    /// Returns the nonce of the next record: IV XOR sequence number (RFC 8446 §5.3, RFC 7905 §2).
    ///
    /// For AES-GCM in TLS 1.2, RFC 5288 lets the sender choose the explicit part of the nonce. This
    /// uses the method of rustls, so a connection that moved repeats no nonce.
    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.state.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        nonce
    }

    /// Returns the additional data of TLS 1.2: sequence number, type, version, length of the
    /// plaintext (RFC 5246 §6.2.3.3).
    fn aad_of_12(&self, [kind, major, minor, ..]: [u8; HEADER], len: usize) -> [u8; 13] {
        let mut aad = [0; 13];
        aad[..8].copy_from_slice(&self.state.sequence.to_be_bytes());
        let [high, low] = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
        aad[8..].copy_from_slice(&[kind, major, minor, high, low]);
        aad
    }
}

/// Returns the content's type and length in a TLSInnerPlaintext, where padding may follow (RFC 8446
/// §5.4).
fn inner_content(plaintext: &[u8]) -> Result<(Kind, usize), Error> {
    let len = plaintext.iter().rposition(|byte| *byte != 0);
    let len = len.ok_or(PeerMisbehaved::IllegalTlsInnerPlaintext)?;
    Ok((Kind::of(plaintext[len])?, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aead::KeyBytes;

    fn direction() -> Direction {
        let (key, iv) = (KeyBytes::new(&[1; 16]), KeyBytes::new(&[2; NONCE_LEN]));
        let state = DirectionState { cipher: Cipher::Aes128Gcm, sequence: 5, key, iv };
        Direction::new(Version::V13, state).unwrap()
    }

    /// Reads a record of TLS 1.3 with this TLSInnerPlaintext.
    fn read(inner: &[u8]) -> Result<(Kind, Vec<u8>), Error> {
        let [high, low] = u16::try_from(inner.len() + TAG).unwrap().to_be_bytes();
        let header = [23, 3, 3, high, low];
        let mut content = inner.to_vec();
        let tag = direction().encrypt(header, &mut content);
        let record = [&header[..], &content, &tag].concat();
        let mut direction = direction();
        let sealed = direction.parse(&record)?;
        let mut out = vec![0; sealed.len()];
        let (kind, len) = direction.open(&sealed, &mut out)?;
        out.truncate(len);
        Ok((kind, out))
    }

    #[test]
    fn padding_is_removed() {
        assert_eq!(read(b"data\x17"), Ok((Kind::Data, b"data".to_vec())));
        assert_eq!(read(b"data\0\x17\0\0\0"), Ok((Kind::Data, b"data\0".to_vec())));
        assert_eq!(read(b"\x17"), Ok((Kind::Data, Vec::new())));
        assert_eq!(read(b"\x01\0\x15\0"), Ok((Kind::Alert, vec![1, 0])));
        let mut longest = vec![0; PLAINTEXT_MAX + 1];
        longest[3] = 23;
        assert_eq!(read(&longest), Ok((Kind::Data, vec![0; 3])));
        longest.push(0);
        assert_eq!(read(&longest), Err(Error::PeerSentOversizedRecord));
    }

    #[test]
    fn content_without_a_known_type_is_refused() {
        for none in [&[][..], &[0; 30]] {
            let refused = Err(PeerMisbehaved::IllegalTlsInnerPlaintext.into());
            assert_eq!(read(none), refused);
        }
        assert_eq!(read(b"data\x18"), Err(InvalidMessage::InvalidContentType.into()));
    }

    #[test]
    fn nonces_are_the_iv_xor_the_number() {
        let mut direction = direction();
        direction.state.sequence = 0x0102_0304_0506_0708;
        assert_eq!(direction.nonce(), [2, 2, 2, 2, 3, 0, 1, 6, 7, 4, 5, 10]);
    }
}
