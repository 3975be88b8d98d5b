//! Window of questions in flight to a store or service, by the times of its responses.
//!
//! Questions that wait in a [`FairQueue`](crate::FairQueue) are sorted by client, and those that
//! wait in the service are not. A service that works serially would otherwise have the
//! questions of one flooder before all others.

use core::time::Duration;

/// Initial size. A serial service, with 150 ms for each question, finishes a burst of this
/// size within a second or so.
const START: usize = 8;

/// Smallest size: a question that a lock holds up leaves space for another.
const MIN: usize = 2;

/// Limit beyond twice the shortest time, above which a response is slow. Above the jitter of a
/// network, and below the time that a client notices.
const SLACK: Duration = Duration::from_millis(100);

/// Maximum number of questions in flight. Grows with each prompt answer, halves with a slow one.
#[derive(Debug)]
pub struct Window {
    size: usize,
    max: usize,
    /// Shortest response time; `None` before the first response.
    prompt: Option<Duration>,
    /// Questions in flight at the last halving, sent under the earlier size.
    ignored: usize,
}

impl Window {
    /// A window up to a size.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { size: START.min(max), max, prompt: None, ignored: 0 }
    }

    /// Maximum number of questions in flight.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Notes the time of an answer, or of a missed deadline. `in_flight` includes it.
    pub fn note(&mut self, time: Duration, in_flight: usize) {
        let prompt = self.prompt.map_or(time, |prompt| prompt.min(time));
        self.prompt = Some(prompt);
        if self.ignored > 0 {
            self.ignored -= 1;
        } else if time <= prompt * 2 + SLACK {
            if in_flight >= self.size {
                self.size = (self.size + 1).min(self.max);
            }
        } else if self.size > MIN {
            self.size = (self.size / 2).max(MIN);
            self.ignored = in_flight.saturating_sub(1);
        } else {
            // Few questions are as slow: the service has become slower.
            self.prompt = Some(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes responses to a full window, round after round. Returns the size at the end.
    fn after(window: &mut Window, rounds: usize, time: impl Fn(usize) -> Duration) -> usize {
        for _ in 0..rounds {
            (1..=window.size()).for_each(|place| window.note(time(place), window.size()));
        }
        window.size()
    }

    const STEP: Duration = Duration::from_millis(50);

    #[test]
    fn a_service_that_answers_all_at_once_gets_all() {
        for time in [Duration::from_millis(1), Duration::from_millis(300)] {
            assert_eq!(after(&mut Window::new(256), 10, |_| time), 256, "{time:?}");
        }
    }

    #[test]
    fn a_service_that_answers_one_after_the_other_gets_few() {
        let mut window = Window::new(256);
        let serial = |place: usize| STEP * place as u32;
        for _ in 0..20 {
            let size = after(&mut window, 1, serial);
            assert!((MIN..=START).contains(&size), "{size}");
        }
        // It is well again.
        assert_eq!(after(&mut window, 20, |_| STEP), 256);
    }

    #[test]
    fn a_service_that_becomes_slower_is_not_taken_for_a_full_one() {
        let mut window = Window::new(256);
        after(&mut window, 10, |_| Duration::from_millis(1));
        assert_eq!(after(&mut window, 30, |_| Duration::from_millis(400)), 256);
    }

    #[test]
    fn a_small_service_has_its_own_maximum() {
        assert_eq!(after(&mut Window::new(4), 10, |_| STEP), 4);
        assert_eq!(after(&mut Window::new(1), 10, |place| STEP * place as u32 * 100), 1);
    }
}
