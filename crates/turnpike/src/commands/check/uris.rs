//! URIs that clients use (RFC 7064, RFC 7065).

use std::net::{IpAddr, SocketAddr};

use settings::{RelayPair, Settings};

/// Returns the URIs of the listeners, with the first name of a certificate. Without a name, the
/// URIs contain the addresses that clients reach.
pub(super) fn uris(settings: &Settings, relays: &[RelayPair], names: &[String]) -> Vec<String> {
    // Clients cannot use a pattern as a host name.
    let name = names.iter().find(|name| !name.starts_with('*'));
    let tls = settings.has_certificates();
    let mut all = Vec::new();
    let mut add = |scheme: &str, listener: SocketAddr, transport: &str| {
        let hosts = match name {
            Some(name) if !listener.ip().is_loopback() => vec![name.clone()],
            Some(_) | None => hosts(listener.ip(), relays),
        };
        for host in hosts {
            let uri = format!("{scheme}:{host}:{}{transport}", listener.port());
            if !all.contains(&uri) {
                all.push(uri);
            }
        }
    };
    for listener in settings.listen().filter(|_| settings.udp.enabled) {
        add("stun", listener, "");
    }
    let relays_clients = settings.relay.enabled;
    let (udp, tcp) = (settings.udp.enabled, settings.tcp.enabled);
    for listener in settings.listen().filter(|_| relays_clients && udp) {
        add("turn", listener, "?transport=udp");
    }
    for listener in settings.listen().filter(|_| relays_clients && tcp) {
        add("turn", listener, "?transport=tcp");
    }
    if tls && settings.tls.enabled && relays_clients {
        // Without `tls.listen`, the other listeners serve TLS.
        let more = settings.tls_listen.is_empty().then(|| settings.listen());
        for listener in settings.tls_listen.iter().copied().chain(more.into_iter().flatten()) {
            add("turns", listener, "?transport=tcp");
        }
    }
    all
}

/// Returns the addresses of a listener in URIs. A wildcard has the public addresses of its family.
/// An address with address translation has its public address.
fn hosts(listener: IpAddr, relays: &[RelayPair]) -> Vec<String> {
    let written = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    if listener.is_unspecified() {
        let of_family = relays.iter().filter(|pair| pair.public.is_ipv4() == listener.is_ipv4());
        return of_family.map(|pair| written(pair.public)).collect();
    }
    let pair = relays.iter().find(|pair| pair.local == listener);
    vec![written(pair.map_or(listener, |pair| pair.public))]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use settings::Environment;

    use super::*;

    fn of(text: &str, names: &[&str]) -> Vec<String> {
        let settings = settings::parse(Path::new("t.toml"), text, &Environment::empty()).unwrap();
        let ip = |text: &str| text.parse().unwrap();
        let relays = [
            RelayPair { local: ip("10.0.0.5"), public: ip("203.0.113.7") },
            RelayPair { local: ip("2001:db8::7"), public: ip("2001:db8::7") },
        ];
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        uris(&settings, &relays, &names)
    }

    #[test]
    fn wildcards_are_the_public_addresses() {
        assert_eq!(
            of("", &[]),
            [
                "stun:203.0.113.7:3478",
                "stun:[2001:db8::7]:3478",
                "turn:203.0.113.7:3478?transport=udp",
                "turn:[2001:db8::7]:3478?transport=udp",
                "turn:203.0.113.7:3478?transport=tcp",
                "turn:[2001:db8::7]:3478?transport=tcp",
            ]
        );
        assert_eq!(
            of("listen = [\"10.0.0.5:3478\"]\ntcp.enabled = false\n", &[]),
            ["stun:203.0.113.7:3478", "turn:203.0.113.7:3478?transport=udp"]
        );
    }

    #[test]
    fn a_name_of_a_certificate_stands_for_all_addresses() {
        let text =
            "[tls]\nlisten = [\"0.0.0.0:443\"]\ncertificates = [{ chain = \"c\", key = \"k\" }]\n";
        assert_eq!(
            of(text, &["*.example.org", "turn.example.org"]),
            [
                "stun:turn.example.org:3478",
                "turn:turn.example.org:3478?transport=udp",
                "turn:turn.example.org:3478?transport=tcp",
                "turns:turn.example.org:443?transport=tcp",
            ]
        );
    }
}
