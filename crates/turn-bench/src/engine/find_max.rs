//! The highest rate that is delivered: found by short runs, confirmed by a long one.
//!
//! A run at unlimited rate is a begin, not the answer: an overloaded server may deliver less than
//! at its limit. The answer is the highest rate with nearly no loss, between a rate that passed and
//! one that failed.

use std::time::Duration;

use anyhow::Result;

use crate::engine::bench::Bench;
use crate::outcome::{FindMax, Limit, Point, Traffic};
use crate::traffic::{Backend, TrafficSpec};

/// Warm-up of a try: queues are full, or empty, by then.
const WARM_UP: Duration = Duration::from_millis(100);

/// The largest step up from a rate that passed: an overloaded server seldom delivers far less than
/// its limit. And the step down while none passed.
const UP: f64 = 1.25;
const DOWN: f64 = 0.5;

/// The first rate is at least this share of the unlimited rate, however little of it arrived.
const FIRST: f64 = 0.25;

/// The search ends when the rates that passed and failed are within this ratio, the repeatability
/// of a search.
const NEAR: f64 = 1.05;

/// Step from an initial guess, up or down; squared with each further one.
const STEP: f64 = 1.05;

/// The largest of these steps: a flooded server recovers slowly.
const STEP_MAX: f64 = 1.6;

/// Tries of one rate; one that passes is enough, since disturbances only make a run worse.
const TRIES: u32 = 2;

/// Rates tried in one search; each halves the range, so that it ends long before.
const RATES_MAX: u32 = 24;

/// Lower rates tried when the confirming run fails, each lower by this.
const RETREATS_MAX: u32 = 8;
const RETREAT: f64 = 0.95;

/// The lowest rate tried, in packets per second.
const RATE_MIN: f64 = 100.0;

/// Over streams nothing is lost before all queues are full, and they are long. So a rate also fails
/// when more than this share of the packets was held back, or when p90 of the latency exceeds this:
/// then queues grow.
const HELD_BACK_MAX: f64 = 0.001;
const LATE_NANOS: u64 = 10_000_000;

/// A sender that skips more of its schedule than this did not offer the rate.
const BEHIND_MAX: f64 = 0.02;

/// Parameters of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FindMaxSpec {
    /// The packets. Their rate is ignored; warm-up and duration are of the confirming run.
    pub traffic: TrafficSpec,
    /// Acceptable share of lost packets, 0 to 1.
    pub loss_max: f64,
    /// Measured time of each try.
    pub step: Duration,
    /// Result of an earlier search, in packets per second: then fewer runs are needed.
    pub near: Option<u32>,
    /// The highest rate tried from there, in packets per second.
    pub rate_max: Option<u32>,
}

impl Bench {
    /// Searches the highest rate that the first `flows` sessions deliver.
    ///
    /// # Errors
    /// As [`Bench::run`]. A server that delivers nothing at any rate is no error.
    pub fn find_max(
        &mut self,
        spec: &FindMaxSpec,
        flows: u32,
        backend: Backend,
    ) -> Result<FindMax> {
        search(spec, |traffic| self.run(traffic, flows, backend))
    }
}

/// The search, over any function that runs packets.
fn search(spec: &FindMaxSpec, run: impl FnMut(&TrafficSpec) -> Result<Traffic>) -> Result<FindMax> {
    let mut search = Search { spec, run, points: Vec::new(), limit: Limit::Server };
    let rate = match spec.near {
        Some(near) => search.bracket_near(f64::from(near))?,
        None => search.bracket()?,
    };
    let confirmed = search.confirm(rate)?;
    let Search { points, limit, .. } = search;
    Ok(FindMax { loss_max: spec.loss_max, step: spec.step, limit, points, confirmed })
}

struct Search<'a, R> {
    spec: &'a FindMaxSpec,
    run: R,
    points: Vec<Point>,
    limit: Limit,
}

