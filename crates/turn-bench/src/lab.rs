//! Bare relays side by side: what the machine can do before TURN is in the way.
//!
//! ```text
//! strategy   how a thread receives, looks up and sends      relay      its threads and sockets
//! generator  clients and peers, who count what arrives      place      namespaces, cores
//! limit      why it was not more                            table      for people
//! ```

mod flow;
mod generator;
mod limit;
mod options;
mod place;
mod protocol;
mod relay;
mod sessions;
mod strategy;
mod table;
#[cfg(test)]
mod tests;

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use linux_net::{Clock, UdpSocket};

use crate::cpu::{Meters, Watch, Watched};
use crate::outcome::{self, Lab, LabRow, Latency, Outcome};
use generator::{Counted, Generator, GeneratorSockets, Load, Measured};
use limit::Evidence;
use place::{Cores, Place};
use relay::{Relay, RelaySockets};

pub use limit::Limit;
pub use options::LabOptions;
pub use strategy::Strategy;

/// Sent before what counts, so that maps, caches and neighbours are warm.
const WARM_UP: Duration = Duration::from_millis(500);

/// Packets on their way, where nobody asks for less: one waiting queue of the kernel
/// (`net.core.netdev_max_backlog`) holds 1000, and packets also wait in others.
const WINDOW_MAX: u32 = 1024;

/// The role of the relay's cores in an outcome.
const RELAY_ROLE: &str = "relay";

/// Threads of the generator. More would only add to the noise: one is as fast as several relays.
const GENERATORS_MAX: usize = 4;

/// Measures, prints the table, and writes the outcome if that is asked for.
///
/// # Errors
/// Too few cores or descriptors, a file that cannot be written.
pub fn main(options: &LabOptions) -> Result<()> {
    let lab = run(options)?;
    let table = table::of(&lab);
    options.output.write(&Outcome::Lab(lab), &table)
}

/// Measures every strategy in every round.
///
/// # Errors
/// Too few cores or descriptors.
pub fn run(options: &LabOptions) -> Result<Lab> {
    let allowed = linux_net::allowed_cores().context("which cores may be used")?;
    let bench = Bench::new(options, Cores::divide(allowed, usize::from(options.threads))?)?;
    let mut meters = Meters::start(&Watched { cores: bench.watches(), process: None })?;
    bench.run(&mut meters)
}

/// The strategies that were asked for, all if none were, less those that cannot run here.
fn choose(asked: &[Strategy]) -> (Vec<Strategy>, Vec<(String, String)>) {
    let mut chosen = Vec::new();
    let mut skipped = Vec::new();
    let all = <Strategy as clap::ValueEnum>::value_variants();
    for strategy in all.iter().filter(|one| asked.is_empty() || asked.contains(one)) {
        match strategy.available() {
            Ok(()) => chosen.push(*strategy),
            Err(reason) => skipped.push((strategy.to_string(), reason)),
        }
    }
    (chosen, skipped)
}

/// The run in the middle, which is told what the others delivered.
fn middle(mut rows: Vec<LabRow>, duration: Duration) -> Option<LabRow> {
    let rounds: Vec<f64> =
        rows.iter().map(|row| row.delivered as f64 / duration.as_secs_f64()).collect();
    rows.sort_by_key(|row| row.delivered);
    let at = rows.len() / 2;
    let mut row = (at < rows.len()).then(|| rows.swap_remove(at))?;
    row.rounds = rounds;
    Some(row)
}

/// What stays the same for all runs.
struct Bench<'a> {
    options: &'a LabOptions,
    cores: Cores,
    place: Place,
    window: u32,
}

impl<'a> Bench<'a> {
    fn new(options: &'a LabOptions, cores: Cores) -> Result<Self> {
        // Two sockets for each session, both also watched for drops, and some for everything else.
        linux_net::raise_open_files().context("the limit of open files")?;
        let place = if options.loopback {
            Place::Loopback("as asked".to_owned())
        } else {
            Place::make(&cores)
        };
        let mut bench = Self { options, cores, place, window: 0 };
        bench.window = match options.window {
            Some(window) => window.max(options.shape.burst()),
            None => bench.room()?.clamp(options.shape.burst(), WINDOW_MAX),
        };
        Ok(bench)
    }

    /// How many packets fit into the smallest receive buffer on their way.
    fn room(&self) -> Result<u32> {
        let relay =
            Relay::start(Strategy::PerThread, self.relay_sockets(Strategy::PerThread)?, None)?;
        let bytes = relay.recv_buffer;
        relay.stop()?;
        let client =
            self.place.at_generator(|| GeneratorSockets::open(self.place.generator_ip(), 1))?;
        // The kernel charges a small packet with its own bookkeeping, which is about 1 KiB.
        let charged = usize::from(self.options.size) + 1024;
        Ok(u32::try_from(bytes.min(client.recv_buffer()) / charged).unwrap_or(u32::MAX))
    }

