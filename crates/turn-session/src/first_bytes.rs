//! What a connection is used for, by its first bytes.

/// What the other end speaks. Everything but TLS and HTTP is for STUN to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// A TLS record with a handshake in it (RFC 8446 §5.1).
    Tls,
    /// STUN (RFC 8489 §5), or what is to be refused as if it were.
    Stun,
    /// HTTP: a browser or a checker that mistook the port.
    Http,
}

/// The content type of a TLS record with a handshake in it.
const HANDSHAKE: u8 = 22;

/// Looks at the first byte of a connection; `None` while there is none.
///
/// ChannelData (0x40 to 0x4F) cannot be the first that somebody says, for it wants an allocation on
/// the same connection. So the letters A to Z are the method of an HTTP request. STUN begins with two
/// zero bits and its methods with four more, which leaves TLS's 22 free (RFC 7983 §7).
#[must_use]
pub fn speaks(bytes: &[u8]) -> Option<Speaks> {
    bytes.first().map(|first| match first {
        &HANDSHAKE => Speaks::Tls,
        b'A'..=b'Z' => Speaks::Http,
        _ => Speaks::Stun,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_says_what_is_spoken() {
        assert_eq!(speaks(b""), None);
        assert_eq!(speaks(&[0x16, 3, 1]), Some(Speaks::Tls));
        for request in
            ["GET /", "HEAD ", "POST ", "PUT /", "OPTIONS *", "CONNECT x", "PRI * HTTP/2.0"]
        {
            assert_eq!(speaks(request.as_bytes()), Some(Speaks::Http), "{request}");
        }
        for first in [0x00, 0x01, 0x03] {
            assert_eq!(speaks(&[first, 1]), Some(Speaks::Stun), "{first}");
        }
        for garbage in [b'g', 0xFF, 0x80, 0x40] {
            assert_eq!(speaks(&[garbage]), Some(Speaks::Stun), "{garbage}: for STUN to refuse");
        }
    }
}
