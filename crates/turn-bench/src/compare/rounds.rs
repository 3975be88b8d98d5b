//! Rounds: in each, every server has its turn. A discarded calibration before them finds the
//! highest rate of each server, and from it the fixed load for all.

use std::iter;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};

use super::ceiling::Forwarding;
use super::cells::Cell;
use super::cores::Cores;
use super::host::{Ends, FIRST_PEER, Host};
use super::network::Network;
use super::plan::{Answer, Plan, Step, Task, Times};
use super::progress::Progress;
use super::servers::{Prepared, ServerKind, ServerSpec, Terms};
use super::summary;
use super::turn::{self, Running};
use crate::cpu::{Watch, Watched};
use crate::outcome::{ComparedCell, RawStep};
use crate::session::LoginArgs;
use crate::traffic::{Backend, Transport};

/// Port of the peer.
pub(super) const PEER_PORT: u16 = 7000;

/// Begin of the first search, in packets per second: below the limit of any server, since a flooded
/// server recovers slowly.
const FIRST_GUESS: u32 = 50_000;
/// The same over streams.
const FIRST_STREAM_GUESS: u32 = 20_000;

/// The ceiling is searched again while it is not this many times the best server's rate: a
/// disturbed search ends too low.
const CLEAR: f64 = 1.5;
/// Most searches for the ceiling.
const CEILING_SEARCHES: u32 = 3;
/// Searches for the highest rate of each server in the calibration; the best one counts.
const CALIBRATIONS: u32 = 2;
/// Niceness of a peer that shares a core with the clients: ten steps of a quarter each.
const PEER_NICENESS: &str = "10";

/// A comparison.
pub(super) struct Comparison<'a> {
    pub(super) network: &'a Network,
    pub(super) terms: &'a Terms,
    pub(super) servers: &'a [(ServerSpec, Prepared)],
    pub(super) cells: &'a [Cell],
    pub(super) rounds: u32,
    /// The fixed load as a share of the slowest server's highest rate.
    pub(super) common: f64,
    pub(super) ends: Ends,
    pub(super) transport: Transport,
    pub(super) times: Times,
    /// The highest rate that is tried, in packets per second.
    pub(super) rate_max: Option<u32>,
}

/// Results of a comparison.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) raw: Vec<RawStep>,
    pub(super) failures: Vec<String>,
    pub(super) cells: Vec<ComparedCell>,
}

/// Highest rates of a server in the calibration, for each cell.
type Highest = Vec<Option<f64>>;

