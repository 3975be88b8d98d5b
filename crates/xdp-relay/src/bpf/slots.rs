//! Slots of an array, with a delay before reuse.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use turn_types::Instant;

use crate::limits::REST;

/// Free slots, shared by all workers. The lock is taken when routes are installed or removed, and
/// never for a packet.
#[derive(Debug)]
pub(crate) struct Slots(Mutex<Free>);

#[derive(Debug)]
struct Free {
    rested: Vec<u32>,
    /// Returned slots, sorted by the time of return.
    resting: VecDeque<(Instant, u32)>,
}

impl Slots {
    pub(crate) fn new(count: u32) -> Self {
        Self(Mutex::new(Free { rested: (0..count).rev().collect(), resting: VecDeque::new() }))
    }

    /// Takes a slot. Returns `None` if all slots are in use, or were in use within the last
    /// [`REST`].
    pub(crate) fn take(&self, now: Instant) -> Option<u32> {
        let mut free = self.free();
        if let Some(slot) = free.rested.pop() {
            return Some(slot);
        }
        free.resting.front().filter(|(since, _)| *since + REST <= now)?;
        free.resting.pop_front().map(|(_, slot)| slot)
    }

    /// Returns a slot, which becomes free after [`REST`]. A program may still read the slot.
    pub(crate) fn put_back(&self, now: Instant, slot: u32) {
        self.free().resting.push_back((now, slot));
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        // Lists of numbers stay consistent if a thread that holds the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_place_rests_before_it_is_given_out_again() {
        let slots = Slots::new(2);
        let start = Instant::ZERO + Duration::from_secs(100);
        let (first, second) = (slots.take(start), slots.take(start));
        assert_eq!((first, second, slots.take(start)), (Some(0), Some(1), None));
        slots.put_back(start, 1);
        slots.put_back(start + REST / 2, 0);
        assert_eq!(slots.take(start + (REST - Duration::from_nanos(1))), None);
        assert_eq!(slots.take(start + REST), Some(1));
        assert_eq!(slots.take(start + REST), None, "the other rests still");
        assert_eq!(slots.take(start + REST * 2), Some(0));
    }

    #[test]
    fn a_place_that_was_never_used_needs_no_rest() {
        let slots = Slots::new(2);
        assert_eq!(slots.take(Instant::ZERO), Some(0));
        slots.put_back(Instant::ZERO, 0);
        assert_eq!(slots.take(Instant::ZERO), Some(1));
    }
}
