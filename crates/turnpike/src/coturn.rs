//! Server operation with a configuration of coturn. The configuration is translated at the start
//! and at each reload into a directory of the server. Commands find the translation there, and the
//! confinement permits the server to read it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use atomic_file::Access;
use control::Handle;
use coturn_config::{Fate, Host, Import, Purpose, Source, User, UserKey, import, left_out};
use settings::{Place, Settings, SettingsErrors};
use turn_types::Secret;
use user_db::{NewUser, StoreError};

use crate::data_directory;
use crate::failure::{Failure, Result};
use crate::users;

/// Maximum size of a configuration file in bytes. Usual configurations have some KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Path of an empty configuration file, used if all options are on the command line.
pub(crate) const NO_FILE: &str = "/dev/null";

/// Name of the translation's directory in the data directory.
const DIRECTORY: &str = "coturn";

/// File name of the translation.
const FILE: &str = "turnpike.toml";

/// File name of the list of users that were imported from coturn's configuration.
const USERS: &str = "users";

/// Directories in which coturn searches for the files in its options, in search order.
pub(crate) const DIRECTORIES: [&str; 8] = [
    ".",
    "turnserver",
    "coturn",
    "etc",
    "/etc",
    "/etc/turnserver",
    "/etc/coturn",
    "/usr/local/etc",
];

/// Finds a file in the directories that coturn searches.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let mut places = DIRECTORIES.iter().map(|directory| Path::new(directory).join(name));
    places.find(|place| place.is_file())
}

/// Host of this process, in whose context coturn's options are interpreted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThisHost;

impl Host for ThisHost {
    /// Returns the absolute path of a file that an option names. If the file does not exist,
    /// returns the name, which then appears in the error.
    fn find(&self, name: &str) -> String {
        if Path::new(name).is_absolute() {
            return name.to_owned();
        }
        let whole = find(name).and_then(|place| std::path::absolute(place).ok());
        whole.map_or_else(|| name.to_owned(), |path| path.display().to_string())
    }

    fn resolve(&self, name: &str) -> Option<IpAddr> {
        let all: Vec<IpAddr> = (name, 0).to_socket_addrs().ok()?.map(|at| at.ip()).collect();
        all.iter().find(|address| address.is_ipv4()).or_else(|| all.first()).copied()
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn has_address(&self, address: IpAddr) -> bool {
        UdpSocket::bind((address, 0)).is_ok()
    }
}

/// Configuration of coturn: a file, and options with precedence over the file.
#[derive(Clone, Debug)]
pub(crate) struct CoturnConfig {
    pub(crate) file: PathBuf,
    pub(crate) options: Vec<String>,
}

impl CoturnConfig {
    /// Returns the path of the translation in a data directory.
    pub(crate) fn translation(data: &Path) -> PathBuf {
        data.join(DIRECTORY).join(FILE)
    }

    fn import(&self, data: &Path) -> Result<Import> {
        // The translation contains paths of secrets, which must be valid in any working directory.
        let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
        let source = Source { file: &read(&self.file)?, arguments: &self.options };
        Ok(import(source, Purpose::Replacement, &data.join(DIRECTORY), &ThisHost))
    }

    /// Translates the configuration. Writes the result and its secrets with access only for the
    /// owner.
    pub(crate) fn translate(&self, data: &Path) -> Result<Import> {
        let imported = self.import(data)?;
        self.refuse_unreadable(&imported)?;
        let written = || {
            let directory = data.join(DIRECTORY);
            atomic_file::make_missing_directory(&directory, Access::PRIVATE_DIRECTORY)?;
            for (path, secret) in &imported.secrets {
                put(Path::new(path), &[secret, &b"\n"[..]].concat())?;
            }
            let head = format!("# Translated from {}; edit there.\n", self.file.display());
            put(&Self::translation(data), (head + &imported.toml).as_bytes())
        };
        written().map_err(|error: io::Error| {
            Failure::failed(anyhow!(
                "cannot write the translation of {}: {error}",
                self.file.display()
            ))
            .hint("name a directory that belongs to the server with --data")
        })?;
        if let Some(url) = &imported.sqlite {
            make_database(url);
        }
        Ok(imported)
    }

