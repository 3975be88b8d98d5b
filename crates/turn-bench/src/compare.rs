//! Paired comparison of servers: in every round each has its turn, and servers are compared within
//! a round.
//!
//! ```text
//! servers  command lines on equal terms        cells     kinds of load
//! rounds   A B A B …, after a calibration      turn      one server's turn
//! plan     messages to the clients' process    steps     that process
//! host, network, cores  three hosts, the links between them, and their cores
//! ceiling  the load tool without a server      summary   from runs to measures
//! ```

mod ceiling;
pub mod cells;
mod certificate;
mod cores;
mod host;
mod network;
mod plan;
mod progress;
mod rounds;
pub mod servers;
mod steps;
mod summary;
mod turn;

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::arguments::{OutputArgs, seconds};
use crate::outcome::{Compare, ComparedServer, Machine, Outcome};
use crate::traffic::{Backend, Direction, Transport};
use crate::{frames, machine};
use cells::{Cell, CellList};
use certificate::Certificate;
use cores::Cores;
use host::{Ends, FIRST_PEER, Host, LISTEN, RELAY};
use network::Network;
use plan::Times;
use progress::Progress;
use rounds::{Comparison, PEER_PORT, Results};
use servers::{Prepared, ServerKind, ServerSpec, Terms};
pub(crate) use steps::run as run_steps;

/// Ports of relayed addresses: enough for every cell, below none that is in use.
const PORTS: (u16, u16) = (10_000, 65_535);
/// Port of servers.
const LISTEN_PORT: u16 = 3478;
/// The same for TLS and DTLS.
const TLS_PORT: u16 = 5349;
/// Measured time of a try in the search for a maximum.
const ATTEMPT: Duration = Duration::from_millis(200);
/// Warm-up of each run.
const WARM_UP: Duration = Duration::from_millis(200);

/// Arguments of `compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// A server: turnpike (beside this program, or in PATH), turnpike=PATH (another build),
    /// turnpike-xdp, -tc, -xdp-generic or -sockets (with this offload alone), turnpike-prefix
    /// (sockets, and each relayed address of a prefix), coturn (turnserver of $COTURN, PATH, or the
    /// usual directories), coturn=PATH, coturn-fastest (with --multiplex-peer --udp-gso, from 4.17
    /// on; up to 256 flows), bare (a kernel forwarder, the upper bound of all; frames only), or
    /// NAME=COMMAND, a line of shell that stays in the foreground, with the placeholders {listen},
    /// {relay}, {peer}, {user}, {password}, {secret}, {realm}, {min_port}, {max_port} and
    /// {workers}, with TLS also {tls_listen}, {certificate} and {key}. May be given more than once;
    /// ratios are to the first [default: turnpike and coturn]
    #[arg(long, value_name = "SERVER")]
    pub server: Vec<ServerSpec>,
    /// Rounds; fewer than 6 give no verdict, and small differences take more
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Loads: quick, standard, full, or a comma-separated list of alloc (allocations), footprint
    /// (memory) and SHAPE:FLOWS:DIRECTION or SHAPE:FLOWS:DIRECTION:BYTES, such as
    /// video:100:c2p:1200; shapes are audio, video, flood and uneven, directions c2p (client to
    /// peer), p2c and echo
    #[arg(long, value_name = "CELLS", default_value = "quick")]
    pub cells: CellList,
    /// Transport of the clients. Over TCP and TLS clients send and receive by sockets, and
    /// --backend is the peer's. Servers have a certificate made for the run (P-256), which is not
    /// verified; clients offer one version (tls is 1.3; coturn 4.6 wants tls12), one cipher
    /// (AES-128-GCM) and one key exchange, so that all servers do the same work
    #[arg(long, value_enum, default_value_t = Transport::Udp)]
    pub transport: Transport,
    /// Send and receive by sockets, or by frames, which reach higher rates and arrive as from a
    /// card [default: frames where this kernel and these privileges allow them]
    #[arg(long, value_enum)]
    pub backend: Option<Backend>,
    /// Receiver where frames are sent: frames, or sockets, to which coalesced packets of the server
    /// (GSO) cross whole, as to a card that segments them. Sockets limit the rate, and all cells
    /// have to be of one direction, c2p or p2c
    #[arg(long, value_enum, default_value = "frames")]
    pub receive: Backend,
    /// Fixed offered load, as a share of the slowest server's highest rate. Half is enough to be
    /// work, and far enough from the limit to have no queues
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share)]
    pub common: f64,
    /// Try no higher rate than this, in packets per second: a comparison up to the load of interest
    /// takes a fraction of the time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_rate: Option<u32>,
    /// Cores of the server, which is started with as many threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub server_cores: usize,
    /// Measure each run this long, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.8", value_parser = seconds)]
    pub duration: Duration,
    /// Destination of the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Show no progress on standard error
    #[arg(long)]
    pub quiet: bool,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!("{text:?} is not a share: more than 0, at most 1")),
    }
}

