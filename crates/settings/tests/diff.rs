//! What a reload says: each key that changed, by when it takes effect.
#![expect(clippy::unwrap_used, reason = "in a test, what cannot go on shall stop it")]

use std::path::Path;

use settings::{Change, Environment, Settings, diff, json_schema, parse};

fn good(text: &str) -> Settings {
    parse(Path::new("turnpike.toml"), text, &Environment::empty())
        .unwrap_or_else(|errors| panic!("{errors}"))
}

/// `key: old -> new`, behind `live` or `restart`.
fn changes(old: &str, new: &str) -> Vec<String> {
    let diff = diff(&good(old), &good(new));
    let show = |when: &str, change: &Change| {
        format!("{when} {}: {} -> {}", change.key, change.old, change.new)
    };
    let live = diff.live.iter().map(|change| show("live", change));
    live.chain(diff.needs_restart.iter().map(|change| show("restart", change))).collect()
}

#[test]
fn nothing_changed() {
    assert!(diff(&good(""), &good("realm = 'turnpike'")).is_empty());
}

#[test]
fn each_key_is_reported_once_with_both_values() {
    for (old, new, expected) in [
        ("", "realm = 'example.org'", "live realm: \"turnpike\" -> \"example.org\""),
        (
            "",
            "listen = ['203.0.113.7:3478']",
            "restart listen: [\"0.0.0.0:3478\", \"[::]:3478\"] -> [\"203.0.113.7:3478\"]",
        ),
        ("", "mobility = true", "live mobility: false -> true"),
        ("", "software = 'Turnpike'", "live software: none -> \"Turnpike\""),
        (
            "",
            "relay.addresses = ['auto', { local = '10.0.0.5', public = '203.0.113.7' }]",
            "live relay.addresses: [\"auto\"] -> [\"auto\", \"10.0.0.5 as 203.0.113.7\"]",
        ),
        ("", "relay.external = '203.0.113.7'", "live relay.external: [] -> [\"203.0.113.7\"]"),
        ("", "relay.ports = '50000-59999'", "live relay.ports: \"49152-65535\" -> \"50000-59999\""),
        ("", "auth.expiry_at_refresh = false", "live auth.expiry_at_refresh: true -> false"),
        ("", "auth.userhash = false", "live auth.userhash: true -> false"),
        ("", "auth.open_relay = 'yes, relay for anyone'", "live auth.open_relay: false -> true"),
        ("", "peers.allow = ['10.0.0.5']", "live peers.allow: [] -> [\"10.0.0.5/32\"]"),
        ("", "peers.deny = ['192.0.2.0/24']", "live peers.deny: [] -> [\"192.0.2.0/24\"]"),
        (
            "",
            "quotas.bytes_per_second = '2 MiB'",
            "live quotas.bytes_per_second: \"0 B\" -> \"2 MiB\"",
        ),
        (
            "",
            "quotas.unauthenticated_responses_per_second = 5",
            "live quotas.unauthenticated_responses_per_second: 2000 -> 5",
        ),
        ("", "lifetimes.nonce = '90 s'", "live lifetimes.nonce: \"10 min\" -> \"90 s\""),
        (
            "",
            "compatibility.rfc3489_clients = true",
            "live compatibility.rfc3489_clients: false -> true",
        ),
        ("", "workers.count = 2", "restart workers.count: \"auto\" -> 2"),
        ("", "tcp.enabled = false", "restart tcp.enabled: true -> false"),
        ("", "tcp.connections = 5", "restart tcp.connections: 20000 -> 5"),
        ("", "tcp.relaying = true", "live tcp.relaying: false -> true"),
        (
            "",
            "tcp.proxy_protocol = ['10.0.0.0/24']",
            "restart tcp.proxy_protocol: [] -> [\"10.0.0.0/24\"]",
        ),
        (
            "tls.certificates = [{ chain = '/a.pem', key = '/a.key' }]",
            "tls.certificates = [{ chain = '/b.pem', key = '/a.key' }]",
            "live tls.certificates: [\"/a.pem\"] -> [\"/b.pem\"]",
        ),
        ("", "dtls.enabled = false", "restart dtls.enabled: true -> false"),
        ("", "dtls.associations = 5", "restart dtls.associations: 10000 -> 5"),
        ("", "sockets.gso = false", "restart sockets.gso: true -> false"),
        ("", "offload.mode = 'xdp-generic'", "restart offload.mode: \"auto\" -> \"xdp-generic\""),
        ("", "offload.interfaces = ['eth0']", "restart offload.interfaces: [] -> [\"eth0\"]"),
        ("", "offload.flows = 1024", "restart offload.flows: 16384 -> 1024"),
        ("", "log.level = 'debug'", "live log.level: \"info\" -> \"debug\""),
        ("", "log.format = 'json'", "restart log.format: \"text\" -> \"json\""),
        ("", "control.socket = '/run/t.sock'", "restart control.socket: none -> \"/run/t.sock\""),
        (
            "",
            "data.directory = '/srv'",
            "restart data.directory: \"/var/lib/turnpike\" -> \"/srv\"",
        ),
        ("", "shutdown.drain = '1 h'", "live shutdown.drain: \"0 s\" -> \"1 h\""),
    ] {
        assert_eq!(changes(old, new), [expected]);
    }
}

