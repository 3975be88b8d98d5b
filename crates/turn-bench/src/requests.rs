//! Rates of requests, allocations and bindings, and attacks.

mod args;
mod hostile;
mod ports;
mod tally;
mod worker;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use client_driver::Endpoint;
use linux_net::{Clock, raise_open_files};
use turn_types::{Instant, IpFamily, Secret};

pub use args::RequestArgs;
pub use hostile::{Call, HostileSpec, Variant, run_hostile};

use crate::cpu::{Meters, Watched};
use crate::outcome::{Latency, Requests, Used};
use crate::session::{self, Credentials, Login, SessionOptions};
use crate::traffic::Transport;
use tally::Tally;
use worker::{Share, Window, Worker};

/// Descriptors beside the sockets of exchanges.
const SPARE_DESCRIPTORS: u64 = 64;

/// Time for threads to open their sockets before the first request.
const SETTLE: Duration = Duration::from_millis(100);

/// Kind of exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An allocation by a client that has never been seen: challenge, login, success, and, with
    /// `release`, Refresh with lifetime 0. Without, the server fills up.
    Allocation {
        /// Release it at once.
        release: bool,
    },
    /// STUN Binding.
    Binding,
}

impl Kind {
    /// Name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocation { release: true } => "alloc",
            Self::Allocation { release: false } => "alloc without release",
            Self::Binding => "binding",
        }
    }
}

/// A run of requests.
#[derive(Clone, Debug)]
pub struct RequestSpec {
    /// Kind of exchange.
    pub kind: Kind,
    /// The server.
    pub server: SocketAddr,
    /// Transport. Over streams and DTLS each allocation makes a connection of its own.
    pub transport: Transport,
    /// Source address of the clients; `None` leaves it to the route.
    pub local: Option<IpAddr>,
    /// Login of the clients; bindings need none.
    pub login: Option<Login>,
    /// Family of the relayed addresses.
    pub family: IpFamily,
    /// Exchanges at the same time over all threads, at least one for each.
    pub in_flight: u32,
    /// Threads that send and receive, 1 or more.
    pub threads: u32,
    /// Exchanges begun per second over all threads; `None` begins one as soon as another ended.
    pub rate: Option<u32>,
    /// Time that does not count yet.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
}

impl RequestSpec {
    fn endpoint(&self) -> Result<Endpoint> {
        Ok(session::endpoint(self.server, self.transport, self.local)?)
    }

    fn credentials(&self, client: u32) -> Credentials {
        match &self.login {
            Some(login) => login.credentials(client, Clock::now().unix),
            None => Credentials { username: Arc::from(""), password: Secret::new(Arc::from("")) },
        }
    }
}

/// Runs the exchanges, after a test of one allocation.
///
/// # Errors
/// The server does not answer, or refuses the login; a core that cannot be watched; too few
/// descriptors or ports.
pub fn run(spec: &RequestSpec, watched: &Watched) -> Result<Requests> {
    let allowed = raise_open_files().context("raising the limit of open files")?;
    ensure!(
        allowed >= u64::from(spec.in_flight) + SPARE_DESCRIPTORS,
        "--in-flight {} wants as many open files, and this process may have {allowed}: see \
         `ulimit -Hn`",
        spec.in_flight
    );
    ensure!(
        !spec.transport.has_connections() || spec.kind != Kind::Allocation { release: false },
        "--no-release wants UDP: an allocation over a connection ends with it"
    );
    if let (Kind::Allocation { .. }, Some(login)) = (spec.kind, &spec.login) {
        try_login(spec, login)?;
    }
    let mut meters = Meters::start(watched)?;
    let begin = Clock::instant() + SETTLE;
    let start = begin + spec.warm_up;
    let window = Window { start, end: start + spec.duration };
    let workers = shares(spec, begin, window)
        .into_iter()
        .map(|share| Worker::new(spec, share))
        .collect::<Result<Vec<_>>>()?;
    let mut used = Used::default();
    let tally = std::thread::scope(|scope| {
        let threads: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(|| worker.run())).collect();
        sleep_until(window.start);
        meters.begin();
        sleep_until(window.end);
        used = meters.end();
        let mut total = Tally::new()?;
        for thread in threads {
            let tally =
                thread.join().map_err(|_| anyhow!("a thread that sends has panicked"))??;
            total.add(tally)?;
        }
        Ok::<_, anyhow::Error>(total)
    })?;
    Ok(outcome(spec, tally, used))
}

fn outcome(spec: &RequestSpec, tally: Tally, used: Used) -> Requests {
    let mut failed: Vec<_> = tally.failed.into_iter().collect();
    failed.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    Requests {
        mode: spec.kind.name().to_owned(),
        transport: spec.transport,
        started: tally.started,
        succeeded: tally.succeeded,
        failed,
        datagrams: (tally.sent, tally.received),
        duration: spec.duration,
        latency: Latency::of(&tally.latency),
        used,
    }
}

/// Each thread's share of the exchanges, interleaved with the others.
fn shares(spec: &RequestSpec, begin: Instant, window: Window) -> Vec<Share> {
    let threads = spec.threads.max(1);
    let in_flight = spec.in_flight.max(threads);
    let apart = spec.rate.map(|rate| Duration::from_secs(1) / rate.max(1));
    let mut first = 0;
    (0..threads)
        .map(|thread| {
            let extra = u32::from(thread < in_flight % threads);
            let share = Share {
                first,
                in_flight: in_flight / threads + extra,
                interval: apart.map(|apart| apart * threads),
                begin: begin + apart.unwrap_or_default() * thread,
                window,
            };
            first += share.in_flight;
            share
        })
        .collect()
}

/// Opens and releases one allocation: a wrong setup is reported before measuring.
fn try_login(spec: &RequestSpec, login: &Login) -> Result<()> {
    let peer = SocketAddr::new(spec.family.unspecified(), 0);
    let options = SessionOptions {
        local: spec.local,
        transport: spec.transport,
        ..SessionOptions::new(spec.server, login.clone(), peer)
    };
    let idle = session::open_idle(&options).context("before measuring, one allocation")?;
    session::close_idle(idle);
    Ok(())
}

fn sleep_until(when: Instant) {
    std::thread::sleep(when.saturating_since(Clock::instant()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(in_flight: u32, threads: u32, rate: Option<u32>) -> RequestSpec {
        RequestSpec {
            kind: Kind::Binding,
            server: "127.0.0.1:9".parse().unwrap(),
            transport: Transport::Udp,
            local: None,
            login: None,
            family: IpFamily::V4,
            in_flight,
            threads,
            rate,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(1),
        }
    }

    #[test]
    fn threads_share_all_of_it() {
        let window = Window { start: Instant::ZERO, end: Instant::ZERO };
        let shares = shares(&spec(10, 3, Some(1000)), Instant::ZERO, window);
        let seen: Vec<_> = shares.iter().map(|share| (share.first, share.in_flight)).collect();
        assert_eq!(seen, [(0, 4), (4, 3), (7, 3)]);
        let starts: Vec<_> = shares.iter().map(|share| share.begin.as_nanos()).collect();
        assert_eq!(starts, [0, 1_000_000, 2_000_000]);
        assert!(shares.iter().all(|share| share.interval == Some(Duration::from_millis(3))));
    }

    #[test]
    fn every_thread_has_at_least_one() {
        let window = Window { start: Instant::ZERO, end: Instant::ZERO };
        let shares = shares(&spec(1, 2, None), Instant::ZERO, window);
        assert_eq!(shares.iter().map(|share| share.in_flight).collect::<Vec<_>>(), [1, 1]);
    }
}
