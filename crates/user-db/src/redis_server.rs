//! Coturn's keys in Redis: `turn/realm/<realm>/user/<name>/key`. Look-ups are pipelined on one
//! connection. Keyspace events report changes, if the server sends events.

mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::RedisError;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands as _, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};
use tokio::time::timeout;

use self::places::Place;
use crate::coturn::{
    Called, Changes, CoturnDatabase, Heard, Kept, OF_ANOTHER_TYPE, StoredKey, causes,
};
use crate::endpoint::Endpoint;
use crate::error::StoreError;
use crate::limits::{
    CONNECT_WITHIN, EDIT_WITHIN, PAUSE_MAX, PAUSE_MIN, REALMS_MAX, SCAN_COUNT, TRIGGER_EVERY,
};
use crate::publication::Publication;
use crate::server_url::ServerUrl;
use crate::store::{Page, Position};
use crate::table::{Row, Table};

/// Returns the settings of a URL, parsed by the driver.
pub(crate) fn info(url: &ServerUrl) -> Result<ConnectionInfo, StoreError> {
    let info = url.expose().into_connection_info().map_err(|error| {
        url.failed(format_args!("the URL cannot be understood: {}", causes(&error)))
    })?;
    if matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
        return Err(url.failed(format_args!(
            "#insecure is not offered: the server's certificate is checked; name its authority with sslrootcert="
        )));
    }
    Ok(info)
}

/// Returns the endpoint of the driver's connection.
pub(crate) fn endpoint(info: &ConnectionInfo) -> Endpoint {
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => Endpoint::host(host),
        ConnectionAddr::Unix(_) => Endpoint::Socket,
        _ => Endpoint::host("a server of another kind"),
    }
}

