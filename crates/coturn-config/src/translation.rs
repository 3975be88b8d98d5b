//! From options of coturn to keys of Turnpike, and the account of every line.

mod access;
mod addresses;
mod database;
mod limits;
mod rows;
mod service;
mod tls;

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
    pub secrets: Vec<(String, String)>,
    /// Users, of the realm in the configuration.
    pub users: Vec<User>,
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
    /// The password.
    Password(String),
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
    /// The line, without secrets.
    pub text: String,
    /// Its fate.
    pub fate: Fate,
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

/// Translates the text of a file and words of a command line, which are read behind it. Secrets are
/// to be stored below `directory`.
#[must_use]
pub fn import(file: &str, arguments: &[String], directory: &Path) -> Import {
    import_with_rows(file, arguments, &[], directory)
}

/// The same with rows of coturn's database besides users, for a server that leaves that database.
#[must_use]
pub fn import_with_rows(
    file: &str,
    arguments: &[String],
    rows: &[Row],
    directory: &Path,
) -> Import {
    translated(Work::new(syntax::file(file), syntax::arguments(arguments)), rows, directory)
}

/// As [`import`]; `find` returns the path of a file that an option names: coturn searches it in
/// several places.
#[must_use]
pub fn import_found(
    file: &str,
    arguments: &[String],
    directory: &Path,
    find: &dyn Fn(&str) -> String,
) -> Import {
    let mut work = Work::new(syntax::file(file), syntax::arguments(arguments));
    for entry in work.written.iter_mut().filter(|entry| FILES.contains(&&*entry.written.name)) {
        entry.written.value = find(syntax::word(&entry.written.value));
    }
    translated(work, &[], directory)
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
    written: Vec<Entry>,
    toml: Toml,
    secrets: Vec<(String, String)>,
    /// Names and files of the secrets of the server's own realm.
    auth_secrets: Vec<(String, String)>,
    /// Peers of all realms.
    allowed_peers: Vec<Range>,
    denied_peers: Vec<Range>,
    users: Vec<User>,
    notes: Vec<String>,
}

struct Entry {
    written: Written,
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

impl Work {
    fn new(file: Vec<Written>, arguments: Vec<Written>) -> Self {
        let entry = |is_argument, written: Written| {
            let option = OPTIONS.iter().find(|option| option.name == written.name);
            Entry { fate: first_fate(option, &written), written, is_argument }
        };
        let file = file.into_iter().map(|written| entry(false, written));
        let arguments = arguments.into_iter().map(|written| entry(true, written));
        Self {
            written: file.chain(arguments).collect(),
            toml: Toml::default(),
            secrets: Vec::new(),
            auth_secrets: Vec::new(),
            allowed_peers: Vec::new(),
            denied_peers: Vec::new(),
            users: Vec::new(),
            notes: Vec::new(),
        }
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

    /// True if a switch is on. Switches that are not taken count as well.
    fn is_on(&self, name: &str) -> bool {
        let is = |entry: &&Entry| entry.written.name == name;
        let last = self.written.iter().rev().find(is);
        last.is_some_and(|entry| syntax::switch(&entry.written.value) == Some(true))
    }

    /// The value of a line.
    fn value(&self, index: usize) -> &str {
        &self.written[index].written.value
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
            if syntax::switch(&entry.written.value) == Some(true) {
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
            text: shown(&entry.written),
            fate: entry.fate.clone(),
        });
        Import {
            lines: lines.collect(),
            rows,
            realm: self.word("realm").map(str::to_owned),
            toml: self.toml.text(),
            secrets: self.secrets,
            users: self.users,
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
    match option.counterpart {
        Counterpart::Keys(keys) => Fate::Taken(keys.to_owned()),
        Counterpart::Always(reason) => Fate::SameHere(reason.to_owned()),
        Counterpart::Unsupported(reason) => Fate::Unsupported(reason.to_owned()),
    }
}

/// A line without secrets.
fn shown(written: &Written) -> String {
    if SECRET.contains(&written.name.as_str()) {
        let user = written.value.split_once(':').filter(|_| written.name == "user");
        let name = user.map(|(name, _)| format!("{name}:")).unwrap_or_default();
        return format!("{}={name}<hidden>", written.name);
    }
    written.text.clone()
}
