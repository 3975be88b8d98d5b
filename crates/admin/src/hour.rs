//! Rates of the last hour, for a page that was just opened.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use control::{CounterTotals, Leg};
use tokio::time::Instant;

use crate::limits::{HOUR_POINTS, POINT_EVERY};
use crate::roll::per_second;
use crate::types::{HistoryPoint, Rate, TrafficHistory, TrafficRates};

/// Points of the last hour, the oldest first, and the counters at the last point.
#[derive(Debug)]
pub(crate) struct Hour {
    points: VecDeque<HistoryPoint>,
    last: (Instant, CounterTotals),
}

impl Hour {
    pub(crate) fn new(now: Instant, totals: CounterTotals) -> Self {
        Self { points: VecDeque::new(), last: (now, totals) }
    }

    /// Adds a point, if it is time for one.
    pub(crate) fn add(&mut self, now: Instant, totals: &CounterTotals) {
        let (at, before) = &self.last;
        let passed = now.duration_since(*at);
        if passed < POINT_EVERY {
            return;
        }
        let seconds = passed.as_secs_f64();
        let refused = |totals: &CounterTotals| totals.refusals().map(|(_, count)| count).sum();
        if self.points.len() >= HOUR_POINTS {
            self.points.pop_front();
        }
        self.points.push_back(HistoryPoint {
            time_unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            allocations: totals.allocations_live(),
            rates: rates(before, totals, seconds),
            refusals_per_minute: per_second((refused(before), refused(totals)), 60.0, seconds),
        });
        self.last = (now, totals.clone());
    }

    pub(crate) fn history(&self) -> TrafficHistory {
        TrafficHistory {
            seconds: POINT_EVERY.as_secs(),
            points: self.points.iter().copied().collect(),
        }
    }
}

/// Rates of traffic between two readings of the counters.
pub(crate) fn rates(old: &CounterTotals, new: &CounterTotals, seconds: f64) -> TrafficRates {
    let rate = |leg| {
        let (old, new) = (old.whole(leg), new.whole(leg));
        Rate {
            packets_per_second: per_second((old.packets, new.packets), 1.0, seconds),
            bits_per_second: per_second((old.bytes, new.bytes), 8.0, seconds),
        }
    };
    TrafficRates {
        from_clients: rate(Leg::FromClients),
        to_clients: rate(Leg::ToClients),
        from_peers: rate(Leg::FromPeers),
        to_peers: rate(Leg::ToPeers),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_hour_has_a_point_for_each_quarter_of_a_minute() {
        let totals = CounterTotals::default();
        let start = Instant::now();
        let mut hour = Hour::new(start, totals.clone());
        hour.add(start + Duration::from_secs(14), &totals);
        assert_eq!(hour.history().points.len(), 0, "it is not time yet");
        for second in (0..=2 * 3600).step_by(5) {
            hour.add(start + Duration::from_secs(second), &totals);
        }
        let history = hour.history();
        assert_eq!((history.seconds, history.points.len()), (15, 240));
    }
}
