//! A STUN message, checked once and then read without copying (RFC 8489 §5, §6.3, §14).

use subtle::ConstantTimeEq as _;

use crate::attribute::{
    ATTRIBUTE_HEADER_LEN, ATTRIBUTES_MAX, Attribute, AttributeType, Attributes,
};
use crate::classic::ClassicMessage;
use crate::error::ParseError;
use crate::fingerprint::{FINGERPRINT_LEN, fingerprint};
use crate::header::{
    Class, HEADER_LEN, MAGIC_COOKIE, Method, TransactionId, check_header, check_length,
    message_type,
};
use crate::integrity::{IntegrityKey, SHA1_LEN, SHA256_LEN};

/// Most unknown attributes that [`Message::unknown_required`] names: an answer is to have less than
/// 548 bytes (RFC 8489 §6.1), and 64 of them take 128.
pub const UNKNOWN_REQUIRED_MAX: usize = 64;

/// A well-formed message of RFC 8489 in borrowed bytes.
///
/// Its structure is sound: every attribute fits, and FINGERPRINT, if there is one, is last and
/// right. Whether attributes make sense is not looked at.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The whole message, at least the header.
    bytes: &'a [u8],
    layout: Layout,
}

/// The attributes with a place of their own: offsets from the start of the message, of
/// the attribute's own header; 0 where there is none.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    /// The end of the attributes that count.
    end: u32,
    sha1: u32,
    sha256: u32,
    fingerprint: u32,
}

/// The integrity attributes that count (RFC 8489 §9), as they were received: any length, unproved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Integrity<'a> {
    /// The value of MESSAGE-INTEGRITY.
    pub sha1: Option<&'a [u8]>,
    /// The value of MESSAGE-INTEGRITY-SHA256.
    pub sha256: Option<&'a [u8]>,
}

impl Integrity<'_> {
    /// Returns true if there is either.
    #[must_use]
    pub const fn is_present(&self) -> bool {
        self.sha1.is_some() || self.sha256.is_some()
    }
}

impl<'a> Message<'a> {
    /// Reads a datagram, or a piece that [`next_message`](crate::next_message) cut: exactly one
    /// message, nothing behind it.
    ///
    /// # Errors
    /// The rule that is broken. RFC 8489 §6.3 wants silence for each; [`ParseError::BadCookie`]
    /// may be a message of RFC 3489 ([`Self::parse_classic`]).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let attributes = check_header(bytes)?;
        let &[_, _, _, _, c0, c1, c2, c3, ..] = bytes else {
            return Err(ParseError::TooShort);
        };
        if u32::from_be_bytes([c0, c1, c2, c3]) != MAGIC_COOKIE {
            return Err(ParseError::BadCookie);
        }
        check_length(bytes)?;
        let layout = Layout::find(bytes, attributes)?;
        Ok(Self { bytes, layout })
    }

    /// Reads a message of RFC 3489, which has no cookie and a transaction id of 16 bytes.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn parse_classic(bytes: &'a [u8]) -> Result<ClassicMessage<'a>, ParseError> {
        ClassicMessage::parse(bytes)
    }

    /// Request, indication, success or error.
    #[must_use]
    pub fn class(&self) -> Class {
        message_type(self.bytes).0
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method {
        message_type(self.bytes).1
    }

    /// The transaction id.
    #[must_use]
    pub fn transaction_id(&self) -> TransactionId {
        let id = self.bytes.get(8..HEADER_LEN).and_then(|id| id.try_into().ok());
        TransactionId(id.unwrap_or_default())
    }

    /// The whole message.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The attributes that count, in order: all in front of the first integrity attribute
    /// (RFC 8489 §9: later ones are ignored). The integrity attributes and FINGERPRINT are not
    /// among them.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.bytes.get(HEADER_LEN..offset(self.layout.end)).unwrap_or_default())
    }

    /// The value of the first attribute of this type that counts; repetitions are ignored
    /// (RFC 8489 §14). None for the integrity attributes and FINGERPRINT, which have their own
    /// accessors.
    #[must_use]
    pub fn first(&self, kind: AttributeType) -> Option<&'a [u8]> {
        self.attributes().find(|attribute| attribute.kind == kind).map(|found| found.value)
    }

    /// The values of all attributes of this type, in order; none of the integrity attributes and
    /// FINGERPRINT.
    pub fn all(&self, kind: AttributeType) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.attributes().filter(move |attribute| attribute.kind == kind).map(|found| found.value)
    }

    /// The comprehension-required types that `known` does not know, each once, in order: the list
    /// that goes into UNKNOWN-ATTRIBUTES (RFC 8489 §6.3.1). Ends after [`UNKNOWN_REQUIRED_MAX`] of
    /// them.
    pub fn unknown_required<F>(&self, known: F) -> impl Iterator<Item = AttributeType> + use<'a, F>
    where
        F: Fn(AttributeType) -> bool,
    {
        let mut kinds = self.attributes().map(|attribute| attribute.kind);
        let mut seen = [AttributeType(0); UNKNOWN_REQUIRED_MAX];
        let mut count = 0;
        core::iter::from_fn(move || {
            let (before, [place, ..]) = seen.split_at_mut_checked(count)? else {
                return None;
            };
            let kind = kinds.find(|kind| {
                kind.is_comprehension_required() && !known(*kind) && !before.contains(kind)
            })?;
            *place = kind;
            count += 1;
            Some(kind)
        })
    }

    /// The integrity attributes that count: MESSAGE-INTEGRITY in front of
    /// MESSAGE-INTEGRITY-SHA256, the first of each (RFC 8489 §9).
    #[must_use]
    pub fn integrity(&self) -> Integrity<'a> {
        Integrity {
            sha1: self.value_at(self.layout.sha1),
            sha256: self.value_at(self.layout.sha256),
        }
    }

    /// Returns true if FINGERPRINT is present, and therefore right.
    #[must_use]
    pub const fn has_fingerprint(&self) -> bool {
        self.layout.fingerprint != 0
    }

    /// Verifies the message with `key`, in constant time. With both
    /// attributes present MESSAGE-INTEGRITY-SHA256 alone decides (RFC 8489 §9.2.4); it must be the
    /// full 32 bytes, since TURN allows no truncation (§14.6). False without either.
    #[must_use]
    pub fn verify(&self, key: &IntegrityKey) -> bool {
        if self.layout.sha256 != 0 { self.verify_sha256(key) } else { self.verify_sha1(key) }
    }

    /// Verifies MESSAGE-INTEGRITY-SHA256.
    fn verify_sha256(&self, key: &IntegrityKey) -> bool {
        let Some(value) = self.value_at(self.layout.sha256).filter(|v| v.len() == SHA256_LEN)
        else {
            return false;
        };
        let Some((header, body)) = self.hashed(self.layout.sha256, SHA256_LEN) else {
            return false;
        };
        key.hmac_sha256(&[&header, body]).ct_eq(value).into()
    }

    /// Returns true if MESSAGE-INTEGRITY is right, apart from all else.
    fn verify_sha1(&self, key: &IntegrityKey) -> bool {
        let Some(value) = self.value_at(self.layout.sha1).filter(|v| v.len() == SHA1_LEN) else {
            return false;
        };
        let Some((header, body)) = self.hashed(self.layout.sha1, SHA1_LEN) else {
            return false;
        };
        key.hmac_sha1(&[&header, body]).ct_eq(value).into()
    }

    /// The bytes that the integrity attribute at `at` covers: the header with the length as if the
    /// message ended behind that attribute, and everything up to it (RFC 8489 §14.5).
    fn hashed(&self, at: u32, value_len: usize) -> Option<([u8; HEADER_LEN], &'a [u8])> {
        let at = offset(at);
        let mut header = *self.bytes.first_chunk::<HEADER_LEN>()?;
        let len = (at + ATTRIBUTE_HEADER_LEN + value_len).checked_sub(HEADER_LEN)?;
        header[2..4].copy_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
        Some((header, self.bytes.get(HEADER_LEN..at)?))
    }

    /// The value of the attribute with its header at `at`.
    fn value_at(&self, at: u32) -> Option<&'a [u8]> {
        if at == 0 {
            return None;
        }
        Attributes::new(self.bytes.get(offset(at)..)?).next().map(|attribute| attribute.value)
    }
}

