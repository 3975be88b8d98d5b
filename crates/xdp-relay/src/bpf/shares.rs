//! Shares of the table of flows: the slots of each client, network, account and realm.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fair_share::{Claimant, LOGGED_IN, Share, Shortage, Slots, system_hasher};
use turn_types::Instant;

use crate::error::KernelPathError;
use crate::limits::{REST, SCARCE_BELOW, SCARCE_FOR};

/// Slots in use by each client, for the flows of all workers. The lock is taken when slots are
/// claimed, released or swept, and never for a packet.
#[derive(Debug)]
pub(crate) struct Shares {
    counts: Mutex<Counts>,
    /// Time of the last refusal in nanoseconds. 0 means none.
    refused: AtomicU64,
}

#[derive(Debug)]
struct Counts {
    slots: Slots,
    /// Shares of removed flows, with the time of removal. A slot counts as used until it has
    /// rested. Otherwise a client that quickly removes and creates flows could take all slots.
    resting: VecDeque<(Instant, Share)>,
}

impl Counts {
    fn release_rested(&mut self, now: Instant) {
        while let Some((_, share)) = self.resting.pop_front_if(|(since, _)| *since + REST <= now) {
            self.slots.release(share);
        }
    }
}

impl Shares {
    pub(crate) fn new(flows: u32) -> Self {
        let slots = Slots::new(&LOGGED_IN, flows, system_hasher());
        let counts = Counts { slots, resting: VecDeque::new() };
        Self { counts: Mutex::new(counts), refused: AtomicU64::new(0) }
    }

    /// Claims a slot for a client.
    ///
    /// # Errors
    /// The table is full, or slots are scarce and the client has used the full share.
    pub(crate) fn claim(
        &self,
        now: Instant,
        claimant: &Claimant<'_>,
    ) -> Result<Share, KernelPathError> {
        self.counts(now).slots.claim(claimant).map_err(|shortage| match shortage {
            Shortage::Table => self.full(now),
            Shortage::Share => {
                self.refuse(now);
                KernelPathError::Share
            }
        })
    }

    /// Releases the share of a removed flow, with effect after [`REST`].
    pub(crate) fn release(&self, now: Instant, share: Share) {
        self.counts(now).resting.push_back((now, share));
    }

    /// Records that a flow was refused, and returns the error.
    pub(crate) fn full(&self, now: Instant) -> KernelPathError {
        self.refuse(now);
        KernelPathError::Full
    }

    fn refuse(&self, now: Instant) {
        self.refused.store(now.as_nanos(), Relaxed);
    }

    /// Returns true if silent flows should lose their slots: few slots are free, or a flow was
    /// refused within [`SCARCE_FOR`].
    pub(crate) fn are_scarce(&self, now: Instant) -> bool {
        let refused = self.refused.load(Relaxed);
        if refused > 0 && now < Instant::from_nanos(refused) + SCARCE_FOR {
            return true;
        }
        let Counts { slots, .. } = &*self.counts(now);
        slots.capacity().saturating_sub(slots.held()) < slots.capacity() / SCARCE_BELOW
    }

    fn counts(&self, now: Instant) -> MutexGuard<'_, Counts> {
        // A panic can make the counts wrong by one flow.
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.release_rested(now);
        counts
    }
}
