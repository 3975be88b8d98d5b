//! Coturn's collections in MongoDB. MongoDB reports changes only in replica sets, and only to users
//! with sufficient rights. Answers are therefore valid only for a short time.

mod places;

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{
    ClientOptions, ConnectionString, HostInfo, ReadPreference, SelectionCriteria, ServerAddress,
    Tls, TlsOptions,
};
use mongodb::{Client, Collection, Database};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use self::places::Change;
use crate::coturn::{Called, Changes, CoturnDatabase, Heard, Kept, StoredKey};
use crate::endpoint::Endpoint;
use crate::error::StoreError;
use crate::limits::{CONNECT_WITHIN, ONE_AT_A_TIME, REALMS_MAX, UNUSED_FOR};
use crate::server_url::ServerUrl;
use crate::store::{Page, Position};
use crate::table::{Row, Table};

/// Collection of users: `realm`, `name`, `hmackey`.
const USERS: &str = "turnusers_lt";

/// Default database if the URL names none, as in coturn.
const DATABASE: &str = "turn";

/// Error code of an insertion that violates a unique index.
const DUPLICATE: i32 = 11_000;

/// Returns the endpoints of the driver's connections, as the driver parses them from a URL.
pub(crate) fn endpoints(url: &ServerUrl) -> Result<Vec<Endpoint>, StoreError> {
    let parsed = ConnectionString::parse(url.expose()).map_err(|error| {
        url.failed(format_args!("the URL cannot be understood: {}", text(&error)))
    })?;
    Ok(match parsed.host_info {
        HostInfo::HostIdentifiers(hosts) => hosts.iter().map(endpoint).collect(),
        HostInfo::DnsRecord(name) => vec![Endpoint::host(&name)],
        _ => vec![Endpoint::host("a host of another kind")],
    })
}

fn endpoint(server: &ServerAddress) -> Endpoint {
    match server {
        ServerAddress::Tcp { host, .. } => Endpoint::host(host),
        ServerAddress::Unix { .. } => Endpoint::Socket,
        _ => Endpoint::host("a host of another kind"),
    }
}

/// MongoDB with coturn's collections.
pub(crate) struct Mongo {
    url: ServerUrl,
    /// True if connections are encrypted.
    tls: bool,
    connections: u32,
    /// Maximum wait of a call for a responding server.
    selection: Duration,
    /// Database handle, created at the first call, because creation needs a runtime. The driver
    /// reconnects automatically.
    database: OnceCell<Database>,
}

impl Mongo {
    pub(crate) fn new(
        url: ServerUrl,
        connections: usize,
        selection: Duration,
    ) -> Result<Self, StoreError> {
        let tls = url.encrypts(&endpoints(&url)?);
        if tls {
            // Reports an unreadable file immediately.
            url.authorities()?;
        }
        let connections = u32::try_from(connections * ONE_AT_A_TIME).unwrap_or(u32::MAX);
        Ok(Self { url, tls, connections, selection, database: OnceCell::new() })
    }

    fn failed(&self, error: &Error) -> StoreError {
        self.url.failed(format_args!("{}", text(error)))
    }

    async fn database(self: &Arc<Self>) -> Result<Database, StoreError> {
        if let Some(database) = self.database.get() {
            return Ok(database.clone());
        }
        let this = Arc::clone(self);
        // A separate task: a cancelled look-up must not cancel the resolution of hosts that other
        // look-ups wait for.
        let made = tokio::spawn(async move {
            let made = this.database.get_or_try_init(|| this.open());
            made.await.cloned()
        });
        made.await.unwrap_or(Err(StoreError::Overloaded))
    }

    /// Creates the client. Waits for the network only to find the hosts of `mongodb+srv://`.
    async fn open(&self) -> Result<Database, StoreError> {
        let late = |_| self.url.failed(format_args!("its hosts are not found in time"));
        let parsed = timeout(CONNECT_WITHIN, ClientOptions::parse(self.url.expose())).await;
        let mut options = parsed.map_err(late)?.map_err(|error| self.failed(&error))?;
        options.app_name.get_or_insert_with(|| "turnpike".to_owned());
        options.connect_timeout = Some(CONNECT_WITHIN);
        options.server_selection_timeout = Some(self.selection);
        options.max_pool_size = Some(self.connections);
        options.min_pool_size = Some(0);
        options.max_idle_time = Some(UNUSED_FOR);
        // While a replica set has no primary, secondaries answer.
        options.selection_criteria.get_or_insert_with(|| {
            let options = None;
            SelectionCriteria::ReadPreference(ReadPreference::PrimaryPreferred { options })
        });
        let tls = match options.tls.take() {
            Some(Tls::Enabled(tls)) => tls,
            Some(Tls::Disabled) | None => TlsOptions::default(),
        };
        // Without TLS to a server on this host, do not connect to other servers that it announces.
        if !self.tls && options.hosts.len() == 1 && options.repl_set_name.is_none() {
            options.direct_connection.get_or_insert(true);
        }
        options.tls = Some(if self.tls {
            let mut tls = tls;
            tls.allow_invalid_certificates = Some(false);
            tls.ca_file_path = Some(self.url.authorities_file()?);
            Tls::Enabled(tls)
        } else {
            Tls::Disabled
        });
        let client = Client::with_options(options).map_err(|error| self.failed(&error))?;
        Ok(client.default_database().unwrap_or_else(|| client.database(DATABASE)))
    }

