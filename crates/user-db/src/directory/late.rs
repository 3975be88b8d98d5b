//! Late look-ups: the clients have a response, and the store may still work on the look-ups. A late
//! answer shows that the store is alive.

use std::collections::VecDeque;
use std::time::Instant;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::changes::ChangeCount;
use crate::cache::Question;
use crate::limits::{LATE_FOR, LATE_MAX};
use crate::store::{Lookup, UserRecord};

/// Response of a late look-up, with the number of changes before the look-up.
pub(super) type LateAnswer = (Question, ChangeCount, Option<UserRecord>);

/// Late look-ups, followed for [`LATE_FOR`] at most.
#[derive(Debug, Default)]
pub(super) struct LateLookups {
    tasks: JoinSet<Option<LateAnswer>>,
    /// Time of each call to the store.
    asked: VecDeque<(Instant, AbortHandle)>,
}

impl LateLookups {
    /// Follows a look-up. Returns false for a look-up dropped for lack of space.
    pub(super) fn follow(
        &mut self,
        asked: Instant,
        question: Question,
        after: ChangeCount,
        lookup: Lookup<Option<UserRecord>>,
    ) -> bool {
        let has_space = self.tasks.len() < LATE_MAX;
        if has_space {
            let task = self.tasks.spawn(async move {
                let found = timeout(LATE_FOR, lookup).await.ok()?.ok()?;
                Some((question, after, found))
            });
            self.asked.push_back((asked, task));
        }
        has_space
    }

    /// Ends the look-ups from before an answered one: the store does not work on these.
    pub(super) fn end_before(&mut self, answered: Instant) {
        while let Some((_, task)) = self.asked.pop_front_if(|(asked, _)| *asked < answered) {
            task.abort();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Waits for the next look-up to finish. `None` without an answer.
    pub(super) async fn next(&mut self) -> Option<Option<LateAnswer>> {
        // A panic was reported already, and no client waits.
        let found = self.tasks.join_next().await?.ok().flatten();
        self.asked.retain(|(_, task)| !task.is_finished());
        Some(found)
    }
}
