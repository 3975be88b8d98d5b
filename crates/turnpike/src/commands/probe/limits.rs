//! Limits of the probe.

use std::time::Duration;

/// Maximum time for a connection, for a handshake, and for sending a message.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Maximum length of a message in bytes.
pub(super) const MESSAGE_MAX: usize = 65_536;
