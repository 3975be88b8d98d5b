//! Queries of one holder of a token: a few at a time, in their order. The interface has one thread,
//! which the queries of one holder could fill.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::QUERIES_OF_HOLDER_MAX;

/// Running and waiting queries, by the names of their holders.
#[derive(Debug, Default)]
pub(crate) struct Queries(Mutex<HashMap<String, Arc<Semaphore>>>);

impl Queries {
    /// Waits until a further query of this holder may run. Never returns `None`: no semaphore is
    /// closed.
    pub(crate) async fn next(&self, holder: &str) -> Option<OwnedSemaphorePermit> {
        self.of(holder).acquire_owned().await.ok()
    }

    fn of(&self, holder: &str) -> Arc<Semaphore> {
        // Nothing in it can be half done.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.get(holder) {
            return Arc::clone(own);
        }
        // Each permit and each waiting query has a reference.
        all.retain(|_, of_holder| Arc::strong_count(of_holder) > 1);
        let own = Arc::new(Semaphore::new(QUERIES_OF_HOLDER_MAX));
        all.insert(holder.to_owned(), Arc::clone(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_holder_waits_for_its_own_queries_alone() {
        let queries = Queries::default();
        let mut open = Vec::new();
        for _ in 0..QUERIES_OF_HOLDER_MAX {
            open.push(queries.next("mallory").await.unwrap());
        }
        let waits = async || {
            tokio::select! {
                biased;
                _ = queries.next("mallory") => false,
                () = tokio::task::yield_now() => true,
            }
        };
        assert!(waits().await);
        for number in 0..100 {
            drop(queries.next(&format!("honest {number}")).await);
        }
        assert!(waits().await, "it is known as long as its queries are open");
        open.pop();
        assert!(!waits().await);
        drop(open);
        drop(queries.next("another").await);
        assert_eq!(queries.0.lock().unwrap().len(), 1, "those without queries are forgotten");
    }
}
