//! A bound on log lines that others can cause.

use std::time::Duration;

use turn_types::Instant;

/// So many lines in each stretch of time; the first line of the next says how many were left out.
#[derive(Debug)]
pub(crate) struct LineBudget {
    lines_max: u32,
    every: Duration,
    /// When the present stretch ends; `None` before the first line.
    until: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LineBudget {
    pub(crate) const fn new(lines_max: u32, every: Duration) -> Self {
        Self { lines_max, every, until: None, lines: 0, left_out: 0 }
    }

    /// Whether a line may be written now, and if so, how many were left out before it.
    pub(crate) fn take(&mut self, now: Instant) -> Option<u64> {
        if self.until.is_none_or(|until| now >= until) {
            self.until = Some(now + self.every);
            self.lines = 0;
        }
        if self.lines == self.lines_max {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_many_were_left_out() {
        let mut budget = LineBudget::new(2, Duration::from_secs(1));
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let taken = [0, 10, 20, 999, 1000, 1001, 1002, 5000].map(|millis| budget.take(at(millis)));
        let expected = [Some(0), Some(0), None, None, Some(2), Some(0), None, Some(1)];
        assert_eq!(taken, expected);
    }
}
