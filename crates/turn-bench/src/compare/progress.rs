//! How far a comparison has come, on standard error.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::plan::Step;
use super::servers::ServerSpec;

/// What is said of it: one line that changes at a terminal, elsewhere a line for each turn.
pub(super) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    /// Seconds, by the estimate: of all, and of what is done.
    total: f64,
    done: f64,
    rounds: u32,
    turn: String,
    quiet: bool,
}

impl Progress {
    pub(super) fn new(total: f64, rounds: u32, quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(1000) };
        // The template is ours; where it were wrong, the default is as good.
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {msg}") {
            bar.set_style(style);
        }
        let progress = Self {
            bar,
            begun: Instant::now(),
            total,
            done: 0.0,
            rounds,
            turn: String::new(),
            quiet,
        };
        progress.say(&format!("this takes about {}", human(Duration::from_secs_f64(total))));
        progress
    }

    /// A server has its turn.
    pub(super) fn turn(&mut self, round: u32, server: &ServerSpec) {
        self.turn = match round {
            0 => format!("calibration, {server}"),
            round => format!("round {round} of {}, {server}", self.rounds),
        };
        if self.bar.is_hidden() {
            self.say(&format!("{} ({} left)", self.turn, human(self.left())));
        } else {
            self.show("starting");
        }
    }

    /// A step of the turn begins.
    pub(super) fn begun(&mut self, step: &Step) {
        self.show(&format!("{}, {}", step.cell, step.task.name()));
    }

    /// So many seconds of the estimate are done.
    pub(super) fn done(&mut self, seconds: f64) {
        self.done = (self.done + seconds).min(self.total);
        self.bar.set_position((1000.0 * self.done / self.total) as u64);
    }

    /// A line that remains.
    pub(super) fn say(&self, line: &str) {
        if !self.quiet {
            self.bar.suspend(|| eprintln!("{line}"));
        }
    }

    /// No more is to come.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self, what: &str) {
        self.bar.set_message(format!("{}, {what} ({} left)", self.turn, human(self.left())));
    }

    /// The time that is left, at the pace of what is done.
    fn left(&self) -> Duration {
        let left = self.total - self.done;
        let pace =
            if self.done > 0.0 { self.begun.elapsed().as_secs_f64() / self.done } else { 1.0 };
        Duration::from_secs_f64((left * pace).max(0.0))
    }
}

fn human(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_to_what_matters() {
        assert_eq!(human(Duration::from_secs(119)), "119 s");
        assert_eq!(human(Duration::from_secs(120)), "2 min");
        assert_eq!(human(Duration::from_secs(421)), "8 min");
    }

    #[test]
    fn the_time_left_follows_the_pace() {
        let mut progress = Progress::new(100.0, 1, true);
        assert_eq!(progress.left(), Duration::from_secs(100));
        progress.begun -= Duration::from_secs(20);
        progress.done(10.0);
        // Twice as slow as estimated, and then some for the test itself.
        assert!((180..200).contains(&progress.left().as_secs()), "{:?}", progress.left());
        progress.done(1000.0);
        assert_eq!(progress.left(), Duration::ZERO);
    }
}
