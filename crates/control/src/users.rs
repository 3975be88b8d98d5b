//! How a worker asks who a user is.

use std::sync::Arc;

use turn_proto::UserQuery;
use turn_types::{PendingId, WorkerId};

/// A question of a worker, answered by [`Request::UserFound`](crate::Request::UserFound).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLookup {
    /// Who asks.
    pub worker: WorkerId,
    /// To be repeated in the answer.
    pub pending: PendingId,
    /// The realm to look in.
    pub realm: Arc<str>,
    /// Whom to look for.
    pub user: UserQuery,
}

/// Where users are looked up.
pub trait UserDirectory: Send + Sync {
    /// Takes the question, to be answered later through the worker's mailbox. Called on the
    /// worker's thread: it must not block. `false` when too many questions wait: this one is
    /// forgotten, and the worker tells the client to try again.
    fn find(&self, lookup: UserLookup) -> bool;
}
