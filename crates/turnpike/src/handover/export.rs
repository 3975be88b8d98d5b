//! Predecessor's side of a hand-over: exports everything to a successor, or rolls back.

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
use dataplane::{Export, Listener, RelaySettings, SharedSocket, Snapshot, WorkerChannels};
use linux_net::{Clock, TcpListener};
use state_format::Bytes;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use turn_types::{Secret, WorkerId};

use super::changes::Changes;
use super::messages::{
    Hello, ListenerKind, ListenerName, News, Offer, Orders, Origin, Step, send_export,
    send_kernel_path,
};
use super::parked::{Parked, Parking};
use super::passing::{Inlet as _, Outlet};
use super::room::{make_room, open_descriptors};
use super::wire::Wire;
use super::{COPYING_MAX, PAUSE_ROOM, PREPARATION_MAX};
use crate::offload::KernelPath;
use crate::start_facts;
use crate::tables::LastRead;

/// Time after which the packets of the pause are served, and receive buffers get their configured
/// sizes again.
const PAUSE_SERVED: Duration = Duration::from_secs(1);

/// Interval of checks for waiting changes during the preparation of a successor.
const PREPARATION_LOOK: Duration = Duration::from_millis(200);

/// Maximum time for which a change by an operator waits for the preparation of a successor.
/// Commands wait about 15 seconds for a response.
const CHANGES_WAIT_MAX: Duration = Duration::from_secs(5);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Duplicated descriptors of a worker's listeners.
#[derive(Debug)]
pub(crate) struct ListenerCopies(Vec<(ListenerName, OwnedFd)>);

impl ListenerCopies {
    /// Duplicates the descriptors of a worker's listeners.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub(crate) fn of(
        udp: &[Listener],
        tcp: &[TcpListener],
        shared: &[SharedSocket],
    ) -> io::Result<Self> {
        let udp = udp.iter().map(|one| ((ListenerKind::Udp, one.local_addr()), one.as_fd()));
        let tcp = tcp.iter().map(|one| ((ListenerKind::Tcp, one.local_addr()), one.as_fd()));
        let shared =
            shared.iter().map(|one| ((ListenerKind::Shared, one.local_addr()), one.as_fd()));
        let copy =
            |(name, fd): (ListenerName, BorrowedFd<'_>)| Ok((name, fd.try_clone_to_owned()?));
        udp.chain(tcp).chain(shared).map(copy).collect::<io::Result<_>>().map(Self)
    }

    /// Returns the UDP listeners and their addresses.
    pub(crate) fn udp(&self) -> impl Iterator<Item = (SocketAddr, &OwnedFd)> {
        let is_udp = |((kind, _), _): &&(ListenerName, OwnedFd)| *kind == ListenerKind::Udp;
        self.0.iter().filter(is_udp).map(|((_, at), fd)| (*at, fd))
    }
}

/// Outcome of a completed hand-over.
#[derive(Debug)]
pub(crate) struct HandoverReport {
    /// Process id of the successor.
    pub(crate) to: u32,
    /// Number of allocations that the successor has received.
    pub(crate) allocations: usize,
    /// Duration of the pause in which no process served.
    pub(crate) pause: Duration,
    /// Channel on which the main task confirms that the service manager has been notified of the
    /// successor.
    pub(crate) told: oneshot::Sender<()>,
}

/// Parts of the data plane that a successor receives.
pub(crate) struct WorkersExport {
    /// Channels to the workers.
    pub(crate) channels: WorkerChannels,
    /// Listeners of each worker.
    pub(crate) listeners: Vec<ListenerCopies>,
    /// Key of nonces.
    pub(crate) nonce_key: Secret<[u8; 32]>,
    /// Settings of the relay sockets.
    pub(crate) relay_sockets: RelaySettings,
    /// Configured receive buffer of each listener, in bytes.
    pub(crate) receive_buffer: usize,
}

/// Parts of the server that a successor receives.
pub(crate) struct ServerExport {
    pub(crate) workers: WorkersExport,
    /// HTTP listeners, by address.
    pub(crate) services: Vec<(SocketAddr, OwnedFd)>,
    pub(crate) serving: Vec<AbortHandle>,
    /// Paths of Unix sockets that pass to the successor.
    pub(crate) paths: Vec<PassedOn>,
    pub(crate) kernel_path: KernelPath,
    /// Access to the counters, the drain and the orders of operators.
    pub(crate) handle: Handle,
    pub(crate) tables: LastRead,
    pub(crate) changes: Changes,
}

