//! The counters of the workers.

use control::{CounterTotals, Histogram, Kind, Series};

use super::{Metric, Sample, Spread, Value};

/// Prefix of every name.
const PREFIX: &str = "turnpike";

/// One metric for each family of [`Series`].
pub(super) fn metrics(totals: &CounterTotals) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for (series, value) in totals.iter() {
        let family = series.family();
        if family.kind == Kind::Histogram {
            continue;
        }
        let name = format!("{PREFIX}_{}", family.name);
        let known = metrics.iter().position(|metric| metric.name == name);
        let metric = match known {
            Some(index) => &mut metrics[index],
            None => {
                metrics.push(match family.kind {
                    Kind::Counter | Kind::Histogram => Metric::counter(&name, family.help),
                    Kind::Gauge => Metric::gauge(&name, family.help),
                });
                metrics.last_mut().expect("one was just added")
            }
        };
        let labels = series.labels().into_iter().flatten();
        let mut labels: Vec<_> = labels.map(|label| (label.name, label.value.to_owned())).collect();
        if let Series::Refusal(refusal) = series {
            labels.push(("code", refusal.code().to_string()));
        }
        metric.samples.push(Sample { labels, value: Value::Whole(value) });
    }
    metrics.extend(Histogram::ALL.iter().map(|&histogram| spread(totals, histogram)));
    metrics
}

fn spread(totals: &CounterTotals, histogram: Histogram) -> Metric {
    // Bounds are decimal this way: 0.00025, not 0.00025000000000000006.
    let in_metric = |value: u64| value as f64 / histogram.units() as f64;
    let bound = |bound: Option<u64>| bound.map_or(f64::INFINITY, in_metric);
    let buckets = totals.buckets(histogram).map(|(up_to, count)| (bound(up_to), count)).collect();
    let sum = in_metric(totals.value(Series::Sum(histogram)));
    let family = histogram.family();
    let metric = Metric::histogram(&format!("{PREFIX}_{}", family.name), family.help);
    let value = Value::Spread(Spread { buckets, sum });
    metric.sample([], value)
}
