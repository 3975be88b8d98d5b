//! Transport addresses, plain (RFC 8489 §14.1) and obfuscated (§14.2).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::error::ValueError;
use crate::header::{MAGIC_COOKIE, TransactionId};

const IPV4: u8 = 0x01;
const IPV6: u8 = 0x02;

/// Length of the value in bytes for an IPv6 address. The value for an IPv4 address has 8 bytes.
const VALUE_LEN_MAX: usize = 20;

/// Parses an address without obfuscation: MAPPED-ADDRESS, ALTERNATE-SERVER, RESPONSE-ORIGIN,
/// OTHER-ADDRESS. The first byte is ignored.
///
/// # Errors
/// - [`ValueError::AddressFamily`]: the family is unknown.
/// - [`ValueError::Length`]: the length does not match the family.
pub fn address(value: &[u8]) -> Result<SocketAddr, ValueError> {
    let Some((&[_, family, p0, p1], ip)) = value.split_first_chunk::<4>() else {
        return Err(ValueError::Length);
    };
    let ip = match family {
        IPV4 => IpAddr::V4(Ipv4Addr::from(super::exactly::<4>(ip)?)),
        IPV6 => IpAddr::V6(Ipv6Addr::from(super::exactly::<16>(ip)?)),
        _ => return Err(ValueError::AddressFamily),
    };
    Ok(SocketAddr::new(ip, u16::from_be_bytes([p0, p1])))
}

/// Parses an obfuscated address: XOR-MAPPED-ADDRESS, XOR-PEER-ADDRESS, XOR-RELAYED-ADDRESS. The
/// address is XORed with the cookie and, for IPv6, with the transaction id of the message.
///
/// # Errors
/// Fails for the reasons of [`address`].
pub fn xor_address(value: &[u8], id: TransactionId) -> Result<SocketAddr, ValueError> {
    address(value).map(|addr| xor(addr, id))
}

/// Obfuscates a plain address, or restores an obfuscated address. Both are the same operation.
fn xor(addr: SocketAddr, id: TransactionId) -> SocketAddr {
    let port = addr.port() ^ (MAGIC_COOKIE >> 16) as u16;
    let ip = match addr.ip() {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() ^ MAGIC_COOKIE)),
        IpAddr::V6(ip) => {
            let mut mask = [0; 16];
            mask[..4].copy_from_slice(&MAGIC_COOKIE.to_be_bytes());
            mask[4..].copy_from_slice(&id.0);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() ^ u128::from_be_bytes(mask)))
        }
    };
    SocketAddr::new(ip, port)
}

/// Encodes an address without obfuscation. Returns the value and its length in bytes, 8 or 20.
pub(crate) fn encode(addr: SocketAddr) -> ([u8; VALUE_LEN_MAX], usize) {
    let mut value = [0; VALUE_LEN_MAX];
    value[2..4].copy_from_slice(&addr.port().to_be_bytes());
    match addr.ip() {
        IpAddr::V4(ip) => {
            value[1] = IPV4;
            value[4..8].copy_from_slice(&ip.octets());
            (value, 8)
        }
        IpAddr::V6(ip) => {
            value[1] = IPV6;
            value[4..].copy_from_slice(&ip.octets());
            (value, 20)
        }
    }
}

/// Encodes an obfuscated address. Returns the value and its length in bytes, 8 or 20.
pub(crate) fn encode_xor(addr: SocketAddr, id: TransactionId) -> ([u8; VALUE_LEN_MAX], usize) {
    encode(xor(addr, id))
}
