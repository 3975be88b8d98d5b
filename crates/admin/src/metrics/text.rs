//! The text formats of metrics.

use std::fmt::{self, Write as _};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::{Metric, Spread, Value};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' own, version 0.0.4.
    Prometheus,
}

impl Format {
    /// The format for an `Accept` header: OpenMetrics for a client that names it.
    pub(super) fn of(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

#[derive(Debug)]
struct Snapshot(Vec<Metric>);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in &self.0 {
            let mut family =
                encoder.encode_descriptor(&metric.name, metric.help, None, metric.kind)?;
            for sample in &metric.samples {
                if sample.labels.is_empty() {
                    encode_value(&mut family, metric.kind, &sample.value)?;
                } else {
                    let mut labelled = family.encode_family(&sample.labels)?;
                    encode_value(&mut labelled, metric.kind, &sample.value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_value(to: &mut MetricEncoder<'_>, kind: MetricType, value: &Value) -> fmt::Result {
    match (kind, value) {
        (MetricType::Counter, Value::Whole(value)) => {
            to.encode_counter::<NoLabelSet, u64, f64>(value, None)
        }
        (MetricType::Counter, Value::Real(value)) => {
            to.encode_counter::<NoLabelSet, f64, f64>(value, None)
        }
        (_, Value::Whole(value)) => to.encode_gauge(value),
        (_, Value::Real(value)) => to.encode_gauge(value),
        (_, Value::Spread(Spread { buckets, sum })) => {
            let count = buckets.iter().map(|(_, count)| count).sum();
            to.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
        }
    }
}

/// The text of metrics.
pub(super) fn encode(metrics: Vec<Metric>, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(metrics)));
    let mut text = String::new();
    // A string takes everything.
    let _ = text::encode(&mut text, &registry);
    match format {
        Format::OpenMetrics => text,
        Format::Prometheus => as_prometheus(&text),
    }
}

/// OpenMetrics names a counter without `_total` in what describes it, Prometheus with it; and it
/// has an end.
fn as_prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + 1024);
    let mut lines = open_metrics.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap_or((help, ""));
            let kind = lines
                .next()
                .and_then(|line| line.rsplit_once(' '))
                .map_or("untyped", |(_, kind)| kind);
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            let _ = writeln!(text, "# HELP {name}{suffix} {help}.\n# TYPE {name}{suffix} {kind}");
        } else if line != "# EOF" {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Vec<Metric> {
        vec![
            Metric::counter("a_packets", "Packets")
                .labelled([("leg", "x\"\\\ny")], 7)
                .labelled([("leg", "z")], 8),
            Metric::gauge("b", "Things").with(3),
            Metric::counter("c_seconds", "Time").sample([], Value::Real(0.5)),
            Metric::histogram("d_bytes", "Sizes").sample(
                [("leg", "x")],
                Value::Spread(Spread { buckets: vec![(1.0, 2), (f64::INFINITY, 3)], sum: 9.0 }),
            ),
        ]
    }

    #[test]
    fn open_metrics_has_an_end_and_names_without_suffix() {
        let text = encode(metrics(), Format::OpenMetrics);
        let expected = "# HELP a_packets Packets\n# TYPE a_packets counter\n\
                        a_packets_total{leg=\"x\\\"\\\\\\ny\"} 7\na_packets_total{leg=\"z\"} 8\n\
                        # HELP b Things\n# TYPE b gauge\nb 3\n\
                        # HELP c_seconds Time\n# TYPE c_seconds counter\nc_seconds_total 0.5\n\
                        # HELP d_bytes Sizes\n# TYPE d_bytes histogram\n\
                        d_bytes_sum{leg=\"x\"} 9.0\nd_bytes_count{leg=\"x\"} 5\n\
                        d_bytes_bucket{le=\"1.0\",leg=\"x\"} 2\nd_bytes_bucket{le=\"+Inf\",leg=\"x\"} 5\n# EOF\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn prometheus_names_a_counter_whole() {
        let text = encode(metrics(), Format::Prometheus);
        let expected = "# HELP a_packets_total Packets.\n# TYPE a_packets_total counter\n\
                        a_packets_total{leg=\"x\\\"\\\\\\ny\"} 7\na_packets_total{leg=\"z\"} 8\n\
                        # HELP b Things.\n# TYPE b gauge\nb 3\n\
                        # HELP c_seconds_total Time.\n# TYPE c_seconds_total counter\nc_seconds_total 0.5\n\
                        # HELP d_bytes Sizes.\n# TYPE d_bytes histogram\n\
                        d_bytes_sum{leg=\"x\"} 9.0\nd_bytes_count{leg=\"x\"} 5\n\
                        d_bytes_bucket{le=\"1.0\",leg=\"x\"} 2\nd_bytes_bucket{le=\"+Inf\",leg=\"x\"} 5\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_accept_header_chooses_the_format() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::of(prometheus), Format::OpenMetrics);
        assert_eq!(Format::of("*/*"), Format::Prometheus);
    }
}
