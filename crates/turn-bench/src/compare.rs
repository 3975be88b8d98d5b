//! Paired comparison of servers: in every round each has its turn, and what is compared is what
//! they did in the same round.
//!
//! ```text
//! servers  how each is started, on the same terms      cells     under which loads
//! ceiling  the same without a server, for what the generator can do
//! cores    whose cores are whose                        network       three hosts and the links between them
//! certificate  one for the servers of a run
//! rounds   A B A B …, after a round that calibrates     turn      one server's turn
//! plan     what is asked of the clients' process        steps     that process
//! summary  from runs to measures                        statistics, table
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
use crate::frames;
use crate::machine;
use crate::outcome::{Compare, ComparedServer, Machine, Outcome};
use crate::traffic::{Backend, Direction, Transport};
use cells::{Cell, CellList};
use certificate::Certificate;
use cores::Cores;
use host::{Ends, Host, LISTEN, PEER, RELAY};
use network::Network;
use plan::Times;
use progress::Progress;
use rounds::{Comparison, PEER_PORT, Results};
use servers::{Prepared, ServerKind, ServerSpec, Terms};
pub(crate) use steps::run as run_steps;

/// The ports of relayed addresses: enough for every cell, below none that is in use.
const PORTS: (u16, u16) = (10_000, 65_535);
/// Where servers listen.
const LISTEN_PORT: u16 = 3478;
/// And for TLS.
const TLS_PORT: u16 = 5349;
/// What counts of a try while a maximum is searched.
const ATTEMPT: Duration = Duration::from_millis(200);
/// Before what counts, in each run.
const WARM_UP: Duration = Duration::from_millis(200);

/// The arguments of `compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// A server: turnpike (the one beside this program, or in PATH), turnpike=PATH (another
    /// build), turnpike-xdp, -tc, -xdp-generic or -sockets (by that way alone), coturn (turnserver in
    /// PATH), coturn=PATH, bare (a kernel forwarder, which is what any of them could be at most; frames
    /// alone), or NAME=COMMAND, a line of shell in which
    /// {listen}, {relay}, {peer}, {user}, {password}, {secret}, {realm}, {min_port}, {max_port} and
    /// {workers} are filled in, with TLS also {tls_listen}, {certificate} and {key}, and which stays in the foreground. May be given more than once;
    /// ratios are to the first [default: turnpike and coturn]
    #[arg(long, value_name = "SERVER")]
    pub server: Vec<ServerSpec>,
    /// Rounds that count. With fewer than 6 no difference can be told from noise
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Loads: quick, standard, full, or a list parted by commas of alloc (allocations), footprint
    /// (memory) and SHAPE:FLOWS:DIRECTION or SHAPE:FLOWS:DIRECTION:BYTES, such as
    /// video:100:c2p:1200; shapes are audio, video and flood, directions c2p (client to peer), p2c
    /// and echo
    #[arg(long, value_name = "CELLS", default_value = "quick")]
    pub cells: CellList,
    /// What clients are connected by. Over TCP and TLS clients send and receive by sockets, and --backend is the peer's. Servers speak TLS with a certificate made for the run
    /// (P-256), which nobody verifies; clients offer one version (tls is 1.3; coturn 4.6 wants tls12),
    /// one cipher (AES-128-GCM) and one exchange of keys alone, so that all servers do the same
    #[arg(long, value_enum, default_value_t = Transport::Udp)]
    pub transport: Transport,
    /// What sends and receives: sockets, or frames, which reach higher rates and arrive as from a
    /// card [default: frames where this kernel and these privileges allow them]
    #[arg(long, value_enum)]
    pub backend: Option<Backend>,
    /// What receives, where frames are sent: frames, or sockets, to which what the server sends merged
    /// crosses whole, as to a card that cuts it. Sockets limit the rate, and all cells have to be of one
    /// direction, c2p or p2c
    #[arg(long, value_enum, default_value = "frames")]
    pub receive: Backend,
    /// The common rate: this part of what the slowest server does at most. Half is enough to be work,
    /// and so far from the limit that no server has a queue for other reasons than its own
    #[arg(long, value_name = "PART", default_value_t = 0.5, value_parser = part)]
    pub common: f64,
    /// Cores that the server has for itself; it is started with as many threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub server_cores: usize,
    /// Measure each run this long, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.8", value_parser = seconds)]
    pub duration: Duration,
    /// Where the outcome goes.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Say nothing on standard error while it goes on
    #[arg(long)]
    pub quiet: bool,
}

