//! Opens the database server of a URL.

use std::sync::Arc;

use crate::coturn::{CoturnEditor, CoturnReader, CoturnUsers};
use crate::error::StoreError;
use crate::server_url::ServerUrl;
use crate::store::{UserEditor, UserReader};

/// Opens users in coturn's layout for look-ups, by a URL: `postgresql://`, `mysql://` or `redis://`. Waits for no network.
///
/// # Errors
/// As [`check_url`].
pub fn server_reader(url: &str) -> Result<Box<dyn UserReader>, StoreError> {
    Ok(Box::new(CoturnReader::new(open_server(url)?)))
}

/// Opens users in coturn's layout for changes, by a URL as [`server_reader`]. Waits for no network.
///
/// # Errors
/// As [`check_url`].
pub fn server_editor(url: &str) -> Result<Box<dyn UserEditor>, StoreError> {
    Ok(Box::new(CoturnEditor::new(open_server(url)?)?))
}

/// Checks a URL of a database server without connecting.
///
/// # Errors
/// The URL is not one, a file that it names cannot be read, or this program was built without this kind of database.
pub fn check_url(text: &str) -> Result<(), StoreError> {
    open_server(text).map(drop)
}

fn open_server(text: &str) -> Result<Arc<dyn CoturnUsers>, StoreError> {
    let url = ServerUrl::parse(text)?;
    match text.split_once("://").map(|(scheme, _)| scheme) {
        #[cfg(feature = "postgresql")]
        Some("postgresql" | "postgres") => Ok(Arc::new(crate::postgres::Postgres::new(url)?)),
        #[cfg(feature = "mysql")]
        Some("mysql" | "mariadb") => Ok(Arc::new(crate::mysql::Mysql::new(url)?)),
        #[cfg(feature = "redis")]
        Some("redis" | "rediss" | "redis+unix") => {
            Ok(Arc::new(crate::redis_server::Redis::new(url)?))
        }
        _ => Err(url.failed(format_args!(
            "this program was built without this kind of database (cargo features of user-db)"
        ))),
    }
}
