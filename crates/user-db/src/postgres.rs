//! Coturn's tables in PostgreSQL. Look-ups are pipelined on a few connections. A trigger
//! `turnpike_users`, if installed, reports changes by a notification on the channel of that name.

use std::str::FromStr as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::time::{sleep, timeout};
use tokio_postgres::config::Host as PostgresHost;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::coturn::{
    Called, Changes, CoturnDatabase, Heard, Kept, OF_ANOTHER_TYPE, Pause, StoredKey, causes,
};
use crate::endpoint::Endpoint;
use crate::error::StoreError;
use crate::limits::{CONNECT_WITHIN, REALMS_MAX, SILENT_FOR};
use crate::server_url::ServerUrl;
use crate::store::{Page, Position};
use crate::table::{Dialect, Row, Table};

/// PostgreSQL with coturn's tables.
pub(crate) struct Postgres {
    url: ServerUrl,
    config: Config,
    tls: Option<MakeRustlsConnect>,
    links: Vec<Arc<Link>>,
    next: AtomicUsize,
}

/// Slot for one connection.
struct Link {
    client: Mutex<Option<Arc<Client>>>,
    /// State of connection attempts, locked while a connection is opened.
    attempts: tokio::sync::Mutex<Attempts>,
}

struct Attempts {
    pause: Pause,
    /// Last failure, and the time when the pause after the failure is over.
    failed: Option<(Instant, String)>,
}

impl Postgres {
    pub(crate) fn new(url: ServerUrl, connections: usize) -> Result<Self, StoreError> {
        let mut config = config(&url)?;
        let tls = url.encrypts(&endpoints(&config));
        config.application_name("turnpike").connect_timeout(CONNECT_WITHIN);
        // Keepalives detect a server that disappears without closing the connection.
        config.keepalives(true).keepalives_idle(SILENT_FOR).keepalives_interval(CONNECT_WITHIN);
        config.tcp_user_timeout(SILENT_FOR);
        let mode = if tls {
            tokio_postgres::config::SslMode::Require
        } else {
            tokio_postgres::config::SslMode::Disable
        };
        config.ssl_mode(mode);
        let tls = tls.then(|| connector(&url)).transpose()?;
        let link = || {
            let attempts = Attempts { pause: Pause::new(), failed: None };
            Arc::new(Link { client: Mutex::default(), attempts: attempts.into() })
        };
        let links = (0..connections).map(|_| link()).collect();
        Ok(Self { url, config, tls, links, next: AtomicUsize::new(0) })
    }

    fn failed(&self, error: &tokio_postgres::Error) -> StoreError {
        if error.code() == Some(&SqlState::UNDEFINED_TABLE) {
            return self.url.failed(format_args!(
                "{}; load coturn's schema.sql into this database, or name the one that has its tables",
                causes(error)
            ));
        }
        self.url.failed(format_args!("{}", causes(error)))
    }

    /// Returns an open connection, after connecting if necessary.
    async fn client(self: &Arc<Self>) -> Result<Arc<Client>, StoreError> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.links.len().max(1);
        let Some(link) = self.links.get(turn).cloned() else { return Err(StoreError::Overloaded) };
        if let Some(client) = link.open() {
            return Ok(client);
        }
        let this = Arc::clone(self);
        // A separate task: a cancelled look-up must not cancel an attempt that other look-ups wait
        // for.
        let made = tokio::spawn(async move { this.connect(&link).await }).await;
        made.unwrap_or(Err(StoreError::Overloaded))
    }

    async fn connect(&self, link: &Link) -> Result<Arc<Client>, StoreError> {
        let mut attempts = link.attempts.lock().await;
        if let Some(client) = link.open() {
            return Ok(client);
        }
        if let Some((until, what)) = &attempts.failed
            && Instant::now() < *until
        {
            return Err(self.url.failed(format_args!("{what}")));
        }
        match self.dial(None).await {
            Ok(client) => {
                *attempts = Attempts { pause: Pause::new(), failed: None };
                let client = Arc::new(client);
                *link.client.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(Arc::clone(&client));
                Ok(client)
            }
            Err(what) => {
                let until = Instant::now() + attempts.pause.next();
                attempts.failed = Some((until, what.clone()));
                Err(self.url.failed(format_args!("{what}")))
            }
        }
    }

    /// Connects, and spawns a task that drives the connection until it closes. Notifications are
    /// passed to `changes`.
    async fn dial(&self, changes: Option<Arc<Changes>>) -> Result<Client, String> {
        let late = || "no connection in time".to_owned();
        match &self.tls {
            Some(tls) => {
                let dialled = timeout(CONNECT_WITHIN, self.config.connect(tls.clone())).await;
                let (client, connection) =
                    dialled.map_err(|_| late())?.map_err(|error| causes(&error))?;
                carry::<MakeRustlsConnect>(connection, changes);
                Ok(client)
            }
            None => {
                let dialled = timeout(CONNECT_WITHIN, self.config.connect(NoTls)).await;
                let (client, connection) =
                    dialled.map_err(|_| late())?.map_err(|error| causes(&error))?;
                carry::<NoTls>(connection, changes);
                Ok(client)
            }
        }
    }

    async fn query(
        self: Arc<Self>,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<Vec<tokio_postgres::Row>, StoreError> {
        let client = self.client().await?;
        // Not prepared: poolers such as PgBouncer assign each transaction another session.
        let rows = client.query_typed(sql, &bound(&values)).await;
        rows.map_err(|error| self.failed(&error))
    }

    async fn changes_row(
        self: Arc<Self>,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<bool, StoreError> {
        // RETURNING provides one row for each changed row.
        Ok(!self.query(sql, values).await?.is_empty())
    }

    /// Receives notifications on a dedicated connection, until the connection closes.
    async fn notified(&self, changes: &Arc<Changes>) -> Result<(), String> {
        const TRIGGER: &str = "SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass('turnusers_lt')
            AND tgname = 'turnpike_users' AND tgenabled IN ('O', 'A')";
        let client = self.dial(Some(Arc::clone(changes))).await?;
        let listening = timeout(CONNECT_WITHIN, client.batch_execute("LISTEN turnpike_users"));
        let listening = listening.await.map_err(|_| "no answer in time".to_owned())?;
        listening.map_err(|error| causes(&error))?;
        // A change before the LISTEN may have been missed.
        changes.changed();
        while !client.is_closed() {
            // A trigger may be created or dropped while the server runs.
            let trigger = timeout(CONNECT_WITHIN, client.query_typed(TRIGGER, &[])).await;
            let is_there = matches!(&trigger, Ok(Ok(rows)) if !rows.is_empty());
            changes.report(is_there);
            sleep(crate::limits::TRIGGER_EVERY).await;
        }
        Ok(())
    }
}

impl Link {
    fn open(&self) -> Option<Arc<Client>> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.as_ref().filter(|client| !client.is_closed()).cloned()
    }
}

