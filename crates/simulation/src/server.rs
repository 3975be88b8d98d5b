//! A server: workers of `dataplane` over simulated sockets, with a user directory and an operator.

mod restart;

use std::collections::BTreeSet;
use std::mem::take;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use control::{
    Asked, CounterTotals, Fate, Histogram, Kind, Leg, LockedRegistry, Mailbox, Request, Series,
    SessionFilter, UserDirectory, UserLookup, WorkerCounters,
};
use dataplane::{
    Admission, ConnectionLimits, DtlsSettings, Inheritance, Listener, LogOptions, NetOptions,
    NotTaken, StreamSettings, Worker, WorkerChannels, WorkerEndpoint, WorkerSpec,
};
use netsim::{Chance, Outbox, Packet, Rng};
use turn_proto::{
    AllocationRecord, DropReason, Policy, RelayPorts, RelayPrefix, SharedRegistry as _,
    TakeoverError, UserAnswer, UserQuery,
};
use turn_types::{Instant, Now, PendingId, Prefix, RelayProtocol, Transport, WorkerId};

use crate::conduit::SimConduit;
use crate::host::{Faults, SimHost};
use crate::net::{LastWait, SimAcceptor, SimNet};
use crate::routes::SimRoutes;
use crate::socket::SimUdp;
use crate::tcp::{TcpEnd, TcpNet};

/// Turns of all workers at one instant, at most: the rest follows a moment later.
const ROUNDS_MAX: usize = 64;

/// Time after which workers with work left go on.
const MOMENT: Duration = Duration::from_millis(1);

/// Runs between two checks of where each allocation is.
const AUDIT_PLACES_EVERY: u32 = 32;

/// Everything a server begins with.
#[derive(Debug)]
pub struct ServerPlan {
    /// Number of workers, at least 1.
    pub workers: u16,
    /// Rules.
    pub policy: Policy,
    /// Addresses of the UDP and TCP listeners.
    pub listeners: Vec<SocketAddr>,
    /// Load balancers.
    pub proxies: Vec<Prefix>,
    /// TLS.
    pub tls: Option<turn_session::TlsConfig>,
    /// DTLS.
    pub dtls: Option<turn_session::dtls::DtlsConfig>,
    /// Limits of TCP connections and of DTLS sessions.
    pub limits: ConnectionLimits,
    /// Failures of system calls.
    pub faults: Faults,
    /// Failures of the user directory.
    pub users: DirectoryFaults,
}

/// Failures of a user directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectoryFaults {
    /// Longest time of a look-up; zero: answered at once.
    pub delay_max: Duration,
    /// No answer comes.
    pub silent: Chance,
    /// The database cannot be asked.
    pub unavailable: Chance,
    /// Too many look-ups wait.
    pub refused: Chance,
}

/// A function that knows the users of a world.
pub type Users = fn(&UserQuery) -> UserAnswer;

struct SimWorker {
    worker: Worker<SimNet>,
    wait: Rc<LastWait>,
    mailbox: Mailbox,
    counters: Arc<WorkerCounters>,
}

/// Look-ups that were asked, with the worker that asked.
#[derive(Default)]
struct Questions(Mutex<Vec<UserLookup>>);

struct Directory {
    questions: Arc<Questions>,
    users: Users,
    faults: DirectoryFaults,
    rng: Mutex<Rng>,
}

impl UserDirectory for Directory {
    fn find(&self, lookup: UserLookup) -> Asked {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        if rng.happens(self.faults.refused) {
            return Asked::Refused;
        }
        if self.faults.delay_max.is_zero() {
            return Asked::Answered((self.users)(&lookup.user));
        }
        self.questions.0.lock().unwrap_or_else(PoisonError::into_inner).push(lookup);
        Asked::Taken
    }
}

/// A simulated server.
pub struct ServerHost {
    host: SimHost,
    tcp: TcpNet,
    /// Its rules are those of the start, with the tables of this process.
    plan: ServerPlan,
    workers: Vec<SimWorker>,
    questions: Arc<Questions>,
    users: Users,
    rng: Rng,
    /// Answers of the directory, with their times.
    answers: Vec<(Instant, WorkerId, PendingId, UserAnswer)>,
    registry: Arc<LockedRegistry>,
    /// Ports of all relay addresses that there are or were.
    ports: Vec<Arc<RelayPorts>>,
    /// Prefixes that there are or were.
    prefixes: Vec<RelayPrefix>,
    /// Counts of the processes before this one.
    earlier: Vec<Arc<WorkerCounters>>,
    ran_at: Instant,
    has_work_left: bool,
    /// Runs so far.
    runs: u32,
    /// The host is suspended until then.
    suspended_until: Instant,
    /// Seconds by which the wall clock is wrong.
    wall_error: i64,
    /// Counts of workers that have stopped.
    stopped: Option<CounterTotals>,
    /// The first broken invariant.
    pub violation: Option<String>,
}

