//! Users and their long-term keys: database back ends with common traits, and a cache.
//!
//! Invariants:
//!
//! - A password is never stored, only the keys derived from it (RFC 8489 §9.2.2).
//! - A key never appears in an error or a log line.
//! - Every look-up of a worker gets a response within a deadline, or is refused immediately. No
//!   queue is unbounded.
//!
//! Parts:
//!
//! - Each back end has a [`UserReader`] (asynchronous look-ups, for the server) and a
//!   [`UserEditor`] (changes and lists, for commands).
//! - [`SqliteReader`] and [`SqliteStore`] need no installed database.
//! - [`server_reader`] and [`server_editor`] use coturn's layout in PostgreSQL, MySQL, MariaDB,
//!   Redis or MongoDB, or in coturn's SQLite file. Each database server is a cargo feature and a
//!   source file.
//! - [`TableWatch`] reads the other tables of coturn's layout (secrets, realms, rules for peers,
//!   keys of tokens).
//! - [`Directory`] answers the workers from a reader, through a cache that detects changes by other
//!   processes.
//! - [`Credentials`] generates a name and a password that cannot be guessed.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "postgresql", feature = "mysql", feature = "redis")),
    allow(
        dead_code,
        unused_imports,
        unused_variables,
        reason = "limits and helpers of kinds that are not built in"
    )
)]

mod cache;
mod coturn;
mod credentials;
mod directory;
mod endpoint;
mod error;
mod layered;
mod limits;
#[cfg(feature = "mongodb")]
mod mongo;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgresql")]
mod postgres;
mod publication;
mod publisher;
#[cfg(feature = "redis")]
mod redis_server;
mod server;
mod server_url;
mod sqlite;
mod sqlite_coturn;
mod sqlite_file;
mod sqlite_reader;
mod store;
mod table;
mod table_watch;

pub use credentials::Credentials;
pub use directory::{Answer, Directory, DirectoryOptions, Health, LookupClient};
pub use error::StoreError;
pub use layered::Layered;
pub use limits::PASSWORD_BYTES_MAX;
pub use publication::Publication;
pub use publisher::Publisher;
pub use server::{
    TableEditor, check_url, clear_hosts, create_file, server_editor, server_reader, server_tables,
};
pub use server_url::authority_files;
pub use sqlite::SqliteStore;
pub use sqlite_reader::SqliteReader;
pub use store::{
    Lookup, NewUser, Page, Position, UserEditor, UserKeys, UserQuery, UserReader, UserRecord,
    UserSummary, prepared_name,
};
pub use table::{Row, Table};
pub use table_watch::{Reading, TableWatch, TableWatchOptions};
