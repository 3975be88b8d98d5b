//! The overview: counters of now and of a moment ago, and what is wrong.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::reasons::{Subject, of};
use control::{CertificateInfo, CounterTotals, Leg, Series, Volume};
use tokio::time::Instant;
use turn_proto::Refusal;
use turn_types::IpFamily;

use crate::hour::{Hour, rates};
use crate::limits::{
    BUSY_PERCENT, CERTIFICATE_DAYS, FILES_COUNTED_EVERY, HISTORY, PORTS_USED_PERCENT, RATE_OVER,
};
use crate::monitored::Monitored;
use crate::resources;
use crate::roll::per_second;
use crate::types::{
    CertificateAge, Overview, ProblemNow, ReasonCount, Resources, TrafficHistory, Usage, WorkerLoad,
};

/// Clock ticks of `/proc` in a second: `USER_HZ`, which is 100 on every architecture that Linux has
/// today.
const TICKS_PER_SECOND: f64 = 100.0;

/// Fields of a thread's `stat` behind its name: proc_pid_stat(5) counts from 1, and the first
/// behind the name is the third.
const USER_TICKS: usize = 14 - 3;
const SYSTEM_TICKS: usize = 15 - 3;

/// The counters of the last minute.
#[derive(Debug)]
pub(crate) struct History {
    samples: VecDeque<Sample>,
    hour: Hour,
    open_files: Option<(Instant, Option<u64>)>,
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    /// Of this process: the counts of earlier ones may come late.
    totals: CounterTotals,
    log_lines_lost: u64,
    /// Processor time of each worker, in ticks.
    ticks: BTreeMap<u64, u64>,
}

/// Losses of the last minute.
#[derive(Clone, Copy, Debug)]
struct Lost {
    datagrams_in_kernel: u64,
    receive_errors: u64,
    log_lines: u64,
}

/// Refusals by a fault of this host or of a service that the server needs: they are shown before
/// those that clients cause, however few they are.
const FAULTS: [Refusal; 4] = [
    Refusal::UserDatabaseUnavailable,
    Refusal::AuthorizerUnavailable,
    Refusal::SystemExhausted,
    Refusal::RelayAddressAbsent,
];

impl Sample {
    fn of(monitored: &Monitored) -> Self {
        let totals = monitored.handle.workers.own_totals();
        let log_lines_lost = monitored.handle.log_lines_lost();
        Self { at: Instant::now(), totals, log_lines_lost, ticks: ticks() }
    }
}

impl History {
    pub(crate) fn new(monitored: &Monitored) -> Self {
        let now = Sample::of(monitored);
        let hour = Hour::new(now.at, now.totals.clone());
        Self { samples: VecDeque::from([now]), hour, open_files: None }
    }

    /// The last hour.
    pub(crate) fn hour(&self) -> TrafficHistory {
        self.hour.history()
    }

    /// Keeps the counters of now.
    pub(crate) fn sample(&mut self, monitored: &Monitored) {
        self.keep(Sample::of(monitored));
    }

    /// Keeps a sample, and those of [`HISTORY`] before; of two that are close together one is
    /// enough.
    fn keep(&mut self, now: Sample) {
        self.hour.add(now.at, &now.totals);
        let age = |sample: &Sample| now.at.duration_since(sample.at);
        while self.samples.len() > 1 && self.samples.front().is_some_and(|one| age(one) > HISTORY) {
            self.samples.pop_front();
        }
        if self.samples.back().is_none_or(|last| age(last) >= RATE_OVER) {
            self.samples.push_back(now);
        }
    }