impl Comparison<'_> {
    /// Runs all rounds.
    ///
    /// # Errors
    /// A server that fails in the calibration. Later failures are part of the results.
    pub(super) fn run(&self, progress: &mut Progress) -> Result<Results> {
        let mut results = Results::default();
        // A disturbed search ends too low, and the slowest server's sets the load of all.
        for _ in 0..CALIBRATIONS {
            for server in 0..self.servers.len() {
                let steps = self.calibration(&self.highest(server, &results.raw));
                self.turn((0, server), &steps, progress, &mut results)?;
            }
        }
        let highest: Vec<Highest> =
            (0..self.servers.len()).map(|server| self.highest(server, &results.raw)).collect();
        let rates = common_rates(self.cells.len(), &highest, self.common);
        for round in 1..=self.rounds {
            for (server, highest) in highest.iter().enumerate() {
                // Memory is measured on a server that has done nothing yet.
                for steps in [self.footprint(), self.steps(highest, &rates)] {
                    let turn = self.turn((round, server), &steps, progress, &mut results);
                    if let Err(error) = turn {
                        results.fail(progress, format!("{error:#}"));
                    }
                }
            }
        }
        if let Err(error) = self.ceiling(progress, &mut results) {
            results.fail(progress, format!("the load tool alone: {error:#}"));
        }
        let size = (self.servers.len(), self.rounds);
        let cells = self.cells.iter().zip(&rates);
        let summarise = |(cell, rate): (&Cell, &Option<u32>)| {
            summary::summarise((*cell, self.transport), *rate, size, &results.raw)
        };
        results.cells = cells.map(summarise).collect();
        Ok(results)
    }

    /// Estimated time in seconds.
    pub(super) fn estimate(&self) -> f64 {
        let turn = |steps: &[Step]| match steps {
            [] => 0.0,
            steps => TURN_SECONDS + steps.iter().map(|step| self.seconds(step)).sum::<f64>(),
        };
        let known = vec![Some(1.0); self.cells.len()];
        let steps = self.steps(&known, &vec![Some(1); self.cells.len()]);
        let round = turn(&self.footprint()) + turn(&steps);
        let servers = self.servers.len() as f64;
        let again = f64::from(CALIBRATIONS - 1) * turn(&self.calibration(&known));
        turn(&self.ceiling_steps())
            + servers * (turn(&self.calibration(&[])) + again + f64::from(self.rounds) * round)
    }

    /// Estimated time of a step in seconds.
    fn seconds(&self, step: &Step) -> f64 {
        let seconds = |time: std::time::Duration| time.as_secs_f64() + RUN_SECONDS;
        let run = self.times.warm_up.as_secs_f64() + seconds(self.times.measured);
        let guesses = [None, Some(FIRST_GUESS), Some(FIRST_STREAM_GUESS)];
        match (step.cell, step.task) {
            (Cell::Traffic { .. }, Task::Most { near }) => {
                let tries = match self.rate_max {
                    Some(_) => 1.0,
                    None if guesses.contains(&near) => 14.0,
                    None => 5.0,
                };
                tries * seconds(self.times.attempt) + run
            }
            (_, Task::WarmUp) => 1.0,
            (_, Task::Memory) => 5.0,
            (_, Task::Most { .. } | Task::CommonRate(_)) => run,
        }
    }

    /// Steps of the calibration: searches that begin at what is known.
    fn calibration(&self, known: &[Option<f64>]) -> Vec<Step> {
        let guess = if self.transport.is_stream() { FIRST_STREAM_GUESS } else { FIRST_GUESS };
        let known = known.iter().copied().chain(iter::repeat(None));
        let cells = self.cells.iter().zip(known);
        let cells = cells.filter(|(cell, _)| !matches!(cell, Cell::Footprint));
        let most = cells.map(|(cell, known)| {
            let near = Some(known.map_or(guess, whole));
            Step { cell: *cell, task: Task::Most { near } }
        });
        self.warm_up().into_iter().chain(most).collect()
    }

    /// Steps on a fresh server.
    fn footprint(&self) -> Vec<Step> {
        let cells = self.cells.iter().filter(|cell| matches!(cell, Cell::Footprint));
        cells.map(|cell| Step { cell: *cell, task: Task::Memory }).collect()
    }

    /// The other steps of a round.
    fn steps(&self, highest: &Highest, rates: &[Option<u32>]) -> Vec<Step> {
        let mut steps: Vec<_> = self.warm_up().into_iter().collect();
        for ((cell, most), rate) in self.cells.iter().zip(highest).zip(rates) {
            if !matches!(cell, Cell::Footprint) {
                // Without a result of the calibration the search begins anew.
                steps.push(Step { cell: *cell, task: Task::Most { near: most.map(whole) } });
                let fixed = rate.map(|rate| Step { cell: *cell, task: Task::CommonRate(rate) });
                steps.extend(fixed);
            }
        }
        steps
    }

    /// Steps of the load tool alone: none with sockets, since forwarded packets are addressed to
    /// none.
    fn ceiling_steps(&self) -> Vec<Step> {
        let frames = Ends { client: Backend::Frames, peer: Backend::Frames };
        let takes_part = self.servers.iter().any(|(spec, _)| spec.kind == ServerKind::Bare);
        if self.ends != frames || takes_part {
            return Vec::new();
        }
        let traffic = |step: &Step| matches!(step.cell, Cell::Traffic { .. });
        self.calibration(&[]).into_iter().filter(traffic).collect()
    }

    /// Searches the highest rates with a forwarder in place of the server.
    fn ceiling(&self, progress: &mut Progress, results: &mut Results) -> Result<()> {
        let mut steps = self.ceiling_steps();
        if steps.is_empty() {
            return Ok(());
        }
        // The search begins at the best server's rate.
        for step in &mut steps {
            if let Task::Most { near } = &mut step.task {
                let best = summary::best(&step.cell.to_string(), results.raw.iter());
                *near = best.map(whole).or(*near);
            }
        }
        let forwarding = Forwarding::begin(self.network)?;
        let mut alone = Results::default();
        let searches = self.rate_max.map_or(CEILING_SEARCHES, |_| 1);
        for _ in 0..searches {
            if let Err(error) = self.turn((0, 0), &steps, progress, &mut alone) {
                // Earlier results remain.
                alone.failures.push(format!("the load tool alone: {error:#}"));
                break;
            }
            steps.retain(|step| {
                let name = step.cell.to_string();
                let best = |raw: &[RawStep]| summary::best(&name, raw.iter()).unwrap_or(0.0);
                best(&alone.raw) < CLEAR * best(&results.raw)
            });
        }
        forwarding.end();
        let server = self.servers.len();
        results.raw.extend(alone.raw.into_iter().map(|step| RawStep { server, ..step }));
        results.failures.extend(alone.failures);
        Ok(())
    }

    fn warm_up(&self) -> Option<Step> {
        let traffic = self.cells.iter().find(|cell| matches!(cell, Cell::Traffic { .. }));
        traffic.map(|cell| Step { cell: *cell, task: Task::WarmUp })
    }

    fn highest(&self, server: usize, raw: &[RawStep]) -> Highest {
        let most = |cell: &Cell| {
            let name = cell.to_string();
            let steps = raw.iter().filter(|step| step.server == server);
            summary::best(&name, steps).filter(|most| *most > 0.0)
        };
        self.cells.iter().map(most).collect()
    }

    fn turn(
        &self,
        (round, server): (u32, usize),
        steps: &[Step],
        progress: &mut Progress,
        results: &mut Results,
    ) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        let (spec, prepared) = &self.servers[server];
        progress.turn(round, &spec.name);
        let forwarding = match spec.kind {
            ServerKind::Bare => Some(Forwarding::begin(self.network)?),
            ServerKind::Turnpike(..) | ServerKind::Coturn(..) | ServerKind::Command(_) => None,
        };
        let mut peer = self.start_peer()?;
        let done = turn::take(
            self.network,
            spec,
            prepared,
            |process, kernel| Plan { kernel_memory: kernel, ..self.plan(process, prepared, steps) },
            |answer| match answer {
                Answer::Begun(step) => progress.begun(&step),
                Answer::Done(step, outcome) => {
                    progress.done(self.seconds(&step));
                    results.raw.extend(outcome.map(|outcome| RawStep {
                        round,
                        server,
                        cell: step.cell.to_string(),
                        step: step.task.name().to_owned(),
                        outcome: *outcome,
                    }));
                }
                Answer::Failed(step, reason) => {
                    progress.done(self.seconds(&step));
                    let task = step.task.name();
                    let failure = format!("round {round}, {spec}, {}, {task}: {reason}", step.cell);
                    results.fail(progress, failure);
                }
            },
        );
        progress.done(TURN_SECONDS);
        if let Some(forwarding) = forwarding {
            forwarding.end();
        }
        // A peer that died is the cause of other failures.
        if let Some(status) = peer.ended() {
            bail!("round {round}, {spec}: the peer ended: {status}; {}", peer.last_output());
        }
        done.with_context(|| format!("round {round}, {spec}"))
    }

    fn start_peer(&self) -> Result<Running> {
        let own = std::env::current_exe().context("finding this program")?;
        let Cores { client, peer, .. } = self.network.cores();
        let frames = self.ends.peer == Backend::Frames;
        // A peer that sends frames polls the clock, and would keep clients with connections, which
        // have to wake up to receive, from a shared core.
        let shared = peer.iter().any(|core| client.contains(core));
        let mut command = if shared && frames && self.transport.has_connections() {
            let mut command = self.network.command(Host::Peer, "nice")?;
            command.args(["-n", PEER_NICENESS]).arg(own);
            command
        } else {
            self.network.command(Host::Peer, own)?
        };
        command.args(["peer", "--listen", &format!("0.0.0.0:{PEER_PORT}")]);
        command.args(["--threads", &peer.len().to_string()]);
        if frames {
            let interface = self.network.interface(Host::Peer, Host::Server);
            command.args(["--interface", &interface]);
        }
        Running::start(command, self.network.directory().join("peer.log"))
    }

    fn plan(&self, process: u32, prepared: &Prepared, steps: &[Step]) -> Plan {
        let (terms, cores) = (self.terms, self.network.cores());
        let (user, secret) = (Some(terms.user.clone()), Some(terms.secret.clone()));
        let login = if prepared.knows_secret {
            LoginArgs { user, password: None, secret }
        } else {
            LoginArgs { user, password: secret, secret: None }
        };
        let mut watched: Vec<Watch> = Vec::new();
        for host in [Host::Server, Host::Client, Host::Peer] {
            for &core in cores.of(host) {
                // A core that clients and peer share is watched once.
                if watched.iter().all(|watch| watch.core != core) {
                    watched.push(Watch { role: host.name().to_owned(), core });
                }
            }
        }
        Plan {
            server: terms.clients_connect_to(),
            transport: self.transport,
            peer: SocketAddr::from((FIRST_PEER, PEER_PORT)),
            login,
            backend: self.ends.client,
            interface: self.network.interface(Host::Client, Host::Server),
            threads: cores.client.len(),
            watched: Watched { cores: watched, process: Some(process) },
            kernel_memory: None,
            times: self.times,
            rate_max: self.rate_max,
            steps: steps.to_vec(),
        }
    }
}

