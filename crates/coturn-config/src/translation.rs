//! From options of coturn to keys of Turnpike, and the account of every line.

mod access;
mod addresses;
mod database;
mod limits;
mod rows;
mod service;
mod tls;

use std::net::IpAddr;
use std::path::Path;

pub use self::database::url as database_url;
pub use self::rows::{Row, RowLine};
use crate::options::{self, CoturnOption, Counterpart, OPTIONS, Takes};
use crate::peers::Range;
use crate::syntax::{self, Written};
use crate::toml::Toml;

/// The result of an import.
#[derive(Debug)]
pub struct Import {
    /// The configuration file.
    pub toml: String,
    /// Shared secrets, each for a file of its own; the file's path is in the configuration.
    pub secrets: Vec<(String, Vec<u8>)>,
    /// Users, of the realm in the configuration.
    pub users: Vec<User>,
    /// URL of coturn's SQLite file, which coturn creates if there is none.
    pub sqlite: Option<String>,
    /// The realm, if one was set.
    pub realm: Option<String>,
    /// Every option, in the order of the file.
    pub lines: Vec<Line>,
    /// Rows of coturn's database, in their order.
    pub rows: Vec<RowLine>,
    /// Differences in behaviour that no line says.
    pub notes: Vec<String>,
}

/// A user of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its password or key.
    pub key: UserKey,
}

/// A password, or the key that is made of it.
#[derive(Debug, PartialEq, Eq)]
pub enum UserKey {
    /// The password, of ASCII.
    Password(String),
    /// Bytes of a password that is not ASCII. coturn computes the key without preparing them.
    Bytes(Vec<u8>),
    /// MD5 of name, realm and password (RFC 8489 §9.2.2).
    Md5([u8; 16]),
}

/// An option and its fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Line of the file, or number of the word on the command line; from 1.
    pub number: usize,
    /// True on the command line.
    pub is_argument: bool,
    /// Name of the option.
    pub name: String,
    /// The line, without secrets.
    pub text: String,
    /// Its fate.
    pub fate: Fate,
}

impl Line {
    /// Returns true for a word of a command line with which coturn does not start.
    #[must_use]
    pub fn is_unknown_option(&self) -> bool {
        self.is_argument && self.fate == Fate::Unknown && self.text.starts_with('-')
    }
}

/// Fate of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Taken: the keys.
    Taken(String),
    /// The same here without a key, or without a meaning here: the reason.
    SameHere(String),
    /// Not supported: the reason, or the way that is offered instead.
    Unsupported(String),
    /// No option of coturn.
    Unknown,
    /// The value cannot be read: the reason.
    Unreadable(String),
}

/// Coturn's configuration: its file, and words of a command line, which are read behind it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The content of the file.
    pub file: &'a [u8],
    /// The words.
    pub arguments: &'a [String],
}

/// Purpose of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A configuration with which an operator leaves coturn, with this server's own defaults.
    Migration,
    /// A server in coturn's place, which serves whom coturn serves with the same file.
    Replacement,
}

/// The host on which coturn's options mean something.
pub trait Host {
    /// Path of a file that an option names. coturn searches several directories.
    fn find(&self, name: &str) -> String;

    /// Address of a host name. Prefers IPv4.
    fn resolve(&self, name: &str) -> Option<IpAddr>;

    /// Returns true for a file or directory.
    fn exists(&self, path: &Path) -> bool;

    /// Returns true for an address of the host.
    fn has_address(&self, address: IpAddr) -> bool;
}

/// An unknown host: every named file and address exists, and no host name has an address.
#[derive(Clone, Copy, Debug)]
pub struct AnyHost;

impl Host for AnyHost {
    fn find(&self, name: &str) -> String {
        name.to_owned()
    }

    fn resolve(&self, _: &str) -> Option<IpAddr> {
        None
    }

    fn exists(&self, _: &Path) -> bool {
        true
    }

