//! NAT behaviour discovery (RFC 5780 §7) and its forebear in RFC 3489.

use super::exactly;
use crate::error::ValueError;

/// CHANGE-REQUEST (RFC 5780 §7.2): from where the answer is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ChangeRequest {
    /// From the other IP address.
    pub change_ip: bool,
    /// From the other port.
    pub change_port: bool,
}

const CHANGE_IP: u32 = 0x4;
const CHANGE_PORT: u32 = 0x2;

/// CHANGE-REQUEST (RFC 5780 §7.2); other bits are ignored.
///
/// # Errors
/// Not exactly 4 bytes.
pub fn change_request(value: &[u8]) -> Result<ChangeRequest, ValueError> {
    let flags = u32::from_be_bytes(exactly(value)?);
    Ok(ChangeRequest { change_ip: flags & CHANGE_IP != 0, change_port: flags & CHANGE_PORT != 0 })
}

pub(crate) fn encode_change(change: ChangeRequest) -> [u8; 4] {
    let ip = if change.change_ip { CHANGE_IP } else { 0 };
    let port = if change.change_port { CHANGE_PORT } else { 0 };
    (ip | port).to_be_bytes()
}

/// RESPONSE-PORT (RFC 5780 §7.5). The RFC leaves open whether the length counts the two bytes of
/// padding, so both lengths are read.
///
/// # Errors
/// Neither 2 nor 4 bytes.
pub fn response_port(value: &[u8]) -> Result<u16, ValueError> {
    match *value {
        [p0, p1] | [p0, p1, _, _] => Ok(u16::from_be_bytes([p0, p1])),
        _ => Err(ValueError::Length),
    }
}

/// CACHE-TIMEOUT in seconds (RFC 5780 §9.1).
///
/// # Errors
/// Not exactly 4 bytes.
pub fn cache_timeout(value: &[u8]) -> Result<u32, ValueError> {
    exactly(value).map(u32::from_be_bytes)
}