impl Results {
    fn fail(&mut self, progress: &Progress, failure: String) {
        progress.line(&failure);
        self.failures.push(failure);
    }
}

/// The fixed load of each cell, this share of the slowest server's highest rate; `None` where a
/// server has none.
fn common_rates(cells: usize, highest: &[Highest], share: f64) -> Vec<Option<u32>> {
    let slowest = |cell: usize| {
        let rates: Option<Vec<f64>> = highest.iter().map(|rates| rates[cell]).collect();
        rates?.into_iter().min_by(f64::total_cmp)
    };
    (0..cells).map(|cell| slowest(cell).map(|most| whole(most * share))).collect()
}

/// A rate in whole packets or requests per second, 1 or more.
fn whole(rate: f64) -> u32 {
    (rate.round() as u32).max(1)
}

/// Estimate of a turn without its steps: start and stop of a server, sessions. In seconds.
const TURN_SECONDS: f64 = 3.0;
/// Estimate of a run beside its measured time, in seconds.
const RUN_SECONDS: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_load_is_a_share_of_the_slowest_server() {
        let highest =
            [vec![Some(300.0), Some(9.0), None], vec![Some(100.4), Some(11.0), Some(5.0)]];
        assert_eq!(common_rates(3, &highest, 0.5), [Some(50), Some(5), None]);
        assert_eq!(common_rates(1, &[vec![Some(0.1)]], 0.5), [Some(1)]);
    }
}
