//! Cached answers, shared by the directory's thread and the workers.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stun_wire::{UserName, userhash};

use super::changes::Changes;
use crate::cache::{Cache, Question};
use crate::store::{UserQuery, UserRecord};

/// Cached answers, and the interval of checks for changes.
pub(super) struct Answers {
    pub(super) kept: Mutex<KnownUsers>,
    pub(super) changes_after: Duration,
}

pub(super) struct KnownUsers {
    pub(super) cache: Cache,
    pub(super) changes: Changes,
    /// Time of the last check for changes.
    pub(super) checked: Option<Instant>,
}

impl Answers {
    /// Locks the answers. The code under the lock does not panic, and the cache would be consistent
    /// after a panic.
    pub(super) fn lock(&self) -> MutexGuard<'_, KnownUsers> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownUsers {
    /// Returns true if a check for changes must precede the use of the cache.
    pub(super) fn is_stale(&self, now: Instant, changes_after: Duration) -> bool {
        self.checked.is_none_or(|checked| now.saturating_duration_since(checked) >= changes_after)
    }

    /// Stores a response of the user store. Removes a different earlier answer about the same user
    /// under the other key, because the latest response applies in an outage. A refusal of a known
    /// user counts as a change of the user, and so invalidates late look-ups that started earlier.
    pub(super) fn keep(&mut self, now: Instant, question: &Question, user: Option<&UserRecord>) {
        let before = self.cache.kept(question).cloned();
        let other = other_key(question, user.or(before.as_ref()));
        let other =
            other.filter(|other| self.cache.kept(other).is_some_and(|kept| Some(kept) != user));
        self.cache.keep(now, question.clone(), user);
        if user.is_some() {
            self.changes.confirm(question);
        } else if before.is_some() {
            self.changes.add(question.clone());
        }
        if let Some(other) = other {
            self.cache.forget(&other);
            self.changes.add(other);
        }
    }

    /// Returns true if an operator has changed the user, or the store has refused the user, since
    /// the store's last confirmation.
    pub(super) fn is_refused(&self, question: &Question) -> bool {
        self.changes.is_unconfirmed(question) || self.cache.is_unknown(question)
    }
}

/// Returns the other key of a user. Each user has two keys, the name and the hash.
fn other_key(question: &Question, user: Option<&UserRecord>) -> Option<Question> {
    let user = match &question.user {
        UserQuery::Name(name) => UserQuery::Hash(userhash(name, &question.realm).ok()?),
        UserQuery::Hash(_) => UserQuery::Name(UserName::form_of(&user?.name).as_ref().into()),
    };
    Some(Question { realm: question.realm.clone(), user })
}
