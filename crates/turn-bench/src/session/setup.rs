//! Opening and closing many clients at the same time.

use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use linux_net::{Clock, raise_open_files};
use turn_client::Event;
use turn_types::{Instant, IpFamily, PeerAddr};

use super::SessionOptions;
use super::fleet::{Fleet, Notice};
use super::link::Link;
use super::trouble::Trouble;

/// Descriptors that a process wants besides those of its clients: epoll, files, other sockets.
const SPARE_DESCRIPTORS: u64 = 64;

/// The longest single wait; nothing depends on it.
const TURN: Duration = Duration::from_secs(1);

/// How long clients are waited for that are still asking when another has been refused.
const IN_FLIGHT_PATIENCE: Duration = Duration::from_secs(1);

/// Allocations given back at the same time.
const CLOSING_IN_FLIGHT: usize = 64;

/// How long giving back may take in all: a retransmission or two. What is left ends by itself.
const CLOSING: Duration = Duration::from_secs(3);

/// When a client is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// An allocation with nothing in it.
    Allocation,
    /// An allocation and a channel to the peer, which brings the permission.
    Channel,
}

/// Opens all the clients, or none.
pub(crate) fn open_links(options: &SessionOptions, want: Want) -> Result<Vec<Link>> {
    make_room(options.sessions)?;
    let mut fleet = Fleet::new().context("epoll")?;
    let opened = fill(&mut fleet, options, want);
    let links = fleet.into_links();
    match opened {
        Ok(()) => Ok(links),
        Err(error) => {
            close_links(links);
            Err(error)
        }
    }
}

fn fill(fleet: &mut Fleet, options: &SessionOptions, want: Want) -> Result<()> {
    let (mut open, mut settled) = (0, Vec::new());
    let mut in_flight = 0;
    let mut trouble = None;
    let mut deadline = Instant::FAR_FUTURE;
    while open < options.sessions && Clock::instant() < deadline {
        while trouble.is_none()
            && settled.len() < options.sessions as usize
            && in_flight < options.in_flight.max(1)
        {
            let link = start(options, want, settled.len() as u32)?;
            fleet.add(link).context("epoll")?;
            settled.push(false);
            in_flight += 1;
        }
        let until = deadline.min(Clock::instant() + TURN);
        fleet.turn(until, |index, notice| {
            let judged = judge(notice, want);
            let ends = !matches!(judged, Ok(false));
            if ends && !std::mem::replace(&mut settled[index], true) {
                in_flight -= 1;
            }
            match judged {
                Ok(ready) => open += u32::from(ready),
                Err(cause) => trouble = trouble.take().or(Some(cause)),
            }
        })?;
        if trouble.is_some() {
            // What is in flight may still be granted, and is then to be given back.
            let soon = Clock::instant() + IN_FLIGHT_PATIENCE;
            deadline = if in_flight == 0 { Clock::instant() } else { deadline.min(soon) };
        }
    }
    match trouble {
        Some(trouble) => Err(explain(&trouble, options, want, open)),
        None => Ok(()),
    }
}

/// A client that asks for all it wants.
fn start(options: &SessionOptions, want: Want, number: u32) -> Result<Link> {
    let now = Clock::now();
    let credentials = options.login.credentials(number, now.unix);
    let mut link = Link::open(&options.place(), &credentials)
        .map_err(|error| no_socket(error, options, number))?;
    link.allocate(now.instant, IpFamily::of(options.peer.ip()))?;
    match want {
        Want::Allocation => {}
        Want::Channel => {
            // Remembered, and asked for as soon as there is an allocation.
            link.client.bind_channel(now.instant, PeerAddr(options.peer))?;
        }
    }
    Ok(link)
}

/// Whether a client is ready by this.
fn judge(notice: Notice, want: Want) -> Result<bool, Trouble> {
    let event = match notice {
        Notice::Unreachable(error) => return Err(Trouble::Unreachable(error)),
        Notice::Broken(why) => return Err(Trouble::Connection(why)),
        Notice::Client(event) => event,
    };
    let ready = match want {
        Want::Allocation => matches!(event, Event::Allocated(_)),
        Want::Channel => matches!(event, Event::ChannelReady { .. }),
    };
    Trouble::at_setup(event).map_or(Ok(ready), Err)
}

fn explain(trouble: &Trouble, options: &SessionOptions, want: Want, open: u32) -> anyhow::Error {
    let SessionOptions { server, sessions, .. } = options;
    let what = match want {
        Want::Allocation => "allocations".to_owned(),
        Want::Channel => format!("sessions with the peer {}", options.peer),
    };
    let advice = trouble.advice().map(|advice| format!("\n  {advice}")).unwrap_or_default();
    anyhow!("{open} of {sessions} {what} were open at {server}, then: {trouble}{advice}")
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

/// Sees to it that there may be so many sockets.
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

/// Gives all the allocations back, in bounded time, and returns how many were not confirmed.
pub(crate) fn close_links(links: Vec<Link>) -> usize {
    let holding = |link: &Link| link.client.allocation().is_some();
    let mut waiting: Vec<Link> = links.into_iter().filter(holding).collect();
    let total = waiting.len();
    // An error of the kernel's cannot be helped here: allocations end by themselves.
    let released = release(&mut waiting).unwrap_or(0);
    for mut link in waiting {
        // No time left to wait for the answer; the request alone does it nearly always.
        let _ = link.client.release(Clock::instant());
        link.send();
    }
    total - released
}

/// Takes links from the end of `waiting`, and returns how many the server let go.
fn release(waiting: &mut Vec<Link>) -> io::Result<usize> {
    let deadline = Clock::instant() + CLOSING;
    let mut fleet = Fleet::new()?;
    let (mut released, mut ended) = (0, Vec::new());
    let mut in_flight = 0_usize;
    loop {
        let now = Clock::instant();
        while in_flight < CLOSING_IN_FLIGHT
            && now < deadline
            && let Some(mut link) = waiting.pop()
        {
            // What it told before is of no interest now.
            while link.client.poll_event().is_some() {}
            // It has an allocation, and hardly any other request in flight.
            if link.client.release(now).is_ok() {
                fleet.add(link)?;
                ended.push(false);
                in_flight += 1;
            }
        }
        if in_flight == 0 || now >= deadline {
            return Ok(released);
        }
        fleet.turn(deadline, |index, notice| {
            let done = matches!(notice, Notice::Client(Event::Released));
            let failed = match notice {
                Notice::Unreachable(_) | Notice::Broken(_) => true,
                Notice::Client(event) => Trouble::at_setup(event).is_some(),
            };
            if (done || failed) && !std::mem::replace(&mut ended[index], true) {
                in_flight -= 1;
                released += usize::from(done);
            }
        })?;
    }
}