    fn has_address(&self, _: IpAddr) -> bool {
        true
    }
}

/// Translates a configuration. Secrets are to be stored below `directory`.
#[must_use]
pub fn import(source: Source<'_>, purpose: Purpose, directory: &Path, host: &dyn Host) -> Import {
    let mut work = Work::new(source, purpose);
    work.look_at(host);
    translated(work, &[], directory)
}

/// The same for [`Purpose::Migration`] with rows of coturn's database besides users, for a server
/// that leaves that database.
#[must_use]
pub fn import_with_rows(
    source: Source<'_>,
    rows: &[Row],
    directory: &Path,
    host: &dyn Host,
) -> Import {
    let mut work = Work::new(source, Purpose::Migration);
    work.look_at(host);
    translated(work, rows, directory)
}

fn translated(mut work: Work, rows: &[Row], directory: &Path) -> Import {
    addresses::translate(&mut work);
    access::translate(&mut work, directory);
    database::server_name(&mut work);
    database::statistics(&mut work, directory);
    limits::translate(&mut work);
    tls::translate(&mut work, directory);
    service::translate(&mut work);
    let lines = rows::translate(&mut work, rows, directory);
    work.finish(lines)
}

/// An import that goes on.
struct Work {
    purpose: Purpose,
    written: Vec<Entry>,
    toml: Toml,
    secrets: Vec<(String, Vec<u8>)>,
    /// Names and files of the secrets of the server's own realm.
    auth_secrets: Vec<(String, String)>,
    /// Private addresses of `external-ip` that the host lacks.
    absent: Vec<IpAddr>,
    /// Peers of all realms.
    allowed_peers: Vec<Range>,
    denied_peers: Vec<Range>,
    users: Vec<User>,
    sqlite: Option<String>,
    notes: Vec<String>,
}

struct Entry {
    written: Written,
    /// `None`: coturn has no such option.
    option: Option<&'static CoturnOption>,
    is_argument: bool,
    fate: Fate,
}

/// Options whose values are not shown.
const SECRET: [&str; 12] = [
    "user",
    "static-auth-secret",
    "cli-password",
    "pkey-pwd",
    "stateless-nonce-secret",
    "psql-userdb",
    "sql-userdb",
    "mysql-userdb",
    "mongo-userdb",
    "redis-userdb",
    "redis-statsdb",
    "secret-key-file",
];

/// Options that name files which coturn searches.
const FILES: [&str; 3] = ["cert", "pkey", "CA-file"];

/// Fate of a missing file of authorities.
const NO_AUTHORITIES: &str = "there is no such file; coturn serves no TLS without it, either";

/// Options that name addresses, which may be names of hosts.
const ADDRESSES: [&str; 8] = [
    "listening-ip",
    "relay-ip",
    "external-ip",
    "aux-server",
    "alternate-server",
    "udp-alternate-server",
    "tcp-alternate-server",
    "tls-alternate-server",
];

/// Options whose values are bytes.
const BYTES: [&str; 4] = ["user", "static-auth-secret", "stateless-nonce-secret", "pkey-pwd"];

impl Entry {
    fn new(written: Written, is_argument: bool) -> Self {
        let option = OPTIONS.iter().find(|option| option.name == written.name);
        Self { fate: first_fate(option, &written), option, written, is_argument }
    }

    /// The value of a switch; `None` if coturn does not start with it.
    fn is_on(&self) -> Option<bool> {
        match self.option.map(|option| option.takes) {
            Some(Takes::Flag) => Some(true),
            Some(Takes::Switch | Takes::Value) | None => syntax::switch(&self.written.value),
        }
    }
}

