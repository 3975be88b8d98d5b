//! What the server asks of outside. Each command with a [`PendingId`] is answered by one
//! [`Event`](crate::Event); until then its request waits.

use alloc::boxed::Box;
use alloc::sync::Arc;

use turn_types::{PendingId, RelayId, RelayedAddr};

use crate::route::{Route, RouteId};

/// Something to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Look up a user's keys; answered by [`Event::UserFound`](crate::Event::UserFound).
    FindUser {
        /// To be repeated in the answer.
        pending: PendingId,
        /// The realm to look in.
        realm: Arc<str>,
        /// Whom to look for.
        user: UserQuery,
    },
    /// Open a relay socket; answered by [`Event::RelayOpened`](crate::Event::RelayOpened).
    OpenRelay {
        /// To be repeated in the answer.
        pending: PendingId,
        /// What the socket is called from now on.
        relay: RelayId,
        /// The address and port to bind.
        at: RelayedAddr,
    },
    /// Close a relay socket; not answered. Its port is free once this command is polled.
    CloseRelay {
        /// The socket.
        relay: RelayId,
    },
    /// A route is new, or anything in it but `id` has changed; not answered. Whoever ignores it, or
    /// any other, forwards less and nothing wrong.
    SetRoute(Box<Route>),
    /// A route that was set is gone: its channel, half or allocation ended, or the rules forbid its
    /// peer or its number now. Not answered. It comes before [`Self::CloseRelay`] of its socket.
    RemoveRoute(RouteId),
}

/// How a request names its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserQuery {
    /// USERNAME.
    Name(Arc<str>),
    /// USERHASH: SHA-256 of `username:realm` (RFC 8489 §14.4).
    Hash([u8; 32]),
}
