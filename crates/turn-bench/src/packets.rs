//! Arguments of the commands that send packets, and the commands `find-max` and `peer`.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::arguments::{OutputArgs, seconds};
use crate::cpu::Watched;
use crate::engine::{Bench, BenchOptions, Ends, FindMaxSpec, Peer, PeerOptions};
use crate::frames::{self, End, FrameEnds, Unavailable};
use crate::outcome::Outcome;
use crate::session::{IN_FLIGHT, Login, LoginArgs, SessionOptions};
use crate::traffic::{Backend, Direction, Shape, TrafficSpec, Transport};

/// Receive buffer of each session: a burst of super-packets fits.
pub(crate) const RECEIVE_BUFFER: usize = 4 << 20;

/// Packets and their ends.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Packets (find-max, and load --mode packet)")]
pub struct PacketArgs {
    /// Address of `turnpike-bench peer`, as the server reaches it
    #[arg(long, value_name = "ADDR:PORT")]
    pub peer: Option<SocketAddr>,
    /// Allocations, each with a channel to the peer, and one flow of packets over each
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub sessions: u32,
    /// Burst of a flow in its turn
    #[arg(long, value_enum, default_value_t = Shape::Audio)]
    pub shape: Shape,
    /// Direction of the packets
    #[arg(long, value_enum, default_value_t = Direction::ClientToPeer)]
    pub direction: Direction,
    /// Payload bytes of each packet, 24 to 1400 [default: 200 for audio, 1200 for the others]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(24..=1400))]
    pub size: Option<u16>,
    /// Threads that send
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub senders: u32,
    /// Threads that receive
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub receivers: u32,
    /// Backend of the clients
    #[arg(long, value_enum, default_value_t = Backend::Sockets)]
    pub backend: Backend,
    /// The link to the server, for the backend frames
    #[arg(long, value_name = "IF", required_if_eq("backend", "frames"))]
    pub interface: Option<String>,
    /// Show no progress on standard error
    #[arg(long)]
    pub quiet: bool,
}

/// The server and its clients.
#[derive(Clone, Debug)]
pub struct ServerPlace {
    /// The server.
    pub server: SocketAddr,
    /// Transport of the clients.
    pub transport: Transport,
    /// Source address of the clients; `None` leaves it to the route.
    pub local: Option<IpAddr>,
    /// Login of the clients.
    pub login: Login,
    /// Concurrent Allocate requests.
    pub in_flight: u32,
}

impl PacketArgs {
    /// The offered load.
    #[must_use]
    pub fn spec(&self, rate: Option<u32>, warm_up: Duration, duration: Duration) -> TrafficSpec {
        let size = self.size.unwrap_or_else(|| self.shape.default_size());
        let Self { shape, direction, .. } = *self;
        TrafficSpec { shape, direction, size, rate, warm_up, duration }
    }

    /// Opens the sessions, and returns the backend: sockets where the privileges for frames are
    /// missing.
    ///
    /// # Errors
    /// As [`Bench::open`] and [`FrameEnds::open`]; no peer was named.
    pub fn open(&self, place: ServerPlace, watched: &Watched) -> Result<(Bench, Backend)> {
        ensure!(
            self.backend == Backend::Sockets || !place.transport.has_connections(),
            "--backend frames is for --transport udp: packets of a connection cannot be made in advance"
        );
        ensure!(
            self.backend == Backend::Sockets || self.shape != Shape::Uneven,
            "--shape uneven is for --backend sockets"
        );
        let peer = self.peer.context(
            "--peer is missing: start `turnpike-bench peer --listen ADDR:PORT` where the server can \
             reach it, and name that address",
        )?;
        let sessions = SessionOptions {
            transport: place.transport,
            local: place.local,
            sessions: self.sessions,
            in_flight: place.in_flight,
            receive_buffer: RECEIVE_BUFFER,
            ..SessionOptions::new(place.server, place.login, peer)
        };
        // An unusable link is reported before any request to the server.
        let interface = self.interface.as_deref().filter(|_| self.backend == Backend::Frames);
        let ends = frame_ends(interface, End::Client, self.senders as usize)?;
        let backend = if ends.is_some() { Backend::Frames } else { Backend::Sockets };
        let mut bench = Bench::open(&BenchOptions {
            sessions,
            senders: self.senders as usize,
            receivers: self.receivers as usize,
            watched: watched.clone(),
            quiet: self.quiet,
        })?;
        if let Some(ends) = ends {
            bench.with_frames(ends);
        }
        Ok((bench, backend))
    }
}

