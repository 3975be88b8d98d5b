//! Recent warnings and errors of the log, for operators.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::limits::{WARNING_BYTES_MAX, WARNINGS_MAX};

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Time of the latest.
    pub at: SystemTime,
    /// True for an error.
    pub is_error: bool,
    /// The message and its fields.
    pub text: String,
    /// Number of occurrences without another line between.
    pub count: u64,
}

/// The latest warnings and errors. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RecentLog {
    lines: Arc<Mutex<VecDeque<Warning>>>,
}

impl RecentLog {
    /// Keeps a line; the oldest makes room.
    pub fn push(&self, at: SystemTime, is_error: bool, mut text: String) {
        if text.len() > WARNING_BYTES_MAX {
            let end = (0..=WARNING_BYTES_MAX).rev().find(|&end| text.is_char_boundary(end));
            text.truncate(end.unwrap_or_default());
        }
        let mut lines = self.lock();
        if let Some(last) = lines.back_mut()
            && last.text == text
        {
            (last.at, last.count) = (at, last.count.saturating_add(1));
            return;
        }
        if lines.len() >= WARNINGS_MAX {
            lines.pop_front();
        }
        lines.push_back(Warning { at, is_error, text, count: 1 });
    }

    /// The lines, the latest first.
    #[must_use]
    pub fn list(&self) -> Vec<Warning> {
        self.lock().iter().rev().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Warning>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_repetitions_counted() {
        let log = RecentLog::default();
        let at = SystemTime::UNIX_EPOCH;
        log.push(at, true, "ü".repeat(WARNING_BYTES_MAX));
        assert!(log.list()[0].text.len() <= WARNING_BYTES_MAX);
        for line in 0..WARNINGS_MAX {
            log.push(at, false, format!("line {line}"));
            log.push(at, false, format!("line {line}"));
        }
        let lines = log.list();
        assert_eq!(lines.len(), WARNINGS_MAX);
        assert_eq!((lines[0].text.as_str(), lines[0].count), ("line 99", 2));
    }
}
