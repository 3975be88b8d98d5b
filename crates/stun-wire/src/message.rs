//! STUN message, checked once and then read without copying (RFC 8489 §5, §6.3, §14).

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

/// Maximum number of unknown attributes returned by [`Message::unknown_required`]. A response
/// should have less than 548 bytes (RFC 8489 §6.1), and 64 types take 128 bytes.
pub const UNKNOWN_REQUIRED_MAX: usize = 64;

/// Well-formed message of RFC 8489 in borrowed bytes.
///
/// The structure is checked: every attribute fits, and FINGERPRINT, if present, is last and right.
/// The meaning of attributes is not checked.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Complete message, at least the header.
    bytes: &'a [u8],
    layout: Layout,
}

/// Positions of special attributes. Each field is the offset of the attribute's header from the
/// start of the message, or 0 if the attribute is absent.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    /// End of the attributes that are not ignored.
    end: u32,
    sha1: u32,
    sha256: u32,
    fingerprint: u32,
}

/// Integrity attributes in effect (RFC 8489 §9), as received: of any length, and not verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Integrity<'a> {
    /// Value of MESSAGE-INTEGRITY.
    pub sha1: Option<&'a [u8]>,
    /// Value of MESSAGE-INTEGRITY-SHA256.
    pub sha256: Option<&'a [u8]>,
}

impl Integrity<'_> {
    /// Returns true if at least one integrity attribute is present.
    #[must_use]
    pub const fn is_present(&self) -> bool {
        self.sha1.is_some() || self.sha256.is_some()
    }
}

impl<'a> Message<'a> {
    /// Parses a datagram, or a message split off by [`next_message`](crate::next_message). The
    /// bytes must be exactly one message.
    ///
    /// # Errors
    /// Returns the broken rule. RFC 8489 §6.3 requires silence in each case. A
    /// [`ParseError::BadCookie`] may be caused by a message of RFC 3489 ([`Self::parse_classic`]).
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

    /// Parses a message of RFC 3489, which has no cookie and a transaction id of 16 bytes.
    ///
    /// # Errors
    /// Returns the broken rule.
    pub fn parse_classic(bytes: &'a [u8]) -> Result<ClassicMessage<'a>, ParseError> {
        ClassicMessage::parse(bytes)
    }

    /// Returns the class: request, indication, success or error.
    #[must_use]
    pub fn class(&self) -> Class {
        message_type(self.bytes).0
    }

    /// Returns the method.
    #[must_use]
    pub fn method(&self) -> Method {
        message_type(self.bytes).1
    }

    /// Returns the transaction id.
    #[must_use]
    pub fn transaction_id(&self) -> TransactionId {
        let id = self.bytes.get(8..HEADER_LEN).and_then(|id| id.try_into().ok());
        TransactionId(id.unwrap_or_default())
    }

    /// Returns the complete message.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the attributes before the first integrity attribute, in order: RFC 8489 §9 ignores
    /// later attributes. Excludes the integrity attributes and FINGERPRINT.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.bytes.get(HEADER_LEN..offset(self.layout.end)).unwrap_or_default())
    }

    /// Returns the value of the first attribute of this type among [`Self::attributes`].
    /// Repetitions are ignored (RFC 8489 §14). The integrity attributes and FINGERPRINT have
    /// separate accessors.
    #[must_use]
    pub fn first(&self, kind: AttributeType) -> Option<&'a [u8]> {
        self.attributes().find(|attribute| attribute.kind == kind).map(|found| found.value)
    }

    /// Returns the values of all attributes of this type among [`Self::attributes`], in order.
    pub fn all(&self, kind: AttributeType) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.attributes().filter(move |attribute| attribute.kind == kind).map(|found| found.value)
    }

    /// Returns the comprehension-required types for which `known` returns false, without
    /// repetitions, in order. UNKNOWN-ATTRIBUTES contains this list (RFC 8489 §6.3.1). Stops after
    /// [`UNKNOWN_REQUIRED_MAX`] types.
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

    /// Returns the integrity attributes in effect, the first of each kind (RFC 8489 §9). A
    /// MESSAGE-INTEGRITY after MESSAGE-INTEGRITY-SHA256 is ignored.
    #[must_use]
    pub fn integrity(&self) -> Integrity<'a> {
        Integrity {
            sha1: self.value_at(self.layout.sha1),
            sha256: self.value_at(self.layout.sha256),
        }
    }

    /// Returns true if FINGERPRINT is present. The parser has already verified the value.
    #[must_use]
    pub const fn has_fingerprint(&self) -> bool {
        self.layout.fingerprint != 0
    }

    /// Verifies the message with `key`, in constant time. If both integrity attributes are present,
    /// only MESSAGE-INTEGRITY-SHA256 is verified (RFC 8489 §9.2.4). That attribute must have the
    /// full 32 bytes, because TURN allows no truncation (§14.6). Returns false if neither attribute
    /// is present.
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

    /// Verifies MESSAGE-INTEGRITY, even if MESSAGE-INTEGRITY-SHA256 is present.
    fn verify_sha1(&self, key: &IntegrityKey) -> bool {
        let Some(value) = self.value_at(self.layout.sha1).filter(|v| v.len() == SHA1_LEN) else {
            return false;
        };
        let Some((header, body)) = self.hashed(self.layout.sha1, SHA1_LEN) else {
            return false;
        };
        key.hmac_sha1(&[&header, body]).ct_eq(value).into()
    }

    /// Returns the bytes covered by the integrity attribute at `at`: a copy of the header, and all
    /// bytes between header and attribute. The length in that header is adjusted as if the message
    /// stopped after the attribute (RFC 8489 §14.5).
    fn hashed(&self, at: u32, value_len: usize) -> Option<([u8; HEADER_LEN], &'a [u8])> {
        let at = offset(at);
        let mut header = *self.bytes.first_chunk::<HEADER_LEN>()?;
        let len = (at + ATTRIBUTE_HEADER_LEN + value_len).checked_sub(HEADER_LEN)?;
        header[2..4].copy_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
        Some((header, self.bytes.get(HEADER_LEN..at)?))
    }

    /// Returns the value of the attribute whose header is at `at`.
    fn value_at(&self, at: u32) -> Option<&'a [u8]> {
        if at == 0 {
            return None;
        }
        Attributes::new(self.bytes.get(offset(at)..)?).next().map(|attribute| attribute.value)
    }
}

impl Layout {
    /// Checks the structure of all attributes, and records the positions of special attributes, in
    /// a single pass.
    fn find(bytes: &[u8], attributes: &[u8]) -> Result<Self, ParseError> {
        let mut layout = Self::default();
        let mut walk = Attributes::new(attributes);
        let (mut at, mut attributes) = (HEADER_LEN, 0);
        while let Some(Attribute { kind, value }) = walk.next() {
            attributes += 1;
            if attributes > ATTRIBUTES_MAX {
                return Err(ParseError::TooManyAttributes);
            }
            // At most MESSAGE_LEN_MAX, as ensured by check_length.
            let here = at as u32;
            match kind {
                // MESSAGE-INTEGRITY is ignored after any integrity attribute.
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

/// Converts a stored offset. Offsets have four bytes, to keep messages small when passed by value.
const fn offset(at: u32) -> usize {
    at as usize
}
