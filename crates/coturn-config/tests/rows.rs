//! Rows of coturn's database become parts of a configuration that a server takes, or are accounted
//! for.

use std::fs;

use coturn_config::{AnyHost, Fate, Import, Row, Source, import_with_rows};
use settings::{Environment, Settings};

/// Imports a file with rows, and reads the result as a server would.
fn imported(test: &str, file: &str, rows: &[(&'static str, &[&str])]) -> (Import, Settings) {
    let name = format!("coturn-rows-{test}-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    fs::create_dir_all(&directory).unwrap();
    let rows: Vec<Row> = rows
        .iter()
        .map(|(table, values)| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            Row { table, values }
        })
        .collect();
    let import = import_with_rows(
        Source { file: file.as_bytes(), arguments: &[] },
        &rows,
        &directory,
        &AnyHost,
    );
    for (path, secret) in &import.secrets {
        fs::write(path, secret).unwrap();
    }
    let file = directory.join("turnpike.toml");
    let settings = settings::parse(&file, &import.toml, &Environment::empty());
    let settings = settings.unwrap_or_else(|errors| panic!("{errors}\n{}", import.toml));
    fs::remove_dir_all(directory).unwrap();
    (import, settings)
}

/// The reason of a row that is not taken.
fn reason<'a>(import: &'a Import, text: &str) -> &'a str {
    let line = import.rows.iter().find(|row| row.text == text).unwrap();
    match &line.fate {
        Fate::Unsupported(reason) | Fate::SameHere(reason) => reason,
        other @ (Fate::Taken(_) | Fate::Unknown | Fate::Unreadable(_)) => {
            panic!("{text}: {other:?}")
        }
    }
}

const SECRET: &str = "0123456789abcdef";
const KEY: &str = "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=";

#[test]
fn each_realm_has_its_rows() {
    let file =
        "realm=a.example\nuse-auth-secret\noauth\nuser-quota=3\ndenied-peer-ip=192.0.2.0/24\n";
    let (import, settings) = imported(
        "realms",
        file,
        &[
            ("turn_secret", &["a.example", SECRET]),
            ("turn_secret", &["b.example", "another-secret-of-b"]),
            ("turn_secret", &["b.example", "one-more-secret-of-b"]),
            ("turn_origin_to_realm", &["https://b.example", "b.example"]),
            ("turn_origin_to_realm", &["https://a.example", "a.example"]),
            ("turn_realm_option", &["a.example", "user-quota", "5"]),
            ("turn_realm_option", &["a.example", "total-quota", "50"]),
            ("turn_realm_option", &["b.example", "max-bps", "1000"]),
            ("allowed_peer_ip", &["", "10.0.0.0-10.0.0.255"]),
            ("denied_peer_ip", &["b.example", "198.51.100.0/24"]),
            ("denied_peer_ip", &["b.example", "203.0.113.0/24"]),
            ("denied_peer_ip", &["a.example", "198.51.100.7"]),
            ("oauth_key", &["north", KEY, "0", "0", "", "a.example"]),
            ("admin_user", &["root", "", "hush"]),
            ("turn_origin_to_realm", &["https://c.example", "c.example"]),
        ],
    );
    assert_eq!((settings.secrets.len(), settings.auth.users), (1, false));
    assert_eq!(settings.token_keys.len(), 1);
    assert_eq!(settings.quotas.allocations_per_user.get(), 5);
    assert_eq!(settings.peers.allow[0].0.to_string(), "10.0.0.0/24");
    assert_eq!(settings.peers.deny[0].0.to_string(), "192.0.2.0/24", "that of the file");
    let [b] = settings.realms.as_slice() else { panic!("{}", import.toml) };
    assert_eq!(b.name.as_deref(), Some("b.example"));
    assert_eq!((b.secrets.len(), b.origins.len(), b.peers.deny.len()), (2, 1, 2));
    assert_eq!(b.quotas.bytes_per_second.map(|bytes| bytes.get()), Some(1000));
    let count = b.quotas.allocations_per_user.map(|count| count.get());
    assert_eq!(count, Some(3), "that of the file, and not of the other realm");

    assert!(reason(&import, "https://a.example of realm a.example").contains("of no other realm"));
    assert!(reason(&import, "total-quota of realm a.example").contains("over all realms"));
    assert!(reason(&import, "198.51.100.7 of realm a.example").contains("for all realms"));
    assert!(reason(&import, "https://c.example of realm c.example").contains("nobody logs in"));
    assert!(reason(&import, "administrator root").contains("`turnpike token`"));
    let shown = format!("{:?}", import.rows);
    assert!(!shown.contains("hush") && !shown.contains(SECRET) && !shown.contains(KEY), "{shown}");
    let of_b = import.rows.iter().find(|row| row.text == "realm b.example").unwrap();
    assert_eq!(of_b.count, 2);
    assert_eq!(import.rows.iter().map(|row| row.count).sum::<usize>(), 15);
    let asked = import.lines.iter().find(|line| line.text == "use-auth-secret").unwrap();
    assert!(matches!(asked.fate, Fate::Taken(_)), "{asked:?}");
}

#[test]
fn rows_that_coturn_does_not_read_are_left_out() {
    let file = "realm=a.example\nlt-cred-mech\nno-dynamic-realms\nno-dynamic-ip-list\n";
    let (import, settings) = imported(
        "unread",
        file,
        &[
            ("turn_secret", &["a.example", SECRET]),
            ("turn_origin_to_realm", &["https://b.example", "b.example"]),
            ("turn_realm_option", &["b.example", "max-bps", "1000"]),
            ("allowed_peer_ip", &["", "10.0.0.1"]),
            ("oauth_key", &["north", KEY, "0", "0", "", ""]),
        ],
    );
    assert!(settings.realms.is_empty() && settings.secrets.is_empty());
    assert!(settings.peers.allow.is_empty() && settings.token_keys.is_empty());
    assert_eq!(import.rows.iter().map(|row| row.count).sum::<usize>(), 5);
    assert!(import.rows.iter().all(|row| !matches!(row.fate, Fate::Taken(_))), "{:?}", import.rows);
}

#[test]
fn no_row_opens_the_host_and_no_key_becomes_eternal() {
    let (import, settings) = imported(
        "closed",
        "realm=a.example\noauth\n",
        &[
            ("allowed_peer_ip", &["", "0.0.0.0/0"]),
            ("allowed_peer_ip", &["b.example", "127.0.0.1"]),
            ("allowed_peer_ip", &["b.example", "fe80::1"]),
            ("oauth_key", &["north", KEY, "0", "3600", "", "a.example"]),
            ("oauth_key", &["south", KEY, "0", "0", "", "b.example"]),
        ],
    );
    assert!(settings.peers.allow.is_empty() && settings.token_keys.is_empty());
    assert!(reason(&import, "0.0.0.0/0 of all realms").contains("it opens this host"));
    assert!(reason(&import, "key north").contains("it has an end"));
    // A key of another realm is that realm's, and its tokens name the server as coturn's do.
    let [b] = settings.realms.as_slice() else { panic!("{}", import.toml) };
    assert_eq!((b.name.as_deref(), b.token_keys.len()), (Some("b.example"), 1));
    assert!(b.peers.allow.is_empty());
    assert_eq!(settings.auth.server_name.as_deref(), Some("a.example"));
}
