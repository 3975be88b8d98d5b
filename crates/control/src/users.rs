//! Questions of a worker about users: their keys, and their right to an allocation.

use std::fmt;
use std::sync::Arc;

use state_format::fields;
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

    /// Users for whom earlier keys do not count in an outage, until the store confirms the keys.
    fn unconfirmed(&self) -> UnconfirmedUsers;

    /// Takes the unconfirmed users of an earlier process.
    fn distrust(&self, users: &UnconfirmedUsers);
}

/// Users changed by an operator, or refused by the store, since the last confirmation of the store.
#[derive(Clone, Default)]
pub struct UnconfirmedUsers {
    /// Realms and users, each by name and by hash.
    users: Arc<[(Arc<str>, UserQuery)]>,
}

fields!(UnconfirmedUsers { 1 => users });

impl UnconfirmedUsers {
    /// A set of users.
    #[must_use]
    pub fn new(users: Vec<(Arc<str>, UserQuery)>) -> Self {
        Self { users: users.into() }
    }

    /// The users, with their realms.
    pub fn iter(&self) -> impl Iterator<Item = &(Arc<str>, UserQuery)> {
        self.users.iter()
    }
}

/// Compares sets by identity, except for empty sets: a comparison takes no time.
impl PartialEq for UnconfirmedUsers {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.users, &other.users) || self.users.is_empty() && other.users.is_empty()
    }
}

impl Eq for UnconfirmedUsers {}

impl fmt::Debug for UnconfirmedUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys of users", self.users.len())
    }
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
