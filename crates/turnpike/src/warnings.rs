//! Findings about a configuration that is valid but probably not intended.

use std::net::{IpAddr, Ipv6Addr};

use settings::value::HttpListen;
use settings::{Database, Place, RelayEntry, Settings};
use turn_types::Prefix;

use crate::findings::Finding;

/// Returns the findings that follow from the configuration without its files and the host.
pub(crate) fn warnings(settings: &Settings) -> Vec<Finding> {
    let warning = |key, what: &str, help: &str| Finding::warning(settings, key, what, help);
    let mut all = Vec::new();
    if settings.auth.open_relay.is_open() {
        all.push(warning(
            "auth.open_relay",
            "everyone may relay through this host",
            "such relays are found and abused within hours: remove it outside of tests",
        ));
    }
    if settings.compatibility.short_secrets {
        all.push(warning(
            "compatibility.short_secrets",
            "shared secrets of fewer than 16 bytes are accepted",
            "from one credential such a secret can be found by trying: put a longer one in force (`openssl rand -base64 32`) \
             here and in the applications",
        ));
    }
    all.extend(settings.unused_variables.iter().map(|name| {
        let place = Place::Environment(name.clone());
        let help = "docs/configuration.md lists the variable of each key";
        warning("", "no key has this name, and nothing reads it", help).at(place)
    }));
    let mut listeners = settings.listeners().into_iter().chain(settings.tls_listen.clone());
    if listeners.all(|listener| listener.ip().is_loopback()) {
        all.push(warning(
            "listen",
            "only this host itself can reach the listeners",
            "name an address that clients reach, or leave the key out for every address",
        ));
    }
    all.extend(settings.http.listen.iter().enumerate().filter_map(|(index, listen)| {
        let place = settings.entry_place("http.listen", index);
        public_http(settings, listen).map(|finding| finding.at(place))
    }));
    if settings.tls_listen_is_unused() {
        all.push(Finding::problem(
            settings,
            "tls.listen",
            "not used: tls.certificates names no certificate",
            "add tls.certificates = [{ chain = \"...\", key = \"...\" }], or remove tls.listen",
        ));
    }
    if settings.tls.client_authorities.is_some() && settings.dtls.enabled {
        all.push(warning(
            "tls.client_authorities",
            "DTLS is off, since it does not request client certificates",
            "write dtls.enabled = false to confirm it",
        ));
    }
    all.extend(settings.peers.allow.iter().enumerate().filter_map(|(index, prefix)| {
        let place = settings.entry_place("peers.allow", index);
        wide(settings, &prefix.0).map(|finding| finding.at(place))
    }));
    all.extend(private_externals(settings));
    all.extend(clear_databases(settings));
    if !settings.relay.external_stun.is_empty() && !settings.is_external_auto() {
        all.push(warning(
            "relay.external_stun",
            "not used: relay.external is not \"auto\"",
            "set relay.external = \"auto\", or remove it",
        ));
    }
    all
}

/// Returns findings about unencrypted connections to databases on other hosts.
fn clear_databases(settings: &Settings) -> Vec<Finding> {
    const HELP: &str = "encrypt it: sslmode=verify-full in the URL (for Redis rediss://, for MongoDB tls=true), \
                        with sslrootcert= for an authority that this host does not trust";
    let key = |in_file, key: &'static str, of_file| if in_file { of_file } else { key };
    let users = match settings.user_database() {
        Database::Server(url) => Some((
            key(settings.users.database_file.is_some(), "users.database", "users.database_file"),
            url,
            "names and keys of users travel to it",
        )),
        Database::Sqlite(_) | Database::CoturnSqlite(_) => None,
    };
    let statistics = settings.statistics().map(|url| {
        let in_file = settings.accounting.redis_file.is_some();
        let key = key(in_file, "accounting.redis", "accounting.redis_file");
        (key, url, "records of sessions travel to it")
    });
    let found = users.into_iter().chain(statistics).filter_map(|(key, url, what)| {
        // An invalid URL is reported by another finding.
        let hosts = user_db::clear_hosts(url.expose()).ok().filter(|hosts| !hosts.is_empty())?;
        let what = format!("{} is reached in clear: {what} unencrypted", hosts.join(", "));
        Some(Finding::warning(settings, key, what, HELP))
    });
    found.collect()
}

/// Returns findings about private addresses in place of public addresses.
fn private_externals(settings: &Settings) -> Vec<Finding> {
    const HELP: &str = "write the address that clients elsewhere reach this host at";
    let warned = |key, ip: IpAddr| {
        let what = format!("{ip} is a private address, and is told to clients as the public one");
        is_private(ip).then(|| Finding::warning(settings, key, what, HELP))
    };
    let external = settings.relay.external.iter().flat_map(|external| &external.0);
    let mut all: Vec<Finding> = external.filter_map(|ip| warned("relay.external", *ip)).collect();
    for (index, entry) in settings.relay.addresses.iter().enumerate() {
        if let RelayEntry::Address { public: Some(public), .. } = entry {
            let place = settings.entry_place("relay.addresses", index);
            all.extend(warned("relay.addresses", *public).map(|finding| finding.at(place)));
        }
    }
    all
}

