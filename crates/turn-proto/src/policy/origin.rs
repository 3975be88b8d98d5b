//! ORIGIN: the web page that started a client (draft-ietf-tram-stun-origin).

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::limits::ORIGIN_BYTES_MAX;

/// Origin as `scheme://host:port` in lower case. The port is always present, so all spellings of an
/// origin are equal. An origin proves nothing, because clients can send any value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin(String);

impl Origin {
    /// Parses the value of an ORIGIN attribute; `None` if the value is not an origin, such as
    /// `null`.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        core::str::from_utf8(value).ok()?.parse().ok()
    }

    /// Returns the origin as text, with the port.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Error of a text that is not an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnOrigin;

impl FromStr for Origin {
    type Err = NotAnOrigin;

    fn from_str(text: &str) -> Result<Self, NotAnOrigin> {
        let lower = Some(text).filter(|text| text.len() <= ORIGIN_BYTES_MAX).ok_or(NotAnOrigin)?;
        let lower = lower.to_ascii_lowercase();
        let (scheme, authority) = lower.split_once("://").ok_or(NotAnOrigin)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        // The colons of an IPv6 address are within brackets.
        let bracket = authority.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match authority[bracket..].rfind(':') {
            Some(at) => {
                let (host, port) = authority.split_at(bracket + at);
                (host, port[1..].parse::<u16>().map_err(|_| NotAnOrigin)?)
            }
            None => (authority, default_port(scheme).ok_or(NotAnOrigin)?),
        };
        let is_scheme = !scheme.is_empty()
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        let is_host = !host.is_empty()
            && host.bytes().all(|b| b.is_ascii_graphic() && !b"/?#@\\\"<>".contains(&b));
        if !is_scheme || !is_host || port == 0 {
            return Err(NotAnOrigin);
        }
        Ok(Self(format!("{scheme}://{host}:{port}")))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_origin_are_equal() {
        for (text, origin) in [
            ("https://Meet.Example.org", "https://meet.example.org:443"),
            ("https://meet.example.org:443/", "https://meet.example.org:443"),
            ("http://10.0.0.1", "http://10.0.0.1:80"),
            ("http://[2001:DB8::1]:8080", "http://[2001:db8::1]:8080"),
            ("https://[2001:db8::1]", "https://[2001:db8::1]:443"),
            ("https://[2001:db8::]", "https://[2001:db8::]:443"),
        ] {
            let read = text.parse::<Origin>().unwrap();
            assert_eq!((read.as_str(), &*format!("{read}")), (origin, origin));
        }
    }

    #[test]
    fn other_texts_are_no_origins() {
        let long = format!("https://{}.example", "a".repeat(ORIGIN_BYTES_MAX));
        for text in [
            "",
            "null",
            "meet.example.org",
            "https://",
            "://host",
            "://host:1",
            "a_b://host:1",
            "https://host:",
            "https://host:0",
            "https://host:65536",
            "https://user@host",
            "https://host/path",
            "https://ho st",
            "stun:host",
            "unknown://host",
            &long,
        ] {
            assert_eq!(text.parse::<Origin>(), Err(NotAnOrigin), "{text}");
        }
    }
}
