//! Requests of the control plane to a worker.

use std::fmt;
use std::sync::Arc;

use turn_proto::{
    AllocationPeers, AllocationRecord, Authorization, EndedPart, GrantLimits, Policy, UserAnswer,
    without_limits,
};
use turn_types::{AllocationId, PendingId, Realm};

use crate::{RefusalFilter, Refused, Session};

/// Callback of a worker's answer, on its own thread: it must not block. Dropped without a
/// call when the worker will not answer.
pub type Reply<T> = Box<dyn FnOnce(T) + Send>;

/// A request to one worker, carried out between two batches of packets.
pub enum Request {
    /// Use this policy from now on.
    Apply {
        /// The new policy.
        policy: Arc<Policy>,
        /// Called when it is in force.
        done: Reply<()>,
    },
    /// List live allocations, in the order of their ids.
    List {
        /// Which.
        filter: SessionFilter,
        /// At most how many.
        limit: usize,
        /// The answer.
        reply: Reply<Vec<Session>>,
    },
    /// Show an allocation with its peers.
    Show {
        /// Which.
        id: AllocationId,
        /// The answer; `None` without one of this id here.
        reply: Reply<Option<(Session, AllocationPeers)>>,
    },
    /// End an allocation.
    End {
        /// Which.
        id: AllocationId,
        /// True if there was one.
        reply: Reply<bool>,
    },
    /// Narrow the limits of an allocation.
    Limit {
        /// Number of the allocation.
        id: AllocationId,
        /// Limits besides the present ones.
        limits: GrantLimits,
        /// True if there was one.
        reply: Reply<bool>,
    },
    /// End allocations whose secret or key counts no longer.
    EndUnaccepted {
        /// Only of this realm.
        realm: Option<Realm>,
        /// Only allocations with a higher id than this one.
        after: Option<AllocationId>,
        /// The number of allocations to look at.
        limit: usize,
        /// The answer.
        reply: Reply<EndedPart>,
    },
    /// List recent refusals, the latest first.
    Refusals {
        /// Which.
        filter: RefusalFilter,
        /// At most how many.
        limit: usize,
        /// The answer.
        reply: Reply<Vec<Refused>>,
    },
    /// Bring the sums of relayed data up to date in the counters.
    CountTraffic {
        /// Called when they are.
        done: Reply<()>,
    },
    /// Refuse new allocations (true), or take them again (false).
    Drain(bool),
    /// A user was looked up.
    UserFound {
        /// From the [`UserLookup`](crate::UserLookup).
        pending: PendingId,
        /// The answer.
        answer: UserAnswer,
    },
    /// The authorizer has answered.
    Authorized {
        /// From the [`AuthorizationRequest`](crate::AuthorizationRequest).
        pending: PendingId,
        /// The answer.
        answer: Authorization,
    },
    /// End all allocations and leave.
    Stop,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply { .. } => f.write_str("Apply"),
            Self::List { filter, limit, .. } => {
                f.debug_struct("List").field("filter", filter).field("limit", limit).finish()
            }
            Self::Refusals { filter, limit, .. } => {
                f.debug_struct("Refusals").field("filter", filter).field("limit", limit).finish()
            }
            Self::CountTraffic { .. } => f.write_str("CountTraffic"),
            Self::Show { id, .. } => f.debug_tuple("Show").field(id).finish(),
            Self::EndUnaccepted { realm, .. } => {
                f.debug_tuple("EndUnaccepted").field(realm).finish()
            }
            Self::End { id, .. } => f.debug_tuple("End").field(id).finish(),
            Self::Limit { id, .. } => f.debug_tuple("Limit").field(id).finish(),
            Self::Drain(on) => f.debug_tuple("Drain").field(on).finish(),
            Self::UserFound { pending, .. } => f.debug_tuple("UserFound").field(pending).finish(),
            Self::Authorized { pending, .. } => f.debug_tuple("Authorized").field(pending).finish(),
            Self::Stop => f.write_str("Stop"),
        }
    }
}

/// Which allocations to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only sessions of this user. A name in its form ([`UserName`](turn_proto::UserName)).
    pub user: Option<String>,
    /// The names that are compared with it.
    pub names: SessionNames,
    /// Only allocations with a higher id than this one, as the last of the page before.
    pub after: Option<AllocationId>,
}

/// Names of an allocation that a [`SessionFilter`] compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionNames {
    /// The authenticated name and the quota account.
    #[default]
    All,
    /// Those that a revocation of a name refuses: the same, without limits of a credential, and
    /// without the key of a token.
    Revocable,
    /// The key of a token.
    TokenKey,
}

impl SessionFilter {
    /// Returns whether the allocation is selected.
    #[must_use]
    pub fn takes(&self, record: &AllocationRecord) -> bool {
        if self.after.is_some_and(|after| record.id <= after) {
            return false;
        }
        let Some(user) = self.user.as_deref() else { return true };
        let AllocationRecord { user: name, is_by_token, .. } = record;
        let has_account =
            |is: &dyn Fn(&str) -> bool| is(&record.account) || is(record.latest_account());
        let is_same = |name: &str| name == user || without_limits(name) == without_limits(user);
        match self.names {
            SessionNames::All => **name == *user || has_account(&|account| account == user),
            SessionNames::Revocable => has_account(&is_same) || !is_by_token && is_same(name),
            SessionNames::TokenKey => *is_by_token && **name == *user,
        }
    }
}
