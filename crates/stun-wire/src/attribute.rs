//! Attributes as type, length and value (RFC 8489 §14), and the names of the types.

use core::fmt;

/// Maximum number of attributes in a message.
///
/// A message of 64 KiB has space for 16,000 attributes. Several passes process each attribute
/// before the sender is known, which would take a millisecond in total. A CreatePermission for 128
/// peers has fewer than 140 attributes, and other requests have fewer than twenty.
pub const ATTRIBUTES_MAX: usize = 192;

/// 16-bit type of an attribute. Types without a name are retained unchanged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeType(pub u16);

/// Declares the constants together with their names, so that neither can be forgotten.
macro_rules! attribute_types {
    ($($(#[$doc:meta])* $constant:ident = $number:literal, $name:literal;)+) => {
        impl AttributeType {
            $($(#[$doc])* pub const $constant: Self = Self($number);)+

            /// All types with a name here, in ascending order.
            pub const NAMED: &'static [Self] = &[$(Self::$constant),+];

            /// Returns the RFC's name of the type, or `None` for a type without a name here.
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
    /// Reflexive address of the client, not obfuscated (RFC 8489 §14.1). For clients of RFC 3489
    /// and RFC 5780.
    MAPPED_ADDRESS = 0x0001, "MAPPED-ADDRESS";
    /// Destination of the response (RFC 3489 §11.2.2). Reserved since then, and never honoured.
    RESPONSE_ADDRESS = 0x0002, "RESPONSE-ADDRESS";
    /// Request for a response from another address or port (RFC 5780 §7.2, RFC 3489 §11.2.4).
    CHANGE_REQUEST = 0x0003, "CHANGE-REQUEST";
    /// Source of the response (RFC 3489 §11.2.5). Reserved since then.
    SOURCE_ADDRESS = 0x0004, "SOURCE-ADDRESS";
    /// Alternate address of the server (RFC 3489 §11.2.3). Reserved since then.
    CHANGED_ADDRESS = 0x0005, "CHANGED-ADDRESS";
    /// Name of the user (RFC 8489 §14.3).
    USERNAME = 0x0006, "USERNAME";
    /// Password of a shared secret (RFC 3489 §11.2.7). Reserved since then.
    PASSWORD = 0x0007, "PASSWORD";
    /// HMAC-SHA1 of the message (RFC 8489 §14.5).
    MESSAGE_INTEGRITY = 0x0008, "MESSAGE-INTEGRITY";
    /// Code and reason phrase of an error (RFC 8489 §14.8).
    ERROR_CODE = 0x0009, "ERROR-CODE";
    /// Types that the server does not understand (RFC 8489 §14.13).
    UNKNOWN_ATTRIBUTES = 0x000A, "UNKNOWN-ATTRIBUTES";
    /// Source of a redirected request (RFC 3489 §11.2.11). Reserved since then.
    REFLECTED_FROM = 0x000B, "REFLECTED-FROM";
    /// Number of a channel (RFC 8656 §18.1).
    CHANNEL_NUMBER = 0x000C, "CHANNEL-NUMBER";
    /// Lifetime of an allocation in seconds (RFC 8656 §18.2).
    LIFETIME = 0x000D, "LIFETIME";
    /// Address of a peer (RFC 8656 §18.3).
    XOR_PEER_ADDRESS = 0x0012, "XOR-PEER-ADDRESS";
    /// Payload from or to a peer (RFC 8656 §18.4).
    DATA = 0x0013, "DATA";
    /// Realm of the credentials (RFC 8489 §14.9).
    REALM = 0x0014, "REALM";
    /// Server's nonce (RFC 8489 §14.10).
    NONCE = 0x0015, "NONCE";
    /// Relayed address of an allocation (RFC 8656 §18.5).
    XOR_RELAYED_ADDRESS = 0x0016, "XOR-RELAYED-ADDRESS";
    /// Requested family of the relayed address (RFC 8656 §18.6).
    REQUESTED_ADDRESS_FAMILY = 0x0017, "REQUESTED-ADDRESS-FAMILY";
    /// Request for an even port (RFC 8656 §18.7).
    EVEN_PORT = 0x0018, "EVEN-PORT";
    /// Requested transport protocol of the relay (RFC 8656 §18.8).
    REQUESTED_TRANSPORT = 0x0019, "REQUESTED-TRANSPORT";
    /// Request to set the DF bit (RFC 8656 §18.9).
    DONT_FRAGMENT = 0x001A, "DONT-FRAGMENT";
    /// Encrypted access token (RFC 7635 §6.2).
    ACCESS_TOKEN = 0x001B, "ACCESS-TOKEN";
    /// HMAC-SHA256 of the message (RFC 8489 §14.6).
    MESSAGE_INTEGRITY_SHA256 = 0x001C, "MESSAGE-INTEGRITY-SHA256";
    /// Password algorithm selected by the client (RFC 8489 §14.12).
    PASSWORD_ALGORITHM = 0x001D, "PASSWORD-ALGORITHM";
    /// Hash of user name and realm (RFC 8489 §14.4).
    USERHASH = 0x001E, "USERHASH";
    /// Reflexive address of the client (RFC 8489 §14.2).
    XOR_MAPPED_ADDRESS = 0x0020, "XOR-MAPPED-ADDRESS";
    /// Token of a reserved port (RFC 8656 §18.10).
    RESERVATION_TOKEN = 0x0022, "RESERVATION-TOKEN";
    /// ICE: priority of a peer-reflexive candidate (RFC 8445 §16.1).
    PRIORITY = 0x0024, "PRIORITY";
    /// ICE: nomination of a candidate pair (RFC 8445 §16.1).
    USE_CANDIDATE = 0x0025, "USE-CANDIDATE";
    /// Padding of a request or response (RFC 5780 §7.6).
    PADDING = 0x0026, "PADDING";
    /// Destination port of the response (RFC 5780 §7.5).
    RESPONSE_PORT = 0x0027, "RESPONSE-PORT";
    /// Id of a connection with a peer (RFC 6062 §6.2.1).
    CONNECTION_ID = 0x002A, "CONNECTION-ID";
    /// Request for an additional IPv6 address (RFC 8656 §18.11).
    ADDITIONAL_ADDRESS_FAMILY = 0x8000, "ADDITIONAL-ADDRESS-FAMILY";
    /// Error for one requested address family (RFC 8656 §18.12).
    ADDRESS_ERROR_CODE = 0x8001, "ADDRESS-ERROR-CODE";
    /// Password algorithms offered by the server (RFC 8489 §14.11).
    PASSWORD_ALGORITHMS = 0x8002, "PASSWORD-ALGORITHMS";
    /// Domain name of the alternate server (RFC 8489 §14.16).
    ALTERNATE_DOMAIN = 0x8003, "ALTERNATE-DOMAIN";
    /// ICMP error about a packet to a peer (RFC 8656 §18.13).
    ICMP = 0x8004, "ICMP";
    /// Name of the software (RFC 8489 §14.14).
    SOFTWARE = 0x8022, "SOFTWARE";
    /// Address of the alternate server (RFC 8489 §14.15).
    ALTERNATE_SERVER = 0x8023, "ALTERNATE-SERVER";
    /// Number of transmissions of a request (RFC 7982 §3.1).
    TRANSACTION_TRANSMIT_COUNTER = 0x8025, "TRANSACTION_TRANSMIT_COUNTER";
    /// Cache time for a transaction id, in seconds (RFC 5780 §9.1).
    CACHE_TIMEOUT = 0x8027, "CACHE-TIMEOUT";
    /// CRC-32 of the message (RFC 8489 §14.7).
    FINGERPRINT = 0x8028, "FINGERPRINT";
    /// ICE: sender has the controlled role (RFC 8445 §16.1).
    ICE_CONTROLLED = 0x8029, "ICE-CONTROLLED";
    /// ICE: sender has the controlling role (RFC 8445 §16.1).
    ICE_CONTROLLING = 0x802A, "ICE-CONTROLLING";
    /// Source address of the response (RFC 5780 §7.3).
    RESPONSE_ORIGIN = 0x802B, "RESPONSE-ORIGIN";
    /// Alternate address of the server (RFC 5780 §7.4).
    OTHER_ADDRESS = 0x802C, "OTHER-ADDRESS";
    /// ECN marks seen on the path (RFC 6679 §7.2.2).
    ECN_CHECK_STUN = 0x802D, "ECN-CHECK STUN";
    /// Server's name for the authorization server (RFC 7635 §6.1).
    THIRD_PARTY_AUTHORIZATION = 0x802E, "THIRD-PARTY-AUTHORIZATION";
    /// Origin of the web page (draft-ietf-tram-stun-origin). Never registered, but sent by
    /// browsers.
    ORIGIN = 0x802F, "ORIGIN";
    /// Ticket for a change of the client's address (RFC 8016 §4).
    MOBILITY_TICKET = 0x8030, "MOBILITY-TICKET";
    /// ADDITIONAL-ADDRESS-FAMILY under the number of the draft (draft-martinsen-tram-ssoda).
    /// Clients of coturn sent this number until 4.6.
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

/// Attribute: a type, and a value without padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attribute<'a> {
    /// Type of the attribute.
    pub kind: AttributeType,
    /// Value, 0..=65535 bytes, not interpreted. The functions of [`value`](crate::value) decode
    /// values.
    pub value: &'a [u8],
}

/// Length in bytes of type and length, which precede a value.
pub(crate) const ATTRIBUTE_HEADER_LEN: usize = 4;

/// Iterator over attributes. Created only from bytes with a checked structure. Stops at the first
/// attribute that exceeds the remaining bytes.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns true if all bytes were consumed. After a final `None`, false means that an attribute
    /// exceeds the message.
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
        // The padding is required too: an attribute with truncated padding is itself truncated.
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
