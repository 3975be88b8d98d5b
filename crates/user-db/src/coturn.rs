//! Users in coturn's layout, in a database that coturn may use concurrently: a realm, a name, and
//! the MD5 key in hexadecimal digits. The layout has neither SHA-256 keys, nor USERHASH, nor a
//! limit of allocations.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Runtime;
use turn_types::Secret;

use crate::error::StoreError;
use crate::limits::{EDIT_WITHIN, IN_FLIGHT_MAX};
use crate::store::{
    Lookup, NewUser, Page, UserEditor, UserKeys, UserQuery, UserReader, UserRecord, UserSummary,
};
use crate::table::{Row, Table};

/// Result of a call to the database.
pub(crate) type Called<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Database with coturn's layout. Calls run within a tokio runtime, and any number concurrently.
pub(crate) trait CoturnDatabase: Send + Sync + 'static {
    /// Returns the maximum number of concurrent look-ups, as in [`UserReader::concurrent_max`].
    fn concurrent_max(&self) -> usize {
        IN_FLIGHT_MAX
    }

    /// Returns the stored key of a user. An unusable value is not an error of the database.
    fn key(self: Arc<Self>, realm: String, name: String) -> Called<Option<StoredKey>>;

    /// Adds a user. Returns false if the user exists already.
    fn insert(self: Arc<Self>, user: Kept) -> Called<bool>;

    /// Replaces the key of a user. Returns false if the user does not exist.
    fn update(self: Arc<Self>, user: Kept) -> Called<bool>;

    /// Deletes a user. Returns false if the user does not exist.
    fn delete(self: Arc<Self>, realm: String, name: String) -> Called<bool>;

    /// Returns the realms and names after a position, sorted by realm and name.
    fn list(self: Arc<Self>, page: Page) -> Called<Vec<(String, String)>>;

    /// Returns the realms with their number of users, sorted by that number, the largest first.
    fn realms(self: Arc<Self>) -> Called<Vec<(String, u64)>>;

    /// Returns rows of other tables, at most `limit` + 1 of each.
    fn rows(self: Arc<Self>, tables: Vec<Table>, limit: u32) -> Called<Vec<(Table, Row)>>;

    /// Adds a row, or replaces the row with the same key.
    fn put(self: Arc<Self>, table: Table, row: Row) -> Called<()>;

    /// Deletes the rows with these values of the first key columns.
    fn remove(self: Arc<Self>, table: Table, key: Row) -> Called<()>;

    /// Listens to changes of users until the connection closes.
    ///
    /// # Errors
    /// The connection cannot be opened.
    fn hear(self: Arc<Self>, changes: Arc<Changes>) -> Heard;

    /// Listens to changes of users, with reconnections, until the runtime stops.
    fn listen(self: Arc<Self>, changes: Arc<Changes>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let mut pause = Pause::new();
            loop {
                if Arc::clone(&self).hear(Arc::clone(&changes)).await.is_ok() {
                    pause = Pause::new();
                }
                changes.report(false);
                tokio::time::sleep(pause.next()).await;
            }
        })
    }
}

/// Future that completes when a connection for reports of changes closes.
pub(crate) type Heard = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Key in the row of a user, which may be any value: operators disable users by an unusable key.
#[derive(Debug)]
pub(crate) struct StoredKey(Result<Secret<String>, &'static str>);

/// Reason for a value of another type.
pub(crate) const OF_ANOTHER_TYPE: &str = "the key is of another type than text";

/// Reason for a missing value.
const NO_KEY: &str = "the key is NULL or empty";

impl StoredKey {
    /// Creates a key from text in any encoding; `None` represents NULL.
    pub(crate) fn new(value: Option<&[u8]>) -> Self {
        let text = |bytes| Secret::new(String::from_utf8_lossy(bytes).into_owned());
        Self(value.map(text).ok_or(NO_KEY))
    }

    /// Creates a key for a value that is not text. `what` is the reason, for operators.
    pub(crate) const fn unusable(what: &'static str) -> Self {
        Self(Err(what))
    }

    /// Parses the key.
    ///
    /// # Errors
    /// The value is unusable. The text is the reason, for operators.
    fn md5(&self) -> Result<Secret<[u8; 16]>, &'static str> {
        // The value is padded if the column has a fixed width.
        let text = self.0.as_ref().map_err(|what| *what)?.expose().trim_end();
        if text.is_empty() {
            return Err(NO_KEY);
        }
        unhex(text).map(Secret::new).ok_or("the key is not 32 hexadecimal digits")
    }
}

