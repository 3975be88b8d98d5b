//! Window of look-ups in flight: as many as the store answers without a queue of its own.
//!
//! Look-ups that wait here are sorted by client, and those that wait in the store are not. A store
//! that serves one after the other would otherwise have the look-ups of one flooder before all
//! others.

use std::time::Duration;

use crate::limits::{WINDOW_MIN, WINDOW_SLACK, WINDOW_START};

/// Size of the window. Grows with each prompt answer, halves with a slow one.
#[derive(Debug)]
pub(crate) struct Window {
    size: usize,
    max: usize,
    /// Time of an answer without a queue in the store; `None` before the first answer.
    prompt: Option<Duration>,
    /// Look-ups in flight at the last halving: their times say nothing about the new size.
    ignored: usize,
}

impl Window {
    pub(crate) fn new(max: usize) -> Self {
        Self { size: WINDOW_START.min(max), max, prompt: None, ignored: 0 }
    }

    /// Maximum number of look-ups in flight.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// Notes the time of an answer, or of a missed deadline. `in_flight` includes it.
    pub(crate) fn note(&mut self, time: Duration, in_flight: usize) {
        let prompt = self.prompt.map_or(time, |prompt| prompt.min(time));
        self.prompt = Some(prompt);
        if self.ignored > 0 {
            self.ignored -= 1;
        } else if time <= prompt * 2 + WINDOW_SLACK {
            if in_flight >= self.size {
                self.size = (self.size + 1).min(self.max);
            }
        } else if self.size > WINDOW_MIN {
            self.size = (self.size / 2).max(WINDOW_MIN);
            self.ignored = in_flight.saturating_sub(1);
        } else {
            // Few look-ups are as slow: the store has become slower.
            self.prompt = Some(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers the look-ups of a full window, round after round. Returns the size at the end.
    fn after(window: &mut Window, rounds: usize, time: impl Fn(usize) -> Duration) -> usize {
        for _ in 0..rounds {
            let in_flight = window.size();
            (1..=in_flight).for_each(|place| window.note(time(place), in_flight));
        }
        window.size()
    }

    const STEP: Duration = Duration::from_millis(50);

    #[test]
    fn a_store_that_serves_all_at_once_gets_all() {
        for time in [Duration::from_millis(1), Duration::from_millis(300)] {
            assert_eq!(after(&mut Window::new(256), 10, |_| time), 256, "{time:?}");
        }
    }

    #[test]
    fn a_store_that_serves_one_after_the_other_gets_few() {
        let mut window = Window::new(256);
        let serial = |place: usize| STEP * place as u32;
        for _ in 0..20 {
            let size = after(&mut window, 1, serial);
            assert!((WINDOW_MIN..=WINDOW_START).contains(&size), "{size}");
        }
        // It is well again.
        assert_eq!(after(&mut window, 20, |_| STEP), 256);
    }

    #[test]
    fn a_store_that_becomes_slower_is_not_taken_for_a_full_one() {
        let mut window = Window::new(256);
        after(&mut window, 10, |_| Duration::from_millis(1));
        assert_eq!(after(&mut window, 30, |_| Duration::from_millis(400)), 256);
    }

    #[test]
    fn a_small_store_has_its_own_maximum() {
        assert_eq!(after(&mut Window::new(4), 10, |_| STEP), 4);
        assert_eq!(after(&mut Window::new(1), 10, |place| STEP * place as u32 * 100), 1);
    }
}
