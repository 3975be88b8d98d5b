//! Opening and releasing many clients at the same time.

use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use client_driver::{Endpoint, Link, Pool, PoolEvent};
use linux_net::{Clock, raise_open_files};
use turn_client::Event;
use turn_types::{Instant, IpFamily, PeerAddr};

use super::error::SessionError;
use super::{SessionOptions, allocate, client_config};

/// Descriptors of a process besides those of its clients: epoll, files, other sockets.
const SPARE_DESCRIPTORS: u64 = 64;

/// The longest single wait; a bound without meaning.
const TURN: Duration = Duration::from_secs(1);

/// Wait for pending clients after another was refused.
const IN_FLIGHT_PATIENCE: Duration = Duration::from_secs(1);

/// Concurrent releases.
const CLOSING_IN_FLIGHT: usize = 64;

/// Time for all releases: a retransmission or two. The others expire.
const CLOSING: Duration = Duration::from_secs(3);

/// State in which a client is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// An allocation without permission.
    Allocation,
    /// An allocation and a channel to the peer, which brings the permission.
    Channel,
}

/// Opens all the clients, or none.
pub(crate) fn open_links(options: &SessionOptions, want: Want) -> Result<Vec<Link>> {
    make_room(options.sessions)?;
    let endpoint = options.endpoint()?;
    let mut pool = Pool::new().context("epoll")?;
    let opened = fill(&mut pool, options, &endpoint, want);
    let links = pool.into_links();
    match opened {
        Ok(()) => Ok(links),
        Err(error) => {
            close_links(links);
            Err(error)
        }
    }
}

fn fill(pool: &mut Pool, options: &SessionOptions, endpoint: &Endpoint, want: Want) -> Result<()> {
    let (mut open, mut settled) = (0, Vec::new());
    let mut in_flight = 0;
    let mut error = None;
    let mut deadline = Instant::FAR_FUTURE;
    while open < options.sessions && Clock::instant() < deadline {
        while error.is_none()
            && settled.len() < options.sessions as usize
            && in_flight < options.in_flight.max(1)
        {
            let link = start(options, endpoint, want, settled.len() as u32)?;
            pool.add(link).context("epoll")?;
            settled.push(false);
            in_flight += 1;
        }
        let until = deadline.min(Clock::instant() + TURN);
        pool.turn(until, |index, event| {
            let judged = judge(event, want);
            let ends = !matches!(judged, Ok(false));
            if ends && !std::mem::replace(&mut settled[index], true) {
                in_flight -= 1;
            }
            match judged {
                Ok(ready) => open += u32::from(ready),
                Err(cause) => error = error.take().or(Some(cause)),
            }
        })?;
        if error.is_some() {
            // Requests in flight may still be granted, and have to be released then.
            let soon = Clock::instant() + IN_FLIGHT_PATIENCE;
            deadline = if in_flight == 0 { Clock::instant() } else { deadline.min(soon) };
        }
    }
    match error {
        Some(error) => Err(explain(&error, options, want, open)),
        None => Ok(()),
    }
}

/// A client with its requests pending.
fn start(options: &SessionOptions, endpoint: &Endpoint, want: Want, number: u32) -> Result<Link> {
    let now = Clock::now();
    let credentials = options.login.credentials(number, now.unix);
    let mut link = Link::open(endpoint, client_config(endpoint, &credentials))
        .map_err(|error| no_socket(error, options, number))?;
    allocate(&mut link.client, now.instant, IpFamily::of(options.peer.ip()))?;
    match want {
        Want::Allocation => {}
        Want::Channel => {
            // Requested as soon as there is an allocation.
            link.client.bind_channel(now.instant, PeerAddr(options.peer_of(number)))?;
        }
    }
    Ok(link)
}

