//! The running server: gives everything to the next process, or takes it back.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use admin::PassedOn;
use control::Handle;
use dataplane::limits::COPIES_WAITING;
use dataplane::{
    Copies, Inheritance, InheritedStream, InheritedTcpRelay, Listener, RelaySettings,
    WorkerChannels,
};
use linux_net::{Clock, TcpListener, TcpStream, UdpSocket, force_receive_buffer};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use turn_proto::Progress;
use turn_types::{AllocationId, Secret, WorkerId};
use xdp_relay::ParkedPath;

use super::changes::Changes;
use super::copying;
use super::counting;
use super::messages::{
    Bytes, Hello, KernelPathPart, LastPart, Leaving, Listening, News, Offer, Orders, ProgressPart,
    Step, StreamPart, TcpRelayPart,
};
use super::parked::{Parked, Parking};
use super::passing::{Inlet as _, Outlet};
use super::room::{make_room, open_descriptors};
use super::wire::Wire;
use super::{COPYING_MAX, PATIENCE, PAUSE_ROOM, PREPARATION_MAX};
use crate::offload::KernelPath;

/// Time until what came in the pause is served, and the room is as configured again.
const PAUSE_SERVED: Duration = Duration::from_secs(1);

/// Pause after a process that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Part of one worker.
type WorkerExport = Inheritance<UdpSocket, TcpStream, TcpListener>;

/// Sockets that were handed out. To close thousands takes time, in which the next process would
/// wait.
#[derive(Debug, Default)]
struct HandedOut {
    udp: Vec<UdpSocket>,
    tcp: Vec<TcpStream>,
    listening: Vec<TcpListener>,
}

/// Descriptors of a worker's listeners, beside the ones that it has itself.
#[derive(Debug)]
pub(crate) struct ListenerCopies {
    udp: Vec<(SocketAddr, OwnedFd)>,
    tcp: Vec<(SocketAddr, OwnedFd)>,
}

impl ListenerCopies {
    /// # Errors
    /// No descriptors left.
    pub(crate) fn of(udp: &[Listener], tcp: &[TcpListener]) -> io::Result<Self> {
        let udp = udp.iter().map(|one| Ok((one.local_addr(), copy(one.as_fd())?)));
        let tcp = tcp.iter().map(|one| Ok((one.local_addr(), copy(one.as_fd())?)));
        Ok(Self { udp: udp.collect::<io::Result<_>>()?, tcp: tcp.collect::<io::Result<_>>()? })
    }
}

fn copy(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    fd.try_clone_to_owned()
}

/// Outcome of a hand-over.
#[derive(Debug)]
pub(crate) struct HandedOver {
    /// Its process id.
    pub(crate) to: u32,
    /// Allocations that it has.
    pub(crate) allocations: usize,
    /// Time in which no process served.
    pub(crate) pause: Duration,
    /// Hears when the service manager knows of it.
    pub(crate) told: oneshot::Sender<()>,
}

/// Parts of the data plane for the next process.
pub(crate) struct WorkersToGive {
    /// The workers.
    pub(crate) channels: WorkerChannels,
    /// Their listeners.
    pub(crate) listeners: Vec<ListenerCopies>,
    /// Key of nonces.
    pub(crate) nonce_key: Secret<[u8; 32]>,
    /// Settings of their relay sockets.
    pub(crate) relay_sockets: RelaySettings,
    /// Receive buffer of each listener in bytes.
    pub(crate) receive_buffer: usize,
}

impl WorkersToGive {
    /// Gives the UDP listeners so much room, where this process may.
    fn set_room(&self, bytes: usize) {
        for (_, fd) in self.listeners.iter().flat_map(|copies| &copies.udp) {
            // Without the capability they have the room that they had.
            let _ = force_receive_buffer(fd.as_fd(), bytes);
        }
    }
}

/// Everything that the next process gets.
pub(crate) struct Giving {
    pub(crate) workers: WorkersToGive,
    /// Listeners of HTTP, and what serves them here.
    pub(crate) services: Vec<(SocketAddr, OwnedFd)>,
    pub(crate) serving: Vec<AbortHandle>,
    /// Paths of Unix sockets.
    pub(crate) paths: Vec<PassedOn>,
    pub(crate) kernel_path: KernelPath,
    /// Counters and drain.
    pub(crate) handle: Handle,
    pub(crate) changes: Changes,
}

/// Hand-overs are possible as long as this is there. Without it listeners and the kernel path are
/// free to end.
pub(crate) struct Handovers(Arc<Mutex<Option<Giving>>>);

