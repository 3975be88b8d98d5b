//! Numeric attributes of TURN: RFC 8656 §18, RFC 6062 §6.2.

use super::exactly;
use crate::error::ValueError;

/// Parses LIFETIME in seconds (RFC 8656 §18.2).
///
/// # Errors
/// The value does not have exactly 4 bytes.
pub fn lifetime(value: &[u8]) -> Result<u32, ValueError> {
    exactly(value).map(u32::from_be_bytes)
}

/// Parses REQUESTED-TRANSPORT (RFC 8656 §18.8): an IP protocol number. The other 24 bits are
/// ignored.
///
/// # Errors
/// The value does not have exactly 4 bytes.
pub fn requested_transport(value: &[u8]) -> Result<u8, ValueError> {
    exactly(value).map(|[protocol, _, _, _]| protocol)
}

/// Parses REQUESTED-ADDRESS-FAMILY and ADDITIONAL-ADDRESS-FAMILY (RFC 8656 §18.6, §18.11): the raw
/// number, 1 for IPv4 and 2 for IPv6. The other 24 bits are ignored.
///
/// # Errors
/// The value does not have exactly 4 bytes.
pub fn address_family(value: &[u8]) -> Result<u8, ValueError> {
    exactly(value).map(|[family, _, _, _]| family)
}

/// Parses EVEN-PORT (RFC 8656 §18.7): true if the next port must be reserved. The other bits are
/// ignored.
///
/// # Errors
/// The value does not have exactly 1 byte.
pub fn even_port(value: &[u8]) -> Result<bool, ValueError> {
    exactly(value).map(|[flags]| flags & 0x80 != 0)
}

/// Parses DONT-FRAGMENT (RFC 8656 §18.9), which has no value.
///
/// # Errors
/// The value is not empty.
pub fn dont_fragment(value: &[u8]) -> Result<(), ValueError> {
    exactly(value).map(|[]: [u8; 0]| ())
}

/// Parses RESERVATION-TOKEN (RFC 8656 §18.10).
///
/// # Errors
/// The value does not have exactly 8 bytes.
pub fn reservation_token(value: &[u8]) -> Result<[u8; 8], ValueError> {
    exactly(value)
}

/// Parses CHANNEL-NUMBER (RFC 8656 §18.1) as a raw number. The last two bytes are ignored.
/// [`ChannelNumber::new`](crate::ChannelNumber::new) checks the range.
///
/// # Errors
/// The value does not have exactly 4 bytes.
pub fn channel_number(value: &[u8]) -> Result<u16, ValueError> {
    exactly(value).map(|[n0, n1, _, _]| u16::from_be_bytes([n0, n1]))
}

/// Parses CONNECTION-ID (RFC 6062 §6.2.1).
///
/// # Errors
/// The value does not have exactly 4 bytes.
pub fn connection_id(value: &[u8]) -> Result<u32, ValueError> {
    exactly(value).map(u32::from_be_bytes)
}

/// ICMP message about a packet to a peer (RFC 8656 §18.13).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Icmp {
    /// Type of the ICMP or ICMPv6 message, 0..=127.
    pub kind: u8,
    /// Code of the message, 0..=511.
    pub code: u16,
    /// MTU of the next hop for ICMPv6 type 2 and ICMPv4 type 3 code 4, otherwise 0.
    pub data: u32,
}

/// Parses ICMP (RFC 8656 §18.13): 16 bits ignored, 7 bits of type, 9 bits of code as in the figure,
/// 32 bits of data.
///
/// # Errors
/// The value does not have exactly 8 bytes.
pub fn icmp(value: &[u8]) -> Result<Icmp, ValueError> {
    let [_, _, t0, t1, data @ ..] = exactly::<8>(value)?;
    let word = u16::from_be_bytes([t0, t1]);
    // Seven bits fit one byte.
    Ok(Icmp { kind: (word >> 9) as u8, code: word & 0x1FF, data: u32::from_be_bytes(data) })
}

/// Encodes type, code and data. Bits beyond the fields are truncated: ICMP errors have types below
/// 128 and codes below 256.
pub(crate) fn encode_icmp(icmp: Icmp) -> [u8; 8] {
    let [t0, t1] = (u16::from(icmp.kind & 0x7F) << 9 | (icmp.code & 0x1FF)).to_be_bytes();
    let [d0, d1, d2, d3] = icmp.data.to_be_bytes();
    [0, 0, t0, t1, d0, d1, d2, d3]
}
