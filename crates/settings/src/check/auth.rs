//! Authentication: usable secrets, and no contradiction.

use turn_proto::SharedSecret;

use super::secret::Source;
use crate::document::Document;
use crate::error::Errors;
use crate::file::{self, DatabaseTable, File};
use crate::limits::{SECRET_BYTES_MIN, SECRETS_MAX};

/// Name of the secret of `auth.secret` or `auth.secret_file`.
const DEFAULT_NAME: &str = "default";
const SECRETS: &str = "auth.secrets";
/// The two keys of a shared secret.
pub(super) const WORDS: [&str; 2] = ["secret", "secret_file"];

pub(super) fn check(
    File { auth, relay, users, discovery, compatibility, .. }: &File,
    document: &Document,
    errors: &mut Errors,
) -> Vec<SharedSecret> {
    let least = secret_bytes_min(compatibility);
    let mut secrets: Vec<SharedSecret> = Vec::new();
    if auth.secret.is_some() || auth.secret_file.is_some() {
        let key = if auth.secret.is_some() { "auth.secret" } else { "auth.secret_file" };
        let place = document.place(key);
        let source = Source { key, which: String::new(), place, words: WORDS, least };
        if let Some(secret) =
            source.secret(auth.secret.as_ref(), auth.secret_file.as_deref(), document, errors)
        {
            secrets.push(SharedSecret { name: DEFAULT_NAME.to_owned(), secret });
        }
    }
    let source = |index: usize| Source {
        key: SECRETS,
        which: format!("entry {}: ", index + 1),
        place: document.entry_place(SECRETS, index),
        words: WORDS,
        least,
    };
    entries(&auth.secrets, source, &mut secrets, document, errors);
    let has_database = users.database.is_some() || users.database_file.is_some();
    let of_database =
        |table: &DatabaseTable| matches!(table, DatabaseTable::Secrets | DatabaseTable::Tokens);
    let others = has_database && users.database_tables.iter().any(of_database);
    contradictions(auth, (relay.enabled || auth.binding) && !others, document, errors);
    let without_login = [
        ("discovery.addresses", !discovery.addresses.is_empty()),
        ("compatibility.rfc3489_clients", compatibility.rfc3489_clients),
    ];
    for (key, _) in without_login.into_iter().filter(|(_, is_set)| auth.binding && *is_set) {
        let what = format!("it asks for a login, and the clients of {key} have none");
        errors.add(document.place("auth.binding"), "auth.binding", what, "remove one of them");
    }
    secrets
}

/// Least length of a shared secret in bytes.
pub(super) const fn secret_bytes_min(compatibility: &file::Compatibility) -> usize {
    if compatibility.short_secrets { 1 } else { SECRET_BYTES_MIN }
}

/// Adds the shared secrets of a list to `secrets`; names and secrets differ.
pub(super) fn entries(
    list: &[file::SecretEntry],
    source: impl Fn(usize) -> Source,
    secrets: &mut Vec<SharedSecret>,
    document: &Document,
    errors: &mut Errors,
) {
    for (index, entry) in list.iter().enumerate() {
        let source = source(index);
        let Some(name) = entry.name.as_deref() else {
            source.refuse("there is no name", "add name = \"...\", for the logs", errors);
            continue;
        };
        if secrets.iter().any(|other| other.name == name) {
            let help = match name {
                DEFAULT_NAME => "that is the name of auth.secret; use another name",
                _ => "use another name",
            };
            source.refuse(&format!("another secret is called \"{name}\" too"), help, errors);
        }
        let Some(secret) =
            source.secret(entry.secret.as_ref(), entry.secret_file.as_deref(), document, errors)
        else {
            continue;
        };
        if let Some(other) = secrets.iter().find(|other| other.secret == secret) {
            source.refuse(
                &format!("it is the same secret as \"{}\"", other.name),
                "remove one of them",
                errors,
            );
        }
        secrets.push(SharedSecret { name: name.to_owned(), secret });
    }
    if secrets.len() > SECRETS_MAX {
        let what = format!("there are {} secrets", secrets.len());
        let help = format!("keep at most {SECRETS_MAX}: each is tried for every new credential");
        let source = source(SECRETS_MAX.min(list.len() - 1));
        errors.add(source.place, source.key, what, help);
    }
}

fn contradictions(auth: &file::Auth, relays: bool, document: &Document, errors: &mut Errors) {
    if auth.separator.chars().any(char::is_alphanumeric) {
        let what = format!("\"{}\" may be part of a time or of a user", &*auth.separator);
        let help = "write a sign, such as \":\" or \"-\"";
        errors.add(document.place("auth.separator"), "auth.separator", what, help);
    }
    let open_relay = auth.open_relay.is_open();
    let refused =
        ["auth.secret", "auth.secret_file", SECRETS, "auth.token_keys", "auth.open_relay"];
    if refused.into_iter().any(|key| document.is_refused(key)) {
        return; // the operator's intention is unknown
    }
    let secrets = auth.secret.is_some() || auth.secret_file.is_some() || !auth.secrets.is_empty();
    if open_relay && secrets {
        errors.add(
            document.place("auth.open_relay"),
            "auth.open_relay",
            "everyone may relay, and there are secrets that no client would need",
            "remove auth.open_relay, or the secrets",
        );
    }
    let tokens = !auth.token_keys.is_empty();
    if open_relay && tokens {
        errors.add(
            document.place("auth.open_relay"),
            "auth.open_relay",
            "everyone may relay, and there are token keys that no client would need",
            "remove auth.open_relay, or auth.token_keys",
        );
    }
    if relays && !open_relay && !secrets && !tokens && !auth.users {
        errors.add(
            document.place("auth.users"),
            "auth.users",
            "no client could relay: there is no shared secret, and users of the database are turned off",
            "set auth.secret_file, or users = true; for a STUN server alone relay.enabled = false",
        );
    }
}
