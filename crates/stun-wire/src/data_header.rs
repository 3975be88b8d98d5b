//! Header of a Data indication (RFC 8656 §11.3): the bytes before the payload. Written separately,
//! to avoid a copy of relayed data.

use core::net::SocketAddr;

use crate::attribute::{ATTRIBUTE_HEADER_LEN, AttributeType};
use crate::builder::MessageBuilder;
use crate::header::{Class, HEADER_LEN, Method, TransactionId, padded_len};

/// Length in bytes of the header for an IPv6 peer. The header for an IPv4 peer has 36 bytes.
pub const DATA_HEADER_LEN_MAX: usize =
    HEADER_LEN + ATTRIBUTE_HEADER_LEN + 20 + ATTRIBUTE_HEADER_LEN;

/// Writes the header of a Data indication, before `payload_len` bytes of payload from `peer`.
/// Returns the length of the header, 36 or 48 bytes. The caller must pad the payload with zeros to
/// a multiple of four.
///
/// Returns `None` if the payload does not fit a STUN message.
#[must_use]
pub fn write_data_header(
    out: &mut [u8; DATA_HEADER_LEN_MAX],
    id: TransactionId,
    peer: SocketAddr,
    payload_len: usize,
) -> Option<usize> {
    let value_len = u16::try_from(payload_len).ok()?;
    let mut builder = MessageBuilder::new(out, Class::Indication, Method::DATA, id);
    builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
    let data_at = builder.finish()?;
    let end = data_at + ATTRIBUTE_HEADER_LEN;
    let len = u16::try_from(end - HEADER_LEN + padded_len(payload_len)).ok()?;
    out[2..4].copy_from_slice(&len.to_be_bytes());
    let [k0, k1] = AttributeType::DATA.0.to_be_bytes();
    let [l0, l1] = value_len.to_be_bytes();
    out.get_mut(data_at..end)?.copy_from_slice(&[k0, k1, l0, l1]);
    Some(end)
}
