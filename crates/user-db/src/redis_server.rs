//! Coturn's keys in Redis: `turn/realm/<realm>/user/<name>/key`. Look-ups are pipelined on one connection; keyspace
//! events report changes, where the server sends them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands as _, Client, RedisError};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

use crate::coturn::{Called, Changes, CoturnUsers, Kept, Pause, causes};
use crate::error::StoreError;
use crate::limits::{
    CONNECT_WITHIN, EDIT_WITHIN, PAUSE_MAX, PAUSE_MIN, REALMS_MAX, SCAN_COUNT, TRIGGER_EVERY,
};
use crate::server_url::ServerUrl;
use crate::store::{Page, Position};

/// Redis with coturn's keys.
pub(crate) struct Redis {
    url: ServerUrl,
    client: Client,
    /// Connects again by itself.
    manager: OnceCell<ConnectionManager>,
}

impl Redis {
    pub(crate) fn new(url: ServerUrl) -> Result<Self, StoreError> {
        let client = if url.tls {
            let root_cert = Some(url.authorities()?);
            // The library makes its settings of TLS with the provider of the process.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            let certificates = redis::TlsCertificates { client_tls: None, root_cert };
            Client::build_with_tls(url.expose(), certificates)
        } else {
            Client::open(url.expose())
        };
        let client = client.map_err(|error| {
            url.failed(format_args!("the URL cannot be understood: {}", causes(&error)))
        })?;
        Ok(Self { url, client, manager: OnceCell::new() })
    }

    fn failed(&self, error: &RedisError) -> StoreError {
        self.url.failed(format_args!("{}", causes(error)))
    }

    async fn manager(&self) -> Result<ConnectionManager, StoreError> {
        let config = || {
            ConnectionManagerConfig::new()
                .set_min_delay(PAUSE_MIN)
                .set_max_delay(PAUSE_MAX)
                .set_number_of_retries(1)
                .set_connection_timeout(Some(CONNECT_WITHIN))
                .set_response_timeout(Some(EDIT_WITHIN))
        };
        let made = self
            .manager
            .get_or_try_init(|| async { self.client.get_connection_manager_lazy(config()) });
        made.await.cloned().map_err(|error| self.failed(&error))
    }

    /// Users whose keys fit a pattern. SCAN, as KEYS stops the server for all others.
    async fn scan(
        &self,
        realm: Option<&str>,
        mut each: impl FnMut(&str, &str),
    ) -> Result<(), StoreError> {
        let realm = realm.map_or_else(|| "*".to_owned(), escaped);
        let pattern = format!("turn/realm/{realm}/user/*/key");
        let mut manager = self.manager().await?;
        let mut cursor: u64 = 0;
        loop {
            let (next, keys): (u64, Vec<Vec<u8>>) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(&pattern)
                .arg("COUNT")
                .arg(SCAN_COUNT)
                .query_async(&mut manager)
                .await
                .map_err(|error| self.failed(&error))?;
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

    async fn set(self: Arc<Self>, user: Kept, only: &'static str) -> Result<bool, StoreError> {
        let mut manager = self.manager().await?;
        let set: Option<String> = redis::cmd("SET")
            .arg(key_of(&user.realm, &user.name))
            .arg(user.key.expose())
            .arg(only)
            .query_async(&mut manager)
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(set.is_some())
    }

    /// Hears keyspace events until the connection ends.
    async fn hear(&self, changes: &Changes) -> Result<(), RedisError> {
        let mut pubsub = self.client.get_async_pubsub().await?;
        pubsub.psubscribe("__keyspace@*__:turn/realm/*/user/*/key").await?;
        // A change may have gone unheard before.
        changes.changed();
        loop {
            changes.report(self.sends_events().await);
            let mut messages = pubsub.on_message();
            let message = std::future::poll_fn(|context| {
                use futures_core::Stream as _;
                std::pin::Pin::new(&mut messages).poll_next(context)
            });
            match timeout(TRIGGER_EVERY, message).await {
                Ok(Some(_)) => changes.changed(),
                Ok(None) => return Ok(()),
                Err(_) => {}
            }
        }
    }

    /// Returns whether the server sends events of keys that are set, deleted or expire.
    async fn sends_events(&self) -> bool {
        let Ok(mut manager) = self.manager().await else { return false };
        let asked = redis::cmd("CONFIG").arg("GET").arg("notify-keyspace-events").to_owned();
        // An access list may refuse it: then nothing is known.
        let answer: Result<Vec<String>, _> = asked.query_async(&mut manager).await;
        let flags = answer.ok().and_then(|mut pair| pair.pop()).unwrap_or_default();
        let has = |flag| flags.contains(flag);
        has('K') && (has('A') || (has('g') && has('$') && has('x') && has('e')))
    }
}

fn key_of(realm: &str, name: &str) -> String {
    format!("turn/realm/{realm}/user/{name}/key")
}

/// Realm and name of a key.
fn parts(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix("turn/realm/")?.strip_suffix("/key")?.split_once("/user/")
}

/// Text that a pattern matches as it is.
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

impl CoturnUsers for Redis {
    fn key(self: Arc<Self>, realm: String, name: String) -> Called<Option<String>> {
        Box::pin(async move {
            let mut manager = self.manager().await?;
            let key = manager.get(key_of(&realm, &name)).await;
            key.map_err(|error| self.failed(&error))
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
            let mut manager = self.manager().await?;
            let deleted: Result<u64, _> = manager.del(key_of(&realm, &name)).await;
            deleted.map(|count| count > 0).map_err(|error| self.failed(&error))
        })
    }

    fn list(self: Arc<Self>, page: Page) -> Called<Vec<(String, String)>> {
        Box::pin(async move {
            let Position { realm, name } = page.after.unwrap_or_default();
            let after = (realm, name);
            let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
            // SCAN has no order and may say a key twice: the first ones behind the position are kept.
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

    fn listen(
        self: Arc<Self>,
        changes: Arc<Changes>,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let mut pause = Pause::new();
            loop {
                if self.hear(&changes).await.is_ok() {
                    pause = Pause::new();
                }
                changes.report(false);
                sleep(pause.next()).await;
            }
        })
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
