//! Questions of a worker about users: their keys, and their right to an allocation.

use std::sync::Arc;

use turn_proto::{Applicant, Authorization, UserAnswer, UserQuery};
use turn_types::{ClientAddr, PendingId, WorkerId};

/// A question of a worker, answered at once or by
/// [`Request::UserFound`](crate::Request::UserFound).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLookup {
    /// The worker.
    pub worker: WorkerId,
    /// To be repeated in the answer.
    pub pending: PendingId,
    /// The client.
    pub client: ClientAddr,
    /// True for a client with the keys of an allocation, looked up before other clients.
    pub has_allocation: bool,
    /// The realm to look in.
    pub realm: Arc<str>,
    /// The user.
    pub user: UserQuery,
}

/// Outcome of a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The answer is known already.
    Answered(UserAnswer),
    /// It will be answered through the worker's mailbox.
    Taken,
    /// Too many questions wait: this one is forgotten, and the worker tells the client to try
    /// again.
    Refused,
}

/// User look-ups.
pub trait UserDirectory: Send + Sync {
    /// Answers the question, or takes it to be answered later. Called on the worker's thread: it
    /// must not block.
    fn find(&self, lookup: UserLookup) -> Asked;

    /// Forgets a user whom an operator has changed. No later answer is from before the change.
    fn forget(&self, realm: &str, name: &str);
}

/// A question of a worker about an Allocate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationRequest {
    /// The worker.
    pub worker: WorkerId,
    /// To be repeated in the answer.
    pub pending: PendingId,
    /// The client that asks for an allocation.
    pub applicant: Applicant,
}

/// Whoever decides about allocations besides the rules.
pub trait Authorizer: Send + Sync {
    /// Answers the question at once, or takes it to be answered by
    /// [`Request::Authorized`](crate::Request::Authorized): `None`. Called on the worker's thread:
    /// it must not block.
    fn ask(&self, request: AuthorizationRequest) -> Option<Authorization>;
}

/// Nobody: no client is granted anything by it.
#[derive(Clone, Copy, Debug)]
pub struct NoAuthorizer;

impl Authorizer for NoAuthorizer {
    fn ask(&self, _request: AuthorizationRequest) -> Option<Authorization> {
        Some(Authorization::Unavailable)
    }
}
