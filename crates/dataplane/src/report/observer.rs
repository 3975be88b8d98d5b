//! Reports the events of a worker as counters and log lines.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use control::{
    AssociationEnd, Histogram, RefusalFilter, Refused, Series, SessionEvent, SessionEvents,
    StreamEnd, Traces, WorkerCounters,
};
use linux_net::{Occupancy, Warning};
use stun_wire::Method;
use tracing::Level;
use turn_proto::{AllocationRecord, CarriedTraffic, Notice, Population, Refusal, RefusedRequest};
use turn_types::{
    ClientAddr, Direction, Instant, IpFamily, Prefix, ServerAddr, Transport, WorkerId,
};

use super::addresses::LogAddresses;
use super::condition::Condition;
use super::ended_session::{self, Relayed, shown};
use super::refusals::{RecentRefusals, spent_budget};
use super::throttle::LogThrottle;
use crate::limits::{
    REFUSAL_LINES_PER_SECOND, STREAM_LINES_PER_SECOND, TRACED_LINES_PER_SECOND, WARNING_EVERY,
};

/// Target of log lines about traced clients. These lines are written at any log level.
pub const TRACED: &str = "turnpike_traced";

/// Settings of a worker's log.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Form of client and peer addresses.
    pub addresses: LogAddresses,
    /// Clients and users with detailed logging.
    pub traces: Arc<Traces>,
    /// Receiver of session records. `None` if no output stores the records.
    pub records: Option<SessionEvents>,
}

/// Writes a line at DEBUG. Lines about traced clients have a separate target.
macro_rules! debug_line {
    ($traced:expr, $($field:tt)*) => {
        if $traced {
            tracing::event!(target: TRACED, Level::DEBUG, $($field)*)
        } else {
            tracing::event!(Level::DEBUG, $($field)*)
        }
    };
}

/// Writer of counters and of a bounded number of log lines.
#[derive(Debug)]
pub(crate) struct Observer {
    worker: WorkerId,
    counters: Arc<WorkerCounters>,
    log: LogOptions,
    refusals: LogThrottle,
    traced: LogThrottle,
    recent: RecentRefusals,
    streams: LogThrottle,
    warnings: [LogThrottle; Condition::COUNT],
}

impl Observer {
    pub(crate) fn new(worker: WorkerId, counters: Arc<WorkerCounters>, log: LogOptions) -> Self {
        let refusals = LogThrottle::new(REFUSAL_LINES_PER_SECOND, Duration::from_secs(1));
        let traced = LogThrottle::new(TRACED_LINES_PER_SECOND, Duration::from_secs(1));
        let warnings = [const { LogThrottle::new(1, WARNING_EVERY) }; Condition::COUNT];
        let streams = LogThrottle::new(STREAM_LINES_PER_SECOND, Duration::from_secs(1));
        let recent = RecentRefusals::default();
        Self { worker, counters, log, refusals, traced, recent, streams, warnings }
    }

    /// Returns the address in the form of the log.
    pub(crate) fn shown(&self, ip: IpAddr) -> impl fmt::Display {
        self.log.addresses.show_ip(ip)
    }

    /// Returns true if a line about a client is written at any log level. The client is traced, and
    /// the rate limit permits the line.
    fn is_traced(&mut self, now: Instant, client: ClientAddr, names: &[&str]) -> bool {
        self.log.traces.selects(now, client.ip(), names) && self.traced.take(now).is_some()
    }

    pub(crate) fn counters(&self) -> &WorkerCounters {
        &self.counters
    }

    pub(crate) fn count(&self, series: Series, n: u64) {
        self.counters.add(series, n);
    }

    pub(crate) fn set(&self, series: Series, value: u64) {
        self.counters.set(series, value);
    }

