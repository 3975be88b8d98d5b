//! Metrics under the names that coturn gives them, as far as they have the same meaning here.
//!
//! Traffic is counted as it passes, where coturn adds that of a session at its end, without a realm
//! or user.

use control::{CounterTotals, Leg, Series, Volume};
use prometheus_client::metrics::MetricType;
use turn_proto::Refusal;
use turn_types::Transport;

use super::{Metric, Value};

/// Of an unknown type: coturn's counters have no `_total` behind their names, which OpenMetrics
/// demands.
fn metric(name: &str, help: &'static str) -> Metric {
    Metric { kind: MetricType::Unknown, ..Metric::gauge(name, help) }
}

/// Returns whether a metric is one of these.
pub(super) fn has(name: &str) -> bool {
    name.starts_with("turn_")
}

pub(super) fn metrics(totals: &CounterTotals) -> Vec<Metric> {
    let mut metrics = vec![allocations(totals)];
    for (leg, packets, bytes) in [
        (Leg::FromClients, "turn_total_traffic_rcvp", "turn_total_traffic_rcvb"),
        (Leg::ToClients, "turn_total_traffic_sentp", "turn_total_traffic_sentb"),
        (Leg::FromPeers, "turn_total_traffic_peer_rcvp", "turn_total_traffic_peer_rcvb"),
        (Leg::ToPeers, "turn_total_traffic_peer_sentp", "turn_total_traffic_peer_sentb"),
    ] {
        let Volume { packets: count, bytes: sum } = totals.whole(leg);
        metrics.push(metric(packets, "Packets, by leg").with(count));
        metrics.push(metric(bytes, "Bytes of payload, by leg").with(sum));
    }
    let dropped = totals.drops().map(|(_, count)| count).sum::<u64>();
    let received = totals.whole(Leg::FromClients).packets + totals.whole(Leg::FromPeers).packets;
    let challenged = totals.value(Series::Refusal(Refusal::NoCredentials));
    metrics.extend([
        metric("turn_packet_processed", "Packets received").with(received),
        metric("turn_packet_dropped", "Packets for which nothing was sent").with(dropped),
        metric(
            "turn_unauthenticated_401_responses",
            "Requests without credentials that were answered",
        )
        .with(challenged),
    ]);
    metrics
}

fn allocations(totals: &CounterTotals) -> Metric {
    let mut metric =
        Metric::gauge("turn_total_allocations", "Live allocations, by transport of the client");
    for transport in Transport::ALL {
        let name = match transport {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
            Transport::Tls => "TLS/TCP",
            Transport::Dtls => "DTLS",
        };
        let live = totals.value(Series::AllocationsLive(*transport));
        metric = metric.sample([("type", name)], Value::Whole(live));
    }
    metric
}
