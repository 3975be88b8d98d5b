//! A configuration of coturn: from a seed, or a file.

use std::net::IpAddr;

use super::random::Random;

/// Marks the directory of a server's files in a configuration.
pub(super) const DIRECTORY: &str = "@DIRECTORY@";

/// A file of coturn.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The file, in which `@DIRECTORY@` is the directory of its server.
    pub text: Vec<u8>,
    /// Credentials of which the file may have some.
    pub credentials: Vec<Credential>,
}

/// A name and a password, or a secret by which names are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// A user.
    User {
        /// The name.
        name: String,
        /// The password.
        password: String,
    },
    /// A shared secret.
    Secret(Vec<u8>),
}

/// Lines without a value of their own, some of them of another version than Debian's.
const SWITCHES: [&str; 24] = [
    "fingerprint",
    "no-multicast-peers",
    "no-tcp-relay",
    "no-dtls",
    "no-tls",
    "no-tlsv1",
    "no-tlsv1_1",
    "no-sslv3",
    "no-loopback-peers",
    "mobility",
    "stun-only",
    "no-tcp",
    "secure-stun",
    "no-cli",
    "verbose",
    "simple-log",
    "no-stdout-log",
    "new-log-timestamp",
    "check-origin-consistency",
    "keep-address-family",
    "no-software-attribute",
    "no-rfc5780",
    "stale-nonce",
    "no-stun-backward-compatibility",
];

/// Lines with values, good and bad ones.
const VALUES: [(&str, &[&str]); 31] = [
    ("listening-ip", &["10.77.1.1", "0.0.0.0", "::", "relay.lab", "fd77:1::1"]),
    ("relay-ip", &["10.77.1.1", "10.77.2.1", "relay.lab"]),
    ("external-ip", &["198.51.100.7", "198.51.100.7/10.77.1.1", "relay.lab", "10.77.1.1"]),
    ("tls-listening-port", &["5349", "3479", "443"]),
    ("alt-listening-port", &["3479", "0"]),
    ("min-port", &["49152", "50000", "1024", "10000"]),
    ("max-port", &["65535", "60000", "50100"]),
    ("user-quota", &["12", "0", "100"]),
    ("total-quota", &["1200", "0", "100"]),
    ("max-bps", &["3000000", "0", "64000"]),
    ("stale-nonce", &["600", "0", "60", "3600"]),
    ("max-allocate-lifetime", &["3600", "600", "100000"]),
    ("channel-lifetime", &["600", "1200"]),
    ("permission-lifetime", &["300", "600"]),
    (
        "denied-peer-ip",
        &["10.0.0.0-10.255.255.255", "9.9.9.0-9.9.9.255", "8.8.8.8", "fd77::-fd77:ffff::"],
    ),
    ("allowed-peer-ip", &["10.77.2.2", "9.9.9.9", "10.77.0.0-10.77.255.255"]),
    (
        "cert",
        &["@DIRECTORY@/no-such.pem", "@DIRECTORY@/chain.pem", "/etc/letsencrypt/live/a/cert.pem"],
    ),
    (
        "pkey",
        &["@DIRECTORY@/no-such.key", "@DIRECTORY@/key.pem", "/etc/letsencrypt/live/a/key.pem"],
    ),
    ("cipher-list", &["ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384", "ALL"]),
    ("dh-file", &["@DIRECTORY@/no-such.pem"]),
    ("log-file", &["@DIRECTORY@/turn.log", "/no-such-directory/turn.log", "syslog"]),
    ("pidfile", &["@DIRECTORY@/turn.pid", "/no-such-directory/turn.pid"]),
    ("proc-user", &["root"]),
    (
        "cli-password",
        &[
            "x",
            "$5$79a316b350311570$81df9cfb9af7f5e5a76eada31e7097b663a0670f99a3c07ded3f1c8e59c5658a",
        ],
    ),
    ("cli-ip", &["127.0.0.1"]),
    ("relay-threads", &["1", "2"]),
    ("server-name", &["turn.example.org"]),
    ("max-allocate-timeout", &["60"]),
    ("allocation-default-address-family", &["ipv4", "keep"]),
    ("userdb", &["@DIRECTORY@/turndb", "@DIRECTORY@/no-such/turndb"]),
    ("syslog-facility", &["LOG_LOCAL1"]),
];

