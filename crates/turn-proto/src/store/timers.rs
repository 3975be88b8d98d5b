//! Timers of the allocation slots, one per slot, sorted by deadline.
//!
//! Timers are coarse. A timer fires at the first tick not before its deadline, so one call handles
//! many timers. Expiry is an exact comparison with the deadline, and timers only reclaim.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use turn_types::Instant;

use crate::limits::TIMER_TICK;

const TICK_NANOS: u64 = TIMER_TICK.as_nanos() as u64;

#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(u64, u32)>,
    /// Tick of each armed key.
    ticks: Vec<Option<u64>>,
}

impl Timers {
    /// Arms or moves the timer of a key. Keys are indexes of a slab, and therefore dense.
    pub(crate) fn set(&mut self, key: u32, deadline: Instant) {
        let tick = deadline.as_nanos().div_ceil(TICK_NANOS);
        let index = key as usize;
        if index >= self.ticks.len() {
            self.ticks.resize(index + 1, None);
        }
        if self.ticks[index] != Some(tick) {
            self.cancel(key);
            self.ticks[index] = Some(tick);
            self.due.insert((tick, key));
        }
    }

    /// Disarms the timer of a key, if armed.
    pub(crate) fn cancel(&mut self, key: u32) {
        if let Some(tick) = self.ticks.get_mut(key as usize).and_then(Option::take) {
            self.due.remove(&(tick, key));
        }
    }

    /// Removes and returns a due timer.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<u32> {
        let &(tick, key) = self.due.first()?;
        if now.as_nanos() / TICK_NANOS < tick {
            return None;
        }
        self.cancel(key);
        Some(key)
    }

    /// Returns the tick of the next timer.
    pub(crate) fn next(&self) -> Option<Instant> {
        let &(tick, _) = self.due.first()?;
        Some(Instant::from_nanos(tick.saturating_mul(TICK_NANOS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn timers_fire_at_the_tick_behind_their_deadline_in_order() {
        let mut timers = Timers::default();
        for (key, deadline) in [(2, 3000), (0, 1500), (1, 1001), (3, 9000)] {
            timers.set(key, at(deadline));
        }
        assert_eq!((timers.next(), timers.pop(at(1999))), (Some(at(2000)), None));
        let due: Vec<_> = core::iter::from_fn(|| timers.pop(at(3000))).collect();
        assert_eq!(due, [0, 1, 2]);
        assert_eq!((timers.next(), timers.pop(at(8999))), (Some(at(9000)), None));
    }

    #[test]
    fn a_timer_can_be_moved_and_cancelled() {
        let mut timers = Timers::default();
        timers.set(5, at(1000));
        timers.set(5, at(4000));
        assert_eq!(timers.pop(at(3999)), None);
        timers.set(5, at(2000));
        assert_eq!((timers.pop(at(2000)), timers.pop(at(9000))), (Some(5), None));
        timers.set(5, at(3000));
        timers.cancel(5);
        timers.cancel(7);
        assert_eq!((timers.next(), timers.pop(at(9000))), (None, None));
    }
}
