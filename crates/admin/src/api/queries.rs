//! Queries or changes of one realm, or of one holder of a token for all realms: a few at a time,
//! in their order. The interface has one thread, which the queries of one realm could fill, and
//! changes are written to a disk one by one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::holder::Holder;
use crate::limits::QUERIES_TOGETHER_MAX;

/// Running and waiting queries.
#[derive(Debug, Default)]
pub(crate) struct Queries(Mutex<HashMap<Querier, Arc<Semaphore>>>);

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
    pub(crate) async fn next(&self, querier: Querier) -> Option<OwnedSemaphorePermit> {
        self.of(querier).acquire_owned().await.ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::Role;

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
