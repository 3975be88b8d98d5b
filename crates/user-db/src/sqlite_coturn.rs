//! Coturn's tables in its SQLite file, on a thread that owns the connection. Changes are detected
//! by SQLite's count of changes by other connections.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use atomic_file::{Access, ActingAsOwner, FileOwner, Owner};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params, params_from_iter};
use tokio::sync::oneshot;
use tokio::time::sleep;
use turn_types::Secret;

use crate::coturn::{Called, Changes, CoturnDatabase, Heard, Kept, StoredKey};
use crate::error::StoreError;
use crate::limits::{DATA_VERSION_EVERY, FILE_LOOKUPS_MAX, IN_FLIGHT_MAX, READER_BUSY, REALMS_MAX};
use crate::sqlite_file;
use crate::store::{Page, Position};
use crate::table::{Dialect, Row, Table};

/// Scheme of the URL of a coturn SQLite file.
pub(crate) const SCHEME: &str = "sqlite-coturn";

/// Tables as coturn creates them in a new file.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS turnusers_lt (
    realm varchar(127) default '', name varchar(512), hmackey char(128), PRIMARY KEY (realm, name));
CREATE TABLE IF NOT EXISTS turn_secret (
    realm varchar(127) default '', value varchar(127), primary key (realm, value));
CREATE TABLE IF NOT EXISTS allowed_peer_ip (
    realm varchar(127) default '', ip_range varchar(256), primary key (realm, ip_range));
CREATE TABLE IF NOT EXISTS denied_peer_ip (
    realm varchar(127) default '', ip_range varchar(256), primary key (realm, ip_range));
CREATE TABLE IF NOT EXISTS turn_origin_to_realm (
    origin varchar(127), realm varchar(127), primary key (origin));
CREATE TABLE IF NOT EXISTS turn_realm_option (
    realm varchar(127) default '', opt varchar(32), value varchar(128), primary key (realm, opt));
CREATE TABLE IF NOT EXISTS oauth_key (
    kid varchar(128), ikm_key varchar(256), timestamp bigint default 0, lifetime integer default 0,
    as_rs_alg varchar(64) default '', realm varchar(127) default '', primary key (kid));
CREATE TABLE IF NOT EXISTS admin_user (
    name varchar(32), realm varchar(127), password varchar(127), primary key (name));
";

/// Error text of SQLite for a file without coturn's user table.
const NO_USERS: &str = "no such table: turnusers_lt";

type Job = Box<dyn FnOnce(&mut File) + Send>;

/// SQLite file with coturn's tables.
pub(crate) struct SqliteCoturn {
    path: PathBuf,
    jobs: SyncSender<Job>,
}

/// File of the thread. Opened at the first use, and again after another file has replaced it.
struct File {
    path: PathBuf,
    /// True if tables that an older coturn did not create must be added.
    completes: bool,
    open: Option<(Connection, (u64, u64))>,
    /// Identity of the file's owner, assumed for the thread's lifetime: SQLite opens and removes a
    /// journal for each change.
    acting: Option<ActingAsOwner>,
}

impl SqliteCoturn {
    /// Starts the thread. A missing file is never created, because it means a mistake in the path.
    /// With `completes`, tables that an older coturn did not create are added.
    pub(crate) fn new(path: &Path, completes: bool) -> Result<Self, StoreError> {
        let (jobs, queue) = sync_channel::<Job>(IN_FLIGHT_MAX);
        let mut file = File { path: path.to_owned(), completes, open: None, acting: None };
        let work = move || queue.into_iter().for_each(|job| job(&mut file));
        let thread = std::thread::Builder::new().name("users-sqlite".to_owned()).spawn(work);
        thread.map_err(StoreError::Threads)?;
        Ok(Self { path: path.to_owned(), jobs })
    }

