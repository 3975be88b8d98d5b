//! Users, secrets, the realm, and peers.

use std::path::Path;

use super::{Fate, User, UserKey, Work, database};
use crate::peers::{Range, without};
use crate::syntax;
use crate::toml;

/// Least length of a secret in bytes.
const SECRET_BYTES_MIN: usize = 16;

pub(super) fn translate(work: &mut Work, directory: &Path) {
    realm(work);
    let has_secrets = secrets(work, directory);
    nonce_key(work, directory);
    separator(work);
    users(work, has_secrets);
    database::translate(work, has_secrets, directory);
    peers(work);
}

fn realm(work: &mut Work) {
    match work.last("realm") {
        Some(index) => {
            let realm = toml::text(work.value(index));
            work.toml.set("realm", realm, "");
        }
        None => work.notes.push(
            "coturn takes the host's domain as the realm when none is set; users' keys are made of it. Set `realm` to what \
             `turnutils_uclient` or a browser shows of the old server."
                .to_owned(),
        ),
    }
}

/// Shared secrets. True if coturn authenticates by them, and thus by nothing else.
fn secrets(work: &mut Work, directory: &Path) -> bool {
    let lines = work.all("static-auth-secret");
    let asked = work.last("use-auth-secret");
    let mut names = Vec::new();
    for index in &lines {
        let secret = work.value(*index).to_owned();
        if secret.len() < SECRET_BYTES_MIN {
            let reason = format!(
                "it has {} bytes, and {SECRET_BYTES_MIN} are needed: `openssl rand -base64 32` makes one",
                secret.len()
            );
            work.set(*index, Fate::Unsupported(reason));
            continue;
        }
        if work.secrets.iter().any(|(_, known)| *known == secret) {
            continue;
        }
        let name = match names.len() {
            0 => "secret".to_owned(),
            n => format!("secret-{}", n + 1),
        };
        let path = directory.join(&name).display().to_string();
        names.push((name, path.clone()));
        work.secrets.push((path, secret));
    }
    if let Some((_, path)) = names.first() {
        work.toml.set("auth.secret_file", toml::text(path), "static-auth-secret");
    }
    if names.len() > 1 {
        let entry = |(name, path): &(String, String)| {
            format!("{{ name = {}, secret_file = {} }}", toml::text(name), toml::text(path))
        };
        let entries: Vec<String> = names[1..].iter().map(entry).collect();
        work.toml.set(
            "auth.secrets",
            format!("[{}]", entries.join(", ")),
            "static-auth-secret, again",
        );
    }
    if let (Some(index), true) = (asked, lines.is_empty()) {
        let reason = "its secrets are in coturn's database: set auth.secret_file to one of them";
        work.set(index, Fate::Unsupported(reason.to_owned()));
    }
    let by_secret = asked.is_some() || !lines.is_empty();
    if by_secret && !names.is_empty() {
        let comment = "use-auth-secret: coturn accepts no users besides";
        work.toml.set("auth.users", "false".to_owned(), comment);
    }
    by_secret
}

/// The secret of the nonces goes to a file of its own.
fn nonce_key(work: &mut Work, directory: &Path) {
    let Some(index) = work.last("stateless-nonce-secret") else { return };
    let secret = work.value(index).to_owned();
    if secret.len() < SECRET_BYTES_MIN {
        let reason = format!(
            "it has {} bytes, and {SECRET_BYTES_MIN} are needed: `openssl rand -base64 32` makes one for auth.nonce_key_file",
            secret.len()
        );
        return work.set(index, Fate::Unsupported(reason));
    }
    let path = directory.join("nonce-key").display().to_string();
    let comment = "stateless-nonce-secret: shared among servers of Turnpike, whose nonces differ from those of coturn";
    work.toml.set("auth.nonce_key_file", toml::text(&path), comment);
    work.secrets.push((path, secret));
}

