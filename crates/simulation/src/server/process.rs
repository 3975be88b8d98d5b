//! One process of a server: workers of `dataplane` with the tables that they share, and their
//! look-ups.

use std::mem::take;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use control::{
    Asked, LockedRegistry, Mailbox, Request, Series, SessionFilter, UnconfirmedUsers,
    UserDirectory, UserLookup, WorkerCounters,
};
use dataplane::{
    Admission, DtlsSettings, Export, ImportError, Listener, LogOptions, NetOptions, RelaySettings,
    SharedSocket, StreamSettings, Worker, WorkerChannels, WorkerEndpoint, WorkerSpec,
};
use netsim::Rng;
use turn_proto::{
    AllocationRecord, Policy, Progress, RelayAddress, RelayPorts, RelayPrefix, SharedRegistry as _,
    UserAnswer,
};
use turn_types::{AllocationId, Instant, PendingId, Transport, WorkerId};

use super::{DirectoryFaults, MOMENT, ServerPlan, Users};
use crate::host::{Faults, SimHost};
use crate::net::{LastWait, SimAcceptor, SimDescriptor, SimNet};
use crate::routes::{RingState, SimRoutes};
use crate::socket::SimUdp;

/// Export of one worker.
pub(super) type SimExport = Export<SimDescriptor>;

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

    /// Nothing is kept.
    fn forget(&self, _realm: &str, _name: &str) {}

    fn unconfirmed(&self) -> UnconfirmedUsers {
        UnconfirmedUsers::default()
    }

    fn distrust(&self, _users: &UnconfirmedUsers) {}
}

/// Listening sockets of one worker.
#[derive(Debug)]
pub(super) struct Listeners {
    udp: Vec<SimUdp>,
    tcp: Vec<SimAcceptor>,
    shared: Vec<SimUdp>,
}

impl Listeners {
    /// Opens the sockets of a worker.
    ///
    /// # Panics
    /// An address is in use.
    pub(super) fn open(host: &SimHost, at: &[SocketAddr], policy: &Policy, id: WorkerId) -> Self {
        let udp = |at: &SocketAddr| SimUdp::bind(host, *at, true, true).expect("a free address");
        let tcp = |at: &SocketAddr| SimAcceptor::listen(host, *at, true).expect("a free address");
        let shared = SharedSocket::addresses(policy, id)
            .map(|at| SimUdp::bind(host, at, true, false).expect("a free address"));
        Self {
            udp: at.iter().map(udp).collect(),
            tcp: at.iter().map(tcp).collect(),
            shared: shared.collect(),
        }
    }

    pub(super) fn copy(&self) -> Self {
        let Self { udp, tcp, shared } = self;
        let twins = |all: &[SimUdp]| all.iter().map(SimUdp::twin).collect();
        let tcp = tcp.iter().map(SimAcceptor::twin).collect();
        Self { udp: twins(udp), tcp, shared: twins(shared) }
    }
}

/// A worker that serves.
pub(super) struct SimWorker {
    pub(super) worker: Worker<SimNet>,
    pub(super) wait: Rc<LastWait>,
    pub(super) counters: Arc<WorkerCounters>,
    mailbox: Mailbox,
    listeners: Listeners,
}

/// A worker that does not serve yet.
struct NextWorker {
    worker: Worker<SimNet>,
    ring: Rc<std::cell::RefCell<RingState>>,
    wait: Rc<LastWait>,
    counters: Arc<WorkerCounters>,
    mailbox: Mailbox,
    listeners: Listeners,
}

/// Everything but the workers.
struct Shared {
    /// Rules, with the tables of this process.
    policy: Policy,
    registry: Arc<LockedRegistry>,
    channels: WorkerChannels<SimNet>,
    questions: Arc<Questions>,
    users: Users,
    faults: DirectoryFaults,
}

/// A process that serves.
pub(super) struct Process {
    shared: Shared,
    pub(super) workers: Vec<SimWorker>,
    /// Answers of the directory, with their times.
    answers: Vec<(Instant, WorkerId, PendingId, UserAnswer)>,
}

/// A process that does not serve yet.
pub(super) struct NextProcess {
    shared: Shared,
    workers: Vec<NextWorker>,
}