    /// All runs.
    fn run(&self, meters: &mut Meters) -> Result<Lab> {
        let options = self.options;
        let (strategies, skipped) = choose(&options.strategies);
        let mut runs: Vec<Vec<LabRow>> = strategies.iter().map(|_| Vec::new()).collect();
        let mut number = 0;
        for round in 1..=options.rounds {
            for (strategy, runs) in strategies.iter().zip(&mut runs) {
                number += 1;
                let row = self.measure(*strategy, number, meters)?;
                if !options.quiet {
                    let rate = row.delivered as f64 / options.seconds.as_secs_f64() / 1000.0;
                    eprintln!("round {round} of {}: {strategy} {rate:.0} kpps", options.rounds);
                }
                runs.push(row);
            }
        }
        Ok(Lab {
            place: self.place_in_words(),
            shape: options.shape,
            size: options.size,
            sessions: options.sessions,
            threads: u32::from(options.threads),
            window: self.window,
            duration: options.seconds,
            rows: runs.into_iter().filter_map(|rows| middle(rows, options.seconds)).collect(),
            skipped,
        })
    }

    fn relay_sockets(&self, strategy: Strategy) -> Result<RelaySockets> {
        let (ip, threads) = (self.place.relay_ip(), self.cores.relay.len());
        self.place
            .at_relay(|| RelaySockets::open(ip, threads, strategy))
            .context("the relay cannot open its sockets")
    }

    fn watches(&self) -> Vec<Watch> {
        let watch = |role: &str, core: &usize| Watch { role: role.to_owned(), core: *core };
        let relay = self.cores.relay.iter().map(|core| watch(RELAY_ROLE, core));
        relay.chain(self.generators().iter().map(|core| watch("generator", core))).collect()
    }

    /// The cores that the generator's threads use.
    fn generators(&self) -> &[usize] {
        let count = self.cores.generator.len().min(GENERATORS_MAX);
        &self.cores.generator[..count]
    }

    fn place_in_words(&self) -> String {
        match &self.place {
            Place::Link { .. } => "a link between two network namespaces".to_owned(),
            Place::Loopback(why) => format!("the loopback ({why})"),
        }
    }

    /// One run of one strategy.
    fn measure(&self, strategy: Strategy, number: u32, meters: &mut Meters) -> Result<LabRow> {
        let relay = Relay::start(strategy, self.relay_sockets(strategy)?, Some(&self.cores.relay))?;
        let measured = self.load(&relay, number, meters);
        // What stopped the relay is the reason for whatever went wrong with the load.
        let relayed = relay.stop().with_context(|| format!("{strategy}: the relay gave up"))?;
        let (counted, seen) = measured.with_context(|| strategy.to_string())?;
        let evidence = Evidence {
            relay_busy: busiest(&seen.cores, |role| role == RELAY_ROLE),
            generator_busy: busiest(&seen.cores, |role| role != RELAY_ROLE),
            sent: counted.sent,
            lost: counted.sent.saturating_sub(counted.delivered),
            relay_drops: seen.relay_drops,
            client_drops: seen.client_drops,
        };
        Ok(LabRow {
            strategy: strategy.to_string(),
            sent: counted.sent,
            refused: counted.refused + relayed.refused,
            delivered: counted.delivered,
            again: counted.again,
            damaged: counted.damaged + counted.misdirected,
            relay_drops: seen.relay_drops,
            client_drops: seen.client_drops,
            latency: Latency::of(&counted.latency),
            cores: seen.cores,
            limit: Limit::of(&evidence),
            rounds: Vec::new(),
        })
    }

    /// Clients and peers for one run, and what was seen of the machine in its measured time.
    fn load(&self, relay: &Relay, run: u32, meters: &mut Meters) -> Result<(Counted, Seen)> {
        let (ip, sessions) = (self.place.generator_ip(), self.options.sessions);
        let sockets = self
            .place
            .at_generator(|| GeneratorSockets::open(ip, sessions))
            .context("the clients and peers cannot open their sockets: is `ulimit -n` enough?")?;
        let clients = sockets.clients()?;
        sockets.register(relay.registration)?;
        let begin = Clock::instant().as_nanos() + WARM_UP.as_nanos() as u64;
        let end = begin + self.options.seconds.as_nanos() as u64;
        let load = Load {
            size: usize::from(self.options.size),
            burst: self.options.shape.burst(),
            window: self.window,
            run,
        };
        let cores: Vec<_> = self.generators().iter().copied().map(Some).collect();
        let measured = Measured { begin, end };
        let generator = Generator::start(sockets, relay.data, load, measured, &cores)?;
        sleep_until(begin);
        let before = (drops(&relay.sockets)?, drops(&clients)?);
        meters.begin();
        sleep_until(end);
        let cores = meters.end().cores;
        let after = (drops(&relay.sockets)?, drops(&clients)?);
        let seen = Seen {
            cores,
            relay_drops: after.0.saturating_sub(before.0),
            client_drops: after.1.saturating_sub(before.1),
        };
        Ok((generator.finish()?, seen))
    }
}

/// What was seen of the machine in the measured time.
struct Seen {
    cores: Vec<outcome::CoreUse>,
    relay_drops: u64,
    client_drops: u64,
}

fn sleep_until(time: u64) {
    let now = Clock::instant().as_nanos();
    thread::sleep(Duration::from_nanos(time.saturating_sub(now)));
}

fn drops(sockets: &[UdpSocket]) -> Result<u64> {
    let mut all = 0;
    for socket in sockets {
        all += u64::from(socket.dropped().context("what a socket dropped")?);
    }
    Ok(all)
}

fn busiest(cores: &[outcome::CoreUse], wanted: impl Fn(&str) -> bool) -> f64 {
    cores.iter().filter(|core| wanted(&core.role)).map(|core| core.busy).fold(0.0, f64::max)
}