impl Work {
    fn new(Source { file, arguments }: Source<'_>, purpose: Purpose) -> Self {
        let file = syntax::file(file).into_iter().map(|written| Entry::new(written, false));
        let arguments = syntax::arguments(arguments).into_iter();
        let arguments = arguments.map(|written| Entry::new(written, true));
        Self {
            purpose,
            written: file.chain(arguments).collect(),
            toml: Toml::default(),
            secrets: Vec::new(),
            auth_secrets: Vec::new(),
            absent: Vec::new(),
            allowed_peers: Vec::new(),
            denied_peers: Vec::new(),
            users: Vec::new(),
            sqlite: None,
            notes: Vec::new(),
        }
    }

    /// Replaces names of files and hosts. A server in coturn's place does not need files that
    /// coturn does not need.
    fn look_at(&mut self, host: &dyn Host) {
        let replaces = self.replaces();
        let absent = |value: &str| {
            let private = value.split_once('/')?.1.parse::<IpAddr>().ok()?;
            (!host.has_address(private)).then_some(private)
        };
        for Entry { written, fate, .. } in &mut self.written {
            if FILES.contains(&&*written.name) {
                let word = syntax::word(&written.value);
                written.value = if word.is_empty() { String::new() } else { host.find(word) };
                if written.name == "CA-file" && replaces && !host.exists(written.value.as_ref()) {
                    *fate = Fate::Unsupported(NO_AUTHORITIES.to_owned());
                }
            } else if ADDRESSES.contains(&&*written.name) {
                if replaces && syntax::word(&written.value).len() < written.value.trim().len() {
                    let reason = "an address is expected, with nothing behind it; coturn leaves the line out as well";
                    *fate = Fate::Unsupported(reason.to_owned());
                }
                written.value = addresses::resolved(syntax::word(&written.value), host);
                self.absent.extend(absent(&written.value));
            } else if matches!(&*written.name, "denied-peer-ip" | "allowed-peer-ip") {
                written.value = access::resolved(&written.value, host);
            } else if replaces && matches!(&*written.name, "userdb" | "db") {
                let directory = Path::new(syntax::word(&written.value)).parent();
                if directory.is_some_and(|directory| !host.exists(directory)) {
                    let reason =
                        "there is no such directory; coturn goes on without the database as well";
                    *fate = Fate::Unsupported(reason.to_owned());
                }
            }
        }
    }

    /// Sets the fate of a line that coturn ignores with a message. A server in coturn's place
    /// ignores the line as well.
    fn left_out(&mut self, index: usize, expected: &str) {
        if self.replaces() {
            let reason = format!("{expected} is expected; coturn leaves the line out as well");
            self.set(index, Fate::Unsupported(reason));
        } else {
            self.unreadable(index, expected);
        }
    }

    /// Returns true if the file of clients' authorities is missing, without which coturn serves no
    /// TLS.
    fn lacks_authorities(&self) -> bool {
        self.written.iter().any(|entry| {
            entry.written.name == "CA-file" && matches!(entry.fate, Fate::Unsupported(_))
        })
    }

    /// Returns true for a server in coturn's place.
    const fn replaces(&self) -> bool {
        matches!(self.purpose, Purpose::Replacement)
    }

    /// Indices of an option's lines that are to be taken.
    fn all(&self, name: &str) -> Vec<usize> {
        debug_assert!(options::find(name).is_some(), "{name} is no option");
        let is = |entry: &Entry| entry.written.name == name && matches!(entry.fate, Fate::Taken(_));
        (0..self.written.len()).filter(|index| is(&self.written[*index])).collect()
    }

    /// The last line of an option: it wins.
    fn last(&self, name: &str) -> Option<usize> {
        self.all(name).last().copied()
    }

    /// Returns true if a switch is on. Includes switches that are not taken.
    fn is_on(&self, name: &str) -> bool {
        let is = |entry: &&Entry| entry.written.name == name;
        let last = self.written.iter().rev().find(is);
        last.is_some_and(|entry| entry.is_on() == Some(true))
    }

    /// The value of a line.
    fn value(&self, index: usize) -> &str {
        &self.written[index].written.value
    }

