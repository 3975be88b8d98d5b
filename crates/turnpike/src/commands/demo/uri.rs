//! Which server a TURN URI names (RFC 7065).

use std::net::{IpAddr, SocketAddr};

use anyhow::anyhow;
use tokio::net::lookup_host;

use crate::failure::{Failure, Result};

/// The port when a URI names none (RFC 8656 §5).
const TURN_PORT: u16 = 3478;

/// The address of the server: `turn:HOST`, `turn:HOST:PORT`,
/// `turn:HOST:PORT?transport=udp`.
pub(crate) async fn resolve(uri: &str) -> Result<SocketAddr> {
    let (host, port) = parse(uri).map_err(Failure::usage)?;
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok((ip, port).into());
    }
    let found = lookup_host((host, port)).await.map(|mut all| all.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(Failure::failed(anyhow!("{host} has no address"))),
        Err(error) => Err(Failure::failed(anyhow!("cannot find {host}: {error}"))),
    }
}

fn parse(uri: &str) -> anyhow::Result<(&str, u16)> {
    let advice = "write turn:HOST or turn:HOST:PORT, with IPv6 addresses in brackets";
    let rest = uri.strip_prefix("turn:").ok_or_else(|| anyhow!("{uri}: {advice}"))?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !matches!(query, "" | "transport=udp") {
        return Err(anyhow!("{uri}: the demo speaks UDP alone"));
    }
    let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let port = match port.map(str::parse) {
        None if place.ends_with(host) || place.ends_with(']') => TURN_PORT,
        Some(Ok(port)) if port != 0 => port,
        Some(_) | None => return Err(anyhow!("{uri}: {advice}")),
    };
    if host.is_empty() {
        return Err(anyhow!("{uri}: {advice}"));
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_name_host_and_port() {
        for (uri, expected) in [
            ("turn:192.0.2.1:3479", ("192.0.2.1", 3479)),
            ("turn:example.org", ("example.org", 3478)),
            ("turn:[2001:db8::1]:5", ("2001:db8::1", 5)),
            ("turn:[2001:db8::1]", ("2001:db8::1", 3478)),
            ("turn:example.org?transport=udp", ("example.org", 3478)),
        ] {
            assert_eq!(parse(uri).unwrap(), expected, "{uri}");
        }
        for uri in [
            "stun:example.org",
            "turn:",
            "turn::3478",
            "turn:h:0",
            "turn:h:port",
            "turn:h:70000",
            "turn:[::1]x",
            "turn:2001:db8::1",
            "turn:h?transport=tcp",
        ] {
            assert!(parse(uri).is_err(), "{uri}");
        }
    }
}
