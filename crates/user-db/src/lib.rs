//! Who may relay, by which key: back ends behind one trait, with a cache.
//!
//! Invariants: a password is never stored, only the keys made from it (RFC 8489 §9.2.2), and a key
//! never appears in an error or a log line. Every question of a worker is answered or refused at
//! once, never kept without bound.
//!
//! - [`UserStore`] is what a back end does; [`SqliteStore`] is the one that needs nothing installed.
//! - [`Directory`] answers the workers' questions from a store, on a thread of its own, through a
//!   cache that notices when another process changes the store.
//! - [`Credentials`] makes up a name and a password that nobody guesses.
#![forbid(unsafe_code)]

mod cache;
mod credentials;
mod directory;
mod error;
mod limits;
mod sqlite;
mod store;

pub use credentials::Credentials;
pub use directory::{Answer, Directory, DirectoryOptions};
pub use error::StoreError;
pub use limits::PASSWORD_BYTES_MAX;
pub use sqlite::SqliteStore;
pub use store::{
    NewUser, Page, UserKeys, UserQuery, UserRecord, UserStore, UserSummary, prepared_name,
};
