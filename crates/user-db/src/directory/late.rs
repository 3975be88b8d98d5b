//! Late look-ups: the clients have received a response, but the store may still process the
//! look-ups. A late answer proves that the store is alive.

use std::collections::VecDeque;

use fair_share::QuestionNumber;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::changes::ChangeCount;
use crate::cache::Question;
use crate::error::StoreError;
use crate::limits::{LATE_FOR, LATE_MAX};
use crate::store::{Lookup, UserRecord};

/// Answer to a late look-up, with the number of changes before the look-up.
pub(super) type LateAnswer = (Question, ChangeCount, Option<UserRecord>);

/// Late look-ups, followed for at most [`LATE_FOR`].
#[derive(Debug, Default)]
pub(super) struct LateLookups {
    tasks: JoinSet<Option<LateAnswer>>,
    /// Task of each look-up, in the order of the calls to the store.
    by_number: VecDeque<(QuestionNumber, AbortHandle)>,
}

impl LateLookups {
    /// Follows a look-up. Returns false if the look-up is dropped for lack of space.
    pub(super) fn follow(
        &mut self,
        number: QuestionNumber,
        question: Question,
        after: ChangeCount,
        lookup: Lookup<Option<UserRecord>>,
    ) -> bool {
        let has_space = self.tasks.len() < LATE_MAX;
        if has_space {
            let task = self.tasks.spawn(async move {
                match timeout(LATE_FOR, lookup).await.ok()? {
                    Ok(found) => Some((question, after, found)),
                    Err(StoreError::Row { .. }) => Some((question, after, None)),
                    Err(_) => None,
                }
            });
            self.by_number.push_back((number, task));
        }
        has_space
    }

    /// Aborts the oldest look-ups, up to the first for which `is_lost` returns false.
    pub(super) fn abort_where(&mut self, is_lost: impl Fn(QuestionNumber) -> bool) {
        while let Some((_, task)) = self.by_number.pop_front_if(|(number, _)| is_lost(*number)) {
            task.abort();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Waits for the next look-up to finish. Returns `Some(None)` if that look-up has no answer,
    /// and `None` if no look-ups are left.
    pub(super) async fn next(&mut self) -> Option<Option<LateAnswer>> {
        // A panic was reported already, and no client waits.
        let found = self.tasks.join_next().await?.ok().flatten();
        self.by_number.retain(|(_, task)| !task.is_finished());
        Some(found)
    }
}