    /// Runs statements on the thread.
    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Called<T> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(move |file: &mut File| {
            if !reply.is_closed() {
                let _ = reply.send(file.connection().and_then(work));
            }
        });
        let queued = self.jobs.try_send(job).is_ok();
        let path = self.path.clone();
        Box::pin(async move {
            let answer = if queued { answer.await.ok() } else { None };
            answer.ok_or(StoreError::Overloaded)?.map_err(|error| failed(&path, &error))
        })
    }
}

fn failed(path: &Path, error: &rusqlite::Error) -> StoreError {
    let is_missing =
        || fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let what = match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen) if is_missing() => {
            "there is no such file: correct the path; `turnadmin -l -b FILE` creates a file"
                .to_owned()
        }
        Some(ErrorCode::CannotOpen) => {
            format!(
                "{error}; this user, or for root the owner of its directory, has to be allowed to read it and to \
                 write to its directory"
            )
        }
        Some(ErrorCode::ReadOnly) => {
            format!(
                "{error}; this user, or for root the owner of its directory, may not write to it"
            )
        }
        _ if error.to_string().contains(NO_USERS) => {
            format!("{error}: this is not a file of coturn, or `turnadmin -l -b FILE` completes it")
        }
        _ => error.to_string(),
    };
    StoreError::Database { database: format!("{SCHEME}://{}", path.display()), what }
}

impl File {
    fn become_owner(&mut self) -> io::Result<()> {
        // A replaced file may have another owner.
        self.acting = None;
        self.acting = Some(FileOwner::of(&self.path)?.act()?);
        sqlite_file::refuse_planted(&self.path)
    }

    fn connection(&mut self) -> rusqlite::Result<&Connection> {
        let id = fs::metadata(&self.path).ok().map(|it| (it.dev(), it.ino()));
        // If the file was deleted, the open file remains in use.
        let is_open = self.open.as_ref().is_some_and(|(_, known)| id.is_none_or(|id| id == *known));
        if !is_open {
            self.open = None;
            self.become_owner().map_err(|error| sqlite_file::cannot_open(&error))?;
            let connection = connect(&self.path)?;
            // A file of another program is not changed.
            if self.completes && connection.table_exists(None, "turnusers_lt")? {
                connection.execute_batch(SCHEMA)?;
            }
            let id = fs::metadata(&self.path).ok().map(|it| (it.dev(), it.ino()));
            self.open = Some((connection, id.unwrap_or_default()));
        }
        match &self.open {
            Some((connection, _)) => Ok(connection),
            None => Err(rusqlite::Error::InvalidQuery),
        }
    }
}

/// Opens an existing file.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = sqlite_file::open(path)?;
    connection.busy_timeout(READER_BUSY)?;
    Ok(connection)
}

/// Creates a file with coturn's tables, accessible only to its owner, or adds the missing tables.
pub(crate) fn create(path: &Path) -> Result<(), StoreError> {
    // An error is reported when the file is opened.
    let access = Access { owner: Owner::Directory, ..Access::PRIVATE };
    let _ = atomic_file::create(path, &[], access);
    let mut file = File { path: path.to_owned(), completes: false, open: None, acting: None };
    let created = file.connection().and_then(|connection| connection.execute_batch(SCHEMA));
    created.map_err(|error| failed(path, &error))
}

impl CoturnDatabase for SqliteCoturn {
    fn concurrent_max(&self) -> usize {
        FILE_LOOKUPS_MAX
    }

