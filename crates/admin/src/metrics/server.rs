//! Facts about the server.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use control::{KeeperState, KernelPathTotals, RealmTotals, ServerInfo};
use turn_types::{Instant, IpFamily, Realm};

use super::{Metric, Value};
use crate::monitored::Monitored;

/// What changes without a reload.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) draining: bool,
    pub(super) wall: SystemTime,
    pub(super) drain_left_seconds: u64,
    pub(super) has_keeper: bool,
    pub(super) log_lines_lost: u64,
    /// Turns of each worker's loop.
    pub(super) turns: Vec<u64>,
    /// Live allocations of each realm.
    pub(super) realms: Vec<(String, u32)>,
    /// Ended allocations of each realm.
    pub(super) ended: BTreeMap<Realm, RealmTotals>,
    /// Counters of the kernel path's programs.
    pub(super) kernel_path: KernelPathTotals,
}

impl Live {
    pub(super) fn of(monitored: &Monitored) -> Self {
        let workers = &monitored.handle.workers;
        let deadline = monitored.handle.drain_deadline();
        let left = |deadline: Instant| deadline.saturating_since((monitored.clock)()).as_secs();
        Self {
            draining: workers.is_draining(),
            wall: SystemTime::now(),
            drain_left_seconds: deadline.map_or(0, left),
            has_keeper: matches!(monitored.handle.keeper(), KeeperState::Connected(_)),
            log_lines_lost: monitored.handle.log_lines_lost(),
            turns: workers.turn_totals(),
            realms: live_by_realm(monitored),
            ended: workers.realm_totals(),
            kernel_path: monitored
                .offload
                .as_deref()
                .map(|watch| workers.kernel_path_totals(watch))
                .unwrap_or_default(),
        }
    }
}

pub(super) fn metrics(info: &ServerInfo, live: &Live) -> Vec<Metric> {
    let mut turns =
        Metric::counter("turnpike_worker_turns", "Turns of each worker's loop: that it lives");
    for (worker, &count) in live.turns.iter().enumerate() {
        turns = turns.labelled([("worker", &worker.to_string())], count);
    }
    let [ended, packets, bytes] = ended_by_realm(live);
    vec![
        Metric::gauge("turnpike_build_info", "1; the label is the version of the program")
            .labelled([("version", &info.version)], 1),
        Metric::gauge("process_start_time_seconds", "Start of the server, in seconds since 1970")
            .sample([], Value::Real(unix(info.started))),
        Metric::gauge(
            "turnpike_time_seconds",
            "The server's clock, in seconds since 1970: credentials that expire need it to be right",
        )
        .sample([], Value::Real(unix(live.wall))),
        Metric::gauge(
            "turnpike_upgrade_pause_seconds",
            "Time in which no process served when this one took calls over, in an upgrade or a restart or after a crash; 0 if it took none",
        )
        .sample([], Value::Real(info.took_over.map_or(0.0, |it| it.pause.as_secs_f64()))),
        Metric::gauge(
            "turnpike_upgrade_allocations",
            "Allocations that this process took over; 0 if it took none",
        )
        .with(info.took_over.map_or(0, |it| it.allocations as u64)),
        Metric::gauge(
            "turnpike_keeper_connected",
            "1 while another process has copies of all calls over UDP and DTLS for the case of a crash, otherwise 0",
        )
        .with(live.has_keeper.into()),
        Metric::gauge(
            "turnpike_reload_refused",
            "1 after a reload that was refused, until one is accepted: the files would not start a server",
        )
        .with(info.reload_refused.is_some().into()),
        Metric::gauge(
            "turnpike_missing_addresses",
            "Addresses of the settings that this host does not have, so that the server waits for them",
        )
        .with(info.missing.clauses.len() as u64),
        Metric::gauge(
            "turnpike_unread_parts",
            "Certificates, and tables of the user database, that the configuration names and the server cannot read",
        )
        .with((info.unread.certificates.len() + usize::from(info.unread.tables.is_some())) as u64),
        Metric::gauge("turnpike_draining", "1 while new allocations are refused, otherwise 0")
            .with(live.draining.into()),
        Metric::gauge(
            "turnpike_drain_left_seconds",
            "Time until a draining server ends live allocations",
        )
        .with(live.drain_left_seconds),
        Metric::counter(
            "turnpike_log_lines_lost",
            "Log lines lost because the reader of the log did not take them in time, or a write failed",
        )
        .with(live.log_lines_lost),
        Metric::gauge("turnpike_workers", "Worker threads").with(info.workers as u64),
        turns,
        by_realm(live),
        ended,
        packets,
        bytes,
        relayed_addresses(info),
        certificates(info),
        redirects(info),
    ]
}

