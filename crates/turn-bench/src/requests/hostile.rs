//! Attacks: the answers of a server, and the service of legitimate clients meanwhile.

mod call;
mod datagrams;
mod hellos;
mod sender;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use clap::ValueEnum;
use client_driver::Link;
use linux_net::{Clock, raise_open_files};
use turn_types::{IpFamily, Prefix};

use super::worker::{Window, Worker};
use super::{Kind, RequestSpec, SETTLE, outcome, shares, sleep_until, try_login};
use crate::cpu::{Meters, Watched};
use crate::outcome::{AttackedCall, Hostile, Used};
use crate::session::{Login, client_config, endpoint};
use crate::traffic::Transport;
pub use call::Call;
use datagrams::Datagrams;
use sender::{Forger, Outlet, ReplyListener};

/// Ports that hostile traffic comes from, unless it is forged.
const PORTS: u32 = 16;

/// Allocations that the well-behaved client asks for per second.
const PROBES_PER_SECOND: u32 = 10;

/// Its concurrent requests: more than are begun until one times out.
const PROBES_IN_FLIGHT: u32 = 128;

/// Kind of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Variant {
    /// No messages at all: noise, ChannelData of no channel, messages cut short
    Garbage,
    /// Allocate requests with a wrong password: MESSAGE-INTEGRITY does not verify
    Integrity,
    /// Allocate requests without credentials
    Unauthenticated,
    /// Allocate requests without credentials, from forged addresses; wants CAP_NET_RAW
    Spoofed,
    /// DTLS ClientHellos with valid cookies, each of which begins a handshake that is not
    /// continued. A cookie is used again as long as it lasts
    Dtls,
}

impl Variant {
    /// Name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::Integrity => "integrity",
            Self::Unauthenticated => "unauthenticated",
            Self::Spoofed => "spoofed",
            Self::Dtls => "dtls",
        }
    }
}

/// A run of hostile traffic.
#[derive(Clone, Debug)]
pub struct HostileSpec {
    /// Kind of attack.
    pub variant: Variant,
    /// The server.
    pub server: SocketAddr,
    /// Source address; `None` leaves it to the route.
    pub local: Option<IpAddr>,
    /// Source address of the legitimate client; `None` is the same.
    pub bystander: Option<IpAddr>,
    /// Login of the legitimate client; attackers use its user.
    pub login: Login,
    /// Addresses to forge, an IPv4 network. Answers are counted where it is local to this host.
    pub sources: Prefix,
    /// Datagrams per second; `None` is as many as one thread can send.
    pub rate: Option<u32>,
    /// Time that does not count yet.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
}

/// Runs it.
///
/// # Errors
/// The server does not answer, or refuses the login; sources cannot be forged for lack of
/// privileges; a core that cannot be watched; the call cannot be made.
pub fn run_hostile(
    spec: &HostileSpec,
    watched: &Watched,
    mut call: Option<&mut Call>,
) -> Result<Hostile> {
    raise_open_files().context("raising the limit of open files")?;
    try_login(&probe(spec), &spec.login)?;
    let quiet = call.as_deref_mut().map(Call::run).transpose()?;
    let (mut outlet, mut datagrams) = arm(spec)?;
    let listener = ReplyListener::of(&outlet)?;
    let mut meters = Meters::start(watched)?;
    let begin = Clock::instant() + SETTLE;
    let start = begin + spec.warm_up;
    let window = Window { start, end: start + spec.duration };
    let probe = probe(spec);
    let share = shares(&probe, begin, window).into_iter().next().context("no share")?;
    let worker = Worker::new(&probe, share)?;
    std::thread::scope(|scope| {
        let sending =
            scope.spawn(|| sender::send(&mut outlet, &mut datagrams, spec.rate, begin, window));
        let listening = scope.spawn(move || listener.listen(window));
        let probing = scope.spawn(|| worker.run());
        let metering = scope.spawn(|| {
            sleep_until(window.start);
            meters.begin();
            sleep_until(window.end);
            meters.end()
        });
        let attacked = call.map(|call| {
            sleep_until(begin);
            call.run()
        });
        let panicked = |_| anyhow!("a thread of the run has panicked");
        let sent = sending.join().map_err(panicked)?;
        let answers = listening.join().map_err(panicked)??;
        let tally = probing.join().map_err(panicked)??;
        let used = metering.join().map_err(panicked)?;
        let attacked = attacked.transpose()?;
        Ok(Hostile {
            variant: spec.variant.name().to_owned(),
            sent: sent.datagrams,
            sent_bytes: sent.bytes,
            refused: sent.refused,
            answers: answers.datagrams,
            answer_bytes: answers.bytes,
            probe: outcome(&probe, tally, Used::default()),
            call: quiet
                .zip(attacked)
                .map(|(quiet, attacked)| Box::new(AttackedCall { quiet, attacked })),
            duration: spec.duration,
            used,
        })
    })
}

/// The legitimate client.
fn probe(spec: &HostileSpec) -> RequestSpec {
    RequestSpec {
        kind: Kind::Allocation { release: true },
        server: spec.server,
        transport: Transport::Udp,
        local: spec.bystander.or(spec.local),
        login: Some(spec.login.clone()),
        family: IpFamily::V4,
        in_flight: PROBES_IN_FLIGHT,
        threads: 1,
        rate: Some(PROBES_PER_SECOND),
        warm_up: spec.warm_up,
        duration: spec.duration,
    }
}

/// The datagrams and their sender.
fn arm(spec: &HostileSpec) -> Result<(Outlet, Datagrams)> {
    let forger = match spec.variant {
        // First: without the privilege there is no request to the server.
        Variant::Spoofed => Some(Forger::open(spec.server, spec.sources)?),
        Variant::Garbage | Variant::Integrity | Variant::Unauthenticated | Variant::Dtls => None,
    };
    let endpoint = endpoint(spec.server, Transport::Udp, spec.local)?;
    let credentials = spec.login.credentials(0, Clock::now().unix);
    let mut links = (0..PORTS)
        .map(|_| Link::open(&endpoint, client_config(&endpoint, &credentials)).context("a socket"))
        .collect::<Result<Vec<_>>>()?;
    let datagrams = match spec.variant {
        Variant::Dtls => hellos::collect(&links),
        Variant::Garbage | Variant::Integrity | Variant::Unauthenticated | Variant::Spoofed => {
            Datagrams::make(spec.variant, &credentials.username, &endpoint, &mut links)
        }
    }
    .context("the datagrams of the attack")?;
    let outlet = match forger {
        Some(forger) => Outlet::Forged(forger),
        None => Outlet::Sockets(
            links.into_iter().map(|link| link.wire.into_udp()).collect::<std::io::Result<_>>()?,
        ),
    };
    Ok((outlet, datagrams))
}