impl std::fmt::Debug for ServerHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerHost").field("violation", &self.violation).finish_non_exhaustive()
    }
}

impl ServerHost {
    /// Starts a server.
    ///
    /// # Panics
    /// A listener's address is in use.
    #[must_use]
    pub fn new(plan: ServerPlan, users: Users, tcp: TcpNet, mut rng: Rng) -> Self {
        let host = SimHost::new(rng.fork(), tcp.clone());
        let faults = plan.faults;
        let mut server = Self {
            host,
            tcp,
            plan,
            workers: Vec::new(),
            questions: Arc::default(),
            users,
            rng,
            answers: Vec::new(),
            registry: Arc::new(LockedRegistry::new()),
            ports: Vec::new(),
            prefixes: Vec::new(),
            earlier: Vec::new(),
            ran_at: Instant::ZERO,
            has_work_left: true,
            runs: 0,
            suspended_until: Instant::ZERO,
            wall_error: 0,
            stopped: None,
            violation: None,
        };
        let policy = server.plan.policy.clone();
        server.start(&policy, |_| None);
        // A server that cannot start is another matter.
        server.host.state().faults = faults;
        server
    }

    /// Starts the workers of a process, with what those of the process before have left.
    fn start(
        &mut self,
        policy: &Policy,
        mut inherit: impl FnMut(usize) -> Option<Inheritance<SimUdp, TcpEnd, SimAcceptor, SimConduit>>,
    ) {
        self.note_ports(policy);
        let (plan, host, rng) = (&self.plan, &self.host, &mut self.rng);
        let policy = Arc::new(policy.clone());
        self.questions = Arc::new(Questions::default());
        let directory = Arc::new(Directory {
            questions: Arc::clone(&self.questions),
            users: self.users,
            faults: plan.users,
            rng: Mutex::new(rng.fork()),
        });
        let mut ends = Vec::new();
        for _ in 0..plan.workers {
            let (net, wake) = SimNet::new(host.clone());
            let wait = Rc::clone(&net.wait);
            let (mailbox, endpoint) = WorkerEndpoint::new(net, wake);
            ends.push((mailbox, endpoint, wait));
        }
        let channels = WorkerChannels::to(ends.iter().map(|(_, endpoint, _)| endpoint));
        let streams = StreamSettings {
            proxies: plan.proxies.clone(),
            tls: plan.tls.clone(),
            plain: true,
            acme_redirect: None,
            admission: Arc::new(Admission::new(plan.limits)),
        };
        let admission = Arc::new(Admission::new(plan.limits));
        let dtls = DtlsSettings { config: plan.dtls.clone(), only: false, admission };
        for (id, (mailbox, endpoint, wait)) in (0..).zip(ends) {
            let udp =
                |at: &SocketAddr| SimUdp::bind(host, *at, true, true).expect("a free address");
            let tcp =
                |at: &SocketAddr| SimAcceptor::listen(host, *at, true).expect("a free address");
            let mut inherited = inherit(id.into());
            let (listeners, shared) = match &mut inherited {
                Some(inherited) => {
                    (take(&mut inherited.listeners), take(&mut inherited.copies.shared))
                }
                None => (plan.listeners.iter().map(udp).collect(), Vec::new()),
            };
            let counters = Arc::new(WorkerCounters::new());
            let routes = SimRoutes::new(rng.fork(), plan.faults.route_refused);
            host.add_ring(&routes.ring_state());
            let spec = WorkerSpec {
                id: WorkerId(id),
                listeners: listeners.into_iter().map(Listener::over).collect(),
                shared,
                acceptors: plan.listeners.iter().map(tcp).collect(),
                streams: streams.clone(),
                dtls: dtls.clone(),
                policy: Arc::clone(&policy),
                registry: Arc::clone(&self.registry) as _,
                seed: rng.seed_32(),
                directory: Arc::clone(&directory) as _,
                authorizer: Arc::new(control::NoAuthorizer),
                counters: Arc::clone(&counters),
                endpoint,
                workers: channels.clone(),
                routes: Some(routes),
                net: NetOptions::default(),
                log: LogOptions::default(),
            };
            let mut worker = Worker::new(spec).expect("nothing of it can fail");
            let refused = inherited.map(|inherited| worker.take_over(inherited));
            for refused in refused.into_iter().flatten() {
                // Time has passed, nothing else.
                if refused != NotTaken::Allocation(TakeoverError::Expired) {
                    self.violation.get_or_insert_with(|| format!("not taken over: {refused}"));
                }
            }
            self.workers.push(SimWorker { worker, wait, mailbox, counters });
        }
    }

