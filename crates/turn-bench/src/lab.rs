//! `lab`: bare relays side by side, as a bound for what this machine can do.
//!
//! ```text
//! relay      threads, sockets, the strategies    generator  peers that send, clients that count
//! limit      the bottleneck, from the evidence   place      namespaces and cores
//! ```

mod generator;
mod limit;
mod place;
mod relay;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum as _};
use linux_net::{Clock, UdpSocket};

use crate::arguments::{self, OutputArgs};
use crate::cpu::{Meters, Watch, Watched};
use crate::engine::Window;
use crate::outcome::{CoreUse, Lab, LabRow, Latency, Outcome};
use crate::packet::HEADER;
use crate::traffic::Shape;
use generator::{Counted, Load, Sessions};
use limit::Evidence;
use place::{Cores, Place};
use relay::{Relay, Strategy};

/// Time before the measured one: maps, caches and neighbours are warm then.
const WARM_UP: Duration = Duration::from_millis(500);

/// Largest default window: one queue of the kernel (`net.core.netdev_max_backlog`) holds 1000
/// packets, and there are others.
const WINDOW_MAX: u32 = 1024;

/// The role of the relay's cores in a result.
const RELAY_ROLE: &str = "relay";

/// Threads of the generator. One is as fast as several relays, and more add noise.
const GENERATORS_MAX: usize = 4;

/// Most sessions of a relay.
const SESSIONS_MAX: i64 = 65_536;

/// Measures ways to relay UDP without TURN, as a bound for what this machine can do.
///
/// Peers send packets, the relay finds the session of each by 8 bytes and sends it on to the
/// session's client. The relay has cores of its own (the last of those allowed), clients and peers
/// the others; two at least. With privileges the ends are in network namespaces with a link between
/// them, and the relay's cores pay for its receiving and sending. Without, all is on the loopback,
/// where the sender's core pays for receiving too: figures of the two are not comparable.
///
/// The peers always have packets in flight, but no more than the sockets have room for, so that the
/// throughput is the relay's limit.
#[derive(Clone, Debug, Args)]
pub struct LabArgs {
    /// Measure only this strategy; may be given more than once [default: all]
    #[arg(long = "strategy", value_enum, value_name = "STRATEGY")]
    strategies: Vec<Strategy>,
    /// Threads of the relay, each on a core of its own
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Sessions, each with a client and a peer of its own
    #[arg(long, default_value_t = 100, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=SESSIONS_MAX))]
    sessions: u32,
    /// Payload bytes of a packet
    #[arg(long, default_value_t = 200, value_name = "BYTES",
        value_parser = clap::value_parser!(u16).range(HEADER as i64..=1400))]
    size: u16,
    /// Burst of a session in its turn
    #[arg(long, value_enum, default_value_t = Shape::Video)]
    shape: Shape,
    /// Measure each run this long, in seconds
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = seconds)]
    seconds: Duration,
    /// Runs of each strategy, in turn; the median one is shown
    #[arg(long, default_value_t = 3, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// Packets in flight, over all sessions [default: the room of the sockets, at most 1024]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..))]
    window: Option<u32>,
    /// Use the loopback even where namespaces can be made
    #[arg(long)]
    loopback: bool,
    /// Destination of the result.
    #[command(flatten)]
    output: OutputArgs,
    /// Show no progress on standard error
    #[arg(long)]
    quiet: bool,
}

/// A shorter run would measure its own beginning and end; a longer one shows nothing new.
const SECONDS: RangeInclusive<f64> = 0.1..=600.0;

fn seconds(text: &str) -> Result<Duration, String> {
    arguments::seconds(text).and_then(|time| {
        let range = || format!("{} to {} seconds", SECONDS.start(), SECONDS.end());
        SECONDS.contains(&time.as_secs_f64()).then_some(time).ok_or_else(range)
    })
}

