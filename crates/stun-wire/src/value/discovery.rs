//! Attributes of NAT behaviour discovery (RFC 5780 §7), and of its predecessor in RFC 3489.

use super::exactly;
use crate::error::ValueError;

/// Source that a client requests for the response: CHANGE-REQUEST (RFC 5780 §7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ChangeRequest {
    /// Send the response from the other IP address.
    pub change_ip: bool,
    /// Send the response from the other port.
    pub change_port: bool,
}

const CHANGE_IP: u32 = 0x4;
const CHANGE_PORT: u32 = 0x2;

/// Parses CHANGE-REQUEST (RFC 5780 §7.2). Other bits are ignored.
///
/// # Errors
/// The value does not have exactly 4 bytes.
pub fn change_request(value: &[u8]) -> Result<ChangeRequest, ValueError> {
    let flags = u32::from_be_bytes(exactly(value)?);
    Ok(ChangeRequest { change_ip: flags & CHANGE_IP != 0, change_port: flags & CHANGE_PORT != 0 })
}

pub(crate) fn encode_change(change: ChangeRequest) -> [u8; 4] {
    let ip = if change.change_ip { CHANGE_IP } else { 0 };
    let port = if change.change_port { CHANGE_PORT } else { 0 };
    (ip | port).to_be_bytes()
}

/// Parses RESPONSE-PORT (RFC 5780 §7.5). The RFC does not specify whether the length includes the
/// two bytes of padding, so both lengths are accepted.
///
/// # Errors
/// The value has neither 2 nor 4 bytes.
pub fn response_port(value: &[u8]) -> Result<u16, ValueError> {
    match *value {
        [p0, p1] | [p0, p1, _, _] => Ok(u16::from_be_bytes([p0, p1])),
        _ => Err(ValueError::Length),
    }
}

/// Parses CACHE-TIMEOUT in seconds (RFC 5780 §9.1).
///
/// # Errors
/// The value does not have exactly 4 bytes.
pub fn cache_timeout(value: &[u8]) -> Result<u32, ValueError> {
    exactly(value).map(u32::from_be_bytes)
}
