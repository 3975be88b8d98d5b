//! Origins of web pages.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::str::FromStr;

use serde_json::{Value, json};

use super::{DomainName, Written, written};

/// The origin of a web page, as browsers send it (RFC 6454 §6.2): scheme, host, and the port unless
/// it is the scheme's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOrigin(String);

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Written for WebOrigin {
    const KIND: &'static str = "origin of a web page";

    fn forms() -> String {
        "write scheme and host in quotes, perhaps with a port, such as \"https://app.example.org\""
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not the origin of a web page");
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let own_port = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return Err(wrong()),
        };
        let at: Authority = rest.parse().map_err(|()| wrong())?;
        let port = at.port.filter(|port| *port != own_port);
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        Ok(Self(format!("{scheme}://{}{port}", at.host)))
    }

    fn written(&self) -> Value {
        json!(self.0)
    }
}

/// A host, as a URI has it, and perhaps a port.
struct Authority {
    host: String,
    port: Option<u16>,
}

impl FromStr for Authority {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(ip) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let ip: Ipv6Addr = ip.parse().map_err(|_| ())?;
            return Ok(Self { host: format!("[{ip}]"), port: None });
        }
        if let Ok(at) = text.parse::<SocketAddrV6>() {
            return Ok(Self { host: format!("[{}]", at.ip()), port: Some(at.port()) });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse::<u16>().map_err(|_| ())?)),
            None => (text, None),
        };
        let is_host = host.parse::<Ipv4Addr>().is_ok() || DomainName::parse(host).is_ok();
        if is_host { Ok(Self { host: host.to_ascii_lowercase(), port }) } else { Err(()) }
    }
}

written!([] WebOrigin);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_written_as_browsers_send_them() {
        for (text, sent) in [
            ("https://app.example.org", "https://app.example.org"),
            ("https://App.Example.org:443", "https://app.example.org"),
            ("http://localhost:8080", "http://localhost:8080"),
            ("http://[::1]:80", "http://[::1]"),
            ("https://[2001:DB8::1]", "https://[2001:db8::1]"),
            ("https://192.0.2.1:8443", "https://192.0.2.1:8443"),
        ] {
            assert_eq!(WebOrigin::parse(text).unwrap().to_string(), sent);
        }
        for bad in [
            "*",
            "null",
            "app.example.org",
            "ftp://app.example.org",
            "https://",
            "https://app.example.org/",
            "https://app.example.org:",
            "https://app.example.org:0x50",
            "https://a@app.example.org",
            "https://*.example.org",
            "https://[::1",
        ] {
            assert!(WebOrigin::parse(bad).is_err(), "{bad}");
        }
    }
}
