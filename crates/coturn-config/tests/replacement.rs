//! A server in coturn's place serves whom coturn serves with the same file.

use std::path::Path;

use coturn_config::{Fate, Import, Purpose, Source, User, UserKey};

use crate::host::TestHost;

/// A host with a name, and without a file.
const BARE_HOST: TestHost = TestHost {
    name: ("relay.example", [192, 0, 2, 7]),
    path: "/var/lib/turn",
    own: Some([10, 0, 0, 5]),
};

fn replace(file: impl AsRef<[u8]>) -> Import {
    let source = Source { file: file.as_ref(), arguments: &[] };
    coturn_config::import(source, Purpose::Replacement, Path::new("/data"), &BARE_HOST)
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

/// A pair with an address of the host is ignored by coturn in a container.
#[test]
fn addresses_that_are_not_the_hosts_are_relayed_from_besides_its_own() {
    let import = replace("external-ip=192.0.2.7/192.168.50.4\n");
    let pair = "{ local = \"192.168.50.4\", public = \"192.0.2.7\" }";
    assert!(has(&import, "addresses", &format!("[{pair}, \"auto\"]")), "{}", import.toml);
    let own = replace("external-ip=192.0.2.7/10.0.0.5\n");
    assert!(!own.toml.contains("auto"), "{}", own.toml);
}

#[test]
fn a_public_address_alone_counts_for_all_addresses() {
    let import =
        replace("listening-ip=10.0.0.5\nexternal-ip=192.0.2.7/10.0.0.5\nexternal-ip=192.0.2.8\n");
    assert_eq!(left_out(&import), [2]);
    assert!(has(&import, "external", "\"192.0.2.8\""), "{}", import.toml);
    assert!(has(&import, "addresses", "[\"10.0.0.5\"]"), "{}", import.toml);
}

#[test]
fn no_address_is_no_public_one() {
    let import = replace("external-ip=\n");
    assert_eq!(left_out(&import), [1]);
    assert!(!import.toml.contains("external"), "{}", import.toml);
}

/// Guides for homeservers deny all IPv4 addresses in IPv6. coturn still relays to IPv4 peers.
#[test]
fn rules_for_ipv4_in_ipv6_are_none_for_ipv4() {
    for name in ["denied-peer-ip", "allowed-peer-ip"] {
        for range in ["::ffff:0.0.0.0-::ffff:255.255.255.255", "::ffff:10.0.0.1"] {
            let import = replace(format!("{name}={range}\n"));
            assert!(!import.toml.contains("[peers]"), "{}", import.toml);
            assert!(matches!(import.lines[0].fate, Fate::SameHere(_)), "{:?}", import.lines);
        }
    }
}

#[test]
fn rules_for_hosts_are_for_their_addresses() {
    let import = replace("denied-peer-ip=relay.example\ndenied-peer-ip=no.example\n");
    assert!(has(&import, "deny", "[\"192.0.2.7\"]"), "{}", import.toml);
    assert!(matches!(import.lines[1].fate, Fate::Unreadable(_)), "{:?}", import.lines);
}

/// coturn compares families before numbers, and reads the unspecified address as an open end.
#[test]
fn rules_from_no_address_deny_more() {
    for (range, denied) in [
        ("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "[\"0.0.0.0/0\", \"::/0\"]"),
        ("::", "[\"0.0.0.0/0\", \"::\", \"::/0\"]"),
        ("0.0.0.0", "[\"0.0.0.0\", \"0.0.0.0/0\", \"::/0\"]"),
        ("0.0.0.0-0.255.255.255", "[\"0.0.0.0/8\"]"),
        ("::1", "[\"::1\"]"),
    ] {
        let import = replace(format!("denied-peer-ip={range}\n"));
        assert!(has(&import, "deny", denied), "{range}: {}", import.toml);
    }
}

/// coturn accepts an empty secret, and refuses users of a file with an empty secret.
#[test]
fn an_empty_secret_is_none() {
    let import = replace("lt-cred-mech\nuser=a:b\nstatic-auth-secret=\nrealm=a\n");
    assert_eq!((import.users.len(), left_out(&import)), (0, vec![3]));
    assert!(import.secrets.is_empty() && !import.toml.contains("secret"), "{}", import.toml);
}

#[test]
fn the_first_sign_separates() {
    let separator = |line: &str| replace(format!("rest-api-separator={line}\n")).toml;
    assert!(separator("-:").contains("separator = \"-\""));
    assert!(!separator("::").contains("separator"));
}

#[test]
fn a_session_takes_all_of_the_capacity_at_most() {
    let import = replace("max-bps=3000\nbps-capacity=1000\n");
    assert!(has(&import, "bytes_per_second", "\"1000 B\""), "{}", import.toml);
}

#[test]
fn short_lifetimes_are_those_of_clients_that_name_none() {
    let import = replace("max-allocate-lifetime=300\n");
    assert!(has(&import, "allocation_default", "\"300 s\""), "{}", import.toml);
    assert!(!replace("max-allocate-lifetime=600\n").toml.contains("allocation_default"));
}

#[test]
fn a_name_that_nobody_asks_for_may_be_bytes() {
    let import = replace(b"server-name=k\xf6ln\n");
    assert!(matches!(import.lines[0].fate, Fate::SameHere(_)), "{:?}", import.lines);
}

#[test]
fn a_wildcard_of_ipv6_receives_ipv4() {
    let import = replace("listening-ip=::\nlistening-port=3479\n");
    assert!(has(&import, "listen", "[\"0.0.0.0:3479\", \"[::]:3479\"]"), "{}", import.toml);
    assert!(!import.toml.contains("addresses = "), "no wildcard is relayed from: {}", import.toml);
}

/// coturn binds both, here one listener is a part of the other.
#[test]
fn a_wildcard_replaces_the_addresses_that_it_includes() {
    let port = "listening-port=3479\nlistening-ip=";
    for (addresses, listeners) in [
        ("10.0.0.1\nlistening-ip=0.0.0.0\n", "[\"0.0.0.0:3479\"]"),
        ("0.0.0.0\nlistening-ip=10.0.0.1\n", "[\"0.0.0.0:3479\"]"),
        ("::\nlistening-ip=fd00::1\n", "[\"0.0.0.0:3479\", \"[::]:3479\"]"),
        ("0.0.0.0\nlistening-ip=fd00::1\n", "[\"0.0.0.0:3479\", \"[fd00::1]:3479\"]"),
        (
            "0.0.0.0\naux-server=10.0.0.1:3479\naux-server=10.0.0.1:80\n",
            "[\"0.0.0.0:3479\", \"10.0.0.1:80\"]",
        ),
    ] {
        let import = replace(format!("{port}{addresses}").as_bytes());
        assert!(has(&import, "listen", listeners), "{}", import.toml);
    }
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
