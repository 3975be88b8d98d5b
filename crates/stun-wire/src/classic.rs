//! Messages of RFC 3489, "classic STUN" (RFC 8489 §11, RFC 5389 §12.2): no cookie, a transaction id
//! of 16 bytes, no FINGERPRINT. Only Binding is still of use.

use crate::attribute::{ATTRIBUTES_MAX, AttributeType, Attributes};
use crate::error::ParseError;
use crate::header::{Class, HEADER_LEN, Method, check_header, check_length, message_type};

/// A well-formed message of RFC 3489 in borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub struct ClassicMessage<'a> {
    bytes: &'a [u8],
    /// The end of the attributes that count.
    end: u32,
}

impl<'a> ClassicMessage<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let attributes = check_header(bytes)?;
        check_length(bytes)?;
        let mut walk = Attributes::new(attributes);
        let mut end = bytes.len();
        let (mut at, mut attributes) = (HEADER_LEN, 0);
        while let Some(attribute) = walk.next() {
            attributes += 1;
            if attributes > ATTRIBUTES_MAX {
                return Err(ParseError::TooManyAttributes);
            }
            // RFC 3489 §11.2.8: MESSAGE-INTEGRITY is the last; what follows it does not count.
            if attribute.kind == AttributeType::MESSAGE_INTEGRITY {
                end = end.min(at);
            }
            at = bytes.len() - walk.remaining();
        }
        if !walk.is_exhausted() {
            return Err(ParseError::AttributeOverrun);
        }
        // At most MESSAGE_LEN_MAX, which check_length saw to.
        Ok(Self { bytes, end: end as u32 })
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

    /// The transaction id: all 16 bytes behind the length field, which an answer repeats.
    #[must_use]
    pub fn transaction_id(&self) -> [u8; 16] {
        let id = self.bytes.get(4..HEADER_LEN).and_then(|id| id.try_into().ok());
        id.unwrap_or_default()
    }

    /// The attributes in front of MESSAGE-INTEGRITY.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.bytes.get(HEADER_LEN..self.end as usize).unwrap_or_default())
    }

    /// The value of the first attribute of this type.
    #[must_use]
    pub fn first(&self, kind: AttributeType) -> Option<&'a [u8]> {
        self.attributes().find(|attribute| attribute.kind == kind).map(|found| found.value)
    }
}
