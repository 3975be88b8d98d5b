//! The page of all metrics.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use control::{
    CertificateInfo, ConfinementInfo, CounterTotals, KernelPathTotals, MissingAddresses,
    MonitoringInfo, OffloadInfo, OffloadInterface, OffloadWatch, RealmTotals, RedirectInfo,
    ServerInfo, TookOverInfo, UnreadParts,
};

use super::{Metric, server};

const HEAD: &str = "\
# Metrics

`GET /metrics` at the listeners of `http.listen` in [the configuration](../configuration.md). Every metric has the
labels below and no others: no user, client or session is named. Figures are half a second old at most. Counters go on
through reloads, and through [upgrades and restarts](upgrade.md#limits): those that the next process does not know are
left out, and if it cannot read any they begin at 0 and its log says so. They begin at 0 after a stop or a crash as
well. Metrics that begin with `process_` are of the process, in the usual names. [Reasons](reasons.md) explains the
values of `reason`.

";

/// The page of all metrics, for `docs/operate/metrics.md`.
#[must_use]
pub fn reference_markdown() -> String {
    let mut page = HEAD.to_owned();
    let (coturn, own): (Vec<_>, Vec<_>) =
        examples().into_iter().partition(|metric| super::coturn::has(&metric.name));
    table(&mut page, &own);
    page.push_str("\nWith `http.coturn_metrics` also, under the names that coturn gives them:\n\n");
    table(&mut page, &coturn);
    page
}

fn table(page: &mut String, metrics: &[Metric]) {
    page.push_str("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for metric in metrics {
        let kind = metric.kind.as_str();
        let suffix = if kind == "counter" { "_total" } else { "" };
        let names = metric.samples.iter().flat_map(|sample| &sample.labels);
        let mut labels: Vec<_> = names.map(|(name, _)| format!("`{name}`")).collect();
        labels.sort_unstable();
        labels.dedup();
        let (name, labels, help) = (&metric.name, labels.join(", "), metric.help);
        // A string takes everything.
        let _ = writeln!(page, "| `{name}{suffix}` | {kind} | {labels} | {help} |");
    }
}

/// Every metric that there can be, with an example of each label.
fn examples() -> Vec<Metric> {
    let live = server::Live {
        draining: false,
        wall: SystemTime::UNIX_EPOCH,
        drain_left_seconds: 0,
        has_keeper: false,
        log_lines_lost: 0,
        turns: vec![0],
        realms: vec![(String::new(), 0)],
        ended: [("".into(), RealmTotals::default())].into(),
        kernel_path: KernelPathTotals::of(&Interface),
    };
    super::gather(&info(), &live, &CounterTotals::of([]), Some(&Interface))
}

pub(crate) fn info() -> ServerInfo {
    let started = SystemTime::UNIX_EPOCH;
    ServerInfo {
        version: String::new(),
        started,
        realm: String::new(),
        realms: Vec::new(),
        listeners: Vec::new(),
        relay: Vec::new(),
        missing: MissingAddresses::default(),
        unread: UnreadParts::default(),
        relay_prefixes: Vec::new(),
        relay_ports: (0, 0),
        workers: 1,
        gro: false,
        gso: false,
        offload: OffloadInfo::default(),
        tls_listeners: Vec::new(),
        dtls: false,
        certificates: vec![CertificateInfo { file: String::new(), expires: started }],
        confinement: ConfinementInfo::default(),
        monitoring: MonitoringInfo { coturn_metrics: true, ready_while_draining: false },
        redirects: vec![RedirectInfo {
            server: ([0, 0, 0, 0], 0).into(),
            transport: "udp",
            answers: true,
        }],
        reload_refused: None,
        needs_restart: Vec::new(),
        took_over: Some(TookOverInfo { process: 1, allocations: 0, pause: Duration::ZERO }),
    }
}

/// A kernel path with one of everything.
struct Interface;

impl OffloadWatch for Interface {
    fn interfaces(&self) -> Vec<OffloadInterface> {
        vec![OffloadInterface { name: String::new(), hook: None, why: String::new() }]
    }

    fn idle_because(&self) -> Option<String> {
        None
    }

    fn settings(&self) -> Vec<String> {
        Vec::new()
    }

    fn passed(&self) -> Vec<(&'static str, u64)> {
        vec![("", 0)]
    }

    fn partial_checksums(&self) -> u64 {
        0
    }

    fn redirects_lost(&self) -> Option<u64> {
        Some(0)
    }
}
