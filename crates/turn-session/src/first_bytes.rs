//! Protocol of a connection, by its first bytes.

/// Protocol of a client. Everything but TLS and HTTP is left to STUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamProtocol {
    /// A TLS record with a handshake in it (RFC 8446 §5.1).
    Tls,
    /// STUN (RFC 8489 §5), or bytes that STUN rejects.
    Stun,
    /// HTTP: a browser or a checker that mistook the port.
    Http,
}

/// The content type of a TLS record with a handshake in it.
const HANDSHAKE: u8 = 22;

/// Detects the protocol by the first byte of a connection; `None` while there is none.
///
/// ChannelData (0x40 to 0x4F) cannot come first, because it requires an allocation on the same
/// connection. So the letters A to Z start the method of an HTTP request. STUN begins with two zero
/// bits and its methods with four more, which leaves TLS's 22 free (RFC 7983 §7).
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
