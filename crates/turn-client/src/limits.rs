//! Limits of the client, with their reasons.

use core::time::Duration;

/// Maximum number of requests in flight, as recommended by RFC 8489 §6.2.1 for a single server.
/// Automatic refreshes wait for free capacity. Explicit requests of the caller (Allocate, Refresh,
/// Binding) do not wait.
pub(crate) const IN_FLIGHT_MAX: usize = 10;

/// Number of explicit requests of the caller in flight, in addition to [`IN_FLIGHT_MAX`].
pub(crate) const EXPLICIT_MAX: usize = 16;

/// Maximum number of permissions, equal to the maximum that a server may grant in one allocation.
pub(crate) const PERMISSIONS_MAX: usize = 1024;

/// Maximum number of channels: the number space 0x4000..=0x4FFF (RFC 8656 §12).
pub(crate) const CHANNELS_MAX: usize = 4096;

/// Maximum number of peers in one CreatePermission. They take at most 192 bytes, so the request
/// fits one packet even with long credentials.
pub(crate) const PEERS_PER_REQUEST_MAX: usize = 8;

/// Maximum number of events stored for a caller that does not poll. Above the limit, the oldest
/// events are dropped.
pub(crate) const EVENTS_MAX: usize = 8192;

/// Maximum number of consecutive challenges (401, 438) followed for one request. The worst case is
/// a login, a stale nonce and a change of address; one more is permitted.
pub(crate) const CHALLENGES_MAX: u8 = 4;

/// Maximum number of servers visited by ALTERNATE-SERVER for one Allocate. RFC 8489 §10 requires
/// detection of loops.
pub(crate) const REDIRECTS_MAX: usize = 4;

/// Maximum length in bytes of an accepted REALM or NONCE (RFC 8489 §§14.9, 14.10: at most
/// 763).
pub(crate) const QUOTED_MAX: usize = 763;

/// Maximum length in bytes of accepted PASSWORD-ALGORITHMS: sixteen algorithms without parameters,
/// of which two are registered.
pub(crate) const ALGORITHMS_BYTES_MAX: usize = 64;

/// Maximum length of USERNAME in bytes (RFC 8489 §14.3: fewer than 509).
pub(crate) const USERNAME_MAX: usize = 508;

/// Maximum length in bytes of a stored MOBILITY-TICKET. Tickets of Turnpike and coturn have 32
/// bytes. The limit is below the space for the peers of a CreatePermission.
pub(crate) const TICKET_MAX: usize = 128;

/// Maximum length of ACCESS-TOKEN in bytes.
pub(crate) const TOKEN_MAX: usize = 512;

/// Maximum length of a request in bytes.
pub(crate) const REQUEST_MAX: usize = 3072;

/// Time before expiry at which an allocation or a channel is refreshed. Longer than a transaction
/// (39.5 s), so every retransmission is in time.
pub(crate) const REFRESH_MARGIN: Duration = Duration::from_secs(60);

/// Delay before a failed refresh is repeated, while there is time.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Permissions due within this time are added to a CreatePermission that is sent for another
/// permission.
pub(crate) const JOIN_WITHIN: Duration = Duration::from_secs(30);

/// Check of [`REQUEST_MAX`] against the largest request: header, software, credentials, algorithms,
/// integrity, fingerprint, token, peers.
const _: () = assert!(
    20 + 132
        + (4 + USERNAME_MAX)
        + 2 * (4 + QUOTED_MAX + 1)
        + 8
        + 4
        + ALGORITHMS_BYTES_MAX
        + 36
        + 8
        + (4 + TOKEN_MAX)
        + PEERS_PER_REQUEST_MAX * 24
        <= REQUEST_MAX
);
const _: () = assert!(EVENTS_MAX >= PERMISSIONS_MAX + CHANNELS_MAX);