/// Returns true if an event makes a client ready.
fn judge(event: PoolEvent, want: Want) -> Result<bool, SessionError> {
    let event = match event {
        PoolEvent::Unreachable(error) => return Err(SessionError::Unreachable(error)),
        PoolEvent::Broken(why) => return Err(SessionError::Connection(why)),
        PoolEvent::Client(event) => event,
    };
    let ready = match want {
        Want::Allocation => matches!(event, Event::Allocated(_)),
        Want::Channel => matches!(event, Event::ChannelReady { .. }),
    };
    SessionError::at_setup(event).map_or(Ok(ready), Err)
}

fn explain(error: &SessionError, options: &SessionOptions, want: Want, open: u32) -> anyhow::Error {
    let SessionOptions { server, sessions, .. } = options;
    let wanted = match want {
        Want::Allocation => "allocations".to_owned(),
        Want::Channel => format!("sessions with the peer {}", options.peer),
    };
    let advice = error.advice().map(|advice| format!("\n  {advice}")).unwrap_or_default();
    anyhow!("{open} of {sessions} {wanted} were open at {server}, then: {error}{advice}")
}

fn no_socket(error: io::Error, options: &SessionOptions, number: u32) -> anyhow::Error {
    let text = format!("a socket for session {number} of {}", options.sessions);
    let advice = match (error.kind(), options.local) {
        (io::ErrorKind::AddrInUse, _) => ": no ports are left, see net.ipv4.ip_local_port_range",
        (io::ErrorKind::AddrNotAvailable, Some(_)) => ": --local is no address of this host",
        _ => "",
    };
    anyhow::Error::from(error).context(format!("{text}{advice}"))
}

/// Raises the limit of open files for `sockets`.
fn make_room(sockets: u32) -> Result<()> {
    let allowed = raise_open_files().context("raising the limit of open files")?;
    let wanted = u64::from(sockets) + SPARE_DESCRIPTORS;
    ensure!(
        allowed >= wanted,
        "{sockets} sessions want {wanted} open files, and this process may have {allowed}: raise \
         the hard limit (`ulimit -Hn {wanted}` as root, or LimitNOFILE= in a unit)"
    );
    Ok(())
}

/// Releases all the allocations, in bounded time, and returns how many were not confirmed.
pub(crate) fn close_links(links: Vec<Link>) -> usize {
    let holding = |link: &Link| link.client.allocation().is_some();
    let mut waiting: Vec<Link> = links.into_iter().filter(holding).collect();
    let total = waiting.len();
    // After an error of the kernel the allocations expire.
    let released = release(&mut waiting).unwrap_or(0);
    for mut link in waiting {
        // No time left for the answer; the request alone nearly always arrives.
        let _ = link.client.release(Clock::instant());
        link.send();
    }
    total - released
}

/// Releases links from the end of `waiting`, and returns how many releases were confirmed.
fn release(waiting: &mut Vec<Link>) -> io::Result<usize> {
    let deadline = Clock::instant() + CLOSING;
    let mut pool = Pool::new()?;
    let (mut released, mut ended) = (0, Vec::new());
    let mut in_flight = 0_usize;
    loop {
        let now = Clock::instant();
        while in_flight < CLOSING_IN_FLIGHT
            && now < deadline
            && let Some(mut link) = waiting.pop()
        {
            // Earlier events are of no interest.
            while link.client.poll_event().is_some() {}
            if link.client.release(now).is_ok() {
                pool.add(link)?;
                ended.push(false);
                in_flight += 1;
            }
        }
        if in_flight == 0 || now >= deadline {
            return Ok(released);
        }
        pool.turn(deadline, |index, event| {
            let done = matches!(event, PoolEvent::Client(Event::Released));
            let failed = match event {
                PoolEvent::Unreachable(_) | PoolEvent::Broken(_) => true,
                PoolEvent::Client(event) => SessionError::at_setup(event).is_some(),
            };
            if (done || failed) && !std::mem::replace(&mut ended[index], true) {
                in_flight -= 1;
                released += usize::from(done);
            }
        })?;
    }
}