    /// The overview of now, with rates since the last sample of which a rate can be made.
    pub(crate) fn overview(&mut self, monitored: &Monitored) -> Overview {
        let now = Sample::of(monitored);
        let open_files = self.open_files(now.at);
        let age = |sample: &&Sample| now.at.duration_since(sample.at);
        let is_recent = |sample: &&Sample| age(sample) <= HISTORY;
        let first = self.samples.iter().find(is_recent).unwrap_or(&now);
        let last = self.samples.iter().rev().find(|one| age(one) >= RATE_OVER).unwrap_or(first);
        let mut overview = facts(monitored, &now.totals);
        overview.resources = resources(monitored, open_files);
        let seconds = now.at.duration_since(last.at).as_secs_f64().max(0.001);
        overview.rates = rates(&last.totals, &now.totals, seconds);
        overview.kernel_share_percent = kernel_share(&last.totals, &now.totals);
        overview.workers = load(&last.ticks, &now.ticks, seconds);
        let all = monitored.handle.workers.with_earlier(now.totals.clone());
        let counts = |subject, of: fn(&CounterTotals) -> BTreeMap<&'static str, u64>| {
            counts(subject, [&first.totals, &now.totals, &all].map(of))
        };
        overview.refusals = counts(Subject::Request, |totals| totals.refusals().collect());
        overview.drops = counts(Subject::Packet, |totals| totals.drops().collect());
        let counted = |series| now.totals.value(series).saturating_sub(first.totals.value(series));
        let lost = Lost {
            datagrams_in_kernel: now
                .totals
                .kernel_drops()
                .saturating_sub(first.totals.kernel_drops()),
            receive_errors: counted(Series::ReceiveErrors),
            log_lines: now.log_lines_lost.saturating_sub(first.log_lines_lost),
        };
        overview.problems = problems(monitored, &overview, lost);
        self.keep(now);
        overview
    }

    /// Number of open files, as of [`FILES_COUNTED_EVERY`] ago at most.
    fn open_files(&mut self, now: Instant) -> Option<u64> {
        match self.open_files {
            Some((at, count)) if now.duration_since(at) < FILES_COUNTED_EVERY => count,
            Some(_) | None => {
                let count = resources::open_files();
                self.open_files = Some((now, count));
                count
            }
        }
    }
}

fn resources(monitored: &Monitored, open_files: Option<u64>) -> Resources {
    let usage = |used: Option<u64>, most| used.map(|used| Usage { used, most });
    Resources {
        relay_ports: relay_ports(monitored),
        memory_bytes: usage(resources::memory_bytes(), resources::memory_max_bytes()),
        open_files: usage(open_files, resources::open_files_max()),
    }
}

/// Ports in use on the relay addresses of the family that is closest to its limit.
fn relay_ports(monitored: &Monitored) -> Usage {
    let info = monitored.handle.info();
    let totals = monitored.handle.workers.totals();
    let (first, last) = info.relay_ports;
    let ports = u64::from(last.saturating_sub(first)) + 1;
    let of_family = |family: IpFamily| {
        let addresses = info.relay.iter().filter(|one| IpFamily::of(one.local) == family).count();
        // Allocations with an address of a prefix need no port.
        let prefixes = info.relay_prefixes.iter().filter(|prefix| prefix.family() == family);
        let of_prefixes: u64 = prefixes.map(|prefix| u64::from(prefix.used())).sum();
        let used = totals.value(Series::RelayedLive(family)).saturating_sub(of_prefixes);
        Usage { used, most: Some(ports * addresses as u64) }
    };
    let families = IpFamily::ALL.map(of_family).into_iter().rev().filter(|one| one.most != Some(0));
    let share = |one: &Usage| one.used * 1_000_000 / one.most.unwrap_or(1).max(1);
    families.max_by_key(share).unwrap_or_default()
}

fn facts(monitored: &Monitored, totals: &CounterTotals) -> Overview {
    let info = monitored.handle.info();
    let now = SystemTime::now();
    let left = |deadline: turn_types::Instant| deadline.saturating_since((monitored.clock)());
    Overview {
        time_unix: now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        version: info.version.clone(),
        realm: info.realm.clone(),
        uptime_seconds: now.duration_since(info.started).unwrap_or_default().as_secs(),
        draining: monitored.handle.workers.is_draining(),
        drain_seconds_left: monitored.handle.drain_deadline().map(|at| left(at).as_secs()),
        allocations: totals.allocations_live(),
        connections: totals.value(Series::StreamsLive),
        dtls_sessions: totals.value(Series::AssociationsLive),
        certificates: info.certificates.iter().map(|one| age(one, now)).collect(),
        host: resources::host_name(),
        listeners: info
            .listeners
            .iter()
            .chain(&info.tls_listeners)
            .map(|at| at.to_string())
            .collect(),
        kernel_path_off: info
            .offload
            .off_because
            .clone()
            .or_else(|| monitored.offload.as_ref().and_then(|offload| offload.idle_because())),
        ..Overview::default()
    }
}