const REALMS: [&str; 8] = [
    "example.org",
    "turn.example.org",
    "north realm",
    "\u{f6}rtlich",
    "a",
    "",
    "x.y#z",
    "Example.ORG",
];

const PASSWORDS: [&str; 8] =
    ["correct-horse", "a:b=c", "p\u{e4}ss", "with blank", "x", "\"q", "0xyz", "semi;colon"];

const NAMES: [&str; 6] = ["alice", "Bob", "j\u{f6}rg", "user name", "a.b@c", "007"];

const SECRETS: [&str; 7] = [
    "0123456789abcdef0123456789abcdef",
    "north",
    "short-one",
    "b2NhdGFyaW5hIG9mIHRpbWU=",
    "with blank inside it",
    "s\u{f6}ren kierkegaard",
    "a=b;c#d\"e'f-g-h-i",
];

impl Configuration {
    /// The configuration of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut credentials = Vec::new();
        let mut lines: Vec<Vec<u8>> = Vec::new();
        if random.percent(85) {
            let realm = random.one(&REALMS);
            lines.push(written(&mut random, "realm", realm).0);
        }
        authentication(&mut random, &mut lines, &mut credentials);
        for _ in 0..random.below(12) {
            let line = if random.percent(45) {
                random.one(&SWITCHES).as_bytes().to_vec()
            } else {
                let (name, values) = random.one(&VALUES);
                let value = random.one(values);
                written(&mut random, name, value).0
            };
            let at = random.below(lines.len() + 1);
            lines.insert(at, line);
        }
        if random.percent(10) {
            let at = random.below(lines.len() + 1);
            lines.insert(at, strange(&mut random));
        }
        let end: &[u8] = if random.percent(10) { b"\r\n" } else { b"\n" };
        let mut text = Vec::new();
        for line in lines {
            text.extend(line);
            text.extend(end);
        }
        Self { text, credentials }
    }

    /// Value of the last line that names a realm, as coturn reads it.
    pub(super) fn realm(&self) -> String {
        self.values("realm").pop().unwrap_or_default()
    }

    /// Port of the listeners.
    pub(super) fn port(&self) -> u16 {
        let value = self.values("listening-port").pop().unwrap_or_default();
        let end = value.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(value.len());
        value[..end].parse().unwrap_or(3478)
    }

    /// Returns true for the public address of a pair.
    pub(super) fn is_of_pair(&self, address: IpAddr) -> bool {
        let of = |value: &String| value.split_once('/').map(|(public, _)| public.parse());
        self.values("external-ip").iter().any(|value| of(value) == Some(Ok(address)))
    }

    /// Returns true if coturn ignores a rule for peers because of its quotes, of a comment or of a
    /// prefix length.
    pub(super) fn has_unread_rule(&self) -> bool {
        self.values("denied-peer-ip").iter().any(|value| value.contains(['#', ';', '\'', '/']))
    }

    /// Returns true if relays have the family of the client, and IPv4 clients arrive at an IPv6
    /// listener.
    pub(super) fn maps_families(&self) -> bool {
        let keeps = self.values("allocation-default-address-family").iter().any(|v| v == "keep")
            || !self.values("keep-address-family").is_empty();
        keeps && self.values("listening-ip").iter().any(|value| value == "::")
    }

    /// Returns true if several lines name the account or the group of the process.
    pub(super) fn has_earlier_account(&self) -> bool {
        ["proc-user", "proc-group"].iter().any(|name| self.values(name).len() > 1)
    }

    /// Returns true for the one public address of a server that listens at each address.
    pub(super) fn is_public_of_any(&self, address: IpAddr) -> bool {
        let is_any = |value: &String| value == "0.0.0.0" || value == "::";
        let listening = self.values("listening-ip");
        let is_public = |value: &String| value.parse() == Ok(address);
        (listening.is_empty() || listening.iter().any(is_any))
            && self.values("external-ip").iter().any(is_public)
    }

    /// Values of an option's lines.
    fn values(&self, name: &str) -> Vec<String> {
        let text = self.shown();
        let values = text.lines().filter_map(|line| {
            let rest = line.trim().strip_prefix(name)?;
            let value = rest.trim_start_matches([' ', '=', '\t']);
            let value = match value.strip_prefix('"') {
                Some(inner) => inner.strip_suffix('"').unwrap_or(inner),
                None => value,
            };
            (rest.is_empty() || rest.len() > value.len()).then(|| value.to_owned())
        });
        values.collect()
    }

    /// The file as text, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

