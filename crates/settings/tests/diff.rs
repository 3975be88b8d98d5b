//! Differences between two configurations, and the values that a reload puts in force.

use std::path::Path;

use serde_json::{Value, json};
use settings::{Change, Diff, Environment, HostAddresses, Settings, diff, json_schema, parse};

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

/// Two configurations, and the difference that is reported.
const CHANGES: [(&str, &str, &str); 39] = [
    ("", "realm = 'example.org'", "live realm: \"turnpike\" -> \"example.org\""),
    (
        "",
        "listen = ['203.0.113.7:3478']",
        "restart listen: [\"0.0.0.0:3478\", \"[::]:3478\"] -> [\"203.0.113.7:3478\"]",
    ),
    ("", "log.addresses = 'truncated'", "restart log.addresses: \"whole\" -> \"truncated\""),
    ("", "mobility = true", "live mobility: false -> true"),
    ("", "software = 'Turnpike'", "live software: none -> \"Turnpike\""),
    (
        "",
        "relay.addresses = ['auto', { local = '10.0.0.5', public = '203.0.113.7' }]",
        "live relay.addresses: [\"auto\"] -> [\"auto\", { local = \"10.0.0.5\", public = \"203.0.113.7\" }]",
    ),
    ("", "relay.external = '203.0.113.7'", "live relay.external: none -> [\"203.0.113.7\"]"),
    ("", "relay.ports = '50000-59999'", "live relay.ports: \"49152-65535\" -> \"50000-59999\""),
    ("", "auth.expiry_at_refresh = false", "live auth.expiry_at_refresh: true -> false"),
    ("", "auth.userhash = false", "live auth.userhash: true -> false"),
    (
        "",
        "auth.open_relay = 'yes, relay for anyone'",
        "live auth.open_relay: \"no\" -> \"yes, relay for anyone\"",
    ),
    ("", "peers.allow = ['10.0.0.5']", "live peers.allow: [] -> [\"10.0.0.5/32\"]"),
    ("", "peers.deny = ['192.0.2.0/24']", "live peers.deny: [] -> [\"192.0.2.0/24\"]"),
    ("", "quotas.bytes_per_second = '2 MiB'", "live quotas.bytes_per_second: \"0 B\" -> \"2 MiB\""),
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
    ("", "realms = [{ name = 'b' }]", "live realms: [] -> [\"b\"]"),
    (
        "realms = [{ name = 'b' }]",
        "realms = [{ name = 'b', quotas.channels = 5 }]",
        "live realms: [\"b\"] -> [\"b\"] with other rules",
    ),
    (
        "realms = [{ name = 'b', secrets = [{ name = 'n', secret = '0123456789abcdef' }] }]",
        "realms = [{ name = 'b', secrets = [{ name = 'n', secret = 'fedcba9876543210' }] }]",
        "live realms: [\"b\"] -> [\"b\"] with other rules",
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
        "live tls.certificates: [{ chain = \"/a.pem\", key = \"/a.key\" }] -> [{ chain = \"/b.pem\", key = \"/a.key\" }]",
    ),
    ("", "dtls.enabled = false", "restart dtls.enabled: true -> false"),
    ("", "dtls.sessions = 5", "restart dtls.sessions: 10000 -> 5"),
    ("", "sockets.gso = false", "restart sockets.gso: true -> false"),
    ("", "offload.mode = 'xdp-generic'", "restart offload.mode: \"auto\" -> \"xdp-generic\""),
    ("", "offload.interfaces = ['eth0']", "restart offload.interfaces: [] -> [\"eth0\"]"),
    ("", "offload.flows = 1024", "restart offload.flows: 16384 -> 1024"),
    ("", "log.level = 'debug'", "live log.level: \"info\" -> \"debug\""),
    ("", "log.format = 'json'", "restart log.format: \"text\" -> \"json\""),
    ("", "control.group = 'turn'", "restart control.group: none -> \"turn\""),
    ("", "control.socket = '/run/t.sock'", "restart control.socket: none -> \"/run/t.sock\""),
    ("", "data.directory = '/srv'", "restart data.directory: \"/var/lib/turnpike\" -> \"/srv\""),
    ("", "shutdown.drain = '1 h'", "live shutdown.drain: \"0 s\" -> \"1 h\""),
    ("", "signals.usr1 = 'ignore'", "live signals.usr1: \"drain\" -> \"ignore\""),
];