fn age(certificate: &CertificateInfo, now: SystemTime) -> CertificateAge {
    let days = |time: Duration| i64::try_from(time.as_secs() / 86_400).unwrap_or(i64::MAX);
    let days_left = match certificate.expires.duration_since(now) {
        Ok(left) => days(left),
        Err(error) => -1 - days(error.duration()),
    };
    CertificateAge { file: certificate.file.clone(), days_left }
}

/// Percentage of packets to peers and clients that the kernel path sent.
fn kernel_share(old: &CounterTotals, new: &CounterTotals) -> Option<u64> {
    let sent = |of: fn(&CounterTotals, Leg) -> Volume| {
        let packets = |leg| of(new, leg).packets.saturating_sub(of(old, leg).packets);
        packets(Leg::ToPeers) + packets(Leg::ToClients)
    };
    let (kernel, all) = (sent(CounterTotals::offloaded), sent(CounterTotals::whole));
    (kernel * 100).checked_div(all)
}

/// Counts a minute ago and now, and of all processes so far.
fn counts(subject: Subject, [old, new, all]: [BTreeMap<&'static str, u64>; 3]) -> Vec<ReasonCount> {
    let mut counts: Vec<ReasonCount> = of(subject)
        .into_iter()
        .filter_map(|reason| {
            let total = all.get(reason.name).copied().filter(|total| *total > 0)?;
            let [before, now] =
                [&old, &new].map(|counts| counts.get(reason.name).copied().unwrap_or_default());
            Some(ReasonCount {
                reason: reason.name.to_owned(),
                total,
                last_minute: now.saturating_sub(before),
                meaning: reason.meaning.to_owned(),
                advice: reason.advice.to_owned(),
            })
        })
        .collect();
    counts.sort_by_key(|one| std::cmp::Reverse((one.last_minute, one.total)));
    counts
}

fn load(old: &BTreeMap<u64, u64>, new: &BTreeMap<u64, u64>, seconds: f64) -> Vec<WorkerLoad> {
    let load = |(&worker, &ticks): (&u64, &u64)| {
        let before = old.get(&worker).copied().unwrap_or(ticks);
        let cpu_percent = per_second((before, ticks), 100.0 / TICKS_PER_SECOND, seconds);
        WorkerLoad { worker, cpu_percent }
    };
    new.iter().map(load).collect()
}

/// Processor time of each worker's thread so far.
fn ticks() -> BTreeMap<u64, u64> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return BTreeMap::new() };
    let of = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        let (head, fields) = stat.rsplit_once(") ")?;
        let worker = head.split_once("(worker-")?.1.parse().ok()?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some((worker, ticks(USER_TICKS)? + ticks(SYSTEM_TICKS)?))
    };
    threads.flatten().filter_map(of).collect()
}

/// Present faults, the severe first.
fn problems(monitored: &Monitored, overview: &Overview, lost: Lost) -> Vec<ProblemNow> {
    let mut problems = Vec::new();
    let mut problem = |is_severe, text: String| problems.push(ProblemNow { is_severe, text });
    for certificate in &overview.certificates {
        let CertificateAge { file, days_left } = certificate;
        if *days_left < 0 {
            problem(true, format!("The certificate {file} has expired: clients refuse it."));
        } else if *days_left < CERTIFICATE_DAYS {
            problem(false, format!("The certificate {file} expires in {days_left} days."));
        }
    }
    for text in lost.texts() {
        problem(true, text);
    }
    for WorkerLoad { worker, cpu_percent } in &overview.workers {
        if *cpu_percent >= BUSY_PERCENT {
            problem(true, format!("Worker {worker} takes {cpu_percent} % of its core."));
        }
    }
    let info = monitored.handle.info();
    for clause in &info.missing.clauses {
        problem(info.missing.are_all, format!("{clause}: the server waits for it."));
    }
    let unread = &info.unread;
    for clause in unread.certificates.iter().chain(&unread.tables) {
        problem(unread.are_all, format!("{clause}."));
    }
    if let Some(why) = &info.reload_refused {
        problem(true, format!("The last reload was refused, and a restart would fail: {why}"));
    }
    for text in &*monitored.handle.shared_ports() {
        problem(true, text.clone());
    }
    if !info.needs_restart.is_empty() {
        let keys = info.needs_restart.join(", ");
        problem(false, format!("The files have other values, in force after a restart: {keys}."));
    }
    let Usage { used, most } = overview.resources.relay_ports;
    if let Some(most) = most.filter(|most| used * 100 >= most * PORTS_USED_PERCENT) {
        problem(true, format!("{used} of {most} relay ports are in use (relay.ports)."));
    }
    for (is_severe, text) in refusals(&overview.refusals) {
        problem(is_severe, text);
    }
    if overview.draining {
        problem(
            false,
            "The server drains: it refuses new allocations, and ends with the last one.".to_owned(),
        );
    }
    problems.sort_by_key(|problem| !problem.is_severe);
    problems
}

