//! Users in an SQLite file, shared between processes on one host. Nothing else must be installed.
//!
//! In WAL mode, the server can read while a command writes. Only the owner can access the file.
//! SQLite creates the `-wal` and `-shm` files next to it with the same permissions.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{fmt, io};

use atomic_file::{Access, FileOwner, Owner};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};
use turn_types::Secret;

use crate::error::StoreError;
use crate::limits::{BUSY_NAP, BUSY_TIMEOUT, REALMS_MAX};
use crate::sqlite_file::{self, OwnersConnection};
use crate::store::{
    NewUser, Page, Position, UserEditor, UserKeys, UserQuery, UserRecord, UserSummary,
};

/// Version of the tables below. A change of the tables adds a step to [`SqliteStore::migrate`].
const SCHEMA_VERSION: i64 = 1;

/// Tables of a new file. `userhash` and `name` are unique in a realm. NULL in `sha256` means a user
/// with only an MD5 key.
const SCHEMA: &str = "
CREATE TABLE users (
    realm TEXT NOT NULL,
    name TEXT NOT NULL,
    userhash BLOB NOT NULL CHECK (length(userhash) = 32),
    md5 BLOB NOT NULL CHECK (length(md5) = 16),
    sha256 BLOB CHECK (sha256 IS NULL OR length(sha256) = 32),
    allocations_max INTEGER CHECK (allocations_max IS NULL OR allocations_max BETWEEN 0 AND 4294967295),
    created INTEGER NOT NULL,
    PRIMARY KEY (realm, name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX users_by_hash ON users (realm, userhash);
CREATE TABLE schema_version (version INTEGER NOT NULL) STRICT;
INSERT INTO schema_version VALUES (1);
";

/// Store of users in an SQLite file. Each handle belongs to one thread, and any number of handles
/// may be open.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    connection: OwnersConnection,
    /// Identity of the open file. A restored backup is another file under the same name.
    file: FileId,
    /// SQLite's count of changes by other connections, as last read.
    data_version: i64,
    revision: u64,
}

type FileId = (u64, u64);

impl SqliteStore {
    /// Opens the file. A missing file is created with mode 0600, a missing directory with mode
    /// 0700.
    ///
    /// # Errors
    /// The file or directory cannot be created or read, is not a user database, or is accessible to
    /// other users of the host.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = prepare_file(path)?;
        let in_directory = |error: io::Error| failed(path, format_args!("{error}"));
        let owner = FileOwner::of(path).map_err(in_directory)?;
        // SQLite opens all files here, and none later.
        let _acting = owner.act().map_err(in_directory)?;
        sqlite_file::refuse_planted(path).map_err(in_directory)?;
        let connection = OwnersConnection::new(connect(path)?, owner);
        let mut store =
            Self { path: path.to_owned(), connection, file, data_version: 0, revision: 0 };
        store.migrate()?;
        store.data_version = store.read_data_version()?;
        Ok(store)
    }

    /// Migrates the tables to this program's version. Runs under the write lock, so that of two
    /// processes only one migrates.
    fn migrate(&mut self) -> Result<(), StoreError> {
        if self.version()? == Some(SCHEMA_VERSION) {
            return Ok(());
        }
        self.run("BEGIN IMMEDIATE")?;
        let found = match self.version()? {
            None => {
                self.run(SCHEMA)?;
                SCHEMA_VERSION
            }
            Some(found) => found,
        };
        self.run("COMMIT")?;
        if found > SCHEMA_VERSION {
            let known = SCHEMA_VERSION;
            return Err(failed(
                &self.path,
                format_args!(
                    "its format is version {found}, and this program knows version {known}; use a newer turnpike"
                ),
            ));
        }
        Ok(())
    }

    fn version(&self) -> Result<Option<i64>, StoreError> {
        let there = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_version'";
        let there = self.connection.query_row(there, [], |_| Ok(())).optional();
        if there.map_err(|error| self.slip(&error))?.is_none() {
            return Ok(None);
        }
        let version =
            self.connection.query_row("SELECT version FROM schema_version", [], |row| row.get(0));
        version.optional().map_err(|error| self.slip(&error))
    }

    fn run(&self, sql: &str) -> Result<(), StoreError> {
        self.connection.execute_batch(sql).map_err(|error| self.slip(&error))
    }

    fn read_data_version(&self) -> Result<i64, StoreError> {
        let version = self.connection.pragma_query_value(None, "data_version", |row| row.get(0));
        version.map_err(|error| self.slip(&error))
    }

    fn slip(&self, error: &rusqlite::Error) -> StoreError {
        slip(&self.path, error)
    }

    /// Looks up a user.
    pub(crate) fn find(
        &mut self,
        realm: &str,
        user: &UserQuery,
    ) -> Result<Option<UserRecord>, StoreError> {
        const BY_NAME: &str =
            "SELECT name, md5, sha256, allocations_max FROM users WHERE realm = ?1 AND name = ?2";
        const BY_HASH: &str = "SELECT name, md5, sha256, allocations_max FROM users WHERE realm = ?1 AND userhash = ?2";
        let find = || match user {
            UserQuery::Name(name) => self
                .connection
                .prepare_cached(BY_NAME)?
                .query_row(params![realm, name], record)
                .optional(),
            UserQuery::Hash(hash) => self
                .connection
                .prepare_cached(BY_HASH)?
                .query_row(params![realm, hash.as_slice()], record)
                .optional(),
        };
        let error_of = |error| {
            if is_of_value(&error) { unusable(realm, user) } else { self.slip(&error) }
        };
        find().map_err(error_of)
    }

    /// Returns a number that differs from the last returned number if another handle or process has
    /// changed a user in between.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn revision(&mut self) -> Result<u64, StoreError> {
        // If the file was deleted, the open file remains in use: old users are better than none.
        if let Ok(metadata) = fs::metadata(&self.path)
            && file_id(&metadata) != self.file
        {
            let revision = self.revision + 1;
            *self = Self { revision, ..Self::open(&self.path)? };
            return Ok(revision);
        }
        let data_version = self.read_data_version()?;
        if data_version != self.data_version {
            self.data_version = data_version;
            self.revision += 1;
        }
        Ok(self.revision)
    }

    /// Adds a user. With `or_replace`, an existing user of this name is changed, except for the
    /// time of addition.
    fn insert(&self, user: &NewUser, or_replace: bool) -> Result<(), StoreError> {
        const INSERT: &str =
            "INSERT INTO users (realm, name, userhash, md5, sha256, allocations_max, created)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, unixepoch())";
        const REPLACE: &str = " ON CONFLICT (realm, name) DO UPDATE
            SET md5 = excluded.md5, sha256 = excluded.sha256, allocations_max = excluded.allocations_max";
        let sql = if or_replace { format!("{INSERT}{REPLACE}") } else { INSERT.to_owned() };
        let sha256 = user.keys.sha256.as_ref().map(|key| key.expose().as_slice());
        let values = params![
            user.realm,
            user.name,
            user.userhash.as_slice(),
            user.keys.md5.expose().as_slice(),
            sha256,
            user.allocations_max,
        ];
        match self.connection.execute(&sql, values) {
            Ok(_) => Ok(()),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                Err(StoreError::Exists { name: user.name.clone(), realm: user.realm.clone() })
            }
            Err(error) => Err(self.slip(&error)),
        }
    }
}