impl NextProcess {
    /// Prepares a process, with these listeners. Nothing of the host fails.
    pub(super) fn new(
        (plan, users): (&ServerPlan, Users),
        host: &SimHost,
        rng: &mut Rng,
        listeners: Vec<Listeners>,
    ) -> Self {
        let policy = renewed(&plan.policy);
        let questions = Arc::new(Questions::default());
        let directory = Arc::new(Directory {
            questions: Arc::clone(&questions),
            users,
            faults: plan.users,
            rng: Mutex::new(rng.fork()),
        });
        let mut ends = Vec::new();
        for listeners in listeners {
            let (net, wake) = SimNet::new(host.clone());
            let wait = Rc::clone(&net.wait);
            let (mailbox, endpoint) = WorkerEndpoint::new(net, wake);
            ends.push((mailbox, endpoint, wait, listeners));
        }
        let channels = WorkerChannels::to(ends.iter().map(|(_, endpoint, ..)| endpoint));
        let streams = StreamSettings {
            proxies: plan.proxies.clone(),
            tls: plan.tls.clone(),
            plain: true,
            acme_redirect: None,
            admission: Arc::new(Admission::new(plan.limits)),
        };
        let admission = Arc::new(Admission::new(plan.limits));
        let dtls = DtlsSettings { config: plan.dtls.clone(), only: false, admission };
        let registry = Arc::new(LockedRegistry::new());
        let shared_policy = Arc::new(policy.clone());
        let now = host.state().now;
        let started = Duration::new(now.unix.0, (now.instant.as_nanos() % 1_000_000_000) as u32);
        let worker = |(id, (mailbox, endpoint, wait, listeners)): (u16, _)| {
            let listeners: Listeners = listeners;
            let counters = Arc::new(WorkerCounters::new());
            let routes = SimRoutes::new(rng.fork(), plan.faults.route_refused);
            let ring = routes.ring_state();
            let Listeners { udp, tcp, shared } = listeners.copy();
            let spec = WorkerSpec {
                id: WorkerId(id),
                started,
                listeners: udp.into_iter().map(Listener::over).collect(),
                shared: shared.into_iter().map(SharedSocket::over).collect(),
                acceptors: tcp,
                streams: streams.clone(),
                dtls: dtls.clone(),
                policy: Arc::clone(&shared_policy),
                registry: Arc::clone(&registry) as _,
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
            let build = || Worker::new(spec).expect("nothing of it can fail");
            let worker = host.with_faults(Faults::default(), build);
            NextWorker { worker, ring, wait, counters, mailbox, listeners }
        };
        let workers = (0..).zip(ends).map(worker).collect();
        let faults = plan.users;
        Self { shared: Shared { policy, registry, channels, questions, users, faults }, workers }
    }

    /// Its rules, with its tables.
    pub(super) const fn policy(&self) -> &Policy {
        &self.shared.policy
    }

    /// Begins an import.
    pub(super) fn begin_import(&mut self) {
        let settings = RelaySettings::default();
        self.workers.iter_mut().for_each(|next| next.worker.begin_import(settings));
    }

    /// Imports a snapshot.
    pub(super) fn import(&mut self, export: SimExport) {
        self.workers[usize::from(export.snapshot.worker.0)].worker.import(export);
    }

    /// Imports the last snapshot of each worker, in any order.
    pub(super) fn import_last(&mut self, exports: Vec<SimExport>) {
        for export in exports {
            let worker = usize::from(export.snapshot.worker.0);
            self.import(export);
            self.workers[worker].worker.finish_import();
        }
    }

    pub(super) fn set_progress(&mut self, progress: Vec<Vec<(AllocationId, Progress)>>) {
        for (worker, progress) in self.workers.iter_mut().zip(progress) {
            worker.worker.set_progress(progress);
        }
    }

    /// Lets it serve; `drains`: it takes no new allocations. Returns the errors of its import.
    pub(super) fn serve(self, host: &SimHost, drains: bool) -> (Process, Vec<ImportError>) {
        let mut refused = Vec::new();
        let worker = |next: NextWorker| {
            let NextWorker { mut worker, ring, wait, counters, mailbox, listeners } = next;
            host.add_ring(&ring);
            refused.extend(worker.commit_import(drains));
            SimWorker { worker, wait, counters, mailbox, listeners }
        };
        let workers = self.workers.into_iter().map(worker).collect();
        (Process { shared: self.shared, workers, answers: Vec::new() }, refused)
    }
}

impl Process {
    /// One turn of each worker. Returns true if all would have waited.
    pub(super) fn turn(&mut self) -> bool {
        let mut all_idle = true;
        for SimWorker { worker, wait, .. } in &mut self.workers {
            worker.turn();
            all_idle &= wait.is_idle();
        }
        all_idle
    }

    /// Listening sockets, for another process.
    pub(super) fn listeners(&self) -> Vec<Listeners> {
        self.workers.iter().map(|worker| worker.listeners.copy()).collect()
    }