/// User as stored in the database.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) realm: String,
    pub(crate) name: String,
    /// MD5 key, as 32 lower-case hexadecimal digits.
    pub(crate) key: Secret<String>,
}

impl Kept {
    fn of(user: &NewUser) -> Self {
        let key = hex(user.keys.md5.expose());
        Self { realm: user.realm.clone(), name: user.name.clone(), key: Secret::new(key) }
    }
}

/// Changes that the database has reported.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    revision: AtomicU64,
    reported: AtomicBool,
}

impl Changes {
    /// Counts a change of a user, or a period without reports in which users may have changed.
    pub(crate) fn changed(&self) {
        self.revision.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets whether the database currently reports changes.
    pub(crate) fn report(&self, reported: bool) {
        self.reported.store(reported, Ordering::Relaxed);
    }
}

/// Look-ups in a database with coturn's layout.
pub(crate) struct CoturnReader {
    users: Arc<dyn CoturnDatabase>,
    changes: Arc<Changes>,
    listens: AtomicBool,
}

impl CoturnReader {
    pub(crate) fn new(users: Arc<dyn CoturnDatabase>) -> Self {
        Self { users, changes: Arc::default(), listens: AtomicBool::new(false) }
    }
}

impl UserReader for CoturnReader {
    fn find(&self, realm: &Arc<str>, user: &UserQuery) -> Lookup<Option<UserRecord>> {
        let UserQuery::Name(name) = user else {
            // The layout has only names. The server does not announce USERHASH with this layout.
            return Box::pin(async { Ok(None) });
        };
        let key = Arc::clone(&self.users).key(realm.to_string(), name.to_string());
        let (realm, name) = (Arc::clone(realm), Arc::clone(name));
        Box::pin(async move { key.await?.map(|key| record(&realm, name, &key)).transpose() })
    }

    fn revision(&self) -> Lookup<u64> {
        if !self.listens.swap(true, Ordering::Relaxed) {
            tokio::spawn(Arc::clone(&self.users).listen(Arc::clone(&self.changes)));
        }
        let revision = self.changes.revision.load(Ordering::Relaxed);
        Box::pin(async move { Ok(revision) })
    }

    fn concurrent_max(&self) -> usize {
        self.users.concurrent_max()
    }