/// Measures every strategy in every round.
///
/// # Errors
/// Too few cores or descriptors; a file that cannot be written.
pub fn run(args: &LabArgs) -> Result<()> {
    ensure!(args.shape != Shape::Uneven, "--shape uneven: a lab's sessions are all alike");
    let allowed = linux_net::allowed_cores().context("the cores of this process")?;
    let bench = Bench::new(args, Cores::divide(allowed, usize::from(args.threads))?)?;
    let watched = Watched { cores: bench.watches(), process: None };
    let lab = bench.run(&mut Meters::start(&watched)?)?;
    args.output.write(&Outcome::Lab(lab))
}

/// The requested strategies, or all, that this machine can run, and the others with the reason.
fn choose(requested: &[Strategy]) -> (Vec<Strategy>, Vec<(String, String)>) {
    let (mut chosen, mut skipped) = (Vec::new(), Vec::new());
    let all = Strategy::value_variants().iter();
    for strategy in all.filter(|one| requested.is_empty() || requested.contains(one)) {
        match strategy.available() {
            Ok(()) => chosen.push(*strategy),
            Err(reason) => skipped.push((strategy.to_string(), reason)),
        }
    }
    (chosen, skipped)
}

/// The median run by delivered packets, with the rates of all.
fn median_run(mut rows: Vec<LabRow>, duration: Duration) -> Option<LabRow> {
    let rounds = rows.iter().map(|row| row.delivered as f64 / duration.as_secs_f64()).collect();
    rows.sort_by_key(|row| row.delivered);
    let at = rows.len() / 2;
    (at < rows.len()).then(|| LabRow { rounds, ..rows.swap_remove(at) })
}

/// State shared by all runs.
struct Bench<'a> {
    args: &'a LabArgs,
    cores: Cores,
    place: Place,
    window: u32,
}

impl<'a> Bench<'a> {
    fn new(args: &'a LabArgs, cores: Cores) -> Result<Self> {
        linux_net::raise_open_files().context("the limit of open files")?;
        let place = if args.loopback {
            Place::Loopback("as requested".to_owned())
        } else {
            Place::make(&cores)
        };
        let mut bench = Self { args, cores, place, window: 0 };
        bench.window = match args.window {
            Some(window) => window.max(args.shape.burst()),
            None => bench.room()?.clamp(args.shape.burst(), WINDOW_MAX),
        };
        Ok(bench)
    }

    /// Packets that fit into the smallest receive buffer of the way.
    fn room(&self) -> Result<u32> {
        let (_, relay) = self.relay_sockets(Strategy::PerThread)?;
        let sessions = self.place.at_generator(|| Sessions::open(self.place.generator_ip(), 1))?;
        // The kernel charges a small packet with its own bookkeeping, about 1 KiB.
        let charged = usize::from(self.args.size) + 1024;
        Ok(u32::try_from(relay.min(sessions.recv_buffer) / charged).unwrap_or(u32::MAX))
    }

    fn run(&self, meters: &mut Meters) -> Result<Lab> {
        let args = self.args;
        let (strategies, skipped) = choose(&args.strategies);
        let mut runs: Vec<Vec<LabRow>> = strategies.iter().map(|_| Vec::new()).collect();
        let mut number = 0;
        for round in 1..=args.rounds {
            for (strategy, runs) in strategies.iter().zip(&mut runs) {
                number += 1;
                let row = self
                    .measure(*strategy, number, meters)
                    .with_context(|| strategy.to_string())?;
                if !args.quiet {
                    let rate = row.delivered as f64 / args.seconds.as_secs_f64() / 1000.0;
                    eprintln!("round {round} of {}: {strategy} {rate:.0} kpps", args.rounds);
                }
                runs.push(row);
            }
        }
        Ok(Lab {
            place: self.place.to_string(),
            shape: args.shape,
            size: args.size,
            sessions: args.sessions,
            threads: u32::from(args.threads),
            window: self.window,
            duration: args.seconds,
            rows: runs.into_iter().filter_map(|rows| median_run(rows, args.seconds)).collect(),
            skipped,
        })
    }

    fn relay_sockets(&self, strategy: Strategy) -> Result<(Vec<UdpSocket>, usize)> {
        let (ip, threads) = (self.place.relay_ip(), self.cores.relay.len());
        let sockets = self.place.at_relay(|| relay::open(ip, threads, strategy));
        sockets.context("the sockets of the relay")
    }