impl Handovers {
    /// Leaves everything to the next process, which comes when this one has ended: `keep` passes it
    /// to who keeps it meanwhile. Returns the number of allocations, which this process has no
    /// more.
    ///
    /// # Errors
    /// An upgrade goes on, or a worker does not answer: this process has them as before. Or it
    /// cannot be kept: the calls have ended.
    pub(crate) fn park(&self, keep: impl FnOnce(&Parked) -> io::Result<()>) -> io::Result<usize> {
        let Ok(giving) = self.0.try_lock() else {
            return Err(io::Error::other("an upgrade goes on at this moment"));
        };
        match &*giving {
            Some(giving) => giving.park(keep),
            None => Err(io::Error::other("another process has them")),
        }
    }

    /// The listeners, for a keeper.
    pub(super) fn offering(&self) -> Offering {
        Offering(Arc::downgrade(&self.0))
    }
}

/// The listeners, as long as this process has them.
pub(super) struct Offering(Weak<Mutex<Option<Giving>>>);

impl Offering {
    /// Offers them to a keeper. Returns false while an upgrade goes on, and when another process
    /// has them.
    ///
    /// # Errors
    /// The keeper is gone.
    pub(super) fn offer(&self, outlet: &mut impl Outlet) -> io::Result<bool> {
        let giving = self.0.upgrade();
        let giving = giving.as_ref().and_then(|giving| giving.try_lock().ok());
        match giving.as_deref() {
            Some(Some(giving)) => giving.offer(outlet, &[]).map(|()| true),
            _ => Ok(false),
        }
    }
}

impl Drop for Handovers {
    fn drop(&mut self) {
        // A hand-over that goes on at this moment ends with the process.
        if let Ok(mut giving) = self.0.try_lock() {
            *giving = None;
        }
    }
}