/// A part of a rate: more than nothing, and not more than all.
fn part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if part > 0.0 && part <= 1.0 => Ok(part),
        _ => Err(format!("{text:?} is not a part of a rate: more than 0, and 1 at most")),
    }
}

/// Does what the arguments say.
///
/// # Errors
/// What this machine lacks; a server that cannot be started or used at all.
pub fn run(args: &CompareArgs) -> Result<()> {
    ensure!(!args.duration.is_zero(), "--duration: a run takes longer than nothing");
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let cores = Cores::assign(args.server_cores)?;
    let machine = machine(&cores);
    let backend = backend(args.backend)?;
    let ends = if args.transport.has_connections() {
        Ends { client: Backend::Sockets, peer: connections_peer(backend, args.receive)? }
    } else {
        ends(backend, args.receive, &args.cells.0)?
    };
    if args.server.iter().any(|server| server.kind == ServerKind::Bare) {
        can_be_bare(ends, &args.cells.0)?;
    }
    // What clients send by connections does not come in clumps, whatever the peer does.
    let links = if args.transport.has_connections() {
        ends
    } else {
        Ends { client: backend, peer: backend }
    };
    let network = Network::new(cores, links)?;
    let terms = terms(args, &network)?;
    let servers = prepare(&args.server, &terms, &network)?;
    let times = Times { warm_up: WARM_UP, measured: args.duration, attempt: ATTEMPT };
    let (rounds, common) = (args.rounds, args.common);
    let cells = &args.cells.0;
    let comparison = Comparison {
        network: &network,
        terms: &terms,
        servers: &servers,
        cells,
        rounds,
        common,
        ends,
        transport: args.transport,
        times,
    };
    let mut progress = Progress::new(comparison.estimate(), rounds, args.quiet);
    let Results { raw, failures, cells } = comparison.run(&mut progress)?;
    progress.finish();
    let command = std::env::args().collect();
    let servers = servers.into_iter().map(described).collect();
    let compare = Compare {
        machine,
        command,
        began,
        backend: if args.transport.has_connections() { ends.peer } else { backend },
        transport: args.transport,
        rounds,
        servers,
        cells,
        failures,
        raw,
    };
    args.output.write(&Outcome::Compare(compare))
}

/// What was asked for, or what can be had.
fn backend(asked: Option<Backend>) -> Result<Backend> {
    match (asked, frames::available()) {
        (Some(Backend::Sockets), _) => Ok(Backend::Sockets),
        (Some(Backend::Frames) | None, Ok(())) => Ok(Backend::Frames),
        (Some(Backend::Frames), Err(error)) => Err(error).context("--backend frames"),
        (None, Err(reason)) => {
            eprintln!("note: {reason}; packets go by sockets instead");
            Ok(Backend::Sockets)
        }
    }
}

/// What each end sends and receives by.
fn ends(backend: Backend, receive: Backend, cells: &[Cell]) -> Result<Ends> {
    if backend == Backend::Sockets || receive == Backend::Frames {
        return Ok(Ends { client: backend, peer: backend });
    }
    let mut directions: Vec<_> = cells.iter().filter_map(Cell::direction).collect();
    directions.dedup();
    match directions[..] {
        [Direction::ClientToPeer] => Ok(Ends { client: backend, peer: receive }),
        [Direction::PeerToClient] => Ok(Ends { client: receive, peer: backend }),
        _ => bail!(
            "--receive sockets wants traffic in one direction, all of it c2p or all of it p2c"
        ),
    }
}

/// What the peer of clients with connections does it by.
fn connections_peer(backend: Backend, receive: Backend) -> Result<Backend> {
    // Whoever says where frames are received means an end that sends frames, and clients do not.
    ensure!(
        receive == Backend::Frames,
        "--receive sockets is for --transport udp; for a peer with sockets say --backend sockets"
    );
    Ok(backend)
}