/// Parameter of a query.
enum Value {
    Text(String),
    Limit(i64),
}

fn bound(values: &[Value]) -> Vec<(&(dyn ToSql + Sync), Type)> {
    let mut bound: Vec<(&(dyn ToSql + Sync), Type)> = Vec::with_capacity(values.len());
    for value in values {
        match value {
            Value::Text(text) => bound.push((text, Type::TEXT)),
            Value::Limit(number) => bound.push((number, Type::INT8)),
        }
    }
    bound
}

fn texts<const N: usize>(texts: [String; N]) -> Vec<Value> {
    texts.into_iter().map(Value::Text).collect()
}

fn carry<T: MakeTlsConnect<Socket>>(
    mut connection: Connection<Socket, T::Stream>,
    changes: Option<Arc<Changes>>,
) where
    T::Stream: Send + 'static,
{
    tokio::spawn(async move {
        loop {
            let message = std::future::poll_fn(|context| connection.poll_message(context)).await;
            match (message, &changes) {
                (Some(Ok(AsyncMessage::Notification(_))), Some(changes)) => changes.changed(),
                (Some(Ok(_)), _) => {}
                (Some(Err(_)) | None, changes) => {
                    if let Some(changes) = changes {
                        changes.report(false);
                    }
                    return;
                }
            }
        }
    });
}

/// Errors for text that the encoding of the database cannot represent.
const NO_TEXT_HERE: [&SqlState; 2] =
    [&SqlState::UNTRANSLATABLE_CHARACTER, &SqlState::CHARACTER_NOT_IN_REPERTOIRE];

/// Returns the settings of a URL, parsed by the driver.
pub(crate) fn config(url: &ServerUrl) -> Result<Config, StoreError> {
    Config::from_str(url.expose()).map_err(|error| {
        url.failed(format_args!("the URL cannot be understood: {}", causes(&error)))
    })
}

/// Returns the endpoints of the driver's connections. The driver connects to `hostaddr` if present,
/// and `host` then names the server in its certificate.
pub(crate) fn endpoints(config: &Config) -> Vec<Endpoint> {
    let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
    let of = |index: usize| match (addresses.get(index), hosts.get(index)) {
        (Some(address), _) => Some(Endpoint::host(&address.to_string())),
        (None, Some(PostgresHost::Tcp(name))) => Some(Endpoint::host(name)),
        (None, Some(PostgresHost::Unix(_))) => Some(Endpoint::Socket),
        (None, None) => None,
    };
    (0..hosts.len().max(addresses.len())).filter_map(of).collect()
}

