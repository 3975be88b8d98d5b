//! Progress of a comparison on standard error.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::plan::Step;

/// A bar at a terminal, elsewhere a line for each turn.
pub(super) struct Progress {
    /// Counts milliseconds of the estimate.
    bar: ProgressBar,
    rounds: u32,
    turn: String,
    quiet: bool,
}

impl Progress {
    /// `total`: estimate in seconds.
    pub(super) fn new(total: f64, rounds: u32, quiet: bool) -> Self {
        let total = Duration::from_secs_f64(total);
        let millis = u64::try_from(total.as_millis()).unwrap_or(u64::MAX);
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(millis) };
        // With the default style if the template were wrong.
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {msg} ({eta} left)") {
            bar.set_style(style);
        }
        let progress = Self { bar, rounds, turn: String::new(), quiet };
        progress.line(&format!("about {} s", total.as_secs()));
        progress
    }

    /// A server's turn begins.
    pub(super) fn turn(&mut self, round: u32, server: &str) {
        self.turn = match round {
            0 => format!("calibration, {server}"),
            round => format!("round {round} of {}, {server}", self.rounds),
        };
        self.bar.set_message(self.turn.clone());
        if self.bar.is_hidden() {
            self.line(&self.turn);
        }
    }

    /// A step of the turn begins.
    pub(super) fn begun(&self, step: &Step) {
        self.bar.set_message(format!("{}, {}, {}", self.turn, step.cell, step.task.name()));
    }

    /// A part of the estimate, in seconds, is done.
    pub(super) fn done(&self, seconds: f64) {
        self.bar.inc((seconds * 1000.0) as u64);
    }

    /// Prints a line that remains.
    pub(super) fn line(&self, line: &str) {
        if !self.quiet {
            self.bar.suspend(|| eprintln!("{line}"));
        }
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