#[test]
fn a_part_of_the_redirect_is_reported_alone() {
    let old = "redirect = { ipv4 = '198.51.100.7:3478', ipv6 = '[2001:db8::7]:3478' }";
    let new = "redirect = { ipv4 = '198.51.100.8:3478', ipv6 = '[2001:db8::7]:3478' }";
    assert_eq!(
        changes(old, new),
        ["live redirect.ipv4: \"198.51.100.7:3478\" -> \"198.51.100.8:3478\""]
    );
}

/// Its sockets are bound when the server starts.
#[test]
fn discovery_needs_a_restart() {
    let on = "discovery.addresses = ['203.0.113.7', '203.0.113.8']";
    assert_eq!(
        changes("", on),
        [
            "restart discovery.addresses: [] -> [\"203.0.113.7\", \"203.0.113.8\"]",
            "restart discovery.ports: [] -> [3478, 3479]",
        ]
    );
    assert_eq!(
        changes(on, &format!("{on}\ndiscovery.ports = [1, 2]")),
        ["restart discovery.ports: [3478, 3479] -> [1, 2]"]
    );
}

#[test]
fn a_changed_secret_is_reported_and_not_shown() {
    let (old, new) = ("auth.secret = '0123456789abcdef'", "auth.secret = 'fedcba9876543210'");
    assert_eq!(
        changes(old, new),
        ["live auth.secrets: [default: <secret>] -> [default: <secret>]"]
    );
    assert_eq!(changes(old, old), [""; 0]);
    let both = format!("{old}\nauth.secrets = [{{ name = '2027', secret = 'fedcba9876543210' }}]");
    assert_eq!(
        changes(old, &both),
        ["live auth.secrets: [default: <secret>] -> [default: <secret>, 2027: <secret>]"]
    );
}

/// A key that nobody compares would change without a word.
#[test]
fn every_key_of_the_file_is_compared() {
    let schema: serde_json::Value = serde_json::from_str(&json_schema()).unwrap();
    let mut keys = Vec::new();
    for (name, schema) in schema["properties"].as_object().unwrap() {
        match schema["properties"].as_object() {
            Some(table) => keys.extend(table.keys().map(|key| format!("{name}.{key}"))),
            None => keys.push(name.clone()),
        }
    }
    // These two come to be an entry of auth.secrets.
    keys.retain(|key| key != "auth.secret" && key != "auth.secret_file");

    let (one, other) = pair();
    // An open relay has no secrets, so this key needs a pair of its own.
    let open = good("auth.open_relay = 'yes, relay for anyone'");
    let mut compared: Vec<String> = Vec::new();
    for diff in [diff(&one, &other), diff(&good(""), &open)] {
        compared.extend(
            diff.live.iter().chain(&diff.needs_restart).map(|change| change.key.to_owned()),
        );
    }
    keys.sort();
    compared.sort();
    assert_eq!(compared, keys);
}

