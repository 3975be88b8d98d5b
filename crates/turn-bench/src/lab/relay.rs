//! The relay: threads that look up the session of each packet and send it on.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::ValueEnum;
use lab_net::UringUdp;
use linux_net::{
    Epoll, Events, Flow, Interest, Part, RxBatch, SendSocket, SendStats, TxBatch, UdpOptions,
    UdpSocket,
};
use turn_types::IpMeta;

/// Wait of a thread before it checks whether to stop.
const CHECK: Duration = Duration::from_millis(20);

/// Requested socket buffers in bytes; without privileges the system grants less.
const BUFFER_BYTES: usize = 8 << 20;

/// The largest datagram that is relayed.
const DATAGRAM_MAX: usize = 2048;

/// Messages per receive call.
const MESSAGES: usize = 32;

/// Buffers of the io_uring. More of them fall out of the cache.
const URING_BUFFERS: usize = 256;

/// Key of a session: run and flow, bytes 4 to 11 of a packet's header.
pub(super) type Key = [u8; 8];

/// The clients of the sessions.
pub(super) type Clients = HashMap<Key, SocketAddr>;

/// A way to relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Strategy {
    /// One map behind a reader-writer lock, one packet per system call
    Lock,
    /// A map for each thread, one packet per system call
    PerThread,
    /// A map for each thread, many packets per system call (recvmmsg, sendmmsg)
    Batched,
    /// As batched, and bursts of equal packets go through the kernel as one (UDP_GRO, UDP_SEGMENT):
    /// the way of the server
    GroGso,
    /// A map for each thread, many packets per system call (io_uring)
    IoUring,
}

impl Strategy {
    /// Checks that this kernel can run it; otherwise the reason.
    pub(super) fn available(self) -> Result<(), String> {
        match self {
            Self::Lock | Self::PerThread | Self::Batched => Ok(()),
            Self::GroGso => match linux_net::capabilities() {
                linux_net::Capabilities { gro: true, gso: true } => Ok(()),
                _ => Err("this kernel has no UDP_GRO or no UDP_SEGMENT (Linux 5.0)".to_owned()),
            },
            Self::IoUring => std::net::UdpSocket::bind("127.0.0.1:0")
                .and_then(|socket| UringUdp::new(socket, 2))
                .map(drop)
                .map_err(|error| {
                    format!(
                        "{error}: io_uring wants Linux 6.1, and may be forbidden \
                     (kernel.io_uring_disabled, or a container's system call filter)"
                    )
                }),
        }
    }

    /// Relays until the lane is stopped.
    fn run(self, lane: &Lane, shared: &RwLock<Clients>) -> io::Result<Counts> {
        // A map is whole after a panic between two of its operations.
        let read = || shared.read().unwrap_or_else(PoisonError::into_inner);
        if self == Self::Lock {
            // Readers write to the word that counts them: its cache line moves between cores.
            return one_by_one(lane, |key| read().get(key).copied());
        }
        let own = read().clone();
        let client = |key: &Key| own.get(key).copied();
        match self {
            Self::Lock | Self::PerThread => one_by_one(lane, client),
            Self::Batched => in_batches(lane, client, TxBatch::without_runs()),
            Self::GroGso => in_batches(lane, client, TxBatch::new()),
            Self::IoUring => by_uring(lane, client),
        }
    }
}

impl fmt::Display for Strategy {
    /// As on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// Opens the data port once for each thread, and returns the receive buffer in bytes.
pub(super) fn open(
    ip: IpAddr,
    threads: usize,
    strategy: Strategy,
) -> io::Result<(Vec<UdpSocket>, usize)> {
    let options = UdpOptions {
        reuse_port: true,
        recv_buffer: BUFFER_BYTES,
        send_buffer: BUFFER_BYTES,
        gro: strategy == Strategy::GroGso,
        packet_info: false,
        error_queue: false,
        device: None,
        free: false,
        adapts: false,
    };
    let (first, applied) = UdpSocket::bind((ip, 0).into(), &options)?;
    let port = first.local_addr();
    let mut sockets = vec![first];
    for _ in 1..threads {
        sockets.push(UdpSocket::bind(port, &options)?.0);
    }
    Ok((sockets, applied.recv_buffer))
}

/// Datagrams of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Taken by the kernel for the client.
    pub(super) forwarded: u64,
    /// Dropped: of no session, or too short for a key.
    pub(super) unknown: u64,
    /// Dropped: refused by the kernel.
    pub(super) refused: u64,
}

/// A running relay.
#[derive(Debug)]
pub(super) struct Relay {
    /// Its address.
    pub(super) data: SocketAddr,
    /// Handles of its sockets, for their drop counters.
    pub(super) sockets: Vec<UdpSocket>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<Counts>>>,
}

/// Socket of a thread, and the signal to stop.
struct Lane {
    socket: UdpSocket,
    stop: Arc<AtomicBool>,
}