impl Layout {
    /// One pass over the attributes: do they fit, and where do the special ones stand?
    fn find(bytes: &[u8], attributes: &[u8]) -> Result<Self, ParseError> {
        let mut layout = Self::default();
        let mut walk = Attributes::new(attributes);
        let (mut at, mut attributes) = (HEADER_LEN, 0);
        while let Some(Attribute { kind, value }) = walk.next() {
            attributes += 1;
            if attributes > ATTRIBUTES_MAX {
                return Err(ParseError::TooManyAttributes);
            }
            // At most MESSAGE_LEN_MAX, which check_length saw to.
            let here = at as u32;
            match kind {
                // Behind either integrity attribute MESSAGE-INTEGRITY no longer counts.
                AttributeType::MESSAGE_INTEGRITY if layout.sha1 | layout.sha256 == 0 => {
                    layout.sha1 = here;
                }
                AttributeType::MESSAGE_INTEGRITY_SHA256 if layout.sha256 == 0 => {
                    layout.sha256 = here;
                }
                AttributeType::FINGERPRINT => {
                    check_fingerprint(bytes, at, value, walk.is_exhausted())?;
                    layout.fingerprint = here;
                }
                _ => {}
            }
            at = bytes.len() - walk.remaining();
        }
        if !walk.is_exhausted() {
            return Err(ParseError::AttributeOverrun);
        }
        layout.end = [layout.sha1, layout.sha256, layout.fingerprint]
            .into_iter()
            .filter(|&special| special != 0)
            .fold(at as u32, u32::min);
        Ok(layout)
    }
}

fn check_fingerprint(bytes: &[u8], at: usize, value: &[u8], last: bool) -> Result<(), ParseError> {
    let before = bytes.get(..at).ok_or(ParseError::Fingerprint)?;
    let right = last && value.len() == FINGERPRINT_LEN && fingerprint(before) == *value;
    if right { Ok(()) } else { Err(ParseError::Fingerprint) }
}

/// Offsets are kept in four bytes, so that a message is small to pass on.
const fn offset(at: u32) -> usize {
    at as usize
}