/// Runs a comparison.
///
/// # Errors
/// A requirement that this machine lacks; a server that cannot be started or used at all.
pub fn run(args: &CompareArgs) -> Result<()> {
    args.output.write(&Outcome::Compare(measure(args)?))
}

/// Makes a comparison, whose result is not written yet.
///
/// # Errors
/// As [`run`].
pub(crate) fn measure(args: &CompareArgs) -> Result<Compare> {
    ensure!(!args.duration.is_zero(), "--duration: more than 0");
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let cores = Cores::assign(args.server_cores)?;
    let machine = machine(&cores);
    let cells = &args.cells.0;
    let wants_sockets = cells.iter().any(Cell::wants_sockets);
    let backend = backend(args.backend.or_else(|| wants_sockets.then_some(Backend::Sockets)))?;
    let has_connections = args.transport.has_connections();
    let ends = if has_connections {
        Ends { client: Backend::Sockets, peer: connections_peer(backend, args.receive)? }
    } else {
        ends(backend, args.receive, cells)?
    };
    can_send(ends, cells)?;
    if args.server.iter().any(|server| server.kind == ServerKind::Bare) {
        can_be_bare(ends, cells)?;
    }
    // Packets of connections do not come in clumps.
    let links = if has_connections { ends } else { Ends { client: backend, peer: backend } };
    let network = Network::new(cores, links)?;
    let terms = terms(args, &network)?;
    let servers = prepare(&args.server, &terms, &network)?;
    for (server, prepared) in &servers {
        if let Some(warning) = &prepared.warning {
            eprintln!("{server}: {warning}");
        }
    }
    let comparison = Comparison {
        network: &network,
        terms: &terms,
        servers: &servers,
        cells,
        rounds: args.rounds,
        common: args.common,
        ends,
        transport: args.transport,
        times: Times { warm_up: WARM_UP, measured: args.duration, attempt: ATTEMPT },
        rate_max: args.max_rate,
    };
    let mut progress = Progress::new(comparison.estimate(), args.rounds, args.quiet);
    let Results { raw, failures, cells } = comparison.run(&mut progress)?;
    progress.finish();
    let described = |(server, prepared): (ServerSpec, Prepared)| {
        let Prepared { command, configuration, version, warning, knows_secret: _ } = prepared;
        ComparedServer { name: server.name, version, warning, command, configuration }
    };
    let mut compared = Compare {
        machine,
        command: std::env::args().collect(),
        began,
        backend: if has_connections { ends.peer } else { backend },
        transport: args.transport,
        rounds: args.rounds,
        servers: servers.into_iter().map(described).collect(),
        cells,
        failures,
        raw,
    };
    compared.correct();
    Ok(compared)
}

/// The requested backend, or the best available.
fn backend(requested: Option<Backend>) -> Result<Backend> {
    match (requested, frames::available()) {
        (Some(Backend::Sockets), _) => Ok(Backend::Sockets),
        (Some(Backend::Frames) | None, Ok(())) => Ok(Backend::Frames),
        (Some(Backend::Frames), Err(error)) => Err(error).context("--backend frames"),
        (None, Err(reason)) => {
            eprintln!("note: {reason}; packets go by sockets instead");
            Ok(Backend::Sockets)
        }
    }
}

/// Backends of the ends over UDP.
fn ends(backend: Backend, receive: Backend, cells: &[Cell]) -> Result<Ends> {
    if backend == Backend::Sockets || receive == Backend::Frames {
        return Ok(Ends { client: backend, peer: backend });
    }
    let mut directions: Vec<_> = cells.iter().filter_map(Cell::direction).collect();
    directions.dedup();
    match directions[..] {
        [Direction::ClientToPeer] => Ok(Ends { client: backend, peer: receive }),
        [Direction::PeerToClient] => Ok(Ends { client: receive, peer: backend }),
        _ => bail!("--receive sockets wants traffic in one direction, all c2p or all p2c"),
    }
}

/// Refuses loads that only sockets send where an end has frames.
fn can_send(ends: Ends, cells: &[Cell]) -> Result<()> {
    let by_sockets = ends == Ends { client: Backend::Sockets, peer: Backend::Sockets };
    match cells.iter().find(|cell| cell.wants_sockets()) {
        Some(cell) if !by_sockets => bail!("{cell} wants --backend sockets"),
        Some(_) | None => Ok(()),
    }
}

/// Backend of the peer of clients with connections.
fn connections_peer(backend: Backend, receive: Backend) -> Result<Backend> {
    // --receive is about an end that sends frames, and clients do not.
    ensure!(
        receive == Backend::Frames,
        "--receive sockets is for --transport udp; for a peer with sockets give --backend sockets"
    );
    Ok(backend)
}

