//! Errors of listeners and of NAT behaviour discovery, word for word.

use crate::support::said::{check, errors};

const TWO: &str = "discovery.addresses = ['10.0.0.5', '10.0.0.6']\n";

/// Four entries of `discovery.external`.
fn externals(public: [&str; 4]) -> String {
    let local = ["10.0.0.5:3478", "10.0.0.5:3479", "10.0.0.6:3478", "10.0.0.6:3479"];
    let entries = local.iter().zip(public);
    let entries =
        entries.map(|(local, public)| format!("{{ local = '{local}', public = '{public}' }}"));
    format!("{TWO}discovery.external = [{}]", entries.collect::<Vec<_>>().join(", "))
}

#[test]
fn discovery_takes_two_addresses_and_two_ports() {
    let twice = "name two addresses: a NAT is known by how it treats two";
    let two = "name two of a family, or none: a NAT is known by how it treats two";
    for (text, expected) in [
        (TWO.to_owned(), String::new()),
        (
            "discovery.addresses = ['10.0.0.5', '10.0.0.5']".to_owned(),
            format!("turnpike.toml:1: discovery.addresses: 10.0.0.5 is there twice\n    {twice}"),
        ),
        (
            "discovery.addresses = ['10.0.0.5', '10.0.0.6', 'fd00::5']".to_owned(),
            format!("turnpike.toml:1: discovery.addresses: there are 1 IPv6 addresses\n    {two}"),
        ),
        (
            "discovery.addresses = ['10.0.0.5', '10.0.0.6:3478']".to_owned(),
            "turnpike.toml:1: discovery.addresses: \"10.0.0.6:3478\" has a port, and an IP address alone is needed\n    \
             write an IP address, such as \"203.0.113.7\" or \"2001:db8::7\""
                .to_owned(),
        ),
        (
            format!("{TWO}discovery.ports = [3478]"),
            "turnpike.toml:2: discovery.ports: there are 1 ports\n    name two ports".to_owned(),
        ),
        (
            format!("{TWO}discovery.ports = [3478, 3478]"),
            "turnpike.toml:2: discovery.ports: port 3478 is there twice\n    name two ports"
                .to_owned(),
        ),
        (
            format!("{TWO}discovery.ports = [3478, 50000]"),
            "turnpike.toml:2: discovery.ports: port 50000 is one of relay.ports (49152-65535)\n    \
             listen on another port, or take relayed addresses from other ports"
                .to_owned(),
        ),
    ] {
        assert_eq!(errors(&text), expected, "of this file:\n{text}");
    }
}

#[test]
fn what_clients_are_told_of_discovery_is_a_square_too() {
    let square = ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1", "192.0.2.2:2"];
    assert_eq!(errors(&externals(square)), "");
    let skewed = ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1", "192.0.2.2:3"];
    for (text, expected) in [
        (
            externals(skewed),
            "turnpike.toml:2: discovery.external: the public addresses are not two addresses with the same two ports\n    \
             RFC 5780 needs each public address with each public port",
        ),
        (
            externals(["[2001:db8::7]:1", square[1], square[2], square[3]]),
            "turnpike.toml:2: discovery.external: local 10.0.0.5:3478 and public [2001:db8::7]:1 are of different families\n    \
             name the address that stands before the local one\n\
             turnpike.toml:2: discovery.external: the public addresses are not two addresses with the same two ports\n    \
             RFC 5780 needs each public address with each public port",
        ),
        (
            format!(
                "{TWO}discovery.external = [{{ local = '10.0.0.5:3478', public = '192.0.2.1:1' }}]"
            ),
            "turnpike.toml:2: discovery.external: 1 of the four IPv4 addresses have a public one\n    \
             write an entry for each of the four",
        ),
        (
            format!(
                "{TWO}discovery.external = [{{ local = '10.0.0.7:3478', public = '192.0.2.1:1' }}]"
            ),
            "turnpike.toml:2: discovery.external: nothing is served at 10.0.0.7:3478\n    \
             local is an address of discovery.addresses with a port of discovery.ports",
        ),
        (
            format!("{TWO}discovery.external = [{{ local = '10.0.0.5:3478' }}]"),
            "turnpike.toml:2: discovery.external: the entry has not both of local and public\n    \
             write { local = \"10.0.0.5:3478\", public = \"203.0.113.7:3478\" }",
        ),
        (
            "discovery.external = [{ local = '10.0.0.5:3478', public = '192.0.2.1:1' }]".to_owned(),
            "turnpike.toml:1: discovery.external: there are external addresses, and discovery.addresses is empty\n    \
             name the two local addresses",
        ),
    ] {
        assert_eq!(errors(&text), expected, "of this file:\n{text}");
    }
}

