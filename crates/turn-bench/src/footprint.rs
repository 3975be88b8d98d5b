//! `footprint`: what idle allocations cost the server, in memory and descriptors.

mod process;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::arguments::OutputArgs;
use crate::outcome::{Footprint, Outcome, ProcessMemory};
use crate::session::{self, IN_FLIGHT, LoginArgs, SessionOptions};
use crate::traffic::Transport;

/// Allocations that are there before anything is measured, so that what a server makes once, for
/// the first of them, is not counted.
const WARM_UP: u32 = 100;

/// Time for the server to put away what it only needed to make allocations.
const SETTLE: Duration = Duration::from_millis(500);

/// The arguments of `footprint`.
#[derive(Clone, Debug, Args)]
pub struct FootprintArgs {
    /// The server; it must run on this host
    #[arg(long, value_name = "ADDR:PORT")]
    pub server: SocketAddr,
    /// What clients are connected by. Certificates are not verified
    #[arg(long, value_enum, default_value_t = Transport::Udp)]
    pub transport: Transport,
    /// The server's process [default: whoever listens on --server]
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Who logs in.
    #[command(flatten)]
    pub login: LoginArgs,
    /// Send from this address of this host [default: as the route has it]
    #[arg(long, value_name = "ADDR")]
    pub local: Option<IpAddr>,
    /// Allocations to open; 100 more are opened before measuring
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub sessions: u32,
    /// Allocations asked for at the same time
    #[arg(long, value_name = "N", default_value_t = IN_FLIGHT, value_parser = clap::value_parser!(u32).range(1..))]
    pub in_flight: u32,
    /// Give each allocation a channel to this peer, and with it a permission; the server must
    /// allow the address, nobody need be there
    #[arg(long, value_name = "ADDR:PORT")]
    pub channels: Option<SocketAddr>,
    /// Where the outcome goes.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct FootprintSpec {
    /// How allocations are opened, and how many; the warm-up comes on top. Relayed addresses are of
    /// the family of its peer, which is talked to by nobody.
    pub sessions: SessionOptions,
    /// The server's process; `None` finds whoever listens.
    pub pid: Option<u32>,
    /// Whether each allocation gets a channel to the peer.
    pub channels: bool,
}

/// Does what the arguments say.
///
/// # Errors
/// Why it could not be measured.
pub fn run(args: &FootprintArgs) -> Result<()> {
    // Only its family counts without channels.
    let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
    let peer = args.channels.unwrap_or(nobody);
    let sessions = SessionOptions {
        local: args.local,
        transport: args.transport,
        sessions: args.sessions,
        in_flight: args.in_flight,
        ..SessionOptions::new(args.server, args.login.login()?, peer)
    };
    let spec = FootprintSpec { sessions, pid: args.pid, channels: args.channels.is_some() };
    args.output.write(&Outcome::Footprint(measure(&spec)?))
}

/// Opens the allocations, looks at the server before and after, and gives them back.
///
/// # Errors
/// The server's process cannot be found or looked at; allocations cannot be opened.
pub fn measure(spec: &FootprintSpec) -> Result<Footprint> {
    let pid = match spec.pid {
        Some(pid) => pid,
        None => process::listener(spec.sessions.server, spec.sessions.transport)?,
    };
    let process = process::name(pid)?;
    // What cannot be looked at is told before thousands of allocations are opened.
    process::memory(pid)?;
    let warm_up = SessionOptions { sessions: WARM_UP, ..spec.sessions.clone() };
    let first = Held::open(&warm_up, spec.channels).context("the first allocations")?;
    let before = settled(pid)?;
    let held = Held::open(&spec.sessions, spec.channels);
    let after = held.as_ref().map_or(Ok(before), |_| settled(pid));
    let opened = held.map(Held::close);
    first.close();
    opened?;
    let allocations = spec.sessions.sessions;
    let (transport, channels) = (spec.sessions.transport, spec.channels);
    Ok(Footprint { process, transport, allocations, channels, before, after: after? })
}

fn settled(pid: u32) -> Result<ProcessMemory> {
    std::thread::sleep(SETTLE);
    process::memory(pid)
}

/// Allocations that are held and not used.
enum Held {
    Idle(Vec<session::Idle>),
    Channels(Vec<session::Session>),
}

impl Held {
    fn open(options: &SessionOptions, channels: bool) -> Result<Self> {
        if channels {
            session::open(options).map(Self::Channels)
        } else {
            session::open_idle(options).map(Self::Idle)
        }
    }

    fn close(self) {
        // Those that the server did not confirm end by themselves.
        let _unconfirmed = match self {
            Self::Idle(idle) => session::close_idle(idle),
            Self::Channels(sessions) => session::close(sessions),
        };
    }
}