impl UserEditor for SqliteStore {
    fn set_keys(&mut self, user: &NewUser) -> Result<bool, StoreError> {
        let sql = "UPDATE users SET md5 = ?3, sha256 = ?4 WHERE realm = ?1 AND name = ?2";
        let sha256 = user.keys.sha256.as_ref().map(|key| key.expose().as_slice());
        let values = params![user.realm, user.name, user.keys.md5.expose().as_slice(), sha256];
        self.connection.execute(sql, values).map(|rows| rows > 0).map_err(|error| self.slip(&error))
    }

    fn set_allocations_max(
        &mut self,
        realm: &str,
        name: &str,
        allocations_max: Option<u32>,
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE users SET allocations_max = ?3 WHERE realm = ?1 AND name = ?2";
        self.connection
            .execute(sql, params![realm, name, allocations_max])
            .map(|rows| rows > 0)
            .map_err(|error| self.slip(&error))
    }

    fn realms(&mut self) -> Result<Vec<(String, u64)>, StoreError> {
        const REALMS: &str = "SELECT realm, COUNT(*) AS users FROM users
            GROUP BY realm ORDER BY users DESC, realm LIMIT ?1";
        let mut statement = self.connection.prepare(REALMS).map_err(|error| self.slip(&error))?;
        // SQLite counts in signed numbers; a count is never negative.
        let row = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs()));
        let rows = statement.query_map([REALMS_MAX], row);
        rows.and_then(Iterator::collect).map_err(|error| self.slip(&error))
    }

    fn add(&mut self, user: &NewUser) -> Result<(), StoreError> {
        self.insert(user, false)
    }

    fn replace(&mut self, user: &NewUser) -> Result<bool, StoreError> {
        let there = "SELECT 1 FROM users WHERE realm = ?1 AND name = ?2";
        self.run("BEGIN IMMEDIATE")?;
        let there =
            self.connection.query_row(there, params![user.realm, user.name], |_| Ok(())).optional();
        let done = there.map_err(|error| self.slip(&error)).and_then(|there| {
            self.insert(user, true)?;
            self.run("COMMIT")?;
            Ok(there.is_some())
        });
        if done.is_err() {
            // The error is in `done`; there may be nothing left to roll back.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        done
    }

    fn delete(&mut self, realm: &str, name: &str) -> Result<bool, StoreError> {
        let sql = "DELETE FROM users WHERE realm = ?1 AND name = ?2";
        self.connection
            .execute(sql, params![realm, name])
            .map(|rows| rows > 0)
            .map_err(|error| self.slip(&error))
    }

    fn has_md5_only(&mut self, realm: &str) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM users WHERE realm = ?1 AND sha256 IS NULL)";
        let found = self.connection.query_row(sql, params![realm], |row| row.get(0));
        found.map_err(|error| self.slip(&error))
    }

    fn list(&mut self, page: &Page) -> Result<Vec<UserSummary>, StoreError> {
        const LIST: &str = "SELECT realm, name, allocations_max, created FROM users
            WHERE (?1 IS NULL OR realm = ?1) AND (realm, name) > (?2, ?3) ORDER BY realm, name LIMIT ?4";
        // Real realms are not empty, so the empty position precedes all users.
        let Position { realm, name } = page.after.clone().unwrap_or_default();
        let summary = |row: &Row<'_>| {
            Ok(UserSummary {
                realm: row.get(0)?,
                name: row.get(1)?,
                allocations_max: row.get(2)?,
                created: row.get::<_, i64>(3)?.try_into().ok(),
            })
        };
        let list = || -> rusqlite::Result<Vec<UserSummary>> {
            let mut statement = self.connection.prepare_cached(LIST)?;
            statement.query_map(params![page.realm, realm, name, page.limit], summary)?.collect()
        };
        list().map_err(|error| self.slip(&error))
    }

    fn user(&mut self, realm: &str, user: &UserQuery) -> Result<Option<UserRecord>, StoreError> {
        self.find(realm, user)
    }
}