    fn key(self: Arc<Self>, realm: String, name: String) -> Called<Option<StoredKey>> {
        const KEY: &str = "SELECT hmackey FROM turnusers_lt WHERE realm = ?1 AND name = ?2";
        self.run(move |file| {
            let key = |row: &rusqlite::Row<'_>| {
                // A value in SQLite may have another type than the column.
                let value = row.get_ref(0)?;
                Ok(StoredKey::new(value.as_bytes_or_null().ok().flatten()))
            };
            file.prepare_cached(KEY)?.query_row(params![realm, name], key).optional()
        })
    }

    fn insert(self: Arc<Self>, user: Kept) -> Called<bool> {
        const INSERT: &str = "INSERT INTO turnusers_lt (realm, name, hmackey) VALUES (?1, ?2, ?3)
            ON CONFLICT DO NOTHING";
        let Kept { realm, name, key } = user;
        changed(&self, INSERT, vec![realm, name], Some(key))
    }

    fn update(self: Arc<Self>, user: Kept) -> Called<bool> {
        const UPDATE: &str = "UPDATE turnusers_lt SET hmackey = ?3 WHERE realm = ?1 AND name = ?2";
        let Kept { realm, name, key } = user;
        changed(&self, UPDATE, vec![realm, name], Some(key))
    }

    fn delete(self: Arc<Self>, realm: String, name: String) -> Called<bool> {
        const DELETE: &str = "DELETE FROM turnusers_lt WHERE realm = ?1 AND name = ?2";
        changed(&self, DELETE, vec![realm, name], None)
    }

    fn list(self: Arc<Self>, page: Page) -> Called<Vec<(String, String)>> {
        const LIST: &str = "SELECT realm, name FROM turnusers_lt
            WHERE (?1 IS NULL OR realm = ?1) AND (realm, name) > (?2, ?3) ORDER BY realm, name LIMIT ?4";
        let Page { realm: only, after, limit } = page;
        let Position { realm, name } = after.unwrap_or_default();
        self.run(move |file| {
            let mut statement = file.prepare_cached(LIST)?;
            let values = params![only, realm, name, limit];
            statement.query_map(values, |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
    }

    fn realms(self: Arc<Self>) -> Called<Vec<(String, u64)>> {
        const REALMS: &str = "SELECT realm, COUNT(*) AS users FROM turnusers_lt
            GROUP BY realm ORDER BY users DESC, realm LIMIT ?1";
        self.run(|file| {
            let mut statement = file.prepare(REALMS)?;
            let pair =
                |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs()));
            statement.query_map([REALMS_MAX], pair)?.collect()
        })
    }

    fn rows(self: Arc<Self>, tables: Vec<Table>, limit: u32) -> Called<Vec<(Table, Row)>> {
        self.run(move |file| {
            let mut all = Vec::new();
            for table in tables {
                let sql = Dialect::Sqlite.select(table, limit.saturating_add(1));
                let mut statement = file.prepare_cached(&sql)?;
                let columns = table.columns().len();
                let values = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get(at)).collect();
                for row in statement.query_map([], values)? {
                    all.push((table, row?));
                }
            }
            Ok(all)
        })
    }

    fn put(self: Arc<Self>, table: Table, row: Row) -> Called<()> {
        let sql = Dialect::Sqlite.upsert(table);
        self.run(move |file| file.execute(&sql, params_from_iter(row)).map(drop))
    }

    fn remove(self: Arc<Self>, table: Table, key: Row) -> Called<()> {
        let sql = Dialect::Sqlite.delete(table, key.len());
        self.run(move |file| file.execute(&sql, params_from_iter(key)).map(drop))
    }

    fn hear(self: Arc<Self>, changes: Arc<Changes>) -> Heard {
        Box::pin(async move {
            let mut last = None;
            loop {
                let version = self.run(|file| {
                    file.pragma_query_value(None, "data_version", |row| row.get::<_, i64>(0))
                });
                let file = fs::metadata(&self.path).ok().map(|it| (it.dev(), it.ino()));
                let now = Some((version.await.map_err(|error| error.to_string())?, file));
                if now != last {
                    changes.changed();
                    last = now;
                }
                changes.report(true);
                sleep(DATA_VERSION_EVERY).await;
            }
        })
    }
}

fn changed(
    file: &SqliteCoturn,
    sql: &'static str,
    mut values: Vec<String>,
    key: Option<Secret<String>>,
) -> Called<bool> {
    values.extend(key.map(|key| key.expose().clone()));
    file.run(move |file| Ok(file.execute(sql, params_from_iter(values))? > 0))
}
