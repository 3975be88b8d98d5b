//! Attributes as type, length and value (RFC 8489 §14), and the names of the types.

use core::fmt;

/// Most attributes of a message. A message of 64 KiB has room for 16,000, and each costs time in
/// several passes before the sender is known: a millisecond in all. A CreatePermission for 128
/// peers has less than 140, and other requests have less than twenty.
pub const ATTRIBUTES_MAX: usize = 192;

/// The 16-bit type of an attribute; types without a name are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeType(pub u16);

/// Declares the constants and their names in one place, so that neither can be forgotten.
macro_rules! attribute_types {
    ($($(#[$doc:meta])* $constant:ident = $number:literal, $name:literal;)+) => {
        impl AttributeType {
            $($(#[$doc])* pub const $constant: Self = Self($number);)+

            /// Every type that has a name here, in ascending order.
            pub const NAMED: &'static [Self] = &[$(Self::$constant),+];

            /// The RFC's name of it, if it has one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$constant => Some($name),)+
                    _ => None,
                }
            }
        }
    };
}

attribute_types! {
    /// RFC 8489 §14.1; for RFC 3489 clients and RFC 5780.
    MAPPED_ADDRESS = 0x0001, "MAPPED-ADDRESS";
    /// RFC 3489 §11.2.2; reserved since: never honoured.
    RESPONSE_ADDRESS = 0x0002, "RESPONSE-ADDRESS";
    /// RFC 5780 §7.2, RFC 3489 §11.2.4.
    CHANGE_REQUEST = 0x0003, "CHANGE-REQUEST";
    /// RFC 3489 §11.2.5; reserved since.
    SOURCE_ADDRESS = 0x0004, "SOURCE-ADDRESS";
    /// RFC 3489 §11.2.3; reserved since.
    CHANGED_ADDRESS = 0x0005, "CHANGED-ADDRESS";
    /// RFC 8489 §14.3.
    USERNAME = 0x0006, "USERNAME";
    /// RFC 3489 §11.2.7; reserved since.
    PASSWORD = 0x0007, "PASSWORD";
    /// RFC 8489 §14.5.
    MESSAGE_INTEGRITY = 0x0008, "MESSAGE-INTEGRITY";
    /// RFC 8489 §14.8.
    ERROR_CODE = 0x0009, "ERROR-CODE";
    /// RFC 8489 §14.13.
    UNKNOWN_ATTRIBUTES = 0x000A, "UNKNOWN-ATTRIBUTES";
    /// RFC 3489 §11.2.11; reserved since.
    REFLECTED_FROM = 0x000B, "REFLECTED-FROM";
    /// RFC 8656 §18.1.
    CHANNEL_NUMBER = 0x000C, "CHANNEL-NUMBER";
    /// RFC 8656 §18.2.
    LIFETIME = 0x000D, "LIFETIME";
    /// RFC 8656 §18.3.
    XOR_PEER_ADDRESS = 0x0012, "XOR-PEER-ADDRESS";
    /// RFC 8656 §18.4.
    DATA = 0x0013, "DATA";
    /// RFC 8489 §14.9.
    REALM = 0x0014, "REALM";
    /// RFC 8489 §14.10.
    NONCE = 0x0015, "NONCE";
    /// RFC 8656 §18.5.
    XOR_RELAYED_ADDRESS = 0x0016, "XOR-RELAYED-ADDRESS";
    /// RFC 8656 §18.6.
    REQUESTED_ADDRESS_FAMILY = 0x0017, "REQUESTED-ADDRESS-FAMILY";
    /// RFC 8656 §18.7.
    EVEN_PORT = 0x0018, "EVEN-PORT";
    /// RFC 8656 §18.8.
    REQUESTED_TRANSPORT = 0x0019, "REQUESTED-TRANSPORT";
    /// RFC 8656 §18.9.
    DONT_FRAGMENT = 0x001A, "DONT-FRAGMENT";
    /// RFC 7635 §6.2.
    ACCESS_TOKEN = 0x001B, "ACCESS-TOKEN";
    /// RFC 8489 §14.6.
    MESSAGE_INTEGRITY_SHA256 = 0x001C, "MESSAGE-INTEGRITY-SHA256";
    /// RFC 8489 §14.12.
    PASSWORD_ALGORITHM = 0x001D, "PASSWORD-ALGORITHM";
    /// RFC 8489 §14.4.
    USERHASH = 0x001E, "USERHASH";
    /// RFC 8489 §14.2.
    XOR_MAPPED_ADDRESS = 0x0020, "XOR-MAPPED-ADDRESS";
    /// RFC 8656 §18.10.
    RESERVATION_TOKEN = 0x0022, "RESERVATION-TOKEN";
    /// ICE, RFC 8445 §16.1.
    PRIORITY = 0x0024, "PRIORITY";
    /// ICE, RFC 8445 §16.1.
    USE_CANDIDATE = 0x0025, "USE-CANDIDATE";
    /// RFC 5780 §7.6.
    PADDING = 0x0026, "PADDING";
    /// RFC 5780 §7.5.
    RESPONSE_PORT = 0x0027, "RESPONSE-PORT";
    /// RFC 6062 §6.2.1.
    CONNECTION_ID = 0x002A, "CONNECTION-ID";
    /// RFC 8656 §18.11.
    ADDITIONAL_ADDRESS_FAMILY = 0x8000, "ADDITIONAL-ADDRESS-FAMILY";
    /// RFC 8656 §18.12.
    ADDRESS_ERROR_CODE = 0x8001, "ADDRESS-ERROR-CODE";
    /// RFC 8489 §14.11.
    PASSWORD_ALGORITHMS = 0x8002, "PASSWORD-ALGORITHMS";
    /// RFC 8489 §14.16.
    ALTERNATE_DOMAIN = 0x8003, "ALTERNATE-DOMAIN";
    /// RFC 8656 §18.13.
    ICMP = 0x8004, "ICMP";
    /// RFC 8489 §14.14.
    SOFTWARE = 0x8022, "SOFTWARE";
    /// RFC 8489 §14.15.
    ALTERNATE_SERVER = 0x8023, "ALTERNATE-SERVER";
    /// RFC 7982 §3.1.
    TRANSACTION_TRANSMIT_COUNTER = 0x8025, "TRANSACTION_TRANSMIT_COUNTER";
    /// RFC 5780 §9.1.
    CACHE_TIMEOUT = 0x8027, "CACHE-TIMEOUT";
    /// RFC 8489 §14.7.
    FINGERPRINT = 0x8028, "FINGERPRINT";
    /// ICE, RFC 8445 §16.1.
    ICE_CONTROLLED = 0x8029, "ICE-CONTROLLED";
    /// ICE, RFC 8445 §16.1.
    ICE_CONTROLLING = 0x802A, "ICE-CONTROLLING";
    /// RFC 5780 §7.3.
    RESPONSE_ORIGIN = 0x802B, "RESPONSE-ORIGIN";
    /// RFC 5780 §7.4.
    OTHER_ADDRESS = 0x802C, "OTHER-ADDRESS";
    /// RFC 6679 §7.2.2.
    ECN_CHECK_STUN = 0x802D, "ECN-CHECK STUN";
    /// RFC 7635 §6.1.
    THIRD_PARTY_AUTHORIZATION = 0x802E, "THIRD-PARTY-AUTHORIZATION";
    /// draft-ietf-tram-stun-origin: never registered, but sent by browsers.
    ORIGIN = 0x802F, "ORIGIN";
    /// RFC 8016 §4.
    MOBILITY_TICKET = 0x8030, "MOBILITY-TICKET";
    /// ADDITIONAL-ADDRESS-FAMILY under the number of its draft (draft-martinsen-tram-ssoda), which
    /// coturn's clients sent until 4.6.
    DRAFT_ADDITIONAL_ADDRESS_FAMILY = 0x8032, "ADDITIONAL-ADDRESS-FAMILY (draft)";
}

impl AttributeType {
    /// Returns true if a message must not be processed without understanding this type:
    /// 0x0000..=0x7FFF (RFC 8489 §14).
    #[must_use]
    pub const fn is_comprehension_required(self) -> bool {
        self.0 < 0x8000
    }
}

impl fmt::Debug for AttributeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "AttributeType(0x{:04X})", self.0),
        }
    }
}

/// One attribute: its type and its value without the padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attribute<'a> {
    /// The type.
    pub kind: AttributeType,
    /// The value, 0..=65535 bytes; [`value`](crate::value) reads it.
    pub value: &'a [u8],
}

/// Bytes of the type and the length in front of a value.
pub(crate) const ATTRIBUTE_HEADER_LEN: usize = 4;

/// Walks attributes. Made only of bytes with a checked structure; ends at the first attribute
/// that does not fit.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns true if everything was walked; false after `None` if an attribute ran past the end.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) const fn remaining(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    #[inline]
    fn next(&mut self) -> Option<Attribute<'a>> {
        let (&[k0, k1, l0, l1], body) = self.rest.split_first_chunk::<ATTRIBUTE_HEADER_LEN>()?;
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        let value = body.get(..len)?;
        // The padding counts too: an attribute whose padding is cut off is cut off itself.
        self.rest = body.get(len.next_multiple_of(4)..)?;
        let kind = AttributeType(u16::from_be_bytes([k0, k1]));
        Some(Attribute { kind, value })
    }
}

#[cfg(test)]
mod tests {
    use super::AttributeType;

    #[test]
    fn named_types_are_distinct_and_ascending() {
        assert!(AttributeType::NAMED.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
