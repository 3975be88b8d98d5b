//! Runs in progress, shared by all threads of a peer.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use linux_net::UdpSocket;

use super::token::Tokens;
use crate::engine::backend::{Ends, Gauge, Sent, Sink as _, Source, Target};
use crate::engine::clock::{self, ClockId};
use crate::engine::control::{Refusal, Report, START_LEAD};
use crate::engine::counts::Counts;
use crate::engine::plan::{Plan, nanos};
use crate::engine::source::SocketSource;
use crate::outcome::Latency;
use crate::traffic::Direction;

/// Most flows of a peer, some 200 bytes each.
pub(super) const FLOWS_MAX: usize = 1_000_000;

/// Most concurrent runs: loads that share a peer.
const RUNS_MAX: usize = 64;

/// The longest run.
const RUN_MAX: Duration = Duration::from_hours(24);

/// Silence after which a run is over. The load queries four times a second.
const SILENCE_NANOS_MAX: u64 = 10_000_000_000;

/// State shared by the threads.
pub(super) struct Runs {
    pub(super) tokens: Tokens,
    pub(super) clock: ClockId,
    pub(super) traffic: Vec<Meter>,
    address: SocketAddr,
    /// A handle of the socket of each thread.
    sockets: Mutex<Vec<UdpSocket>>,
    ends: Option<Box<dyn Ends>>,
    runs: Mutex<HashMap<u32, Arc<Run>>>,
    flows: AtomicUsize,
}

/// Packets received by one thread, and sent by it and its source.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Meter {
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
}

/// One run.
pub(super) struct Run {
    id: u32,
    /// Counters for each thread.
    pub(super) counts: Counts,
    /// Packets are echoed.
    pub(super) echo: AtomicBool,
    /// Time of the last message or packet.
    pub(super) heard: AtomicU64,
    /// Set when the run is over: its sources stop.
    halt: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    targets: Vec<Target>,
    plan: Option<Plan>,
    sent: Sent,
    /// Sources that have not finished.
    sending: usize,
    /// Counters of the sockets at the begin of the run.
    dropped_before: u64,
    sent_before: u64,
}