#[test]
fn each_key_is_reported_once_with_both_values() {
    for (old, new, expected) in CHANGES {
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
        ["restart discovery.addresses: [] -> [\"203.0.113.7\", \"203.0.113.8\"]"]
    );
    assert_eq!(
        changes(on, &format!("{on}\ndiscovery.ports = [1, 2]")),
        ["restart discovery.ports: [3478, 3479] -> [1, 2]"]
    );
}

/// So do TLS listeners, so that the first certificate needs a restart, which stays needed at the
/// next reload.
#[test]
fn listeners_for_tls_need_a_restart() {
    let plain = good("");
    let tls = good("tls.certificates = [{ chain = '/a.pem', key = '/a.key' }]");
    let in_force = plain.reloaded(&tls).unwrap();
    for old in [&plain, &in_force] {
        let waiting = diff(old, &tls).needs_restart;
        assert_eq!(waiting.iter().map(|change| change.key).collect::<Vec<_>>(), ["tls.listen"]);
        assert_eq!(waiting[0].old, "[]");
    }
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

const TOKEN_KEYS: &str =
    "auth.token_keys = [{ kid = 'k', key = 'MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE' }]";

/// Keys whose value cannot be made up from their schema, each with one that is not its default, and
/// other keys that it needs.
const VALUES: &[(&str, &str, &str)] = &[
    ("realms", "[{ name = 'b.example.org' }]", ""),
    ("listen", "['0.0.0.0:1']", ""),
    ("relay.addresses", "['10.0.0.6']", ""),
    ("relay.external", "'203.0.113.7'", ""),
    ("relay.external_stun", "['stun.example.org']", ""),
    ("relay.ports", "'50000-50001'", ""),
    ("relay.prefixes", "['2001:db8:1::/64']", ""),
    ("auth.secrets", "[{ name = 'n', secret = '0123456789abcdef' }]", ""),
    ("auth.separator", "'-'", "auth.secret = '0123456789abcdef'"),
    ("auth.users", "false", "auth.secret = '0123456789abcdef'"),
    ("auth.token_keys", "[{ kid = 'k', key = 'MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE' }]", ""),
    ("auth.server_name", "'s'", TOKEN_KEYS),
    ("peers.allow", "['10.0.0.0/8']", ""),
    ("peers.deny", "['192.0.2.0/24']", ""),
    ("compatibility.coturn_tokens", "true", TOKEN_KEYS),
    ("discovery.addresses", "['10.0.0.5', '10.0.0.6']", ""),
    ("discovery.ports", "[3, 4]", ""),
    (
        "discovery.external",
        "[{ local = '10.0.0.5:3478', public = '192.0.2.1:3' }, { local = '10.0.0.5:3479', public = '192.0.2.1:4' },
          { local = '10.0.0.6:3478', public = '192.0.2.2:3' }, { local = '10.0.0.6:3479', public = '192.0.2.2:4' }]",
        "discovery.addresses = ['10.0.0.5', '10.0.0.6']",
    ),
    ("redirect.ipv4", "'198.51.100.7:3478'", ""),
    ("redirect.ipv6", "'[2001:db8::7]:3478'", ""),
    ("redirect.servers", "['198.51.100.7:3478']", ""),
    ("redirect.udp", "['198.51.100.7:3478']", ""),
    ("redirect.tcp", "['198.51.100.7:3478']", ""),
    ("redirect.tls", "['198.51.100.7:5349']", ""),
    ("redirect.domain", "'a.example'", "redirect.ipv4 = '198.51.100.7:3478'"),
    ("tcp.proxy_protocol", "['10.0.0.0/24']", ""),
    ("udp.relaying", "false", "tcp.relaying = true"),
    ("tcp.acme_redirect", "'http://acme.example.org/'", ""),
    ("tls.listen", "['0.0.0.0:443']", "tls.certificates = [{ chain = '/a.pem', key = '/a.key' }]"),
    ("tls.certificates", "[{ chain = 'a.pem', key = 'a.key' }]", ""),
    ("sockets.listen_device", "'lo'", ""),
    ("sockets.relay_device", "'lo'", ""),
    ("accounting.file", "'s.jsonl'", ""),
    ("accounting.redis", "'redis://127.0.0.1/1'", ""),
    ("accounting.webhook", "'https://billing.example.org/records'", ""),
    ("accounting.webhook_authorization_file", "'/etc/turnpike/authorization'", ""),
    ("accounting.webhook_authorities", "'/etc/turnpike/ca.pem'", ""),
    ("auth.nonce_key_file", "'/proc/version'", ""),
    ("authorizer.url", "'https://app.example.org/ask'", ""),
    ("authorizer.authorization_file", "'/proc/version'", "authorizer.url = 'https://app.example.org/ask'"),
    ("authorizer.authorities", "'/ca.pem'", ""),
    ("signed_tokens.issuer", "'https://login.example.org/'", "signed_tokens.audience = 'a'\nsigned_tokens.keys_file = '/keys.json'"),
    ("signed_tokens.audience", "'turn'", ""),
    ("signed_tokens.keys_file", "'/keys.json'", ""),
    ("signed_tokens.keys_url", "'https://login.example.org/keys'", ""),
    ("signed_tokens.authorities", "'/ca.pem'", ""),
    ("signed_tokens.secret_file", "'/proc/version'", ""),
    ("authorizer.when_silent", "'serve'", "authorizer.url = 'https://app.example.org/ask'"),
    ("shutdown.drain_allocations_left", "3", ""),
    ("relay.default_family", "'client'", ""),
    ("quotas.bytes_per_second_total", "'120 MiB'", "quotas.bytes_per_second = '1 MiB'"),
    ("tls.cipher_suites", "['TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384']", ""),
    ("tls.key_exchange", "['secp384r1']", ""),
    ("acme.names", "['turn.example.org']", "tls.listen = ['0.0.0.0:443']"),
    ("acme.directory", "'https://ca.example/dir'", ""),
    ("offload.interfaces", "['eth0']", ""),
    ("confinement.readable", "['/srv']", ""),
    ("users.database", "'/srv/users.sqlite'", ""),
    ("users.database_tables", "['secrets']", ""),
    ("http.listen", "['127.0.0.1:9641']", ""),
    ("http.tls", "true", "tls.certificates = [{ chain = '/a.pem', key = '/a.key' }]"),
    ("http.metrics_path", "'/turn/metrics'", ""),
    ("api.credential_lifetime", "'1 h'", ""),
    ("api.credential_origins", "['https://app.example.org']", ""),
    ("api.credential_uris", "['turn:turn.example.org']", ""),
    ("api.listen", "['127.0.0.1:9642']", ""),
    // A file of one line on every host.
    ("log.address_key_file", "'/proc/version'", "log.addresses = 'pseudonym'"),
    (
        "api.client_authorities",
        "'/ca.pem'",
        "api.listen = ['192.0.2.1:9642']\ntls.certificates = [{ chain = '/a.pem', key = '/a.key' }]",
    ),
];