impl Giving {
    /// Waits for the next process, on a thread of its own. `behind_a_pause`: this one has just
    /// taken over.
    ///
    /// # Errors
    /// No thread left.
    pub(crate) fn start(
        self,
        listener: UnixListener,
        done: UnboundedSender<HandedOver>,
        behind_a_pause: bool,
    ) -> io::Result<Handovers> {
        let giving = Arc::new(Mutex::new(Some(self)));
        let handovers = Handovers(Arc::clone(&giving));
        if behind_a_pause {
            let served = Arc::clone(&giving);
            let restore = move || {
                thread::sleep(PAUSE_SERVED);
                // The next hand-over may have begun, and ended: then nothing is left to restore.
                let giving = served.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(Self { workers, .. }) = &*giving {
                    workers.set_room(workers.receive_buffer);
                }
            };
            thread::Builder::new().name("room".to_owned()).spawn(restore)?;
        }
        let serve = move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // No descriptors left: it would be so again at once.
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                };
                let mut giving = giving.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(given) = &*giving else { return };
                match given.give(stream, &done) {
                    Ok(true) => {
                        *giving = None;
                        return;
                    }
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(
                            "the next process did not take over, and this one goes on: {error}"
                        );
                    }
                }
            }
        };
        thread::Builder::new().name("handover".to_owned()).spawn(serve)?;
        Ok(handovers)
    }

    /// Gives everything to one process; false if it has only looked.
    fn give(&self, stream: UnixStream, done: &UnboundedSender<HandedOver>) -> io::Result<bool> {
        let mut wire = Wire::new(stream)?;
        let Hello { version, process } = match wire.receive() {
            Ok(hello) => hello,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        };
        if self.changes.is_ending() {
            return Err(io::Error::other("this server was told to end"));
        }
        tracing::info!(process, version, "the next process prepares to take over");
        let hold = self.changes.hold();
        self.offer(&mut wire, &[io::stderr().as_fd()])?;
        wire.set_patience(PREPARATION_MAX)?;
        wire.expect(Step::Copy)?;
        wire.set_patience(PATIENCE)?;
        let mut copies = HandedOut::default();
        let (copied, received) = sync_channel(COPIES_WAITING);
        self.copy(&mut wire, (copied, &received), &mut copies)
            .and_then(|()| wire.expect(Step::Leave))
            .inspect_err(|_| self.workers.channels.take_back())?;
        let since = Instant::now();
        let left = self.leave()?;
        let allocations = count(&left);
        // What the workers had sent before they left.
        let prepared = pass_on(&mut wire, received.try_iter(), &mut copies)
            .and_then(|()| hand_out(&mut wire, left, &mut copies))
            .and_then(|()| wire.expect(Step::Prepared))
            .and_then(|()| self.end(&mut wire));
        prepared.inspect_err(|_| self.take_back())?;
        hold.make_final();
        let pause = since.elapsed();
        drop(copies);
        self.workers.channels.forget();
        self.serving.iter().for_each(AbortHandle::abort);
        self.kernel_path.end();
        let (told, heard) = oneshot::channel();
        // A server that ends has no process to tell.
        if done.send(HandedOver { to: process, allocations, pause, told }).is_ok() {
            let _ = heard.blocking_recv();
        }
        // It can do without.
        let _ = wire.send(&Step::Gone);
        Ok(true)
    }

    /// Lets the next process serve.
    fn end(&self, wire: &mut Wire) -> io::Result<()> {
        if self.changes.is_ending() {
            return Err(io::Error::other("this server was told to end meanwhile"));
        }
        let drain_until = self.handle.drain_deadline();
        let signals = self.changes.signals().into_iter().collect();
        wire.send(&News::Orders(Orders { drain_until, signals }))?;
        self.withdraw(wire)?;
        self.pass_on_paths(true);
        wire.send(&Step::Go)
    }

    /// Ends the kernel's part, which has gone on since the workers left.
    fn withdraw(&self, outlet: &mut impl Outlet) -> io::Result<()> {
        let progress = self.workers.channels.withdraw()?;
        self.send_progress(outlet, progress)
    }

    /// Sends the last progress behind the counters, with which the next process goes on.
    fn send_progress(
        &self,
        outlet: &mut impl Outlet,
        workers: Vec<Vec<(AllocationId, Progress)>>,
    ) -> io::Result<()> {
        let totals = self.handle.workers.freeze(self.kernel_path.watch().as_deref());
        outlet.send(&News::Totals(counting::write(totals)))?;
        let part = |allocations| ProgressPart { allocations };
        outlet.send(&News::Progress(workers.into_iter().map(part).collect()))
    }

    /// Leaves the kernel's part to go on, or ends it where it does not.
    fn leave_kernel_path(
        &self,
        outlet: &mut impl Outlet,
        path: Option<&ParkedPath>,
    ) -> io::Result<()> {
        let Some(path) = path else { return self.withdraw(outlet) };
        let progress = self.workers.channels.progress_by_kernel()?;
        self.send_progress(outlet, progress)?;
        KernelPathPart::send(outlet, &path.descriptors().collect::<Vec<_>>())
    }

    /// Leaves everything to a process that comes when this one has ended. Returns the number of
    /// allocations.
    fn park(&self, keep: impl FnOnce(&Parked) -> io::Result<()>) -> io::Result<usize> {
        let mut parking = Parking::new()?;
        let path = self.kernel_path.park();
        parking.send(&Leaving {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            since: Clock::instant(),
            kernel_path: path.is_some(),
        })?;
        self.offer(&mut parking, &[])?;
        let left = self.leave()?;
        let allocations = count(&left);
        let mut copies = HandedOut::default();
        let parked = hand_out(&mut parking, left, &mut copies)
            .and_then(|()| self.leave_kernel_path(&mut parking, path.as_ref()))
            .and_then(|()| parking.seal());
        let parked = parked.inspect_err(|_| self.take_back())?;
        let kept = keep(&parked);
        if kept.is_ok() && path.is_some() {
            self.kernel_path.leave();
        }
        // Also if that has failed: the next process may get the keys of connections all the same,
        // and two would go on with them.
        self.workers.channels.forget();
        kept.map(|()| allocations)
    }

    /// Sends copies of all allocations while the workers serve, until the ones of each worker were
    /// complete.
    fn copy(
        &self,
        wire: &mut Wire,
        (copied, received): (SyncSender<Copies<UdpSocket>>, &Receiver<Copies<UdpSocket>>),
        handed_out: &mut HandedOut,
    ) -> io::Result<()> {
        self.workers.channels.copy_to_next(&copied);
        drop(copied);
        let until = Instant::now() + COPYING_MAX;
        let mut incomplete: HashSet<WorkerId> =
            (0..).map(WorkerId).take(self.workers.channels.count()).collect();
        while !incomplete.is_empty() {
            let copies = received.recv_timeout(until.saturating_duration_since(Instant::now()));
            let copies = copies.map_err(|_| io::Error::other("a worker sends no copies"))?;
            if copies.complete {
                incomplete.remove(&copies.worker);
            }
            pass_on(wire, [copies], handed_out)?;
        }
        Ok(())
    }

    /// Lets the workers leave; from here on no process serves.
    fn leave(&self) -> io::Result<Vec<WorkerExport>> {
        self.workers.set_room(PAUSE_ROOM.max(self.workers.receive_buffer));
        let left = self.workers.channels.leave();
        left.inspect_err(|_| self.workers.set_room(self.workers.receive_buffer))
    }

    fn take_back(&self) {
        self.handle.workers.thaw();
        self.pass_on_paths(false);
        self.workers.channels.take_back();
        self.workers.set_room(self.workers.receive_buffer);
    }

    fn pass_on_paths(&self, passed_on: bool) {
        self.paths.iter().for_each(|path| path.set(passed_on));
    }

    /// Sends the listeners, and `others` behind them.
    fn offer(&self, outlet: &mut impl Outlet, others: &[BorrowedFd<'_>]) -> io::Result<()> {
        // This process copies most of its descriptors, and the next one gets the copies.
        let descriptors = open_descriptors();
        make_room(descriptors);
        let addresses = |some: &[(SocketAddr, OwnedFd)]| some.iter().map(|one| one.0).collect();
        let listening = |copies: &ListenerCopies| Listening {
            udp: addresses(&copies.udp),
            tcp: addresses(&copies.tcp),
        };
        outlet.send(&Offer {
            nonce_key: self.workers.nonce_key,
            workers: self.workers.listeners.iter().map(listening).collect(),
            services: addresses(&self.services),
            relay_sockets: self.workers.relay_sockets.into(),
            descriptors,
        })?;
        let listeners = &self.workers.listeners;
        let of_workers = listeners.iter().flat_map(|copies| copies.udp.iter().chain(&copies.tcp));
        let descriptors = of_workers.chain(&self.services).map(|(_, fd)| fd.as_fd());
        let descriptors: Vec<_> = descriptors.chain(others.iter().copied()).collect();
        outlet.send_descriptors(&descriptors)
    }
}

