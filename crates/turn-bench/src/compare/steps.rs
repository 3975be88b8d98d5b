//! `steps`: the measurements on the clients' host, in one process with one set of sessions.
//!
//! A plan comes on standard input; each of its steps is reported before and after it.

use std::io::{Write as _, stdin, stdout};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use linux_net::random_bytes;
use stun_wire::{Class, MessageBuilder, Method, TransactionId};
use turn_types::IpFamily;

use super::cells::Cell;
use super::plan::{Answer, Plan, Step, Task};
use crate::engine::{Bench, BenchOptions, FindMaxSpec};
use crate::footprint::{self, FootprintSpec};
use crate::frames::{End, FrameEnds};
use crate::outcome::Outcome;
use crate::packets::RECEIVE_BUFFER;
use crate::requests::{self, Kind, RequestSpec};
use crate::session::{IN_FLIGHT, SessionOptions};
use crate::traffic::{Backend, TrafficSpec};

/// Time for a server to start.
const START_MAX: Duration = Duration::from_secs(20);
/// Wait for an answer before the next try.
const ANSWER: Duration = Duration::from_millis(50);

/// Pause before a failed step is repeated.
const PAUSE: Duration = Duration::from_secs(2);

/// Allocations whose memory is measured: enough to hide memory that a server allocates in blocks,
/// such as for a hundred of them.
const FOOTPRINT: u32 = 5000;
/// Acceptable loss at a rate: more than is lost when something else takes a core for a moment, less
/// than when a server cannot follow.
const LOSS_MAX: f64 = 0.01;
/// The same over streams, which recover from such a moment.
const STREAM_LOSS_MAX: f64 = 0.001;
/// A discarded run, and its packets per second.
const WARM_UP: Duration = Duration::from_millis(500);
const WARM_UP_RATE: u32 = 20_000;

/// Runs the plan on standard input.
///
/// # Errors
/// A plan that cannot be read, a server that does not answer, sessions that it refuses. A failed
/// step is an answer.
pub(crate) fn run() -> Result<()> {
    let plan: Plan = serde_json::from_reader(stdin().lock())
        .context("the plan on standard input: this command is run by `turnpike-bench compare`")?;
    wait_for(&plan)?;
    let mut runner = Runner { bench: open(&plan)?, plan: &plan };
    for step in &plan.steps {
        report(&Answer::Begun(*step))?;
        let outcome = runner.step(step).or_else(|_| {
            // An overload of queues, or of this machine, may be over in a moment.
            sleep(PAUSE);
            runner.step(step)
        });
        report(&match outcome {
            Ok(outcome) => Answer::Done(*step, outcome.map(Box::new)),
            Err(error) => Answer::Failed(*step, format!("{error:#}")),
        })?;
    }
    if let Some(bench) = runner.bench {
        // Unconfirmed allocations end with the server.
        let _unconfirmed = bench.close();
    }
    Ok(())
}

fn report(answer: &Answer) -> Result<()> {
    let line = serde_json::to_string(answer).context("an answer as JSON")?;
    let mut out = stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("standard output")
}

/// Waits until the server accepts connections, or answers a STUN Binding over UDP.
fn wait_for(plan: &Plan) -> Result<()> {
    let (server, begun) = (plan.server, Instant::now());
    let answers = || {
        if plan.transport.is_stream() {
            return TcpStream::connect_timeout(&server, START_MAX).is_ok();
        }
        answers_binding(server).unwrap_or(false)
    };
    while !answers() {
        ensure!(
            begun.elapsed() < START_MAX,
            "in {START_MAX:?} after its start the server did not answer at {server}"
        );
        sleep(ANSWER);
    }
    Ok(())
}

fn answers_binding(server: SocketAddr) -> Result<bool> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(ANSWER))?;
    let mut request = [0; 20];
    let id = TransactionId(random_bytes());
    let builder = MessageBuilder::new(&mut request, Class::Request, Method::BINDING, id);
    builder.finish().context("a Binding request")?;
    socket.send(&request)?;
    Ok(socket.recv(&mut [0; 1500]).is_ok())
}