impl Run {
    fn new(id: u32, threads: usize) -> Self {
        Self {
            id,
            counts: Counts::new(threads),
            echo: AtomicBool::new(false),
            heard: AtomicU64::new(clock::now()),
            halt: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    pub(super) const fn id(&self) -> u32 {
        self.id
    }

    /// Ends the run and its sources.
    pub(super) fn end(&self) {
        self.halt.store(true, Relaxed);
    }

    /// Returns `true` when the run was ended.
    pub(super) fn ended(&self) -> bool {
        self.halt.load(Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runs {
    pub(super) fn new(
        address: SocketAddr,
        sockets: Vec<UdpSocket>,
        ends: Option<Box<dyn Ends>>,
    ) -> Self {
        let traffic = sockets.iter().map(|_| Meter::default()).collect();
        Self {
            tokens: Tokens::new(),
            clock: ClockId::own(),
            traffic,
            address,
            sockets: Mutex::new(sockets),
            ends,
            runs: Mutex::default(),
            flows: AtomicUsize::new(0),
        }
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<UdpSocket>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<u32, Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Datagrams dropped by the sockets; 0 where the kernel does not count them.
    pub(super) fn dropped(&self) -> u64 {
        self.sockets().iter().map(|socket| u64::from(socket.dropped().unwrap_or(0))).sum()
    }

    /// Packets of the last run that bypassed the sockets. Starts at 0 with each run.
    pub(super) fn received_by_ends(&self) -> u64 {
        let tally = self.ends.as_ref().and_then(|ends| ends.sink().tally().ok());
        tally.map_or(0, |tally| tally.received)
    }

    /// Packets sent so far.
    fn sent(&self) -> u64 {
        self.traffic.iter().map(|meter| meter.sent.load(Relaxed)).sum()
    }

    /// Registers a flow of a run; the first one creates the run.
    pub(super) fn welcome(&self, run: u32, target: Target) -> Result<Arc<Run>, Refusal> {
        if self.flows.fetch_add(1, Relaxed) >= FLOWS_MAX {
            self.leave(1);
            return Err(Refusal::Full);
        }
        let mut runs = self.runs();
        let full = runs.len() >= RUNS_MAX;
        let run = match runs.get(&run) {
            Some(run) => Arc::clone(run),
            None if full => {
                self.leave(1);
                return Err(Refusal::Full);
            }
            None => {
                let new = Arc::new(Run::new(run, self.sockets().len()));
                runs.insert(run, Arc::clone(&new));
                new
            }
        };
        drop(runs);
        run.state().targets.push(target);
        Ok(run)
    }

    /// Removes flows.
    pub(super) fn leave(&self, flows: usize) {
        self.flows.fetch_sub(flows, Relaxed);
    }

    /// Begins a run, or returns its plan.
    pub(super) fn start(
        self: &Arc<Self>,
        run: &Arc<Run>,
        asked: Plan,
        clock: ClockId,
    ) -> Result<Plan, Refusal> {
        let mut state = run.state();
        // Both come from the network.
        let time = asked.spec.warm_up.saturating_add(asked.spec.duration);
        if time > RUN_MAX || asked.flows == 0 {
            return Err(Refusal::Unable);
        }
        if u32::try_from(state.targets.len()).is_ok_and(|known| known < asked.flows) {
            return Err(Refusal::Unknown);
        }
        if state.plan.is_none() {
            state.dropped_before = self.dropped();
            state.sent_before = self.sent();
        }
        match (asked.spec.direction, state.plan) {
            (Direction::PeerToClient, Some(plan)) => Ok(plan),
            (Direction::PeerToClient, None) => {
                let begin = clock::now() + nanos(START_LEAD);
                let plan = Plan::new(run.id, &asked.spec, asked.flows, begin);
                self.spawn_sources(run, &mut state, plan).map_err(|_| Refusal::Unable)?;
                state.plan = Some(plan);
                Ok(plan)
            }
            // With other times it begins anew: no packet was sent before the answer.
            (Direction::ClientToPeer | Direction::Echo, known) if known != Some(asked) => {
                state.plan = Some(asked);
                run.echo.store(asked.spec.direction == Direction::Echo, Relaxed);
                self.count(run, &asked, clock == self.clock).map_err(|_| Refusal::Unable)?;
                Ok(asked)
            }
            (Direction::ClientToPeer | Direction::Echo, _) => Ok(asked),
        }
    }

    fn count(&self, run: &Run, plan: &Plan, one_clock: bool) -> Result<()> {
        let other = self.ends.as_ref().map(|ends| ends.sink());
        for sink in [Some(&run.counts as _), other].into_iter().flatten() {
            sink.expect(run.id, plan.spec.size)?;
            sink.begin(plan, one_clock)?;
        }
        Ok(())
    }

    fn spawn_sources(
        self: &Arc<Self>,
        run: &Arc<Run>,
        state: &mut State,
        plan: Plan,
    ) -> Result<()> {
        let sources = match &self.ends {
            Some(ends) => ends.sources(&plan, &state.targets)?,
            None => self.socket_sources(&state.targets)?,
        };
        for (thread, mut source) in sources.into_iter().enumerate() {
            state.sending += 1;
            let (own, runs) = (Arc::clone(run), Arc::clone(self));
            // Not joined: it ends with the run, and adds its counts.
            let spawned = thread::Builder::new().name("source".to_owned()).spawn(move || {
                let meter = &runs.traffic[thread % runs.traffic.len()];
                let gauge = Gauge { sent: &meter.sent, halt: &own.halt };
                let sent = source.run(&plan, gauge).unwrap_or_default();
                let mut state = own.state();
                state.sent.add(&sent);
                state.sending -= 1;
            });
            if let Err(error) = spawned {
                run.end();
                return Err(error).context("a thread to send");
            }
        }
        Ok(())
    }

    /// One source for each socket, with its part of the flows.
    fn socket_sources(&self, targets: &[Target]) -> Result<Vec<Box<dyn Source>>> {
        let sockets = self.sockets();
        let threads = sockets.len();
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        for (thread, socket) in sockets.iter().enumerate().take(targets.len()) {
            let own: Vec<_> = targets.iter().skip(thread).step_by(threads).copied().collect();
            let socket = socket.try_clone().context("a second handle of a socket")?;
            sources.push(Box::new(SocketSource::of_peer(socket, &own)));
        }
        Ok(sources)
    }

    /// Counts so far.
    pub(super) fn report(&self, run: &Run) -> Report {
        let state = run.state();
        let mut tally = run.counts.tally().unwrap_or_default();
        let other = self.ends.as_ref().and_then(|ends| ends.sink().tally().ok());
        if let Some(other) = other {
            tally.add(&other);
        }
        let Sent { sent, refused, scheduled, missed } = state.sent;
        let sends = state.plan.is_some_and(|p| p.spec.direction == Direction::PeerToClient);
        Report {
            done: state.plan.is_some() && state.sending == 0,
            so_far: if sends { self.sent() - state.sent_before } else { tally.received },
            sent,
            refused,
            scheduled,
            missed,
            delivered: tally.delivered,
            duplicates: tally.duplicates,
            reordered: tally.reordered,
            damaged: tally.damaged,
            dropped: self.dropped().saturating_sub(state.dropped_before),
            latency: Latency::of(&tally.latency),
        }
    }

    /// Removes silent runs.
    pub(super) fn sweep(&self, now: u64) {
        self.runs().retain(|_, run| {
            let silent = now.saturating_sub(run.heard.load(Relaxed)) > SILENCE_NANOS_MAX;
            if silent {
                run.end();
            }
            !run.ended()
        });
    }

    /// The address of the sockets.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}