    async fn collection(self: &Arc<Self>, name: &str) -> Result<Collection<Document>, StoreError> {
        Ok(self.database().await?.collection(name))
    }

    /// Returns at most `most` documents of a collection, sorted by these fields.
    async fn documents(
        self: &Arc<Self>,
        collection: &str,
        filter: Document,
        fields: &[&str],
        most: u32,
    ) -> Result<Vec<Document>, StoreError> {
        let order: Document = fields.iter().map(|field| ((*field).to_owned(), 1.into())).collect();
        let found = async {
            let collection = self.collection(collection).await?;
            let found = collection.find(filter).sort(order).limit(most.into());
            let mut cursor = found.await.map_err(Failed::Driver)?;
            let mut documents = Vec::new();
            while cursor.advance().await.map_err(Failed::Driver)? {
                documents.push(cursor.deserialize_current().map_err(Failed::Driver)?);
            }
            Ok(documents)
        };
        found.await.map_err(|failed| self.store_error(failed))
    }

    async fn change(self: &Arc<Self>, change: Change) -> Result<(), StoreError> {
        let collection = self.collection(change.collection).await?;
        let changed = match change.update {
            None => collection.delete_many(change.filter).await.map(drop),
            Some(update) if change.adds => {
                collection.update_one(change.filter, update).upsert(true).await.map(drop)
            }
            Some(update) => collection.update_many(change.filter, update).await.map(drop),
        };
        match changed {
            // Another program has added the document concurrently.
            Err(error) if change.adds && is_duplicate(&error) => Ok(()),
            changed => changed.map_err(|error| self.failed(&error)),
        }
    }

    fn store_error(&self, failed: Failed) -> StoreError {
        match failed {
            Failed::Store(error) => error,
            Failed::Driver(error) => self.failed(&error),
        }
    }
}

/// Error of several consecutive steps.
enum Failed {
    Store(StoreError),
    Driver(Error),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Formats an error in one line, without the failed command, which may contain a key.
fn text(error: &Error) -> String {
    if let ErrorKind::Command(error) = &*error.kind {
        let what = error.message.split(" to execute command").next().unwrap_or_default();
        return format!("{what} ({}, code {})", error.code_name, error.code);
    }
    if let ErrorKind::Write(WriteFailure::WriteError(error)) = &*error.kind {
        return error.message.clone();
    }
    error.kind.to_string().replace("Kind: ", "").replace(", labels: {}", "")
}

fn is_duplicate(error: &Error) -> bool {
    if let ErrorKind::Write(WriteFailure::WriteError(error)) = &*error.kind {
        return error.code == DUPLICATE;
    }
    matches!(&*error.kind, ErrorKind::Command(error) if error.code == DUPLICATE)
}

fn field(document: &Document, name: &str) -> String {
    document.get_str(name).unwrap_or_default().to_owned()
}

impl CoturnDatabase for Mongo {
    fn concurrent_max(&self) -> usize {
        self.connections as usize
    }

    fn key(self: Arc<Self>, realm: String, name: String) -> Called<Option<StoredKey>> {
        Box::pin(async move {
            let users = self.collection(USERS).await?;
            let user = users.find_one(doc! { "realm": realm, "name": name }).await;
            let user = user.map_err(|error| self.failed(&error))?;
            let key =
                |user: Document| StoredKey::new(user.get_str("hmackey").ok().map(str::as_bytes));
            Ok(user.map(key))
        })
    }

    fn insert(self: Arc<Self>, user: Kept) -> Called<bool> {
        Box::pin(async move {
            let Kept { realm, name, key } = user;
            let users = self.collection(USERS).await?;
            let update = doc! { "$setOnInsert": { "hmackey": key.expose() } };
            // A single operation, safe even without a unique index.
            let upsert = users.update_one(doc! { "realm": realm, "name": name }, update);
            match upsert.upsert(true).await {
                Ok(done) => Ok(done.upserted_id.is_some()),
                Err(error) if is_duplicate(&error) => Ok(false),
                Err(error) => Err(self.failed(&error)),
            }
        })
    }