/// Live allocations of each realm that is served.
fn live_by_realm(monitored: &Monitored) -> Vec<(String, u32)> {
    let info = monitored.handle.info();
    let registry = monitored.handle.workers.registry();
    let names = std::iter::once(&info.realm).chain(&info.realms);
    names.map(|name| (name.clone(), registry.allocations_in(name))).collect()
}

fn by_realm(live: &Live) -> Metric {
    let mut metric = Metric::gauge("turnpike_realm_allocations", "Live allocations of each realm");
    for (realm, count) in &live.realms {
        metric = metric.labelled([("realm", realm)], (*count).into());
    }
    metric
}

/// Ended allocations and their traffic by realm: an allocation counts as a whole at its end, and in
/// the realm of its user.
fn ended_by_realm(live: &Live) -> [Metric; 3] {
    let mut ended =
        Metric::counter("turnpike_realm_allocations_ended", "Ended allocations of each realm");
    let mut packets = Metric::counter(
        "turnpike_realm_relayed_packets",
        "Packets relayed by ended allocations of each realm",
    );
    let mut bytes = Metric::counter(
        "turnpike_realm_relayed_bytes",
        "Payload bytes relayed by ended allocations of each realm",
    );
    for (realm, totals) in &live.ended {
        let RealmTotals { allocations, traffic } = totals;
        ended = ended.labelled([("realm", realm)], *allocations);
        for (direction, number, volume) in [
            ("to_peers", traffic.to_peer_packets, traffic.to_peer_bytes),
            ("to_client", traffic.to_client_packets, traffic.to_client_bytes),
        ] {
            let labels = || [("realm", &**realm), ("direction", direction)];
            packets = packets.labelled(labels(), number);
            bytes = bytes.labelled(labels(), volume);
        }
    }
    [ended, packets, bytes]
}

fn relayed_addresses(info: &ServerInfo) -> Metric {
    let (first, last) = info.relay_ports;
    let ports = u64::from(last.saturating_sub(first)) + 1;
    let mut most = Metric::gauge(
        "turnpike_relayed_addresses_max",
        "Relayed addresses that there can be: ports of all relay addresses, and addresses of all prefixes over all workers, by family",
    );
    for family in IpFamily::ALL {
        let addresses = info.relay.iter().filter(|relay| IpFamily::of(relay.local) == family);
        let prefixes = info.relay_prefixes.iter().filter(|prefix| prefix.family() == family);
        let of_prefixes: u64 = prefixes.map(turn_proto::RelayPrefix::capacity).sum();
        let of_ports = ports * addresses.count() as u64;
        most = most.labelled([("family", family.label())], of_ports + of_prefixes);
    }
    most
}

fn redirects(info: &ServerInfo) -> Metric {
    let mut answers = Metric::gauge(
        "turnpike_redirect_server_answers",
        "1 for each server that clients are redirected to, and 0 for one that does not answer, so that no client is",
    );
    for redirect in &info.redirects {
        let server = redirect.server.to_string();
        let labels = [("server", server.as_str()), ("transport", redirect.transport)];
        answers = answers.labelled(labels, redirect.answers.into());
    }
    answers
}

fn certificates(info: &ServerInfo) -> Metric {
    let mut ends = Metric::gauge(
        "turnpike_certificate_expiry_timestamp_seconds",
        "Expiry of each certificate, in seconds since 1970",
    );
    for certificate in &info.certificates {
        ends = ends.sample([("file", &certificate.file)], Value::Real(unix(certificate.expires)));
    }
    ends
}

/// Seconds since 1970; 0 for earlier times.
fn unix(moment: SystemTime) -> f64 {
    moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