fn record(row: &Row<'_>) -> rusqlite::Result<UserRecord> {
    let sha256: Option<[u8; 32]> = row.get(2)?;
    Ok(UserRecord {
        name: row.get(0)?,
        keys: UserKeys { md5: Secret::new(row.get(1)?), sha256: sha256.map(Secret::new) },
        allocations_max: row.get(3)?,
    })
}

/// Returns true if a row contains a value of the wrong type, length or range.
const fn is_of_value(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..)
    )
}

fn unusable(realm: &str, user: &UserQuery) -> StoreError {
    let name = match user {
        UserQuery::Name(name) => name.to_string(),
        UserQuery::Hash(_) => String::new(),
    };
    StoreError::Row { name, realm: realm.to_owned(), what: "a key or the limit is unusable" }
}

/// Creates the directory and the file if missing, accessible only to their owner. SQLite would
/// create the file with wider permissions.
fn prepare_file(path: &Path) -> Result<FileId, StoreError> {
    let slip = |path: &Path| {
        let path = path.to_owned();
        move |error| {
            failed(
                &path,
                format_args!(
                    "{error}; the directory needs to belong to the user that the server runs as"
                ),
            )
        }
    };
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        let made = atomic_file::make_missing_directory(directory, Access::PRIVATE_DIRECTORY);
        made.map_err(slip(directory))?;
    }
    create_missing(path).map_err(slip(path))?;
    let metadata = fs::metadata(path).map_err(slip(path))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o007 != 0 {
        return Err(failed(
            path,
            format_args!(
                "other users of this host can read it (mode {mode:03o}); run `chmod 600` on it, and replace its users if \
             one may have"
            ),
        ));
    }
    Ok(file_id(&metadata))
}

