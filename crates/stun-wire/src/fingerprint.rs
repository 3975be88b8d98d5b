//! FINGERPRINT (RFC 8489 §14.7), which distinguishes STUN from other protocols on the same port.

/// Length of the value in bytes.
pub(crate) const FINGERPRINT_LEN: usize = 4;

/// Constant added to the CRC-32, to avoid equality with a CRC-32 in the payload of another
/// protocol.
const XOR: u32 = 0x5354_554E;

/// Returns the value of FINGERPRINT after the bytes `before`. The length field must already include
/// the attribute.
pub(crate) fn fingerprint(before: &[u8]) -> [u8; FINGERPRINT_LEN] {
    (crc32fast::hash(before) ^ XOR).to_be_bytes()
}