impl Lane {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// A second handle of the socket.
    fn plain(&self) -> io::Result<std::net::UdpSocket> {
        Ok(self.socket.as_fd().try_clone_to_owned()?.into())
    }
}

impl Relay {
    /// Starts a thread for each socket, on its core of `cores` if given.
    ///
    /// # Errors
    /// No threads or descriptors left.
    pub(super) fn start(
        strategy: Strategy,
        sockets: Vec<UdpSocket>,
        clients: &Clients,
        cores: Option<&[usize]>,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(RwLock::new(clients.clone()));
        let data = sockets[0].local_addr();
        let handles = sockets.iter().map(UdpSocket::try_clone).collect::<io::Result<_>>()?;
        let mut threads = Vec::new();
        for (index, socket) in sockets.into_iter().enumerate() {
            let lane = Lane { socket, stop: Arc::clone(&stop) };
            let shared = Arc::clone(&shared);
            let core = cores.map(|cores| cores[index]);
            threads.push(thread::spawn(move || {
                if let Some(core) = core {
                    linux_net::pin_current_thread(core)?;
                }
                strategy.run(&lane, &shared)
            }));
        }
        Ok(Self { data, sockets: handles, stop, threads })
    }

    /// Stops the threads and adds up their counts.
    ///
    /// # Errors
    /// The first failure of a thread.
    pub(super) fn stop(self) -> io::Result<Counts> {
        self.stop.store(true, Ordering::Relaxed);
        let mut sum = Counts::default();
        for thread in self.threads {
            let counts =
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
            sum.forwarded += counts.forwarded;
            sum.unknown += counts.unknown;
            sum.refused += counts.refused;
        }
        Ok(sum)
    }
}

/// The key of a packet; `None` when it is too short.
fn key(datagram: &[u8]) -> Option<&Key> {
    datagram.get(4..).and_then(<[u8]>::first_chunk)
}

/// One packet per system call: `recvfrom`, which also waits, and `sendto`.
fn one_by_one(lane: &Lane, client: impl Fn(&Key) -> Option<SocketAddr>) -> io::Result<Counts> {
    let socket = lane.plain()?;
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(CHECK))?;
    let mut datagram = [0; DATAGRAM_MAX];
    let mut counts = Counts::default();
    while lane.goes_on() {
        let len = match socket.recv_from(&mut datagram) {
            Ok((len, _peer)) => len,
            // No packet in time, a signal, or a client that is gone.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock
                        | ErrorKind::TimedOut
                        | ErrorKind::Interrupted
                        | ErrorKind::ConnectionRefused
                ) =>
            {
                continue;
            }
            Err(error) => return Err(error),
        };
        match key(&datagram[..len]).and_then(&client) {
            Some(to) if socket.send_to(&datagram[..len], to).is_ok() => counts.forwarded += 1,
            Some(_) => counts.refused += 1,
            None => counts.unknown += 1,
        }
    }
    Ok(counts)
}

/// Many packets per system call, by the batches of the server; `tx` sends bursts as one or not.
fn in_batches(
    lane: &Lane,
    client: impl Fn(&Key) -> Option<SocketAddr>,
    mut tx: TxBatch,
) -> io::Result<Counts> {
    let epoll = Epoll::new()?;
    epoll.add(&lane.socket, 0, Interest::Read)?;
    let mut events = Events::new(1);
    let mut rx = RxBatch::new(MESSAGES);
    let (mut unknown, mut stats) = (0, SendStats::default());
    while lane.goes_on() {
        if rx.recv(&lane.socket)? == 0 {
            epoll.wait(&mut events, Some(CHECK))?;
            continue;
        }
        for message in 0..rx.len() {
            for (start, datagram) in rx.message(message).segments() {
                let Some(to) = key(datagram).and_then(&client) else {
                    unknown += 1;
                    continue;
                };
                let flow = Flow { socket: SendSocket(0), to, from: None, meta: IpMeta::DEFAULT };
                let part = Part::Rx { message, start, len: datagram.len() };
                if tx.push(flow, &[part], 0).is_err() {
                    tx.flush(&rx, &lane.socket, &mut stats, |_, _| {});
                    // An empty batch takes a datagram.
                    let _ = tx.push(flow, &[part], 0);
                }
            }
        }
        tx.flush(&rx, &lane.socket, &mut stats, |_, _| {});
    }
    Ok(Counts { forwarded: stats.datagrams, unknown, refused: stats.failed })
}

/// One multishot receive, and sends that are submitted together.
fn by_uring(lane: &Lane, client: impl Fn(&Key) -> Option<SocketAddr>) -> io::Result<Counts> {
    let mut ring = UringUdp::new(lane.plain()?, URING_BUFFERS)?;
    let mut unknown = 0;
    while lane.goes_on() {
        ring.turn(CHECK, |datagram| {
            let to = key(datagram).and_then(&client);
            unknown += u64::from(to.is_none());
            to
        })?;
    }
    let stats = ring.close();
    Ok(Counts { forwarded: stats.sent, unknown: unknown + stats.truncated, refused: stats.failed })
}
