//! Realms beside the server's own: names, and what chooses them, are each of one realm alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use turn_proto::{Origin, SharedSecret, TokenKey};

use super::secret::Source;
use super::{auth, tokens};
use crate::document::Document;
use crate::error::Errors;
use crate::file::{File, RealmEntry};
use crate::limits::{REALMS_MAX, SECRET_BYTES_MIN};
use crate::redirects::Redirects;
use crate::settings::Tenant;

const KEY: &str = "realms";

/// Checks `realms`; one tenant for each entry.
pub(super) fn check(file: &File, document: &Document, errors: &mut Errors) -> Vec<Tenant> {
    if file.realms.len() > REALMS_MAX {
        let what = format!("the list has {} realms", file.realms.len());
        errors.add(document.place(KEY), KEY, what, format!("write at most {REALMS_MAX}"));
        return Vec::new();
    }
    if !file.realms.is_empty() && file.auth.open_relay.is_open() {
        let what = "everyone may relay, and a realm has no use without credentials";
        let help = "remove auth.open_relay, or the realms";
        errors.add(document.place("auth.open_relay"), "auth.open_relay", what, help);
    }
    let mut known = Known::default();
    known.names.insert(file.realm.to_string(), "the server's own");
    let entry = |(index, entry)| Entry { file, index, entry, document }.check(&mut known, errors);
    file.realms.iter().enumerate().map(entry).collect()
}

/// All that chooses a realm, and so may be there once.
#[derive(Default)]
struct Known {
    names: BTreeMap<String, &'static str>,
    origins: BTreeSet<Origin>,
    server_names: BTreeSet<String>,
    listeners: BTreeSet<SocketAddr>,
}

struct Entry<'a> {
    file: &'a File,
    index: usize,
    entry: &'a RealmEntry,
    document: &'a Document,
}

impl Entry<'_> {
    fn refuse(&self, errors: &mut Errors, what: &str, help: &str) {
        let place = self.document.entry_place(KEY, self.index);
        errors.add(place, KEY, format!("entry {}: {what}", self.index + 1), help.to_owned());
    }

    fn check(&self, known: &mut Known, errors: &mut Errors) -> Tenant {
        self.name(known, errors);
        self.lifetimes(errors);
        self.peers(errors);
        self.redirect(errors);
        Tenant {
            origins: self.origins(known, errors),
            server_names: self.server_names(known, errors),
            listeners: self.listeners(known, errors),
            secrets: self.secrets(errors),
            token_keys: self.token_keys(errors),
        }
    }

    fn name(&self, known: &mut Known, errors: &mut Errors) {
        let Some(name) = self.entry.name.as_deref() else {
            return self.refuse(errors, "there is no name", "add name = \"...\", the realm");
        };
        if let Some(whose) = known.names.insert(name.to_owned(), "another entry's") {
            let what = format!("\"{name}\" is {whose} name");
            self.refuse(errors, &what, "use another name");
        }
        let relays = self.entry.users.unwrap_or(self.file.auth.users)
            || !self.entry.secrets.is_empty()
            || !self.entry.token_keys.is_empty();
        if self.file.relay.enabled && !relays {
            let what = "no client could relay: there is no shared secret and no key of access tokens, and users of the database are turned off";
            self.refuse(errors, what, "add secrets or token_keys, or users = true");
        }
    }

    fn origins(&self, known: &mut Known, errors: &mut Errors) -> Vec<Origin> {
        let mut origins = Vec::new();
        for text in &self.entry.origins {
            let Ok(origin) = text.parse::<Origin>() else {
                let what = format!("\"{text}\" is no origin of a web page");
                let help = "write it as \"https://meet.example.org\", without a path";
                self.refuse(errors, &what, help);
                continue;
            };
            if !known.origins.insert(origin.clone()) {
                let what = format!("the origin \"{text}\" is there twice");
                self.refuse(errors, &what, "an origin chooses one realm: remove one of them");
            }
            origins.push(origin);
        }
        origins
    }

    fn server_names(&self, known: &mut Known, errors: &mut Errors) -> Vec<String> {
        let mut names = Vec::new();
        for name in &self.entry.server_names {
            let name = name.to_ascii_lowercase();
            if !known.server_names.insert(name.clone()) {
                let what = format!("the server name \"{name}\" is there twice");
                self.refuse(errors, &what, "a name chooses one realm: remove one of them");
            }
            names.push(name);
        }
        names
    }

    fn listeners(&self, known: &mut Known, errors: &mut Errors) -> Vec<SocketAddr> {
        let own = || self.file.listen.iter().chain(&self.file.tls.listen);
        let refused = ["listen", "tls.listen"].iter().any(|key| self.document.is_refused(key));
        let mut listeners = Vec::new();
        for endpoint in &self.entry.listen {
            let listener = endpoint.0;
            if !refused && !own().any(|known| known == endpoint) {
                let what = format!("the server does not listen at \"{listener}\"");
                self.refuse(errors, &what, "write it as in listen or tls.listen");
            }
            if !known.listeners.insert(listener) {
                let what = format!("the listener \"{listener}\" is there twice");
                self.refuse(errors, &what, "a listener chooses one realm: remove one of them");
            }
            listeners.push(listener);
        }
        listeners
    }

    fn secrets(&self, errors: &mut Errors) -> Vec<SharedSecret> {
        let source = |index: usize| Source {
            key: KEY,
            which: format!("entry {}, secret {}: ", self.index + 1, index + 1),
            place: self.document.entry_place(KEY, self.index),
            words: auth::WORDS,
            least: auth::secret_bytes_min(&self.file.compatibility),
        };
        let mut secrets = Vec::new();
        auth::entries(&self.entry.secrets, source, &mut secrets, self.document, errors);
        secrets
    }

    fn token_keys(&self, errors: &mut Errors) -> Vec<TokenKey> {
        let source = |index: usize| Source {
            key: KEY,
            which: format!("entry {}, token key {}: ", self.index + 1, index + 1),
            place: self.document.entry_place(KEY, self.index),
            words: tokens::WORDS,
            least: SECRET_BYTES_MIN,
        };
        tokens::entries(&self.entry.token_keys, source, self.document, errors)
    }

    fn lifetimes(&self, errors: &mut Errors) {
        let lifetimes = self.entry.lifetimes(&self.file.lifetimes);
        if lifetimes.allocation_default > lifetimes.allocation_max {
            let what = "lifetimes.allocation_max is below lifetimes.allocation_default";
            self.refuse(
                errors,
                what,
                "raise the one or lower the other; what is left out is the server's",
            );
        }
    }

    fn peers(&self, errors: &mut Errors) {
        let both =
            self.entry.peers.deny.iter().find(|prefix| self.entry.peers.allow.contains(prefix));
        if let Some(prefix) = both {
            let what = format!("\"{}\" is in peers.allow and in peers.deny", prefix.0);
            self.refuse(errors, &what, "remove it from one of the lists");
        }
    }

    fn redirect(&self, errors: &mut Errors) {
        for fault in Redirects::of_realm(&self.entry.redirect).faults(|_| false) {
            self.refuse(errors, &format!("redirect.{}: {}", fault.key, fault.what), &fault.help);
        }
    }
}
