//! Setting a call up: log in, allocate, bind a channel to the other end, and let it run.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::anyhow;
use linux_net::{Clock, random_bytes};
use stun_wire::ChannelNumber;
use tokio::net::{UdpSocket, lookup_host};
use tokio::time::{sleep, timeout};
use turn_client::{
    AllocateOptions, Client, ClientConfig, Event, Failure as ClientFailure, Families,
};
use turn_types::{Instant, IpFamily, PeerAddr, ServerAddr};

use crate::commands::demo::endpoint::{Call, Endpoint, Line};
use crate::commands::demo::local::{LocalServer, PEER};
use crate::commands::demo::packet::Direction;
use crate::commands::demo::tally::Tallies;
use crate::failure::{Failure, OrFail as _, Result};

/// How long setting up may take: a few round trips, and retransmissions of a packet or two.
const SET_UP_DEADLINE: Duration = Duration::from_secs(10);

/// The port when a URI names none (RFC 8656 §5).
const TURN_PORT: u16 = 3478;

/// How often progress is shown on a terminal, and elsewhere.
const PROGRESS_TERMINAL: Duration = Duration::from_millis(500);
const PROGRESS_ELSEWHERE: Duration = Duration::from_secs(5);

/// How a client proves who it is.
#[derive(Clone, Copy)]
pub(crate) struct Login<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
}

