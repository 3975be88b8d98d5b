//! Late look-ups: the clients have a response, and the store may still work on the look-ups. A late
//! answer shows that the store is alive.

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::changes::ChangeCount;
use crate::cache::Question;
use crate::limits::{LATE_FOR, LATE_MAX};
use crate::store::{Lookup, UserRecord};

/// Response of a late look-up, with the number of changes before the look-up.
pub(super) type LateAnswer = (Question, ChangeCount, Option<UserRecord>);

/// Late look-ups, followed for [`LATE_FOR`] at most.
#[derive(Debug, Default)]
pub(super) struct LateLookups(JoinSet<Option<LateAnswer>>);

impl LateLookups {
    /// Follows a look-up. Returns false for a look-up dropped for lack of space.
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

    /// Waits for the next look-up to finish. `None` without an answer.
    pub(super) async fn next(&mut self) -> Option<Option<LateAnswer>> {
        // A panic was reported already, and no client waits.
        Some(self.0.join_next().await?.ok().flatten())
    }
}
