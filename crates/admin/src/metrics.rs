//! `GET /metrics`: the state of the server as numbers, for Prometheus.
//!
//! Numbers are read when they are asked for, at most every half second. Each worker adds up the
//! traffic of its allocations for it, and notices nothing else. The labels have few values: no
//! user, client or session is among them, since each would be kept for months by the system that
//! collects.

mod coturn;
mod kernel_path;
mod process;
mod reference;
mod server;
mod text;
mod texts;
mod workers;

#[cfg(test)]
pub(crate) use reference::info as example_info;
pub use reference::reference_markdown;
pub(crate) use texts::Texts;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use control::{CounterTotals, OffloadWatch, ServerInfo};
use prometheus_client::metrics::MetricType;

use crate::monitored::Monitored;
use crate::problem::Problem;

/// A family of samples.
#[derive(Debug)]
struct Metric {
    /// Its name without the suffix that its type adds.
    name: String,
    /// Meaning: a sentence without its full stop.
    help: &'static str,
    kind: MetricType,
    samples: Vec<Sample>,
}

/// One number.
#[derive(Debug)]
struct Sample {
    labels: Vec<(&'static str, String)>,
    value: Value,
}

/// Counts of values in buckets, each with its inclusive upper bound, and their sum.
#[derive(Clone, Debug)]
struct Spread {
    buckets: Vec<(f64, u64)>,
    sum: f64,
}

#[derive(Clone, Debug)]
enum Value {
    Whole(u64),
    /// A gauge that may have a fraction.
    Real(f64),
    /// A histogram.
    Spread(Spread),
}

impl Metric {
    fn gauge(name: &str, help: &'static str) -> Self {
        Self { name: name.to_owned(), help, kind: MetricType::Gauge, samples: Vec::new() }
    }

    fn counter(name: &str, help: &'static str) -> Self {
        Self { name: name.to_owned(), help, kind: MetricType::Counter, samples: Vec::new() }
    }

    fn histogram(name: &str, help: &'static str) -> Self {
        Self { name: name.to_owned(), help, kind: MetricType::Histogram, samples: Vec::new() }
    }

    /// Adds the number of the whole family.
    fn with(self, value: u64) -> Self {
        self.labelled([], value)
    }

    fn labelled<const N: usize>(self, labels: [(&'static str, &str); N], value: u64) -> Self {
        self.sample(labels, Value::Whole(value))
    }

    fn sample<const N: usize>(mut self, labels: [(&'static str, &str); N], value: Value) -> Self {
        let labels = labels.map(|(name, value)| (name, value.to_owned())).to_vec();
        self.samples.push(Sample { labels, value });
        self
    }
}

/// All metrics as of now.
async fn collect(monitored: &Monitored) -> Vec<Metric> {
    let info = monitored.handle.info();
    // A worker that does not answer leaves its sums as they were; all other numbers are as of now.
    let _: Result<(), _> = monitored.handle.workers.count_traffic().await;
    let totals = monitored.handle.workers.totals();
    gather(&info, &server::Live::of(monitored), &totals, monitored.offload.as_deref())
}

fn gather(
    info: &ServerInfo,
    live: &server::Live,
    totals: &CounterTotals,
    offload: Option<&dyn OffloadWatch>,
) -> Vec<Metric> {
    let mut metrics = server::metrics(info, live);
    metrics.extend(workers::metrics(totals));
    metrics.extend(kernel_path::metrics(&info.offload, offload, &live.kernel_path));
    metrics.extend(process::metrics());
    if info.monitoring.coturn_metrics {
        metrics.extend(coturn::metrics(totals));
    }
    metrics
}

pub(crate) async fn show(State(texts): State<Arc<Texts>>, headers: HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = text::Format::of(accepts.unwrap_or_default());
    let Some(body) = texts.get(format).await else {
        return Problem::stopping().into_response();
    };
    ([(header::CONTENT_TYPE, format.content_type())], body).into_response()
}
