//! Rounds: in each, every server has its turn. Before those that count there is one in which it is
//! found out what each can do, and from it the rate that all are given alike.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};

use super::ceiling::Forwarding;
use super::cells::Cell;
use super::cores::Cores;
use super::host::{Ends, Host, PEER};
use super::network::Network;
use super::plan::{Plan, PlannedLogin, Step, Task, Times};
use super::progress::Progress;
use super::servers::{Prepared, ServerKind, ServerSpec, Terms};
use super::summary;
use super::turn::{self, News, Running};
use crate::cpu::{Watch, Watched};
use crate::outcome::{ComparedCell, RawStep};
use crate::traffic::{Backend, Transport};

/// Where the peer is.
pub(super) const PEER_PORT: u16 = 7000;

/// Where the first search begins, in packets per second: below what any server can do, since what
/// drowns in packets takes long to answer again.
const FIRST_GUESS: u32 = 50_000;
/// The same over streams.
const FIRST_STREAM_GUESS: u32 = 20_000;

/// What the generator can do alone is searched again while it is not this many times what the best
/// server did: a search that was disturbed ends too low.
const CLEAR: f64 = 1.5;
/// How much sooner the clients get a core that the peer shares: ten steps of a quarter each.
const PEER_NICENESS: &str = "10";
/// How often what the generator can do alone is searched, at most.
const CEILING_SEARCHES: u32 = 3;

/// What is compared, and how.
pub(super) struct Comparison<'a> {
    pub(super) network: &'a Network,
    pub(super) terms: &'a Terms,
    pub(super) servers: &'a [(ServerSpec, Prepared)],
    pub(super) cells: &'a [Cell],
    pub(super) rounds: u32,
    /// The common rate to what the slowest server can do.
    pub(super) common: f64,
    pub(super) ends: Ends,
    pub(super) transport: Transport,
    pub(super) times: Times,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) raw: Vec<RawStep>,
    pub(super) failures: Vec<String>,
    pub(super) cells: Vec<ComparedCell>,
}

/// What a server did at most in the first round, for each cell.
type Mosts = Vec<Option<f64>>;