    /// The same as it was written.
    fn bytes(&self, index: usize) -> Vec<u8> {
        self.written[index].written.bytes.clone()
    }

    /// The value of an option's last line, without a comment behind it.
    fn word(&self, name: &str) -> Option<&str> {
        self.last(name).map(|index| syntax::word(self.value(index)))
    }

    /// The number of an option's last line; an unreadable one is reported.
    fn number(&mut self, name: &str) -> Option<u64> {
        let index = self.last(name)?;
        let number = syntax::number(self.value(index));
        if number.is_none() {
            self.set(index, Fate::Unreadable("a number is expected".to_owned()));
        }
        number
    }

    fn set(&mut self, index: usize, fate: Fate) {
        self.written[index].fate = fate;
    }

    fn unreadable(&mut self, index: usize, expected: &str) {
        self.set(index, Fate::Unreadable(format!("{expected} is expected")));
    }

    /// Gives all lines of a switch that is on another fate.
    fn settle(&mut self, name: &str, fate: &Fate) {
        for entry in self.written.iter_mut().filter(|entry| entry.written.name == name) {
            if entry.is_on() == Some(true) {
                entry.fate = fate.clone();
            }
        }
    }

    /// With use-auth-secret coturn accepts time-limited credentials alone.
    fn refuse_users(&mut self) {
        let comment = "use-auth-secret: coturn accepts no users besides";
        self.toml.set("auth.users", "false".to_owned(), comment);
    }

    fn finish(mut self, rows: Vec<RowLine>) -> Import {
        for note in &self.notes {
            self.toml.note(format!("- {note}"));
        }
        let lines = self.written.iter().map(|entry| Line {
            number: entry.written.line,
            is_argument: entry.is_argument,
            name: entry.written.name.clone(),
            text: shown(entry),
            fate: entry.fate.clone(),
        });
        Import {
            lines: lines.collect(),
            rows,
            realm: self.word("realm").map(str::to_owned),
            toml: self.toml.text(),
            secrets: self.secrets,
            users: self.users,
            sqlite: self.sqlite,
            notes: self.notes,
        }
    }
}

/// Fate by the option alone.
fn first_fate(option: Option<&CoturnOption>, written: &Written) -> Fate {
    let Some(option) = option else { return Fate::Unknown };
    if option.takes == Takes::Switch {
        match syntax::switch(&written.value) {
            Some(true) => {}
            Some(false) if option.name == "no-dtls" || option.name == "dtls" => {}
            Some(false) => return Fate::SameHere("it is off".to_owned()),
            None => return Fate::Unreadable("coturn does not start with this value".to_owned()),
        }
    }
    let is_bytes = BYTES.contains(&option.name) || option.takes == Takes::Flag;
    match option.counterpart {
        Counterpart::Keys(_) if !is_bytes && !written.is_text() => {
            Fate::Unreadable("it is not UTF-8: save the file in UTF-8".to_owned())
        }
        Counterpart::Keys(keys) => Fate::Taken(keys.to_owned()),
        Counterpart::Always(reason) => Fate::SameHere(reason.to_owned()),
        Counterpart::Unsupported(reason) => Fate::Unsupported(reason.to_owned()),
    }
}

/// A line without secrets. The value of a misspelt option may be a secret.
fn shown(Entry { written, option, is_argument, .. }: &Entry) -> String {
    if *is_argument && !written.text.starts_with('-') {
        return "<a word without an option>".to_owned();
    }
    if option.is_none() {
        let hidden = if written.value.is_empty() { "" } else { "=<hidden>" };
        let dashes = if *is_argument { "--" } else { "" };
        return format!("{dashes}{}{hidden}", written.name);
    }
    if SECRET.contains(&written.name.as_str()) {
        let user = written.value.split_once(':').filter(|_| written.name == "user");
        let name = user.map(|(name, _)| format!("{name}:")).unwrap_or_default();
        return format!("{}={name}<hidden>", written.name);
    }
    written.text.clone()
}
