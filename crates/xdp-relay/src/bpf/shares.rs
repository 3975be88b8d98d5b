//! Shares of the table of flows: the slots of each client, network, account and realm.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fair_share::{Claimant, LOGGED_IN, Share, Shortage, Slots, system_hasher};
use turn_types::Instant;

use crate::error::KernelPathError;
use crate::limits::{SCARCE_BELOW, SCARCE_FOR};

/// Counts of all workers' flows, locked at the first and last packet of a flow only.
#[derive(Debug)]
pub(crate) struct Shares {
    slots: Mutex<Slots>,
    /// Time of the last refusal in nanoseconds; 0 for none.
    refused: AtomicU64,
}

impl Shares {
    pub(crate) fn new(flows: u32) -> Self {
        let slots = Slots::new(&LOGGED_IN, flows, system_hasher());
        Self { slots: Mutex::new(slots), refused: AtomicU64::new(0) }
    }

    /// Claims a slot for a client.
    ///
    /// # Errors
    /// The table is full, or the client has its share.
    pub(crate) fn claim(
        &self,
        now: Instant,
        claimant: &Claimant<'_>,
    ) -> Result<Share, KernelPathError> {
        self.slots().claim(claimant).map_err(|shortage| match shortage {
            Shortage::Table => self.full(now),
            Shortage::Share => {
                self.refuse(now);
                KernelPathError::Share
            }
        })
    }

    pub(crate) fn release(&self, share: Share) {
        self.slots().release(share);
    }

    /// Records that a flow was refused, and returns the error.
    pub(crate) fn full(&self, now: Instant) -> KernelPathError {
        self.refuse(now);
        KernelPathError::Full
    }

    fn refuse(&self, now: Instant) {
        self.refused.store(now.as_nanos(), Relaxed);
    }

    /// True if silent flows lose their slots: few slots are free, or a flow was refused
    /// a short time ago.
    pub(crate) fn are_scarce(&self, now: Instant) -> bool {
        let refused = self.refused.load(Relaxed);
        if refused > 0 && now < Instant::from_nanos(refused) + SCARCE_FOR {
            return true;
        }
        let slots = self.slots();
        slots.capacity().saturating_sub(slots.held()) < slots.capacity() / SCARCE_BELOW
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        // After a panic the counts are wrong by one flow.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