#[test]
fn listeners_for_http() {
    let long = "x".repeat(120);
    let long_error = "turnpike.toml:2: http.listen: the path has 121 bytes, and a Unix socket's has at most 107\n    \
         use a shorter one, such as \"unix:/run/turnpike/http.sock\"";
    check(&[
        (
            "[http]\nlisten = [\"localhost:9641\"]",
            "turnpike.toml:2: http.listen: \"localhost:9641\" has a host name, and an IP address is needed\n    \
             write an IP address and a port, such as \"127.0.0.1:9641\", or `unix:` and the whole path of a socket, \
             such as \"unix:/run/turnpike/http.sock\"",
        ),
        (
            "[http]\nlisten = [\"unix:http.sock\"]",
            "turnpike.toml:2: http.listen: \"unix:http.sock\" has no path that begins with a slash and ends with a \
             name\n    \
             write an IP address and a port, such as \"127.0.0.1:9641\", or `unix:` and the whole path of a socket, \
             such as \"unix:/run/turnpike/http.sock\"",
        ),
        (
            "[http]\nlisten = [\"127.0.0.1:9641\", \"127.0.0.1:9641\"]",
            "turnpike.toml:2: http.listen: \"127.0.0.1:9641\" is there twice\n    remove one of them",
        ),
        (&format!("[http]\nlisten = [\"unix:/{long}\"]"), long_error),
    ]);
}

#[test]
fn listeners_that_a_wildcard_covers() {
    check(&[
        (
            "listen = [\"0.0.0.0:3478\",\n \"10.0.0.1:3478\"]",
            "turnpike.toml:2: listen: \"10.0.0.1:3478\" is part of \"0.0.0.0:3478\"\n    \
             remove one of them, or use another port",
        ),
        (
            "listen = [\"203.0.113.7:443\"]\n[tls]\nlisten = [\"0.0.0.0:443\"]\n\
             certificates = [{ chain = \"c\", key = \"k\" }]",
            "turnpike.toml:1: listen: \"203.0.113.7:443\" is part of \"0.0.0.0:443\" of tls.listen\n    \
             remove one of them, or use another port",
        ),
        ("listen = [\"0.0.0.0:3478\", \"[2001:db8::1]:3478\", \"10.0.0.1:3479\"]", ""),
    ]);
}

#[test]
fn listeners_for_operators() {
    check(&[
        (
            "[api]\nlisten = [\"127.0.0.1:9642\", \"0.0.0.0:9642\"]",
            "turnpike.toml:2: api.listen: \"0.0.0.0:9642\" can be reached by other hosts, and there is no certificate for \
             TLS\n    \
             add tls.certificates or acme.names, or write \"127.0.0.1:9642\" and reach it by `ssh -L 9642:127.0.0.1:9642 HOST`",
        ),
        (
            "[api]\nlisten = [\"127.0.0.1:9642\", \"127.0.0.1:9642\"]",
            "turnpike.toml:2: api.listen: \"127.0.0.1:9642\" is there twice\n    remove one of them",
        ),
        (
            "[api]\nlisten = [\"127.0.0.1:9642\"]\nclient_authorities = \"ca.pem\"",
            "turnpike.toml:3: api.client_authorities: no listener of api.listen speaks TLS, so that no client could present \
             a certificate\n    \
             add an address that is not loopback to api.listen, or remove the key",
        ),
    ]);
}

