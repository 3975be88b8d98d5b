//! Messages of RFC 3489, "classic STUN" (RFC 8489 §11, RFC 5389 §12.2): no cookie, a transaction id
//! of 16 bytes, no FINGERPRINT. Only the method Binding is still used.

use crate::attribute::{ATTRIBUTES_MAX, AttributeType, Attributes};
use crate::error::ParseError;
use crate::header::{Class, HEADER_LEN, Method, check_header, check_length, message_type};

/// Well-formed message of RFC 3489 in borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub struct ClassicMessage<'a> {
    bytes: &'a [u8],
    /// End of the attributes before MESSAGE-INTEGRITY, in bytes from the start of the message.
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
            // RFC 3489 §11.2.8: MESSAGE-INTEGRITY is the last attribute, and later attributes are
            // ignored.
            if attribute.kind == AttributeType::MESSAGE_INTEGRITY {
                end = end.min(at);
            }
            at = bytes.len() - walk.remaining();
        }
        if !walk.is_exhausted() {
            return Err(ParseError::AttributeOverrun);
        }
        // At most MESSAGE_LEN_MAX, as ensured by check_length.
        Ok(Self { bytes, end: end as u32 })
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

    /// Returns the transaction id: all 16 bytes after the length field, which a response repeats.
    #[must_use]
    pub fn transaction_id(&self) -> [u8; 16] {
        let id = self.bytes.get(4..HEADER_LEN).and_then(|id| id.try_into().ok());
        id.unwrap_or_default()
    }

    /// Returns the attributes before MESSAGE-INTEGRITY.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.bytes.get(HEADER_LEN..self.end as usize).unwrap_or_default())
    }

    /// Returns the value of the first attribute of this type.
    #[must_use]
    pub fn first(&self, kind: AttributeType) -> Option<&'a [u8]> {
        self.attributes().find(|attribute| attribute.kind == kind).map(|found| found.value)
    }
}
