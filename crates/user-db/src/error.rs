//! Errors of users and their stores.

use std::time::Duration;

use thiserror::Error;

/// Error of a store. Texts are for operators: the error, and advice.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The name is invalid.
    #[error("the name {what}")]
    Name {
        /// The error, as the end of "the name ...".
        what: String,
    },
    /// The realm is invalid.
    #[error("the realm {what}")]
    Realm {
        /// The error.
        what: String,
    },
    /// The password is invalid.
    #[error("the password {what}")]
    Password {
        /// The error; never the password.
        what: String,
    },
    /// There is such a user already.
    #[error("there is a user \"{name}\" in realm \"{realm}\" already")]
    Exists {
        /// The name.
        name: String,
        /// The realm.
        realm: String,
    },
    /// The database did not answer in time.
    #[error("the user database did not answer within {} ms", .within.as_millis())]
    TimedOut {
        /// The deadline of a look-up.
        within: Duration,
    },
    /// The system has no thread left for look-ups.
    #[error("cannot start the threads of user look-ups: {0}")]
    Threads(std::io::Error),
    /// Too many look-ups wait for the database.
    #[error("too many look-ups wait for the user database")]
    Overloaded,
    /// The database has no place for limits of users: its layout is coturn's.
    #[error(
        "coturn's layout has no limit of allocations for a user: set quotas.allocations_per_user, which counts for \
         all of them"
    )]
    NoLimits,
    /// A table has more rows than this server takes.
    #[error(
        "the table {table} has more than {most} rows, which is the most that is taken: delete some"
    )]
    TooManyRows {
        /// Its name.
        table: &'static str,
        /// The limit.
        most: u32,
    },
    /// The row of a user is unusable. The database and the rows of other users are not.
    #[error("user \"{name}\" in realm \"{realm}\" cannot log in: {what}")]
    Row {
        /// Name of the user; empty if unknown.
        name: String,
        /// The realm.
        realm: String,
        /// The error; never the stored key.
        what: &'static str,
    },
    /// Any other error of the database: it cannot be reached or read, it is full, or something
    /// else.
    #[error("{database}: {what}")]
    Database {
        /// The database: its file, or its URL without the password.
        database: String,
        /// The error, and advice.
        what: String,
    },
}
