//! Socket addresses as the kernel's bytes: `sockaddr_in` and `sockaddr_in6`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Size in bytes of the larger address, enough for either family.
pub(crate) const ADDRESS_BYTES: usize = V6_BYTES;
const V4_BYTES: usize = size_of::<libc::sockaddr_in>();
const V6_BYTES: usize = size_of::<libc::sockaddr_in6>();
const _: () = assert!(V4_BYTES == 16 && V6_BYTES == 28, "the layout written below");

/// Bytes of a `sockaddr` of either family.
pub(crate) type RawAddress = [u8; ADDRESS_BYTES];

/// Writes `addr` to `raw` and returns its length in bytes.
pub(crate) fn encode(addr: SocketAddr, raw: &mut RawAddress) -> usize {
    match addr {
        SocketAddr::V4(v4) => {
            raw[0..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            raw[2..4].copy_from_slice(&v4.port().to_be_bytes());
            raw[4..8].copy_from_slice(&v4.ip().octets());
            raw[8..V4_BYTES].fill(0);
            V4_BYTES
        }
        SocketAddr::V6(v6) => {
            raw[0..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            raw[2..4].copy_from_slice(&v6.port().to_be_bytes());
            raw[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
            raw[8..24].copy_from_slice(&v6.ip().octets());
            raw[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            V6_BYTES
        }
    }
}

/// Decodes an address. Returns `None` if the family is another, or the bytes are too short.
pub(crate) fn decode(raw: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = raw.split_first_chunk::<2>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let port = u16::from_be_bytes(*port);
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(*rest.first_chunk::<4>()?);
            Some(SocketAddr::V4(SocketAddrV4::new(ip, port)))
        }
        libc::AF_INET6 => {
            let (flow, rest) = rest.split_first_chunk::<4>()?;
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            let scope = u32::from_ne_bytes(*rest.first_chunk::<4>()?);
            let flow = u32::from_be_bytes(*flow);
            Some(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(*ip), port, flow, scope)))
        }
        _ => None,
    }
}

/// Returns the `AF_` number of an address's family.
pub(crate) const fn family(ip: IpAddr) -> libc::c_int {
    match ip {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_read_back() {
        for text in ["192.0.2.7:3478", "[2001:db8::1]:1", "0.0.0.0:65535"] {
            let addr: SocketAddr = text.parse().unwrap();
            let mut raw = [0xFF; ADDRESS_BYTES];
            let len = encode(addr, &mut raw);
            assert_eq!(decode(&raw[..len]), Some(addr), "{text}");
            assert_eq!(decode(&raw[..len - 1]).is_some(), addr.is_ipv4(), "cut: {text}");
        }
        let scoped = SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, 4));
        let mut raw = [0; ADDRESS_BYTES];
        encode(scoped, &mut raw);
        assert_eq!(decode(&raw), Some(scoped));
    }

    #[test]
    fn layout_is_that_of_the_system_headers() {
        let mut raw = [0xFF; ADDRESS_BYTES];
        assert_eq!(encode("1.2.3.4:258".parse().unwrap(), &mut raw), 16);
        assert_eq!(&raw[2..16], &[1, 2, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn other_families_and_short_bytes_are_no_address() {
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[libc::AF_UNIX as u8, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(decode(&[libc::AF_INET as u8, 0, 0, 0, 0]), None);
    }
}
