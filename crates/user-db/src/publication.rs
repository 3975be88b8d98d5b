//! Changes in Redis that subscribers hear of.

use std::time::Duration;

/// A change that subscribers hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publication {
    /// Sets a key, and publishes its value on the channel of that name. The key expires after a
    /// time.
    Set {
        /// Key and channel.
        key: String,
        /// The value.
        value: String,
        /// Time until it expires.
        expires: Duration,
    },
    /// Deletes a key, and publishes this on the channel of that name.
    Delete {
        /// Key and channel.
        key: String,
        /// The message.
        message: String,
    },
    /// Publishes alone.
    Publish {
        /// The channel.
        channel: String,
        /// The message.
        message: String,
    },
}