    fn watches(&self) -> Vec<Watch> {
        let watch = |role: &str, core: &usize| Watch { role: role.to_owned(), core: *core };
        let relay = self.cores.relay.iter().map(|core| watch(RELAY_ROLE, core));
        relay.chain(self.generators().iter().map(|core| watch("generator", core))).collect()
    }

    /// The cores of the generator's threads.
    fn generators(&self) -> &[usize] {
        &self.cores.generator[..self.cores.generator.len().min(GENERATORS_MAX)]
    }

    /// Puts a running relay under load, and measures.
    fn load(
        &self,
        sessions: Sessions,
        relay: &Relay,
        (load, window): (Load, Window),
        (clients, meters): (&[UdpSocket], &mut Meters),
    ) -> Result<Measured> {
        let cores: Vec<_> = self.generators().iter().copied().map(Some).collect();
        let generator = sessions.start(relay.data, load, &cores)?;
        sleep_until(window.start);
        let before = (drops(&relay.sockets)?, drops(clients)?);
        meters.begin();
        sleep_until(window.end);
        let cores = meters.end().cores;
        let after = (drops(&relay.sockets)?, drops(clients)?);
        Ok(Measured { cores, before, after, counted: generator.finish()? })
    }

    /// One run of one strategy.
    fn measure(&self, strategy: Strategy, run: u32, meters: &mut Meters) -> Result<LabRow> {
        let sessions = self
            .place
            .at_generator(|| Sessions::open(self.place.generator_ip(), self.args.sessions))
            .context("the sockets of clients and peers: is `ulimit -n` enough?")?;
        let (sockets, _) = self.relay_sockets(strategy)?;
        let clients = sessions.clients()?;
        let cores = Some(&self.cores.relay[..]);
        let relay = Relay::start(strategy, sockets, &sessions.table(run), cores)?;
        let begin = Clock::instant().as_nanos() + WARM_UP.as_nanos() as u64;
        let window = Window { start: begin, end: begin + self.args.seconds.as_nanos() as u64 };
        let load = Load {
            size: self.args.size,
            burst: self.args.shape.burst(),
            in_flight: self.window,
            run,
            window,
        };
        let measured = self.load(sessions, &relay, (load, window), (&clients, meters));
        // Its threads end whatever happened, and a relay that failed is the cause of a failed
        // generator.
        let relayed = relay.stop().context("the relay")?;
        let Measured { cores, before, after, counted } = measured?;
        let evidence = Evidence {
            relay_busy: busiest(&cores, |role| role == RELAY_ROLE),
            generator_busy: busiest(&cores, |role| role != RELAY_ROLE),
            sent: counted.sent,
            lost: counted.sent.saturating_sub(counted.tally.delivered),
            relay_drops: after.0.saturating_sub(before.0),
            client_drops: after.1.saturating_sub(before.1),
        };
        Ok(LabRow {
            sent: counted.sent,
            refused: counted.refused + relayed.refused,
            delivered: counted.tally.delivered,
            again: counted.tally.duplicates,
            damaged: counted.tally.damaged,
            relay_drops: evidence.relay_drops,
            client_drops: evidence.client_drops,
            latency: Latency::of(&counted.tally.latency),
            cores,
            ..LabRow::new(&strategy.to_string(), evidence.limit())
        })
    }
}

/// Counters around the window of a run.
struct Measured {
    cores: Vec<CoreUse>,
    /// Drops of the relay and of the clients.
    before: (u64, u64),
    after: (u64, u64),
    counted: Counted,
}

fn sleep_until(time: u64) {
    thread::sleep(Duration::from_nanos(time.saturating_sub(Clock::instant().as_nanos())));
}

fn drops(sockets: &[UdpSocket]) -> Result<u64> {
    let dropped = |socket: &UdpSocket| socket.dropped().map(u64::from);
    sockets.iter().map(dropped).sum::<Result<_, _>>().context("drops of a socket")
}

fn busiest(cores: &[CoreUse], wanted: impl Fn(&str) -> bool) -> f64 {
    cores.iter().filter(|core| wanted(&core.role)).map(|core| core.busy).fold(0.0, f64::max)
}