/// Lines by which clients prove who they are, and what may be in them.
fn authentication(
    random: &mut Random,
    lines: &mut Vec<Vec<u8>>,
    credentials: &mut Vec<Credential>,
) {
    let by_user = random.percent(55);
    let by_secret = if by_user { random.percent(8) } else { random.percent(90) };
    if by_user {
        if random.percent(85) {
            lines.push(switch(random, "lt-cred-mech"));
        }
        for _ in 0..=random.below(2) {
            let (name, password) = (random.one(&NAMES), random.one(&PASSWORDS));
            let value = match random.below(12) {
                0 => format!("{name}:"),
                1 => name.to_owned(),
                2 => format!("{name}: {password}"),
                _ => format!("{name}:{password}"),
            };
            let (line, literal) = written(random, "user", &value);
            lines.push(line);
            for one in [value, literal] {
                if let Some((name, password)) = one.split_once(':') {
                    let (name, password) = (name.to_owned(), password.to_owned());
                    credentials.push(Credential::User { name, password });
                }
            }
        }
    }
    if by_secret {
        if random.percent(85) {
            lines.push(switch(random, "use-auth-secret"));
        }
        for _ in 0..=random.below(2) {
            let secret = random.one(&SECRETS);
            let (line, literal) = if random.percent(5) {
                latin1("static-auth-secret", secret)
            } else {
                let (line, literal) = written(random, "static-auth-secret", secret);
                (line, literal.into_bytes())
            };
            lines.push(line);
            credentials.push(Credential::Secret(secret.as_bytes().to_vec()));
            credentials.push(Credential::Secret(literal));
        }
    }
    if credentials.is_empty() {
        let (name, password) = ("nobody".to_owned(), "nothing".to_owned());
        credentials.push(Credential::User { name, password });
    }
    let mut different: Vec<Credential> = Vec::new();
    for one in credentials.drain(..) {
        if !different.contains(&one) {
            different.push(one);
        }
    }
    *credentials = different;
}

fn switch(random: &mut Random, name: &str) -> Vec<u8> {
    let value = if random.percent(90) { "" } else { random.one(&["=true", "=1", " yes", "=on"]) };
    format!("{name}{value}").into_bytes()
}

/// A line in one of the forms that people write, and its value as it stands there.
fn written(random: &mut Random, name: &str, value: &str) -> (Vec<u8>, String) {
    let (between, literal) = match random.below(24) {
        0 => (" ", value.to_owned()),
        1 => (" = ", value.to_owned()),
        2 => ("=", format!("\"{value}\"")),
        3 => ("=", format!("'{value}'")),
        4 => ("=", format!("{value} # a comment")),
        5 => ("==", value.to_owned()),
        6 => ("=\t", format!("{value}  ")),
        7 => ("= ", format!("\"{value}\" ")),
        8 => ("=", format!("{value};")),
        _ => ("=", value.to_owned()),
    };
    let line = format!("{name}{between}{literal}").into_bytes();
    (line, literal.trim_end().to_owned())
}

/// A line in the encoding of an old editor.
fn latin1(name: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    let bytes: Vec<u8> =
        value.chars().map(|sign| u8::try_from(u32::from(sign)).unwrap_or(b'?')).collect();
    let mut line = format!("{name}=").into_bytes();
    line.extend(&bytes);
    (line, bytes)
}

/// A line that is none.
fn strange(random: &mut Random) -> Vec<u8> {
    match random.below(7) {
        0 => b"# realm=other.example".to_vec(),
        1 => b"   \t".to_vec(),
        2 => b"no-such-option=1".to_vec(),
        3 => b"--verbose".to_vec(),
        4 => b"[section]".to_vec(),
        5 => format!("realm={}", "x".repeat(100 + random.below(1200))).into_bytes(),
        _ => b"=value".to_vec(),
    }
}

/// The text of a file with `new` in place of each `old`.
pub(super) fn replaced(text: &[u8], old: &str, new: &str) -> Vec<u8> {
    let mut whole = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.windows(old.len()).position(|bytes| bytes == old.as_bytes()) {
        whole.extend(&rest[..at]);
        whole.extend(new.as_bytes());
        rest = &rest[at + old.len()..];
    }
    whole.extend(rest);
    whole
}