    pub(super) const fn channels(&self) -> &WorkerChannels<SimNet> {
        &self.shared.channels
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = &Arc<WorkerCounters>> {
        self.workers.iter().map(|worker| &worker.counters)
    }

    /// Ends everything that no other process has. Returns the counters.
    pub(super) fn finish(self) -> Vec<Arc<WorkerCounters>> {
        let counters = self.counters().cloned().collect();
        self.workers.into_iter().for_each(|SimWorker { worker, .. }| worker.finish());
        counters
    }

    /// Sends a request to one of its workers, if there is one of this number.
    pub(super) fn post(&self, to: WorkerId, request: Request) {
        if let Some(worker) = self.workers.get(usize::from(to.0)) {
            worker.mailbox.post(request).expect("its mailbox is almost empty");
        }
    }

    /// Sends a request to all workers.
    pub(super) fn post_all(&self, request: impl Fn() -> Request) {
        for worker in &self.workers {
            worker.mailbox.post(request()).expect("its mailbox is almost empty");
        }
    }

    /// These rules with the tables of this process.
    pub(super) fn with_own_tables(&self, policy: Policy) -> Policy {
        let own = &self.shared.policy;
        let relay = policy.relay.into_iter().map(|relay| {
            let known = own.relay.iter().find(|own| own.local == relay.local);
            known.cloned().unwrap_or(relay)
        });
        Policy { relay: relay.collect(), prefixes: own.prefixes.clone(), ..policy }
    }

    /// Returns at most `limit` allocations of a worker.
    pub(super) fn allocations(&mut self, of: WorkerId, limit: usize) -> Vec<AllocationRecord> {
        let records: Arc<Mutex<Vec<AllocationRecord>>> = Arc::default();
        let found = Arc::clone(&records);
        let reply = Box::new(move |sessions: Vec<control::Session>| {
            let mut records = found.lock().unwrap_or_else(PoisonError::into_inner);
            records.extend(sessions.into_iter().map(|session| session.record));
        });
        self.post(of, Request::List { filter: SessionFilter::default(), limit, reply });
        if let Some(worker) = self.workers.get_mut(usize::from(of.0)) {
            worker.worker.turn();
        }
        take(&mut *records.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hears the questions of its workers.
    pub(super) fn ask_questions(&mut self, now: Instant, rng: &mut Rng) {
        let Shared { questions, users, faults, .. } = &self.shared;
        let asked = take(&mut *questions.0.lock().unwrap_or_else(PoisonError::into_inner));
        for UserLookup { worker, pending, user, .. } in asked {
            let at = now + MOMENT + rng.duration_below(faults.delay_max);
            let unavailable = rng.happens(faults.unavailable);
            if !rng.happens(faults.silent) {
                let answer = if unavailable { UserAnswer::Unavailable } else { users(&user) };
                self.answers.push((at, worker, pending, answer));
            }
        }
    }

    /// Gives the answers whose time has come.
    pub(super) fn answer_questions(&mut self, now: Instant) {
        while let Some(at) = self.answers.iter().position(|(at, ..)| *at <= now) {
            let (_, worker, pending, answer) = self.answers.remove(at);
            self.post(worker, Request::UserFound { pending, answer });
        }
    }

    /// Time at which it is to run, which it did last at `ran_at`.
    pub(super) fn next_wake(&self, ran_at: Instant) -> Option<Instant> {
        let timers = self.workers.iter().filter_map(|worker| worker.wait.timeout.get());
        let timer = timers.min().map(|timeout| ran_at + timeout);
        let answer = self.answers.iter().map(|(at, ..)| *at).min();
        timer.into_iter().chain(answer).min()
    }

    /// The sum of one counter.
    pub(super) fn sum(&self, series: Series) -> u64 {
        self.counters().map(|counters| counters.value(series)).sum()
    }

    /// Live allocations, as counted.
    pub(super) fn live(&self) -> usize {
        let of = |&transport: &Transport| self.sum(Series::AllocationsLive(transport));
        Transport::ALL.iter().map(of).sum::<u64>() as usize
    }

    /// Allocations and reservations of the registry.
    pub(super) fn registered(&self) -> (usize, usize) {
        let mut counts = (0, 0);
        self.shared.registry.with(&mut |registry| {
            counts = (registry.allocations() as usize, registry.reservations());
        });
        counts
    }
}

/// These rules with tables in which nothing is in use.
fn renewed(policy: &Policy) -> Policy {
    let address = |relay: &RelayAddress| RelayAddress { ports: RelayPorts::new(), ..relay.clone() };
    Policy {
        relay: policy.relay.iter().map(address).collect(),
        prefixes: policy.prefixes.iter().map(renewed_prefix).collect(),
        ..policy.clone()
    }
}

fn renewed_prefix(prefix: &RelayPrefix) -> RelayPrefix {
    let first_port = prefix.ports().next().expect("a port of the first worker");
    let workers = prefix.ports().count() as u16;
    RelayPrefix::new(prefix.network(), first_port, workers).expect("as it was")
}