impl<R: FnMut(&TrafficSpec) -> Result<Traffic>> Search<'_, R> {
    /// The highest rate that passed.
    fn bracket(&mut self) -> Result<f64> {
        let flat_out = self.attempt(None)?;
        if self.passes(&flat_out) {
            self.limit = Limit::Generator;
            return Ok(offered(&flat_out));
        }
        let delivered = flat_out.delivered_per_second();
        let (mut passed, mut failed, mut rate) = if flat_out.transport.is_stream() {
            // Backpressure hid the rate that can be offered.
            (None, f64::INFINITY, delivered.max(RATE_MIN))
        } else {
            let offered = offered(&flat_out);
            (None, offered, delivered.max(offered * FIRST).max(RATE_MIN))
        };
        for _ in 0..RATES_MAX {
            match self.try_rate(rate)? {
                Tried::Passed => passed = Some(rate),
                Tried::Failed => failed = rate,
                Tried::NotOffered(offered) => {
                    // The sender's limit in this shape, and nothing was lost.
                    self.limit = Limit::Generator;
                    return Ok(passed.unwrap_or(0.0).max(offered));
                }
            }
            rate = match passed {
                Some(passed) if failed <= passed * NEAR => return Ok(passed),
                Some(passed) => (passed * UP).min((passed * failed).sqrt()),
                None if failed <= RATE_MIN => return Ok(RATE_MIN),
                None => (failed * DOWN).max(RATE_MIN),
            };
        }
        Ok(passed.unwrap_or(RATE_MIN))
    }

    /// The highest rate that passed, from an initial guess.
    fn bracket_near(&mut self, near: f64) -> Result<f64> {
        let (mut passed, mut failed) = (None, None);
        let rate_max = self.spec.rate_max.map_or(f64::INFINITY, f64::from);
        let (mut rate, mut step) = (near.max(RATE_MIN).min(rate_max), STEP);
        for _ in 0..RATES_MAX {
            match self.try_rate(rate)? {
                Tried::Passed if rate >= rate_max => {
                    self.limit = Limit::Generator;
                    return Ok(rate);
                }
                Tried::Passed => passed = Some(rate),
                Tried::Failed => {
                    self.limit = Limit::Server;
                    failed = Some(rate);
                }
                // A rate that cannot be offered is an upper bound as well.
                Tried::NotOffered(_) if passed.is_some() => {
                    self.limit = Limit::Generator;
                    failed = Some(rate);
                }
                Tried::NotOffered(offered) => {
                    self.limit = Limit::Generator;
                    return Ok(offered);
                }
            }
            rate = match (passed, failed) {
                (Some(passed), Some(failed)) if failed <= passed * NEAR => return Ok(passed),
                (Some(passed), Some(failed)) => passed.midpoint(failed),
                (Some(passed), None) => (passed * step).min(rate_max),
                (None, Some(failed)) if failed <= RATE_MIN => return Ok(RATE_MIN),
                (None, Some(failed)) => (failed / step).max(RATE_MIN),
                // One of them was set above.
                (None, None) => rate,
            };
            if passed.is_none() || failed.is_none() {
                step = (step * step).min(STEP_MAX);
            }
        }
        Ok(passed.unwrap_or(RATE_MIN))
    }

    fn try_rate(&mut self, rate: f64) -> Result<Tried> {
        for _ in 0..TRIES {
            let traffic = self.attempt(Some(rate))?;
            if self.passes(&traffic) {
                let kept = traffic.behind <= BEHIND_MAX;
                return Ok(if kept { Tried::Passed } else { Tried::NotOffered(offered(&traffic)) });
            }
        }
        Ok(Tried::Failed)
    }

    fn attempt(&mut self, rate: Option<f64>) -> Result<Traffic> {
        let spec = TrafficSpec {
            rate: rate.map(whole),
            warm_up: WARM_UP,
            duration: self.spec.step,
            ..self.spec.traffic
        };
        self.measure(&spec)
    }

    fn measure(&mut self, spec: &TrafficSpec) -> Result<Traffic> {
        let traffic = (self.run)(spec)?;
        self.points.push(Point {
            offered: offered(&traffic),
            delivered: traffic.delivered_per_second(),
            loss: traffic.loss(),
            held_back: traffic.held_back(),
        });
        Ok(traffic)
    }

    /// The long run, at this rate or a little below it.
    fn confirm(&mut self, rate: f64) -> Result<Traffic> {
        let mut rate = rate.max(1.0);
        let mut best: Option<Traffic> = None;
        for _ in 0..RETREATS_MAX {
            let spec = TrafficSpec { rate: Some(whole(rate)), ..self.spec.traffic };
            let traffic = self.measure(&spec)?;
            if self.passes(&traffic) {
                return Ok(traffic);
            }
            let missing = |traffic: &Traffic| traffic.loss() + traffic.held_back();
            let better = best.as_ref().is_none_or(|best| missing(&traffic) < missing(best));
            if better {
                best = Some(traffic);
            }
            rate *= RETREAT;
        }
        self.limit = Limit::Unconfirmed;
        match best {
            Some(best) => Ok(best),
            // There was at least one run.
            None => self.attempt(Some(rate)),
        }
    }

    fn passes(&self, traffic: &Traffic) -> bool {
        traffic.sent > 0
            && traffic.loss() <= self.spec.loss_max
            && traffic.held_back() <= HELD_BACK_MAX
            && !is_late(traffic)
    }
}

enum Tried {
    Passed,
    Failed,
    /// Nothing was lost, but only this lower rate was offered.
    NotOffered(f64),
}

/// Returns `true` when a stream's queues were growing. Without latencies (different clocks) only
/// backpressure shows it.
fn is_late(traffic: &Traffic) -> bool {
    traffic.transport.is_stream() && traffic.latency.is_some_and(|latency| latency.p90 > LATE_NANOS)
}

/// Packets per second that were sent.
fn offered(traffic: &Traffic) -> f64 {
    traffic.sent as f64 / traffic.spec.duration.as_secs_f64()
}

/// A rate in whole packets per second, at least 1.
fn whole(rate: f64) -> u32 {
    // Saturates, where a generator of the future sends more.
    (rate.round() as u32).max(1)
}

#[cfg(test)]
mod tests;
