//! Coturn's tables other than the user table, for all kinds of databases: names, columns and keys,
//! with rows as text.

/// Table of coturn's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Shared secrets: realm, value.
    Secrets,
    /// Origins of web pages: origin, realm.
    Origins,
    /// Limits of realms: realm, name (`max-bps`, `total-quota`, `user-quota`), value.
    Options,
    /// Peers that clients may reach: realm, range.
    AllowedPeers,
    /// Peers that clients must not reach: realm, range.
    DeniedPeers,
    /// Keys of access tokens: name, key in base64, start in seconds since 1970, lifetime in seconds
    /// (0: unlimited), algorithm, realm.
    TokenKeys,
    /// Users of the page for administrators: name, realm, password.
    Admins,
}

/// Values of a row, in the order of [`Table::columns`].
pub type Row = Vec<String>;

impl Table {
    /// All tables.
    pub const ALL: [Self; 7] = [
        Self::Secrets,
        Self::Origins,
        Self::Options,
        Self::AllowedPeers,
        Self::DeniedPeers,
        Self::TokenKeys,
        Self::Admins,
    ];

    /// Returns the name of the table in SQL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Secrets => "turn_secret",
            Self::Origins => "turn_origin_to_realm",
            Self::Options => "turn_realm_option",
            Self::AllowedPeers => "allowed_peer_ip",
            Self::DeniedPeers => "denied_peer_ip",
            Self::TokenKeys => "oauth_key",
            Self::Admins => "admin_user",
        }
    }

    /// Returns the columns of the table in SQL, the key columns first.
    #[must_use]
    pub const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Secrets => &["realm", "value"],
            Self::Origins => &["origin", "realm"],
            Self::Options => &["realm", "opt", "value"],
            Self::AllowedPeers | Self::DeniedPeers => &["realm", "ip_range"],
            Self::TokenKeys => &["kid", "ikm_key", "timestamp", "lifetime", "as_rs_alg", "realm"],
            Self::Admins => &["name", "realm", "password"],
        }
    }

    /// Returns the number of key columns.
    pub(crate) const fn keys(self) -> usize {
        match self {
            Self::Secrets | Self::Options | Self::AllowedPeers | Self::DeniedPeers => 2,
            Self::Origins | Self::TokenKeys | Self::Admins => 1,
        }
    }
}

/// Columns with numeric values.
const NUMBERS: [&str; 2] = ["timestamp", "lifetime"];

/// Dialect of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    #[cfg(feature = "postgresql")]
    Postgres,
    #[cfg(feature = "mysql")]
    Mysql,
    Sqlite,
}

impl Dialect {
    /// Returns a statement that selects all rows as text, sorted, at most `limit`. The limit is a
    /// part of the text.
    pub(crate) fn select(self, table: Table, limit: u32) -> String {
        let text = match self {
            #[cfg(feature = "mysql")]
            Self::Mysql => "CHAR",
            _ => "TEXT",
        };
        let columns: Vec<String> = (table.columns().iter())
            .map(|column| format!("COALESCE(CAST({} AS {text}), '')", self.quoted(column)))
            .collect();
        let order: Vec<String> =
            (1..=table.columns().len()).map(|number| number.to_string()).collect();
        let (columns, order) = (columns.join(", "), order.join(", "));
        format!("SELECT {columns} FROM {} ORDER BY {order} LIMIT {limit}", table.name())
    }

    /// Returns a statement that adds a row, or replaces the row with the same key.
    pub(crate) fn upsert(self, table: Table) -> String {
        let columns = table.columns();
        let quoted: Vec<String> = columns.iter().map(|column| self.quoted(column)).collect();
        let values: Vec<String> =
            (1..).zip(columns).map(|(number, column)| self.value(number, column)).collect();
        let (keys, others) = quoted.split_at(table.keys());
        let set = |from: &dyn Fn(&String) -> String| {
            let set: Vec<String> =
                others.iter().map(|name| format!("{name} = {}", from(name))).collect();
            set.join(", ")
        };
        let conflict = match self {
            #[cfg(feature = "mysql")]
            Self::Mysql if others.is_empty() => {
                // INSERT IGNORE would also ignore a value that is too long.
                let first = keys.first().map(String::as_str).unwrap_or_default();
                format!("ON DUPLICATE KEY UPDATE {first} = {first}")
            }
            #[cfg(feature = "mysql")]
            Self::Mysql => {
                format!("ON DUPLICATE KEY UPDATE {}", set(&|name| format!("VALUES({name})")))
            }
            _ if others.is_empty() => "ON CONFLICT DO NOTHING".to_owned(),
            _ => {
                let set = set(&|name| format!("excluded.{name}"));
                format!("ON CONFLICT ({}) DO UPDATE SET {set}", keys.join(", "))
            }
        };
        format!(
            "INSERT INTO {} ({}) VALUES ({}) {conflict}",
            table.name(),
            quoted.join(", "),
            values.join(", ")
        )
    }

    /// Returns a statement that deletes the rows with certain values in the first `columns` key
    /// columns.
    pub(crate) fn delete(self, table: Table, columns: usize) -> String {
        let is = |(number, column): (usize, &&str)| {
            let binary = match self {
                // The usual collations ignore case.
                #[cfg(feature = "mysql")]
                Self::Mysql => "BINARY ",
                _ => "",
            };
            format!("{binary}{} = {}", self.quoted(column), self.value(number, column))
        };
        let all: Vec<String> = (1..).zip(table.columns().iter().take(columns)).map(is).collect();
        format!("DELETE FROM {} WHERE {}", table.name(), all.join(" AND "))
    }

    fn quoted(self, column: &str) -> String {
        match self {
            #[cfg(feature = "mysql")]
            Self::Mysql => format!("`{column}`"),
            _ => format!("\"{column}\""),
        }
    }

    fn value(self, number: usize, column: &str) -> String {
        match self {
            #[cfg(feature = "mysql")]
            Self::Mysql => "?".to_owned(),
            _ if NUMBERS.contains(&column) => format!("CAST(${number} AS BIGINT)"),
            _ => format!("${number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_name_each_column_and_bind_each_value() {
        assert_eq!(
            Dialect::Sqlite.select(Table::Origins, 5),
            "SELECT COALESCE(CAST(\"origin\" AS TEXT), ''), COALESCE(CAST(\"realm\" AS TEXT), '') \
             FROM turn_origin_to_realm ORDER BY 1, 2 LIMIT 5"
        );
        assert_eq!(
            Dialect::Sqlite.upsert(Table::Secrets),
            "INSERT INTO turn_secret (\"realm\", \"value\") VALUES ($1, $2) ON CONFLICT DO NOTHING"
        );
        assert_eq!(
            Dialect::Sqlite.upsert(Table::Options),
            "INSERT INTO turn_realm_option (\"realm\", \"opt\", \"value\") VALUES ($1, $2, $3) \
             ON CONFLICT (\"realm\", \"opt\") DO UPDATE SET \"value\" = excluded.\"value\""
        );
        assert_eq!(
            Dialect::Sqlite.delete(Table::Secrets, 1),
            "DELETE FROM turn_secret WHERE \"realm\" = $1"
        );
    }
}
