//! HTTP requests on a STUN port: browsers, health checks, and challenges of certificate
//! authorities.

/// Prefix of a challenge request from a certificate authority (RFC 8555 §8.3).
const CHALLENGE: &[u8] = b"GET /.well-known/acme-challenge/";

/// Maximum length of a challenge token in bytes. Tokens have at least 22 characters, some have 86.
const TOKEN_MAX: usize = 256;

/// Kind of an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpRequest<'a> {
    /// The request is incomplete.
    Incomplete,
    /// An HTTP-01 challenge with this token (RFC 8555 §8.3).
    Challenge(&'a str),
    /// Any other request.
    Other,
}

/// Classifies an HTTP request by its first bytes.
#[must_use]
pub fn classify_request(request: &[u8]) -> HttpRequest<'_> {
    let common = request.len().min(CHALLENGE.len());
    if request[..common] != CHALLENGE[..common] {
        return HttpRequest::Other;
    }
    let rest = &request[common..];
    let end = rest.iter().position(|byte| !is_of_token(*byte));
    match end {
        None if rest.len() <= TOKEN_MAX => HttpRequest::Incomplete,
        Some(len @ 1..=TOKEN_MAX) if rest[len] == b' ' => {
            str::from_utf8(&rest[..len]).map_or(HttpRequest::Other, HttpRequest::Challenge)
        }
        None | Some(_) => HttpRequest::Other,
    }
}

/// Returns true for the characters of base64url, the alphabet of a token. None of these characters
/// can terminate a line of the response.
const fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_recognised_however_it_is_split() {
        let request = b"GET /.well-known/acme-challenge/a-Z_09 HTTP/1.1\r\nHost: x\r\n\r\n";
        let whole = request.len() - b" HTTP/1.1\r\nHost: x\r\n\r\n".len();
        for len in 0..=request.len() {
            let expected = if len > whole {
                HttpRequest::Challenge("a-Z_09")
            } else {
                HttpRequest::Incomplete
            };
            assert_eq!(classify_request(&request[..len]), expected, "{len}");
        }
        for other in [
            "GET / HTTP/1.1\r\n",
            "POST /.well-known/acme-challenge/x HTTP/1.1\r\n",
            "GET /.well-known/acme-challenge/ HTTP/1.1\r\n",
            "GET /.well-known/acme-challenge/../x HTTP/1.1\r\n",
            "GET /.well-known/acme-challenge/x\r\nSet-Cookie: y",
            "GET /.well-known/acme-challenge/x%0d%0a HTTP/1.1\r\n",
        ] {
            assert_eq!(classify_request(other.as_bytes()), HttpRequest::Other, "{other}");
        }
        let long = [CHALLENGE, &[b'x'; TOKEN_MAX + 1]].concat();
        assert_eq!(classify_request(&long), HttpRequest::Other, "no end of it");
    }

    /// CVE-2026-62959: the response to an unterminated challenge contained later memory.
    #[test]
    fn a_token_is_never_longer_than_the_request() {
        for len in 0..=TOKEN_MAX {
            let request = [CHALLENGE, &vec![b'x'; len], b" y"].concat();
            for received in 0..=request.len() {
                let received = &request[..received];
                if let HttpRequest::Challenge(token) = classify_request(received) {
                    assert_eq!(token.as_bytes(), &received[CHALLENGE.len()..][..len]);
                }
            }
        }
    }
}