/// Guard that keeps hand-overs possible. Dropping the guard releases the listeners and the kernel
/// path.
pub(crate) struct Handovers(Arc<Mutex<Option<ServerExport>>>);

impl Handovers {
    /// Exports everything for a process that starts after this process exits. `keep` stores the
    /// parked state. Returns the number of allocations.
    ///
    /// # Errors
    /// An upgrade is in progress, or a worker does not respond: nothing has changed. Or `keep`
    /// failed: the calls have ended.
    pub(crate) fn park(&self, keep: impl FnOnce(&Parked) -> io::Result<()>) -> io::Result<usize> {
        let Ok(export) = self.0.try_lock() else {
            return Err(io::Error::other("an upgrade goes on at this moment"));
        };
        match &*export {
            Some(server) => server.park(keep),
            None => Err(io::Error::other("another process has them")),
        }
    }

    /// Returns access to the listeners, for a keeper.
    pub(super) fn listener_offer(&self) -> ListenerOffer {
        ListenerOffer(Arc::downgrade(&self.0))
    }
}

/// Access to the listeners while this process has them.
pub(super) struct ListenerOffer(Weak<Mutex<Option<ServerExport>>>);

impl ListenerOffer {
    /// Sends the offer and listeners to a keeper. Returns false during an upgrade, and after the
    /// commit.
    ///
    /// # Errors
    /// The keeper has closed the connection.
    pub(super) fn offer(&self, outlet: &mut impl Outlet) -> io::Result<bool> {
        let export = self.0.upgrade();
        let export = export.as_ref().and_then(|export| export.try_lock().ok());
        match export.as_deref() {
            Some(Some(server)) => server.offer(outlet, &[]).map(|()| true),
            _ => Ok(false),
        }
    }
}

impl Drop for Handovers {
    fn drop(&mut self) {
        // A hand-over in progress fails when the process exits.
        if let Ok(mut export) = self.0.try_lock() {
            *export = None;
        }
    }
}

impl ServerExport {
    /// Sets the receive buffers of the workers' UDP sockets, if permitted.
    fn set_room(&self, bytes: usize) {
        let all = self.workers.listeners.iter().flat_map(|copies| &copies.0);
        let udp =
            all.filter(|((kind, _), _)| matches!(kind, ListenerKind::Udp | ListenerKind::Shared));
        // If no descriptors are left, the buffers are unchanged.
        let copies = udp.filter_map(|(_, fd)| fd.try_clone().ok()).collect();
        self.kernel_path.force_receive_buffers(copies, bytes);
    }