/// The separator of time-limited names.
fn separator(work: &mut Work) {
    let Some(index) = work.last("rest-api-separator") else { return };
    match syntax::word(work.value(index)) {
        ":" => work.set(index, Fate::SameHere("a colon".to_owned())),
        sign if sign.len() == 1 && !sign.as_bytes()[0].is_ascii_alphanumeric() => {
            work.toml.set("auth.separator", toml::text(sign), "rest-api-separator");
        }
        _ => work.unreadable(index, "one sign between time and user"),
    }
}

fn users(work: &mut Work, by_secret: bool) {
    let lines = work.all("user");
    for index in &lines {
        if by_secret {
            let reason = "with use-auth-secret coturn accepts no users, either";
            work.set(*index, Fate::SameHere(reason.to_owned()));
            continue;
        }
        match user(work.value(*index)) {
            Some(user) => {
                work.users.retain(|known| known.name != user.name);
                work.users.push(user);
            }
            None => work.unreadable(*index, "name:password, or name:0x and 32 hexadecimal digits,"),
        }
    }
    if by_secret {
        for index in work.all("lt-cred-mech") {
            let reason = "time-limited credentials are long-term credentials, too";
            work.set(index, Fate::SameHere(reason.to_owned()));
        }
    }
    let has_database = [
        "userdb",
        "db",
        "psql-userdb",
        "sql-userdb",
        "mysql-userdb",
        "mongo-userdb",
        "redis-userdb",
    ];
    let named = |name: &str| work.written.iter().any(|entry| entry.written.name == name);
    let authenticates = by_secret || named("lt-cred-mech") || !lines.is_empty();
    if !authenticates && !named("stun-only") {
        let database =
            if has_database.into_iter().any(named) { " (its database has no effect)" } else { "" };
        work.notes.push(format!(
            "coturn relays for everyone with this configuration: neither lt-cred-mech nor use-auth-secret is set{database}. Here \
             nobody may relay until there are users (`turnpike user add`) or a secret (`auth.secret_file`)."
        ));
    }
}

fn user(value: &str) -> Option<User> {
    let (name, password) = value.split_once(':')?;
    if name.is_empty() || password.is_empty() {
        return None;
    }
    let key = match password.strip_prefix("0x") {
        None => UserKey::Password(password.to_owned()),
        Some(digits) => UserKey::Md5(key(digits)?),
    };
    Some(User { name: name.to_owned(), key })
}

fn key(digits: &str) -> Option<[u8; 16]> {
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut key = [0; 16];
    for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(key)
}

/// Rules for peers. In coturn allowed ranges win over denied ones, however long; here the longest network wins, so that
/// the allowed ones are cut out of the denied ones.
fn peers(work: &mut Work) {
    let allowed = ranges(work, "allowed-peer-ip");
    let denied = ranges(work, "denied-peer-ip");
    let set = |work: &mut Work, key, ranges: &[Range], comment| {
        let mut networks: Vec<String> = ranges.iter().flat_map(|range| range.networks()).collect();
        networks.sort();
        networks.dedup();
        if !networks.is_empty() {
            work.toml.set(key, toml::list(&networks), comment);
        }
    };
    set(work, "peers.allow", &allowed, "allowed-peer-ip");
    set(work, "peers.deny", &without(&denied, &allowed), "denied-peer-ip");
    work.notes.push(
        "Private networks, loopback and every other special-purpose range are refused here without denied-peer-ip. Name the \
         networks that calls need in `peers.allow`, such as the one of a media server."
            .to_owned(),
    );
}

fn ranges(work: &mut Work, name: &str) -> Vec<Range> {
    let mut ranges = Vec::new();
    for index in work.all(name) {
        // coturn takes "10.0.0.1 - 10.0.0.9", too.
        let value: String = work.value(index).split_whitespace().collect();
        match Range::read(&value) {
            Some(range) => ranges.push(range),
            None => work.unreadable(index, "an address, first-last or a network"),
        }
    }
    ranges
}
