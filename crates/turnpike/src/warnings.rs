//! Warnings about a configuration.

use std::net::Ipv6Addr;

use settings::Settings;
use settings::value::HttpListen;
use turn_types::Prefix;

/// Warnings about values that are valid and probably not intended.
pub(crate) fn warnings(settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    if settings.auth.open_relay.is_open() {
        warnings.push(
            "auth.open_relay: everyone may relay through this host; such relays are found and \
             abused within hours"
                .to_owned(),
        );
    }
    if settings.listen().all(|listener| listener.ip().is_loopback()) {
        warnings.push("listen: only this host itself can reach the listeners".to_owned());
    }
    warnings.extend(settings.http.listen.iter().filter_map(public_http));
    if settings.tls_listen_is_unused() {
        warnings.push("tls.listen: not used, as tls.certificates names no certificate".to_owned());
    }
    if settings.tls.client_authorities.is_some() {
        warnings.push(
            "tls.client_authorities: DTLS is off, since it does not request client certificates"
                .to_owned(),
        );
    }
    warnings.extend(settings.peers.allow.iter().filter_map(|prefix| wide(&prefix.0)));
    warnings
}

/// A warning about a listener for HTTP that others than this host may reach.
fn public_http(listen: &HttpListen) -> Option<String> {
    let HttpListen::Tcp(address) = listen else { return None };
    let reach = if address.ip().is_unspecified() {
        "every address of this host"
    } else {
        "a public address"
    };
    let private = PRIVATE.iter().filter_map(|text| text.parse::<Prefix>().ok());
    let is_private =
        address.ip().is_loopback() || private.into_iter().any(|one| one.contains(address.ip()));
    (!is_private).then(|| {
        format!(
            "http.listen: {address} is {reach}: metrics are for everyone who can connect, unencrypted; name \
             loopback or an address of a network for monitoring"
        )
    })
}

/// Networks that are private or local, which clients reach only where peers.allow says so.
const PRIVATE: [&str; 8] = [
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "fc00::/7",
    "fe80::/10",
];

/// A warning about an entry of `peers.allow` that covers more than a private network: `10.0.0.0/8` is intended,
/// `0.0.0.0/0` may be meant for the public Internet, which needs no entry.
fn wide(entry: &Prefix) -> Option<String> {
    // IPv4 is kept in its mapped form, and is no part of an entry of IPv6.
    let is_v4 = |prefix: &Prefix| prefix.len_128() >= 96 && prefix.bits() >> 32 == 0xffff;
    let first = |prefix: &Prefix| Ipv6Addr::from_bits(prefix.bits()).into();
    let private = PRIVATE.iter().filter_map(|text| text.parse::<Prefix>().ok());
    let opened: Vec<String> = private
        .filter(|private| is_v4(private) == is_v4(entry))
        .filter(|private| private.len_128() > entry.len_128() && entry.contains(first(private)))
        .map(|private| private.to_string())
        .collect();
    (!opened.is_empty()).then(|| {
        format!(
            "peers.allow: {entry} opens private networks ({}) to clients; public addresses need no \
             entry",
            opened.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use settings::{Environment, SettingsErrors};

    use super::*;

    fn load(text: &str) -> Result<Settings, SettingsErrors> {
        settings::parse(Path::new("t.toml"), text, &Environment::empty())
    }

    #[test]
    fn an_entry_that_opens_more_than_a_private_network_is_warned_about() {
        let warned = |allow: &str| {
            let text =
                format!("[auth]\nsecret = \"north-of-the-wall\"\n[peers]\nallow = {allow}\n");
            warnings(&load(&text).unwrap())
        };
        let all = warned(r#"["0.0.0.0/0", "::/0"]"#);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[0].contains("0.0.0.0/0 opens private networks (10.0.0.0/8, 100."), "{all:?}");
        assert!(all[1].contains("::/0 opens private networks (fc00::/7, fe80::/10)"), "{all:?}");
        assert_eq!(warned(r#"["192.0.0.0/2"]"#).len(), 1);
        let none = warned(r#"["10.0.0.0/8", "192.168.0.0/17", "8.0.0.0/8", "fd00::/8"]"#);
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn metrics_for_everyone_are_warned_about() {
        let warned = |listen: &str| {
            let text = format!(
                "[auth]\nsecret = \"north-of-the-wall\"\n[http]\nlisten = [\"{listen}\"]\n"
            );
            warnings(&load(&text).unwrap()).iter().any(|one| one.contains("http.listen"))
        };
        for listen in ["0.0.0.0:9641", "[::]:9641", "203.0.113.7:9641", "[2001:db8::1]:9641"] {
            assert!(warned(listen), "{listen}");
        }
        for listen in ["127.0.0.1:9641", "[::1]:9641", "10.1.2.3:9641", "[fd00::1]:9641", "unix:/x"]
        {
            assert!(!warned(listen), "{listen}");
        }
    }

    #[test]
    fn client_certificates_switch_dtls_off() {
        let text =
            "[auth]\nsecret = \"north-of-the-wall\"\n[tls]\nclient_authorities = \"ca.pem\"\n";
        let warned = warnings(&load(text).unwrap());
        assert!(warned.iter().any(|warning| warning.contains("DTLS is off")), "{warned:?}");
    }

    #[test]
    fn addresses_for_tls_without_a_certificate_are_warned_about() {
        let with = |tls: &str| {
            let auth = "[auth]\nsecret = \"north-of-the-wall\"\n";
            warnings(&load(&format!("{auth}[tls]\n{tls}\n")).unwrap())
        };
        let warned = with("listen = [\"0.0.0.0:443\"]");
        assert_eq!(warned.len(), 1, "{warned:?}");
        assert!(warned[0].contains("tls.listen"), "{warned:?}");
        assert!(with("listen = []").is_empty());
    }
}
