//! Two stores of users, the first of which has precedence.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::store::{Lookup, UserQuery, UserReader, UserRecord};

/// Reader that queries a second store for users missing in a first store. A look-up fails if a
/// queried store fails. The revision fails if either store fails.
pub struct Layered {
    first: Box<dyn UserReader>,
    second: Box<dyn UserReader>,
    revisions: Arc<Mutex<Revisions>>,
}

/// Last revisions of both stores, and the number of distinct pairs so far.
#[derive(Debug, Default)]
struct Revisions {
    last: Option<(u64, u64)>,
    count: u64,
}

impl Layered {
    /// Creates a reader that looks up users in `first`, and then in `second`.
    #[must_use]
    pub fn new(first: Box<dyn UserReader>, second: Box<dyn UserReader>) -> Self {
        Self { first, second, revisions: Arc::default() }
    }
}

impl fmt::Debug for Layered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered").finish_non_exhaustive()
    }
}

impl UserReader for Layered {
    fn find(&self, realm: &Arc<str>, user: &UserQuery) -> Lookup<Option<UserRecord>> {
        let (first, second) = (self.first.find(realm, user), self.second.find(realm, user));
        Box::pin(async move {
            match first.await? {
                Some(found) => Ok(Some(found)),
                None => second.await,
            }
        })
    }

    fn revision(&self) -> Lookup<u64> {
        let (first, second) = (self.first.revision(), self.second.revision());
        let revisions = Arc::clone(&self.revisions);
        Box::pin(async move {
            let now = (first.await?, second.await?);
            let mut revisions = revisions.lock().unwrap_or_else(PoisonError::into_inner);
            if revisions.last != Some(now) {
                revisions.last = Some(now);
                revisions.count += 1;
            }
            Ok(revisions.count)
        })
    }

    fn concurrent_max(&self) -> usize {
        self.first.concurrent_max().min(self.second.concurrent_max())
    }

    fn reports_changes(&self) -> bool {
        self.first.reports_changes() && self.second.reports_changes()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::error::StoreError;
    use crate::store::NewUser;

    /// Store with one user.
    struct One(&'static str, u32, Arc<AtomicU64>);

    impl UserReader for One {
        fn find(&self, realm: &Arc<str>, user: &UserQuery) -> Lookup<Option<UserRecord>> {
            let password = turn_types::Secret::new("pw".into());
            let own = NewUser::new(realm, self.0, &password, Some(self.1)).unwrap();
            let NewUser { keys, allocations_max, .. } = own;
            let is_own = *user == UserQuery::Name(self.0.into());
            let found = is_own.then(|| UserRecord { name: self.0.into(), keys, allocations_max });
            Box::pin(async move { Ok(found) })
        }

        fn revision(&self) -> Lookup<u64> {
            let revision = self.2.load(Ordering::Relaxed);
            Box::pin(async move {
                if revision == 0 { Err(StoreError::Overloaded) } else { Ok(revision) }
            })
        }
    }

    fn store(user: &'static str, limit: u32, revision: &Arc<AtomicU64>) -> Box<dyn UserReader> {
        Box::new(One(user, limit, Arc::clone(revision)))
    }

    #[tokio::test]
    async fn users_of_the_first_store_have_precedence() {
        let revision = Arc::new(AtomicU64::new(1));
        let both = Layered::new(store("ann", 1, &revision), store("ann", 2, &revision));
        let other = Layered::new(store("bob", 1, &revision), store("ann", 2, &revision));
        for (store, limit) in [(both, 1), (other, 2)] {
            let found = store.find(&"r".into(), &UserQuery::Name("ann".into())).await.unwrap();
            assert_eq!(found.and_then(|user| user.allocations_max), Some(limit));
            assert_eq!(
                store.find(&"r".into(), &UserQuery::Name("eve".into())).await.unwrap(),
                None
            );
        }
    }

    #[tokio::test]
    async fn a_change_of_either_store_is_another_revision() {
        let [one, two] = [1, 7].map(|revision| Arc::new(AtomicU64::new(revision)));
        let both = Layered::new(store("ann", 1, &one), store("bob", 2, &two));
        let first = both.revision().await.unwrap();
        assert_eq!(both.revision().await.unwrap(), first);
        // The sum of both revisions would not change.
        one.store(2, Ordering::Relaxed);
        two.store(6, Ordering::Relaxed);
        assert_ne!(both.revision().await.unwrap(), first);
        two.store(0, Ordering::Relaxed);
        assert!(both.revision().await.is_err(), "an outage of one is told");
    }
}