impl Comparison<'_> {
    /// All of it.
    ///
    /// # Errors
    /// A server that cannot even take its first turn. What fails later is told beside the results.
    pub(super) fn run(&self, progress: &mut Progress) -> Result<Results> {
        let mut results = Results::default();
        let calibration = self.calibration();
        for server in 0..self.servers.len() {
            self.turn((0, server), &calibration, progress, &mut results)?;
        }
        let mosts: Vec<Mosts> =
            (0..self.servers.len()).map(|server| self.mosts(server, &results.raw)).collect();
        let rates = common_rates(self.cells.len(), &mosts, self.common);
        for round in 1..=self.rounds {
            for (server, mosts) in mosts.iter().enumerate() {
                for steps in [self.footprint(), self.steps(mosts, &rates)] {
                    self.turn((round, server), &steps, progress, &mut results).unwrap_or_else(
                        |error| {
                            let failure = format!("{error:#}");
                            progress.say(&failure);
                            results.failures.push(failure);
                        },
                    );
                }
            }
        }
        self.ceiling(progress, &mut results).unwrap_or_else(|error| {
            results.failures.push(format!("the generator alone: {error:#}"));
        });
        let size = (self.servers.len(), self.rounds);
        results.cells = self
            .cells
            .iter()
            .zip(&rates)
            .map(|(cell, rate)| {
                summary::summarise((*cell, self.transport), *rate, size, &results.raw)
            })
            .collect();
        Ok(results)
    }

    /// How long all of it takes, about, in seconds.
    pub(super) fn estimate(&self) -> f64 {
        let turn = |steps: &[Step]| match steps {
            [] => 0.0,
            steps => {
                TURN_SECONDS + steps.iter().map(|step| seconds(step, &self.times)).sum::<f64>()
            }
        };
        let known = vec![Some(1.0); self.cells.len()];
        let steps = self.steps(&known, &vec![Some(1); self.cells.len()]);
        let round = [self.footprint(), steps].iter().map(|steps| turn(steps)).sum::<f64>();
        let servers = self.servers.len() as f64;
        turn(&self.ceiling_steps())
            + servers * (turn(&self.calibration()) + f64::from(self.rounds) * round)
    }

    /// The steps of the round that does not count.
    fn calibration(&self) -> Vec<Step> {
        let near = if self.transport.is_stream() { FIRST_STREAM_GUESS } else { FIRST_GUESS };
        let most = |cell: &Cell| match cell {
            Cell::Traffic { .. } | Cell::Allocations => {
                Some(Step { cell: *cell, task: Task::Most { near: Some(near) } })
            }
            Cell::Footprint => None,
        };
        self.warm_up().into_iter().chain(self.cells.iter().filter_map(most)).collect()
    }

    /// The steps that want a server that has done nothing yet.
    fn footprint(&self) -> Vec<Step> {
        let cells = self.cells.iter().filter(|cell| matches!(cell, Cell::Footprint));
        cells.map(|cell| Step { cell: *cell, task: Task::Memory }).collect()
    }

    /// All other steps of a round that counts, for a server that could do so much.
    fn steps(&self, mosts: &Mosts, rates: &[Option<u32>]) -> Vec<Step> {
        let mut steps: Vec<_> = self.warm_up().into_iter().collect();
        for ((cell, most), rate) in self.cells.iter().zip(mosts).zip(rates) {
            match cell {
                Cell::Traffic { .. } | Cell::Allocations => {
                    // What did not work in the first round is tried again from the beginning.
                    steps.push(Step { cell: *cell, task: Task::Most { near: most.map(whole) } });
                    let common =
                        rate.map(|rate| Step { cell: *cell, task: Task::CommonRate(rate) });
                    steps.extend(common);
                }
                Cell::Footprint => {}
            }
        }
        steps
    }

    /// What is measured of the generator alone: with sockets nothing, since what is forwarded without
    /// a server is addressed to nobody's socket.
    fn ceiling_steps(&self) -> Vec<Step> {
        let traffic = |step: &Step| matches!(step.cell, Cell::Traffic { .. });
        match self.ends {
            // It takes part.
            _ if self.servers.iter().any(|(spec, _)| spec.kind == ServerKind::Bare) => Vec::new(),
            Ends { client: Backend::Frames, peer: Backend::Frames } => {
                self.calibration().into_iter().filter(traffic).collect()
            }
            _ => Vec::new(),
        }
    }

    /// All of what the generator can do, with a forwarder in the server's place.
    fn ceiling(&self, progress: &mut Progress, results: &mut Results) -> Result<()> {
        let mut steps = self.ceiling_steps();
        if steps.is_empty() {
            return Ok(());
        }
        // It can do what the best server did: the search begins there.
        for step in &mut steps {
            if let Task::Most { near } = &mut step.task {
                let best = summary::best(&step.cell.to_string(), results.raw.iter());
                *near = best.map(whole).or(*near);
            }
        }
        let forwarding = Forwarding::begin(self.network)?;
        let mut alone = Results::default();
        for _ in 0..CEILING_SEARCHES {
            if let Err(error) = self.turn((0, 0), &steps, progress, &mut alone) {
                // What was found before remains.
                alone.failures.push(format!("the generator alone: {error:#}"));
                break;
            }
            steps.retain(|step| {
                let name = step.cell.to_string();
                let best = |raw: &[RawStep]| summary::best(&name, raw.iter()).unwrap_or(0.0);
                best(&alone.raw) < CLEAR * best(&results.raw)
            });
        }
        forwarding.end();
        let place = self.servers.len();
        results.raw.extend(alone.raw.into_iter().map(|step| RawStep { server: place, ..step }));
        results.failures.extend(alone.failures);
        Ok(())
    }

    fn warm_up(&self) -> Option<Step> {
        let traffic = self.cells.iter().find(|cell| matches!(cell, Cell::Traffic { .. }));
        traffic.map(|cell| Step { cell: *cell, task: Task::WarmUp })
    }

    fn mosts(&self, server: usize, raw: &[RawStep]) -> Mosts {
        let most = |cell: &Cell| {
            let name = cell.to_string();
            let mut steps = raw.iter().filter(|step| step.server == server && step.cell == name);
            steps.find_map(|step| summary::most(&step.outcome)).filter(|most| *most > 0.0)
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
        let (spec, _) = &self.servers[server];
        progress.turn(round, spec);
        let forwarding = match spec.kind {
            ServerKind::Bare => Some(Forwarding::begin(self.network)?),
            ServerKind::Turnpike(..) | ServerKind::Coturn(_) | ServerKind::Command(_) => None,
        };
        let done = self.turn_with(server, (round, steps), progress, results);
        if let Some(forwarding) = forwarding {
            forwarding.end();
        }
        done.with_context(|| format!("round {round}, {spec}"))
    }

    fn turn_with(
        &self,
        server: usize,
        (round, steps): (u32, &[Step]),
        progress: &mut Progress,
        results: &mut Results,
    ) -> Result<()> {
        let (spec, prepared) = &self.servers[server];
        let mut peer = self.start_peer()?;
        let plan = |process| self.plan(process, prepared, steps);
        let tell = |news| match news {
            News::Begun(step) => progress.begun(&step),
            News::Done(step, outcome) => {
                progress.done(seconds(&step, &self.times));
                results.raw.push(RawStep {
                    round,
                    server,
                    cell: step.cell.to_string(),
                    step: step.task.name().to_owned(),
                    outcome: *outcome,
                });
            }
            News::Failed(step, why) => {
                progress.done(seconds(&step, &self.times));
                let failure =
                    format!("round {round}, {spec}, {}, {}: {why}", step.cell, step.task.name());
                progress.say(&failure);
                results.failures.push(failure);
            }
        };
        let done = turn::take(self.network, spec, prepared, plan, tell);
        progress.done(TURN_SECONDS);
        // What the peer died of is the cause of whatever else went wrong.
        if let Ok(Some(status)) = peer.ended() {
            bail!("the peer ended: {status}; it said {}", peer.said());
        }
        done
    }

    fn start_peer(&self) -> Result<Running> {
        let own = std::env::current_exe().context("finding this program")?;
        let cores = &self.network.cores().peer;
        let mut command = if self.peer_gives_way() {
            let mut command = self.network.command(Host::Peer, "nice")?;
            command.args(["-n", PEER_NICENESS]).arg(own);
            command
        } else {
            self.network.command(Host::Peer, own)?
        };
        command.args(["peer", "--listen", &format!("{PEER}:{PEER_PORT}")]);
        command.args(["--threads", &cores.len().to_string()]);
        if self.ends.peer == Backend::Frames {
            let interface = self.network.interface(Host::Peer, Host::Server);
            command.args(["--interface", &interface]);
        }
        Running::start(command, self.network.directory().join("peer.log"))
    }

    /// Whether the peer, which looks at the clock all the time where it sends frames, shares a core with
    /// clients that have to come to receive.
    fn peer_gives_way(&self) -> bool {
        let Cores { client, peer, .. } = self.network.cores();
        let shared = peer.iter().any(|core| client.contains(core));
        shared && self.ends.peer == Backend::Frames && self.transport.has_connections()
    }

    fn plan(&self, process: u32, prepared: &Prepared, steps: &[Step]) -> Plan {
        let (terms, cores) = (self.terms, self.network.cores());
        let user = terms.user.clone();
        let login = if prepared.knows_secret {
            PlannedLogin::Secret { user, secret: terms.secret.clone() }
        } else {
            PlannedLogin::Password { user, password: terms.password.clone() }
        };
        let watch = |host: Host| {
            let role = host.name();
            cores.of(host).iter().map(move |&core| Watch { role: role.to_owned(), core })
        };
        // A core that clients and peer share is watched once.
        let mut watched: Vec<Watch> = watch(Host::Server).chain(watch(Host::Client)).collect();
        let peers: Vec<Watch> = watch(Host::Peer)
            .filter(|peer| watched.iter().all(|watch| watch.core != peer.core))
            .collect();
        watched.extend(peers);
        Plan {
            server: terms.clients_connect_to(),
            transport: self.transport,
            peer: SocketAddr::from((PEER, PEER_PORT)),
            login,
            backend: self.ends.client,
            interface: self.network.interface(Host::Client, Host::Server),
            threads: cores.client.len(),
            watched: Watched { cores: watched, process: Some(process) },
            times: self.times,
            steps: steps.to_vec(),
        }
    }
}

