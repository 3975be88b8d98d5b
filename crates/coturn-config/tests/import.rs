//! Configurations of the wild, in their public documentation's shape: they import with nothing
//! taken wrongly, and the result is a valid configuration.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use coturn_config::{AnyHost, Fate, Import, Purpose, Source, User, UserKey};
use settings::DatabaseTable;
use settings::{Environment, Settings};

fn import(file: &str, arguments: &[String], directory: &Path) -> Import {
    let source = Source { file: file.as_bytes(), arguments };
    coturn_config::import(source, Purpose::Migration, directory, &AnyHost)
}

struct Directory(PathBuf);

impl Directory {
    /// A directory of its own for each call: tests run side by side.
    fn new(test: &str) -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("coturn-config-{test}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Imports a fixture, stores the secrets, and reads the result as the server would.
fn imported(name: &str) -> (Import, Settings) {
    let directory = Directory::new(name);
    let fixture = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let text = fs::read_to_string(fixture.join(format!("{name}.conf"))).unwrap();
    let import = import(&text, &[], &directory.0);
    for (path, secret) in &import.secrets {
        fs::write(path, secret).unwrap();
    }
    let file = directory.0.join("turnpike.toml");
    let settings = settings::parse(&file, &import.toml, &Environment::empty());
    let settings = settings.unwrap_or_else(|errors| panic!("{errors}\n{}", import.toml));
    (import, settings)
}

/// Names of the options with a fate.
fn names(import: &Import, is: impl Fn(&Fate) -> bool) -> Vec<&str> {
    let lines = import.lines.iter().filter(|line| is(&line.fate));
    lines.map(|line| line.text.split(['=', ' ']).next().unwrap()).collect()
}

fn unsupported(import: &Import) -> Vec<&str> {
    names(import, |fate| matches!(fate, Fate::Unsupported(_)))
}

/// Lines that neither coturn nor this understands.
fn strange(import: &Import) -> Vec<&str> {
    names(import, |fate| matches!(fate, Fate::Unknown | Fate::Unreadable(_)))
}

fn networks(list: &[settings::value::Prefix]) -> Vec<String> {
    list.iter().map(|prefix| prefix.0.to_string()).collect()
}

#[test]
fn a_homeservers_relay() {
    let (import, settings) = imported("synapse");
    assert_eq!((unsupported(&import), strange(&import)), (vec![], vec![]));
    assert_eq!(&*settings.realm, "turn.matrix.example.org");
    assert_eq!((settings.secrets.len(), settings.auth.users), (1, false));
    assert_eq!(networks(&settings.peers.allow), ["10.0.0.1/32"]);
    let denied = networks(&settings.peers.deny);
    for network in ["10.0.0.0/8", "192.168.0.0/16"] {
        assert!(
            denied.contains(&network.to_owned()),
            "a rule is as readable as before: {denied:?}"
        );
    }
    let quotas = &settings.quotas;
    assert_eq!((quotas.allocations_per_user.get(), quotas.allocations_total.get()), (12, 1200));
    assert!(import.toml.contains("external = \"192.0.2.1\""));
    assert!(!import.toml.contains("Gc9wQ7uTq1m3x0TtS2b8fYk4"), "a secret has a file of its own");
    assert!(import.lines.iter().all(|line| !line.text.contains("Gc9w")));
}

#[test]
fn a_relay_for_talk() {
    let (import, settings) = imported("nextcloud-talk");
    assert_eq!((unsupported(&import), strange(&import)), (vec![], vec![]));
    let listen: Vec<String> = settings.listen().map(|at| at.to_string()).collect();
    assert_eq!(listen, ["0.0.0.0:443", "[::]:443"]);
    assert_eq!(settings.quotas.allocations_total.get(), 0);
}

#[test]
fn relays_of_meeting_servers() {
    let (import, settings) = imported("jitsi");
    assert_eq!(unsupported(&import), [""; 0]);
    assert_eq!(settings.relay.default_family, settings::DefaultFamily::Client);
    assert_eq!(strange(&import), [""; 0]);
    assert!(!settings.tcp.enabled);

    let (import, settings) = imported("bigbluebutton");
    assert_eq!(unsupported(&import), [""; 0]);
    assert_eq!(settings.relay.default_family, settings::DefaultFamily::Client);
    assert_eq!(strange(&import), [""; 0]);
    assert_eq!(settings.tls_listen, ["198.51.100.20:443".parse().unwrap()]);
    assert_eq!(settings.relay.ports.to_string(), "32769-65535");
    assert_eq!(networks(&settings.peers.allow), ["198.51.100.30/32"]);
}

#[test]
fn a_container_behind_nat_with_users() {
    let (import, settings) = imported("cloud-image");
    assert_eq!(unsupported(&import), [""; 0]);
    assert!(settings.local_users().is_some(), "beside the database of the image");
    assert_eq!(strange(&import), ["user", "verbos"]);
    let pairs: Vec<String> = settings.relay.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(pairs.len(), 2);
    assert!(import.toml.contains("{ local = \"10.0.0.5\", public = \"203.0.113.5\" }"));
    assert!(import.toml.contains("addresses = [\"10.0.0.5\", \"10.0.0.6\"]"), "discovery");
    assert!(import.toml.contains("ports = [3478, 3480]"));
    let key = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
    let key: Vec<u8> = [key, key].concat();
    assert_eq!(
        import.users,
        [
            User { name: "alice".to_owned(), key: UserKey::Password("correct:horse".to_owned()) },
            User { name: "bob".to_owned(), key: UserKey::Md5(key.try_into().unwrap()) },
        ]
    );
    assert!(settings.auth.users && settings.mobility && settings.http.coturn_metrics);
    assert_eq!(settings.http.listen.len(), 1);
    assert_eq!(
        settings.alternate_servers().any.iter().map(SocketAddr::is_ipv4).collect::<Vec<_>>(),
        [true, true, false]
    );
    assert!(import.toml.contains("nonce = \"1 h\""));
    assert!(import.lines.iter().all(|line| !line.text.contains("horse")));
}

/// coturn relays for everyone without any authentication; that is not taken.
#[test]
fn an_open_relay_stays_behind() {
    for text in ["realm=example.org\n", "no-auth\n", "realm=x\nuserdb=/var/lib/turndb\n"] {
        let import = import(text, &[], &PathBuf::from("/etc/turnpike"));
        assert!(import.notes.iter().any(|note| note.contains("relays for everyone")), "{text}");
        assert!(!import.toml.contains("open_relay"), "{}", import.toml);
    }
}

#[test]
fn a_command_line_is_read_behind_the_file() {
    let words = [
        "-n",
        "--log-file=stdout",
        "--min-port",
        "50000",
        "-r",
        "b.example",
        "--static-auth-secret=0123456789abcdef",
    ];
    let import = import(
        "realm=a.example\nmax-port=51000\n",
        &words.map(str::to_owned),
        &PathBuf::from("/x"),
    );
    assert!(import.toml.contains("realm = \"b.example\""), "{}", import.toml);
    assert!(import.toml.contains("ports = \"50000-51000\""), "{}", import.toml);
    assert_eq!(import.secrets, [("/x/secret".to_owned(), b"0123456789abcdef".to_vec())]);
    assert_eq!(import.realm.as_deref(), Some("b.example"));
}

#[test]
fn a_short_secret_is_refused_with_the_way_out() {
    let import = import("static-auth-secret=north\n", &[], &PathBuf::from("/x"));
    let [line] = import.lines.as_slice() else { panic!("{:?}", import.lines) };
    let Fate::Unsupported(why) = &line.fate else { panic!("{line:?}") };
    assert!(why.contains("5 bytes") && why.contains("openssl rand"), "{why}");
    assert!(import.secrets.is_empty() && !import.toml.contains("secret_file"));
}

/// What a line of coturn's configuration becomes, with the rest as it stands.
fn taken(text: &str) -> Settings {
    let directory = Directory::new("taken");
    let import = import(text, &[], &directory.0);
    assert_eq!((strange(&import), unsupported(&import)), (vec![], vec![]), "{text}");
    for (path, secret) in &import.secrets {
        fs::write(path, secret).unwrap();
    }
    let file = directory.0.join("turnpike.toml");
    let settings = settings::parse(&file, &import.toml, &Environment::empty());
    settings.unwrap_or_else(|errors| panic!("{errors}\n{}", import.toml))
}

#[test]
fn metrics_with_a_path_and_tls_of_their_own() {
    let who = "realm=a.example\nlt-cred-mech\nuser=a:b\n";
    let own = "prometheus-cert=/m.pem\nprometheus-key=/m.key\n";
    let tls = "prometheus-tls\nprometheus-path=/turn/metrics\n";
    let settings = taken(&format!("{who}{tls}{own}"));
    assert_eq!((settings.http.tls, &*settings.http.metrics_path), (true, "/turn/metrics"));
    assert_eq!(settings.http.listen.len(), 1, "prometheus-tls alone serves them");
    assert!(!settings.tls.enabled && !settings.dtls.enabled, "clients had no TLS");
    let settings = taken(&format!("{who}{tls}cert=/c.pem\npkey=/c.key\n"));
    assert!(settings.http.tls && settings.tls.enabled);
    let text = format!("{who}{tls}{own}cert=/c.pem\npkey=/c.key\n");
    let both = import(&text, &[], Path::new("/d"));
    let line = both.lines.iter().find(|line| line.text.starts_with("prometheus-cert")).unwrap();
    assert!(matches!(&line.fate, Fate::Unsupported(why) if why.contains("tls.certificates")));
    let settings = taken(&format!("{who}{own}prometheus\n"));
    assert!(!settings.http.tls && settings.tls.certificates.is_empty());
    // A Prometheus on another host would find nothing.
    let notes = |text: &str| import(&format!("{who}{text}"), &[], Path::new("/d")).notes.join("\n");
    assert!(notes("prometheus\n").contains("at loopback alone"));
    assert!(!notes("prometheus\nprometheus-address=192.0.2.1\n").contains("at loopback alone"));
}

#[test]
fn transports_that_are_off_and_stun_alone() {
    let settings = taken("no-udp\nrealm=a.example\nlt-cred-mech\nuser=a:b\n");
    assert!(!settings.udp.enabled && settings.tcp.enabled);
    assert!(taken("secure-stun\nrealm=a.example\nlt-cred-mech\nuser=a:b\n").auth.binding);
    let stun_only = "stun-only\nsecure-stun\nrealm=a.example\n";
    assert!(!taken(stun_only).auth.binding);
    // The line is left out, and was a way to log in.
    let empty = import(&format!("{stun_only}static-auth-secret=\n"), &[], Path::new("/d"));
    assert!(empty.toml.contains("binding = true"), "{}", empty.toml);
    let who = "realm=a.example\nlt-cred-mech\nuser=a:b\n";
    let settings = taken(&format!("no-stun\nno-udp-relay\n{who}"));
    assert!(!settings.binding && !settings.udp.relaying && settings.tcp.relaying);
    let settings = taken(&format!(
        "alternate-server=192.0.2.1\nudp-alternate-server=192.0.2.2:1\nudp-alternate-server=192.0.2.3:1\n\
         tcp-alternate-server=192.0.2.4:1\ntls-alternate-server=[2001:db8::5]:5349\n{who}"
    ));
    let redirect = settings.alternate_servers();
    let counts = [&redirect.any, &redirect.udp, &redirect.tcp, &redirect.tls].map(Vec::len);
    assert_eq!((counts, redirect.any[0].port()), ([1, 2, 1, 1], 3478));
    let settings = taken("stun-only\nlistening-port=3478\n");
    assert!(!settings.relay.enabled && settings.udp.enabled);
}

#[test]
fn the_separator_of_time_limited_names() {
    let secret = "use-auth-secret\nstatic-auth-secret=0123456789abcdef\n";
    let separator = |line: &str| taken(&format!("{secret}{line}\n")).auth.separator.to_string();
    assert_eq!(separator("rest-api-separator=-"), "-");
    assert_eq!(separator("rest-api-separator=:"), ":");
    assert_eq!(separator(""), ":");
}

#[test]
fn tls_1_3_alone_leaves_no_dtls_1_2() {
    let settings = taken("no-tlsv1_2\nrealm=a.example\nlt-cred-mech\nuser=a:b\n");
    assert_eq!(settings.tls.minimum_version, settings::TlsVersion::V13);
    assert!(!settings.dtls.enabled);
}

#[test]
fn a_database_that_both_can_share_is_named_in_a_file() {
    let text = "realm=a.example\nlt-cred-mech\npsql-userdb=\"host=db dbname=turn user=turn password=deep\"\n";
    let settings = taken(text);
    assert_eq!(settings.user_database().to_string(), "postgresql://db/turn");
    let directory = Directory::new("database");
    let imported = import(text, &[], &directory.0);
    assert!(!imported.toml.contains("deep"), "{}", imported.toml);
    assert_eq!(imported.secrets[0].1, b"postgresql://turn:deep@db/turn");

    // As in coturn, users of the file count before those of the database.
    let both = taken(&format!("{text}user=x:y\n"));
    assert_eq!(both.user_database().to_string(), "postgresql://db/turn");
    assert!(both.local_users().is_some());
    let file = taken("realm=a.example\nlt-cred-mech\nuserdb=/var/lib/turn/turndb\n");
    assert_eq!(file.user_database().to_string(), "sqlite-coturn:///var/lib/turn/turndb");

    let by_secret = taken(&format!("use-auth-secret\n{text}"));
    let tables = [DatabaseTable::Realms, DatabaseTable::Peers, DatabaseTable::Secrets];
    assert_eq!(by_secret.users.database_tables, tables);
    assert!(!by_secret.auth.users);
    let by_token = taken(&format!("oauth\nno-dynamic-realms\nno-dynamic-ip-list\n{text}"));
    assert_eq!(by_token.users.database_tables, [DatabaseTable::Tokens]);
}

#[test]
fn named_cipher_suites_are_taken_and_classes_are_not() {
    let base = "realm=a.example\nlt-cred-mech\nuser=a:b\n";
    let named = taken(&format!(
        "{base}cipher-list=\"ECDHE-RSA-AES256-GCM-SHA384:AES128-GCM-SHA256:ECDHE-RSA-AES256-SHA384\"\nec-curve-name=prime256v1\n"
    ));
    use settings::{CipherSuite, KeyExchange};
    let suites =
        [CipherSuite::Aes256, CipherSuite::Aes128, CipherSuite::ChaCha20, CipherSuite::RsaAes256];
    assert_eq!(named.tls.cipher_suites, suites);
    assert_eq!(named.tls.key_exchange, [KeyExchange::Secp256r1]);
    for class in ["ALL:SSLv2", "HIGH:!aNULL:!MD5", "DEFAULT", "ECDHE-RSA-AES256-GCM-SHA384:HIGH"] {
        assert!(
            taken(&format!("{base}cipher-list=\"{class}\"\n")).tls.cipher_suites.is_empty(),
            "{class}"
        );
    }
    let directory = Directory::new("ciphers");
    let weak = import(
        &format!("{base}cipher-list=AES128-SHA256:AES256-GCM-SHA384\nec-curve-name=sect571r1\n"),
        &[],
        &directory.0,
    );
    assert_eq!(unsupported(&weak), ["cipher-list", "ec-curve-name"]);
}

#[test]
fn the_password_of_a_key_goes_to_a_file() {
    let directory = Directory::new("password");
    let text = "realm=a.example\nlt-cred-mech\nuser=a:b\ncert=/c.pem\npkey=/k.pem\npkey-pwd=deep\n";
    let imported = import(text, &[], &directory.0);
    assert!(!imported.toml.contains("deep"), "{}", imported.toml);
    assert_eq!(imported.secrets[0].1, b"deep");
    let files = taken(text).certificates();
    assert!(files[0].password.is_some());
}

#[test]
fn capacity_family_and_the_end_of_a_drain() {
    let base = "realm=a.example\nlt-cred-mech\nuser=a:b\n";
    let settings =
        taken(&format!("{base}max-bps=64000\nbps-capacity=64000000\ndrain-min-allocations=3\n"));
    assert_eq!(settings.quotas.bytes_per_second_total.get(), 64_000_000);
    assert_eq!(settings.shutdown.drain_allocations_left.get(), 3);
    for line in ["bps-capacity=64000000", "bps-capacity=0\nmax-bps=64000"] {
        let settings = taken(&format!("{base}{line}\n"));
        assert_eq!(settings.quotas.bytes_per_second_total.get(), 0, "{line}");
    }
    use settings::DefaultFamily::{Client, Ipv4, Ipv6};
    for (line, expected) in [
        ("", Ipv4),
        ("allocation-default-address-family=ipv4", Ipv4),
        ("allocation-default-address-family=ipv6", Ipv6),
        ("allocation-default-address-family=keep", Client),
        ("keep-address-family", Client),
    ] {
        assert_eq!(taken(&format!("{base}{line}\n")).relay.default_family, expected, "{line}");
    }
}

#[test]
fn the_secret_of_shared_nonces_goes_to_a_file() {
    let directory = Directory::new("nonces");
    let text = "realm=a.example\nlt-cred-mech\nuser=a:b\nstateless-nonce-secret=0123456789abcdef\n";
    let imported = import(text, &[], &directory.0);
    assert!(!imported.toml.contains("0123456789abcdef"), "{}", imported.toml);
    assert!(taken(text).nonce_key.is_some());
    let short = import("stateless-nonce-secret=short\n", &[], &directory.0);
    assert_eq!(unsupported(&short), ["stateless-nonce-secret"]);
}

#[test]
fn devices_are_those_of_the_sockets() {
    let settings = taken(
        "realm=a.example\nlt-cred-mech\nuser=a:b\nlistening-device=eth0\nrelay-device=eth1\n",
    );
    let name =
        |device: &Option<settings::InterfaceName>| device.as_ref().unwrap().as_str().to_owned();
    assert_eq!(name(&settings.sockets.listen_device), "eth0");
    assert_eq!(name(&settings.sockets.relay_device), "eth1");
}
