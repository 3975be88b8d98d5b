//! Coturn's tables in MySQL or MariaDB. Neither reports changes, so answers are valid only for a
//! short time.

use std::sync::Arc;

use mysql_async::prelude::Queryable as _;
use mysql_async::{
    Conn, IoError, Opts, OptsBuilder, Params, Pool, PoolConstraints, PoolOpts, SslOpts, Value,
};

use crate::coturn::{
    Called, Changes, CoturnDatabase, Heard, Kept, OF_ANOTHER_TYPE, StoredKey, causes,
};
use crate::endpoint::Endpoint;
use crate::error::StoreError;
use crate::limits::{ONE_AT_A_TIME, REALMS_MAX, SILENT_FOR};
use crate::server_url::ServerUrl;
use crate::store::{Page, Position};
use crate::table::{Dialect, Row, Table};

/// Error codes for text that the character set of a table cannot represent: no user has such a
/// name. ER_CANT_AGGREGATE_2COLLATIONS, ER_INVALID_CHARACTER_STRING, ER_CANNOT_CONVERT_CHARACTER
/// (MariaDB), ER_CANNOT_CONVERT_STRING (MySQL 8).
const NO_TEXT_HERE: [u16; 4] = [1267, 1300, 1977, 3854];

/// Returns the settings of a URL, parsed by the driver.
pub(crate) fn options(url: &ServerUrl) -> Result<Opts, StoreError> {
    Opts::from_url(url.expose()).map_err(|error| {
        url.failed(format_args!("the URL cannot be understood: {}", causes(&error)))
    })
}

/// Returns the endpoint of the driver's connections. A socket takes precedence over the host.
pub(crate) fn endpoint(options: &Opts) -> Endpoint {
    match options.socket() {
        Some(_) => Endpoint::Socket,
        None => Endpoint::host(options.ip_or_hostname()),
    }
}

/// MySQL or MariaDB with coturn's tables.
pub(crate) struct Mysql {
    url: ServerUrl,
    pool: Pool,
    /// Maximum number of connections in the pool.
    connections: usize,
}

impl Mysql {
    pub(crate) fn new(url: ServerUrl, connections: usize) -> Result<Self, StoreError> {
        let options = options(&url)?;
        let tls = url.encrypts(&[endpoint(&options)]);
        if options.db_name().is_none_or(str::is_empty) {
            return Err(url.failed(format_args!(
                "the URL names no database: mysql://USER:PASSWORD@HOST/DATABASE"
            )));
        }
        let mut builder = OptsBuilder::from_opts(options)
            .prefer_socket(false)
            .tcp_keepalive(Some(SILENT_FOR))
            .client_found_rows(true);
        let connections = connections * ONE_AT_A_TIME;
        let constraints = PoolConstraints::new(0, connections).unwrap_or_default();
        // Sessions are never changed, so no reset is necessary after each look-up.
        let pool = PoolOpts::new().with_constraints(constraints).with_reset_connection(false);
        builder = builder.pool_opts(pool);
        if tls {
            let authorities = vec![url.authorities()?.into()];
            let tls =
                SslOpts::default().with_root_certs(authorities).with_disable_built_in_roots(true);
            builder = builder.ssl_opts(tls);
        }
        Ok(Self { url, pool: Pool::new(builder), connections })
    }

    fn failed(&self, error: &mysql_async::Error) -> StoreError {
        if let mysql_async::Error::Server(server) = error
            && server.code == NO_SUCH_TABLE
        {
            return self.url.failed(format_args!(
                "{}; load coturn's schema.sql into this database, or name the one that has its tables",
                server.message
            ));
        }
        // The error's text contains the label twice.
        if let mysql_async::Error::Io(IoError::Io(cause)) = error {
            return self.url.failed(format_args!("{cause}"));
        }
        self.url.failed(format_args!("{}", causes(error)))
    }

    async fn conn(&self) -> Result<Conn, StoreError> {
        self.pool.get_conn().await.map_err(|error| self.failed(&error))
    }

    async fn pairs<T>(
        self: Arc<Self>,
        sql: &'static str,
        values: impl Into<Params> + Send,
    ) -> Result<Vec<(String, T)>, StoreError>
    where
        T: mysql_async::prelude::FromValue + Send + 'static,
        (String, T): mysql_async::prelude::FromRow,
    {
        let mut conn = self.conn().await?;
        conn.exec(sql, values.into()).await.map_err(|error| self.failed(&error))
    }

    /// Runs a statement. Returns true if the statement has changed or matched a row.
    async fn run(self: Arc<Self>, sql: &str, values: Params) -> Result<bool, StoreError> {
        let mut conn = self.conn().await?;
        conn.exec_drop(sql, values).await.map_err(|error| self.failed(&error))?;
        Ok(conn.affected_rows() > 0)
    }
}

/// ER_NO_SUCH_TABLE.
const NO_SUCH_TABLE: u16 = 1146;

// The usual collations ignore case, and the protocol does not. BINARY compares bytes in the
// encoding of the parameters. The additional condition without BINARY allows the use of the index.

impl CoturnDatabase for Mysql {
    fn concurrent_max(&self) -> usize {
        self.connections
    }