/// The rate of each cell that every server can keep, this part of what the slowest does at most; `None`
/// where one of them could do nothing.
fn common_rates(cells: usize, mosts: &[Mosts], part: f64) -> Vec<Option<u32>> {
    let slowest = |cell: usize| {
        let mosts: Option<Vec<f64>> = mosts.iter().map(|mosts| mosts[cell]).collect();
        mosts?.into_iter().min_by(f64::total_cmp)
    };
    (0..cells).map(|cell| slowest(cell).map(|most| whole(most * part))).collect()
}

/// A rate in whole packets or requests per second, 1 or more.
fn whole(rate: f64) -> u32 {
    (rate.round() as u32).max(1)
}

/// Starting and stopping a server, and opening sessions, in seconds.
const TURN_SECONDS: f64 = 3.0;
/// What a run takes beside its own time: both ends agree, and wait for what is still under way.
const RUN_SECONDS: f64 = 0.6;

/// How long a step takes, about, in seconds.
fn seconds(step: &Step, times: &Times) -> f64 {
    let run = times.warm_up.as_secs_f64() + times.measured.as_secs_f64() + RUN_SECONDS;
    let tries = |count: f64| count * (times.attempt.as_secs_f64() + RUN_SECONDS);
    match (step.cell, step.task) {
        (
            Cell::Traffic { .. },
            Task::Most { near: None | Some(FIRST_GUESS | FIRST_STREAM_GUESS) },
        ) => tries(14.0) + run,
        (Cell::Traffic { .. }, Task::Most { near: Some(_) }) => tries(5.0) + run,
        (_, Task::WarmUp) => 1.0,
        (_, Task::Memory) => 5.0,
        (_, Task::Most { .. } | Task::CommonRate(_)) => run,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_given_the_same_part_of_what_the_slowest_can_do() {
        let mosts = [vec![Some(300.0), Some(9.0), None], vec![Some(100.4), Some(11.0), Some(5.0)]];
        assert_eq!(common_rates(3, &mosts, 0.5), [Some(50), Some(5), None]);
        assert_eq!(common_rates(1, &[vec![Some(0.1)]], 0.5), [Some(1)]);
    }
}