/// Two configurations that differ in every key but `auth.open_relay`.
fn pair() -> (Settings, Settings) {
    let one = good(
        "redirect = { ipv4 = '198.51.100.7:3478', ipv6 = '[2001:db8::7]:3478', domain = 'a.example' }",
    );
    let other = good(
        r#"
        realm = "other"
        listen = ["0.0.0.0:1"]
        software = "other"
        mobility = true
        relay = { addresses = ["10.0.0.5"], external = "203.0.113.7", ports = "1024-1025" }
        auth = { secret = "0123456789abcdef", users = false, expiry_at_refresh = false, userhash = false, token_keys = [{ kid = "k", key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE" }], server_name = "other" }
        peers = { allow = ["10.0.0.0/8"], deny = ["192.0.2.0/24"] }
        compatibility = { rfc5766_clients = true, coturn_tokens = true, rfc3489_clients = true }
        discovery.addresses = ["10.0.0.5", "10.0.0.6"]
        discovery.ports = [3, 4]
        discovery.external = [
            { local = "10.0.0.5:3", public = "203.0.113.7:3" },
            { local = "10.0.0.5:4", public = "203.0.113.7:4" },
            { local = "10.0.0.6:3", public = "203.0.113.8:3" },
            { local = "10.0.0.6:4", public = "203.0.113.8:4" },
        ]
        workers = { count = 1, pin = false }
        tls = { listen = ["0.0.0.0:443"], certificates = [{ chain = "a.pem", key = "a.key" }], client_authorities = "ca.pem" }
        dtls = { enabled = false, associations = 1, associations_per_address = 1 }
        sockets = { receive_buffer = "64 KiB", send_buffer = "64 KiB", gro = false, gso = false }
        offload = { mode = "off", interfaces = ["eth0"], flows = 1024 }
        confinement = { landlock = false, seccomp = false, readable = ["/srv"] }
        log = { format = "json", level = "error" }
        control.socket = "/run/other.sock"
        data.directory = "/srv/other"
        shutdown.drain = "1 s"
        [tcp]
        enabled = false
        connections = 1
        connections_per_address = 1
        relaying = true
        proxy_protocol = ["10.0.0.0/24"]
        acme_redirect = "http://acme.example.org/"
        [quotas]
        allocations_per_user = 1
        allocations_per_address = 1
        new_peers_per_second = 1
        allocations_total = 1
        permissions = 1
        channels = 1
        bytes_per_second = "1 B"
        unauthenticated_responses_per_second = 1
        [lifetimes]
        allocation_default = "1 min"
        allocation_max = "2 min"
        permission = "6 min"
        channel = "11 min"
        nonce = "1 min"
        reservation = "31 s"
        "#,
    );
    (one, other)
}

/// What a reload reports as live is what it puts in force, and nothing else.
#[test]
fn a_reload_puts_in_force_what_it_reports() {
    let (one, other) = pair();
    let reported = diff(&one, &other);
    let merged = one.reloaded(&other).unwrap();
    assert_eq!(diff(&one, &merged).live, reported.live);
    assert_eq!(diff(&one, &merged).needs_restart, []);
    assert_eq!(diff(&merged, &other).live, []);
    assert_eq!(diff(&merged, &other).needs_restart, reported.needs_restart);
}

/// A value for each live key that is not its default, and other keys that it takes to be allowed.
const LIVE: &[(&str, &str)] = &[
    ("realm", "realm = 'other'"),
    ("software", "software = 'other'"),
    ("mobility", "mobility = true"),
    ("relay.addresses", "relay.addresses = ['10.0.0.6']"),
    ("relay.external", "relay.external = '203.0.113.7'"),
    ("relay.ports", "relay.ports = '50000-50001'"),
    ("auth.secret", "auth.secret = '0123456789abcdef'"),
    ("auth.secrets", "auth.secrets = [{ name = 'n', secret = '0123456789abcdef' }]"),
    ("auth.users", "auth = { users = false, secret = '0123456789abcdef' }"),
    ("auth.open_relay", "auth.open_relay = 'yes, relay for anyone'"),
    ("auth.expiry_at_refresh", "auth.expiry_at_refresh = false"),
    ("auth.userhash", "auth.userhash = false"),
    (
        "auth.token_keys",
        "auth.token_keys = [{ kid = 'k', key = 'MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE' }]",
    ),
    (
        "auth.server_name",
        "auth = { server_name = 's', token_keys = [{ kid = 'k', key = 'MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE' }] }",
    ),
    ("peers.allow", "peers.allow = ['10.0.0.0/8']"),
    ("peers.deny", "peers.deny = ['192.0.2.0/24']"),
    ("quotas.allocations_per_user", "quotas.allocations_per_user = 1"),
    ("quotas.allocations_per_address", "quotas.allocations_per_address = 1"),
    ("quotas.allocations_total", "quotas.allocations_total = 1"),
    ("quotas.permissions", "quotas.permissions = 1"),
    ("quotas.channels", "quotas.channels = 1"),
    ("quotas.new_peers_per_second", "quotas.new_peers_per_second = 1"),
    ("quotas.bytes_per_second", "quotas.bytes_per_second = '1 B'"),
    (
        "quotas.unauthenticated_responses_per_second",
        "quotas.unauthenticated_responses_per_second = 1",
    ),
    ("lifetimes.allocation_default", "lifetimes.allocation_default = '11 min'"),
    ("lifetimes.allocation_max", "lifetimes.allocation_max = '61 min'"),
    ("lifetimes.permission", "lifetimes.permission = '6 min'"),
    ("lifetimes.channel", "lifetimes.channel = '11 min'"),
    ("lifetimes.nonce", "lifetimes.nonce = '1 min'"),
    ("lifetimes.reservation", "lifetimes.reservation = '31 s'"),
    ("compatibility.rfc5766_clients", "compatibility.rfc5766_clients = true"),
    (
        "compatibility.coturn_tokens",
        "auth.token_keys = [{ kid = 'k', key = 'MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE' }]\ncompatibility.coturn_tokens = true",
    ),
    ("compatibility.rfc3489_clients", "compatibility.rfc3489_clients = true"),
    ("redirect.ipv4", "redirect.ipv4 = '198.51.100.7:3478'"),
    ("redirect.ipv6", "redirect.ipv6 = '[2001:db8::7]:3478'"),
    ("redirect.domain", "redirect = { domain = 'a.example', ipv4 = '198.51.100.7:3478' }"),
    ("tcp.relaying", "tcp.relaying = true"),
];

/// Live keys that are no rules of the server: the file of a secret, the log, the certificates, the end.
const NO_RULES: [&str; 4] = ["auth.secret_file", "log.level", "tls.certificates", "shutdown.drain"];

/// The rules of the server after a reload: `relay.addresses` are of the hosts that are given.
fn rules(settings: &Settings) -> String {
    let hosts = ["10.0.0.5", "10.0.0.6"].map(|ip| ip.parse().unwrap());
    let key = turn_types::Secret::new([0; 32]);
    format!("{:?}", settings.policy(&hosts, &[], key, None).unwrap())
}

#[test]
fn every_live_key_reaches_the_rules_of_the_server_both_ways() {
    let schema: serde_json::Value = serde_json::from_str(&json_schema()).unwrap();
    for (name, schema) in schema["properties"].as_object().unwrap() {
        let one = |path: String, schema: &serde_json::Value| {
            let live = schema["x-applied"] == "live";
            let known = LIVE.iter().any(|(key, _)| *key == path) || NO_RULES.contains(&&*path);
            assert!(!live || known, "{path}: give it a value above");
        };
        match schema["properties"].as_object() {
            Some(table) => {
                table.iter().for_each(|(key, schema)| one(format!("{name}.{key}"), schema))
            }
            None => one(name.clone(), schema),
        }
    }
    let plain = good("");
    for (key, text) in LIVE {
        let set = good(text);
        for (old, new) in [(&plain, &set), (&set, &plain)] {
            let (before, after) = (rules(old), rules(&old.reloaded(new).unwrap()));
            assert_ne!(before, after, "{key}: the rules are the same");
            assert_eq!(after, rules(new), "{key}: the rules are not those of the file");
        }
    }
}
