//! Coturn's keys in Redis other than those of users, and the commands that write them.

use redis::Cmd;

use crate::table::{Row, Table};

/// Redis key with rows of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) table: Table,
    /// Realm, origin or name in the key.
    pub(super) name: String,
    /// Name of a limit; empty for other tables.
    pub(super) option: &'static str,
    pub(super) key: String,
}

/// Limits of a realm.
const OPTIONS: [&str; 3] = ["max-bps", "total-quota", "user-quota"];

impl Place {
    /// Parses a key. Returns `None` for keys of users, and for keys without rows of a table.
    pub(super) fn of(key: &str) -> Option<Self> {
        let rest = key.strip_prefix("turn/")?;
        let place = |table, name: &str, option| {
            Some(Self { table, name: name.to_owned(), option, key: key.to_owned() })
        };
        if let Some(origin) = rest.strip_prefix("origin/") {
            return place(Table::Origins, origin, "");
        }
        if let Some(kid) = rest.strip_prefix("oauth/kid/") {
            return place(Table::TokenKeys, kid, "");
        }
        if let Some(name) = rest.strip_prefix("admin_user/") {
            return place(Table::Admins, name, "");
        }
        let (realm, last) = rest.strip_prefix("realm/")?.rsplit_once('/')?;
        if realm.contains("/user/") {
            return None;
        }
        match last {
            "secret" => place(Table::Secrets, realm, ""),
            "allowed-peer-ip" => place(Table::AllowedPeers, realm, ""),
            "denied-peer-ip" => place(Table::DeniedPeers, realm, ""),
            _ => {
                let option = OPTIONS.into_iter().find(|option| *option == last)?;
                place(Table::Options, realm, option)
            }
        }
    }
}

/// Returns the key of a row, from the row's first values.
fn key(table: Table, row: &[String]) -> String {
    let value = |at: usize| row.get(at).map(String::as_str).unwrap_or_default();
    let first = value(0);
    match table {
        Table::Secrets => format!("turn/realm/{first}/secret"),
        Table::AllowedPeers => format!("turn/realm/{first}/allowed-peer-ip"),
        Table::DeniedPeers => format!("turn/realm/{first}/denied-peer-ip"),
        Table::Origins => format!("turn/origin/{first}"),
        Table::Options => format!("turn/realm/{first}/{}", value(1)),
        Table::TokenKeys => format!("turn/oauth/kid/{first}"),
        Table::Admins => format!("turn/admin_user/{first}"),
    }
}

/// Returns the command that adds or replaces a row.
pub(super) fn put(table: Table, row: Row) -> Cmd {
    let key = key(table, &row);
    match table {
        Table::Secrets | Table::AllowedPeers | Table::DeniedPeers => {
            redis::cmd("SADD").arg(key).arg(row.last()).to_owned()
        }
        Table::Origins | Table::Options => redis::cmd("SET").arg(key).arg(row.last()).to_owned(),
        Table::TokenKeys | Table::Admins => {
            let mut set = redis::cmd("HSET");
            set.arg(key);
            for (field, value) in table.columns().iter().zip(row).skip(1) {
                // Coturn writes no realm for an administrator of all realms.
                if table != Table::Admins || !value.is_empty() {
                    set.arg(*field).arg(value);
                }
            }
            set
        }
    }
}

/// Returns the command that deletes rows: a member of a set, or a complete key.
pub(super) fn remove(table: Table, row: Row) -> Cmd {
    let key = key(table, &row);
    match (table, row.get(1)) {
        (Table::Secrets | Table::AllowedPeers | Table::DeniedPeers, Some(member)) => {
            redis::cmd("SREM").arg(key).arg(member).to_owned()
        }
        _ => redis::cmd("DEL").arg(key).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_coturn() {
        for (text, table, name, option) in [
            ("turn/realm/example.org/secret", Table::Secrets, "example.org", ""),
            ("turn/realm//denied-peer-ip", Table::DeniedPeers, "", ""),
            ("turn/realm/a/b/allowed-peer-ip", Table::AllowedPeers, "a/b", ""),
            ("turn/realm/r/max-bps", Table::Options, "r", "max-bps"),
            (
                "turn/origin/https://a.example.org:443",
                Table::Origins,
                "https://a.example.org:443",
                "",
            ),
            ("turn/oauth/kid/2027", Table::TokenKeys, "2027", ""),
            ("turn/admin_user/root", Table::Admins, "root", ""),
        ] {
            let place = Place::of(text).unwrap();
            assert_eq!((place.table, &*place.name, place.option), (table, name, option));
            assert_eq!(key(table, &[name.to_owned(), option.to_owned()]), text);
        }
        for other in [
            "turn/realm/r/user/alice/key",
            "turn/realm/r/user/alice/allocation/000000000000000001/status",
            "turn/realm/r/other",
            "another",
        ] {
            assert_eq!(Place::of(other), None, "{other}");
        }
    }
}
