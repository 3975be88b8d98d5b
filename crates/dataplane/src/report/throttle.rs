//! Rate limit of log lines that clients can cause.

use std::time::Duration;

use turn_types::Instant;

/// Limit of log lines per interval. The first line of the next interval contains the number of
/// suppressed lines.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    lines_max: u32,
    every: Duration,
    /// End of the current interval. `None` before the first line.
    until: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LogThrottle {
    pub(crate) const fn new(lines_max: u32, every: Duration) -> Self {
        Self { lines_max, every, until: None, lines: 0, left_out: 0 }
    }

    /// Returns the number of lines suppressed before this line. Returns `None` if this line is
    /// suppressed as well.
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
    fn the_next_line_has_the_count_of_suppressed_ones() {
        let mut budget = LogThrottle::new(2, Duration::from_secs(1));
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let taken = [0, 10, 20, 999, 1000, 1001, 1002, 5000].map(|millis| budget.take(at(millis)));
        let expected = [Some(0), Some(0), None, None, Some(2), Some(0), None, Some(1)];
        assert_eq!(taken, expected);
    }
}
