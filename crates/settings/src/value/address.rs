//! Addresses and ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::{Map, Value, json};

use super::{Written, written};

/// An IP address and a port, written as `"203.0.113.7:3478"` or `"[2001:db8::7]:3478"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint(pub SocketAddr);

impl Endpoint {
    /// The wildcards of both families with one port.
    pub(crate) fn everywhere(port: u16) -> Vec<Self> {
        let wildcards = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        wildcards.map(|ip: IpAddr| Self((ip, port).into())).to_vec()
    }
}

impl Written for Endpoint {
    const KIND: &'static str = "address and port";

    fn forms() -> String {
        "write an IP address and a port, such as \"203.0.113.7:3478\" or \"[2001:db8::7]:3478\""
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(endpoint) = text.parse::<SocketAddr>() {
            if endpoint.port() == 0 {
                return Err(format!("\"{text}\" has port 0, which no client can connect to"));
            }
            return Ok(Self(endpoint));
        }
        if text.parse::<IpAddr>().is_ok() {
            return Err(format!("\"{text}\" has no port"));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() && looks_like_a_name(host) => {
                Err(format!("\"{text}\" has a host name, and an IP address is needed"))
            }
            _ => Err(format!("\"{text}\" is not an IP address and a port")),
        }
    }

    fn written(&self) -> Value {
        json!(self.0.to_string())
    }
}
written!([] Endpoint);

/// An IP address of this host or of the NAT in front of it; not a wildcard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host(pub IpAddr);

impl Host {
    /// Reads an address that packets can be sent from.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let Ok(ip) = text.parse::<IpAddr>() else {
            return Err(if text.parse::<SocketAddr>().is_ok() {
                format!("\"{text}\" has a port, and an IP address alone is needed")
            } else if looks_like_a_name(text) {
                format!("\"{text}\" is a name, and an IP address is needed")
            } else {
                format!("\"{text}\" is not an IP address")
            });
        };
        if ip.is_unspecified() {
            return Err(format!("\"{text}\" is a wildcard, and one address is needed"));
        }
        if ip.is_multicast() || ip == IpAddr::from([255, 255, 255, 255]) {
            return Err(format!(
                "\"{text}\" is a group of hosts, and the address of one is needed"
            ));
        }
        Ok(Self(ip))
    }
}

impl Written for Host {
    const KIND: &'static str = "address";

    fn forms() -> String {
        "write an IP address, such as \"203.0.113.7\" or \"2001:db8::7\"".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        Self::read(text)
    }

    fn written(&self) -> Value {
        json!(self.0.to_string())
    }
}
written!([] Host);

fn looks_like_a_name(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
}

/// A range of ports, both ends in it, written as `"49152-65535"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The lowest port, 1024 or above.
    pub min: u16,
    /// The highest port, not below `min`.
    pub max: u16,
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.min, self.max)
    }
}

/// The lowest port that may be allocated: lower ones are the system's (RFC 8656 §7.2).
const PORT_MIN: u16 = 1024;

impl Written for PortRange {
    const KIND: &'static str = "port range";

    fn forms() -> String {
        format!(
            "write the lowest and the highest port, from {PORT_MIN} to 65535, such as \"49152-65535\""
        )
    }

    fn parse(text: &str) -> Result<Self, String> {
        let Some((min, max)) = text.split_once('-') else {
            return Err(format!("\"{text}\" is not a range of ports"));
        };
        let port = |text: &str| {
            let port = text.trim();
            match port.parse::<u32>().map(u16::try_from) {
                Ok(Ok(port)) => Ok(port),
                Ok(Err(_)) => Err(format!("port {port} is above 65535")),
                Err(_) => Err(format!("\"{port}\" is not a port")),
            }
        };
        let (min, max) = (port(min)?, port(max)?);
        if min < PORT_MIN {
            return Err(format!(
                "\"{text}\" begins below port {PORT_MIN}, where system services live"
            ));
        }
        if min > max {
            return Err(format!("\"{text}\" ends before it begins"));
        }
        Ok(Self { min, max })
    }

    fn parse_number(number: i64) -> Result<Self, String> {
        Err(format!("{number} is one port, and a range is needed"))
    }

    fn written(&self) -> Value {
        json!(self.to_string())
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("pattern".to_owned(), json!("^\\s*[0-9]{4,5}\\s*-\\s*[0-9]{4,5}\\s*$"));
        schema.insert("x-bounds".to_owned(), json!(format!("{PORT_MIN} to 65535")));
    }
}
written!([] PortRange);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        assert_eq!(Endpoint::parse("[::]:3478").unwrap().written(), "[::]:3478");
        for (text, what) in [
            ("203.0.113.7", "\"203.0.113.7\" has no port"),
            ("2001:db8::7", "\"2001:db8::7\" has no port"),
            ("203.0.113.7:0", "\"203.0.113.7:0\" has port 0, which no client can connect to"),
            (
                "turn.example.org:3478",
                "\"turn.example.org:3478\" has a host name, and an IP address is needed",
            ),
            ("3478", "\"3478\" is not an IP address and a port"),
            ("203.0.113.7:70000", "\"203.0.113.7:70000\" is not an IP address and a port"),
        ] {
            assert_eq!(Endpoint::parse(text), Err(what.to_owned()));
        }
    }

    #[test]
    fn hosts() {
        assert!(Host::read("2001:db8::7").is_ok());
        for (text, what) in [
            ("0.0.0.0", "\"0.0.0.0\" is a wildcard, and one address is needed"),
            ("224.0.0.1", "\"224.0.0.1\" is a group of hosts, and the address of one is needed"),
            (
                "203.0.113.7:3478",
                "\"203.0.113.7:3478\" has a port, and an IP address alone is needed",
            ),
            ("eth0", "\"eth0\" is a name, and an IP address is needed"),
            ("203.0.113", "\"203.0.113\" is not an IP address"),
        ] {
            assert_eq!(Host::read(text), Err(what.to_owned()));
        }
    }

    #[test]
    fn port_ranges() {
        assert_eq!(PortRange::parse("1024 - 65535"), Ok(PortRange { min: 1024, max: 65535 }));
        for (text, what) in [
            ("49152", "\"49152\" is not a range of ports"),
            ("700-800", "\"700-800\" begins below port 1024, where system services live"),
            ("60000-50000", "\"60000-50000\" ends before it begins"),
            ("50000-70000", "port 70000 is above 65535"),
            ("a-b", "\"a\" is not a port"),
        ] {
            assert_eq!(PortRange::parse(text), Err(what.to_owned()));
        }
    }
}