/// The backend of frames on an interface. `None` without an interface, and, with a note, where this
/// process lacks privileges or the kernel is too old.
fn frame_ends(interface: Option<&str>, end: End, threads: usize) -> Result<Option<Box<dyn Ends>>> {
    let Some(interface) = interface else { return Ok(None) };
    match frames::available() {
        Ok(()) => Ok(Some(Box::new(FrameEnds::open(interface, end, threads)?))),
        Err(Unavailable::Failed(error)) => Err(error),
        Err(reason @ (Unavailable::Privileges(_) | Unavailable::Kernel(_))) => {
            eprintln!("note: {reason}; packets go by sockets instead");
            Ok(None)
        }
    }
}

/// The arguments of `find-max`.
#[derive(Clone, Debug, Args)]
pub struct FindMaxArgs {
    /// The server
    #[arg(long, value_name = "ADDR:PORT")]
    pub server: SocketAddr,
    /// Transport of the clients. Certificates are not verified. Over streams a rate also fails when
    /// more than 0.1 % was held back by full connections, or p90 of the latency exceeds 10 ms
    #[arg(long, value_enum, default_value_t = Transport::Udp)]
    pub transport: Transport,
    /// Send from this address of this host [default: as the route has it]
    #[arg(long, value_name = "ADDR")]
    pub local: Option<IpAddr>,
    /// Login of the clients.
    #[command(flatten)]
    pub login: LoginArgs,
    /// Concurrent Allocate requests at the beginning
    #[arg(long, value_name = "N", default_value_t = IN_FLIGHT, value_parser = clap::value_parser!(u32).range(1..))]
    pub in_flight: u32,
    /// Acceptable loss in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1)]
    pub max_loss: f64,
    /// Measure each try this long, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.3", value_parser = seconds)]
    pub step: Duration,
    /// Send this long before measuring in the run that confirms the rate, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    pub warm_up: Duration,
    /// Measure this long in the run that confirms the rate, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub duration: Duration,
    /// Packets.
    #[command(flatten)]
    pub packets: PacketArgs,
    /// Cores and process to watch.
    #[command(flatten)]
    pub watched: Watched,
    /// Destination of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl FindMaxArgs {
    /// One search.
    ///
    /// # Errors
    /// As [`Bench::open`] and [`Bench::find_max`]; a file that cannot be written.
    pub fn run(&self) -> Result<()> {
        ensure!((0.0..100.0).contains(&self.max_loss), "--max-loss is 0 to less than 100 percent");
        let place = ServerPlace {
            server: self.server,
            transport: self.transport,
            local: self.local,
            login: self.login.login()?,
            in_flight: self.in_flight,
        };
        let spec = FindMaxSpec {
            traffic: self.packets.spec(None, self.warm_up, self.duration),
            loss_max: self.max_loss / 100.0,
            step: self.step,
            near: None,
            rate_max: None,
        };
        let (mut bench, backend) = self.packets.open(place, &self.watched)?;
        let result = bench.find_max(&spec, self.packets.sessions, backend);
        // Released after a failed search as well.
        bench.close();
        let found = result?;
        self.output.write(&Outcome::FindMax(found))
    }
}

/// The arguments of `peer`.
#[derive(Clone, Debug, Args)]
pub struct PeerArgs {
    /// Address for relayed packets
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:9000")]
    pub listen: SocketAddr,
    /// Threads, each with a socket of its own [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// The link to the server: count, echo and send packets there, as frames, before they reach a
    /// socket. For one load at a time
    #[arg(long, value_name = "IF")]
    pub interface: Option<String>,
    /// Print every second the packets in and out per second, those dropped by full sockets, and the
    /// CPU time per second
    #[arg(long)]
    pub stats: bool,
}

impl PeerArgs {
    /// Serves until the process is ended.
    ///
    /// # Errors
    /// As [`Peer::bind`] and [`Peer::serve`].
    pub fn run(&self) -> Result<()> {
        let threads = match self.threads {
            Some(threads) => threads as usize,
            None => linux_net::allowed_cores().map_or(1, |cores| cores.len()),
        };
        let ends = frame_ends(self.interface.as_deref(), End::Peer, 1)?;
        let peer = Peer::bind(&PeerOptions { listen: self.listen, threads }, ends)?;
        if let Some(bytes) = peer.small_buffer() {
            eprintln!(
                "note: receive buffers have {bytes} bytes, which a fast sender overflows while the peer is \
                 preempted: raise net.core.rmem_max, or run the peer with CAP_NET_ADMIN"
            );
        }
        let s = if threads == 1 { "" } else { "s" };
        eprintln!("listening on {} with {threads} thread{s}", peer.address());
        peer.serve(&AtomicBool::new(false), self.stats)
    }
}
