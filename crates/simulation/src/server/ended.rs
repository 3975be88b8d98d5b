//! Allocations with a confirmed end by an operator: no process may have one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::Reply;
use turn_types::{AllocationId, Instant};

/// Maximum age of a keeper's copy: an interval of copies and a slow read.
const KEPT_WITHIN: Duration = Duration::from_secs(3);

/// Confirmed ends, with the time of the request.
#[derive(Clone, Default)]
pub(super) struct Ended(Arc<Mutex<BTreeMap<AllocationId, Instant>>>);

impl Ended {
    fn all(&self) -> MutexGuard<'_, BTreeMap<AllocationId, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reply to a request for the end of an allocation.
    pub(super) fn reply(&self, id: AllocationId, now: Instant) -> Reply<bool> {
        let all = self.clone();
        Box::new(move |ended| {
            if ended {
                all.all().insert(id, now);
            }
        })
    }

    pub(super) fn has(&self, id: AllocationId) -> bool {
        self.all().contains_key(&id)
    }

    /// Removes ends that a keeper may lack.
    pub(super) fn forget_since(&self, now: Instant) {
        self.all().retain(|_, at| now.saturating_since(*at) > KEPT_WITHIN);
    }
}