    /// Refuses to start if a value is unreadable, because it could be a rule that protects a
    /// network. coturn does not start with such a value either.
    fn refuse_unreadable(&self, imported: &Import) -> Result<()> {
        let mut slips = Vec::new();
        for line in &imported.lines {
            let reason = match &line.fate {
                Fate::Unreadable(reason) => reason,
                // A misspelt option could be such a rule as well.
                Fate::Unknown if line.is_unknown_option() => "coturn has no such option",
                Fate::Unknown | Fate::Taken(_) | Fate::SameHere(_) | Fate::Unsupported(_) => {
                    continue;
                }
            };
            slips.push(format!("{}: {}: {reason}", place(&self.file, line), line.text));
        }
        if slips.is_empty() {
            return Ok(());
        }
        let advice = "correct or remove them";
        Err(Failure::usage(anyhow!("{}", slips.join("\n"))).hint(advice))
    }

    /// Logs each option that is not in effect, with the reason, and each difference from coturn.
    /// Returns `None` if the configuration is unreadable now.
    pub(crate) fn tell(&self, data: &Path) -> Option<CoturnReport> {
        let imported = self.import(data).ok()?;
        let file = self.file.display();
        let left = left_out(&imported);
        let (count, left_count) = (imported.lines.len(), left.len());
        tracing::info!(
            "coturn's configuration {file}: {} of {count} options are in force or the same here",
            count - left_count
        );
        let mut differences = Vec::new();
        for line in &imported.lines {
            let reason = match &line.fate {
                Fate::Taken(_) | Fate::SameHere(_) => continue,
                Fate::Unsupported(reason) | Fate::Unreadable(reason) => reason,
                Fate::Unknown => "coturn has no such option",
            };
            let place = place(&self.file, line);
            tracing::warn!("{place}: {} is not in force: {reason}", line.text);
            differences.push(format!("{place}: {} is not in force: {reason}.", line.text));
        }
        differences.extend(data_directory::warning(data));
        for note in &imported.notes {
            tracing::info!("differs from coturn here: {note}");
            differences.push(note.clone());
        }
        Some(CoturnReport { origins: origins(&self.file, &imported), differences })
    }

    /// Assigns errors of the translation to the lines of coturn's configuration.
    pub(crate) fn at_lines(&self, imported: &Import, mut errors: SettingsErrors) -> SettingsErrors {
        for error in &mut errors.0 {
            if let Some(place) = line_of(&self.file, imported, &error.key) {
                error.place = place;
            }
        }
        errors
    }

