//! The counters of the workers.

use control::{CounterTotals, Kind, Series};

use super::{Metric, Sample, Value};

/// Prefix of every name.
const PREFIX: &str = "turnpike";

/// One metric for each family of [`Series`]; histograms of batches are for `turnpike status`.
pub(super) fn metrics(totals: &CounterTotals) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for (series, value) in totals.iter() {
        if matches!(series, Series::Occupancy(..)) {
            continue;
        }
        let family = series.family();
        let name = format!("{PREFIX}_{}", family.name);
        let known = metrics.iter().position(|metric| metric.name == name);
        let metric = match known {
            Some(index) => &mut metrics[index],
            None => {
                metrics.push(match family.kind {
                    Kind::Counter => Metric::counter(&name, family.help),
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
    metrics
}