fn open(plan: &Plan) -> Result<Option<Bench>> {
    let sessions = plan.steps.iter().map(|step| step.cell.flows()).max().unwrap_or(0);
    if sessions == 0 {
        return Ok(None);
    }
    let options = session_options(plan, sessions)?;
    let options = BenchOptions {
        sessions: SessionOptions { receive_buffer: RECEIVE_BUFFER, ..options },
        senders: plan.threads,
        receivers: plan.threads,
        watched: plan.watched.clone(),
        quiet: true,
    };
    // Before the sessions: an unusable link is reported at once.
    let ends = match plan.backend {
        Backend::Sockets => None,
        Backend::Frames => Some(FrameEnds::open(&plan.interface, End::Client, plan.threads)?),
    };
    let mut bench = Bench::open(&options)?;
    if let Some(ends) = ends {
        bench.with_frames(Box::new(ends));
    }
    Ok(Some(bench))
}

fn session_options(plan: &Plan, sessions: u32) -> Result<SessionOptions> {
    let options = SessionOptions::new(plan.server, plan.login.login()?, plan.peer);
    Ok(SessionOptions { transport: plan.transport, sessions, peer_each: true, ..options })
}

struct Runner<'p> {
    plan: &'p Plan,
    bench: Option<Bench>,
}

impl Runner<'_> {
    fn step(&mut self, step: &Step) -> Result<Option<Outcome>> {
        match (step.cell, step.task) {
            (Cell::Traffic { shape, flows, direction, size }, task) => {
                let (warm_up, duration) = (self.plan.times.warm_up, self.plan.times.measured);
                let rate = None;
                let spec = TrafficSpec { shape, direction, size, rate, warm_up, duration };
                self.traffic(spec, flows, task)
            }
            (Cell::Allocations, Task::Most { .. }) => self.allocations(None).map(Some),
            (Cell::Allocations, Task::CommonRate(rate)) => self.allocations(Some(rate)).map(Some),
            (Cell::Footprint, Task::Memory) => {
                let sessions = session_options(self.plan, FOOTPRINT)?;
                let pid = self.plan.watched.process;
                let kernel = self.plan.kernel_memory.clone();
                let spec = FootprintSpec { sessions, pid, channels: false, kernel };
                Ok(Some(Outcome::Footprint(footprint::measure(&spec)?)))
            }
            (Cell::Allocations | Cell::Footprint, task) => {
                bail!("{} is not measured by {}", step.cell, task.name())
            }
        }
    }

    fn traffic(&mut self, spec: TrafficSpec, flows: u32, task: Task) -> Result<Option<Outcome>> {
        let bench = self.bench.as_mut().context("there are no sessions")?;
        let backend = self.plan.backend;
        match task {
            Task::WarmUp => {
                let (warm_up, duration) = (Duration::ZERO, WARM_UP);
                let rate = Some(WARM_UP_RATE);
                bench.run(&TrafficSpec { rate, warm_up, duration, ..spec }, flows, backend)?;
                Ok(None)
            }
            Task::Most { near } => {
                let is_stream = self.plan.transport.is_stream();
                let loss_max = if is_stream { STREAM_LOSS_MAX } else { LOSS_MAX };
                let step = self.plan.times.attempt;
                let rate_max = self.plan.rate_max;
                let spec = FindMaxSpec { traffic: spec, loss_max, step, near, rate_max };
                Ok(Some(Outcome::FindMax(bench.find_max(&spec, flows, backend)?)))
            }
            Task::CommonRate(rate) => {
                let spec = TrafficSpec { rate: Some(rate), ..spec };
                Ok(Some(Outcome::Traffic(bench.run(&spec, flows, backend)?)))
            }
            Task::Memory => bail!("packets are not measured by their memory"),
        }
    }

    fn allocations(&self, rate: Option<u32>) -> Result<Outcome> {
        let spec = RequestSpec {
            kind: Kind::Allocation { release: true },
            server: self.plan.server,
            transport: self.plan.transport,
            local: None,
            login: Some(self.plan.login.login()?),
            family: IpFamily::V4,
            in_flight: IN_FLIGHT,
            threads: u32::try_from(self.plan.threads).context("threads")?,
            rate,
            warm_up: self.plan.times.warm_up,
            duration: self.plan.times.measured,
        };
        let requests = requests::run(&spec, &self.plan.watched)?;
        ensure!(requests.succeeded > 0, "no allocation succeeded: {:?}", requests.failed);
        Ok(Outcome::Requests(requests))
    }
}
