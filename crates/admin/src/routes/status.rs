//! `GET /v1/status`. Reads counters and facts; no worker notices.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use control::{
    AssociationEnd, AssociationRefusal, CounterTotals, DtlsOwn, HelloAnswer, Histogram,
    KeeperState, KernelPathTotals, LateAnswer, Leg, OffloadWatch, RedirectInfo, Series, ServerInfo,
    StreamEnd, StreamRefusal, TookOverInfo,
};

use crate::routes::App;
use crate::types::{
    Allocations, Associations, Bucket, Capability, Certificate, Confinement, ConfinementLayer,
    Connections, Offload, OffloadInterface, Redirect, RelayAddress, RelayPrefix, Status, TookOver,
    Traffic, Volume,
};

/// A network that is relayed from, with what is in use of it now.
fn prefix(prefix: &turn_proto::RelayPrefix) -> RelayPrefix {
    RelayPrefix {
        network: prefix.network().to_string(),
        ports: prefix.ports().collect(),
        used: prefix.used(),
        most: prefix.capacity(),
    }
}

pub(super) async fn show(State(app): State<App>) -> Json<Status> {
    let info = app.handle.info();
    let workers = &app.handle.workers;
    let totals = workers.totals();
    let uptime = SystemTime::now().duration_since(info.started).unwrap_or(Duration::ZERO);
    let relay = info.relay.iter().map(|relay| RelayAddress {
        local: relay.local.to_string(),
        public: relay.public.to_string(),
        is_missing: !relay.is_present,
    });
    let (keeper, keeper_unusable) = match app.handle.keeper() {
        KeeperState::Absent => (None, None),
        KeeperState::Connected(process) => (Some(process), None),
        KeeperState::Unusable(why) => (None, Some(why)),
    };
    Json(Status {
        version: info.version.clone(),
        started_unix: unix(info.started),
        uptime_seconds: uptime.as_secs(),
        realm: info.realm.clone(),
        draining: workers.is_draining(),
        drain_seconds_left: app
            .handle
            .drain_deadline()
            .map(|deadline| deadline.saturating_since((app.clock)()).as_secs()),
        listeners: info.listeners.iter().map(ToString::to_string).collect(),
        tls_listeners: info.tls_listeners.iter().map(ToString::to_string).collect(),
        certificates: info.certificates.iter().map(certificate).collect(),
        relay: relay.collect(),
        relay_prefixes: info.relay_prefixes.iter().map(prefix).collect(),
        relay_ports: format!("{}-{}", info.relay_ports.0, info.relay_ports.1),
        redirects: info.redirects.iter().map(redirect).collect(),
        took_over: info.took_over.as_ref().map(took_over),
        keeper,
        keeper_unusable,
        coturn_differences: app.handle.differences().to_vec(),
        workers: info.workers as u64,
        offload: offload(&app, &info, &totals),
        allocations: Allocations {
            live: totals.allocations_live(),
            total: totals.allocations_created(),
            moved: totals.value(Series::AllocationsMoved),
        },
        connections: connections(&totals),
        associations: associations(&totals),
        dtls: info.dtls,
        confinement: confinement(&info.confinement),
        traffic: traffic(|leg| totals.whole(leg)),
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
        occupancy: Histogram::BATCHES
            .into_iter()
            .map(|histogram| (histogram.label().to_owned(), buckets(&totals, histogram)))
            .collect(),
    })
}

fn confinement(info: &control::ConfinementInfo) -> Confinement {
    let layer = |layer: &control::ConfinementLayer| ConfinementLayer {
        on: layer.on,
        why: layer.why.clone(),
    };
    let capability = |kept: &control::KeptCapability| Capability {
        name: kept.name.clone(),
        why: kept.why.clone(),
    };
    Confinement {
        landlock: layer(&info.files),
        seccomp: layer(&info.calls),
        capabilities: info.capabilities.iter().map(capability).collect(),
    }
}

fn redirect(info: &RedirectInfo) -> Redirect {
    let RedirectInfo { server, transport, answers } = info;
    Redirect { server: server.to_string(), transport: (*transport).to_owned(), answers: *answers }
}

