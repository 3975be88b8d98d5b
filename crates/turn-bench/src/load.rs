//! `load`: one run against a server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use turn_types::IpFamily;

use crate::arguments::{OutputArgs, Rate, seconds};
use crate::cpu::Watched;
use crate::outcome::Outcome;
use crate::packets::{PacketArgs, ServerPlace};
use crate::requests::{self, Call, HostileSpec, Kind, RequestArgs, RequestSpec};
use crate::session::LoginArgs;
use crate::traffic::Transport;

/// Kind of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Packets through the server, to `turnpike-bench peer` or from it
    Packet,
    /// Allocations per second: each by a client that logs in anew, and gives it back
    Alloc,
    /// STUN Binding requests per second
    Binding,
    /// An attack, see --variant: the answers of the server, and whether a legitimate
    /// client still gets through
    Hostile,
}

/// The arguments of `load`.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Kind of load
    #[arg(long, value_enum, default_value_t = Mode::Packet)]
    pub mode: Mode,
    /// The server
    #[arg(long, value_name = "ADDR:PORT")]
    pub server: SocketAddr,
    /// Transport of the clients. Certificates are not verified. With --mode
    /// alloc each allocation makes its own connection first
    #[arg(long, value_enum, default_value_t = Transport::Udp)]
    pub transport: Transport,
    /// Send from this address of this host [default: as the route has it]
    #[arg(long, value_name = "ADDR")]
    pub local: Option<IpAddr>,
    /// Login of the clients.
    #[command(flatten)]
    pub login: LoginArgs,
    /// Packets or exchanges begun per second, over all clients; or max
    #[arg(long, value_name = "N|max", default_value = "max")]
    pub rate: Rate,
    /// Send this long before measuring, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    pub warm_up: Duration,
    /// Measure this long, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub duration: Duration,
    /// Of the mode packet.
    #[command(flatten)]
    pub packets: PacketArgs,
    /// Of the modes alloc, binding and hostile.
    #[command(flatten)]
    pub requests: RequestArgs,
    /// Cores and process to watch.
    #[command(flatten)]
    pub watched: Watched,
    /// Destination of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Runs `load`.
///
/// # Errors
/// As [`Bench::open`](crate::engine::Bench::open) and [`requests::run`].
pub fn run(args: &LoadArgs) -> Result<()> {
    match args.mode {
        Mode::Packet => run_packets(args),
        Mode::Alloc => run_requests(args, Kind::Allocation { release: !args.requests.no_release }),
        Mode::Binding => run_requests(args, Kind::Binding),
        Mode::Hostile => run_hostile(args),
    }
}

fn run_packets(args: &LoadArgs) -> Result<()> {
    let place = ServerPlace {
        server: args.server,
        transport: args.transport,
        local: args.local,
        login: args.login.login()?,
        in_flight: args.requests.in_flight,
    };
    let spec = args.packets.spec(args.rate.per_second(), args.warm_up, args.duration);
    let (mut bench, backend) = args.packets.open(place, &args.watched)?;
    let result = bench.run(&spec, args.packets.sessions, backend);
    // Released after a failed run as well.
    bench.close();
    let traffic = result?;
    args.output.write(&Outcome::Traffic(traffic))
}

fn run_requests(args: &LoadArgs, kind: Kind) -> Result<()> {
    let login = match kind {
        Kind::Allocation { .. } => Some(args.login.login()?),
        Kind::Binding => None,
    };
    let spec = RequestSpec {
        kind,
        server: args.server,
        transport: args.transport,
        local: args.local,
        login,
        family: IpFamily::V4,
        in_flight: args.requests.in_flight,
        threads: args.requests.threads,
        rate: args.rate.per_second(),
        warm_up: args.warm_up,
        duration: args.duration,
    };
    let requests = requests::run(&spec, &args.watched)?;
    args.output.write(&Outcome::Requests(requests))
}

fn run_hostile(args: &LoadArgs) -> Result<()> {
    ensure!(args.transport == Transport::Udp, "--mode hostile sends datagrams: --transport udp");
    let spec = HostileSpec {
        variant: args.requests.variant.context("--mode hostile wants --variant")?,
        server: args.server,
        local: args.local,
        bystander: args.requests.bystander,
        login: args.login.login()?,
        sources: args.requests.sources,
        rate: args.rate.per_second(),
        warm_up: args.warm_up,
        duration: args.duration,
    };
    let mut call = args.packets.peer.map(|_| open_call(args)).transpose()?;
    let result = requests::run_hostile(&spec, &args.watched, call.as_mut());
    // Released after a failed run as well.
    call.map(|call| call.bench.close());
    let hostile = result?;
    args.output.write(&Outcome::Hostile(hostile))
}

/// The call during an attack.
fn open_call(args: &LoadArgs) -> Result<Call> {
    let place = ServerPlace {
        server: args.server,
        transport: args.transport,
        local: args.requests.bystander.or(args.local),
        login: args.login.login()?,
        in_flight: args.requests.in_flight,
    };
    let spec = args.packets.spec(Some(args.requests.call_rate), args.warm_up, args.duration);
    // The cores are watched once, for the whole of the attack.
    let (bench, backend) = args.packets.open(place, &Watched::default())?;
    Ok(Call { bench, spec, flows: args.packets.sessions, backend })
}