    /// Starts a thread that waits for successors. `behind_a_pause` is true if this process is a
    /// successor. A second thread then restores the receive buffers after the pause.
    ///
    /// # Errors
    /// The process has no thread left.
    pub(crate) fn start(
        self,
        listener: UnixListener,
        done: UnboundedSender<HandoverReport>,
        behind_a_pause: bool,
    ) -> io::Result<Handovers> {
        let export = Arc::new(Mutex::new(Some(self)));
        let handovers = Handovers(Arc::clone(&export));
        if behind_a_pause {
            let served = Arc::clone(&export);
            let restore = move || {
                thread::sleep(PAUSE_SERVED);
                // After another hand-over no buffer must be restored.
                let export = served.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(server) = &*export {
                    server.set_room(server.workers.receive_buffer);
                }
            };
            thread::Builder::new().name("room".to_owned()).spawn(restore)?;
        }
        let serve = move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // No descriptors are left: another attempt would fail immediately.
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                };
                let mut export = export.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(server) = &*export else { return };
                match server.hand_over(stream, &done) {
                    Ok(true) => {
                        *export = None;
                        return;
                    }
                    Ok(false) => {}
                    Err(error) => {
                        // The successor may have set other buffer sizes.
                        server.set_room(server.workers.receive_buffer);
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

    /// Hands everything over to one connecting process. Returns false if the process only requested
    /// the start facts, or disconnected without a message.
    ///
    /// # Errors
    /// The successor failed, or a step took too long. This process has rolled back and continues to
    /// serve.
    fn hand_over(
        &self,
        stream: UnixStream,
        done: &UnboundedSender<HandoverReport>,
    ) -> io::Result<bool> {
        let mut wire = Wire::new(stream)?;
        let Hello { version, process, feeds } = match wire.receive() {
            Ok(hello) => hello,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        };
        if feeds {
            let facts: Vec<_> = start_facts::own().iter().map(AsFd::as_fd).collect();
            // A command that has exited did not start a successor, so the error has no effect.
            let _ = wire.send_descriptors(&facts);
            return Ok(false);
        }
        if self.changes.is_ending() {
            return Err(io::Error::other("this server was told to end"));
        }
        tracing::info!(process, version, "the next process prepares to take over");
        let hold = self.changes.hold();
        self.offer(&mut wire, &[io::stderr().as_fd()])?;
        self.wait_for_preparation(&mut wire)?;
        let (copied, received) = sync_channel(COPIES_WAITING);
        // Descriptors to close after the commit, because closing them takes time.
        let mut sent = Vec::new();
        self.copy(&mut wire, (copied, &received), &mut sent)
            .and_then(|()| wire.expect(Step::Pause))
            .inspect_err(|_| self.workers.channels.roll_back())?;
        let since = Instant::now();
        let exports = self.export()?;
        let allocations = count(&exports);
        // Copies from before the pause must precede the last snapshots.
        send_all(&mut wire, received.try_iter(), News::Snapshot, &mut sent)
            .and_then(|()| send_all(&mut wire, exports, News::Last, &mut sent))
            .and_then(|()| wire.expect(Step::Ready))
            .and_then(|()| self.commit(&mut wire))
            .inspect_err(|_| self.roll_back())?;
        hold.make_final();
        let pause = since.elapsed();
        drop(sent);
        self.workers.channels.commit();
        self.serving.iter().for_each(AbortHandle::abort);
        self.kernel_path.end();
        let (told, heard) = oneshot::channel();
        // During a shutdown the main task no longer receives reports.
        if done.send(HandoverReport { to: process, allocations, pause, told }).is_ok() {
            let _ = heard.blocking_recv();
        }
        // The successor serves even if this message is lost.
        let _ = wire.send(&Step::Released);
        Ok(true)
    }

    /// Waits until the successor is prepared.
    ///
    /// # Errors
    /// A change by an operator has waited longer than [`CHANGES_WAIT_MAX`], or the successor takes
    /// longer than [`PREPARATION_MAX`], or disconnects.
    fn wait_for_preparation(&self, wire: &mut Wire) -> io::Result<()> {
        let until = Instant::now() + PREPARATION_MAX;
        while !wire.is_readable(PREPARATION_LOOK)? {
            if self.changes.have_waited(CHANGES_WAIT_MAX) {
                return Err(io::Error::other(
                    "a command of an operator has waited for it too long",
                ));
            }
            if Instant::now() > until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not get ready"));
            }
        }
        wire.expect(Step::Copy)
    }

    /// Sends orders, counters and the commit, after which the successor serves.
    fn commit(&self, wire: &mut Wire) -> io::Result<()> {
        if self.changes.is_ending() {
            return Err(io::Error::other("this server was told to end meanwhile"));
        }
        let signals = self.changes.signals().into_iter().collect();
        let orders = Orders::of(&self.handle, &self.tables);
        let unconfirmed = self.handle.pass_on_users();
        wire.send(&News::Orders(Orders { signals, unconfirmed, ..orders }))?;
        self.send_progress(wire, true)?;
        self.pass_on_paths(true);
        wire.send(&Step::Commit)
    }

    /// Sends the counters, and the progress of allocations through the kernel path. `ends` is true
    /// if the kernel path stops, and false if it continues.
    fn send_progress(&self, outlet: &mut impl Outlet, ends: bool) -> io::Result<()> {
        let progress = self.workers.channels.last_progress(ends)?;
        let totals = self.handle.workers.all_totals(self.kernel_path.watch().as_deref());
        outlet.send(&News::Totals(Bytes::of(&totals)))?;
        outlet.send(&News::Progress(progress))
    }

    /// Exports everything for a process that starts after this process exits. Returns the number of
    /// allocations.
    fn park(&self, keep: impl FnOnce(&Parked) -> io::Result<()>) -> io::Result<usize> {
        let mut parking = Parking::new()?;
        let path = self.kernel_path.park();
        parking.send(&Origin::here(Clock::instant(), path.is_some()))?;
        // The offer lists all unconfirmed users.
        drop(self.handle.pass_on_users());
        self.offer(&mut parking, &[])?;
        let exports = self.export()?;
        let allocations = count(&exports);
        let mut sent = Vec::new();
        let parked = send_all(&mut parking, exports, News::Last, &mut sent)
            .and_then(|()| self.send_progress(&mut parking, path.is_none()))
            .and_then(|()| match &path {
                Some(path) => {
                    send_kernel_path(&mut parking, &path.descriptors().collect::<Vec<_>>())
                }
                None => Ok(()),
            })
            .and_then(|()| parking.seal());
        let parked = parked.inspect_err(|_| self.roll_back())?;
        let kept = keep(&parked);
        if kept.is_ok() && path.is_some() {
            self.kernel_path.leave();
        }
        // Commits even after an error. The successor may have received the keys of connections
        // nevertheless, and two processes must not use the same keys.
        self.workers.channels.commit();
        kept.map(|()| allocations)
    }

    /// Sends snapshots while the workers serve, until a complete snapshot of every worker's
    /// allocations has been sent.
    fn copy(
        &self,
        wire: &mut Wire,
        (copied, received): (SyncSender<Export<OwnedFd>>, &Receiver<Export<OwnedFd>>),
        sent: &mut Vec<OwnedFd>,
    ) -> io::Result<()> {
        self.workers.channels.copy_to_successor(&copied);
        drop(copied);
        let until = Instant::now() + COPYING_MAX;
        let mut incomplete: HashSet<WorkerId> =
            (0..).map(WorkerId).take(self.workers.channels.count()).collect();
        while !incomplete.is_empty() {
            let left = until.checked_duration_since(Instant::now());
            let export = left.and_then(|left| received.recv_timeout(left).ok());
            let export = export.ok_or_else(|| io::Error::other("its workers are too slow"))?;
            if export.snapshot.complete {
                incomplete.remove(&export.snapshot.worker);
            }
            send_all(wire, [export], News::Snapshot, sent)?;
        }
        Ok(())
    }

    /// Pauses the workers and exports their state. From now on no process serves.
    fn export(&self) -> io::Result<Vec<Export<OwnedFd>>> {
        self.set_room(PAUSE_ROOM.max(self.workers.receive_buffer));
        let exports = self.workers.channels.export();
        exports.inspect_err(|_| self.set_room(self.workers.receive_buffer))
    }

    fn roll_back(&self) {
        self.handle.keep_users();
        self.pass_on_paths(false);
        self.workers.channels.roll_back();
        self.set_room(self.workers.receive_buffer);
    }

    fn pass_on_paths(&self, passed_on: bool) {
        self.paths.iter().for_each(|path| path.set(passed_on));
    }

    /// Sends the offer, the listeners, and then the descriptors `others`.
    fn offer(&self, outlet: &mut impl Outlet, others: &[BorrowedFd<'_>]) -> io::Result<()> {
        // This process duplicates most of its descriptors for the successor.
        let descriptors = open_descriptors();
        make_room(descriptors);
        let listeners = &self.workers.listeners;
        let names = |copies: &ListenerCopies| copies.0.iter().map(|(name, _)| *name).collect();
        outlet.send(&Offer {
            nonce_key: self.workers.nonce_key,
            workers: listeners.iter().map(names).collect(),
            services: self.services.iter().map(|(at, _)| *at).collect(),
            relay_sockets: self.workers.relay_sockets,
            descriptors,
            tables: self.tables.get(),
            unconfirmed: self.handle.unconfirmed_users(),
        })?;
        let of_workers = listeners.iter().flat_map(|copies| &copies.0).map(|(_, fd)| fd.as_fd());
        let services = self.services.iter().map(|(_, fd)| fd.as_fd());
        let all: Vec<_> = of_workers.chain(services).chain(others.iter().copied()).collect();
        outlet.send_descriptors(&all)
    }
}

fn count(exports: &[Export<OwnedFd>]) -> usize {
    exports.iter().map(|export| export.snapshot.total as usize).sum()
}

/// Sends exports, and adds the descriptors to `sent`.
fn send_all(
    outlet: &mut impl Outlet,
    exports: impl IntoIterator<Item = Export<OwnedFd>>,
    message: impl Fn(Snapshot, u32) -> News,
    sent: &mut Vec<OwnedFd>,
) -> io::Result<()> {
    for export in exports {
        sent.extend(send_export(outlet, export, &message)?);
    }
    Ok(())
}