/// They become an entry of `auth.secrets`, or are read from a file that has to be there.
const PARTS: [&str; 4] =
    ["auth.secret", "auth.secret_file", "users.database_file", "accounting.redis_file"];

/// Each key but [`PARTS`], with its schema.
fn keys() -> Vec<(String, Value)> {
    let mut keys = keys_with_parts();
    keys.retain(|(key, _)| !PARTS.contains(&key.as_str()));
    keys
}

fn keys_with_parts() -> Vec<(String, Value)> {
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    let mut keys = Vec::new();
    for (name, schema) in schema["properties"].as_object().unwrap() {
        match schema["properties"].as_object() {
            Some(table) => {
                keys.extend(
                    table.iter().map(|(key, schema)| (format!("{name}.{key}"), schema.clone())),
                );
            }
            None => keys.push((name.clone(), schema.clone())),
        }
    }
    keys
}

/// A value that is not the default.
fn another(schema: &Value) -> Option<String> {
    let default = &schema["default"];
    let candidates: Vec<Value> = if let Some(words) = schema["enum"].as_array() {
        words.clone()
    } else if let Some(words) = schema["oneOf"].as_array() {
        words.iter().map(|word| word["const"].clone()).collect()
    } else if schema["type"] == "boolean" {
        vec![json!(true), json!(false)]
    } else if schema["x-kind"] == "text" || schema["type"] == "string" && schema["x-kind"].is_null()
    {
        vec![json!("other")]
    } else if let (Some(bounds), "duration" | "size" | "number" | "\"auto\" or number") =
        (schema["x-bounds"].as_str(), schema["x-kind"].as_str()?)
    {
        // The larger one first: no count is bounded from below by another.
        let value = |bound: &str| {
            bound.parse::<u32>().map_or_else(|_| json!(bound), |number| json!(number))
        };
        let (low, high) = bounds.split_once(" to ").unwrap();
        vec![value(high), value(low)]
    } else {
        return None;
    };
    candidates.iter().find(|value| *value != default).map(Value::to_string)
}

