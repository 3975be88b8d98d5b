//! The PROXY protocol, versions 1 and 2: the client's address of a connection through a load
//! balancer.
//!
//! The header is the first data on the connection, before TLS. It is accepted only from configured
//! load balancers, and required from them: an optional header would let any client choose its
//! address. (HAProxy's `doc/proxy-protocol.txt`.)

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::AddressPair;

/// Maximum length of a header in bytes. The specification's longest header without extensions has
/// 232 bytes. Extensions are skipped: a server name, an ALPN, data of a certificate.
pub const HEADER_MAX: usize = 2048;

/// Maximum length in bytes of a line of version 1, with its line ending.
const LINE_MAX: usize = 107;

const LINE_BEGIN: &[u8] = b"PROXY ";
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Number of bytes before the addresses in version 2.
const FIXED: usize = 16;

/// PROXY header at the start of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the header in bytes. The client's bytes follow.
    pub len: usize,
    /// Addresses of the connection. `None` for a connection of the load balancer itself, for
    /// example a health check, or for a client with an unknown address.
    pub ends: Option<AddressPair>,
}

/// Reason why the start of a connection is not a valid PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The connection does not start with a PROXY header.
    #[error("the connection does not begin with a PROXY header")]
    Missing,
    /// The line of version 1 is malformed.
    #[error("the PROXY line is malformed")]
    Line,
    /// The version, command, family or protocol is unknown, or the protocol is not TCP.
    #[error("the PROXY header has an unknown version, command or family")]
    Unknown,
    /// The addresses of version 2 are truncated.
    #[error("the PROXY header is too short for its addresses")]
    TooShort,
    /// The header exceeds [`HEADER_MAX`], or the line of version 1 exceeds its maximum length.
    #[error("the PROXY header is too long")]
    TooLong,
}

/// Reads the header at the start of a connection. Returns `None` while the header is incomplete.
///
/// # Errors
/// The bytes are not a valid header. The connection must be closed.
pub fn read(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    if begins(bytes, LINE_BEGIN) {
        return line(bytes);
    }
    if begins(bytes, SIGNATURE) {
        return binary(bytes);
    }
    Err(Malformed::Missing)
}

/// Returns true if the bytes start with a header of either version.
#[must_use]
pub fn is_header(bytes: &[u8]) -> bool {
    bytes.starts_with(LINE_BEGIN) || bytes.starts_with(SIGNATURE)
}

/// Returns true if `bytes` is a prefix of `with`, or starts with it.
fn begins(bytes: &[u8], with: &[u8]) -> bool {
    bytes.iter().zip(with).all(|(byte, right)| byte == right)
}

fn line(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let within = &bytes[..bytes.len().min(LINE_MAX)];
    let Some(end) = within.windows(2).position(|two| two == b"\r\n") else {
        return if bytes.len() < LINE_MAX { Ok(None) } else { Err(Malformed::TooLong) };
    };
    let text = std::str::from_utf8(&within[..end]).map_err(|_| Malformed::Line)?;
    let mut words = text.split(' ').skip(1);
    let ends = match words.next() {
        // Any bytes may follow (HAProxy's `doc/proxy-protocol.txt`).
        Some("UNKNOWN") => None,
        Some("TCP4") => Some(line_ends::<Ipv4Addr>(words)?),
        Some("TCP6") => Some(line_ends::<Ipv6Addr>(words)?),
        Some(_) | None => return Err(Malformed::Line),
    };
    Ok(Some(Header { len: end + 2, ends }))
}

/// Parses the addresses of a line: two addresses, two ports, and nothing else.
fn line_ends<'a, A: std::str::FromStr + Into<IpAddr>>(
    mut words: impl Iterator<Item = &'a str>,
) -> Result<AddressPair, Malformed> {
    let mut word = || words.next().ok_or(Malformed::Line);
    let (client, server) = (address::<A>(word()?)?, address::<A>(word()?)?);
    let (client_port, server_port) = (port(word()?)?, port(word()?)?);
    if words.next().is_some() {
        return Err(Malformed::Line);
    }
    Ok(AddressPair {
        client: SocketAddr::new(client, client_port),
        server: SocketAddr::new(server, server_port),
    })
}

fn address<A: std::str::FromStr + Into<IpAddr>>(text: &str) -> Result<IpAddr, Malformed> {
    let address: IpAddr = text.parse::<A>().map_err(|_| Malformed::Line)?.into();
    Ok(address.to_canonical())
}

/// Parses a port. The specification permits only digits, without a leading zero.
fn port(text: &str) -> Result<u16, Malformed> {
    let number: u16 = text.parse().map_err(|_| Malformed::Line)?;
    if number.to_string() == text { Ok(number) } else { Err(Malformed::Line) }
}

