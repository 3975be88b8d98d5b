//! URIs of STUN and TURN servers (RFC 7064, RFC 7065), with the ports of RFC 5928 §3.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Service that a URI names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Stun,
    Turn,
}

/// Transport below TLS or DTLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Udp,
    Tcp,
}

impl Carrier {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        }
    }
}

/// Server address of a URI, with the transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uri {
    pub(crate) scheme: Scheme,
    /// True for TLS or DTLS: `stuns:` and `turns:`.
    pub(crate) secure: bool,
    /// Host name or address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) carrier: Carrier,
}

impl FromStr for Uri {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!(
                "\"{text}\" {what}; write turn:HOST, turn:HOST:PORT?transport=tcp, turns:HOST, \
                 stun:HOST or stuns:HOST, with IPv6 addresses in brackets"
            )
        };
        let (scheme, rest) = text.split_once(':').ok_or_else(|| wrong("has no scheme"))?;
        let (scheme, secure) = match scheme.to_ascii_lowercase().as_str() {
            "stun" => (Scheme::Stun, false),
            "stuns" => (Scheme::Stun, true),
            "turn" => (Scheme::Turn, false),
            "turns" => (Scheme::Turn, true),
            _ => return Err(wrong("has another scheme")),
        };
        let rest_is_path = rest.starts_with("//");
        if rest_is_path {
            return Err(wrong("has slashes, and these URIs have none"));
        }
        let (place, query) = match rest.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (rest, None),
        };
        // RFC 7064 has no transport in stun: URIs. Here the query selects the transport to test.
        let carrier = match query {
            None if secure => Carrier::Tcp,
            None | Some("transport=udp") => Carrier::Udp,
            Some("transport=tcp") => Carrier::Tcp,
            Some(_) => return Err(wrong("has another query than transport=udp or transport=tcp")),
        };
        let (host, port) = split(place).ok_or_else(|| wrong("has no valid host and port"))?;
        let port = match port.map(u16::from_str) {
            None => {
                if secure {
                    5349
                } else {
                    3478
                }
            }
            Some(Ok(port)) if port != 0 => port,
            Some(_) => return Err(wrong("has no port from 1 to 65535")),
        };
        Ok(Self { scheme, secure, host: host.to_owned(), port, carrier })
    }
}

impl Uri {
    /// Returns advice on a server that does not respond.
    pub(crate) fn unreachable(&self) -> String {
        format!(
            "see whether the server listens there (`ss -tulpn` on it) and whether a firewall lets {} port {} in",
            self.carrier.word(),
            self.port
        )
    }
}

/// Returns the URI of a listener for TURN over UDP.
pub(crate) fn of_listener(listener: SocketAddr) -> String {
    format!("turn:{listener}")
}

/// Splits a host, without brackets, from an optional port.
fn split(place: &str) -> Option<(&str, Option<&str>)> {
    if let Some((host, port)) = place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let is_v6 = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
        let port = if port.is_empty() { None } else { Some(port.strip_prefix(':')?) };
        return is_v6.then_some((host, port));
    }
    let (host, port) = match place.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (place, None),
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte);
    (!host.is_empty() && host.bytes().all(fits)).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_read() {
        use Carrier::{Tcp, Udp};
        use Scheme::{Stun, Turn};
        for (text, scheme, secure, host, port, carrier) in [
            ("stun:example.org", Stun, false, "example.org", 3478, Udp),
            ("STUN:example.org:19302", Stun, false, "example.org", 19302, Udp),
            ("stuns:example.org", Stun, true, "example.org", 5349, Tcp),
            ("turn:192.0.2.1?transport=tcp", Turn, false, "192.0.2.1", 3478, Tcp),
            ("turn:[2001:db8::1]:5?transport=udp", Turn, false, "2001:db8::1", 5, Udp),
            ("turns:[2001:db8::1]", Turn, true, "2001:db8::1", 5349, Tcp),
            ("turns:example.org:443?transport=udp", Turn, true, "example.org", 443, Udp),
        ] {
            let expected = Uri { scheme, secure, host: host.to_owned(), port, carrier };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn errors_name_the_slip() {
        for (text, what) in [
            ("example.org", "has no scheme"),
            ("http:example.org", "has another scheme"),
            ("turn://example.org", "has slashes"),
            ("turn:", "has no valid host"),
            ("turn::3478", "has no valid host"),
            ("turn:2001:db8::1", "has no port from"),
            ("turn:[example.org]", "has no valid host"),
            ("turn:[::1]x", "has no valid host"),
            ("turn:user@example.org", "has no valid host"),
            ("turn:h:0", "has no port from"),
            ("turn:h:70000", "has no port from"),
            ("turn:h?transport=sctp", "has another query"),
        ] {
            let error = text.parse::<Uri>().unwrap_err();
            assert!(error.contains(what) && error.contains("write turn:HOST"), "{text}: {error}");
        }
    }
}
