//! Detection of a connection's protocol by its first byte.

/// Protocol of a client's connection. Everything except TLS and HTTP is treated as STUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamProtocol {
    /// TLS: the first record contains a handshake (RFC 8446 §5.1).
    Tls,
    /// STUN (RFC 8489 §5), or bytes that the STUN parser rejects.
    Stun,
    /// HTTP: a browser or a health check that uses the wrong port.
    Http,
}

/// Content type of a TLS record that contains a handshake.
const HANDSHAKE: u8 = 22;

/// Detects the protocol by the first byte of a connection. Returns `None` if `bytes` is empty.
///
/// ChannelData (0x40 to 0x4F) cannot be first, because it requires an allocation on the same
/// connection. The letters A to Z therefore start the method of an HTTP request. STUN starts with
/// two zero bits and its methods with four more, so TLS's 22 is unambiguous (RFC 7983 §7).
#[must_use]
pub fn detect_protocol(bytes: &[u8]) -> Option<StreamProtocol> {
    bytes.first().map(|first| match first {
        &HANDSHAKE => StreamProtocol::Tls,
        b'A'..=b'Z' => StreamProtocol::Http,
        _ => StreamProtocol::Stun,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_selects_the_protocol() {
        assert_eq!(detect_protocol(b""), None);
        assert_eq!(detect_protocol(&[0x16, 3, 1]), Some(StreamProtocol::Tls));
        for request in
            ["GET /", "HEAD ", "POST ", "PUT /", "OPTIONS *", "CONNECT x", "PRI * HTTP/2.0"]
        {
            assert_eq!(
                detect_protocol(request.as_bytes()),
                Some(StreamProtocol::Http),
                "{request}"
            );
        }
        for first in [0x00, 0x01, 0x03] {
            assert_eq!(detect_protocol(&[first, 1]), Some(StreamProtocol::Stun), "{first}");
        }
        for garbage in [b'g', 0xFF, 0x80, 0x40] {
            assert_eq!(
                detect_protocol(&[garbage]),
                Some(StreamProtocol::Stun),
                "{garbage}: for STUN to refuse"
            );
        }
    }
}