    fn reports_changes(&self) -> bool {
        self.changes.reported.load(Ordering::Relaxed)
    }
}

/// Changes and lists in a database with coturn's layout.
pub(crate) struct CoturnEditor {
    users: Arc<dyn CoturnDatabase>,
    /// Removed when the editor is dropped.
    runtime: Option<Runtime>,
}

impl CoturnEditor {
    pub(crate) fn new(users: Arc<dyn CoturnDatabase>) -> Result<Self, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self { users, runtime: Some(runtime.map_err(StoreError::Threads)?) })
    }

    /// Returns rows of a table, at most `limit` + 1.
    pub(crate) fn rows(&self, table: Table, limit: u32) -> Result<Vec<Row>, StoreError> {
        let rows = self.wait(|database| database.rows(vec![table], limit))?;
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    /// Adds a row, or replaces the row with the same key.
    pub(crate) fn put(&self, table: Table, row: Row) -> Result<(), StoreError> {
        self.wait(|database| database.put(table, row))
    }

    /// Deletes the rows with these values of the first key columns.
    pub(crate) fn remove(&self, table: Table, key: Row) -> Result<(), StoreError> {
        self.wait(|database| database.remove(table, key))
    }

    /// Waits for a call on a separate thread, because the caller may be within another runtime.
    fn wait<T: Send>(
        &self,
        call: impl FnOnce(Arc<dyn CoturnDatabase>) -> Called<T> + Send,
    ) -> Result<T, StoreError> {
        let Some(runtime) = &self.runtime else { return Err(StoreError::Overloaded) };
        let work = || {
            runtime.block_on(async {
                let late = StoreError::TimedOut { within: EDIT_WITHIN };
                let called = call(Arc::clone(&self.users));
                tokio::time::timeout(EDIT_WITHIN, called).await.unwrap_or(Err(late))
            })
        };
        std::thread::scope(|scope| match scope.spawn(work).join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

impl Drop for CoturnEditor {
    /// Shuts down without a wait for connections. The caller may be within another runtime, where
    /// blocking is forbidden.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl UserEditor for CoturnEditor {
    fn add(&mut self, user: &NewUser) -> Result<(), StoreError> {
        no_limit(user.allocations_max)?;
        let kept = Kept::of(user);
        if self.wait(|users| users.insert(kept))? {
            return Ok(());
        }
        Err(StoreError::Exists { name: user.name.clone(), realm: user.realm.clone() })
    }

    fn replace(&mut self, user: &NewUser) -> Result<bool, StoreError> {
        no_limit(user.allocations_max)?;
        if self.set_keys(user)? {
            return Ok(true);
        }
        let kept = Kept::of(user);
        // Another command may have added the user in between. Replace that key as well.
        Ok(!self.wait(|users| users.insert(kept))? && self.set_keys(user)?)
    }

    fn set_keys(&mut self, user: &NewUser) -> Result<bool, StoreError> {
        let kept = Kept::of(user);
        self.wait(|users| users.update(kept))
    }

    fn set_allocations_max(
        &mut self,
        _realm: &str,
        _name: &str,
        _allocations_max: Option<u32>,
    ) -> Result<bool, StoreError> {
        Err(StoreError::NoLimits)
    }

    fn delete(&mut self, realm: &str, name: &str) -> Result<bool, StoreError> {
        let (realm, name) = (realm.to_owned(), name.to_owned());
        self.wait(|users| users.delete(realm, name))
    }

    fn user(&mut self, realm: &str, user: &UserQuery) -> Result<Option<UserRecord>, StoreError> {
        let UserQuery::Name(name) = user else { return Ok(None) };
        let (owned, key_of) = (realm.to_owned(), name.to_string());
        let key = self.wait(|users| users.key(owned, key_of))?;
        key.map(|key| record(realm, Arc::clone(name), &key)).transpose()
    }

    fn list(&mut self, page: &Page) -> Result<Vec<UserSummary>, StoreError> {
        let page = page.clone();
        let users = self.wait(|users| users.list(page))?;
        let summary =
            |(realm, name)| UserSummary { realm, name, allocations_max: None, created: None };
        Ok(users.into_iter().map(summary).collect())
    }

    fn realms(&mut self) -> Result<Vec<(String, u64)>, StoreError> {
        self.wait(CoturnDatabase::realms)
    }

    /// Returns true without a query: every user of this layout has only an MD5 key.
    fn has_md5_only(&mut self, _realm: &str) -> Result<bool, StoreError> {
        Ok(true)
    }
}

fn no_limit(allocations_max: Option<u32>) -> Result<(), StoreError> {
    allocations_max.map_or(Ok(()), |_| Err(StoreError::NoLimits))
}

fn record(realm: &str, name: Arc<str>, key: &StoredKey) -> Result<UserRecord, StoreError> {
    match key.md5() {
        Ok(md5) => {
            Ok(UserRecord { name, keys: UserKeys { md5, sha256: None }, allocations_max: None })
        }
        Err(what) => Err(StoreError::Row { name: name.to_string(), realm: realm.to_owned(), what }),
    }
}

/// Formats bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses 32 hexadecimal digits of either case.
pub(crate) fn unhex(text: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// Pauses between attempts to reach a server that does not respond. Each pause is twice the
/// previous, up to a maximum.
#[derive(Debug)]
pub(crate) struct Pause(Duration);

impl Pause {
    pub(crate) const fn new() -> Self {
        Self(crate::limits::PAUSE_MIN)
    }

    /// Returns the next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(crate::limits::PAUSE_MAX);
        pause
    }
}

/// Formats an error and its causes in one line.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_coturn() {
        // From coturn's testsqldbsetup.sql.
        let password = Secret::new("hero".to_owned());
        let user = NewUser::new("north.gov", "gorst", &password, None).unwrap();
        let kept = Kept::of(&user);
        assert_eq!(kept.key.expose(), "7da2270ccfa49786e0115366d3a3d14d");
        assert_eq!(unhex(kept.key.expose()), Some(*user.keys.md5.expose()));
        for wrong in
            ["", "hero", "7da2270ccfa49786e0115366d3a3d14", "+da2270ccfa49786e0115366d3a3d14d"]
        {
            assert_eq!(unhex(wrong), None);
        }
        let key = StoredKey::new(Some(b"clear"));
        let error = record("r", "n".into(), &key).unwrap_err().to_string();
        assert!(!error.contains("clear") && !format!("{key:?}").contains("clear"), "{error}");
        let padded = StoredKey::new(Some(b"7DA2270CCFA49786E0115366D3A3D14D   "));
        assert!(padded.md5().is_ok());
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut pause = Pause::new();
        let pauses: Vec<_> = (0..8).map(|_| pause.next().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000, 1000, 1000]);
    }
}
