//! Address of a client on the command line, also in the form of the tables.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Address of clients, or address and port of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientAddress {
    pub(crate) ip: IpAddr,
    /// `None`: at any port.
    pub(crate) port: Option<u16>,
}

impl ClientAddress {
    /// Returns true for a client that the server describes with this address and port.
    pub(crate) fn is(self, client: &str) -> bool {
        match (self.port, client.parse::<SocketAddr>()) {
            (None, _) => true,
            (Some(port), Ok(at)) => at == SocketAddr::new(self.ip, port),
            (Some(_), Err(_)) => false,
        }
    }

    /// Reads `192.0.2.9`, `192.0.2.9:4000`, or `udp 192.0.2.9:4000` as in tables.
    pub(crate) fn read(text: &str) -> Option<Self> {
        const TRANSPORTS: [&str; 4] = ["udp", "tcp", "tls", "dtls"];
        let address = match text.split_once(' ') {
            Some((transport, address)) if TRANSPORTS.contains(&transport) => address,
            Some(_) | None => text,
        };
        let alone = address.trim_matches(['[', ']']).parse().map(|ip| Self { ip, port: None });
        alone.ok().or_else(|| {
            let at: SocketAddr = address.parse().ok()?;
            Some(Self { ip: at.ip(), port: Some(at.port()) })
        })
    }
}

impl FromStr for ClientAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text).ok_or_else(|| "an address, or address:port, is expected".to_owned())
    }
}

impl std::fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            None => self.ip.fmt(f),
            Some(port) => SocketAddr::new(self.ip, port).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_named_as_the_tables_show_it() {
        for (text, shown) in [
            ("192.0.2.9", "192.0.2.9"),
            ("192.0.2.9:4000", "192.0.2.9:4000"),
            ("udp 192.0.2.9:4000", "192.0.2.9:4000"),
            ("2001:db8::1", "2001:db8::1"),
            ("tls [2001:db8::1]:7", "[2001:db8::1]:7"),
        ] {
            assert_eq!(ClientAddress::read(text).unwrap().to_string(), shown);
        }
        for text in ["", "alice", "192.0.2.9:x", "192.0.2", "alice 192.0.2.9"] {
            assert_eq!(ClientAddress::read(text), None, "{text}");
        }
        let one = ClientAddress::read("192.0.2.9:400").unwrap();
        assert!(one.is("192.0.2.9:400") && !one.is("192.0.2.9:4000"));
        assert!(ClientAddress::read("192.0.2.9").unwrap().is("192.0.2.9:4000"));
    }
}