    /// Publishes a histogram that another component maintains.
    pub(crate) fn publish(&self, histogram: Histogram, occupancy: &Occupancy) {
        const { assert!(Occupancy::RANGES == Histogram::SentSegments.buckets()) };
        for (bucket, &count) in occupancy.counts().iter().enumerate() {
            self.counters.set(Series::Bucket(histogram, bucket), count);
        }
        self.counters.set(Series::Sum(histogram), occupancy.sum());
    }

    /// Adds a time to a histogram.
    pub(crate) fn record_time(&self, histogram: Histogram, time: Duration) {
        self.counters.record(histogram, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Publishes the traffic by client transport, address family and direction.
    pub(crate) fn publish_traffic(&self, carried: &CarriedTraffic) {
        for &transport in Transport::ALL {
            for family in IpFamily::ALL {
                let sums = carried.of(transport, family);
                for (direction, packets, bytes) in [
                    (Direction::ToPeer, sums.to_peer_packets, sums.to_peer_bytes),
                    (Direction::ToClient, sums.to_client_packets, sums.to_client_bytes),
                ] {
                    self.set(Series::RelayedPackets(transport, family, direction), packets);
                    self.set(Series::RelayedBytes(transport, family, direction), bytes);
                }
            }
        }
    }

    /// Publishes the numbers of live allocations.
    pub(crate) fn publish_population(&self, population: &Population) {
        for (transport, count) in Transport::ALL.iter().zip(population.transports) {
            self.counters.set(Series::AllocationsLive(*transport), count.into());
        }
        for (family, count) in IpFamily::ALL.into_iter().zip(population.relayed) {
            self.counters.set(Series::RelayedLive(family), count.into());
        }
    }

    /// Counts and logs a notice of the server.
    pub(crate) fn note(&mut self, now: Instant, notice: &Notice) {
        match notice {
            Notice::AllocationCreated(record) => self.created(now, record),
            Notice::AllocationRefreshed(record) => {
                self.refreshed(now, record);
                self.follow(|| SessionEvent::Refreshed { record: record.clone(), at: now });
            }
            Notice::AllocationEnded(record) => self.ended(record),
            Notice::AllocationMoved { id, from, to } => {
                self.count(Series::AllocationsMoved, 1);
                let traced =
                    self.is_traced(now, from.client, &[]) || self.is_traced(now, to.client, &[]);
                let addresses = &self.log.addresses;
                debug_line!(
                    traced,
                    worker = self.worker.0,
                    id = %id,
                    from = %addresses.show(from.client.0),
                    client = %addresses.show(to.client.0),
                    "client moved"
                );
            }
            // The server sends at most one such notice per minute and budget.
            Notice::BudgetSpent { budget, source } => {
                let source = self.log.addresses.show_network(source);
                tracing::warn!(
                    worker = self.worker.0,
                    %source,
                    budget = budget.label(),
                    "{}",
                    spent_budget(*budget)
                );
            }
            Notice::Refused(refused) => self.refused(now, refused),
        }
    }

    /// Counts the end of a connection. Unusual reasons are logged at INFO. Usual reasons, and all
    /// reasons for traced clients, are logged at DEBUG.
    pub(crate) fn stream_ended(
        &mut self,
        now: Instant,
        (client, server): (ClientAddr, ServerAddr),
        end: StreamEnd,
        seconds: u64,
    ) {
        self.count(Series::StreamsEnded(end), 1);
        let traced = self.is_traced(now, client, &[]);
        let client = self.log.addresses.show(client.0);
        let worker = self.worker.0;
        let is_usual = matches!(
            end,
            StreamEnd::ByClient
                | StreamEnd::Broken
                | StreamEnd::TlsFailed
                | StreamEnd::DataDone
                | StreamEnd::PeerBroken
                | StreamEnd::AllocationEnded
        );
        if is_usual || traced {
            let reason = end.label();
            debug_line!(traced, worker, %client, %server, reason, seconds, "connection ended");
        } else if let Some(left_out) = self.streams.take(now) {
            let reason = end.label();
            tracing::info!(worker, %client, %server, reason, seconds, left_out, "connection closed");
        }
    }

    /// Logs a TLS failure: often a scanner, or a client that does not trust the certificate.
    pub(crate) fn tls_refused(&mut self, now: Instant, client: ClientAddr, why: &dyn fmt::Display) {
        if let Some(left_out) = self.streams.take(now) {
            let client = self.log.addresses.show(client.0);
            tracing::info!(worker = self.worker.0, %client, %why, left_out, "TLS failed");
        }
    }

    /// Counts and logs the end of a DTLS session.
    pub(crate) fn dtls_session_ended(
        &mut self,
        now: Instant,
        (client, server): (ClientAddr, ServerAddr),
        end: AssociationEnd,
        seconds: u64,
    ) {
        self.count(Series::AssociationsEnded(end), 1);
        let traced = self.is_traced(now, client, &[]);
        let (worker, reason) = (self.worker.0, end.label());
        let client = self.log.addresses.show(client.0);
        debug_line!(traced, worker, %client, %server, reason, seconds, "DTLS session ended");
    }

    /// Logs a condition, at a limited rate.
    pub(crate) fn warn(&mut self, now: Instant, condition: Condition, details: &dyn fmt::Display) {
        if let Some(left_out) = self.warnings[condition as usize].take(now) {
            let text = condition.text();
            tracing::warn!(worker = self.worker.0, %details, left_out, "{text}");
        }
    }

    /// Logs a missing or refused kernel feature that costs speed.
    pub(crate) fn kernel_warning(&self, warning: Warning) {
        let worker = self.worker.0;
        match warning {
            Warning::RunRefused { segment_size, errno } => tracing::warn!(
                worker,
                segment_size,
                errno,
                "the kernel refused datagrams of this size as one run, probably for the MTU of \
                 their way; such are sent one by one, which costs more processor time"
            ),
            Warning::RunsOff { errno } => tracing::warn!(
                worker,
                errno,
                "the kernel refuses to send runs of datagrams: all are sent one by one, which \
                 costs several times the processor time"
            ),
            Warning::NoSendmmsg => tracing::warn!(
                worker,
                "the system call sendmmsg is missing or forbidden: one call per message"
            ),
        }
    }

    /// Sends an event to the outputs that follow the life of sessions, if any.
    fn follow(&self, event: impl FnOnce() -> SessionEvent) {
        if let Some(records) = self.log.records.as_ref().filter(|records| records.follow_life()) {
            records.put(&event(), |output| self.count(Series::SessionRecordsLost(output), 1));
        }
    }

    fn created(&mut self, now: Instant, record: &AllocationRecord) {
        self.count(Series::AllocationsCreated, 1);
        if let Some(records) = &self.log.records {
            let event = SessionEvent::Created(Box::new(record.clone()));
            records.put(&event, |output| self.count(Series::SessionRecordsLost(output), 1));
        }
        self.tell_of(now, record, "allocation made");
    }

    fn refreshed(&mut self, now: Instant, record: &AllocationRecord) {
        self.tell_of(now, record, "allocation refreshed");
    }

    fn tell_of(&mut self, now: Instant, record: &AllocationRecord, event: &'static str) {
        let client = record.five_tuple.client;
        let traced = self.is_traced(now, client, &[&record.user, &record.account]);
        debug_line!(
            traced,
            worker = self.worker.0,
            id = %record.id,
            user = shown(record),
            realm = &*record.realm,
            client = %self.log.addresses.show(client.0),
            server = %record.five_tuple.server,
            relayed = %Relayed(&record.relayed),
            lifetime = record.expires.saturating_since(now).as_secs(),
            "{event}"
        );
    }

    fn ended(&self, record: &AllocationRecord) {
        // A record without an end cannot be counted under a reason.
        let Some((reason, at)) = record.end else { return };
        self.count(Series::AllocationsEnded(reason), 1);
        let traffic = &record.traffic;
        let lived = at.saturating_since(record.created);
        self.record_time(Histogram::SessionDuration, lived);
        let bytes = traffic.to_peer_bytes.saturating_add(traffic.to_client_bytes);
        self.counters.record(Histogram::SessionBytes, bytes);
        self.counters.count_ended(&record.realm, traffic);
        ended_session::log(self.worker, &self.log.addresses, record, reason, lived);
        let Some(records) = &self.log.records else { return };
        let event = SessionEvent::Ended(Box::new(record.clone()));
        records.put(&event, |output| self.count(Series::SessionRecordsLost(output), 1));
    }

    fn refused(&mut self, now: Instant, refused: &RefusedRequest) {
        let reason = refused.reason;
        self.count(Series::Refusal(reason), 1);
        let user = refused.user.as_deref().or(refused.claimed.as_deref()).unwrap_or_default();
        let account = refused.account.as_deref().unwrap_or(user);
        if self.is_traced(now, refused.path.five_tuple.client, &[user, account]) {
            self.log_refusal(refused, Line::Traced, (1, 0));
        }
        // Every client starts without credentials, and the nonce of a long-lived one becomes stale.
        if matches!(reason, Refusal::NoCredentials | Refusal::StaleNonce) {
            return;
        }
        self.warn_of_refusal(now, refused);
        // Each client gets one after a restart, and while the server drains or redirects.
        let is_usual =
            matches!(reason, Refusal::NoAllocation | Refusal::Draining | Refusal::Redirected);
        // The sources of these requests may be forged. Such requests must not displace other
        // entries or log lines.
        let is_unproved = refused.method == Method::BINDING
            || matches!(reason, Refusal::IncompleteCredentials | Refusal::InvalidNonce);
        let due = if is_unproved { None } else { self.recent.note(now, refused) };
        let line = match due {
            Some(times) if !is_usual => Some((Line::Info, times)),
            Some(_) | None => tracing::enabled!(Level::DEBUG).then_some((Line::Debug, 1)),
        };
        if let Some((line, times)) = line
            && let Some(left_out) = self.refusals.take(now)
        {
            self.log_refusal(refused, line, (times, left_out));
        }
    }

    /// Returns the form of addresses in the log.
    pub(crate) const fn addresses(&self) -> &LogAddresses {
        &self.log.addresses
    }

    /// Returns recent refusals, the latest first.
    pub(crate) fn recent_refusals(&self, filter: &RefusalFilter, limit: usize) -> Vec<Refused> {
        self.recent.list(filter, limit)
    }

    fn warn_of_refusal(&mut self, now: Instant, refused: &RefusedRequest) {
        let warnings = [
            (Refusal::PortsExhausted, Condition::PortsExhausted),
            (Refusal::PortsShare, Condition::Share),
            (Refusal::QuotaShare, Condition::Share),
            (Refusal::UserDatabaseUnavailable, Condition::UserDatabase),
            (Refusal::UserQuota, Condition::UserQuota),
            (Refusal::AddressQuota, Condition::AddressQuota),
            (Refusal::TotalQuota, Condition::TotalQuota),
            (Refusal::NewPeerLimit, Condition::NewPeers),
        ];
        let reason = refused.reason;
        if let Some((_, condition)) = warnings.into_iter().find(|(refusal, _)| *refusal == reason) {
            let source = Prefix::customer(refused.path.five_tuple.client.ip());
            let user = refused.user.as_deref().unwrap_or_default();
            let source = self.log.addresses.show_network(&source);
            let share = refused.share.as_ref().map(|holder| self.log.addresses.show_share(holder));
            let share = share.map(|share| format!("; largest use: {share}")).unwrap_or_default();
            let details = format!("{}: user {user:?} at {source}{share}", reason.label());
            self.warn(now, condition, &details);
        }
    }

    /// Logs a refusal. `times` is the number of refusals of this kind since the last line at INFO.
    fn log_refusal(&self, refused: &RefusedRequest, line: Line, (times, left_out): (u64, u64)) {
        let addresses = &self.log.addresses;
        let rule = refused.peer.as_ref().and_then(|peer| peer.rule.as_ref());
        let account = |name| &**refused.account.as_ref().unwrap_or(name);
        macro_rules! line {
            ($($kind:tt)*) => {
                tracing::event!(
                    $($kind)*,
                    worker = self.worker.0,
                    client = %addresses.show(refused.path.five_tuple.client.0),
                    transport = refused.path.five_tuple.transport.label(),
                    method = refused.method.name().unwrap_or("unknown"),
                    user = refused.user.as_ref().map(account),
                    claimed_user = refused.claimed.as_ref().map(account),
                    peer = refused
                        .peer
                        .as_ref()
                        .map(|peer| tracing::field::display(addresses.show_ip(peer.address))),
                    denied_by = refused.peer.as_ref().map(|peer| peer.by.label()),
                    rule = rule.map(|rule| tracing::field::display(rule.prefix)),
                    rule_at = rule.map(|rule| &*rule.place),
                    share = refused.share.as_ref().map(|holder| addresses.show_share(holder)),
                    reason = refused.reason.label(),
                    code = refused.reason.code(),
                    times,
                    left_out,
                    "request refused"
                )
            };
        }
        match line {
            Line::Info => line!(Level::INFO),
            Line::Debug => line!(Level::DEBUG),
            Line::Traced => line!(target: TRACED, Level::DEBUG),
        }
    }
}

/// Kind of a line about a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Info,
    Debug,
    Traced,
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::sync::Mutex;

    use tracing::field::{Field, Visit};
    use tracing::span;
    use turn_proto::{DropReason, EndReason, SessionHistory, Traffic};
    use turn_types::{
        AllocationId, ClientPath, FiveTuple, RelayedAddr, ServerAddr, SocketId, Transport,
    };

    use super::*;

    /// Subscriber that records log lines, with level and fields.
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            write!(self.0, " {field}={value:?}").unwrap();
        }
    }

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            let mut line = Line(event.metadata().level().to_string());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    fn logged(work: impl FnOnce(&mut Observer)) -> (Vec<String>, Arc<WorkerCounters>) {
        let counters = Arc::new(WorkerCounters::new());
        let mut observer = Observer::new(WorkerId(3), Arc::clone(&counters), LogOptions::default());
        let lines = Arc::default();
        tracing::subscriber::with_default(Lines(Arc::clone(&lines)), || work(&mut observer));
        let lines = lines.lock().unwrap().clone();
        (lines, counters)
    }

    fn five_tuple() -> FiveTuple {
        FiveTuple {
            transport: Transport::Udp,
            client: ClientAddr("192.0.2.7:5000".parse().unwrap()),
            server: ServerAddr("203.0.113.1:3478".parse().unwrap()),
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn the_end_of_an_allocation_is_one_line_with_all_that_it_used() {
        let record = AllocationRecord {
            id: AllocationId::new(WorkerId(3), 1),
            five_tuple: five_tuple(),
            relayed: [
                Some(RelayedAddr("203.0.113.1:50000".parse().unwrap())),
                Some(RelayedAddr("[2001:db8::1]:50001".parse().unwrap())),
            ],
            created: at(10),
            expires: at(610),
            permissions: 1,
            channels: 1,
            traffic: Traffic {
                to_peer_packets: 1,
                to_peer_bytes: 2,
                to_client_packets: 3,
                to_client_bytes: 4,
                dropped_packets: 5,
            },
            history: SessionHistory {
                refusals: vec![(Refusal::PeerForbidden, 2)],
                drops: vec![(DropReason::NoPermission, 4), (DropReason::Bandwidth, 1)],
                ..SessionHistory::default()
            },
            end: Some((EndReason::Expired, at(75))),
            ..AllocationRecord::sample()
        };
        let notice = Notice::AllocationEnded(Box::new(record));
        let (lines, counters) = logged(|observer| observer.note(at(75), &notice));
        assert_eq!(
            lines,
            ["INFO message=allocation ended worker=3 id=0003000000000001 reason=\"expired\" \
              user=\"alice\" realm=\"example.org\" client=192.0.2.7:5000 \
              server=203.0.113.1:3478 relayed=203.0.113.1:50000 [2001:db8::1]:50001 seconds=65 to_peer_packets=1 \
              to_peer_bytes=2 to_client_packets=3 to_client_bytes=4 dropped_packets=5 \
              drops=no_permission:4,bandwidth:1 refusals=peer_forbidden:2"]
        );
        assert_eq!(counters.value(Series::AllocationsEnded(EndReason::Expired)), 1);
    }

    fn refused(reason: Refusal) -> Notice {
        let path = ClientPath { five_tuple: five_tuple(), socket: SocketId(0) };
        Notice::Refused(RefusedRequest {
            path,
            method: Method::ALLOCATE,
            claimed: Some("mallory".into()),
            ..RefusedRequest::sample(reason)
        })
    }

    #[test]
    fn refusals_are_all_counted_and_few_are_logged() {
        let (lines, counters) = logged(|observer| {
            for _ in 0..1000 {
                observer.note(at(1), &refused(Refusal::NoCredentials));
                observer.note(at(1), &refused(Refusal::WrongPassword));
            }
            observer.note(at(2), &refused(Refusal::WrongPassword));
        });
        assert_eq!(lines.len(), REFUSAL_LINES_PER_SECOND as usize + 1);
        assert_eq!(
            lines[0],
            "INFO message=request refused worker=3 client=192.0.2.7:5000 transport=\"udp\" \
             method=\"Allocate\" claimed_user=\"mallory\" reason=\"wrong_password\" code=401 times=1 \
             left_out=0"
        );
        assert!(lines[1..].iter().all(|line| line.starts_with("DEBUG message=request refused")));
        assert!(lines.last().unwrap().ends_with("code=401 times=1 left_out=990"), "{lines:#?}");
        assert_eq!(counters.value(Series::Refusal(Refusal::NoCredentials)), 1000);
        assert_eq!(counters.value(Series::Refusal(Refusal::WrongPassword)), 1001);
    }

    #[test]
    fn usual_refusals_are_for_the_level_debug_alone() {
        let (lines, _) = logged(|observer| {
            for reason in [Refusal::InvalidNonce, Refusal::NoAllocation, Refusal::StaleNonce] {
                observer.note(at(1), &refused(reason));
            }
            let kept = observer.recent_refusals(&RefusalFilter::default(), 9);
            let kept: Vec<_> = kept.iter().map(|kind| kind.latest.reason).collect();
            assert_eq!(
                kept,
                [Refusal::NoAllocation],
                "an address behind a wrong nonce may be forged"
            );
        });
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(lines.iter().all(|line| line.starts_with("DEBUG ")), "{lines:#?}");
    }

    #[test]
    fn what_an_operator_must_act_on_is_a_warning_once_a_minute() {
        let (lines, _) = logged(|observer| {
            for second in 0..121 {
                observer.note(at(second), &refused(Refusal::PortsExhausted));
            }
        });
        let warnings: Vec<_> = lines.iter().filter(|line| line.starts_with("WARN")).collect();
        assert_eq!(warnings.len(), 3, "at 0, 60 and 120 seconds");
        assert!(warnings[1].contains("left_out=59"), "{warnings:#?}");
        let share = Some(turn_proto::ShareHolder::Network(Prefix::host([192, 0, 2, 1].into())));
        let refused = RefusedRequest { share, ..RefusedRequest::sample(Refusal::PortsShare) };
        let (lines, _) = logged(|observer| observer.note(at(1), &Notice::Refused(refused.clone())));
        let named = ["largest use: network 192.0.2.1/32", "share=\"network 192.0.2.1/32\""];
        assert!(named.iter().all(|text| lines.iter().any(|line| line.contains(text))), "{lines:?}");
    }
}