fn binary(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let Some(&[version_and_command, family, len_high, len_low]) =
        bytes.get(SIGNATURE.len()..).and_then(<[u8]>::first_chunk)
    else {
        return Ok(None);
    };
    let len = FIXED + usize::from(u16::from_be_bytes([len_high, len_low]));
    if len > HEADER_MAX {
        return Err(Malformed::TooLong);
    }
    let is_local = match version_and_command {
        0x20 => true,
        0x21 => false,
        _ => return Err(Malformed::Unknown),
    };
    let Some(body) = bytes.get(FIXED..len) else { return Ok(None) };
    let ends = match family {
        _ if is_local => None,
        0x11 => Some(binary_ends::<4>(body)?),
        0x21 => Some(binary_ends::<16>(body)?),
        // Unspecified, or a Unix socket, which has no IP address.
        0x00 | 0x31 => None,
        _ => return Err(Malformed::Unknown),
    };
    Ok(Some(Header { len, ends }))
}

/// Parses two addresses of `BYTES` bytes each and two ports. Extensions may follow.
fn binary_ends<const BYTES: usize>(body: &[u8]) -> Result<AddressPair, Malformed>
where
    IpAddr: From<[u8; BYTES]>,
{
    let (client, rest) = body.split_first_chunk::<BYTES>().ok_or(Malformed::TooShort)?;
    let (server, rest) = rest.split_first_chunk::<BYTES>().ok_or(Malformed::TooShort)?;
    let &[c0, c1, s0, s1] = rest.first_chunk().ok_or(Malformed::TooShort)?;
    let end = |address: &[u8; BYTES], port| {
        SocketAddr::new(IpAddr::from(*address).to_canonical(), u16::from_be_bytes(port))
    };
    Ok(AddressPair { client: end(client, [c0, c1]), server: end(server, [s0, s1]) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends(client: &str, server: &str) -> Option<AddressPair> {
        Some(AddressPair { client: client.parse().unwrap(), server: server.parse().unwrap() })
    }

    /// Builds a header of version 2 with the fields after the signature.
    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let len = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &len, body].concat()
    }

    const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0x12, 0x34, 0x0D, 0x96];

    #[test]
    fn a_line_names_both_ends() {
        let header = |text: &str| read(text.as_bytes()).map(Option::unwrap);
        let line = "PROXY TCP4 192.0.2.1 198.51.100.2 4660 3478\r\n";
        let wanted = Header { len: line.len(), ends: ends("192.0.2.1:4660", "198.51.100.2:3478") };
        assert_eq!(header(&format!("{line}\x16\x03\x01")), Ok(wanted));
        let line = "PROXY TCP6 2001:db8::1 2001:db8::2 4660 443\r\n";
        let wanted =
            Header { len: line.len(), ends: ends("[2001:db8::1]:4660", "[2001:db8::2]:443") };
        assert_eq!(header(line), Ok(wanted));
        for line in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN ffff::1 what ever 1 2\r\n"] {
            assert_eq!(header(line), Ok(Header { len: line.len(), ends: None }));
        }
    }

    #[test]
    fn a_line_that_is_not_right_is_refused() {
        for line in [
            "PROXY \r\n",
            "PROXY TCP5 192.0.2.1 198.51.100.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 1\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 1 2 3\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 01 2\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 65536 2\r\n",
            "PROXY TCP4 192.0.2.01 198.51.100.2 1 2\r\n",
            "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
            "PROXY TCP4  192.0.2.1 198.51.100.2 1 2\r\n",
            "PROXY UNKNOW\r\n",
        ] {
            assert_eq!(read(line.as_bytes()), Err(Malformed::Line), "{line:?}");
        }
        assert_eq!(read(&[b"PROXY UNKNOWN ", &[b'x'; 200][..]].concat()), Err(Malformed::TooLong));
        assert_eq!(read(b"PROXY UNKNOWN \xFF\r\n"), Err(Malformed::Line));
    }

    #[test]
    fn the_longest_headers_are_read_and_no_longer_ones() {
        let line = |len: usize| [b"PROXY UNKNOWN ", &vec![b'x'; len - 16][..], b"\r\n"].concat();
        let wanted = Header { len: LINE_MAX, ends: None };
        assert_eq!(read(&line(LINE_MAX)), Ok(Some(wanted)));
        assert_eq!(read(&line(LINE_MAX + 1)[..LINE_MAX - 1]), Ok(None), "one byte may follow");
        assert_eq!(read(&line(LINE_MAX + 1)[..LINE_MAX]), Err(Malformed::TooLong));

        let wanted = Header { len: HEADER_MAX, ends: ends("0.0.0.0:0", "0.0.0.0:0") };
        assert_eq!(read(&v2(0x21, 0x11, &[0; HEADER_MAX - FIXED])), Ok(Some(wanted)));
        let longer = v2(0x21, 0x11, &[0; HEADER_MAX - FIXED + 1]);
        assert_eq!(read(&longer), Err(Malformed::TooLong));
    }

    /// A header on a listener without PROXY protocol reveals a load balancer without configuration.
    #[test]
    fn a_header_is_recognised_by_all_of_its_beginning() {
        assert!(is_header(b"PROXY TCP4 ") && is_header(&v2(0x21, 0x11, &V4)));
        for other in [&b""[..], b"PROXY", b"GET / HTTP/1.1", &SIGNATURE[..11]] {
            assert!(!is_header(other), "{other:?}");
        }
    }

    #[test]
    fn the_binary_header_names_both_ends_and_may_have_more() {
        let wanted = ends("192.0.2.1:4660", "198.51.100.2:3478");
        let plain = v2(0x21, 0x11, &V4);
        assert_eq!(read(&plain), Ok(Some(Header { len: 28, ends: wanted })));
        let with_more = v2(0x21, 0x11, &[&V4[..], &[4, 0, 1, 0]].concat());
        let wanted = Header { len: 32, ends: wanted };
        assert_eq!(read(&[&with_more[..], b"\0\x01"].concat()), Ok(Some(wanted)));
        let mut v6 = [0; 36];
        (v6[0], v6[1], v6[15], v6[16], v6[17], v6[31]) = (0x20, 0x01, 1, 0x20, 0x01, 2);
        (v6[33], v6[35]) = (7, 9);
        let wanted = ends("[2001::1]:7", "[2001::2]:9");
        assert_eq!(read(&v2(0x21, 0x21, &v6)), Ok(Some(Header { len: 52, ends: wanted })));
    }

    #[test]
    fn an_unspecified_address_is_the_load_balancer() {
        let none = |len| Ok(Some(Header { len, ends: None }));
        assert_eq!(read(&v2(0x20, 0x00, &[])), none(16));
        assert_eq!(read(&v2(0x20, 0x11, &V4)), none(28), "its own check, whatever it says");
        assert_eq!(read(&v2(0x21, 0x00, &[1, 2, 3])), none(19));
        assert_eq!(read(&v2(0x21, 0x31, &[0; 216])), none(232));
    }

    #[test]
    fn a_binary_header_that_is_not_right_is_refused() {
        for (bytes, why) in [
            (v2(0x11, 0x11, &V4), Malformed::Unknown),
            (v2(0x22, 0x11, &V4), Malformed::Unknown),
            (v2(0x21, 0x12, &V4), Malformed::Unknown),
            (v2(0x21, 0x41, &V4), Malformed::Unknown),
            (v2(0x21, 0x11, &V4[..11]), Malformed::TooShort),
            (v2(0x21, 0x21, &V4), Malformed::TooShort),
            (v2(0x21, 0x11, &[0; HEADER_MAX]), Malformed::TooLong),
        ] {
            assert_eq!(read(&bytes), Err(why), "{bytes:?}");
        }
    }

    #[test]
    fn nothing_is_decided_before_it_is_there() {
        let whole: [&[u8]; 2] =
            [&v2(0x21, 0x11, &V4), b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\n"];
        for whole in whole {
            for len in 0..whole.len() {
                assert_eq!(read(&whole[..len]), Ok(None), "{len} of {whole:?}");
            }
            assert!(read(whole).unwrap().is_some_and(|header| header.len == whole.len()));
        }
        for other in [
            &b"GET / HTTP/1.1"[..],
            b"\x16\x03\x01",
            b"\0\x01\0\0",
            b"PROXX",
            b"\r\n\r\n\0\r\nQUIT\r",
        ] {
            assert_eq!(read(other), Err(Malformed::Missing), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0..3) {
            let front: &[u8] = [&b""[..], SIGNATURE, LINE_BEGIN][kind as usize];
            let bytes = [front, &bytes].concat();
            if let Ok(Some(header)) = read(&bytes) {
                prop_assert!(header.len <= bytes.len() && header.len <= HEADER_MAX);
                prop_assert_eq!(read(&bytes[..header.len]), Ok(Some(header)));
            }
        }

        #[test]
        fn addresses_are_those_that_were_written(client: SocketAddr, server: SocketAddr) {
            let (client, server) = (canonical(client), canonical(server));
            prop_assume!(client.is_ipv4() == server.is_ipv4());
            let kind = if client.is_ipv4() { "TCP4" } else { "TCP6" };
            let ports = (client.port(), server.port());
            let line = format!("PROXY {kind} {} {} {} {}\r\n", client.ip(), server.ip(), ports.0, ports.1);
            let wanted = Header { len: line.len(), ends: Some(AddressPair { client, server }) };
            prop_assert_eq!(read(line.as_bytes()), Ok(Some(wanted)));
        }
    }

    fn canonical(address: SocketAddr) -> SocketAddr {
        SocketAddr::new(address.ip().to_canonical(), address.port())
    }
}
