//! Users and their long-term keys: back ends behind two traits, with a cache.
//!
//! Invariants: a password is never stored, only the keys made from it (RFC 8489 §9.2.2), and a key
//! never appears in an error or a log line. Every look-up of a worker is answered within a deadline
//! or refused at once, never kept without bound.
//!
//! - A back end has a [`UserReader`] (asynchronous look-ups, for the server) and a [`UserEditor`]
//!   (changes and lists, for commands). [`SqliteReader`] and [`SqliteStore`] need nothing
//!   installed. [`server_reader`] and [`server_editor`] use coturn's own layout in PostgreSQL,
//!   MySQL, MariaDB, Redis or MongoDB, each a cargo feature and a file, or in coturn's SQLite file.
//! - [`TableWatch`] reads the other tables of that layout (secrets, realms, rules for peers, keys
//!   of tokens).
//! - [`Directory`] answers the workers from a reader, through a cache that notices changes by other
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
