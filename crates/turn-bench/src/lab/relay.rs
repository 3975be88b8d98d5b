//! The relay: a thread that registers clients, and threads that pass on what peers send.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linux_net::{UdpOptions, UdpSocket};

use super::protocol::SessionId;
use super::sessions::Book;
use super::strategy::{Run, Strategy};

/// How long a thread waits before it looks whether it should stop.
pub(super) const LOOK_UP: Duration = Duration::from_millis(20);

/// Asked for; what the system grants without privileges is less.
const BUFFER_BYTES: usize = 8 << 20;

/// The sockets of a relay, opened where it shall run.
#[derive(Debug)]
pub(super) struct RelaySockets {
    registration: std::net::UdpSocket,
    data: Vec<UdpSocket>,
    recv_buffer: usize,
}

impl RelaySockets {
    /// Opens the registration port, and the data port once for each thread.
    ///
    /// # Errors
    /// What the system says: most of all that the address is not one of this host.
    pub(super) fn open(ip: IpAddr, threads: usize, strategy: Strategy) -> io::Result<Self> {
        let registration = std::net::UdpSocket::bind((ip, 0))?;
        registration.set_read_timeout(Some(LOOK_UP))?;
        let options = UdpOptions {
            reuse_port: true,
            recv_buffer: BUFFER_BYTES,
            send_buffer: BUFFER_BYTES,
            gro: strategy.takes_merged(),
            packet_info: false,
            error_queue: false,
        };
        let (first, applied) = UdpSocket::bind((ip, 0).into(), &options)?;
        let port = first.local_addr();
        let mut data = vec![first];
        for _ in 1..threads {
            data.push(UdpSocket::bind(port, &options)?.0);
        }
        Ok(Self { registration, data, recv_buffer: applied.recv_buffer })
    }
}

/// What a thread that relays works with.
#[derive(Debug)]
pub(super) struct Lane {
    /// Its socket of the data port.
    pub(super) socket: UdpSocket,
    stop: Arc<AtomicBool>,
}

impl Lane {
    /// Whether to go on.
    pub(super) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// What became of the datagrams of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Taken by the kernel for the client.
    pub(super) forwarded: u64,
    /// Dropped: of a session that nobody registered, or too short for an id.
    pub(super) unknown: u64,
    /// Dropped: the kernel did not take them.
    pub(super) refused: u64,
}

impl Tally {
    pub(super) const fn add(&mut self, other: Self) {
        self.forwarded += other.forwarded;
        self.unknown += other.unknown;
        self.refused += other.refused;
    }
}

/// A relay at work.
#[derive(Debug)]
pub(super) struct Relay {
    /// Where clients register.
    pub(super) registration: SocketAddr,
    /// Where peers send.
    pub(super) data: SocketAddr,
    /// The receive buffer of each data socket, in bytes.
    pub(super) recv_buffer: usize,
    /// Its data sockets, to ask for what they dropped.
    pub(super) sockets: Vec<UdpSocket>,
    stop: Arc<AtomicBool>,
    registrar: JoinHandle<()>,
    lanes: Vec<JoinHandle<io::Result<Tally>>>,
}

impl Relay {
    /// Starts the threads; the ones that relay are kept on `cores`, one each, where that is given.
    ///
    /// # Errors
    /// No threads or descriptors left.
    pub(super) fn start(
        strategy: Strategy,
        sockets: RelaySockets,
        cores: Option<&[usize]>,
    ) -> io::Result<Self> {
        let RelaySockets { registration, data, recv_buffer } = sockets;
        let stop = Arc::new(AtomicBool::new(false));
        let (book, runs) = strategy.prepare(data.len());
        let addresses = (registration.local_addr()?, data[0].local_addr());
        let watched = data.iter().map(UdpSocket::try_clone).collect::<io::Result<_>>()?;
        let registrar = {
            let stop = Arc::clone(&stop);
            thread::Builder::new()
                .name("registrar".into())
                .spawn(move || register(&registration, &book, &stop))?
        };
        // From here on threads run: an error has to stop them, which `stop` does when it is dropped.
        let mut relay = Self {
            registration: addresses.0,
            data: addresses.1,
            recv_buffer,
            sockets: watched,
            stop: Arc::clone(&stop),
            registrar,
            lanes: Vec::new(),
        };
        for (index, (socket, run)) in data.into_iter().zip(runs).enumerate() {
            let lane = Lane { socket, stop: Arc::clone(&stop) };
            let core = cores.map(|cores| cores[index]);
            match spawn(index, lane, run, core) {
                Ok(thread) => relay.lanes.push(thread),
                Err(error) => {
                    drop(relay.stop());
                    return Err(error);
                }
            }
        }
        Ok(relay)
    }

    /// Stops the threads and says what they did.
    ///
    /// # Errors
    /// Why one of them gave up.
    pub(super) fn stop(self) -> io::Result<Tally> {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.registrar.join());
        let mut tally = Tally::default();
        let mut failed = None;
        for lane in self.lanes {
            match lane.join() {
                Ok(Ok(one)) => tally.add(one),
                Ok(Err(error)) => failed = Some(error),
                Err(_) => failed = Some(io::Error::other("a thread of the relay panicked")),
            }
        }
        failed.map_or(Ok(tally), Err)
    }
}

fn spawn(
    index: usize,
    lane: Lane,
    run: Run,
    core: Option<usize>,
) -> io::Result<JoinHandle<io::Result<Tally>>> {
    thread::Builder::new().name(format!("relay {index}")).spawn(move || {
        if let Some(core) = core {
            linux_net::pin_current_thread(core)?;
        }
        run(lane)
    })
}

/// Registers clients until the relay stops. What is not a registration is not answered.
fn register(socket: &std::net::UdpSocket, book: &Book, stop: &AtomicBool) {
    let mut datagram = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        // An error is the time to look up, or one that ICMP left: neither ends the loop.
        let Ok((len, client)) = socket.recv_from(&mut datagram) else { continue };
        if let Some((id, [])) = SessionId::split(&datagram[..len])
            && book.enter(id, client)
        {
            // The client asks again when the answer is lost.
            drop(socket.send_to(&id.0, client));
        }
    }
}