/// Creates the file for the owner of its directory: root adds users before the server, which runs
/// as another user, has started.
///
/// An existing file is not opened, except by SQLite. Closing a descriptor of the file would release
/// the locks of all handles of this process (POSIX.1 fcntl).
fn create_missing(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        // A confined server of root cannot change the owner of any file, even a temporary one.
        return Ok(());
    }
    let access = Access { owner: Owner::Directory, ..Access::PRIVATE };
    // Only a new file changes its owner: an existing name may be a link to any file.
    match atomic_file::create(path, &[], access) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

fn file_id(metadata: &fs::Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let open = || {
        let connection = sqlite_file::open(path)?;
        // This database has no triggers or views. Those of another owner would run with each
        // command.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(connection)
    };
    let prepare = |connection: &Connection| {
        write_ahead(connection)?;
        // A committed user must survive a power failure.
        connection.pragma_update(None, "synchronous", "FULL")
    };
    let connection = open().map_err(|error| slip(path, &error))?;
    refuse_foreign(path, &connection)?;
    prepare(&connection).map_err(|error| slip(path, &error))?;
    Ok(connection)
}

/// Refuses the database of another program, before any change to the file.
fn refuse_foreign(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let tables = || -> rusqlite::Result<Vec<String>> {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name LIMIT 8";
        connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
    };
    let tables = tables().map_err(|error| slip(path, &error))?;
    if tables.is_empty() || tables.iter().any(|name| name == "schema_version") {
        return Ok(());
    }
    Err(failed(
        path,
        format_args!(
            "it belongs to another program (its tables: {}) and was not changed; name another file in \
             users.database, or another directory",
            tables.join(", ")
        ),
    ))
}

/// Sets WAL mode. If several processes do this for a new file concurrently, SQLite reports busy
/// without a wait, to avoid a deadlock. The change is therefore retried.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())) {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(BUSY_NAP);
            }
            done => return done,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn slip(path: &Path, error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        _ if is_busy(error) => failed(
            path,
            format_args!(
                "another process has been writing to it for {} s; find out which (`fuser`), or try again",
                BUSY_TIMEOUT.as_secs()
            ),
        ),
        Some(ErrorCode::NotADatabase) => failed(
            path,
            format_args!("this is not a user database; move it away, or name another directory"),
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) => failed(
            path,
            format_args!(
                "{error}; it and its directory need to belong to the user that the server runs as"
            ),
        ),
        _ => failed(path, format_args!("{error}")),
    }
}

fn failed(path: &Path, what: fmt::Arguments<'_>) -> StoreError {
    StoreError::Database { database: path.display().to_string(), what: what.to_string() }
}