    fn update(self: Arc<Self>, user: Kept) -> Called<bool> {
        Box::pin(async move {
            let Kept { realm, name, key } = user;
            let users = self.collection(USERS).await?;
            let update = doc! { "$set": { "hmackey": key.expose() } };
            let done = users.update_many(doc! { "realm": realm, "name": name }, update).await;
            done.map(|done| done.matched_count > 0).map_err(|error| self.failed(&error))
        })
    }

    fn delete(self: Arc<Self>, realm: String, name: String) -> Called<bool> {
        Box::pin(async move {
            let users = self.collection(USERS).await?;
            // Without a unique index, a user may have several documents.
            let done = users.delete_many(doc! { "realm": realm, "name": name }).await;
            done.map(|done| done.deleted_count > 0).map_err(|error| self.failed(&error))
        })
    }

    fn list(self: Arc<Self>, page: Page) -> Called<Vec<(String, String)>> {
        Box::pin(async move {
            let Position { realm, name } = page.after.unwrap_or_default();
            let behind = [
                doc! { "realm": { "$gt": &realm } },
                doc! { "realm": realm, "name": { "$gt": name } },
            ];
            let mut filter = doc! { "$or": behind };
            if let Some(one) = page.realm {
                filter = doc! { "$and": [{ "realm": one }, filter] };
            }
            let users = self.documents(USERS, filter, &["realm", "name"], page.limit).await?;
            Ok(users.iter().map(|user| (field(user, "realm"), field(user, "name"))).collect())
        })
    }

    fn realms(self: Arc<Self>) -> Called<Vec<(String, u64)>> {
        Box::pin(async move {
            let stages = [
                doc! { "$group": { "_id": "$realm", "users": { "$sum": 1_i64 } } },
                doc! { "$sort": { "users": -1, "_id": 1 } },
                doc! { "$limit": i64::from(REALMS_MAX) },
            ];
            let counted = async {
                let users = self.collection(USERS).await?;
                let mut cursor = users.aggregate(stages).await.map_err(Failed::Driver)?;
                let mut realms = Vec::new();
                while cursor.advance().await.map_err(Failed::Driver)? {
                    let realm: Document = cursor.deserialize_current().map_err(Failed::Driver)?;
                    realms.push((field(&realm, "_id"), places::number(realm.get("users"))));
                }
                Ok(realms)
            };
            counted.await.map_err(|failed| self.store_error(failed))
        })
    }

    fn rows(self: Arc<Self>, tables: Vec<Table>, limit: u32) -> Called<Vec<(Table, Row)>> {
        Box::pin(async move {
            let most = limit.saturating_add(1);
            let mut all = Vec::new();
            for (collection, fields) in places::COLLECTIONS {
                let here: Vec<Table> = tables
                    .iter()
                    .copied()
                    .filter(|table| places::is_in(*table, collection))
                    .collect();
                if here.is_empty() {
                    continue;
                }
                let documents = self.documents(collection, Document::new(), fields, most).await?;
                for table in here {
                    let mut rows: Vec<Row> = documents
                        .iter()
                        .flat_map(|document| places::rows(table, document))
                        .collect();
                    rows.sort_unstable();
                    rows.truncate(most as usize);
                    all.extend(rows.into_iter().map(|row| (table, row)));
                }
            }
            Ok(all)
        })
    }

    fn put(self: Arc<Self>, table: Table, row: Row) -> Called<()> {
        Box::pin(async move {
            let changes = places::put(table, &row);
            for change in changes.map_err(|what| self.url.failed(format_args!("{what}")))? {
                self.change(change).await?;
            }
            Ok(())
        })
    }

    fn remove(self: Arc<Self>, table: Table, key: Row) -> Called<()> {
        Box::pin(async move { self.change(places::remove(table, &key)).await })
    }

    fn hear(self: Arc<Self>, _: Arc<Changes>) -> Heard {
        Box::pin(std::future::pending())
    }
}

#[cfg(test)]
mod tests {
    use crate::server::check_url;

    #[test]
    fn a_url_is_checked_without_a_network() {
        check_url("mongodb+srv://turn:hush@cluster.example.org/turn?sslmode=disable").unwrap();
        for (url, reason) in [
            ("mongodb://turn:p@ss@db/turn?sslmode=disable", "the URL cannot be understood"),
            ("mongodb://db/turn?maxPoolSize=many&tls=false", "the URL cannot be understood"),
            ("mongodb://db/turn?tlsCAFile=%2Fnone.pem", "/none.pem: No such file"),
        ] {
            let error = check_url(url).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
