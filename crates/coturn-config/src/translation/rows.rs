//! Rows of coturn's database besides users, for a server that leaves that database: each becomes a
//! part of the configuration, or is accounted for with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::access::IPV4_IN_IPV6;
use super::{Fate, Work};
use crate::peers::{Range, denied_networks, networks_of};
use crate::toml::{self, Realm};

/// Secrets of a realm that a server takes.
const SECRETS_MAX: usize = 8;

/// Keys of access tokens that a server takes.
const TOKEN_KEYS_MAX: usize = 32;

/// Largest limit of allocations, and of bytes.
const COUNT_MAX: u64 = 10_000_000;
const BYTES_MAX: u64 = 1 << 40;

/// Ranges that no row opens: this host and its link, and services of clouds with the host's own
/// credentials. Whoever writes rows is not always the one who writes files.
const NEVER_OPENED: [&str; 8] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "100.100.100.200",
    "::/127",
    "::ffff:0:0/96",
    "fe80::/10",
    "fd00:ec2::254",
];

/// Reason of rows of a realm that has neither, where secrets and access tokens alone count.
const SHUT: &str = "nobody logs in to this realm, which has no secret and no key of access tokens, with use-auth-secret";

/// A row of a table of coturn's database, with its values in coturn's order. Values are valid: a
/// secret has the length that is needed, an origin is one, and a key has the length of its
/// algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the table in SQL.
    pub table: &'static str,
    /// Its values.
    pub values: Vec<String>,
}

/// Rows of one kind, and their fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLine {
    /// Name of the table in SQL.
    pub table: &'static str,
    /// The row without secrets, or the realm of several.
    pub text: String,
    /// Number of rows.
    pub count: usize,
    /// Their fate.
    pub fate: Fate,
}

/// The rows of one realm.
#[derive(Default)]
struct Found {
    secrets: Vec<(String, String)>,
    origins: Vec<String>,
    options: BTreeMap<String, u64>,
    allowed: Vec<Range>,
    denied: Vec<Range>,
    token_keys: Vec<String>,
}

/// Work on rows.
struct Rows<'a> {
    work: &'a mut Work,
    directory: &'a Path,
    /// The server's own realm.
    own: String,
    /// True if coturn authenticates by secrets alone.
    by_secret: bool,
    /// Realms with a secret or a key of access tokens.
    with_login: BTreeSet<&'a str>,
    realms: BTreeMap<String, Found>,
    /// Keys of access tokens in all realms.
    token_keys: usize,
    lines: Vec<RowLine>,
    /// Lines by table, realm and fate.
    places: BTreeMap<(&'static str, String, String), usize>,
}

/// Takes the rows; returns their account.
pub(super) fn translate<'a>(
    work: &'a mut Work,
    rows: &'a [Row],
    directory: &'a Path,
) -> Vec<RowLine> {
    let own = work.word("realm").unwrap_or_default().to_owned();
    let is_static = |entry: &super::Entry| entry.written.name == "static-auth-secret";
    let by_secret = work.is_on("use-auth-secret") || work.written.iter().any(is_static);
    let takes_tokens = work.is_on("oauth");
    let realm_of_login = |row: &'a Row| match row.table {
        "turn_secret" => row.values.first(),
        "oauth_key" if takes_tokens => row.values.get(5),
        _ => None,
    };
    let with_login = rows.iter().filter_map(realm_of_login).map(String::as_str).collect();
    let mut all = Rows {
        work,
        directory,
        own,
        by_secret,
        with_login,
        realms: BTreeMap::new(),
        token_keys: 0,
        lines: Vec::new(),
        places: BTreeMap::new(),
    };
    // Other realms are known before the limits and peers of the server's own are judged.
    let has_others = rows.iter().any(|row| all.is_of_another_realm(row));
    for row in rows {
        let (text, fate) = all.take(row, has_others);
        all.account(row.table, text, fate);
    }
    all.write();
    all.lines
}

fn left_out(reason: &str) -> Fate {
    Fate::Unsupported(reason.to_owned())
}

fn taken(keys: &str) -> Fate {
    Fate::Taken(keys.to_owned())
}

