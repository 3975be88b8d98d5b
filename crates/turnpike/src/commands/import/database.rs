//! Import from coturn's database for a server that will not use it. Users are copied with their
//! keys, and rows become configuration.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use anyhow::anyhow;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coturn_config::{Fate, Import, RowLine};
use turn_proto::TokenAlgorithm;
use user_db::{NewUser, Page, Position, Row, StoreError, Table, TableEditor, UserQuery};

use crate::cli::PathOptions;
use crate::failure::{Failure, Result};
use crate::tables::{ROWS_MAX, rules};
use crate::{paths, users};

/// Number of users per read.
const PAGE: u32 = 1000;

/// Content of a database of coturn.
pub(super) struct Copied {
    /// Users of all realms, with their keys.
    pub(super) users: Vec<NewUser>,
    /// Rows of other tables that this server can use.
    pub(super) rows: Vec<coturn_config::Row>,
    /// Rows that this server cannot use.
    pub(super) left: Vec<RowLine>,
}

/// Reads the users and rows of a database.
pub(super) fn read(url: &str, imported: &Import) -> Result<Copied> {
    if imported.toml.contains("\ndatabase_file = ") || imported.toml.contains("\ndatabase = ") {
        let both = anyhow!(
            "the configuration goes on with coturn's database, and --users copies users and rows out of it"
        );
        return Err(Failure::usage(both).hint(
            "leave --users out, or put # in front of the database's option in a copy of the file",
        ));
    }
    let mut read = String::new();
    if url == "-" {
        io::stdin().read_line(&mut read).map_err(Failure::failed)?;
    }
    let url = if url == "-" { read.trim() } else { url };
    let users = users_of(url)?;
    let tables = user_db::server_tables(url)?;
    let mut copied = Copied { users, rows: Vec::new(), left: Vec::new() };
    for table in Table::ALL {
        for row in rows_of(&tables, table)? {
            match usable(table, row) {
                Ok(values) => {
                    copied.rows.push(coturn_config::Row { table: table.name(), values });
                }
                Err((text, why)) => copied.left.push(RowLine {
                    table: table.name(),
                    text,
                    count: 1,
                    fate: Fate::Unsupported(why),
                }),
            }
        }
    }
    Ok(copied)
}

fn rows_of(tables: &TableEditor, table: Table) -> Result<Vec<Row>> {
    let rows = tables.rows(table, ROWS_MAX)?;
    if rows.len() > ROWS_MAX as usize {
        return Err(Failure::failed(StoreError::TooManyRows {
            table: table.name(),
            most: ROWS_MAX,
        }));
    }
    Ok(rows)
}

/// Converts a row to values of the configuration.
///
/// # Errors
/// The row cannot be used. The error contains the row without secrets, and the reason.
fn usable(table: Table, mut row: Row) -> std::result::Result<Vec<String>, (String, String)> {
    row.iter_mut().for_each(|value| *value = value.trim().to_owned());
    let mut judged = row.clone();
    if table == Table::TokenKeys
        && let [_, _, _, lifetime, _, realm] = judged.as_mut_slice()
    {
        // The key is checked without its validity. A key without a realm is valid in any realm.
        "0".clone_into(lifetime);
        "any".clone_into(realm);
    }
    let found = rules::of(&[(table, judged)], SystemTime::now(), false);
    if let Some(why) = found.warnings.into_iter().next() {
        let shown = match (table, row.as_slice()) {
            (Table::Secrets, [realm, ..]) => format!("realm {realm}"),
            (Table::TokenKeys, [kid, ..]) => format!("key {kid}"),
            (_, row) => {
                let words: Vec<&str> =
                    row.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
                words.join(" ")
            }
        };
        let why = why.strip_prefix(&format!("{}: ", table.name())).unwrap_or(&why).to_owned();
        return Err((shown, why));
    }
    match table {
        Table::Origins => {
            let origins = found.rules.realms.values().flat_map(|realm| &realm.origins);
            for (value, origin) in row.iter_mut().zip(origins) {
                *value = origin.to_string();
            }
        }
        Table::TokenKeys => {
            let keys = found.rules.realms.values().flat_map(|realm| &realm.token_keys);
            for (value, key) in row.iter_mut().skip(1).zip(keys) {
                // A longer key is truncated to the length that the algorithm needs.
                *value = match &key.algorithm {
                    TokenAlgorithm::Aes256Gcm(key) => BASE64_STANDARD.encode(key.expose()),
                    TokenAlgorithm::Aes128Gcm(key) => BASE64_STANDARD.encode(key.expose()),
                };
            }
        }
        Table::Secrets
        | Table::Options
        | Table::AllowedPeers
        | Table::DeniedPeers
        | Table::Admins => {}
    }
    Ok(row)
}

/// Returns the users of all realms, with their keys.
fn users_of(url: &str) -> Result<Vec<NewUser>> {
    let mut store = user_db::server_editor(url)?;
    let (mut users, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(&Page { realm: None, after: after.take(), limit: PAGE })?;
        let Some(last) = page.last() else { return Ok(users) };
        after = Some(Position { realm: last.realm.clone(), name: last.name.clone() });
        for user in page {
            // A user that was deleted since the listing is skipped.
            if let Some(record) =
                store.user(&user.realm, &UserQuery::Name(user.name.as_str().into()))?
            {
                users.push(NewUser::with_md5(&user.realm, &user.name, record.keys.md5, None)?);
            }
        }
    }
}

/// Copies users into the database of the new configuration. Existing users are not changed. Returns
/// lines for the operator.
pub(super) fn copy_users(
    paths: &PathOptions,
    file: &Path,
    users: &[NewUser],
) -> Result<Vec<String>> {
    let settings =
        paths::complete_without_certificates(paths, file.to_owned()).map_err(|errors| {
            Failure::failed(anyhow!("the new configuration is not valid:\n{errors}"))
        })?;
    let mut store = users::editor(&settings.user_database())?;
    let (mut added, mut known) = (0, 0);
    let mut elsewhere: BTreeMap<&str, u64> = BTreeMap::new();
    for user in users {
        match store.add(user) {
            Ok(()) => added += 1,
            Err(StoreError::Exists { .. }) => known += 1,
            Err(error) => return Err(Failure::failed(error)),
        }
        if !settings.has_realm(user.realm()) {
            *elsewhere.entry(user.realm()).or_default() += 1;
        }
    }
    let mut lines = vec![format!(
        "users of coturn's database: {added} added, {known} exist and stay as they are"
    )];
    if !settings.auth.users {
        lines.push(
            "note: users cannot log in with auth.users = false, as in coturn with use-auth-secret"
                .to_owned(),
        );
    } else if !elsewhere.is_empty() {
        let elsewhere: Vec<(String, u64)> =
            elsewhere.into_iter().map(|(realm, count)| (realm.to_owned(), count)).collect();
        lines.push(format!(
            "note: these cannot log in, as their realm is not in the configuration (`realms`): {}",
            crate::commands::user::realm::counted(&elsewhere)
        ));
    }
    Ok(lines)
}
