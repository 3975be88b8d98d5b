//! `steps`: what is done in the clients' host, in one process with one set of sessions.
//!
//! A plan comes in on standard input; for each of its steps one line goes out before and one after.

use std::io::{Write as _, stdin, stdout};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
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
use crate::requests::{self, Kind, RequestSpec};
use crate::session::SessionOptions;
use crate::traffic::{Backend, TrafficSpec, Transport};

/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(20);
/// How long an answer is waited for before it is asked again.
const ANSWER: Duration = Duration::from_millis(50);

/// Before what failed is tried once more.
const PAUSE: Duration = Duration::from_secs(2);

/// Receive buffer of each session.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Exchanges at the same time when as many allocations are wanted as there can be.
const IN_FLIGHT: u32 = 64;
/// Allocations whose memory is measured: enough that what a server takes at a time, such as a block
/// for a hundred of them, is not seen.
const FOOTPRINT: u32 = 5000;
/// The part of the packets that may be lost at a rate that a server is said to deliver: more than
/// is lost when something else takes a core for a moment, less than when a server cannot follow.
const LOSS_MAX: f64 = 0.01;
/// Over streams, where such a moment is made up for.
const STREAM_LOSS_MAX: f64 = 0.001;
/// A run that does not count, and its packets per second.
const WARM_UP: Duration = Duration::from_millis(500);
const WARM_UP_RATE: u32 = 20_000;

/// Does what the plan on standard input says.
///
/// # Errors
/// A plan that cannot be read, a server that does not answer, sessions that it does not open. What
/// goes wrong in one step is an answer.
pub(crate) fn run() -> Result<()> {
    let plan: Plan = serde_json::from_reader(stdin().lock())
        .context("the plan on standard input: this command is run by `turnpike-bench compare`")?;
    match plan.transport {
        Transport::Udp | Transport::Dtls => wait_until_it_answers(plan.server)?,
        Transport::Tcp | Transport::Tls | Transport::Tls12 => wait_until_it_listens(plan.server)?,
    }
    let mut runner = Runner { bench: open(&plan)?, plan: &plan };
    for step in &plan.steps {
        say(&Answer::Begun(*step))?;
        let outcome = runner.step(step).or_else(|_| {
            // Whatever an overload left in queues, or something else did to this machine, may be
            // over in a moment.
            std::thread::sleep(PAUSE);
            runner.step(step)
        });
        say(&match outcome {
            Ok(outcome) => Answer::Done(outcome.map(Box::new)),
            Err(error) => Answer::Failed(format!("{error:#}")),
        })?;
    }
    if let Some(bench) = runner.bench {
        // The server ends next: what it did not confirm ends with it.
        let _unconfirmed = bench.close();
    }
    Ok(())
}

fn say(answer: &Answer) -> Result<()> {
    let line = serde_json::to_string(answer).context("an answer as JSON")?;
    let mut out = stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("standard output")
}

/// Asks for a STUN Binding until there is an answer.
fn wait_until_it_answers(server: SocketAddr) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("opening a socket")?;
    socket.connect(server).context("the way to the server")?;
    socket.set_read_timeout(Some(ANSWER)).context("a socket's patience")?;
    let mut request = [0; 20];
    let id = TransactionId(random_bytes());
    let builder = MessageBuilder::new(&mut request, Class::Request, Method::BINDING, id);
    builder.finish().context("a Binding request is 20 bytes")?;
    let begun = Instant::now();
    let mut answer = [0; 1500];
    while begun.elapsed() < START_MAX {
        // Nobody listens yet: the kernel says so at the next call.
        if socket.send(&request).is_err() {
            std::thread::sleep(ANSWER);
            continue;
        }
        match socket.recv(&mut answer) {
            Ok(_) => return Ok(()),
            Err(_) => std::thread::sleep(ANSWER),
        }
    }
    bail!("in {START_MAX:?} after its start the server did not answer a STUN Binding at {server}")
}

