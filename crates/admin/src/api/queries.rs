//! Queries or changes of one realm, or of one holder of a token for all realms: a few at a time,
//! in their order. The interface has one thread, which the queries of one realm could fill, and
//! changes are written to a disk one by one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::holder::Holder;
use crate::limits::QUERIES_TOGETHER_MAX;

/// Running and waiting queries.
#[derive(Debug, Default)]
pub(crate) struct Queries(Mutex<HashMap<Querier, Arc<Semaphore>>>);

/// A query that runs.
#[derive(Debug)]
pub(crate) struct RunningQuery {
    permit: OwnedSemaphorePermit,
    began: Instant,
}

/// Whose queries count together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Querier {
    /// All holders of tokens for one realm.
    Realm(String),
    /// Holder of a token for all realms.
    Holder(String),
}

impl Querier {
    pub(crate) fn of(holder: &Holder) -> Self {
        match &holder.realm {
            Some(realm) => Self::Realm(realm.clone()),
            None => Self::Holder(holder.name.clone()),
        }
    }

    /// Returns true for holders of tokens for one realm.
    pub(crate) const fn is_tenant(&self) -> bool {
        matches!(self, Self::Realm(_))
    }
}

impl Queries {
    /// Waits until a further query may run. Never returns `None`: no semaphore is
    /// closed.
    pub(crate) async fn next(&self, querier: Querier) -> Option<RunningQuery> {
        let permit = self.of(querier).acquire_owned().await.ok()?;
        Some(RunningQuery { permit, began: Instant::now() })
    }

    fn of(&self, querier: Querier) -> Arc<Semaphore> {
        // Nothing in it can be half done.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.get(&querier) {
            return Arc::clone(own);
        }
        // Each permit and each waiting query has a reference.
        all.retain(|_, own| Arc::strong_count(own) > 1);
        let own = Arc::new(Semaphore::new(QUERIES_TOGETHER_MAX));
        all.insert(querier, Arc::clone(&own));
        own
    }
}

impl RunningQuery {
    /// Lets the next query run when this one has taken the time `takes` from its beginning.
    pub(crate) fn end(self, takes: Duration) {
        let Self { permit, began } = self;
        tokio::spawn(async move {
            sleep_until(began + takes).await;
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::REQUEST_TAKES;
    use crate::role::Role;

    /// Queries that are answered from memory.
    #[tokio::test(start_paused = true)]
    async fn a_realm_has_a_rate_of_queries() {
        let (queries, began) = (Queries::default(), Instant::now());
        let ask = async |realm: &str| {
            let query = queries.next(Querier::Realm(realm.to_owned())).await.unwrap();
            query.end(REQUEST_TAKES);
        };
        for _ in 0..100 {
            ask("mallory").await;
        }
        let took = began.elapsed();
        let few = 100 / QUERIES_TOGETHER_MAX as u32 - 1;
        assert!(took >= REQUEST_TAKES * few, "{took:?}");
        ask("honest").await;
        assert_eq!(began.elapsed(), took, "others do not wait");
    }

    #[tokio::test]
    async fn a_realm_waits_for_its_own_queries_alone() {
        let queries = Queries::default();
        let holder = |name: &str, realm: Option<&str>| {
            let (name, realm) = (name.to_owned(), realm.map(str::to_owned));
            Querier::of(&Holder { name, role: Role::Read, realm, signed: None })
        };
        let mut open = Vec::new();
        for _ in 0..QUERIES_TOGETHER_MAX {
            let token = format!("token {}", open.len());
            open.push(queries.next(holder(&token, Some("mallory"))).await.unwrap());
        }
        let waits = async || {
            tokio::select! {
                biased;
                _ = queries.next(holder("another token", Some("mallory"))) => false,
                () = tokio::task::yield_now() => true,
            }
        };
        assert!(waits().await);
        for number in 0..100 {
            let realm = format!("honest {number}");
            drop(queries.next(holder("token", Some(&realm))).await);
        }
        drop(queries.next(holder("mallory", None)).await);
        assert!(waits().await, "it is known as long as its queries are open");
        open.pop();
        assert!(!waits().await);
        drop(open);
        drop(queries.next(holder("another", None)).await);
        assert_eq!(queries.0.lock().unwrap().len(), 1, "those without queries are forgotten");
    }
}