    fn note_ports(&mut self, policy: &Policy) {
        for relay in &policy.relay {
            if !self.ports.iter().any(|known| Arc::ptr_eq(known, &relay.ports)) {
                self.ports.push(Arc::clone(&relay.ports));
            }
        }
        for prefix in &policy.prefixes {
            if !self.prefixes.contains(prefix) {
                self.prefixes.push(prefix.clone());
            }
        }
    }

    /// Takes a packet.
    pub fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox) {
        self.host.deliver(packet);
        self.run(now, out);
    }

    /// Runs the workers until each would wait.
    pub fn run(&mut self, mut now: Now, out: &mut Outbox) {
        if now.instant < self.suspended_until {
            self.has_work_left = true;
            return;
        }
        now.unix.0 = now.unix.0.saturating_add_signed(self.wall_error);
        self.host.advance(now);
        self.ran_at = now.instant;
        self.answer_questions(now.instant);
        self.has_work_left = true;
        for _ in 0..ROUNDS_MAX {
            let mut all_idle = true;
            for SimWorker { worker, wait, .. } in &mut self.workers {
                worker.turn();
                all_idle &= wait.is_idle();
            }
            if all_idle {
                self.has_work_left = false;
                break;
            }
        }
        self.runs += 1;
        let mut audit = self.audit();
        if !self.has_work_left && self.runs.is_multiple_of(AUDIT_PLACES_EVERY) {
            audit = audit.and_then(|()| self.audit_places());
        }
        self.host.take_sent().into_iter().for_each(|packet| out.send(packet));
        self.ask_questions(now.instant);
        if let Err(why) = audit {
            self.violation.get_or_insert(why);
        }
    }

    fn ask_questions(&mut self, now: Instant) {
        let asked = take(&mut *self.questions.0.lock().unwrap_or_else(PoisonError::into_inner));
        for UserLookup { worker, pending, user, .. } in asked {
            let at = now + MOMENT + self.rng.duration_below(self.plan.users.delay_max);
            let unavailable = self.rng.happens(self.plan.users.unavailable);
            if !self.rng.happens(self.plan.users.silent) {
                let answer =
                    if unavailable { UserAnswer::Unavailable } else { (self.users)(&user) };
                self.answers.push((at, worker, pending, answer));
            }
        }
    }

    fn answer_questions(&mut self, now: Instant) {
        while let Some(at) = self.answers.iter().position(|(at, ..)| *at <= now) {
            let (_, worker, pending, answer) = self.answers.remove(at);
            self.post(worker, Request::UserFound { pending, answer });
        }
    }

    fn post(&self, to: WorkerId, request: Request) {
        if let Some(worker) = self.workers.get(usize::from(to.0)) {
            worker.mailbox.post(request).expect("its mailbox is almost empty");
        }
    }

    /// Time at which the workers are to run.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        if self.workers.is_empty() {
            return None;
        }
        let after = self.ran_at + Duration::from_nanos(1);
        let left = self.has_work_left.then(|| self.ran_at + MOMENT);
        let timers = self.workers.iter().filter_map(|worker| worker.wait.timeout.get());
        let timer = timers.min().map(|timeout| self.ran_at + timeout);
        let answer = self.answers.iter().map(|(at, ..)| *at).min();
        let due = [left, timer, answer, self.tcp.next_event()].into_iter().flatten().min();
        due.map(|due| due.max(after).max(self.suspended_until))
    }

    // An operator.

    /// Changes the rules.
    pub fn apply(&mut self, policy: Policy) {
        let policy = self.with_own_tables(policy);
        self.note_ports(&policy);
        let policy = Arc::new(policy);
        for SimWorker { mailbox, .. } in &self.workers {
            let request = Request::Apply { policy: Arc::clone(&policy), done: Box::new(drop) };
            mailbox.post(request).expect("its mailbox is almost empty");
        }
        self.has_work_left = true;
    }

    /// Begins or ends draining.
    pub fn drain(&mut self, on: bool) {
        for SimWorker { mailbox, .. } in &self.workers {
            mailbox.post(Request::Drain(on)).expect("its mailbox is almost empty");
        }
        self.has_work_left = true;
    }

    /// Ends one allocation of a worker, if it has any.
    pub fn end_any(&mut self, worker: WorkerId) {
        if usize::from(worker.0) >= self.workers.len() {
            return;
        }
        for id in self.allocations(worker, 1).into_iter().map(|record| record.id) {
            self.post(worker, Request::End { id, reply: Box::new(drop) });
        }
        self.has_work_left = true;
    }

    /// Returns at most `limit` allocations of a worker.
    fn allocations(&mut self, of: WorkerId, limit: usize) -> Vec<AllocationRecord> {
        let records: Arc<Mutex<Vec<AllocationRecord>>> = Arc::default();
        let found = Arc::clone(&records);
        let reply = Box::new(move |sessions: Vec<control::Session>| {
            let mut records = found.lock().unwrap_or_else(PoisonError::into_inner);
            records.extend(sessions.into_iter().map(|session| session.record));
        });
        self.post(of, Request::List { filter: SessionFilter::default(), limit, reply });
        self.workers[usize::from(of.0)].worker.turn();
        take(&mut *records.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Suspends the host: time goes on without it, and datagrams wait in its sockets.
    pub fn suspend(&mut self, until: Instant) {
        self.suspended_until = self.suspended_until.max(until);
    }

    /// Sets the wall clock to a wrong time, by so many seconds. The monotonic clock goes on.
    pub const fn set_wall_error(&mut self, seconds: i64) {
        self.wall_error = seconds;
    }

    /// Time at which the host is no longer suspended.
    #[must_use]
    pub const fn suspended_until(&self) -> Instant {
        self.suspended_until
    }

    /// Stops all workers.
    pub fn stop(&mut self, out: &mut Outbox) {
        let counters = self.workers.iter().map(|worker| Arc::clone(&worker.counters));
        let counters: Vec<_> = self.earlier.iter().cloned().chain(counters).collect();
        for SimWorker { worker, .. } in self.workers.drain(..) {
            worker.finish();
        }
        self.host.take_sent().into_iter().for_each(|packet| out.send(packet));
        self.stopped = Some(CounterTotals::of(counters.iter().map(|counters| &**counters)));
    }

    // Invariants.

    /// The sum of one counter, over the running workers.
    fn sum(&self, series: Series) -> u64 {
        self.workers.iter().map(|worker| worker.counters.value(series)).sum()
    }

    /// The same with those of earlier processes.
    fn sum_of_all(&self, series: Series) -> u64 {
        let earlier: u64 = self.earlier.iter().map(|counters| counters.value(series)).sum();
        earlier + self.sum(series)
    }

    /// Allocations and reservations of the registry.
    fn registered(&self) -> (usize, usize) {
        let mut counts = (0, 0);
        self.registry.with(&mut |registry| {
            counts = (registry.allocations() as usize, registry.reservations());
        });
        counts
    }

    /// Addresses of prefixes that are in use or reserved.
    fn addresses_in_use(&self) -> usize {
        self.prefixes.iter().map(|prefix| prefix.used() as usize).sum()
    }

    /// Checks what must hold after each step.
    fn audit(&self) -> Result<(), String> {
        // Not of all counters: this runs at each step of each world.
        let received = received(|series| self.sum(series));
        let fates = fates(|series| self.sum(series));
        if fates > received {
            return Err(format!("{received} packets have {fates} fates"));
        }
        for (from, to) in [(Leg::FromClients, Leg::ToPeers), (Leg::FromPeers, Leg::ToClients)] {
            let (from, to) = (Series::PipedBytes(from), Series::PipedBytes(to));
            // Bytes may be read by one process, and taken by their end in the next.
            if self.sum_of_all(to) > self.sum_of_all(from) {
                return Err(format!("{to:?}: more bytes than were read"));
            }
        }
        let live = self.live();
        let (taken, _) = self.registered();
        if taken < live {
            return Err(format!("{live} allocations, and {taken} in the quotas"));
        }
        let open = self.host.open_sockets();
        // Counting addresses takes long.
        if open < self.listening() + live
            && open + self.addresses_in_use() < self.listening() + live
        {
            return Err(format!("{live} allocations, and {open} sockets"));
        }
        Ok(())
    }

    /// Live allocations, as counted.
    fn live(&self) -> usize {
        let of = |&transport: &Transport| self.sum(Series::AllocationsLive(transport));
        Transport::ALL.iter().map(of).sum::<u64>() as usize
    }

    /// Checks that each allocation is at one worker, with the relayed addresses to itself. Nothing is to be on its
    /// way between workers.
    fn audit_places(&mut self) -> Result<(), String> {
        let (mut ids, mut relayed) = (BTreeSet::new(), BTreeSet::new());
        for worker in 0..self.workers.len() as u16 {
            for record in self.allocations(WorkerId(worker), usize::MAX) {
                if !ids.insert(record.id) {
                    return Err(format!("{} is at two workers", record.id));
                }
                // Of two addresses one may be gone, and in use by another.
                let addresses: Vec<_> =
                    record.relayed.into_iter().flatten().map(|relayed| relayed.0).collect();
                let is_tcp = record.attributes.protocol == RelayProtocol::Tcp;
                if let [address] = addresses[..]
                    && !relayed.insert((is_tcp, address))
                {
                    return Err(format!("two allocations have {address}"));
                }
                if !is_tcp && !addresses.iter().any(|address| self.host.is_bound(*address)) {
                    return Err(format!("{addresses:?} have no socket"));
                }
            }
        }
        let live = self.live();
        if ids.len() == live { Ok(()) } else { Err(format!("{live} live, {} listed", ids.len())) }
    }

    /// Checks what must hold when all clients are gone.
    ///
    /// # Errors
    /// Something of them is left.
    pub fn is_clean(&self) -> Result<(), String> {
        let totals = self.totals();
        let gauges = Series::all().filter(|series| series.family().kind == Kind::Gauge);
        for gauge in gauges {
            // Connections close with their workers, without another look at the gauge.
            if self.sum(gauge) != 0 {
                return Err(format!("left over: {} of {gauge:?}", self.sum(gauge)));
            }
        }
        let (allocations, reservations) = self.registered();
        let ports: u32 = self.ports.iter().map(|ports| ports.used()).sum();
        let ports = ports as usize + self.addresses_in_use();
        let listeners = self.listening();
        // Those that relays share stay for the next ones.
        let shared = self.host.sockets_at_all_addresses();
        let sockets = self.host.open_sockets() - listeners - shared;
        if (allocations, reservations, ports, sockets) != (0, 0, 0, 0) {
            return Err(format!(
                "left over: {allocations} in the quotas, {reservations} reserved, {ports} ports, {sockets} sockets"
            ));
        }
        let value = |series| totals.value(series);
        let (received, fates) = (received(value), fates(value));
        // Packets that waited for a client's allocation end with their process.
        let was_restarted = !self.earlier.is_empty();
        if fates != received && self.stopped.is_none() && !(was_restarted && fates < received) {
            return Err(format!("{received} packets have {fates} fates"));
        }
        self.histograms_agree(&totals)
    }

    /// Checks that the histograms have all allocations, and the sums by kind of client their traffic.
    fn histograms_agree(&self, totals: &CounterTotals) -> Result<(), String> {
        if totals.value(Series::NoticesLost) > 0 {
            return Ok(());
        }
        let count = |histogram| totals.buckets(histogram).map(|(_, count)| count).sum::<u64>();
        let ended: u64 = totals.ended().map(|(_, count)| count).sum();
        let lives = (count(Histogram::SessionDuration), count(Histogram::SessionBytes));
        if lives != (ended, ended) || count(Histogram::Allocate) != totals.allocations_created() {
            return Err(format!("{lives:?} of {ended} ended allocations are in the histograms"));
        }
        // The workers bring these up to date when they end.
        let relayed: u64 = totals
            .iter()
            .filter(|(series, _)| matches!(series, Series::RelayedBytes(..)))
            .fold(0, |sum, (_, bytes)| sum.wrapping_add(bytes));
        let ended = totals.value(Series::Sum(Histogram::SessionBytes));
        if self.stopped.is_some() && relayed != ended {
            return Err(format!("{relayed} bytes by kind of client, {ended} of all allocations"));
        }
        Ok(())
    }
}

/// Packets and ICMP errors that the workers received.
fn received(value: impl Fn(Series) -> u64) -> u64 {
    let packets = [Leg::FromClients, Leg::FromPeers].map(Series::Packets);
    let others = [Series::Offloaded(Leg::FromPeers), Series::IcmpErrors];
    packets.into_iter().chain(others).map(value).sum()
}

fn fates(value: impl Fn(Series) -> u64) -> u64 {
    let fates = Fate::ALL.iter().copied().map(Series::Fate);
    let drops = DropReason::ALL.iter().copied().map(Series::Drop);
    fates.chain(drops).map(value).sum()
}
