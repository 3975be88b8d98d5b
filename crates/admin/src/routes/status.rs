//! `GET /v1/status`. Reads counters and facts; no worker notices.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use control::{CounterTotals, Histogram, LateAnswer, Leg, Series};

use crate::routes::App;
use crate::types::{Allocations, Bucket, Offload, RelayAddress, Status, Traffic, Volume};

pub(super) async fn show(State(app): State<App>) -> Json<Status> {
    let info = app.handle.info();
    let workers = &app.handle.workers;
    let totals = workers.totals();
    let uptime = SystemTime::now().duration_since(info.started).unwrap_or(Duration::ZERO);
    let relay = info.relay.iter().map(|relay| RelayAddress {
        local: relay.local.to_string(),
        public: relay.public.to_string(),
    });
    Json(Status {
        version: info.version.clone(),
        started_unix: info.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        uptime_seconds: uptime.as_secs(),
        realm: info.realm.clone(),
        draining: workers.is_draining(),
        listeners: info.listeners.iter().map(ToString::to_string).collect(),
        relay: relay.collect(),
        relay_ports: format!("{}-{}", info.relay_ports.0, info.relay_ports.1),
        workers: info.workers as u64,
        offload: Offload { gro: info.gro, gso: info.gso },
        allocations: Allocations {
            live: totals.allocations_live(),
            total: totals.allocations_created(),
        },
        traffic: Traffic {
            from_clients: volume(&totals, Leg::FromClients),
            to_clients: volume(&totals, Leg::ToClients),
            from_peers: volume(&totals, Leg::FromPeers),
            to_peers: volume(&totals, Leg::ToPeers),
        },
        fates: occurred(totals.fates()),
        late_answers: occurred(
            LateAnswer::ALL
                .iter()
                .map(|&answer| (answer.label(), totals.value(Series::LateAnswer(answer)))),
        ),
        drops: occurred(totals.drops()),
        refusals: occurred(totals.refusals()),
        ended: occurred(totals.ended()),
        icmp_errors: totals.value(Series::IcmpErrors),
        kernel_drops: totals.kernel_drops(),
        receive_errors: totals.value(Series::ReceiveErrors),
        occupancy: Histogram::ALL
            .iter()
            .map(|&histogram| (histogram.label().to_owned(), buckets(&totals, histogram)))
            .collect(),
    })
}

fn volume(totals: &CounterTotals, leg: Leg) -> Volume {
    let volume = totals.volume(leg);
    Volume { packets: volume.packets, bytes: volume.bytes }
}

/// What is not zero, by name.
fn occurred(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    counts.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

fn buckets(totals: &CounterTotals, histogram: Histogram) -> Vec<Bucket> {
    totals.occupancy(histogram).map(|(up_to, count)| Bucket { up_to, count }).collect()
}
