//! Users, secrets, the realm, and peers.

use std::net::IpAddr;
use std::path::Path;

use super::{Fate, Host, User, UserKey, Work, database};
use crate::peers::{Range, denied_networks, networks_of};
use crate::toml;

/// Least length of a secret in bytes.
const SECRET_BYTES_MIN: usize = 16;

/// Fate of a rule for IPv4 addresses in IPv6.
pub(super) const IPV4_IN_IPV6: &str =
    "no peer with an IPv4 address in IPv6 may be reached, and in coturn it is no rule for IPv4";

pub(super) fn translate(work: &mut Work, directory: &Path) {
    realm(work);
    let has_secrets = secrets(work, directory);
    nonce_key(work, directory);
    separator(work);
    users(work, has_secrets);
    database::translate(work, has_secrets, directory);
    peers(work);
}

/// Longest realm that coturn has, in bytes.
const REALM_BYTES_MAX: usize = 127;

fn realm(work: &mut Work) {
    let index = work.last("realm").filter(|index| !work.value(*index).is_empty());
    match index {
        Some(index) => {
            let whole = work.value(index);
            let realm = &whole[..whole.floor_char_boundary(REALM_BYTES_MAX)];
            let comment = if realm == whole { "" } else { "realm; its first 127 bytes, as in coturn" };
            let realm = toml::text(realm);
            work.toml.set("realm", realm, comment);
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
    for index in &lines {
        let secret = work.bytes(*index);
        if let Err(reason) = usable(&secret, work.replaces()) {
            work.set(*index, Fate::Unsupported(reason));
            continue;
        }
        if secret.len() < SECRET_BYTES_MIN {
            let comment = "static-auth-secret: one is short";
            work.toml.set("compatibility.short_secrets", "true".to_owned(), comment);
        }
        if work.secrets.iter().any(|(_, known)| *known == secret) {
            continue;
        }
        let name = match work.auth_secrets.len() {
            0 => "secret".to_owned(),
            n => format!("secret-{}", n + 1),
        };
        let path = directory.join(&name).display().to_string();
        work.auth_secrets.push((name, path.clone()));
        work.secrets.push((path, secret));
    }
    write_secrets(work, "static-auth-secret");
    if let (Some(index), true) = (asked, lines.is_empty()) {
        let reason = "its secrets are in coturn's database: set auth.secret_file to one of them";
        work.set(index, Fate::Unsupported(reason.to_owned()));
    }
    let by_secret = asked.is_some() || !lines.is_empty();
    if by_secret && !work.auth_secrets.is_empty() {
        work.refuse_users();
    }
    by_secret
}

/// Checks a secret.
///
/// # Errors
/// The reason why it is not taken.
fn usable(secret: &[u8], may_be_short: bool) -> Result<(), String> {
    let least = if may_be_short { 1 } else { SECRET_BYTES_MIN };
    if secret.len() < least {
        return Err(format!(
            "it has {} bytes, and {least} are needed: `openssl rand -base64 32` makes one",
            secret.len()
        ));
    }
    if secret.trim_ascii().len() < secret.len() {
        return Err("it begins or ends with a blank, which a file of a secret cannot".to_owned());
    }
    Ok(())
}

/// Names the files of the secrets of the server's own realm.
pub(super) fn write_secrets(work: &mut Work, comment: &str) {
    let Some(((_, path), more)) = work.auth_secrets.split_first() else { return };
    work.toml.set("auth.secret_file", toml::text(path), comment);
    if !more.is_empty() {
        let entries: Vec<String> = more.iter().map(toml::secret_entry).collect();
        let list = format!("[{}]", entries.join(", "));
        work.toml.set("auth.secrets", list, format!("{comment}, again"));
    }
}

/// The secret of the nonces goes to a file of its own.
fn nonce_key(work: &mut Work, directory: &Path) {
    let Some(index) = work.last("stateless-nonce-secret") else { return };
    let secret = work.bytes(index);
    if let Err(reason) = usable(&secret, false) {
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
    // coturn takes the first sign.
    match work.value(index).chars().next() {
        Some(':') => work.set(index, Fate::SameHere("a colon".to_owned())),
        Some(sign) if sign.is_ascii_graphic() && !sign.is_ascii_alphanumeric() => {
            work.toml.set("auth.separator", toml::text(&sign.to_string()), "rest-api-separator");
        }
        Some(_) | None => work.unreadable(index, "one sign between time and user"),
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
        match user(&work.bytes(*index)) {
            Some(user) => {
                work.users.retain(|known| known.name != user.name);
                work.users.push(user);
            }
            None if work.replaces() => {
                // coturn replaces the password of an earlier line by a key that nobody has.
                let user = work.value(*index).split_once(':');
                let wrong = user.filter(|(_, key)| key.trim_start().starts_with("0x"));
                if let Some(name) = wrong.map(|(name, _)| name.to_owned()) {
                    work.users.retain(|known| known.name != name);
                }
                let reason = "coturn leaves such a user out as well: name:password, or name:0x and 32 hexadecimal digits, is expected";
                work.set(*index, Fate::Unsupported(reason.to_owned()));
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
    if !authenticates(work) && !named("stun-only") {
        let database =
            if has_database.into_iter().any(named) { " (its database has no effect)" } else { "" };
        work.notes.push(format!(
            "coturn relays for everyone with this configuration: neither lt-cred-mech nor use-auth-secret is set{database}. Here \
             nobody may relay until there are users (`turnpike user add`) or a secret (`auth.secret_file`)."
        ));
    }
}

/// Returns true if coturn requires credentials. Otherwise coturn serves everyone. Lines that are
/// left out here have this effect as well.
pub(super) fn authenticates(work: &Work) -> bool {
    const LOGINS: [&str; 4] = ["lt-cred-mech", "user", "use-auth-secret", "static-auth-secret"];
    work.written.iter().any(|entry| LOGINS.contains(&entry.written.name.as_str()))
}

fn user(value: &[u8]) -> Option<User> {
    let colon = value.iter().position(|byte| *byte == b':')?;
    let name = std::str::from_utf8(&value[..colon]).ok()?;
    let password = value[colon + 1..].trim_ascii_start();
    if name.is_empty() || password.is_empty() {
        return None;
    }
    let key = match std::str::from_utf8(password) {
        Ok(text) if text.is_ascii() => match text.strip_prefix("0x") {
            None => UserKey::Password(text.to_owned()),
            Some(digits) => UserKey::Md5(key(digits)?),
        },
        Ok(_) | Err(_) => UserKey::Bytes(password.to_vec()),
    };
    Some(User { name: name.to_owned(), key })
}

fn key(digits: &str) -> Option<[u8; 16]> {
    // What follows is ignored.
    let digits = digits.get(..32)?;
    let mut key = [0; 16];
    for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(key)
}

/// Rules for peers.
fn peers(work: &mut Work) {
    work.allowed_peers = ranges(work, "allowed-peer-ip");
    work.denied_peers = ranges(work, "denied-peer-ip");
    wider(work);
    write_peers(work);
    let allowed_by = if work.replaces() { "allowed-peer-ip" } else { "`peers.allow`" };
    work.notes.push(format!(
        "Private networks, loopback and every other special-purpose range are refused here without denied-peer-ip. Name the \
         networks that calls need in {allowed_by}, such as the one of a media server."
    ));
}

pub(super) fn write_peers(work: &mut Work) {
    let denied = denied_networks(&work.denied_peers, &work.allowed_peers);
    for (key, networks, comment) in [
        ("peers.allow", networks_of(&work.allowed_peers), "allowed-peer-ip"),
        ("peers.deny", denied, "denied-peer-ip"),
    ] {
        if !networks.is_empty() {
            work.toml.set(key, toml::list(&networks), comment);
        }
    }
}

/// Adds the further addresses that coturn denies: a range from `::` has all IPv4 addresses, and a
/// single `::` or `0.0.0.0` every address.
fn wider(work: &mut Work) {
    let mut added: Vec<&str> = Vec::new();
    for index in work.all("denied-peer-ip") {
        let value = rule(work.value(index));
        let (first, last) = value.split_once('-').unwrap_or((&*value, &*value));
        match (first.parse::<IpAddr>(), last.parse::<IpAddr>()) {
            (Ok(first), Ok(last)) if first.is_unspecified() && last.is_unspecified() => {
                added.extend(["0.0.0.0/0", "::/0"]);
            }
            (Ok(IpAddr::V6(first)), Ok(_)) if first.is_unspecified() => added.push("0.0.0.0/0"),
            (Ok(_) | Err(_), Ok(_) | Err(_)) => {}
        }
    }
    if added.is_empty() {
        return;
    }
    work.denied_peers.extend(added.into_iter().filter_map(Range::read));
    work.notes.push(
        "denied-peer-ip: coturn takes a range that begins with :: for all IPv4 addresses as well, and 0.0.0.0 or :: alone for every \
         address. All of these are denied here, too. If that was not meant, write 0.0.0.0-0.255.255.255 for the network of \
         this host, or ::1 for its loopback."
            .to_owned(),
    );
}

/// The range of a rule, without blanks, quotes and comments. coturn reads "10.0.0.1 - 10.0.0.9". A
/// rule with a comment still protects a network.
fn rule(value: &str) -> String {
    let value = value.split(['#', ';']).next().unwrap_or_default();
    let value: String = value.split_whitespace().collect();
    value.trim_matches(['\'', '"']).to_owned()
}

/// Value of a rule, with a host's name resolved.
pub(super) fn resolved(value: &str, host: &dyn Host) -> String {
    let rule = rule(value);
    if rule.contains('.') && Range::read(&rule).is_none() {
        return host.resolve(&rule).map_or(rule, |address| address.to_string());
    }
    value.to_owned()
}

fn ranges(work: &mut Work, name: &str) -> Vec<Range> {
    let mut ranges = Vec::new();
    for index in work.all(name) {
        match Range::read(&rule(work.value(index))) {
            Some(range) if range.is_ipv4_in_ipv6() => {
                work.set(index, Fate::SameHere(IPV4_IN_IPV6.to_owned()));
            }
            Some(range) => ranges.push(range),
            None => work.unreadable(index, "an address, first-last or a network"),
        }
    }
    ranges
}