    /// Stores the configuration's users in the database. New and changed users are written. Users
    /// of an earlier translation that are missing now are deleted. Other users of the database
    /// remain.
    pub(crate) fn put_users(imported: &Import, settings: &Settings) -> Result<()> {
        let list = settings.data.directory.join(DIRECTORY).join(USERS);
        let earlier = atomic_file::read_state_to_string(&list, FILE_BYTES_MAX).unwrap_or_default();
        if imported.users.is_empty() && earlier.is_empty() {
            return Ok(());
        }
        let failed = |error: StoreError| {
            Failure::failed(error)
                .hint("users of coturn's configuration are kept in users.database")
        };
        let database = settings.database_of_imported();
        let mut store = users::editor(&database).map_err(failed)?;
        let mut names = String::new();
        for user in &imported.users {
            let name = &user.name;
            let user = new_user(&settings.realm, user);
            user.and_then(|user| store.replace(&user)).map_err(failed)?;
            names.push_str(&format!("{}\t{name}\n", &*settings.realm));
        }
        for (realm, name) in earlier.lines().filter_map(|line| line.split_once('\t')) {
            if !names.lines().any(|line| line.split_once('\t') == Some((realm, name))) {
                store.delete(realm, name).map_err(failed)?;
            }
        }
        put(&list, names.as_bytes())
            .map_err(|error| Failure::failed(anyhow!("{}: {error}", list.display())))
    }
}

/// Facts about a configuration of coturn, for operators.
#[derive(Debug)]
pub(crate) struct CoturnReport {
    /// Locations of coturn's options, by key.
    origins: BTreeMap<String, String>,
    differences: Vec<String>,
}

impl CoturnReport {
    /// Shows the differences and the origin of each value to operators. The origin is a line of
    /// coturn's file, because operators edit this file and not the translation.
    pub(crate) fn show(&self, handle: &Handle) {
        let mut keys = handle.configuration().to_vec();
        for key in &mut keys {
            let line = match key.origin {
                Some(_) => self.origins.get(&key.key).cloned(),
                None => coturn_config::option_for(&key.key)
                    .map(|option| format!("default; coturn's option {option} sets it")),
            };
            key.origin = line.or_else(|| key.origin.take());
        }
        handle.set_configuration(keys);
        handle.set_differences(self.differences.clone());
    }
}

/// Returns the locations of the options that became values, by key. The last option of a key has
/// precedence.
fn origins(file: &Path, imported: &Import) -> BTreeMap<String, String> {
    let taken = imported.lines.iter().filter_map(|line| match &line.fate {
        Fate::Taken(keys) => Some((keys, place(file, line))),
        Fate::SameHere(_) | Fate::Unsupported(_) | Fate::Unreadable(_) | Fate::Unknown => None,
    });
    let by_key = |(keys, place): (&String, String)| {
        let keys: Vec<String> = keys.split(", ").map(str::to_owned).collect();
        keys.into_iter().map(move |key| (key, place.clone()))
    };
    taken.flat_map(by_key).collect()
}

/// Creates coturn's SQLite file if it is missing, as coturn does. A failure is reported when the
/// file is opened. Until then clients that need no database are served.
fn make_database(url: &str) {
    let path = url.split_once("://").map(|(_, path)| Path::new(path));
    if path.is_some_and(|path| !path.exists()) {
        let _ = user_db::create_file(url);
    }
}

/// Returns the configured user with the keys for a realm.
///
/// # Errors
/// The name or the password cannot be used.
pub(crate) fn new_user(realm: &str, User { name, key }: &User) -> Result<NewUser, StoreError> {
    match key {
        UserKey::Password(text) => NewUser::new(realm, name, &Secret::new(text.clone()), None),
        UserKey::Bytes(bytes) => NewUser::with_unprepared(realm, name, &Secret::new(bytes.clone())),
        UserKey::Md5(key) => NewUser::with_md5(realm, name, Secret::new(*key), None),
    }
}

/// Reads a configuration file of coturn.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>> {
    if file == Path::new(NO_FILE) {
        return Ok(Vec::new());
    }
    let named = |error: io::Error| anyhow!("{}: {error}", file.display());
    atomic_file::read(file, FILE_BYTES_MAX).map_err(|error| {
        Failure::usage(named(error))
            .hint("name coturn's configuration file: turnpike import coturn FILE")
    })
}

/// Returns the file and line of an option, or "command line".
fn place(file: &Path, line: &coturn_config::Line) -> String {
    if line.is_argument {
        "command line".to_owned()
    } else {
        format!("{}:{}", file.display(), line.number)
    }
}

/// Returns the line of coturn's configuration that sets a key.
pub(crate) fn line_of(file: &Path, imported: &Import, key: &str) -> Option<Place> {
    let is_of = |line: &&coturn_config::Line| matches!(&line.fate, Fate::Taken(keys) if keys.split(", ").any(|one| one == key));
    let line = imported.lines.iter().rev().find(is_of)?;
    let number = (!line.is_argument).then_some(line.number);
    Some(Place::File { path: file.to_owned(), line: number })
}

/// Replaces a file atomically.
fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    atomic_file::replace(path, content, Access::PRIVATE)
}
