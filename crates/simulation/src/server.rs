//! A server: processes of workers of `dataplane` over simulated sockets, with a user directory and
//! an operator.

mod audit;
mod ended;
mod handover;
mod keeper;
mod process;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use control::{CounterTotals, Request, WorkerCounters};
use dataplane::ConnectionLimits;
use netsim::{Chance, Outbox, Packet, Rng};
use turn_proto::{Policy, RelayPorts, RelayPrefix, UserAnswer, UserQuery};
use turn_types::{AllocationId, Instant, Now, Prefix, WorkerId};

use self::ended::Ended;
use self::handover::{Absence, Handover};
use self::keeper::Keeper;
use self::process::Process;
use crate::host::{Faults, SimHost};
use crate::tcp::TcpNet;

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

/// A simulated server.
pub struct ServerHost {
    host: SimHost,
    tcp: TcpNet,
    plan: ServerPlan,
    users: Users,
    rng: Rng,
    /// The process that serves, if there is one.
    serving: Option<Process>,
    /// The next process, beside the one that serves.
    handover: Option<Handover>,
    /// No process is there.
    absence: Option<Absence>,
    keeper: Option<Keeper>,
    /// Ports of all relay addresses that there are or were.
    ports: Vec<Arc<RelayPorts>>,
    /// Prefixes that there are or were.
    prefixes: Vec<RelayPrefix>,
    /// Counts of processes that have ended.
    earlier: Vec<Arc<WorkerCounters>>,
    earlier_totals: CounterTotals,
    /// The process drains.
    drains: bool,
    /// Allocations that an operator has ended.
    ended: Ended,
    /// Ids of allocations so far, with the times at which these were made.
    given: BTreeMap<AllocationId, Instant>,
    /// One has died.
    has_died: bool,
    ran_at: Instant,
    has_work_left: bool,
    /// Runs so far.
    runs: u32,
    /// The host is suspended until then.
    suspended_until: Instant,
    /// Seconds by which the wall clock is wrong.
    wall_error: i64,
    /// Counts of all processes when they were stopped.
    stopped: Option<CounterTotals>,
    /// Processes that have gone on with everything of the one before.
    pub handovers: u64,
    /// Processes that have gone on with a keeper's copies.
    pub resumptions: u64,
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
            users,
            rng,
            serving: None,
            handover: None,
            absence: None,
            keeper: None,
            ports: Vec::new(),
            prefixes: Vec::new(),
            earlier: Vec::new(),
            earlier_totals: CounterTotals::default(),
            drains: false,
            ended: Ended::default(),
            given: BTreeMap::new(),
            has_died: false,
            ran_at: Instant::ZERO,
            has_work_left: true,
            runs: 0,
            suspended_until: Instant::ZERO,
            wall_error: 0,
            stopped: None,
            handovers: 0,
            resumptions: 0,
            violation: None,
        };
        server.begin_anew();
        // A server that cannot start is another matter.
        server.host.state().faults = faults;
        server
    }

    fn note_tables(&mut self, policy: &Policy) {
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
        self.turn(now.instant);
        self.pass_on(now.instant, out);
        self.runs += 1;
        let mut audit = self.audit();
        let is_quiet = !self.has_work_left && self.handover.is_none();
        if is_quiet && self.runs.is_multiple_of(AUDIT_PLACES_EVERY) {
            audit = audit.and_then(|()| self.audit_places());
        }
        self.host.take_sent().into_iter().for_each(|packet| out.send(packet));
        if let Some(process) = &mut self.serving {
            process.ask_questions(now.instant, &mut self.rng);
        }
        if let Err(why) = audit {
            self.violation.get_or_insert(why);
        }
    }

    /// Turns of all workers.
    fn turn(&mut self, now: Instant) {
        let Self { serving, keeper, .. } = self;
        if let Some(process) = serving {
            process.answer_questions(now);
        }
        if let Some(keeper) = keeper {
            keeper.fall_behind();
        }
        self.has_work_left = true;
        for _ in 0..ROUNDS_MAX {
            if serving.as_mut().is_none_or(Process::turn) {
                self.has_work_left = false;
                break;
            }
        }
    }

    /// Time at which the workers are to run.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        let absence = self.absence.as_ref().map(Absence::next_wake);
        if self.serving.is_none() && absence.is_none() {
            return None;
        }
        let after = self.ran_at + Duration::from_nanos(1);
        let left = self.has_work_left.then(|| self.ran_at + MOMENT);
        let of_process = self.serving.as_ref().and_then(|process| process.next_wake(self.ran_at));
        let handover = self.handover.as_ref().map(Handover::next_wake);
        let keeper = self.keeper.as_ref().and_then(Keeper::next_wake);
        let all = [left, of_process, self.tcp.next_event(), handover, absence, keeper];
        let due = all.into_iter().flatten().min();
        due.map(|due| due.max(after).max(self.suspended_until))
    }

    // An operator.

    /// Changes the rules. Ignored during a hand-over.
    pub fn apply(&mut self, policy: Policy) {
        let Some(process) = self.serving.as_ref().filter(|_| self.handover.is_none()) else {
            return;
        };
        let policy = Arc::new(process.with_own_tables(policy));
        process.post_all(|| Request::Apply { policy: Arc::clone(&policy), done: Box::new(drop) });
        self.note_tables(&policy);
        self.has_work_left = true;
    }

    /// Starts or stops draining. Ignored during a hand-over.
    pub fn drain(&mut self, on: bool) {
        if let Some(process) = self.serving.as_ref().filter(|_| self.handover.is_none()) {
            process.post_all(|| Request::Drain(on));
            self.drains = on;
        }
        self.has_work_left = true;
    }

    /// Ends one allocation of a worker.
    pub fn end_any(&mut self, worker: WorkerId) {
        let has_left = self.handover.as_ref().is_some_and(Handover::has_left);
        let Some(process) = self.serving.as_mut().filter(|_| !has_left) else { return };
        for id in process.allocations(worker, 1).into_iter().map(|record| record.id) {
            let reply = self.ended.reply(id, self.ran_at);
            process.post(worker, Request::End { id, reply });
        }
        self.has_work_left = true;
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

    /// Stops all processes.
    pub fn stop(&mut self, out: &mut Outbox) {
        // No process goes on with what waits, or what this one has left.
        self.has_died |= self.absence.is_some() || self.handover.is_some();
        (self.handover, self.absence, self.keeper) = (None, None, None);
        if let Some(process) = self.serving.take() {
            self.end(process, out);
        }
        let counters = self.earlier.iter().map(|counters| &**counters);
        self.stopped = Some(CounterTotals::of(counters));
    }
}
