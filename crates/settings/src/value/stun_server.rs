//! STUN servers of others.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use super::{DomainName, Written, written};

/// Port of STUN without another (RFC 8489 §8.1).
const PORT: u16 = 3478;

/// A STUN server over UDP: a name or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StunServer {
    host: String,
    port: u16,
}

impl StunServer {
    /// Name or address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for StunServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, self.port).fmt(f),
            Err(_) => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Written for StunServer {
    const KIND: &'static str = "STUN server";

    fn forms() -> String {
        "write a name or an address, and a port other than 3478, such as \"stun.example.org\", \"203.0.113.9:3478\" \
         or \"[2001:db8::9]:3478\""
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let place = text.strip_prefix("stun:").unwrap_or(text);
        if let Ok(at) = place.parse::<SocketAddr>() {
            if at.port() == 0 {
                return Err(format!("\"{text}\" has port 0"));
            }
            return Ok(Self { host: at.ip().to_string(), port: at.port() });
        }
        if let Ok(ip) = place.parse::<IpAddr>() {
            return Ok(Self { host: ip.to_string(), port: PORT });
        }
        let (host, port) = match place.split_once(':') {
            Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0)),
            None => (place, Some(PORT)),
        };
        let port = port.ok_or_else(|| format!("\"{text}\" has no port from 1 to 65535"))?;
        let host = DomainName::parse(host)?.to_string();
        Ok(Self { host, port })
    }

    fn written(&self) -> Value {
        json!(self.to_string())
    }
}
written!([] StunServer);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_read() {
        for (text, written) in [
            ("stun.example.org", "stun.example.org:3478"),
            ("stun:stun.example.org:19302", "stun.example.org:19302"),
            ("203.0.113.9", "203.0.113.9:3478"),
            ("[2001:db8::9]:5", "[2001:db8::9]:5"),
        ] {
            assert_eq!(StunServer::parse(text).unwrap().to_string(), written);
        }
        for text in ["", "a:b", "stun.example.org:0", "203.0.113.9:0", "a b"] {
            StunServer::parse(text).unwrap_err();
        }
    }
}