/// Whether a forwarder can take a server's part: what is not relayed would be the work of the server
/// beside it, and told as the forwarder's.
fn can_be_bare(ends: Ends, cells: &[Cell]) -> Result<()> {
    let frames = Ends { client: Backend::Frames, peer: Backend::Frames };
    ensure!(ends == frames, "--server bare: what it forwards is addressed to nobody's socket");
    let relays = cells.iter().all(|cell| cell.direction().is_some());
    ensure!(
        relays,
        "--server bare forwards packets, and does nothing else: leave out alloc and footprint"
    );
    Ok(())
}

fn terms(args: &CompareArgs, network: &Network) -> Result<Terms> {
    let certificate = args
        .transport
        .has_certificates()
        .then(|| Certificate::make(network.directory()))
        .transpose()?;
    let secret: [u8; 16] = linux_net::random_bytes();
    let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Terms {
        listen: SocketAddr::from((LISTEN, LISTEN_PORT)),
        tls_listen: SocketAddr::from((LISTEN, TLS_PORT)),
        transport: args.transport,
        certificate,
        relay: SocketAddr::from((RELAY, 0)),
        peer: SocketAddr::from((PEER, PEER_PORT)),
        user: "bench".to_owned(),
        password: secret.clone(),
        secret,
        realm: "bench".to_owned(),
        ports: PORTS,
        workers: args.server_cores,
    })
}

/// Each server with a directory of its own.
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
    servers
        .into_iter()
        .map(|server| {
            let directory = network.directory().join(&server.name);
            fs::create_dir(&directory)
                .with_context(|| format!("making the directory {}", directory.display()))?;
            let prepared = server.prepare(terms, &directory)?;
            Ok((server, prepared))
        })
        .collect()
}

/// This machine, with the roles of its cores.
fn machine(cores: &Cores) -> Machine {
    let roles = Host::ALL.map(|host| (host.name().to_owned(), cores.of(host).to_vec()));
    Machine {
        kernel: machine::kernel(),
        cpu: machine::processor(),
        cores: linux_net::allowed_cores().map_or(0, |cores| cores.len()),
        roles: roles.into(),
    }
}

fn described((server, prepared): (ServerSpec, Prepared)) -> ComparedServer {
    let Prepared { command, configuration, version, knows_secret: _ } = prepared;
    ComparedServer { name: server.name, version, command, configuration }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_connections_the_peer_alone_may_have_frames() {
        let (frames, sockets) = (Backend::Frames, Backend::Sockets);
        assert_eq!(connections_peer(frames, frames).ok(), Some(frames));
        assert_eq!(connections_peer(sockets, frames).ok(), Some(sockets));
        assert!(connections_peer(frames, sockets).is_err());
    }

    #[test]
    fn sockets_receive_at_one_end_of_one_direction() {
        let ends = |backend, receive, cells: &str| {
            let cells: CellList = cells.parse().unwrap();
            ends(backend, receive, &cells.0).ok().map(|ends| (ends.client, ends.peer))
        };
        let (frames, sockets) = (Backend::Frames, Backend::Sockets);
        assert_eq!(ends(frames, frames, "quick"), Some((frames, frames)));
        assert_eq!(ends(sockets, frames, "quick"), Some((sockets, sockets)));
        let to_peer = "audio:1:c2p,alloc,video:1:c2p";
        assert_eq!(ends(frames, sockets, to_peer), Some((frames, sockets)));
        assert_eq!(ends(frames, sockets, "audio:1:p2c"), Some((sockets, frames)));
        for cells in ["audio:1:c2p,audio:1:p2c", "audio:1:echo", "alloc"] {
            assert_eq!(ends(frames, sockets, cells), None, "{cells}");
        }
    }

    #[test]
    fn a_forwarder_is_compared_by_what_it_forwards() {
        let (frames, sockets) = (Backend::Frames, Backend::Sockets);
        let can = |peer, cells: &str| {
            let cells: CellList = cells.parse().unwrap();
            can_be_bare(Ends { client: frames, peer }, &cells.0).is_ok()
        };
        assert!(can(frames, "audio:1:c2p,video:1:echo"));
        assert!(!can(sockets, "audio:1:c2p"));
        assert!(!can(frames, "audio:1:c2p,alloc") && !can(frames, "footprint"));
    }
}
