//! Configuration file -> checked values; differences between two configurations.
//!
//! Invariant: a [`Settings`] that exists is valid as a whole. All errors are found while it is
//! loaded, each with file, line, key, and advice.
//!
//! ```text
//! file.rs, file/ (the keys) -> document.rs (read key by key) -> check.rs (keys together)
//!     -> Settings -> policy.rs (the rules of the server)
//!                 -> diff.rs   (changes of a reload)
//! file.rs, file/ -> keys.rs (the table of keys)
//!     -> reference.rs (docs/configuration.md, the JSON schema)
//! ```
//!
//! A key is declared once, in `file/` (see `section.rs`); all of the above follows from its
//! declaration. The only other place to change is the one that uses its value.
//!
//! Nothing here reads the process's environment; files are read where the configuration names them.
#![forbid(unsafe_code)]

mod check;
mod coturn;
mod database_rules;
mod diff;
mod document;
mod environment;
mod error;
pub mod file;
mod host_addresses;
mod keys;
mod limits;
mod merged;
mod paths;
mod places;
mod policy;
mod realms;
mod redirects;
mod reference;
mod section;
mod settings;
mod suggest;
mod token_key;
pub mod value;

use std::io::Read;
use std::path::Path;

pub use database_rules::{DatabasePeers, DatabaseRealm, DatabaseRules};
pub use diff::{Change, Diff, KeyInForce, diff, keys_in_force};
pub use environment::Environment;
pub use error::{Place, SettingsError, SettingsErrors};
pub use file::{
    AcmeChallenge, CipherSuite, CloudMetadata, DatabaseTable, DefaultFamily, File, KeyExchange,
    LogAddresses, LogFormat, LogLevel, OffloadMode, SignalAction, Tls, TlsVersion,
};
pub use host_addresses::HostAddresses;
pub use paths::{Paths, named_files, paths};
pub use policy::MissingRelay;
pub use reference::{json_schema, reference_markdown};
pub use settings::{CONTROL_SOCKET, CertificateFiles, Settings, Tenant};
pub use value::{
    Database, InterfaceName, OpenRelay, PortRange, RelayEntry, RelayPair, ServiceUrl, WorkerCount,
};

use document::Document;
use error::Errors;

/// The smallest configuration of a public relay, as the documentation shows it.
pub const EXAMPLE: &str = include_str!("public.toml");

/// Loads a configuration: the file, then the environment over it, then the checks.
///
/// Without a file every key has its default, which is a safe server that relays for the users of
/// its database.
///
/// # Errors
/// All errors of the file and the environment.
pub fn load(path: Option<&Path>, environment: &Environment) -> Result<Settings, SettingsErrors> {
    let Some(path) = path else {
        return finish(Document::default(), environment, Errors::default());
    };
    match read(path) {
        Ok(text) => parse(path, &text, environment),
        Err((what, help)) => {
            let mut errors = Errors::default();
            errors.add(Place::File { path: path.to_owned(), line: None }, "", what, help);
            finish(Document::default(), &Environment::empty(), errors)
        }
    }
}

/// As [`load`], of a text that was read from `path` already; relative paths in it are relative to
/// the directory of `path`.
///
/// # Errors
/// As [`load`].
pub fn parse(
    path: &Path,
    text: &str,
    environment: &Environment,
) -> Result<Settings, SettingsErrors> {
    let mut errors = Errors::default();
    let document = Document::parse(path, text, &mut errors);
    finish(document, environment, errors)
}

fn finish(
    mut document: Document,
    environment: &Environment,
    mut errors: Errors,
) -> Result<Settings, SettingsErrors> {
    let unused_variables = document.override_by(environment, &mut errors);
    let file = document.read(&mut errors);
    let settings = check::check(file, &document, &mut errors);
    errors.or(Settings { unused_variables, ..settings })
}

fn read(path: &Path) -> Result<String, (String, String)> {
    let slip = |error: std::io::Error| {
        let help = if error.kind() == std::io::ErrorKind::NotFound {
            "name another one with --config, or create it; docs/configuration.md shows one of five lines"
        } else {
            "it needs to be a text file that the user the server runs as can read"
        };
        (format!("could not be read: {}", reason(&error)), help.to_owned())
    };
    let mut bytes = Vec::new();
    let file = open(path).map_err(slip)?;
    file.take(limits::FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(slip)?;
    if bytes.len() as u64 > limits::FILE_BYTES_MAX {
        let what =
            format!("has more than {}", turn_types::quantity::show_bytes(limits::FILE_BYTES_MAX));
        return Err((what, "this does not look like a configuration file".to_owned()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|b| **b == b'\n')
            .count();
        (format!("is not text: line {line} is not UTF-8"), "save the file as UTF-8".to_owned())
    })
}

/// Opens a regular file to read it. Pipes that this process has already (`/dev/stdin`,
/// `/dev/fd/63` of a shell) are read, and `/dev/null` is an empty file.
fn open(path: &Path) -> std::io::Result<std::fs::File> {
    let own = ["/dev/fd", "/dev/stdin", "/dev/null", "/proc"];
    if own.iter().any(|own| path.starts_with(own)) {
        return std::fs::File::open(path);
    }
    atomic_file::open(path)
}

/// Reason of an I/O error, in words that are the same on all systems.
fn reason(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    let known = [
        (ErrorKind::NotFound, "there is no such file"),
        (ErrorKind::PermissionDenied, "permission denied"),
        (ErrorKind::IsADirectory, "it is a directory"),
    ];
    let reason = known.into_iter().find(|(kind, _)| *kind == error.kind());
    reason.map_or_else(|| error.to_string(), |(_, reason)| reason.to_owned())
}
