//! Every bound of the client and its reason.

use core::time::Duration;

/// Requests in flight at a time: the recommendation of RFC 8489 §6.2.1 for one server. Upkeep waits
/// for room; explicit requests of the caller (Allocate, Refresh, Binding) do not.
pub(crate) const IN_FLIGHT_MAX: usize = 10;

/// Explicit requests of the caller in flight, in addition to the above.
pub(crate) const EXPLICIT_MAX: usize = 16;

/// Most permissions: the largest number that a server may grant in one allocation.
pub(crate) const PERMISSIONS_MAX: usize = 1024;

/// Channels kept: the number space 0x4000..=0x4FFF (RFC 8656 §12).
pub(crate) const CHANNELS_MAX: usize = 4096;

/// Peers in one CreatePermission: together at most 192 bytes, so that the request stays in one
/// packet beside long credentials.
pub(crate) const PEERS_PER_REQUEST_MAX: usize = 8;

/// Events kept for a caller that does not poll; beyond it the oldest are dropped.
pub(crate) const EVENTS_MAX: usize = 8192;

/// Challenges (401, 438) followed in a row for one request: a login, a stale nonce and a change of
/// address at the worst moment, with one to spare.
pub(crate) const CHALLENGES_MAX: u8 = 4;

/// Servers visited by ALTERNATE-SERVER for one Allocate (RFC 8489 §10 wants loops detected).
pub(crate) const REDIRECTS_MAX: usize = 4;

/// REALM and NONCE in bytes that are believed (RFC 8489 §§14.9, 14.10: at most 763).
pub(crate) const QUOTED_MAX: usize = 763;

/// PASSWORD-ALGORITHMS in bytes that is believed: sixteen algorithms without parameters, two are
/// registered.
pub(crate) const ALGORITHMS_BYTES_MAX: usize = 64;

/// USERNAME in bytes (RFC 8489 §14.3: fewer than 509).
pub(crate) const USERNAME_MAX: usize = 508;

/// MOBILITY-TICKET in bytes that is kept; Turnpike's and coturn's have 32. No more than the peers
/// of a CreatePermission.
pub(crate) const TICKET_MAX: usize = 128;

/// ACCESS-TOKEN in bytes.
pub(crate) const TOKEN_MAX: usize = 512;

/// A request in bytes.
pub(crate) const REQUEST_MAX: usize = 3072;

/// Time before its expiry at which an allocation or a channel is refreshed. Longer than a
/// transaction can take (39.5 s), so that every retransmission is in time.
pub(crate) const REFRESH_MARGIN: Duration = Duration::from_secs(60);

/// Delay before a failed refresh is repeated, while there is time.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Permissions due within this time join a CreatePermission that goes out anyway.
pub(crate) const JOIN_WITHIN: Duration = Duration::from_secs(30);

/// The largest request: header, software, credentials, algorithms, integrity, fingerprint, token,
/// peers.
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
