//! Changes in Redis that subscribers are notified of.

use std::time::Duration;

/// Change to a Redis key, with a message for subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publication {
    /// Sets a key that expires, and publishes the value on the channel with the key's name.
    Set {
        /// Name of the key and the channel.
        key: String,
        /// Value of the key, and message.
        value: String,
        /// Time until the key expires.
        expires: Duration,
    },
    /// Deletes a key, and publishes a message on the channel with the key's name.
    Delete {
        /// Name of the key and the channel.
        key: String,
        /// Message to publish.
        message: String,
    },
    /// Publishes a message, without a change to a key.
    Publish {
        /// Name of the channel.
        channel: String,
        /// Message to publish.
        message: String,
    },
}
