//! A server in coturn's place serves whom coturn serves with the same file.

use std::net::IpAddr;
use std::path::Path;

use coturn_config::{Fate, Host, Import, Purpose, Source, User, UserKey};

/// A host with a name, and without a file.
struct BareHost;

impl Host for BareHost {
    fn find(&self, name: &str) -> String {
        name.to_owned()
    }

    fn resolve(&self, name: &str) -> Option<IpAddr> {
        (name == "relay.example").then(|| IpAddr::from([192, 0, 2, 7]))
    }

    fn exists(&self, path: &Path) -> bool {
        path == Path::new("/var/lib/turn")
    }
}

fn replace(file: impl AsRef<[u8]>) -> Import {
    let source = Source { file: file.as_ref(), arguments: &[] };
    coturn_config::import(source, Purpose::Replacement, Path::new("/data"), &BareHost)
}

/// Numbers of lines that are not in force.
fn left_out(import: &Import) -> Vec<usize> {
    let is = |fate: &Fate| matches!(fate, Fate::Unsupported(_));
    import.lines.iter().filter(|line| is(&line.fate)).map(|line| line.number).collect()
}

fn has(import: &Import, key: &str, value: &str) -> bool {
    import.toml.contains(&format!("{key} = {value}"))
}

#[test]
fn passwords_are_bytes() {
    let import = replace(b"realm=a\nlt-cred-mech\nuser=a:'b'\nuser=n:\xf6\nuser=c:0x00112233445566778899aabbccddeeffgg\n");
    let user = |name: &str, key| User { name: name.to_owned(), key };
    let key = UserKey::Md5(std::array::from_fn(|at| at as u8 * 0x11));
    assert_eq!(
        import.users,
        [
            user("a", UserKey::Password("'b'".to_owned())),
            user("n", UserKey::Bytes(vec![0xf6])),
            user("c", key),
        ]
    );
}

/// coturn logs an error about such lines, and serves the others.
#[test]
fn users_without_a_password_are_left_out() {
    let import =
        replace("realm=a\nlt-cred-mech\nuser=a:b\nuser=a:\nuser=c\nuser=d:e\nuser=d:0x12\n");
    let names: Vec<&str> = import.users.iter().map(|user| &*user.name).collect();
    assert_eq!((names, left_out(&import)), (vec!["a"], vec![4, 5, 7]), "d's password is gone");
}

#[test]
fn secrets_are_bytes_and_may_be_short() {
    let import = replace(b"realm=a\nuse-auth-secret\nstatic-auth-secret=n\xf6rth\n");
    assert_eq!(import.secrets[0].1, b"n\xf6rth");
    assert!(has(&import, "short_secrets", "true") && left_out(&import).is_empty());
}

#[test]
fn hosts_have_their_addresses() {
    let import = replace(
        "listening-ip=relay.example\nexternal-ip=relay.example\nrelay-ip=no.example\nlistening-ip=192.0.2.8 # new\n",
    );
    assert!(has(&import, "listen", "[\"192.0.2.7:3478\"]"), "{}", import.toml);
    assert_eq!(left_out(&import), [3, 4]);
}

#[test]
fn a_public_address_needs_one_of_its_family() {
    let import =
        replace("listening-ip=2001:db8::7\nexternal-ip=192.0.2.7\nexternal-ip=2001:db8::8\n");
    assert_eq!(left_out(&import), [2]);
    assert!(has(&import, "external", "\"2001:db8::8\""), "{}", import.toml);
}

#[test]
fn a_wildcard_of_ipv6_receives_ipv4() {
    let import = replace("listening-ip=::\nlistening-port=3479\n");
    assert!(has(&import, "listen", "[\"0.0.0.0:3479\", \"[::]:3479\"]"), "{}", import.toml);
    assert!(!import.toml.contains("addresses = "), "no wildcard is relayed from: {}", import.toml);
}

#[test]
fn ports_below_1024_and_those_of_listeners_are_not_relayed_from() {
    for (lines, ports) in [
        ("min-port=500\nmax-port=2000\n", "\"1024-2000\""),
        ("min-port=3000\nmax-port=4000\n", "\"3479-4000\""),
    ] {
        let import = replace(lines);
        assert!(has(&import, "ports", ports), "{}", import.toml);
    }
}

#[test]
fn what_coturn_goes_on_without_is_left_out() {
    let import = replace("userdb=/no-such/turndb\nCA-file=/no-such.pem\ncert=/a\npkey=/b\n");
    assert_eq!(left_out(&import), [1, 2, 3, 4]);
    let made = replace("userdb=/var/lib/turn/turndb\nlt-cred-mech\n");
    assert_eq!(made.sqlite.as_deref(), Some("sqlite-coturn:///var/lib/turn/turndb"));
}

#[test]
fn defaults_are_those_of_coturn() {
    let import = replace("");
    assert!(has(&import, "rfc5766_clients", "true") && has(&import, "relaying", "true"));
    assert!(!has(&replace("no-tcp-relay\n"), "relaying", "true"));
}

#[test]
fn what_no_line_says_is_told() {
    let tells = |file: &str, text: &str| replace(file).notes.iter().any(|note| note.contains(text));
    assert!(tells("", "allowed-peer-ip") && tells("", "2,000 allocations") && tells("", "telnet"));
    assert!(!tells("no-cli\n", "telnet") && !tells("", "redirected"));
    assert!(tells("alternate-server=192.0.2.9\n", "redirected"));
}
