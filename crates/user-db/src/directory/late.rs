//! Look-ups past their deadlines. Their clients were answered, and the store still works on them:
//! their answers tell that the store is alive.

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::changes::ChangeCount;
use crate::cache::Question;
use crate::limits::{LATE_FOR, LATE_MAX};
use crate::store::{Lookup, UserRecord};

/// Answer to a late look-up, with the number of changes before it.
pub(super) type LateAnswer = (Question, ChangeCount, Option<UserRecord>);

/// Late look-ups, each until its answer, for [`LATE_FOR`] at most.
#[derive(Debug, Default)]
pub(super) struct LateLookups(JoinSet<Option<LateAnswer>>);

impl LateLookups {
    /// Follows a look-up. Returns false when there are too many; it is dropped then.
    pub(super) fn follow(
        &mut self,
        question: Question,
        after: ChangeCount,
        lookup: Lookup<Option<UserRecord>>,
    ) -> bool {
        let has_space = self.0.len() < LATE_MAX;
        if has_space {
            self.0.spawn(async move {
                let found = timeout(LATE_FOR, lookup).await.ok()?.ok()?;
                Some((question, after, found))
            });
        }
        has_space
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next that ends; its answer, if there is one.
    pub(super) async fn next(&mut self) -> Option<Option<LateAnswer>> {
        // A task that panicked has reported it, and nobody waits for its answer.
        Some(self.0.join_next().await?.ok().flatten())
    }
}
