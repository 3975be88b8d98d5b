//! Progress of a run on standard error: one changing line on a terminal, else a line every five
//! seconds.

use std::io::{IsTerminal as _, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::outcome::Latency;

/// Interval of lines without a terminal.
const INTERVAL: Duration = Duration::from_secs(5);

/// Counts since the begin of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) latency: Option<Latency>,
}

/// Progress display.
pub(crate) struct Progress {
    place: Place,
    before: Option<Sample>,
}

enum Place {
    Nowhere,
    Terminal(ProgressBar),
    Lines,
}

impl Progress {
    /// A display, or none when quiet.
    pub(crate) fn new(quiet: bool) -> Self {
        let place = match (quiet, stderr().is_terminal()) {
            (true, _) => Place::Nowhere,
            (false, false) => Place::Lines,
            (false, true) => {
                let bar = ProgressBar::new_spinner();
                if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {msg}") {
                    bar.set_style(style);
                }
                Place::Terminal(bar)
            }
        };
        Self { place, before: None }
    }

    /// Returns `true` without a display.
    pub(crate) const fn is_off(&self) -> bool {
        matches!(self.place, Place::Nowhere)
    }

    /// Shows the change since the last display, when it is due.
    pub(crate) fn show(&mut self, now: Sample) {
        let Some(before) = &self.before else {
            self.before = Some(now);
            return;
        };
        match &self.place {
            Place::Nowhere => return,
            Place::Terminal(bar) => bar.set_message(line(before, &now)),
            Place::Lines if now.at - before.at < INTERVAL => return,
            Place::Lines => eprintln!("{}", line(before, &now)),
        }
        self.before = Some(now);
    }

    /// Clears the line of the terminal.
    pub(crate) fn finish(&mut self) {
        if let Place::Terminal(bar) = &self.place {
            bar.finish_and_clear();
        }
    }
}

fn line(before: &Sample, now: &Sample) -> String {
    let seconds = (now.at - before.at).as_secs_f64().max(1e-3);
    let sent = now.sent.saturating_sub(before.sent);
    let received = now.received.saturating_sub(before.received);
    let lost = sent.saturating_sub(received) as f64 / sent.max(1) as f64;
    let p99 = now.latency.map_or_else(|| "unknown".to_owned(), |one| micros(one.p99));
    format!(
        "send_pps={:.0} recv_pps={:.0} lost={:.1}% p99={p99}",
        sent as f64 / seconds,
        received as f64 / seconds,
        lost * 100.0,
    )
}

/// Nanoseconds in microseconds.
pub(crate) fn micros(nanos: u64) -> String {
    format!("{:.1}us", nanos as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_happened_since_the_last() {
        let at = Instant::now();
        let before = Sample { at, sent: 1000, received: 900, latency: None };
        let now = Sample { at: at + Duration::from_secs(2), sent: 3000, received: 2800, ..before };
        assert_eq!(line(&before, &now), "send_pps=1000 recv_pps=950 lost=5.0% p99=unknown");
        let latency = Some(Latency { p99: 12_345, ..Latency::default() });
        assert!(line(&before, &Sample { latency, ..now }).ends_with("p99=12.3us"));
    }
}
