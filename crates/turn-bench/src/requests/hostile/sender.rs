//! Sending the datagrams of an attack, and counting the answers.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use lab_net::{RawUdpSocket, ReceivedHeader};
use linux_net::{Clock, Epoll, Events, Interest, UdpSocket, random_bytes};
use turn_types::{Instant, Prefix};

use super::datagrams::{Datagrams, Noise};
use crate::requests::worker::Window;

/// Datagrams sent before the clock is looked at again.
const BURST: u64 = 32;

/// Sleep of the sender when nothing is due; later datagrams catch up.
const NAP: Duration = Duration::from_micros(200);

/// Wait for answers after the end.
const GRACE: Duration = Duration::from_millis(200);

/// Answers taken from one socket before the next has its turn.
const DATAGRAMS: usize = 64;

/// Sender of datagrams.
pub(super) enum Outlet {
    /// Sockets connected to the server, in turn.
    Sockets(Vec<UdpSocket>),
    /// A raw socket, with forged sources.
    Forged(Forger),
}

/// Sends with forged sources.
pub(super) struct Forger {
    pub(super) raw: RawUdpSocket,
    pub(super) sources: Sources,
    server: SocketAddrV4,
}

/// Datagrams sent within the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    pub(super) refused: u64,
}

/// Answers of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
}

impl Forger {
    pub(super) fn open(server: SocketAddr, sources: Prefix) -> Result<Self> {
        let SocketAddr::V4(server) = server else {
            bail!("sources are forged in IPv4 only: say an IPv4 --server");
        };
        let raw = RawUdpSocket::open(*server.ip())
            .context("a raw socket, to forge sources, wants CAP_NET_RAW: run as root")?;
        Ok(Self { raw, sources: Sources::new(sources)?, server })
    }
}

/// Addresses to forge.
pub(super) struct Sources {
    prefix: Prefix,
    first: u32,
    /// Number of random bits of an address.
    free: u32,
    noise: Noise,
}

impl Sources {
    fn new(prefix: Prefix) -> Result<Self> {
        let first = std::net::Ipv6Addr::from_bits(prefix.bits()).to_ipv4_mapped();
        let Some(first) = first else { bail!("{prefix} is not IPv4") };
        let free = u32::from(128 - prefix.len_128());
        let noise = Noise(u64::from_ne_bytes(random_bytes()) | 1);
        Ok(Self { prefix, first: first.to_bits(), free, noise })
    }

    fn next(&mut self) -> SocketAddrV4 {
        let made_up = self.noise.next();
        let host = (u64::from(u32::MAX) & made_up & ((1 << self.free) - 1)) as u32;
        let port = 1024 + (made_up >> 32) % 64_000;
        SocketAddrV4::new((self.first | host).into(), port as u16)
    }
}

/// Sends until the measured time is over, from `begin` on.
pub(super) fn send(
    outlet: &mut Outlet,
    datagrams: &mut Datagrams,
    rate: Option<u32>,
    begin: Instant,
    window: Window,
) -> Sent {
    let mut sent = Sent::default();
    let mut number = 0_u64;
    std::thread::sleep(begin.saturating_since(Clock::instant()));
    loop {
        let now = Clock::instant();
        if now >= window.end {
            return sent;
        }
        let due = match rate {
            None => number + BURST,
            Some(rate) => {
                let due = now.saturating_since(begin).as_nanos() * u128::from(rate) / 1_000_000_000;
                u64::try_from(due).unwrap_or(u64::MAX).min(number + BURST)
            }
        };
        if due <= number {
            std::thread::sleep(NAP);
        }
        let counts = window.contains(now);
        while number < due {
            let datagram = datagrams.numbered(number);
            let len = datagram.len() as u64;
            let taken = outlet.send(number, datagram);
            number += 1;
            if counts {
                sent.datagrams += u64::from(taken);
                sent.bytes += len * u64::from(taken);
                sent.refused += u64::from(!taken);
            }
        }
    }
}

impl Outlet {
    fn send(&mut self, number: u64, datagram: &[u8]) -> bool {
        match self {
            Self::Sockets(sockets) => {
                let at = (number % sockets.len() as u64) as usize;
                sockets[at].send(datagram).is_ok()
            }
            Self::Forged(forger) => {
                let from = forger.sources.next();
                forger.raw.send(from, forger.server, datagram).is_ok()
            }
        }
    }
}

/// Counts the answers of the server.
pub(super) enum ReplyListener {
    /// On the sockets of the sender.
    Sockets(Vec<UdpSocket>),
    /// Answers to forged addresses that are local to this host.
    Forged {
        /// Filters by the server's address.
        raw: RawUdpSocket,
        /// The forged addresses.
        sources: Prefix,
        /// The server, without its relay ports.
        server: SocketAddrV4,
    },
}

impl ReplyListener {
    /// The listener for a sender.
    pub(super) fn of(outlet: &Outlet) -> Result<Self> {
        match outlet {
            Outlet::Sockets(sockets) => {
                let clones = sockets.iter().map(UdpSocket::try_clone).collect::<Result<_, _>>();
                clones.map(Self::Sockets).context("handles of the sockets")
            }
            Outlet::Forged(forger) => {
                let raw = RawUdpSocket::open(*forger.server.ip()).context("a raw socket")?;
                let (sources, server) = (forger.sources.prefix, forger.server);
                Ok(Self::Forged { raw, sources, server })
            }
        }
    }

    /// Counts answers until a little after the measured time.
    pub(super) fn listen(&self, window: Window) -> Result<Answers> {
        let epoll = Epoll::new().context("epoll")?;
        match self {
            Self::Sockets(sockets) => {
                for (token, socket) in (0..).zip(sockets) {
                    epoll.add(socket, token, Interest::Read).context("epoll")?;
                }
            }
            Self::Forged { raw, .. } => epoll.add(raw, 0, Interest::Read).context("epoll")?,
        }
        let mut events = Events::new(64);
        let mut answers = Answers::default();
        loop {
            let now = Clock::instant();
            if now >= window.end + GRACE {
                return Ok(answers);
            }
            let wait = (window.end + GRACE).saturating_since(now);
            epoll.wait(&mut events, Some(wait)).context("epoll")?;
            let counts = Clock::instant() >= window.start;
            for event in events.iter() {
                let heard = self.take(event.token as usize, event.error)?;
                if counts {
                    answers.datagrams += heard.datagrams;
                    answers.bytes += heard.bytes;
                }
            }
        }
    }

    fn take(&self, at: usize, error: bool) -> Result<Answers> {
        let mut answers = Answers::default();
        let mut buffer = [0; 2048];
        for _ in 0..DATAGRAMS {
            let len = match self {
                Self::Sockets(sockets) => {
                    if error {
                        sockets[at].recv_errors(|_| ())?;
                    }
                    let Some(len) = sockets[at].recv(&mut buffer)? else { break };
                    len
                }
                Self::Forged { raw, sources, server } => {
                    let Some(ReceivedHeader { from, to, len }) = raw.recv()? else { break };
                    if from != *server || !sources.contains(IpAddr::V4(*to.ip())) {
                        continue;
                    }
                    len
                }
            };
            answers.datagrams += 1;
            answers.bytes += len as u64;
        }
        Ok(answers)
    }
}