#[test]
fn a_choice_of_ciphers_leaves_something_for_each_version() {
    let help = "add one of 1.2, or set tls.minimum_version = \"1.3\" and dtls.enabled = false";
    let none =
        |key: &str| format!("turnpike.toml:1: {key}: it has none of TLS and DTLS 1.2\n    {help}");
    let only_13 = "tls.minimum_version = '1.3'\ndtls.enabled = false";
    for (text, expected) in [
        ("tls.cipher_suites = ['TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384']".to_owned(), String::new()),
        ("tls.cipher_suites = ['TLS_AES_256_GCM_SHA384']".to_owned(), none("tls.cipher_suites")),
        (format!("tls.cipher_suites = ['TLS_AES_256_GCM_SHA384']\n{only_13}"), String::new()),
        ("tls.key_exchange = ['X25519MLKEM768']".to_owned(), none("tls.key_exchange")),
        (format!("tls.key_exchange = ['X25519MLKEM768']\n{only_13}"), String::new()),
        (
            format!("tls.cipher_suites = ['TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384']\n{only_13}"),
            "turnpike.toml:1: tls.cipher_suites: it has none of TLS 1.3, which tls.minimum_version requires\n    \
             add one, such as \"TLS_AES_128_GCM_SHA256\""
                .to_owned(),
        ),
    ] {
        assert_eq!(errors(&text), expected, "of this file:\n{text}");
    }
}

#[test]
fn a_total_of_rates_needs_a_rate() {
    let help = "set bytes_per_second as well: an allocation takes that much of the total";
    for (text, expected) in [
        (
            "quotas = { bytes_per_second = '1 MiB', bytes_per_second_total = '9 MiB' }",
            String::new(),
        ),
        (
            "quotas.bytes_per_second_total = '9 MiB'",
            format!(
                "turnpike.toml:1: quotas.bytes_per_second_total: allocations have no bytes_per_second\n    {help}"
            ),
        ),
        (
            "realms = [{ name = 'b', quotas = { bytes_per_second_total = '9 MiB' } }]",
            format!(
                "turnpike.toml:1: realms: entry 1: allocations have no bytes_per_second\n    {help}"
            ),
        ),
    ] {
        assert_eq!(errors(text), expected, "of this file:\n{text}");
    }
}

#[test]
fn something_is_served_and_nothing_that_is_switched_off() {
    let relaying = "udp.relaying: nothing would be relayed: tcp.relaying is off as well";
    assert!(errors("udp.relaying = false").contains(relaying));
    assert_eq!(errors("udp.relaying = false\ntcp.relaying = true"), "");
    assert_eq!(errors("udp.relaying = false\nrelay.enabled = false"), "");
    assert_eq!(errors("binding = false"), "");
    for (more, what) in [
        ("relay.enabled = false", "no request would be answered: relay.enabled is off as well"),
        ("auth.binding = true", "it is off, and auth.binding is about Binding requests"),
        ("compatibility.rfc3489_clients = true", "it is off, and compatibility.rfc3489_clients is"),
    ] {
        let told = errors(&format!("binding = false\n{more}"));
        assert!(told.contains(&format!("binding: {what}")), "{told}");
    }
    let discovery = errors(&format!("binding = false\n{TWO}"));
    assert!(discovery.contains("discovery.addresses is about Binding"), "{discovery}");
}

#[test]
fn metrics_over_tls_need_a_certificate_and_a_path_of_their_own() {
    let told = errors("http.tls = true");
    assert!(told.contains("http.tls: there is no certificate for TLS"), "{told}");
    assert_eq!(
        errors("http.tls = true\nacme.names = ['turn.example.org']\ntls.listen = ['0.0.0.0:443']"),
        ""
    );
    let told = errors("http.metrics_path = '/readyz'");
    assert!(told.contains("http.metrics_path: \"/readyz\" answers whether"), "{told}");
}

#[test]
fn binding_with_a_login_excludes_clients_that_have_none() {
    let told =
        errors(&format!("{TWO}[auth]\nbinding = true\n[compatibility]\nrfc3489_clients = true"));
    for key in ["discovery.addresses", "compatibility.rfc3489_clients"] {
        let what = format!("auth.binding: it asks for a login, and the clients of {key} have none");
        assert!(told.contains(&what), "{told}");
    }
    assert_eq!(errors("auth.binding = true"), "");
}
