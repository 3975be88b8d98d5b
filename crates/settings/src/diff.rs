//! Differences between two configurations, key by key, and the one that a reload puts in force.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::check::ports::check_in_force;
use crate::error::{Errors, Place, SettingsErrors};
use crate::keys::{Applied, Key, keys};
use crate::reference::toml;
use crate::section::Section as _;
use crate::settings::Settings;

/// A changed key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key, such as `relay.ports`.
    pub key: &'static str,
    /// The old value, as in a file; `none` when it was left out; secrets are `<secret>`.
    pub old: String,
    /// The new value.
    pub new: String,
}

/// Changed keys, by the time when they take effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// A reload applies these.
    pub live: Vec<Change>,
    /// These take effect when the server is started again.
    pub needs_restart: Vec<Change>,
}

impl Diff {
    /// Returns whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.needs_restart.is_empty()
    }
}

/// A key of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInForce {
    /// The key, such as `relay.ports`.
    pub key: &'static str,
    /// Its value, as in a file; `none` when it was left out; secrets are `<secret>`.
    pub value: String,
    /// Place of the value; `None` for a default.
    pub place: Option<Place>,
    /// True if a reload applies a change.
    pub is_live: bool,
}

/// All keys with their values and places, in the order of the reference page.
#[must_use]
pub fn keys_in_force(settings: &Settings) -> Vec<KeyInForce> {
    let file = values(settings);
    let key = |key: &'static Key| {
        let place = settings.places.keys.get(&*key.path).map(|place| place.key.clone());
        let value = match key.path.as_str() {
            // Both become an entry of auth.secrets.
            "auth.secret" | "auth.secret_file" if place.is_some() => "<secret>".to_owned(),
            "auth.secret" | "auth.secret_file" => "none".to_owned(),
            _ => shown(key, settings, &file),
        };
        KeyInForce { key: &key.path, value, place, is_live: key.applied() == Applied::Live }
    };
    keys().map(key).collect()
}

/// Compares two configurations, in the order of the reference page.
#[must_use]
pub fn diff(old: &Settings, new: &Settings) -> Diff {
    let mut diff = Diff::default();
    let [before, after] = [old, new].map(values);
    for key in keys() {
        let same = match key.path.as_str() {
            "auth.secrets" => old.secrets == new.secrets,
            "auth.token_keys" => old.token_keys == new.token_keys,
            "auth.nonce_key_file" => old.nonce_key == new.nonce_key,
            "signed_tokens.secret_file" => old.signed_secret == new.signed_secret,
            "authorizer.authorization_file" => old.authorization == new.authorization,
            "log.address_key_file" => old.address_key == new.address_key,
            "realms" => old.realms == new.realms && old.tenants == new.tenants,
            // A password in it is not shown, and a change of it counts.
            "users.database" => old.users.database == new.users.database,
            "users.database_file" => old.database_of_file == new.database_of_file,
            "accounting.redis" => old.accounting.redis == new.accounting.redis,
            "accounting.redis_file" => old.statistics_of_file == new.statistics_of_file,
            _ => true,
        };
        let old = shown(key, old, &before);
        let mut new = shown(key, new, &after);
        if same && old == new {
            continue;
        }
        let other = match key.path.as_str() {
            "auth.nonce_key_file" | "log.address_key_file" => ", with another key",
            "authorizer.authorization_file" | "signed_tokens.secret_file" => ", with another text",
            "realms" => " with other rules",
            _ => "",
        };
        if old == new {
            new.push_str(other);
        }
        let list = match key.applied() {
            Applied::Live => &mut diff.live,
            Applied::Restart => &mut diff.needs_restart,
        };
        list.push(Change { key: &key.path, old, new });
    }
    diff
}

impl Settings {
    /// The configuration that a reload of `new` puts in force: keys that only a restart changes
    /// keep their values.
    ///
    /// # Errors
    /// The values of both do not go together.
    pub fn reloaded(&self, new: &Self) -> Result<Self, SettingsErrors> {
        let mut merged = new.clone();
        merged.file.keep_restart_keys(&self.file);
        for key in keys().filter(|key| key.applied() == Applied::Restart) {
            merged.places.keys.remove(&*key.path);
            if let Some((name, place)) = self.places.keys.get_key_value(&*key.path) {
                merged.places.keys.insert(name, place.clone());
            }
        }
        merged.database_of_file.clone_from(&self.database_of_file);
        merged.statistics_of_file.clone_from(&self.statistics_of_file);
        merged.tls_listen.clone_from(&self.tls_listen);
        merged.authorization.clone_from(&self.authorization);
        merged.signed_secret.clone_from(&self.signed_secret);
        merged.found.clone_from(&self.found);
        merged.of_database.clone_from(&self.of_database);
        merged.discovery_sockets.clone_from(&self.discovery_sockets);
        merged.acme_challenge = self.acme_challenge;
        let mut errors = Errors::default();
        check_in_force(&merged, &mut errors);
        errors.or(merged)
    }
}

/// The values of a configuration. Paths of the command line need not be UTF-8, which JSON has to
/// be.
fn values(settings: &Settings) -> Value {
    let lossy = |path: &Path| PathBuf::from(path.to_string_lossy().into_owned());
    let mut file = settings.file.clone();
    file.data.directory = lossy(&file.data.directory);
    file.control.socket = file.control.socket.as_deref().map(lossy);
    json!(file)
}

/// The value of a key as in a file; of secrets the names, wherever they come from.
fn shown(key: &Key, settings: &Settings, file: &Value) -> String {
    let named = |names: &mut dyn Iterator<Item = &str>| {
        format!(
            "[{}]",
            names.map(|name| format!("{name}: <secret>")).collect::<Vec<_>>().join(", ")
        )
    };
    match key.path.as_str() {
        // Both become an entry of auth.secrets.
        "auth.secret" | "auth.secret_file" => String::new(),
        "auth.secrets" => named(&mut settings.secrets.iter().map(|secret| secret.name.as_str())),
        // Their names: the rest of an entry may be long, and holds secrets.
        "realms" => {
            let names: Vec<_> =
                settings.realms.iter().filter_map(|realm| realm.name.as_deref()).collect();
            toml(&json!(names))
        }
        "auth.token_keys" => named(&mut settings.token_keys.iter().map(|key| &*key.kid)),
        // A certificate that comes or goes changes it as well.
        "tls.listen" => toml(&json!(settings.tls_listen)),
        path => match file.pointer(&format!("/{}", path.replace('.', "/"))) {
            Some(value) if !value.is_null() => toml(value),
            Some(_) | None => "none".to_owned(),
        },
    }
}