/// What became of a call.
pub(crate) struct Outcome {
    /// What it went through.
    pub(crate) server: SocketAddr,
    /// The two directions, for people.
    pub(crate) directions: [&'static str; 2],
    pub(crate) tallies: Tallies,
    /// How long packets were sent.
    pub(crate) time: Duration,
}

/// A call from a client through the demo's own server to a peer in this process.
pub(crate) async fn with_a_peer(
    server: &LocalServer,
    time: Duration,
    quiet: bool,
) -> Result<Outcome> {
    let peer = UdpSocket::bind((PEER, 0)).await.or_fail("cannot open the peer's socket")?;
    let login = Login { user: &server.user, password: &server.password };
    let mut caller = Caller::log_in(server.address, login).await?;
    let channel = caller.bind_channel(peer.local_addr()?).await?;
    peer.connect(caller.relayed).await?;
    let line = Line::Relayed { client: Box::new(caller.client), channel };
    let sockets = (&caller.socket, &peer);
    let directions = ["client to peer", "peer to client"];
    let (tallies, time, lines) = converse(sockets, (line, Line::Plain), time, quiet).await?;
    release(&caller.socket, lines.0).await;
    Ok(Outcome { server: server.address, directions, tallies, time })
}

/// A call between two clients of a running server.
pub(crate) async fn between_two_clients(
    uri: &str,
    login: Login<'_>,
    time: Duration,
    quiet: bool,
) -> Result<Outcome> {
    let server = resolve(uri).await?;
    let mut a = Caller::log_in(server, login).await?;
    let mut b = Caller::log_in(server, login).await?;
    let channel_a = a.bind_channel(b.relayed).await?;
    let channel_b = b.bind_channel(a.relayed).await?;
    let lines = (
        Line::Relayed { client: Box::new(a.client), channel: channel_a },
        Line::Relayed { client: Box::new(b.client), channel: channel_b },
    );
    let directions = ["A to B", "B to A"];
    let (tallies, time, lines) = converse((&a.socket, &b.socket), lines, time, quiet).await?;
    release(&a.socket, lines.0).await;
    release(&b.socket, lines.1).await;
    Ok(Outcome { server, directions, tallies, time })
}

/// Lets both ends talk for `time`, or until Ctrl-C.
async fn converse(
    sockets: (&UdpSocket, &UdpSocket),
    lines: (Line, Line),
    time: Duration,
    quiet: bool,
) -> Result<(Tallies, Duration, (Line, Line))> {
    let start = Clock::now().instant;
    let call = Call { tallies: RefCell::new(Tallies::new()), end: Cell::new(start + time) };
    let lines = talk(&call, sockets, lines, (start, time), quiet).await?;
    if !quiet && io::stderr().is_terminal() {
        eprintln!();
    }
    let time = call.end.get().saturating_since(start);
    Ok((call.tallies.into_inner(), time, lines))
}

async fn talk(
    call: &Call,
    sockets: (&UdpSocket, &UdpSocket),
    lines: (Line, Line),
    (start, time): (Instant, Duration),
    quiet: bool,
) -> Result<(Line, Line)> {
    let end = |socket, line, direction| Endpoint { call, socket, line, direction };
    let forth = end(sockets.0, lines.0, Direction::Forth);
    let back = end(sockets.1, lines.1, Direction::Back);
    let talk = async { tokio::try_join!(forth.run(start), back.run(start)) };
    tokio::pin!(talk);
    loop {
        tokio::select! {
            lines = &mut talk => return lines,
            () = show_progress(call, start, time), if !quiet => {}
            interrupted = tokio::signal::ctrl_c(), if call.end.get() == start + time => {
                interrupted?;
                call.end.set(Clock::now().instant);
            }
        }
    }
}

/// One line, again and again; never ends.
async fn show_progress(call: &Call, start: Instant, time: Duration) {
    let terminal = io::stderr().is_terminal();
    loop {
        sleep(if terminal { PROGRESS_TERMINAL } else { PROGRESS_ELSEWHERE }).await;
        let (sent, arrived) = call.tallies.borrow().sums();
        let passed = Clock::now().instant.saturating_since(start).min(time).as_secs();
        let line =
            format!("{passed:>3} of {} s: {sent} packets sent, {arrived} relayed", time.as_secs());
        if terminal {
            eprint!("\r{line}");
            // A terminal that cannot be written to has nobody who reads it.
            let _ = io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }
}

/// Gives the allocation back, so that it does not stay until it expires. Best effort: one packet.
async fn release(socket: &UdpSocket, line: Line) {
    if let Line::Relayed { mut client, .. } = line {
        let _ = client.release(Clock::now().instant);
        while let Some(request) = client.poll_transmit() {
            let _ = socket.send(request).await;
        }
    }
}

/// A client with an allocation.
struct Caller {
    socket: UdpSocket,
    client: Client,
    relayed: SocketAddr,
}

impl Caller {
    async fn log_in(server: SocketAddr, login: Login<'_>) -> Result<Self> {
        let mut families = [Families::Unsaid, Families::V6].into_iter();
        loop {
            let options = AllocateOptions {
                families: families.next().unwrap_or_default(),
                ..AllocateOptions::default()
            };
            match Self::allocate(server, login, options).await {
                // 440: no relayed address of that family (RFC 8656 §7.2).
                Err(Slip::Refused(440, _)) if families.len() > 0 => {}
                Err(slip) => return Err(slip.explain(server)),
                Ok(caller) => return Ok(caller),
            }
        }
    }

    async fn allocate(
        server: SocketAddr,
        login: Login<'_>,
        options: AllocateOptions,
    ) -> Result<Self, Slip> {
        let unspecified = IpFamily::of(server.ip()).unspecified();
        let socket = UdpSocket::bind((unspecified, 0)).await?;
        socket.connect(server).await?;
        let config =
            ClientConfig::new(ServerAddr(server), login.user, login.password, random_bytes());
        let mut client = Client::new(config);
        client.allocate(Clock::now().instant, options).map_err(|e| Slip::Other(e.to_string()))?;
        let mut relayed = None;
        drive(&socket, &mut client, |event| {
            if let Event::Allocated(allocation) = event {
                relayed = allocation.relayed.iter().flatten().next().map(|addr| addr.0);
            }
            relayed.is_some()
        })
        .await?;
        let relayed =
            relayed.ok_or_else(|| Slip::Other("there is no relayed address".to_owned()))?;
        Ok(Self { socket, client, relayed })
    }

    async fn bind_channel(&mut self, peer: SocketAddr) -> Result<ChannelNumber> {
        let server = self.client.server().0;
        let bound = async {
            let channel = self
                .client
                .bind_channel(Clock::now().instant, PeerAddr(peer))
                .map_err(|error| Slip::Other(error.to_string()))?;
            drive(&self.socket, &mut self.client, |event| {
                matches!(event, Event::ChannelReady { channel: ready, .. } if *ready == channel)
            })
            .await?;
            Ok(channel)
        };
        bound.await.map_err(|slip: Slip| slip.explain(server))
    }
}

/// Lets the client talk to its server until `done` says so.
async fn drive(
    socket: &UdpSocket,
    client: &mut Client,
    done: impl FnMut(&Event) -> bool,
) -> Result<(), Slip> {
    timeout(SET_UP_DEADLINE, drive_on(socket, client, done)).await.map_err(|_| Slip::TimedOut)?
}

async fn drive_on(
    socket: &UdpSocket,
    client: &mut Client,
    mut done: impl FnMut(&Event) -> bool,
) -> Result<(), Slip> {
    let mut datagram = [0; 2048];
    loop {
        while let Some(request) = client.poll_transmit() {
            socket.send(request).await?;
        }
        while let Some(event) = client.poll_event() {
            if done(&event) {
                return Ok(());
            }
            match event {
                Event::Refused { code, reason, .. } => return Err(Slip::Refused(code, reason)),
                Event::Failed { failure, .. } => return Err(Slip::Failed(failure)),
                Event::Redirected { server, .. } => socket.connect(server.0).await?,
                Event::AllocationLost(reason) => {
                    return Err(Slip::Other(format!("the allocation was lost: {reason:?}")));
                }
                Event::Bound { .. }
                | Event::Allocated(_)
                | Event::Refreshed { .. }
                | Event::PermissionReady { .. }
                | Event::ChannelReady { .. }
                | Event::PermissionLost { .. }
                | Event::ChannelLost { .. }
                | Event::Released => {}
            }
        }
        let now = Clock::now().instant;
        let due = client.poll_timeout().unwrap_or(Instant::FAR_FUTURE).saturating_since(now);
        tokio::select! {
            received = socket.recv(&mut datagram) => {
                client.handle_datagram(Clock::now().instant, &datagram[..received?]);
            }
            () = sleep(due) => client.handle_timeout(Clock::now().instant),
        }
    }
}

/// Why a call could not be set up.
#[derive(Debug)]
enum Slip {
    Refused(u16, String),
    Failed(ClientFailure),
    TimedOut,
    Io(io::Error),
    Other(String),
}

impl From<io::Error> for Slip {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Slip {
    fn explain(self, server: SocketAddr) -> Failure {
        let silent = format!(
            "is it running? does a firewall let UDP port {} through? on its host `turnpike status` \
             tells more",
            server.port()
        );
        let failed = |why: String| Failure::failed(anyhow!("no call through {server}: {why}"));
        match self {
            Self::Refused(401, _) | Self::Failed(ClientFailure::IntegrityViolated) => {
                failed("user or password is wrong".to_owned()).hint(
                    "`turnpike user list` shows the users, `turnpike user add` gives one a new \
                     password",
                )
            }
            Self::Refused(403, reason) => failed(format!("the server refused the peer ({reason})"))
                .hint("peers.allow in the server's configuration lists exceptions"),
            Self::Refused(code, reason) => failed(format!("the server refused: {code} {reason}"))
                .hint("the server's log at level debug says why"),
            Self::TimedOut | Self::Failed(ClientFailure::TimedOut) => {
                failed("no answer".to_owned()).hint(silent)
            }
            Self::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
                failed("nobody listens there".to_owned()).hint(silent)
            }
            Self::Failed(failure) => failed(format!("{failure:?}")),
            Self::Io(error) => failed(error.to_string()),
            Self::Other(why) => failed(why),
        }
    }
}

/// The server that a TURN URI (RFC 7065) names: `turn:HOST`, `turn:HOST:PORT`,
/// `turn:HOST:PORT?transport=udp`.
async fn resolve(uri: &str) -> Result<SocketAddr> {
    let (host, port) = parse(uri).map_err(Failure::usage)?;
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok((ip, port).into());
    }
    let found = lookup_host((host, port)).await.map(|mut all| all.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(Failure::failed(anyhow!("{host} has no address"))),
        Err(error) => Err(Failure::failed(anyhow!("cannot find {host}: {error}"))),
    }
}

fn parse(uri: &str) -> anyhow::Result<(&str, u16)> {
    let advice = "write turn:HOST or turn:HOST:PORT, with IPv6 addresses in brackets";
    let rest = uri.strip_prefix("turn:").ok_or_else(|| anyhow!("{uri}: {advice}"))?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !matches!(query, "" | "transport=udp") {
        return Err(anyhow!("{uri}: the demo speaks UDP alone"));
    }
    let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let port = match port.map(str::parse) {
        None if place.ends_with(host) || place.ends_with(']') => TURN_PORT,
        Some(Ok(port)) if port != 0 => port,
        Some(_) | None => return Err(anyhow!("{uri}: {advice}")),
    };
    if host.is_empty() {
        return Err(anyhow!("{uri}: {advice}"));
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_name_host_and_port() {
        for (uri, expected) in [
            ("turn:192.0.2.1:3479", ("192.0.2.1", 3479)),
            ("turn:example.org", ("example.org", 3478)),
            ("turn:[2001:db8::1]:5", ("2001:db8::1", 5)),
            ("turn:[2001:db8::1]", ("2001:db8::1", 3478)),
            ("turn:example.org?transport=udp", ("example.org", 3478)),
        ] {
            assert_eq!(parse(uri).unwrap(), expected, "{uri}");
        }
        for uri in [
            "stun:example.org",
            "turn:",
            "turn::3478",
            "turn:h:0",
            "turn:h:port",
            "turn:h:70000",
            "turn:[::1]x",
            "turn:2001:db8::1",
            "turn:h?transport=tcp",
        ] {
            assert!(parse(uri).is_err(), "{uri}");
        }
    }
}
