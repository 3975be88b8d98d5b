//! Clients and peers: peers send, clients count what arrives.
//!
//! Each session has a client and a peer of its own. One thread does both for its share of the
//! sessions: it sends until so many packets are on their way as the window says, then takes in what
//! arrived. So the relay always has work waiting, and is never drowned: a relay that gets more than
//! it can do spends its time on receiving what it then drops, and what is measured is the drowning.

mod worker;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use hdrhistogram::Histogram;
use linux_net::{UdpOptions, UdpSocket};

use super::flow::FlowState;
use super::protocol::{ID, SessionId};
use worker::Worker;

/// Asked for; what the system grants without privileges is less.
const BUFFER_BYTES: usize = 4 << 20;

/// A registration is sent so often, each time waiting so long for the answer.
const ATTEMPTS: usize = 25;
const PATIENCE: Duration = Duration::from_millis(200);

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Payload bytes after the session id, [`HEADER`](crate::packet::HEADER) at least.
    pub(super) size: usize,
    /// Packets that a session sends when it has its turn.
    pub(super) burst: u32,
    /// Packets on their way at once, over all sessions.
    pub(super) window: u32,
    /// Which run this is: packets of another are not counted.
    pub(super) run: u32,
}

/// When packets that count are sent, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// What became of the packets that count.
pub(super) struct Counted {
    /// Packets that the kernel took.
    pub(super) sent: u64,
    /// Packets that it did not take.
    pub(super) refused: u64,
    /// Those that arrived, each once.
    pub(super) delivered: u64,
    /// Those that arrived again, or too late to know.
    pub(super) again: u64,
    /// Packets at any time that came to a client who does not have their id.
    pub(super) misdirected: u64,
    /// Packets at any time that were not of this run, or not what was sent.
    pub(super) damaged: u64,
    /// From the sender's call to the receiver's, in nanoseconds.
    pub(super) latency: Histogram<u64>,
}

impl Counted {
    /// Nothing yet.
    ///
    /// # Errors
    /// Never: the bounds are those of a histogram.
    fn new() -> Result<Self> {
        // Up to a minute, three figures.
        let latency = Histogram::new_with_max(60_000_000_000, 3)?;
        let (sent, refused, delivered, again, misdirected, damaged) = (0, 0, 0, 0, 0, 0);
        Ok(Self { sent, refused, delivered, again, misdirected, damaged, latency })
    }

    fn add(&mut self, other: &Self) -> Result<()> {
        self.sent += other.sent;
        self.refused += other.refused;
        self.delivered += other.delivered;
        self.again += other.again;
        self.misdirected += other.misdirected;
        self.damaged += other.damaged;
        self.latency.add(&other.latency)?;
        Ok(())
    }
}

/// The sockets of one session.
#[derive(Debug)]
struct Ends {
    client: UdpSocket,
    peer: UdpSocket,
}

/// The sockets of clients and peers, opened where they shall be.
#[derive(Debug)]
pub(super) struct GeneratorSockets {
    ends: Vec<Ends>,
    recv_buffer: usize,
}

impl GeneratorSockets {
    /// Opens a client and a peer for each session.
    ///
    /// # Errors
    /// No descriptors left: `ulimit -n` is the bound.
    pub(super) fn open(ip: IpAddr, sessions: u32) -> io::Result<Self> {
        let options = UdpOptions {
            recv_buffer: BUFFER_BYTES,
            send_buffer: BUFFER_BYTES,
            error_queue: false,
            ..UdpOptions::default()
        };
        let mut recv_buffer = BUFFER_BYTES;
        let mut ends = Vec::new();
        for _ in 0..sessions {
            let (client, applied) = UdpSocket::bind((ip, 0).into(), &options)?;
            let (peer, _) = UdpSocket::bind((ip, 0).into(), &options)?;
            recv_buffer = recv_buffer.min(applied.recv_buffer);
            ends.push(Ends { client, peer });
        }
        Ok(Self { ends, recv_buffer })
    }

    /// The receive buffer of each client, in bytes.
    pub(super) const fn recv_buffer(&self) -> usize {
        self.recv_buffer
    }

    /// The clients' sockets, to ask for what they dropped.
    ///
    /// # Errors
    /// No descriptors left.
    pub(super) fn clients(&self) -> io::Result<Vec<UdpSocket>> {
        self.ends.iter().map(|ends| ends.client.try_clone()).collect()
    }

    /// Registers every client, each with its own id.
    ///
    /// # Errors
    /// A client was not answered.
    pub(super) fn register(&self, registration: SocketAddr) -> Result<()> {
        for (number, ends) in (0..).zip(&self.ends) {
            let client = std::net::UdpSocket::from(ends.client.as_fd().try_clone_to_owned()?);
            client.set_nonblocking(false)?;
            client.set_read_timeout(Some(PATIENCE))?;
            let id = SessionId::of_number(number);
            if !(0..ATTEMPTS).any(|_| answered(&client, registration, id)) {
                bail!("the relay at {registration} does not answer the registration of {id:?}");
            }
            client.set_nonblocking(true)?;
        }
        Ok(())
    }
}

/// Sends a registration and waits for its answer.
fn answered(client: &std::net::UdpSocket, to: SocketAddr, id: SessionId) -> bool {
    let mut answer = [0; 2 * ID];
    client.send_to(&id.0, to).is_ok()
        && client.recv(&mut answer).is_ok_and(|len| answer[..len] == id.0)
}

/// Clients and peers at work.
#[derive(Debug)]
pub(super) struct Generator {
    threads: Vec<JoinHandle<Result<Counted>>>,
}

impl Generator {
    /// Starts a thread for each of `threads`, kept on the core that it names, if any. Each has its
    /// share of the sessions and of the window. They end by themselves after the measured time.
    ///
    /// # Errors
    /// No threads left.
    pub(super) fn start(
        sockets: GeneratorSockets,
        data: SocketAddr,
        load: Load,
        measured: Measured,
        threads: &[Option<usize>],
    ) -> io::Result<Self> {
        let count = threads.len().clamp(1, sockets.ends.len().max(1));
        let mut shares: Vec<(Vec<FlowState>, Vec<Ends>)> = Vec::new();
        shares.resize_with(count, Default::default);
        for (number, ends) in (0..).zip(sockets.ends) {
            let (flows, sockets) = &mut shares[number as usize % count];
            flows.push(FlowState::new(number));
            sockets.push(ends);
        }
        let window = load.window / count as u32;
        let load = Load { window: window.max(load.burst), ..load };
        let start = |(index, (flows, ends)): (usize, (Vec<FlowState>, Vec<Ends>))| {
            let core = threads.get(index).copied().flatten();
            thread::Builder::new().name(format!("generator {index}")).spawn(move || {
                if let Some(core) = core {
                    linux_net::pin_current_thread(core).context("cannot stay on one core")?;
                }
                Worker::new(flows, ends, data, load, measured)?.run()
            })
        };
        let threads = shares.into_iter().enumerate().map(start).collect::<io::Result<_>>()?;
        Ok(Self { threads })
    }

    /// Waits until the measured time is over and the last packets are in.
    ///
    /// # Errors
    /// Why one of the threads gave up.
    pub(super) fn finish(self) -> Result<Counted> {
        let mut all = Counted::new()?;
        for thread in self.threads {
            match thread.join() {
                Ok(one) => all.add(&one?)?,
                Err(_) => bail!("a thread of the generator panicked"),
            }
        }
        Ok(all)
    }
}