/// A configuration without the key, and one that differs by it.
fn pair(key: &str, schema: &Value) -> (Settings, Settings) {
    let special = VALUES.iter().find(|(special, ..)| *special == key);
    let (value, needed) = special.map_or_else(
        || (another(schema).unwrap_or_else(|| panic!("{key}: give it a value above")), ""),
        |(_, value, needed)| ((*value).to_owned(), *needed),
    );
    (good(needed), good(&format!("{needed}\n{key} = {value}")))
}

/// A key that is not compared would change without a word.
#[test]
fn each_key_is_compared_and_a_reload_puts_in_force_those_that_it_reports() {
    for (key, schema) in keys() {
        let (old, new) = pair(&key, &schema);
        let changes = diff(&old, &new);
        let live = schema["x-applied"] == "live";
        let list = if live { &changes.live } else { &changes.needs_restart };
        assert!(list.iter().any(|change| change.key == key), "{key}: {changes:?}");
        let merged = old.reloaded(&new).unwrap();
        assert_eq!(diff(&old, &merged), Diff { live: changes.live, ..Diff::default() }, "{key}");
        let waiting = Diff { needs_restart: changes.needs_restart, ..Diff::default() };
        assert_eq!(diff(&merged, &new), waiting, "{key}");
    }
}

/// Returns true if a value of this schema, or a part of it, is a secret.
fn holds_secret(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            map.get("x-secret") == Some(&json!(true)) || map.values().any(holds_secret)
        }
        Value::Array(list) => list.iter().any(holds_secret),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Secrets are compared in the clear and shown by their names: `settings/src/diff.rs` has an arm
/// for each such key.
#[test]
fn the_keys_with_secrets_are_those_that_a_difference_hides() {
    let mut secret = keys_with_parts();
    secret.retain(|(_, schema)| holds_secret(schema));
    let secret: Vec<_> = secret.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(secret, ["realms", "auth.secret", "auth.secrets", "auth.token_keys"]);
}

/// Live keys that are no rules of the server: log, monitoring, certificates, shutdown, signals.
const NO_RULES: [&str; 15] = [
    "redirect.health_checks",
    "api.credential_lifetime",
    "api.credential_uris",
    "relay.external_stun",
    "relay.external_metadata",
    "log.level",
    "log.address_key_file",
    // It is one of the rules, and is not shown.
    "auth.nonce_key_file",
    "http.coturn_metrics",
    "http.ready_while_draining",
    "tls.certificates",
    "shutdown.drain",
    "shutdown.drain_allocations_left",
    "signals.usr1",
    "signals.usr2",
];

/// The rules of the server on a host with two addresses.
fn rules(settings: &Settings) -> String {
    let hosts = ["10.0.0.5", "10.0.0.6"].map(|ip| ip.parse().unwrap());
    let hosts = HostAddresses::new(hosts.to_vec());
    let key = turn_types::Secret::new([0; 32]);
    format!("{:?}", settings.policy(&hosts, &[], key, None))
}

#[test]
fn every_live_key_reaches_the_rules_of_the_server_both_ways() {
    for (key, schema) in keys() {
        if schema["x-applied"] != "live" || NO_RULES.contains(&key.as_str()) {
            continue;
        }
        let (plain, set) = pair(&key, &schema);
        for (old, new) in [(&plain, &set), (&set, &plain)] {
            let (before, after) = (rules(old), rules(&old.reloaded(new).unwrap()));
            assert_ne!(before, after, "{key}: the rules are the same");
            assert_eq!(after, rules(new), "{key}: the rules are not those of the file");
        }
    }
}

#[test]
fn directories_of_the_command_line_need_not_be_utf_8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let mut settings = good("");
    settings.set_data_directory(OsStr::from_bytes(b"/srv/\xff").into());
    assert!(diff(&settings, &settings.clone()).is_empty());
    assert_eq!(diff(&good(""), &settings).needs_restart.len(), 1);
}