fn connector(url: &ServerUrl) -> Result<MakeRustlsConnect, StoreError> {
    let mut roots = rustls::RootCertStore::empty();
    let pem = url.authorities()?;
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| url.failed(format_args!("{error}")))?;
    Ok(MakeRustlsConnect::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

impl CoturnDatabase for Postgres {
    fn key(self: Arc<Self>, realm: String, name: String) -> Called<Option<StoredKey>> {
        const KEY: &str = "SELECT hmackey FROM turnusers_lt WHERE realm = $1 AND name = $2";
        Box::pin(async move {
            let client = self.client().await?;
            let found = client.query_typed(KEY, &bound(&texts([realm, name]))).await;
            let rows = match found {
                // The encoding of the database cannot represent the text, so no user has this name.
                Err(error) if error.code().is_some_and(|code| NO_TEXT_HERE.contains(&code)) => {
                    return Ok(None);
                }
                found => found.map_err(|error| self.failed(&error))?,
            };
            let Some(row) = rows.first() else { return Ok(None) };
            let key: Result<Option<&str>, _> = row.try_get(0);
            Ok(Some(match key {
                Ok(key) => StoredKey::new(key.map(str::as_bytes)),
                Err(_) => StoredKey::unusable(OF_ANOTHER_TYPE),
            }))
        })
    }

    fn insert(self: Arc<Self>, user: Kept) -> Called<bool> {
        const INSERT: &str = "INSERT INTO turnusers_lt (realm, name, hmackey) VALUES ($1, $2, $3)
            ON CONFLICT DO NOTHING RETURNING 1";
        let Kept { realm, name, key } = user;
        Box::pin(self.changes_row(INSERT, texts([realm, name, key.expose().clone()])))
    }

    fn update(self: Arc<Self>, user: Kept) -> Called<bool> {
        const UPDATE: &str =
            "UPDATE turnusers_lt SET hmackey = $3 WHERE realm = $1 AND name = $2 RETURNING 1";
        let Kept { realm, name, key } = user;
        Box::pin(self.changes_row(UPDATE, texts([realm, name, key.expose().clone()])))
    }

    fn delete(self: Arc<Self>, realm: String, name: String) -> Called<bool> {
        const DELETE: &str = "DELETE FROM turnusers_lt WHERE realm = $1 AND name = $2 RETURNING 1";
        Box::pin(self.changes_row(DELETE, texts([realm, name])))
    }

    fn list(self: Arc<Self>, page: Page) -> Called<Vec<(String, String)>> {
        const ALL: &str = "SELECT realm, name FROM turnusers_lt WHERE (realm, name) > ($1, $2)
            ORDER BY realm, name LIMIT $3";
        const ONE: &str = "SELECT realm, name FROM turnusers_lt WHERE realm = $4
            AND (realm, name) > ($1, $2) ORDER BY realm, name LIMIT $3";
        let Position { realm, name } = page.after.unwrap_or_default();
        let mut values = texts([realm, name]);
        values.push(Value::Limit(page.limit.into()));
        let sql = if page.realm.is_some() { ONE } else { ALL };
        values.extend(page.realm.map(Value::Text));
        Box::pin(async move {
            let rows = Arc::clone(&self).query(sql, values).await?;
            let pair = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
            rows.iter().map(pair).collect::<Result<_, _>>().map_err(|error| self.failed(&error))
        })
    }

    fn realms(self: Arc<Self>) -> Called<Vec<(String, u64)>> {
        const REALMS: &str = "SELECT realm, COUNT(*) AS users FROM turnusers_lt
            GROUP BY realm ORDER BY users DESC, realm LIMIT $1";
        Box::pin(async move {
            let rows =
                Arc::clone(&self).query(REALMS, vec![Value::Limit(REALMS_MAX.into())]).await?;
            let pair = |row: &tokio_postgres::Row| {
                Ok((row.try_get(0)?, row.try_get::<_, i64>(1)?.unsigned_abs()))
            };
            rows.iter().map(pair).collect::<Result<_, _>>().map_err(|error| self.failed(&error))
        })
    }

    fn rows(self: Arc<Self>, tables: Vec<Table>, limit: u32) -> Called<Vec<(Table, Row)>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for table in tables {
                let sql = Dialect::Postgres.select(table, limit.saturating_add(1));
                let found = Arc::clone(&self).query(&sql, Vec::new()).await?;
                for row in found {
                    let values = (0..table.columns().len()).map(|column| row.try_get(column));
                    let values = values.collect::<Result<_, _>>();
                    all.push((table, values.map_err(|error| self.failed(&error))?));
                }
            }
            Ok(all)
        })
    }

    fn put(self: Arc<Self>, table: Table, row: Row) -> Called<()> {
        let values = row.into_iter().map(Value::Text).collect();
        let sql = Dialect::Postgres.upsert(table);
        Box::pin(async move { self.query(&sql, values).await.map(drop) })
    }

    fn remove(self: Arc<Self>, table: Table, key: Row) -> Called<()> {
        let sql = Dialect::Postgres.delete(table, key.len());
        let values = key.into_iter().map(Value::Text).collect();
        Box::pin(async move { self.query(&sql, values).await.map(drop) })
    }

    fn hear(self: Arc<Self>, changes: Arc<Changes>) -> Heard {
        Box::pin(async move { self.notified(&changes).await })
    }
}