fn is_encrypted(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// Redis with coturn's keys.
pub(crate) struct Redis {
    url: ServerUrl,
    client: Client,
    /// Connection that reconnects automatically, except after a failed login. `None` before the
    /// first use, and after a failure.
    manager: Mutex<Option<ConnectionManager>>,
}

impl Redis {
    pub(crate) fn new(url: ServerUrl) -> Result<Self, StoreError> {
        let info = info(&url)?;
        let client = if is_encrypted(&info) {
            let root_cert = Some(url.authorities()?);
            // The driver configures TLS with the default cryptography of the process.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            let certificates = redis::TlsCertificates { client_tls: None, root_cert };
            Client::build_with_tls(info, certificates)
        } else {
            Client::open(info)
        };
        let client = client.map_err(|error| {
            url.failed(format_args!("the URL cannot be understood: {}", causes(&error)))
        })?;
        Ok(Self { url, client, manager: Mutex::new(None) })
    }

    /// Applies changes and publishes their messages.
    pub(crate) async fn publish(&self, changes: &[Publication]) -> Result<(), StoreError> {
        let mut manager = self.manager()?;
        let mut pipe = redis::pipe();
        for change in changes {
            match change {
                Publication::Set { key, value, expires } => {
                    let seconds = expires.as_secs().max(1);
                    pipe.cmd("SET").arg(key).arg(value).arg("EX").arg(seconds).ignore();
                    pipe.cmd("PUBLISH").arg(key).arg(value).ignore();
                }
                Publication::Delete { key, message } => {
                    pipe.cmd("DEL").arg(key).ignore();
                    pipe.cmd("PUBLISH").arg(key).arg(message).ignore();
                }
                Publication::Publish { channel, message } => {
                    pipe.cmd("PUBLISH").arg(channel).arg(message).ignore();
                }
            }
        }
        let sent: Result<(), RedisError> = pipe.query_async(&mut manager).await;
        sent.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &RedisError) -> StoreError {
        if may_be_of_login(error) {
            // The manager would return this error forever.
            *self.lock() = None;
        }
        self.url.failed(format_args!("{}", causes(error)))
    }

    fn manager(&self) -> Result<ConnectionManager, StoreError> {
        let config = || {
            ConnectionManagerConfig::new()
                .set_min_delay(PAUSE_MIN)
                .set_max_delay(PAUSE_MAX)
                .set_number_of_retries(1)
                .set_connection_timeout(Some(CONNECT_WITHIN))
                .set_response_timeout(Some(EDIT_WITHIN))
        };
        let mut manager = self.lock();
        if let Some(manager) = &*manager {
            return Ok(manager.clone());
        }
        let made = self.client.get_connection_manager_lazy(config());
        let made = made.map_err(|error| self.url.failed(format_args!("{}", causes(&error))))?;
        Ok(manager.insert(made).clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<ConnectionManager>> {
        self.manager.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Visits the users of a realm, or of all realms. Uses SCAN, because KEYS blocks the server for
    /// all clients.
    async fn scan(
        &self,
        realm: Option<&str>,
        mut each: impl FnMut(&str, &str),
    ) -> Result<(), StoreError> {
        let realm = realm.map_or_else(|| "*".to_owned(), escaped);
        let pattern = format!("turn/realm/{realm}/user/*/key");
        let mut cursor: u64 = 0;
        loop {
            let (next, keys) = self.step(cursor, &pattern).await?;
            for key in &keys {
                if let Some((realm, name)) = std::str::from_utf8(key).ok().and_then(parts) {
                    each(realm, name);
                }
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// Scans a part of the keys that match a pattern. Returns the next cursor, which is 0 after the
    /// last part, and the matching keys.
    async fn step(&self, cursor: u64, pattern: &str) -> Result<(u64, Vec<Vec<u8>>), StoreError> {
        let mut manager = self.manager()?;
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT);
        scan.query_async(&mut manager).await.map_err(|error| self.failed(&error))
    }

    /// Returns the rows of a key. For a set with more than `most` members, returns `most` rows with
    /// an empty value instead.
    async fn rows_at(&self, place: &Place, most: u32) -> Result<Vec<Row>, StoreError> {
        let mut manager = self.manager()?;
        let got: Result<Vec<Row>, RedisError> = async {
            Ok(match place.table {
                Table::Secrets | Table::AllowedPeers | Table::DeniedPeers => {
                    let mut values: Vec<String> = Vec::new();
                    // The members of a set larger than `most` are not fetched.
                    if manager.scard::<_, u32>(&place.key).await? <= most {
                        let members: Vec<Vec<u8>> = manager.smembers(&place.key).await?;
                        values.extend(members.into_iter().map(|member| text(place.table, member)));
                    } else {
                        values.resize(most as usize, String::new());
                    }
                    values.sort_unstable();
                    values.into_iter().map(|value| vec![place.name.clone(), value]).collect()
                }
                Table::Origins => {
                    let realm: Option<Vec<u8>> = manager.get(&place.key).await?;
                    let realm = realm.map(|realm| text(place.table, realm));
                    realm.map(|realm| vec![place.name.clone(), realm]).into_iter().collect()
                }
                Table::Options => {
                    let value: Option<Vec<u8>> = manager.get(&place.key).await?;
                    let value = value.map(|value| text(place.table, value));
                    let row = |value| vec![place.name.clone(), place.option.to_owned(), value];
                    value.map(row).into_iter().collect()
                }
                Table::TokenKeys | Table::Admins => {
                    let fields = &place.table.columns()[1..];
                    let found: Vec<Option<Vec<u8>>> = redis::cmd("HMGET")
                        .arg(&place.key)
                        .arg(fields)
                        .query_async(&mut manager)
                        .await?;
                    let values = found.into_iter().map(Option::unwrap_or_default);
                    let values = values.map(|value| text(place.table, value));
                    vec![std::iter::once(place.name.clone()).chain(values).collect()]
                }
            })
        }
        .await;
        match got {
            // A mistake in one realm must not affect other realms.
            Err(error) if error.code() == Some(WRONG_TYPE) => Ok(unusable(place)),
            got => got.map_err(|error| self.failed(&error)),
        }
    }

    async fn run(&self, command: redis::Cmd) -> Result<(), StoreError> {
        let mut manager = self.manager()?;
        let done: Result<redis::Value, _> = command.query_async(&mut manager).await;
        done.map(drop).map_err(|error| self.failed(&error))
    }

    async fn set(self: Arc<Self>, user: Kept, only: &'static str) -> Result<bool, StoreError> {
        let mut manager = self.manager()?;
        let set: Option<String> = redis::cmd("SET")
            .arg(key_of(&user.realm, &user.name))
            .arg(user.key.expose())
            .arg(only)
            .query_async(&mut manager)
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(set.is_some())
    }

    /// Receives keyspace events until the connection closes.
    async fn notified(&self, changes: &Changes) -> Result<(), RedisError> {
        let mut pubsub = self.client.get_async_pubsub().await?;
        pubsub.psubscribe("__keyspace@*__:turn/realm/*/user/*/key").await?;
        // A change before the subscription may have been missed.
        changes.changed();
        loop {
            changes.report(self.sends_events().await);
            let mut messages = pubsub.on_message();
            let message = std::future::poll_fn(|context| {
                use futures_core::Stream as _;
                std::pin::Pin::new(&mut messages).poll_next(context)
            });
            let heard = timeout(TRIGGER_EVERY, message).await;
            drop(messages);
            match heard {
                Ok(Some(_)) => changes.changed(),
                Ok(None) => return Ok(()),
                // Silence may mean a connection that hangs.
                Err(_) => match timeout(TRIGGER_EVERY, pubsub.ping::<redis::Value>()).await {
                    Err(_) => return Ok(()),
                    Ok(Err(error)) if error.is_io_error() => return Err(error),
                    // An access list may refuse PING. That error is a response, too.
                    Ok(Ok(_) | Err(_)) => {}
                },
            }
        }
    }

    /// Returns true if the server sends events when keys are set, deleted, evicted or expire.
    async fn sends_events(&self) -> bool {
        let Ok(mut manager) = self.manager() else { return false };
        let asked = redis::cmd("CONFIG").arg("GET").arg("notify-keyspace-events").to_owned();
        // An access list may refuse CONFIG. The setting is then unknown.
        let answer: Result<Vec<String>, _> = asked.query_async(&mut manager).await;
        let flags = answer.ok().and_then(|mut pair| pair.pop()).unwrap_or_default();
        let has = |flag| flags.contains(flag);
        has('K') && (has('A') || (has('g') && has('$') && has('x') && has('e')))
    }
}

/// Converts a value to text. Bytes that are not text make a row unusable, which the row's reader
/// reports. A secret becomes empty, because a secret of replacement characters could be guessed.
fn text(table: Table, value: Vec<u8>) -> String {
    String::from_utf8(value).unwrap_or_else(|error| {
        if table == Table::Secrets {
            return String::new();
        }
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    })
}

/// Returns unusable rows for a key of another type, which their reader reports. A list of denied
/// peers then denies all peers.
fn unusable(place: &Place) -> Vec<Row> {
    let columns = place.table.columns().len();
    let mut rows = vec![vec![String::new(); columns]];
    if place.table == Table::DeniedPeers {
        rows.extend(EVERYBODY.map(|range| vec![String::new(), range.to_owned()]));
    }
    for row in &mut rows {
        row[0].clone_from(&place.name);
    }
    if place.table == Table::Options {
        place.option.clone_into(&mut rows[0][1]);
    }
    rows
}

/// Ranges that contain all addresses.
const EVERYBODY: [&str; 2] =
    ["0.0.0.0-255.255.255.255", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"];

/// Error code of Redis for a GET of a list, set or hash.
const WRONG_TYPE: &str = "WRONGTYPE";

/// Returns true if an access list denies a key rather than the command. Redis then still responds
/// about other keys, and a request for a denied key must not cause an outage.
///
/// The error for a denied command contains the name of a Redis user. Such names contain no spaces,
/// so that error cannot contain ` to access `.
fn is_denied_key(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
        && error.detail().is_some_and(|what| what.contains(" to access "))
}

/// Returns false for errors that prove a successful login, or a broken connection. Errors of a
/// login have no code, the generic code `ERR`, or `WRONGPASS`. A refused command has another code,
/// such as `NOPERM`.
fn may_be_of_login(error: &RedisError) -> bool {
    !error.is_io_error() && matches!(error.code(), None | Some("ERR" | "WRONGPASS"))
}

fn key_of(realm: &str, name: &str) -> String {
    format!("turn/realm/{realm}/user/{name}/key")
}

/// Splits a key into realm and name.
fn parts(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix("turn/realm/")?.strip_suffix("/key")?.split_once("/user/")
}

/// Escapes text so that a pattern matches it literally.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if "*?[]^\\".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

impl CoturnDatabase for Redis {
    fn key(self: Arc<Self>, realm: String, name: String) -> Called<Option<StoredKey>> {
        Box::pin(async move {
            let mut manager = self.manager()?;
            let key: Result<Option<Vec<u8>>, _> = manager.get(key_of(&realm, &name)).await;
            match key {
                Ok(key) => Ok(key.map(|key| StoredKey::new(Some(&key)))),
                // A list, set or hash is an error of only this user.
                Err(error) if error.code() == Some(WRONG_TYPE) => {
                    Ok(Some(StoredKey::unusable(OF_ANOTHER_TYPE)))
                }
                Err(error) if is_denied_key(&error) => {
                    Ok(Some(StoredKey::unusable("the ACL of Redis denies the key")))
                }
                Err(error) => Err(self.failed(&error)),
            }
        })
    }

    fn insert(self: Arc<Self>, user: Kept) -> Called<bool> {
        Box::pin(self.set(user, "NX"))
    }

    fn update(self: Arc<Self>, user: Kept) -> Called<bool> {
        Box::pin(self.set(user, "XX"))
    }

    fn delete(self: Arc<Self>, realm: String, name: String) -> Called<bool> {
        Box::pin(async move {
            let mut manager = self.manager()?;
            let deleted: Result<u64, _> = manager.del(key_of(&realm, &name)).await;
            deleted.map(|count| count > 0).map_err(|error| self.failed(&error))
        })
    }

    fn list(self: Arc<Self>, page: Page) -> Called<Vec<(String, String)>> {
        Box::pin(async move {
            let Position { realm, name } = page.after.unwrap_or_default();
            let after = (realm, name);
            let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
            // SCAN has no order, and may return a key twice. Retain the first users after the
            // position.
            let mut users = BTreeSet::new();
            self.scan(page.realm.as_deref(), |realm, name| {
                let user = (realm.to_owned(), name.to_owned());
                if user > after {
                    users.insert(user);
                }
                if users.len() > limit {
                    users.pop_last();
                }
            })
            .await?;
            Ok(users.into_iter().collect())
        })
    }

    fn realms(self: Arc<Self>) -> Called<Vec<(String, u64)>> {
        Box::pin(async move {
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            self.scan(None, |realm, _| *counts.entry(realm.to_owned()).or_default() += 1).await?;
            let mut realms: Vec<_> = counts.into_iter().collect();
            realms.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            realms.truncate(REALMS_MAX as usize);
            Ok(realms)
        })
    }

    fn rows(self: Arc<Self>, tables: Vec<Table>, limit: u32) -> Called<Vec<(Table, Row)>> {
        Box::pin(async move {
            let mut keys = BTreeSet::new();
            let mut cursor = 0;
            // A single scan of the keys covers all tables.
            loop {
                let (next, found) = self.step(cursor, "turn/*").await?;
                let places = found.iter().filter_map(|key| std::str::from_utf8(key).ok());
                keys.extend(places.filter_map(Place::of).filter(|at| tables.contains(&at.table)));
                if next == 0 {
                    break;
                }
                cursor = next;
            }
            let mut rows = Vec::new();
            let mut left: BTreeMap<Table, u32> = BTreeMap::new();
            for place in keys {
                let left = left.entry(place.table).or_insert_with(|| limit.saturating_add(1));
                if *left == 0 {
                    continue;
                }
                for row in self.rows_at(&place, *left).await?.into_iter().take(*left as usize) {
                    *left -= 1;
                    rows.push((place.table, row));
                }
            }
            Ok(rows)
        })
    }

    fn put(self: Arc<Self>, table: Table, row: Row) -> Called<()> {
        Box::pin(async move { self.run(places::put(table, row)).await })
    }

    fn remove(self: Arc<Self>, table: Table, key: Row) -> Called<()> {
        Box::pin(async move { self.run(places::remove(table, key)).await })
    }

    fn hear(self: Arc<Self>, changes: Arc<Changes>) -> Heard {
        Box::pin(async move { self.notified(&changes).await.map_err(|error| causes(&error)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_realm_and_a_name() {
        assert_eq!(parts(&key_of("example.org", "a/b")), Some(("example.org", "a/b")));
        assert_eq!(parts("turn/realm/example.org/secret"), None);
        assert_eq!(escaped("a*[b]"), "a\\*\\[b\\]");
    }
}