/// Checks that a forwarder can take part: other packets would be the work of the server beside it,
/// and be reported as the forwarder's.
fn can_be_bare(ends: Ends, cells: &[Cell]) -> Result<()> {
    let frames = Ends { client: Backend::Frames, peer: Backend::Frames };
    ensure!(ends == frames, "--server bare wants frames: its packets are addressed to no socket");
    let relays = cells.iter().all(|cell| cell.direction().is_some());
    ensure!(relays, "--server bare only forwards packets: leave out alloc and footprint");
    Ok(())
}

fn terms(args: &CompareArgs, network: &Network) -> Result<Terms> {
    let certificate = args
        .transport
        .has_certificates()
        .then(|| Certificate::make(network.directory()))
        .transpose()?;
    let secret: [u8; 16] = linux_net::random_bytes();
    Ok(Terms {
        listen: SocketAddr::from((LISTEN, LISTEN_PORT)),
        tls_listen: SocketAddr::from((LISTEN, TLS_PORT)),
        transport: args.transport,
        certificate,
        relay: SocketAddr::from((RELAY, 0)),
        peer: SocketAddr::from((FIRST_PEER, PEER_PORT)),
        user: "bench".to_owned(),
        secret: secret.iter().map(|byte| format!("{byte:02x}")).collect(),
        realm: "bench".to_owned(),
        ports: PORTS,
        workers: args.server_cores,
    })
}

/// Prepares each server in a directory of its own.
fn prepare(
    given: &[ServerSpec],
    terms: &Terms,
    network: &Network,
) -> Result<Vec<(ServerSpec, Prepared)>> {
    let mut servers = given.to_vec();
    if servers.is_empty() {
        for preset in ["turnpike", "coturn"] {
            servers.push(preset.parse().map_err(anyhow::Error::msg)?);
        }
    }
    servers::make_names_unique(&mut servers);
    let prepare = |server: ServerSpec| {
        let directory = network.directory().join(&server.name);
        fs::create_dir(&directory)
            .with_context(|| format!("making the directory {}", directory.display()))?;
        let prepared = server.prepare(terms, &directory)?;
        Ok((server, prepared))
    };
    servers.into_iter().map(prepare).collect()
}

/// This machine, with the roles of its cores.
fn machine(cores: &Cores) -> Machine {
    let roles = Host::ALL.map(|host| (host.name().to_owned(), cores.of(host).to_vec()));
    Machine {
        kernel: machine::kernel(),
        cpu: machine::processor(),
        cores: linux_net::allowed_cores().map_or(0, |cores| cores.len()),
        roles: roles.into(),
        link: "veth".to_owned(),
        root: Some(machine::is_root()),
        virtual_machine: machine::is_virtual(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: Backend = Backend::Frames;
    const SOCKETS: Backend = Backend::Sockets;

    fn list(cells: &str) -> Vec<Cell> {
        cells.parse::<CellList>().unwrap().0
    }

    #[test]
    fn over_connections_the_peer_alone_may_have_frames() {
        assert_eq!(connections_peer(FRAMES, FRAMES).ok(), Some(FRAMES));
        assert_eq!(connections_peer(SOCKETS, FRAMES).ok(), Some(SOCKETS));
        assert!(connections_peer(FRAMES, SOCKETS).is_err());
    }

    #[test]
    fn sockets_receive_at_one_end_of_one_direction() {
        let ends = |backend, receive, cells: &str| {
            ends(backend, receive, &list(cells)).ok().map(|ends| (ends.client, ends.peer))
        };
        assert_eq!(ends(FRAMES, FRAMES, "quick"), Some((FRAMES, FRAMES)));
        assert_eq!(ends(SOCKETS, FRAMES, "quick"), Some((SOCKETS, SOCKETS)));
        let to_peer = "audio:1:c2p,alloc,video:1:c2p";
        assert_eq!(ends(FRAMES, SOCKETS, to_peer), Some((FRAMES, SOCKETS)));
        assert_eq!(ends(FRAMES, SOCKETS, "audio:1:p2c"), Some((SOCKETS, FRAMES)));
        for cells in ["audio:1:c2p,audio:1:p2c", "audio:1:echo", "alloc"] {
            assert_eq!(ends(FRAMES, SOCKETS, cells), None, "{cells}");
        }
    }

    #[test]
    fn bulk_transfers_are_sent_by_sockets() {
        let can = |peer| can_send(Ends { client: SOCKETS, peer }, &list("uneven:9:c2p")).is_ok();
        assert!(can(SOCKETS) && !can(FRAMES));
    }

    #[test]
    fn a_forwarder_takes_part_in_traffic_alone() {
        let can = |peer, cells| can_be_bare(Ends { client: FRAMES, peer }, &list(cells)).is_ok();
        assert!(can(FRAMES, "audio:1:c2p,video:1:echo"));
        assert!(!can(SOCKETS, "audio:1:c2p"));
        assert!(!can(FRAMES, "audio:1:c2p,alloc") && !can(FRAMES, "footprint"));
    }
}
