//! Limits of an order, each with its reason.

use std::time::Duration;

/// Longest time for an order, with all its requests: an authority verifies a name from several
/// places within a minute or two, and a request that hangs must not end renewals for good.
pub const ORDER: Duration = Duration::from_mins(10);

/// Longest time for a name's verification, and for the certificate afterwards. Authorities give up
/// earlier.
pub(crate) const VERIFICATION: Duration = Duration::from_mins(3);

/// Orders that are placed one after the other while the authority refuses nonces. A request is
/// repeated twice before that, and an authority that refuses one nonce in five, which none does,
/// lets one of three orders pass.
pub(crate) const ORDERS_WITH_REFUSED_NONCES_MAX: usize = 3;

/// First pause between two questions for the state of an order; each one is twice the pause before.
pub(crate) const POLL: Duration = Duration::from_millis(500);

/// Largest answer of an authority that is read: chains have some KiB.
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Longest time for a request to an authority, which answers in a second or two.
pub(crate) const REQUEST: Duration = Duration::from_mins(1);