/// Connects until somebody takes the connection.
fn wait_until_it_listens(server: SocketAddr) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < START_MAX {
        if TcpStream::connect_timeout(&server, START_MAX).is_ok() {
            return Ok(());
        }
        std::thread::sleep(ANSWER);
    }
    bail!("in {START_MAX:?} after its start the server did not listen for connections at {server}")
}

fn open(plan: &Plan) -> Result<Option<Bench>> {
    let sessions = plan.steps.iter().map(|step| step.cell.flows()).max().unwrap_or(0);
    if sessions == 0 {
        return Ok(None);
    }
    let options = BenchOptions {
        sessions: SessionOptions {
            sessions,
            receive_buffer: RECEIVE_BUFFER,
            ..session_options(plan)
        },
        senders: plan.threads,
        receivers: plan.threads,
        watched: plan.watched.clone(),
        quiet: true,
    };
    // Before the sessions: a link that cannot be used is told at once.
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

fn session_options(plan: &Plan) -> SessionOptions {
    SessionOptions {
        transport: plan.transport,
        ..SessionOptions::new(plan.server, plan.login.login(), plan.peer)
    }
}

struct Runner<'p> {
    plan: &'p Plan,
    bench: Option<Bench>,
}

impl Runner<'_> {
    fn step(&mut self, step: &Step) -> Result<Option<Outcome>> {
        match (step.cell, step.task) {
            (cell @ Cell::Traffic { .. }, task) => self.traffic(cell, task),
            (Cell::Allocations, Task::Most { .. }) => self.allocations(None).map(Some),
            (Cell::Allocations, Task::CommonRate(rate)) => self.allocations(Some(rate)).map(Some),
            (Cell::Footprint, Task::Memory) => self.footprint().map(Some),
            (Cell::Allocations | Cell::Footprint, Task::WarmUp) => Ok(None),
            (Cell::Allocations, Task::Memory)
            | (Cell::Footprint, Task::Most { .. } | Task::CommonRate(_)) => {
                bail!("{} is not measured by {}", step.cell, step.task.name())
            }
        }
    }

    fn traffic(&mut self, cell: Cell, task: Task) -> Result<Option<Outcome>> {
        let Cell::Traffic { shape, flows, direction, size } = cell else {
            bail!("{cell} is no traffic");
        };
        let bench = self.bench.as_mut().context("there are no sessions")?;
        let (times, backend) = (self.plan.times, self.plan.backend);
        let (warm_up, duration) = (times.warm_up, times.measured);
        let traffic = TrafficSpec { shape, direction, size, rate: None, warm_up, duration };
        match task {
            Task::WarmUp => {
                let rate = Some(WARM_UP_RATE);
                let (warm_up, duration) = (Duration::ZERO, WARM_UP);
                let spec = TrafficSpec { rate, warm_up, duration, ..traffic };
                bench.run(&spec, flows, backend)?;
                Ok(None)
            }
            Task::Most { near } => {
                let is_stream = self.plan.transport.is_stream();
                let loss_max = if is_stream { STREAM_LOSS_MAX } else { LOSS_MAX };
                let spec = FindMaxSpec { traffic, loss_max, step: times.attempt, near };
                Ok(Some(Outcome::FindMax(bench.find_max(&spec, flows, backend)?)))
            }
            Task::CommonRate(rate) => {
                let spec = TrafficSpec { rate: Some(rate), ..traffic };
                Ok(Some(Outcome::Traffic(bench.run(&spec, flows, backend)?)))
            }
            Task::Memory => bail!("{cell} is not measured by its memory"),
        }
    }

    fn allocations(&self, rate: Option<u32>) -> Result<Outcome> {
        let spec = RequestSpec {
            kind: Kind::Allocation { release: true },
            server: self.plan.server,
            transport: self.plan.transport,
            local: None,
            login: Some(self.plan.login.login()),
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

    fn footprint(&self) -> Result<Outcome> {
        let sessions = SessionOptions { sessions: FOOTPRINT, ..session_options(self.plan) };
        let spec = FootprintSpec { sessions, pid: self.plan.watched.process, channels: false };
        footprint::measure(&spec).map(Outcome::Footprint)
    }
}