impl Lost {
    fn texts(self) -> impl Iterator<Item = String> {
        let Self { datagrams_in_kernel, receive_errors, log_lines } = self;
        let log = (log_lines > 0).then(|| {
            format!(
                "{log_lines} lines of the log were lost in the last minute: its disk is full or slow, or too many came at \
                 once."
            )
        });
        let kernel = (datagrams_in_kernel > 0).then(|| {
            format!(
                "The kernel dropped {datagrams_in_kernel} datagrams in the last minute because receive buffers were full: \
                 `turnpike tune check` tells what to change."
            )
        });
        let receive = (receive_errors > 0).then(|| {
            format!(
                "{receive_errors} calls that receive failed in the last minute: the log has the error. A sandbox may forbid them."
            )
        });
        [log, kernel, receive].into_iter().flatten()
    }
}

/// Number of refusals in a minute below which a reason is no fault of the server: scanners make a
/// few on every public server. The alert `TurnpikeRefusalsRise` has the same threshold.
const REFUSALS_TOLD: u64 = 20;

/// Texts about refusals of the last minute, from counts sorted by number: all [`FAULTS`], which are
/// severe, and the three most frequent others.
fn refusals(counts: &[ReasonCount]) -> impl Iterator<Item = (bool, String)> {
    // Those without advice are the first steps of every client.
    let recent = counts.iter().filter(|one| one.last_minute > 0 && !one.advice.is_empty());
    let is_fault = |one: &&ReasonCount| FAULTS.iter().any(|fault| fault.label() == one.reason);
    let (faults, others): (Vec<_>, Vec<_>) = recent.partition(is_fault);
    let faults = faults.into_iter().map(|one| (true, one));
    let others = others.into_iter().filter(|one| one.last_minute >= REFUSALS_TOLD);
    let others = others.take(3).map(|one| (false, one));
    faults.chain(others).map(|(is_severe, one)| {
        let ReasonCount { reason, last_minute, meaning, .. } = one;
        let requests = if *last_minute == 1 { "request was" } else { "requests were" };
        let text =
            format!("{last_minute} {requests} refused in the last minute, {reason}: {meaning}");
        (is_severe, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(refusal: Refusal, last_minute: u64) -> ReasonCount {
        ReasonCount {
            reason: refusal.label().to_owned(),
            last_minute,
            advice: "Mend it.".to_owned(),
            ..ReasonCount::default()
        }
    }

    #[test]
    fn a_database_that_is_away_is_told_beside_more_frequent_refusals() {
        let counts = [
            count(Refusal::WrongPassword, 900),
            count(Refusal::PeerForbidden, 800),
            count(Refusal::UserQuota, 700),
            count(Refusal::UnknownUser, 600),
            count(Refusal::UserDatabaseUnavailable, 1),
        ];
        let texts: Vec<_> = refusals(&counts).collect();
        assert_eq!(texts.len(), 4);
        assert!(texts[0].0 && texts[0].1.starts_with("1 request was refused"), "{texts:?}");
        assert!(!texts[1].0 && texts[1].1.starts_with("900 requests were"), "{texts:?}");
    }

    #[test]
    fn a_few_requests_of_a_scanner_are_no_fault() {
        let of = |number| refusals(&[count(Refusal::UnknownUser, number)]).count();
        assert_eq!([3, 19, 20].map(of), [0, 0, 1]);
    }

    #[test]
    fn lost_lines_of_the_log_and_failed_calls_are_told() {
        let lost =
            |receive_errors, log_lines| Lost { datagrams_in_kernel: 0, receive_errors, log_lines };
        assert_eq!(
            [lost(0, 0), lost(0, 1), lost(7, 1)].map(|lost| lost.texts().count()),
            [0, 1, 2]
        );
    }
}
