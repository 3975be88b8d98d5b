//! Call of the demo: two endpoints that exchange packets, and the outcome.

use std::cell::{Cell, RefCell};
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::anyhow;
use linux_net::Clock;
use tokio::net::{UdpSocket, lookup_host};
use tokio::time::sleep;
use turn_types::Instant;

use crate::commands::demo::caller::{Caller, Login};
use crate::commands::demo::endpoint::{self, Call, Endpoint, Line};
use crate::commands::demo::local::{LocalServer, PEER};
use crate::commands::demo::packet::Direction;
use crate::commands::demo::tally::Tallies;
use crate::failure::{Failure, OrFail as _, Result};
use crate::uri::{Carrier, Scheme, Uri};

/// Intervals of progress lines: on a terminal, and in other outputs.
const PROGRESS_TERMINAL: Duration = Duration::from_millis(500);
const PROGRESS_ELSEWHERE: Duration = Duration::from_secs(5);

/// Options of a call.
#[derive(Clone, Copy)]
pub(crate) struct CallOptions {
    /// Time for which packets are sent.
    pub(crate) time: Duration,
    /// True if no progress is shown.
    pub(crate) quiet: bool,
}

/// Outcome of a call.
pub(crate) struct Outcome {
    /// Address of the server.
    pub(crate) server: SocketAddr,
    /// Names of the two directions, for people.
    pub(crate) directions: [&'static str; 2],
    pub(crate) tallies: Tallies,
    /// Time for which packets were sent.
    pub(crate) time: Duration,
}

/// Runs a call from a client through the demo's server to a peer in this process.
pub(crate) async fn with_a_peer(server: &LocalServer, options: CallOptions) -> Result<Outcome> {
    let peer = endpoint::open(PEER.into()).await.or_fail("cannot open the peer's socket")?;
    let login = Login { user: &server.user, password: &server.password };
    let mut caller = Caller::log_in(server.address, login).await?;
    let channel = caller.bind_channel(peer.local_addr()?).await?;
    peer.connect(caller.relayed).await?;
    let client = Box::new(caller.client);
    let ends = [
        End { socket: &caller.socket, line: Line::Relayed { client, channel } },
        End { socket: &peer, line: Line::Plain },
    ];
    let directions = ["client to peer", "peer to client"];
    let (tallies, time) = converse(ends, options).await?;
    Ok(Outcome { server: server.address, directions, tallies, time })
}

/// Runs a call between two clients of a running server, through both relayed addresses.
pub(crate) async fn between_two_clients(
    uri: &str,
    login: Login<'_>,
    options: CallOptions,
) -> Result<Outcome> {
    let server = resolve(uri).await?;
    let mut a = Caller::log_in(server, login).await?;
    let mut b = Caller::log_in(server, login).await?;
    let channel_a = a.bind_channel(b.relayed).await?;
    let channel_b = b.bind_channel(a.relayed).await?;
    let relayed = |client, channel| Line::Relayed { client: Box::new(client), channel };
    let ends = [
        End { socket: &a.socket, line: relayed(a.client, channel_a) },
        End { socket: &b.socket, line: relayed(b.client, channel_b) },
    ];
    let (tallies, time) = converse(ends, options).await?;
    Ok(Outcome { server, directions: ["A to B", "B to A"], tallies, time })
}

/// Resolves the server's address in a TURN URI.
async fn resolve(uri: &str) -> Result<SocketAddr> {
    let uri: Uri = uri.parse().map_err(|error: String| Failure::usage(anyhow!(error)))?;
    if uri.scheme != Scheme::Turn || uri.secure || uri.carrier != Carrier::Udp {
        return Err(Failure::usage(anyhow!("the demo uses TURN over UDP: write turn:HOST:PORT")));
    }
    match lookup_host((uri.host.as_str(), uri.port)).await.map(|mut all| all.next()) {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(Failure::failed(anyhow!("{} has no address", uri.host))),
        Err(error) => Err(Failure::failed(anyhow!("cannot resolve {}: {error}", uri.host))),
    }
}

/// Socket and path of an endpoint.
struct End<'a> {
    socket: &'a UdpSocket,
    line: Line,
}

/// Runs both endpoints until the time has passed or Ctrl-C is pressed. Returns the tallies and the
/// elapsed time.
async fn converse([a, b]: [End<'_>; 2], options: CallOptions) -> Result<(Tallies, Duration)> {
    let start = Clock::now().instant;
    let end = start + options.time;
    let call = &Call { tallies: RefCell::new(Tallies::new()), end: Cell::new(end) };
    let run =
        |End { socket, line }, direction| Endpoint { call, socket, line, direction }.run(start);
    let both = async { tokio::try_join!(run(a, Direction::Forth), run(b, Direction::Back)) };
    tokio::pin!(both);
    loop {
        tokio::select! {
            ended = &mut both => break ended.map(drop)?,
            () = show_progress(call, start, options.time), if !options.quiet => {}
            interrupted = tokio::signal::ctrl_c(), if call.end.get() == end => {
                interrupted?;
                call.end.set(Clock::now().instant);
            }
        }
    }
    if !options.quiet && io::stderr().is_terminal() {
        eprintln!();
    }
    let time = call.end.get().saturating_since(start);
    Ok((call.tallies.replace(Tallies::new()), time))
}

/// Prints progress lines forever.
async fn show_progress(call: &Call, start: Instant, time: Duration) {
    let terminal = io::stderr().is_terminal();
    loop {
        sleep(if terminal { PROGRESS_TERMINAL } else { PROGRESS_ELSEWHERE }).await;
        let (sent, arrived) = (call.tallies.borrow().sent(), call.tallies.borrow().arrived());
        let passed = Clock::now().instant.saturating_since(start).min(time).as_secs();
        let line =
            format!("{passed:>3} of {} s: {sent} packets sent, {arrived} relayed", time.as_secs());
        if terminal {
            eprint!("\r{line}");
            // A terminal that cannot be written to has no reader.
            let _ = io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }
}
