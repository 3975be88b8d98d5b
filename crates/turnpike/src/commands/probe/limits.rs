//! Limits of the probe.

use std::time::Duration;

/// Time for a connection or a handshake, and for a connection to take a message.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The longest message in bytes.
pub(super) const MESSAGE_MAX: usize = 65_536;
