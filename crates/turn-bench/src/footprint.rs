//! `footprint`: memory and descriptors of idle allocations.

mod group;
mod process;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;

pub(crate) use group::Group;
pub use group::KernelMemory;

use crate::arguments::OutputArgs;
use crate::outcome::{Footprint, Outcome, ProcessMemory};
use crate::session::{self, IN_FLIGHT, LoginArgs, SessionOptions};
use crate::traffic::Transport;

/// Allocations before the measurement: one-time costs of a server are not counted.
const WARM_UP: u32 = 100;

/// Time for the server to free temporary memory.
const SETTLE: Duration = Duration::from_millis(500);

/// The arguments of `footprint`.
#[derive(Clone, Debug, Args)]
pub struct FootprintArgs {
    /// The server; it must run on this host
    #[arg(long, value_name = "ADDR:PORT")]
    pub server: SocketAddr,
    /// Transport of the clients. Certificates are not verified
    #[arg(long, value_enum, default_value_t = Transport::Udp)]
    pub transport: Transport,
    /// The server's process [default: the one that listens on --server]
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Login of the clients.
    #[command(flatten)]
    pub login: LoginArgs,
    /// Send from this address of this host [default: as the route has it]
    #[arg(long, value_name = "ADDR")]
    pub local: Option<IpAddr>,
    /// Allocations to open; 100 more are opened before measuring
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub sessions: u32,
    /// Concurrent Allocate requests
    #[arg(long, value_name = "N", default_value_t = IN_FLIGHT, value_parser = clap::value_parser!(u32).range(1..))]
    pub in_flight: u32,
    /// Give each allocation a channel to this peer, and with it a permission; the server must allow
    /// the address, and it need not exist
    #[arg(long, value_name = "ADDR:PORT")]
    pub channels: Option<SocketAddr>,
    /// Destination of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Parameters of a measurement.
#[derive(Clone, Debug)]
pub struct FootprintSpec {
    /// The allocations, without the warm-up. Relayed addresses are of the address family of the
    /// peer.
    pub sessions: SessionOptions,
    /// The server's process; `None` finds the one that listens.
    pub pid: Option<u32>,
    /// Each allocation gets a channel to the peer.
    pub channels: bool,
    /// File of the kernel's memory of the server's control group, if it is in one of its own.
    pub kernel: Option<KernelMemory>,
}

/// Runs `footprint`.
///
/// # Errors
/// As [`measure`].
pub fn run(args: &FootprintArgs) -> Result<()> {
    // Without channels only its address family matters.
    let peer = args.channels.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    let sessions = SessionOptions {
        local: args.local,
        transport: args.transport,
        sessions: args.sessions,
        in_flight: args.in_flight,
        ..SessionOptions::new(args.server, args.login.login()?, peer)
    };
    let spec =
        FootprintSpec { sessions, pid: args.pid, channels: args.channels.is_some(), kernel: None };
    args.output.write(&Outcome::Footprint(measure(&spec)?))
}

/// Opens the allocations, reads the server's memory before and after, and releases them.
///
/// # Errors
/// The server's process cannot be found or looked at; allocations cannot be opened.
pub fn measure(spec: &FootprintSpec) -> Result<Footprint> {
    let pid = match spec.pid {
        Some(pid) => pid,
        None => process::listener(spec.sessions.server, spec.sessions.transport)?,
    };
    let process = process::name(pid)?;
    // Missing privileges are reported before thousands of allocations are opened.
    process::memory(pid)?;
    let warm_up = SessionOptions { sessions: WARM_UP, ..spec.sessions.clone() };
    let first = Held::open(&warm_up, spec.channels).context("the first allocations")?;
    let kernel = spec.kernel.as_ref();
    let before = settled(pid, kernel)?;
    let held = Held::open(&spec.sessions, spec.channels);
    let after = held.as_ref().map_or(Ok(before), |_| settled(pid, kernel));
    let opened = held.map(Held::close);
    first.close();
    opened?;
    let allocations = spec.sessions.sessions;
    let (transport, channels) = (spec.sessions.transport, spec.channels);
    Ok(Footprint { process, transport, allocations, channels, before, after: after? })
}

fn settled(pid: u32, kernel: Option<&KernelMemory>) -> Result<ProcessMemory> {
    std::thread::sleep(SETTLE);
    let kernel = kernel.map(KernelMemory::read).transpose()?;
    Ok(ProcessMemory { kernel, ..process::memory(pid)? })
}

/// Idle allocations.
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
        // Unconfirmed ones expire.
        let _unconfirmed = match self {
            Self::Idle(idle) => session::close_idle(idle),
            Self::Channels(sessions) => session::close(sessions),
        };
    }
}
