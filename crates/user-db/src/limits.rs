//! Every bound of this crate, with its reason.

use std::time::Duration;

/// A name in bytes: USERNAME is shorter than 509 bytes (RFC 8489 §14.3).
pub(crate) const NAME_BYTES_MAX: usize = 508;

/// A realm in bytes: REALM is shorter than 128 characters (RFC 8489 §14.9).
pub(crate) const REALM_BYTES_MAX: usize = 127;

/// A password in bytes: beyond it somebody pasted the wrong thing.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// How long another process may hold the database's write lock before we give up. Writes take
/// milliseconds, so this much means that something is stuck.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Until SQLite is asked again what it does not wait for by itself: far longer than the other takes.
pub(crate) const BUSY_NAP: Duration = Duration::from_millis(5);

/// Questions waiting for the directory's thread. At 20 µs for each this is 160 ms of work; beyond it
/// an answer would come after the client's first retransmission (500 ms) under load, so a worker is
/// told at once that there is none.
pub(crate) const QUEUE_MAX: usize = 8192;

/// Users kept in the cache, about 300 bytes each.
pub(crate) const CACHE_KNOWN_MAX: usize = 65_536;

/// Names kept in the cache that no user has: apart from the known ones, so that somebody who tries
/// names cannot push users out.
pub(crate) const CACHE_UNKNOWN_MAX: usize = 16_384;

/// Realms that are named to an operator whose own realm has no users: what fits in a line or two.
pub(crate) const REALMS_MAX: u32 = 8;