fn count(left: &[WorkerExport]) -> usize {
    left.iter().map(|left| left.allocations).sum()
}

/// Sends copies.
fn pass_on(
    wire: &mut Wire,
    all: impl IntoIterator<Item = Copies<UdpSocket>>,
    handed_out: &mut HandedOut,
) -> io::Result<()> {
    for copies in all {
        let (part, mut sockets) = copying::message(copies);
        wire.send(&News::Copies(part))?;
        let sent = copying::send_sockets(wire, &sockets);
        handed_out.udp.append(&mut sockets);
        sent?;
    }
    Ok(())
}

/// Sends the rest of all workers. The sockets are left in `copies`.
fn hand_out(
    outlet: &mut impl Outlet,
    left: Vec<WorkerExport>,
    handed_out: &mut HandedOut,
) -> io::Result<()> {
    for worker in left {
        let Inheritance {
            copies,
            progress,
            streams,
            sessions,
            tcp_relays,
            peers,
            losses,
            reserved,
            allocations,
            ..
        } = worker;
        let (copies, mut sockets) = copying::message(copies);
        let (streams, mut connections) = parts_of(streams);
        let (peers, mut of_peers) = parts_of(peers);
        let part = |InheritedTcpRelay { relay, at, socket }| (TcpRelayPart { relay, at }, socket);
        let (tcp_relays, mut listening): (_, Vec<_>) = tcp_relays.into_iter().map(part).unzip();
        outlet.send(&News::Last(LastPart {
            copies,
            progress,
            streams,
            sessions: sessions.into_iter().map(|session| Bytes(session.state)).collect(),
            tcp_relays,
            peers,
            losses,
            reserved,
            allocations: allocations as u64,
        }))?;
        let sent = copying::send_sockets(outlet, &sockets)
            .and_then(|()| send_all(outlet, &connections))
            .and_then(|()| send_all(outlet, &listening))
            .and_then(|()| send_all(outlet, &of_peers));
        handed_out.udp.append(&mut sockets);
        handed_out.tcp.append(&mut connections);
        handed_out.tcp.append(&mut of_peers);
        handed_out.listening.append(&mut listening);
        sent?;
    }
    Ok(())
}

fn parts_of(streams: Vec<InheritedStream<TcpStream>>) -> (Vec<StreamPart>, Vec<TcpStream>) {
    let part = |InheritedStream { state, remote, socket }| {
        (StreamPart { state: Bytes(state), remote }, socket)
    };
    streams.into_iter().map(part).unzip()
}

fn send_all<T: AsFd>(outlet: &mut impl Outlet, sockets: &[T]) -> io::Result<()> {
    let descriptors: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
    outlet.send_descriptors(&descriptors)
}