    fn key(self: Arc<Self>, realm: String, name: String) -> Called<Option<StoredKey>> {
        const KEY: &str = "SELECT hmackey FROM turnusers_lt WHERE realm = ? AND name = ?
            AND BINARY CONVERT(realm USING utf8mb4) = ? AND BINARY CONVERT(name USING utf8mb4) = ?";
        Box::pin(async move {
            let values = (&realm, &name, &realm, &name);
            // `Value` accepts every type of column. Other target types would panic or fail.
            let found: Result<Option<Value>, _> = self.conn().await?.exec_first(KEY, values).await;
            match found {
                Ok(Some(Value::Bytes(key))) => Ok(Some(StoredKey::new(Some(&key)))),
                Ok(Some(Value::NULL)) => Ok(Some(StoredKey::new(None))),
                Ok(key) => Ok(key.map(|_| StoredKey::unusable(OF_ANOTHER_TYPE))),
                Err(mysql_async::Error::Server(error)) if NO_TEXT_HERE.contains(&error.code) => {
                    Ok(None)
                }
                Err(error) => Err(self.failed(&error)),
            }
        })
    }

    fn insert(self: Arc<Self>, user: Kept) -> Called<bool> {
        const INSERT: &str = "INSERT INTO turnusers_lt (realm, name, hmackey) VALUES (?, ?, ?)";
        Box::pin(async move {
            let mut conn = self.conn().await?;
            let values = (&user.realm, &user.name, user.key.expose());
            match conn.exec_drop(INSERT, values).await {
                Ok(()) => Ok(true),
                Err(mysql_async::Error::Server(error)) if error.code == DUPLICATE => Ok(false),
                Err(error) => Err(self.failed(&error)),
            }
        })
    }

    fn update(self: Arc<Self>, user: Kept) -> Called<bool> {
        const UPDATE: &str = "UPDATE turnusers_lt SET hmackey = ? WHERE realm = ? AND name = ?
            AND BINARY CONVERT(realm USING utf8mb4) = ? AND BINARY CONVERT(name USING utf8mb4) = ?";
        let Kept { realm, name, key } = user;
        let values = (key.expose(), &realm, &name, &realm, &name).into();
        Box::pin(self.run(UPDATE, values))
    }

    fn delete(self: Arc<Self>, realm: String, name: String) -> Called<bool> {
        const DELETE: &str = "DELETE FROM turnusers_lt WHERE realm = ? AND name = ?
            AND BINARY CONVERT(realm USING utf8mb4) = ? AND BINARY CONVERT(name USING utf8mb4) = ?";
        let values = (&realm, &name, &realm, &name).into();
        Box::pin(self.run(DELETE, values))
    }

    fn list(self: Arc<Self>, page: Page) -> Called<Vec<(String, String)>> {
        const ALL: &str = "SELECT realm, name FROM turnusers_lt WHERE (realm, name) > (?, ?)
            ORDER BY realm, name LIMIT ?";
        const ONE: &str = "SELECT realm, name FROM turnusers_lt WHERE (realm, name) > (?, ?)
            AND realm = ? ORDER BY realm, name LIMIT ?";
        let Position { realm, name } = page.after.unwrap_or_default();
        Box::pin(async move {
            match page.realm {
                None => self.pairs(ALL, (realm, name, page.limit)).await,
                Some(one) => self.pairs(ONE, (realm, name, one, page.limit)).await,
            }
        })
    }

    fn realms(self: Arc<Self>) -> Called<Vec<(String, u64)>> {
        const REALMS: &str = "SELECT realm, COUNT(*) AS users FROM turnusers_lt
            GROUP BY realm ORDER BY users DESC, realm LIMIT ?";
        Box::pin(self.pairs(REALMS, (REALMS_MAX,)))
    }

    fn rows(self: Arc<Self>, tables: Vec<Table>, limit: u32) -> Called<Vec<(Table, Row)>> {
        Box::pin(async move {
            let mut conn = self.conn().await?;
            let mut all = Vec::new();
            for table in tables {
                let sql = Dialect::Mysql.select(table, limit.saturating_add(1));
                let rows: Vec<mysql_async::Row> =
                    conn.query(sql).await.map_err(|error| self.failed(&error))?;
                for mut row in rows {
                    let columns = 0..table.columns().len();
                    all.push((table, columns.map(|at| row.take(at).unwrap_or_default()).collect()));
                }
            }
            Ok(all)
        })
    }

    fn put(self: Arc<Self>, table: Table, row: Row) -> Called<()> {
        let sql = Dialect::Mysql.upsert(table);
        Box::pin(async move { self.run(&sql, row.into()).await.map(drop) })
    }

    fn remove(self: Arc<Self>, table: Table, key: Row) -> Called<()> {
        let sql = Dialect::Mysql.delete(table, key.len());
        Box::pin(async move { self.run(&sql, key.into()).await.map(drop) })
    }

    fn hear(self: Arc<Self>, _: Arc<Changes>) -> Heard {
        Box::pin(std::future::pending())
    }
}

/// ER_DUP_ENTRY.
const DUPLICATE: u16 = 1062;