fn took_over(info: &TookOverInfo) -> TookOver {
    let TookOverInfo { process, allocations, pause } = *info;
    let pause_microseconds = pause.as_micros() as u64;
    TookOver { process, allocations: allocations as u64, pause_microseconds }
}

fn certificate(certificate: &control::CertificateInfo) -> Certificate {
    Certificate { file: certificate.file.clone(), expires_unix: unix(certificate.expires) }
}

/// Seconds since 1970; 0 for earlier times.
fn unix(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn connections(totals: &CounterTotals) -> Connections {
    let refused = |&why: &StreamRefusal| (why.label(), totals.value(Series::StreamsRefused(why)));
    let ended = |&why: &StreamEnd| (why.label(), totals.value(Series::StreamsEnded(why)));
    Connections {
        live: totals.value(Series::StreamsLive),
        total: totals.value(Series::StreamsAccepted),
        refused: occurred(StreamRefusal::ALL.iter().map(refused)),
        ended: occurred(StreamEnd::ALL.iter().map(ended)),
    }
}

fn associations(totals: &CounterTotals) -> Associations {
    let value = |series| totals.value(series);
    let answered = |&what: &HelloAnswer| (what.label(), value(Series::HellosAnswered(what)));
    let refused =
        |&why: &AssociationRefusal| (why.label(), value(Series::AssociationsRefused(why)));
    let ended = |&why: &AssociationEnd| (why.label(), value(Series::AssociationsEnded(why)));
    let own = |&what: &DtlsOwn| (what.label(), value(Series::DtlsOwn(what)));
    Associations {
        live: value(Series::AssociationsLive),
        half_open: value(Series::AssociationsHalfOpen),
        begun: value(Series::AssociationsBegun),
        established: value(Series::AssociationsEstablished),
        hellos_answered: occurred(HelloAnswer::ALL.iter().map(answered)),
        refused: occurred(AssociationRefusal::ALL.iter().map(refused)),
        ended: occurred(AssociationEnd::ALL.iter().map(ended)),
        own_datagrams: occurred(DtlsOwn::ALL.iter().map(own)),
    }
}

fn offload(app: &App, info: &ServerInfo, totals: &CounterTotals) -> Offload {
    let path = &info.offload;
    let watch = app.offload.as_deref();
    // What was so at the start, unless somebody knows what is so now.
    let interfaces = watch.map_or_else(|| path.interfaces.clone(), |watch| watch.interfaces());
    let counted = watch.map(|watch| app.handle.workers.kernel_path_totals(watch));
    let KernelPathTotals { passed, partial_checksums, redirects_lost } =
        counted.unwrap_or_default();
    Offload {
        gro: info.gro,
        gso: info.gso,
        mode: path.mode.clone(),
        interfaces: interfaces.into_iter().map(interface).collect(),
        off_because: path.off_because.clone().or_else(|| watch?.idle_because()),
        settings: watch.map(OffloadWatch::settings).unwrap_or_default(),
        flows: totals.flows_offloaded(),
        flows_max: u64::from(path.flows_max),
        memory_bytes: path.memory_bytes,
        by_kernel: traffic(|leg| totals.offloaded(leg)),
        by_sockets: traffic(|leg| totals.volume(leg)),
        passed: passed.into_iter().filter(|(_, count)| *count > 0).collect(),
        partial_checksums,
        redirects_lost,
    }
}

fn interface(interface: control::OffloadInterface) -> OffloadInterface {
    OffloadInterface { name: interface.name, hook: interface.hook, why: interface.why }
}

fn traffic(of: impl Fn(Leg) -> control::Volume) -> Traffic {
    let volume = |leg| {
        let control::Volume { packets, bytes } = of(leg);
        Volume { packets, bytes }
    };
    Traffic {
        from_clients: volume(Leg::FromClients),
        to_clients: volume(Leg::ToClients),
        from_peers: volume(Leg::FromPeers),
        to_peers: volume(Leg::ToPeers),
    }
}

/// Counters above zero, by name.
fn occurred(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    counts.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

fn buckets(totals: &CounterTotals, histogram: Histogram) -> Vec<Bucket> {
    totals.buckets(histogram).map(|(up_to, count)| Bucket { up_to, count }).collect()
}