impl Rows<'_> {
    fn is_of_another_realm(&self, row: &Row) -> bool {
        let values: Vec<&str> = row.values.iter().map(String::as_str).collect();
        match (row.table, values.as_slice()) {
            ("turn_origin_to_realm", [_, realm]) => *realm != self.own && !self.is_shut(realm),
            (
                "turn_secret" | "turn_realm_option" | "allowed_peer_ip" | "denied_peer_ip",
                [realm, ..],
            ) => !realm.is_empty() && *realm != self.own && !self.is_shut(realm),
            ("oauth_key", [_, _, _, _, _, realm]) => {
                self.work.is_on("oauth") && !realm.is_empty() && *realm != self.own
            }
            _ => false,
        }
    }

    /// True of a realm, not the server's own, that nobody could log in to.
    fn is_shut(&self, realm: &str) -> bool {
        self.by_secret && realm != self.own && !self.with_login.contains(realm)
    }

    /// The row without secrets, and its fate.
    fn take(&mut self, row: &Row, has_others: bool) -> (String, Fate) {
        let values: Vec<&str> = row.values.iter().map(String::as_str).collect();
        match (row.table, values.as_slice()) {
            ("turn_secret", [realm, value]) => {
                (format!("realm {realm}"), self.secret(realm, value))
            }
            ("turn_origin_to_realm", [origin, realm]) => {
                (format!("{origin} of realm {realm}"), self.origin(origin, realm))
            }
            ("turn_realm_option", [realm, option, value]) => (
                format!("{option} of realm {realm}"),
                self.option(realm, option, value, has_others),
            ),
            ("allowed_peer_ip" | "denied_peer_ip", [realm, range]) => {
                let of = if realm.is_empty() { "all realms" } else { &format!("realm {realm}") };
                let is_allowed = row.table == "allowed_peer_ip";
                (format!("{range} of {of}"), self.peer(realm, range, is_allowed, has_others))
            }
            ("oauth_key", [kid, key, _, lifetime, algorithm, realm]) => {
                (format!("key {kid}"), self.token_key((kid, key, algorithm), lifetime, realm))
            }
            ("admin_user", [name, ..]) => (
                format!("administrator {name}"),
                left_out(
                    "the page for operators and the API have tokens instead of passwords: `turnpike token`",
                ),
            ),
            _ => ("a row".to_owned(), left_out("it is of no table that coturn has")),
        }
    }

    fn secret(&mut self, realm: &str, value: &str) -> Fate {
        if !self.by_secret {
            return left_out("coturn accepts it with use-auth-secret alone, which is off");
        }
        let is_own = realm == self.own;
        let known = if is_own { self.work.auth_secrets.len() } else { 0 };
        let directory = self.directory;
        let same = self.work.auth_secrets.iter().any(|(_, path)| {
            self.work
                .secrets
                .iter()
                .any(|(file, secret)| file == path && secret == value.as_bytes())
        });
        let found = self.realms.entry(realm.to_owned()).or_default();
        if is_own && same {
            return Fate::SameHere("it is the one of static-auth-secret".to_owned());
        }
        if known + found.secrets.len() >= SECRETS_MAX {
            return left_out("a realm has 8 secrets at most: delete those that no service uses");
        }
        let name = format!("database-{}", found.secrets.len() + 1);
        let mut file = if is_own { name.clone() } else { format!("{}-{name}", file_name(realm)) };
        let at = |file: &str| directory.join(format!("secret-{file}")).display().to_string();
        // Two realms may differ in signs alone that files do not have.
        while self.work.secrets.iter().any(|(path, _)| *path == at(&file)) {
            file.push('_');
        }
        let path = at(&file);
        found.secrets.push((name, path.clone()));
        self.work.secrets.push((path, value.as_bytes().to_vec()));
        taken(if is_own { "auth.secrets" } else { "realms.secrets" })
    }

    fn origin(&mut self, origin: &str, realm: &str) -> Fate {
        if self.work.is_on("no-dynamic-realms") {
            return Fate::SameHere("coturn does not read it with no-dynamic-realms".to_owned());
        }
        if realm == self.own {
            let reason = "clients of every origin that is of no other realm get the server's own";
            return Fate::SameHere(reason.to_owned());
        }
        if self.is_shut(realm) {
            return Fate::SameHere(SHUT.to_owned());
        }
        self.realms.entry(realm.to_owned()).or_default().origins.push(origin.to_owned());
        taken("realms.origins")
    }

    fn option(&mut self, realm: &str, option: &str, value: &str, has_others: bool) -> Fate {
        if self.work.is_on("no-dynamic-realms") {
            return Fate::SameHere("coturn does not read it with no-dynamic-realms".to_owned());
        }
        if self.is_shut(realm) {
            return Fate::SameHere(SHUT.to_owned());
        }
        let Ok(number) = value.parse::<u64>() else {
            return Fate::SameHere("it is below 0: no limit of the realm's own".to_owned());
        };
        let keys = match (option, realm == self.own) {
            ("total-quota", true) if has_others => {
                return left_out(
                    "quotas.allocations_total counts over all realms: set it to what the server may have",
                );
            }
            ("total-quota", true) => "quotas.allocations_total",
            ("user-quota", true) => "quotas.allocations_per_user",
            ("max-bps", true) => "quotas.bytes_per_second",
            ("total-quota", false) => "realms.quotas.allocations_total",
            ("user-quota", false) => "realms.quotas.allocations_per_user",
            ("max-bps", false) => "realms.quotas.bytes_per_second",
            _ => return left_out("coturn has no such option"),
        };
        let found = self.realms.entry(realm.to_owned()).or_default();
        found.options.insert(option.to_owned(), number);
        taken(keys)
    }

    fn peer(&mut self, realm: &str, text: &str, is_allowed: bool, has_others: bool) -> Fate {
        if self.work.is_on("no-dynamic-ip-list") {
            return Fate::SameHere("coturn does not read it with no-dynamic-ip-list".to_owned());
        }
        let text: String = text.split_whitespace().collect();
        let Some(range) = Range::read(&text) else {
            return Fate::Unreadable("an address, first-last or a network is expected".to_owned());
        };
        if range.is_ipv4_in_ipv6() {
            return Fate::SameHere(IPV4_IN_IPV6.to_owned());
        }
        let of_all = realm.is_empty() || realm == self.own;
        if !of_all && self.is_shut(realm) {
            return Fate::SameHere(SHUT.to_owned());
        }
        if !realm.is_empty() && of_all && has_others {
            return left_out(
                "`peers` of the configuration are for all realms: write it there if it is meant for all",
            );
        }
        let closed = NEVER_OPENED.iter().filter_map(|text| Range::read(text));
        if is_allowed && closed.into_iter().any(|closed| range.meets(closed)) {
            return left_out(
                "it opens this host, its link or a cloud's metadata service: write what is meant of it into peers.allow",
            );
        }
        let name = if of_all { self.own.clone() } else { realm.to_owned() };
        let found = self.realms.entry(name).or_default();
        if is_allowed {
            found.allowed.push(range)
        } else {
            found.denied.push(range)
        }
        taken(match (of_all, is_allowed) {
            (true, true) => "peers.allow",
            (true, false) => "peers.deny",
            (false, true) => "realms.peers.allow",
            (false, false) => "realms.peers.deny",
        })
    }

    fn token_key(
        &mut self,
        (kid, key, algorithm): (&str, &str, &str),
        lifetime: &str,
        realm: &str,
    ) -> Fate {
        if !self.work.is_on("oauth") {
            return left_out("coturn accepts it with oauth alone, which is off");
        }
        if lifetime.parse() != Ok(0_u64) {
            return left_out(
                "it has an end, and a key of the configuration has none: add it to auth.token_keys, and take it out then",
            );
        }
        let realm = if realm.is_empty() { &*self.own } else { realm };
        let is_own = realm == self.own;
        let keys = &mut self.realms.entry(realm.to_owned()).or_default().token_keys;
        if keys.len() >= TOKEN_KEYS_MAX {
            return left_out(
                "there are 32 keys at most in a realm: delete those that no service uses",
            );
        }
        self.token_keys += 1;
        let number = self.token_keys;
        let path = self.directory.join(format!("token-key-database-{number}"));
        let path = path.display().to_string();
        let algorithm = if algorithm.is_empty() { "A256GCM" } else { algorithm };
        keys.push(format!(
            "{{ kid = {}, key_file = {}, algorithm = {} }}",
            toml::text(kid),
            toml::text(&path),
            toml::text(algorithm)
        ));
        self.work.secrets.push((path, key.as_bytes().to_vec()));
        taken(if is_own { "auth.token_keys" } else { "realms.token_keys" })
    }

    /// Adds a line to the account. Of rows of one realm with one fate, those behind the first are
    /// counted.
    fn account(&mut self, table: &'static str, text: String, fate: Fate) {
        let realm = text.rsplit_once(" of ").map_or(&*text, |(_, of)| of).to_owned();
        let place = (table, realm.clone(), format!("{fate:?}"));
        match self.places.get(&place).and_then(|at| self.lines.get_mut(*at)) {
            Some(line) => {
                line.text = realm;
                line.count += 1;
            }
            None => {
                self.places.insert(place, self.lines.len());
                self.lines.push(RowLine { table, text, count: 1, fate });
            }
        }
    }

    /// Writes what was found into the configuration.
    fn write(&mut self) {
        let realms = std::mem::take(&mut self.realms);
        let own = realms.get(&self.own);
        if let Some(own) = own {
            self.write_own(own);
        }
        if let Some(keys) = own.map(|own| &own.token_keys).filter(|keys| !keys.is_empty()) {
            let list = format!("[\n    {},\n]", keys.join(",\n    "));
            self.work.toml.set("auth.token_keys", list, "oauth_key of coturn's database");
        }
        if self.token_keys > 0 {
            self.work.settle("oauth", &taken("auth.token_keys, realms.token_keys"));
        }
        let inherited = own.map(|own| &own.options);
        for (name, found) in realms.iter().filter(|(name, _)| **name != self.own) {
            let realm = self.realm(name, found, inherited);
            self.work.toml.realm(realm);
        }
        if realms.values().any(|found| !found.secrets.is_empty()) {
            self.work.settle("use-auth-secret", &taken("auth.secrets, realms.secrets"));
            self.work.refuse_users();
        }
    }

    fn write_own(&mut self, own: &Found) {
        let toml = &mut self.work.toml;
        let comment = |option: &str| format!("{option} of the realm in coturn's database");
        for (option, number) in &own.options {
            let (key, value) = match &**option {
                "max-bps" => ("quotas.bytes_per_second", bytes(*number)),
                "total-quota" => ("quotas.allocations_total", count(*number)),
                _ => ("quotas.allocations_per_user", count(*number)),
            };
            toml.set(key, value, comment(option));
        }
        let work = &mut *self.work;
        work.auth_secrets.extend(own.secrets.iter().cloned());
        super::access::write_secrets(
            work,
            "static-auth-secret, and turn_secret of coturn's database",
        );
        work.allowed_peers.extend(&own.allowed);
        work.denied_peers.extend(&own.denied);
        super::access::write_peers(work);
    }

    /// An entry of `realms`. `inherited`: limits of the server's own realm in the database, which
    /// are not those of others in coturn.
    fn realm(&self, name: &str, found: &Found, inherited: Option<&BTreeMap<String, u64>>) -> Realm {
        let mut quotas = Vec::new();
        for (option, key) in [
            ("user-quota", "allocations_per_user"),
            ("total-quota", "allocations_total"),
            ("max-bps", "bytes_per_second"),
        ] {
            let of_own = inherited.is_some_and(|own| own.contains_key(option));
            // As in coturn: that of the file, otherwise none.
            let of_file = || self.work.word(option).and_then(crate::syntax::number).unwrap_or(0);
            let number = match found.options.get(option) {
                Some(number) => *number,
                None if of_own && option != "total-quota" => of_file(),
                None => continue,
            };
            let value = if option == "max-bps" { bytes(number) } else { count(number) };
            quotas.push(format!("{key} = {value}"));
        }
        let allowed: Vec<Range> =
            self.work.allowed_peers.iter().chain(&found.allowed).copied().collect();
        let peers = [
            ("allow", networks_of(&found.allowed)),
            ("deny", denied_networks(&found.denied, &allowed)),
        ];
        let peers = peers.iter().filter(|(_, list)| !list.is_empty());
        let peers: Vec<String> =
            peers.map(|(key, list)| format!("{key} = {}", toml::list(list))).collect();
        let secrets: Vec<String> = found.secrets.iter().map(toml::secret_entry).collect();
        let mut keys = vec![("name", toml::text(name))];
        if self.by_secret {
            keys.push(("users", "false".to_owned()));
        }
        let mut add = |key, values: Vec<String>, open: &str, close: &str| {
            if !values.is_empty() {
                keys.push((key, format!("{open}{}{close}", values.join(", "))));
            }
        };
        let origins = found.origins.iter().map(|origin| toml::text(origin)).collect();
        add("origins", origins, "[", "]");
        add("secrets", secrets, "[", "]");
        add("token_keys", found.token_keys.clone(), "[", "]");
        add("peers", peers, "{ ", " }");
        add("quotas", quotas, "{ ", " }");
        Realm(keys)
    }
}

fn count(number: u64) -> String {
    number.min(COUNT_MAX).to_string()
}

fn bytes(number: u64) -> String {
    toml::text(&format!("{} B", number.min(BYTES_MAX)))
}

/// A realm as a part of a file's name.
fn file_name(realm: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    realm.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}
