//! Valid configurations, from files and from the environment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use settings::{
    Database, Environment, LogFormat, LogLevel, OffloadMode, RelayEntry, Settings, WorkerCount,
    load, parse,
};

use crate::support::TempDir;

const SECRET: &str = "KpXh0vJ1mUe8Zq7T5wYbRg==";

fn good(text: &str) -> Settings {
    parse(Path::new("turnpike.toml"), text, &Environment::empty())
        .unwrap_or_else(|errors| panic!("{errors}"))
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn with(variables: &[(&str, &str)]) -> Result<Settings, String> {
    load(None, &environment(variables)).map_err(|errors| errors.to_string())
}

fn listen(settings: &Settings) -> Vec<String> {
    settings.listen().map(|listener| listener.to_string()).collect()
}

fn interfaces(settings: &Settings) -> Vec<&str> {
    settings.offload.interfaces.iter().map(|name| name.as_str()).collect()
}

#[test]
fn the_example_of_the_documentation_is_good() {
    let dir = TempDir::new();
    let secret = dir.write("secret", SECRET);
    assert_eq!(settings::EXAMPLE.lines().count(), 5);
    assert!(include_str!("../../../README.md").contains(settings::EXAMPLE), "the README shows it");
    let text = settings::EXAMPLE.replace("/etc/turnpike/secret", secret.to_str().unwrap());
    let settings = good(&text);
    assert_eq!(&*settings.realm, "example.org");
    let external = &settings.relay.external.as_ref().unwrap().0;
    assert_eq!(*external, ["203.0.113.7".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(settings.secrets.len(), 1);
    assert!(!settings.auth.open_relay.is_open());
}

#[test]
fn nothing_at_all_is_a_safe_server() {
    let settings = with(&[]).unwrap();
    assert_eq!(settings, good(""), "no file is an empty file");
    assert!(!settings.auth.open_relay.is_open());
    assert!(settings.auth.users && settings.secrets.is_empty());
    assert!(settings.peers.allow.is_empty());
    assert_eq!(settings.software, None);
    assert_eq!(listen(&settings), ["0.0.0.0:3478", "[::]:3478"]);
    assert_eq!(settings.relay.addresses, [RelayEntry::Auto]);
    assert_eq!(settings.lifetimes.allocation_default.get(), Duration::from_secs(600));
    assert_eq!(settings.lifetimes.permission.get(), Duration::from_secs(300));
    assert_eq!(settings.lifetimes.channel.get(), Duration::from_secs(600));
    assert_eq!(settings.workers.count, WorkerCount::Auto);
    assert_eq!((settings.offload.mode, settings.offload.flows.get()), (OffloadMode::Auto, 16_384));
    assert!(settings.offload.interfaces.is_empty());
}

/// A file with a value for many keys, none of them the default.
const EVERYTHING: &str = r#"
realm = "example.org"
software = "Turnpike"
listen = ["203.0.113.7:443"]
[relay]
addresses = ["10.0.0.5", { local = "fd00::5", public = "2001:db8::7" }]
external = "203.0.113.7"
ports = "50000-59999"
[auth]
users = false
expiry_at_refresh = false
userhash = false
secrets = [{ name = "one", secret = "0123456789abcdef" }, { name = "two", secret = "fedcba9876543210" }]
[peers]
allow = ["10.20.0.0/16"]
deny = ["198.51.100.0/24", "2001:db8:bad::/48"]
[quotas]
allocations_per_user = 20
allocations_total = 5000
permissions = 50
channels = 60
bytes_per_second = "2 MiB"
unauthenticated_responses_per_second = 7
[lifetimes]
allocation_default = "5 min"
allocation_max = "2 h"
permission = "6 min"
channel = "11 min"
nonce = "90 s"
reservation = "31 s"
[redirect]
ipv4 = "198.51.100.7:3478"
domain = "turn2.example.org"
[workers]
count = 3
pin = false
[sockets]
receive_buffer = "1 MiB"
send_buffer = "512 KiB"
gro = false
gso = false
[offload]
mode = "xdp-generic"
interfaces = ["eth0", "br-lan"]
flows = 1_048_576
[log]
format = "json"
level = "debug"
[control]
socket = "/run/turnpike/control.sock"
[data]
directory = "/srv/turnpike"
[shutdown]
drain = "30 min"
"#;

#[test]
fn rules_that_are_set_arrive() {
    let settings = good(EVERYTHING);
    assert_eq!(settings.software.as_deref(), Some("Turnpike"));
    assert_eq!(listen(&settings), ["203.0.113.7:443"]);
    assert_eq!(settings.relay.addresses.len(), 2);
    assert_eq!((settings.relay.ports.min, settings.relay.ports.max), (50_000, 59_999));
    let names: Vec<_> = settings.secrets.iter().map(|secret| secret.name.as_str()).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(&**settings.secrets[1].secret.expose(), b"fedcba9876543210");
    assert!(!settings.auth.users && !settings.auth.expiry_at_refresh && !settings.auth.userhash);
    assert_eq!((settings.peers.allow.len(), settings.peers.deny.len()), (1, 2));
    let quotas = turn_proto::Quotas::from(&settings.quotas);
    assert_eq!((quotas.allocations_per_user, quotas.allocations_total), (20, 5000));
    assert_eq!((quotas.permissions, quotas.channels, quotas.bytes_per_second), (50, 60, 2 << 20));
    assert_eq!(settings.quotas.unauthenticated_responses_per_second.get(), 7);
    let lifetimes = turn_proto::Lifetimes::from(&settings.lifetimes);
    let seconds = [
        lifetimes.allocation_default,
        lifetimes.allocation_max,
        lifetimes.permission,
        lifetimes.channel,
        lifetimes.nonce,
        lifetimes.reservation,
    ]
    .map(|duration| duration.as_secs());
    assert_eq!(seconds, [300, 7200, 360, 660, 90, 31]);
    let redirect = settings.alternate_servers();
    assert_eq!(redirect.any, ["198.51.100.7:3478".parse().unwrap()]);
    assert_eq!(redirect.domain.as_deref(), Some("turn2.example.org"));
}

#[test]
fn parts_of_the_process_that_are_set_arrive() {
    let settings = good(EVERYTHING);
    assert_eq!((settings.workers.count, settings.workers.pin), (WorkerCount::Fixed(3), false));
    let buffers = [settings.sockets.receive_buffer, settings.sockets.send_buffer];
    assert_eq!(buffers.map(|buffer| buffer.get()), [1 << 20, 1 << 19]);
    assert!(!settings.sockets.gro && !settings.sockets.gso);
    let offload = &settings.offload;
    assert_eq!((offload.mode, offload.flows.get()), (OffloadMode::XdpGeneric, 1_048_576));
    assert_eq!(interfaces(&settings), ["eth0", "br-lan"]);
    assert_eq!((settings.log.format, settings.log.level), (LogFormat::Json, LogLevel::Debug));
    assert_eq!(settings.control_socket(), PathBuf::from("/run/turnpike/control.sock"));
    assert_eq!(settings.user_database(), Database::Sqlite("/srv/turnpike/users.sqlite".into()));
    assert_eq!(settings.shutdown.drain.get(), Duration::from_secs(1800));
}

#[test]
fn listeners_for_http_are_addresses_and_sockets() {
    let settings = good(
        "[http]\nlisten = [\"127.0.0.1:9641\", \"[::1]:9641\", \"unix:/run/turnpike/http.sock\"]",
    );
    let written: Vec<_> = settings.http.listen.iter().map(ToString::to_string).collect();
    assert_eq!(written, ["127.0.0.1:9641", "[::1]:9641", "unix:/run/turnpike/http.sock"]);
    assert_eq!(settings.http_sockets().collect::<Vec<_>>(), [Path::new("/run/turnpike/http.sock")]);
    assert!(good("").http.listen.is_empty(), "off by default");
}

#[test]
fn the_control_socket_follows_the_data_directory() {
    let mut settings = good("[data]\ndirectory = '/srv/turnpike'");
    assert_eq!(settings.control_socket(), PathBuf::from("/srv/turnpike/control.sock"));
    settings.set_data_directory("/srv/other".into());
    assert_eq!(settings.control_socket(), PathBuf::from("/srv/other/control.sock"));
    settings.note_option("data.directory", "--data");
    let keys = settings::keys_in_force(&settings);
    let place =
        keys.iter().find(|key| key.key == "data.directory").and_then(|key| key.place.clone());
    assert_eq!(place.map(|place| place.to_string()).as_deref(), Some("option --data"));
}

#[test]
fn the_database_of_users_is_a_setting() {
    let database = |text: &str| good(text).user_database();
    let named = "users.database = 'sqlite:///srv/users.db'\ndata.directory = '/srv/turnpike'";
    assert_eq!(database(named), Database::Sqlite("/srv/users.db".into()));
    let dir = TempDir::new();
    let path = dir.write("turnpike.toml", "users.database = 'users.db'");
    let settings = load(Some(&path), &Environment::empty()).unwrap();
    assert_eq!(settings.user_database(), Database::Sqlite(dir.file("users.db")));
}

#[test]
fn a_secret_file_is_relative_to_the_configuration_and_trimmed() {
    let dir = TempDir::new();
    dir.write("secret", format!("\n{SECRET}\r\n"));
    let path = dir.write("turnpike.toml", "[auth]\nsecret_file = 'secret'");
    let settings = load(Some(&path), &Environment::empty()).unwrap();
    assert_eq!(&**settings.secrets[0].secret.expose(), SECRET.as_bytes());
    assert_eq!(settings.secrets[0].name, "default");
    // Neither as text nor as a list of bytes.
    let shown = format!("{settings:?}");
    let bytes = format!("{:?}", SECRET.as_bytes());
    assert!(!shown.contains(SECRET) && !shown.contains(&bytes), "Debug shows no secret");
    assert!(shown.contains("<secret>"), "the secret is there: {shown}");
}

#[test]
fn secret_files_that_are_none() {
    let dir = TempDir::new();
    let path = dir.write("turnpike.toml", "[auth]\nsecret_file = 'secret'");
    let what = || {
        let errors = load(Some(&path), &Environment::empty()).unwrap_err();
        assert_eq!(errors.0.len(), 1, "{errors}");
        assert_eq!(errors.0[0].key, "auth.secret_file");
        errors.0[0].what.clone()
    };
    let secret = dir.write("secret", "short\n");
    assert_eq!(what(), "the secret has 5 bytes, and needs 16 or more");
    dir.write("secret", "x".repeat(5000));
    assert_eq!(what(), "the secret has more than 1024 bytes");
    std::fs::remove_file(&secret).unwrap();
    std::fs::create_dir(&secret).unwrap();
    assert_eq!(what(), format!("{} could not be read: it is a directory", secret.display()));
}

#[test]
fn files_that_cannot_be_read() {
    let dir = TempDir::new();
    let missing = dir.file("missing.toml");
    assert_eq!(
        load(Some(&missing), &Environment::empty()).unwrap_err().to_string(),
        format!(
            "{}: could not be read: there is no such file\n    \
             name another one with --config, or create it; docs/configuration.md shows one of five lines",
            missing.display()
        )
    );
    let binary = dir.write("binary.toml", b"realm = 'a'\n\xFF\xFE");
    assert_eq!(
        load(Some(&binary), &Environment::empty()).unwrap_err().to_string(),
        format!(
            "{}: is not text: line 2 is not UTF-8\n    save the file as UTF-8",
            binary.display()
        )
    );
    let huge = dir.write("huge.toml", vec![b'#'; (1 << 20) + 1]);
    assert_eq!(
        load(Some(&huge), &Environment::empty()).unwrap_err().to_string(),
        format!(
            "{}: has more than 1 MiB\n    this does not look like a configuration file",
            huge.display()
        )
    );
}

#[test]
fn variables_override_the_file() {
    let dir = TempDir::new();
    let path = dir.write(
        "turnpike.toml",
        "realm = 'file.example'\n[log]\nlevel = 'debug'\n[workers]\ncount = 2",
    );
    let environment = environment(&[
        ("TURNPIKE_REALM", "variable.example"),
        ("TURNPIKE_WORKERS__COUNT", "auto"),
        ("PATH", "/usr/bin"),
    ]);
    let settings = load(Some(&path), &environment).unwrap();
    assert_eq!(&*settings.realm, "variable.example");
    assert_eq!(settings.workers.count, WorkerCount::Auto);
    assert_eq!(settings.log.level, LogLevel::Debug, "what no variable names is the file's");
}

#[test]
fn a_variable_mends_what_is_wrong_in_the_file() {
    let variables = environment(&[("TURNPIKE_REALM", "example.org")]);
    let settings = parse(Path::new("turnpike.toml"), "realm = 7", &variables).unwrap();
    assert_eq!(&*settings.realm, "example.org");
}

#[test]
fn an_unknown_part_of_a_relay_address_is_an_error_in_a_variable_too() {
    let value = "[{ local = '10.0.0.5', publik = '203.0.113.7' }]";
    let error = with(&[("TURNPIKE_RELAY__ADDRESSES", value)]).unwrap_err();
    assert!(error.contains("\"publik\" is not a part of a relay address"), "{error}");
}

#[test]
fn variables_of_every_kind() {
    let settings = with(&[
        ("TURNPIKE_REALM", "42"),
        ("TURNPIKE_LISTEN", "0.0.0.0:3478, [::]:3479"),
        ("TURNPIKE_RELAY__ADDRESSES", "[{ local = '10.0.0.5', public = '203.0.113.7' }]"),
        ("TURNPIKE_RELAY__EXTERNAL", "2001:db8::7"),
        ("TURNPIKE_AUTH__SECRETS", "[{ name = 'a', secret = '0123456789abcdef' }]"),
        ("TURNPIKE_AUTH__USERS", "false"),
        ("TURNPIKE_PEERS__DENY", "[\"192.0.2.0/24\"]"),
        ("TURNPIKE_QUOTAS__ALLOCATIONS_PER_USER", "5"),
        ("TURNPIKE_LIFETIMES__NONCE", "2 min"),
        ("TURNPIKE_WORKERS__COUNT", "4"),
        ("TURNPIKE_LOG__LEVEL", "trace"),
    ]);
    // The IPv6 address has no local one: explicit addresses are IPv4 alone.
    assert_eq!(
        settings.unwrap_err(),
        "environment variable TURNPIKE_RELAY__EXTERNAL: relay.external: there is no IPv6 address in relay.addresses \
         that it could stand for\n    add the local one to relay.addresses, or remove it here"
    );
    let settings = with(&[
        ("TURNPIKE_REALM", "42"),
        ("TURNPIKE_LISTEN", "0.0.0.0:3478, [::]:3479"),
        ("TURNPIKE_RELAY__ADDRESSES", "auto"),
        ("TURNPIKE_RELAY__EXTERNAL", "203.0.113.7, 2001:db8::7"),
        ("TURNPIKE_AUTH__SECRETS", "[{ name = 'a', secret = '0123456789abcdef' }]"),
        ("TURNPIKE_AUTH__USERS", "false"),
        ("TURNPIKE_PEERS__DENY", "[\"192.0.2.0/24\"]"),
        ("TURNPIKE_QUOTAS__ALLOCATIONS_PER_USER", "5"),
        ("TURNPIKE_LIFETIMES__NONCE", "2 min"),
        ("TURNPIKE_WORKERS__COUNT", "4"),
        ("TURNPIKE_OFFLOAD__MODE", "tc"),
        ("TURNPIKE_OFFLOAD__INTERFACES", "eth0, eth1"),
        ("TURNPIKE_OFFLOAD__FLOWS", "2048"),
        ("TURNPIKE_LOG__LEVEL", "trace"),
    ])
    .unwrap();
    assert_eq!(&*settings.realm, "42", "text is text, whatever it looks like");
    assert_eq!(listen(&settings), ["0.0.0.0:3478", "[::]:3479"]);
    assert_eq!(settings.relay.addresses, [RelayEntry::Auto]);
    assert_eq!(settings.relay.external.as_ref().unwrap().0.len(), 2);
    assert_eq!(settings.secrets.len(), 1);
    assert!(!settings.auth.users);
    assert_eq!(settings.peers.deny.len(), 1);
    assert_eq!(settings.quotas.allocations_per_user.get(), 5);
    assert_eq!(settings.lifetimes.nonce.get(), Duration::from_secs(120));
    assert_eq!(settings.workers.count, WorkerCount::Fixed(4));
    assert_eq!((settings.offload.mode, settings.offload.flows.get()), (OffloadMode::Tc, 2048));
    assert_eq!(interfaces(&settings), ["eth0", "eth1"]);
    assert_eq!(settings.log.level, LogLevel::Trace);
}

#[test]
fn a_secret_may_look_like_anything() {
    for secret in [
        "[not a list at all]",
        "true and then some more",
        "1234567890123456",
        "'quoted, with comma'",
    ] {
        let settings = with(&[("TURNPIKE_AUTH__SECRET", secret)]).unwrap();
        assert_eq!(&**settings.secrets[0].secret.expose(), secret.as_bytes());
    }
}

#[test]
fn variables_that_are_wrong() {
    for (name, value, expected) in [
        (
            "TURNPIKE_RELAY__PORTS",
            "1-2",
            "environment variable TURNPIKE_RELAY__PORTS: relay.ports: \"1-2\" begins below port 1024, where system \
             services live\n    write the lowest and the highest port, from 1024 to 65535, such as \"49152-65535\"",
        ),
        (
            "TURNPIKE_AUTH__SECRET_FIEL",
            "/etc/secret",
            "environment variable TURNPIKE_AUTH__SECRET_FIEL: there is no such key\n    did you mean \
             TURNPIKE_AUTH__SECRET_FILE?",
        ),
        (
            "TURNPIKE_RAELM",
            "example.org",
            "environment variable TURNPIKE_RAELM: there is no such key\n    did you mean TURNPIKE_REALM?",
        ),
        (
            "TURNPIKE_AUTH__USERS",
            "yes",
            "environment variable TURNPIKE_AUTH__USERS: auth.users: is text, and true or false is needed\n    write \
             true or false, without quotes",
        ),
    ] {
        assert_eq!(with(&[(name, value)]).unwrap_err(), expected);
    }
}

#[test]
fn variables_that_other_software_makes_are_left_alone() {
    // What Kubernetes gives every container beside a service called "turnpike".
    with(&[
        ("TURNPIKE_SERVICE_HOST", "10.0.0.1"),
        ("TURNPIKE_SERVICE_PORT", "3478"),
        ("TURNPIKE_PORT", "udp://10.0.0.1:3478"),
        ("TURNPIKE_PORT_3478_UDP", "udp://10.0.0.1:3478"),
        ("TURNPIKE_PORT_3478_UDP_PROTO", "udp"),
        ("TURNPIKE_PORT_3478_UDP_PORT", "3478"),
        ("TURNPIKE_PORT_3478_UDP_ADDR", "10.0.0.1"),
    ])
    .unwrap();
}

/// Also of a file that is wrong: a reload that fails is judged by them.
#[test]
fn the_files_that_a_configuration_names_are_known_without_opening_them() {
    let dir = TempDir::new();
    let path = dir.write(
        "t.toml",
        "relm = 5\n[auth]\nsecret_file = 's'\nnonce_key_file = 'n'\nsecrets = [{ name = 'n', secret_file = '/a/n' }]\n\
         token_keys = [{ kid = 'k', key_file = 'k' }]\n[tls]\nclient_authorities = 'ca'\n\
         certificates = [{ chain = '/b/chain', key = '/b/key', password_file = '/b/word' }]\n[log]\naddress_key_file = 'l'\n",
    );
    let files = settings::named_files(Some(&path), &Environment::empty());
    let at = |name: &str| dir.file(name);
    let beside = [
        path.clone(),
        at("s"),
        at("n"),
        at("l"),
        "/a/n".into(),
        at("k"),
        "/b/chain".into(),
        "/b/key".into(),
        "/b/word".into(),
    ];
    assert_eq!(files, [&beside[..], &[at("ca")]].concat());
    assert_eq!(settings::named_files(None, &Environment::empty()), [""; 0].map(PathBuf::from));
}

/// A wrapper may have variables of its own.
#[test]
fn a_variable_that_is_near_no_key_is_named() {
    let settings = with(&[("TURNPIKE_WEATHER__TODAY", "rain")]).unwrap();
    assert_eq!(settings.unused_variables, ["TURNPIKE_WEATHER__TODAY"]);
}