/// Returns a warning about an HTTP listener that other hosts can reach.
fn public_http(settings: &Settings, listen: &HttpListen) -> Option<Finding> {
    let HttpListen::Tcp(address) = listen else { return None };
    let reach = if address.ip().is_unspecified() {
        "every address of this host"
    } else {
        "a public address"
    };
    (!address.ip().is_loopback() && !is_private(address.ip())).then(|| {
        Finding::warning(
            settings,
            "http.listen",
            format!("{address} is {reach}: metrics are for everyone who can connect, unencrypted"),
            "name loopback or an address of a network for monitoring",
        )
    })
}

/// Returns true if only this host or its network can reach an address.
pub(crate) fn is_private(ip: IpAddr) -> bool {
    let private = PRIVATE.iter().filter_map(|text| text.parse::<Prefix>().ok());
    ip.is_loopback() || private.into_iter().any(|one| one.contains(ip))
}

/// Private or local networks, which clients reach only if `peers.allow` permits it.
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

/// Returns a warning about an entry of `peers.allow` that covers more than a private network.
/// `10.0.0.0/8` is intended. `0.0.0.0/0` may be meant for the public Internet, which needs no
/// entry.
fn wide(settings: &Settings, entry: &Prefix) -> Option<Finding> {
    // IPv4 is stored in mapped form, but does not belong to entries of IPv6.
    let is_v4 = |prefix: &Prefix| prefix.len_128() >= 96 && prefix.bits() >> 32 == 0xffff;
    let first = |prefix: &Prefix| Ipv6Addr::from_bits(prefix.bits()).into();
    let private = PRIVATE.iter().filter_map(|text| text.parse::<Prefix>().ok());
    let opened: Vec<String> = private
        .filter(|private| is_v4(private) == is_v4(entry))
        .filter(|private| private.len_128() > entry.len_128() && entry.contains(first(private)))
        .map(|private| private.to_string())
        .collect();
    (!opened.is_empty()).then(|| {
        Finding::warning(
            settings,
            "peers.allow",
            format!("{entry} opens private networks ({}) to clients", opened.join(", ")),
            "name the networks that clients need; public addresses need no entry",
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
    fn a_database_that_is_reached_in_clear_is_warned_about() {
        for (text, found) in [
            ("[users]\ndatabase = \"redis://:hush@db.example.org/0\"", Some("users.database")),
            ("[accounting]\nredis = \"redis://db.example.org\"", Some("accounting.redis")),
            ("[accounting]\nredis = \"rediss://db.example.org\"", None),
            ("[accounting]\nredis = \"redis://127.0.0.1/1\"", None),
            (
                "[users]\ndatabase = \"postgres://turn:hush@/t?host=db.example.org&sslmode=disable\"",
                Some("users.database"),
            ),
            ("[users]\ndatabase = \"postgres://turn:hush@/t?host=db.example.org\"", None),
        ] {
            let text = format!("{text}\n[auth]\nsecret = \"north-of-the-wall\"\n");
            let all = warnings(&load(&text).unwrap());
            assert_eq!(all.first().map(|one| &*one.key), found, "{text}: {all:?}");
            if let Some(finding) = all.first() {
                assert!(finding.line().contains("db.example.org is reached in clear"));
                assert!(!finding.line().contains("hush"), "{}", finding.line());
            }
        }
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
        assert!(
            all[0].what.contains("0.0.0.0/0 opens private networks (10.0.0.0/8, 100."),
            "{all:?}"
        );
        assert!(
            all[1].what.contains("::/0 opens private networks (fc00::/7, fe80::/10)"),
            "{all:?}"
        );
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
            warnings(&load(&text).unwrap()).iter().any(|one| one.key == "http.listen")
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
        assert!(warned.iter().any(|warning| warning.what.contains("DTLS is off")), "{warned:?}");
    }

    #[test]
    fn addresses_for_tls_without_a_certificate_are_warned_about() {
        let with = |tls: &str| {
            let auth = "[auth]\nsecret = \"north-of-the-wall\"\n";
            warnings(&load(&format!("{auth}[tls]\n{tls}\n")).unwrap())
        };
        let warned = with("listen = [\"0.0.0.0:443\"]");
        assert_eq!(warned.len(), 1, "{warned:?}");
        assert!(warned[0].key == "tls.listen", "{warned:?}");
        assert!(with("listen = []").is_empty());
    }
}
