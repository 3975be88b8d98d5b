//! FINGERPRINT (RFC 8489 §14.7): tells STUN from other protocols on the same port.

/// Bytes of the value.
pub(crate) const FINGERPRINT_LEN: usize = 4;

/// So that a CRC-32 which the payload of another protocol carries is not taken for ours.
const XOR: u32 = 0x5354_554E;

/// The value for a message with the bytes `before` in front of the attribute, with the length
/// field already counting the attribute.
pub(crate) fn fingerprint(before: &[u8]) -> [u8; FINGERPRINT_LEN] {
    (crc32fast::hash(before) ^ XOR).to_be_bytes()
}
