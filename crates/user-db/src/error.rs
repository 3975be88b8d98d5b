//! Errors of users and user stores.

use std::time::Duration;

use thiserror::Error;

/// Error of a store. The texts are for operators: the error, and advice.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The name is invalid.
    #[error("the name {what}")]
    Name {
        /// The error, as the second part of "the name ...".
        what: String,
    },
    /// The realm is invalid.
    #[error("the realm {what}")]
    Realm {
        /// The error, as the second part of "the realm ...".
        what: String,
    },
    /// The password is invalid.
    #[error("the password {what}")]
    Password {
        /// The error, without the password.
        what: String,
    },
    /// A user with this name exists already in the realm.
    #[error("there is a user \"{name}\" in realm \"{realm}\" already")]
    Exists {
        /// Name of the user.
        name: String,
        /// Realm of the user.
        realm: String,
    },
    /// The database did not respond in time.
    #[error("the user database did not answer within {} ms", .within.as_millis())]
    TimedOut {
        /// Deadline of the call.
        within: Duration,
    },
    /// The system cannot start another thread.
    #[error("cannot start the threads of user look-ups: {0}")]
    Threads(std::io::Error),
    /// Too many look-ups wait for the database.
    #[error("too many look-ups wait for the user database")]
    Overloaded,
    /// The database cannot store limits of users, because it has coturn's layout.
    #[error(
        "coturn's layout has no limit of allocations for a user: set quotas.allocations_per_user, which counts for \
         all of them"
    )]
    NoLimits,
    /// A table has more rows than this server accepts.
    #[error(
        "the table {table} has more than {most} rows, which is the most that is taken: delete some"
    )]
    TooManyRows {
        /// Name of the table.
        table: &'static str,
        /// Maximum number of rows.
        most: u32,
    },
    /// The row of a user is unusable. The database works, and the rows of other users are usable.
    #[error("user \"{name}\" in realm \"{realm}\" cannot log in: {what}")]
    Row {
        /// Name of the user; empty if unknown.
        name: String,
        /// Realm of the user.
        realm: String,
        /// The error, without the stored key.
        what: &'static str,
    },
    /// Any other error of the database, for example if it cannot be reached, cannot be read, or is
    /// full.
    #[error("{database}: {what}")]
    Database {
        /// The database: its file, or its URL without the password.
        database: String,
        /// The error, and advice.
        what: String,
    },
}
