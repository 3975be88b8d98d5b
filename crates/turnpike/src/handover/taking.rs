//! The next process: takes over, or ends without a trace.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};

use anyhow::anyhow;
use control::EarlierTotals;
use dataplane::{
    Copies, Inheritance, InheritedSession, InheritedSocket, InheritedStream, InheritedTcpRelay,
    RelaySettings, Update, tcp_relay_from_fd,
};
use linux_net::{Clock, TcpListener, TcpStream};
use state_format::Value;
use turn_types::{AllocationId, Instant, Secret, WorkerId};
use xdp_relay::ParkedPath;

use super::PATIENCE;
use super::copying;
use super::counting;
use super::messages::{
    Hello, KeeperHello, KernelPathPart, LastPart, Leaving, Listening, News, Offer, Orders, Step,
    StreamPart, TcpRelayPart,
};
use super::parked::{Found, Parked};
use super::passing::{Inlet, Outlet as _};
use super::retiring::Retiring;
use super::room::make_room;
use super::wire::Wire;
use crate::failure::{Failure, Result};

/// The rest of one worker.
type WorkerImport = Inheritance<InheritedSocket, TcpStream, TcpListener>;

/// The server whose place this process takes.
pub(crate) struct Predecessor {
    source: Source,
    nonce_key: Secret<[u8; 32]>,
    workers: Vec<Listeners>,
    services: Vec<(SocketAddr, OwnedFd)>,
    /// Settings of its relay sockets.
    relay_sockets: RelaySettings,
    /// Standard error of one that runs.
    errors: Option<OwnedFd>,
    /// The kernel path of one that has ended goes on.
    kernel_path: Option<ParkedPath>,
    /// Its counters; `None`: they begin anew.
    totals: Option<EarlierTotals>,
    /// Orders of operators.
    orders: Orders,
}

/// Where the parts of a predecessor come from.
enum Source {
    /// From a process that serves until this one does.
    Running(Wire),
    /// From one that has ended, and has left them.
    Ended(Found, Leaving),
    /// From the keeper of one that has died.
    Kept(Wire, Leaving),
}

impl Inlet for Source {
    fn receive<T: Value>(&mut self) -> io::Result<T> {
        match self {
            Self::Running(wire) | Self::Kept(wire, _) => wire.receive(),
            Self::Ended(found, _) => found.receive(),
        }
    }

    fn receive_descriptors(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        match self {
            Self::Running(wire) | Self::Kept(wire, _) => wire.receive_descriptors(count),
            Self::Ended(found, _) => found.receive_descriptors(count),
        }
    }
}

/// Listeners of one worker, by their addresses.
#[derive(Debug)]
struct Listeners {
    udp: Vec<(SocketAddr, OwnedFd)>,
    tcp: Vec<(SocketAddr, OwnedFd)>,
}

/// The parts that a process has left.
#[derive(Debug)]
pub(crate) struct Left {
    /// No process has served since then.
    pub(crate) since: Instant,
    /// Allocations that have come.
    pub(crate) allocations: usize,
}

/// The offer of a predecessor, with its descriptors.
struct Offered {
    nonce_key: Secret<[u8; 32]>,
    workers: Vec<Listeners>,
    services: Vec<(SocketAddr, OwnedFd)>,
    relay_sockets: RelaySettings,
    errors: Option<OwnedFd>,
}

impl Offered {
    fn read(source: &mut Source) -> io::Result<Self> {
        let offer = source.receive()?;
        let Offer { nonce_key, workers, services, relay_sockets, descriptors: coming } = offer;
        make_room(coming);
        let of_workers: usize = workers.iter().map(|one| one.udp.len() + one.tcp.len()).sum();
        let others = usize::from(matches!(source, Source::Running(_)));
        let count = of_workers + services.len() + others;
        let mut descriptors = source.receive_descriptors(count)?.into_iter();
        let mut take = |addresses: Vec<SocketAddr>| -> Vec<_> {
            addresses.into_iter().zip(descriptors.by_ref()).collect()
        };
        let workers = workers
            .into_iter()
            .map(|Listening { udp, tcp }| Listeners { udp: take(udp), tcp: take(tcp) })
            .collect();
        let services = take(services);
        let (errors, relay_sockets) = (descriptors.next(), relay_sockets.into());
        Ok(Self { nonce_key, workers, services, relay_sockets, errors })
    }
}

impl Source {
    /// Lets a keeper close what it has.
    fn forget(&mut self) {
        match self {
            Self::Kept(wire, _) => {
                // One that is gone has closed it.
                let _ = wire.send(&Step::Forget).and_then(|()| wire.expect(Step::Gone));
            }
            Self::Running(_) | Self::Ended(..) => {}
        }
    }
}

impl Predecessor {
    /// Meets the server that listens at this socket.
    ///
    /// # Errors
    /// There is none, or it has another form of this talk.
    pub(crate) fn meet(socket: &Path) -> Result<Self> {
        let met = UnixStream::connect(socket).and_then(Wire::new).and_then(|mut wire| {
            let version = env!("CARGO_PKG_VERSION").to_owned();
            wire.send(&Hello { version, process: std::process::id() })?;
            Self::read_offer(Source::Running(wire))
        });
        met.map_err(|error| {
            let hint = if is_absent(&error) {
                "is the server running, with these --config and --data?"
            } else {
                "it goes on as before: its log says more"
            };
            Failure::failed(anyhow!("the running server hands nothing over: {error}")).hint(hint)
        })
    }

    /// Reads the parts that a process has left at its end.
    ///
    /// # Errors
    /// It is of another form, or not whole: then its sockets are closed.
    pub(crate) fn find(parked: Parked) -> io::Result<Self> {
        let mut found = Found::open(parked)?;
        let leaving = found.receive()?;
        Self::read_offer(Source::Ended(found, leaving))
    }

    /// Asks the keeper at this socket for the parts of a process that has died; `None` if there is
    /// nothing, or no keeper.
    ///
    /// # Errors
    /// It is of another form, or not whole.
    pub(crate) fn ask_keeper(socket: &Path) -> io::Result<Option<Self>> {
        let mut wire = match UnixStream::connect(socket) {
            Ok(stream) => Wire::new(stream)?,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        wire.send(&KeeperHello::new(false))?;
        let leaving: Option<Leaving> = wire.receive()?;
        leaving.map(|leaving| Self::read_offer(Source::Kept(wire, leaving))).transpose()
    }

    fn read_offer(mut source: Source) -> io::Result<Self> {
        match Offered::read(&mut source) {
            Ok(Offered { nonce_key, workers, services, relay_sockets, errors }) => {
                let (kernel_path, totals, orders) = (None, None, Orders::default());
                Ok(Self {
                    source,
                    nonce_key,
                    workers,
                    services,
                    relay_sockets,
                    errors,
                    kernel_path,
                    totals,
                    orders,
                })
            }
            Err(error) => {
                source.forget();
                Err(error)
            }
        }
    }

    /// This process begins anew: a keeper closes what it has, by which ports would be in use.
    pub(crate) fn forget(self) {
        let Self { mut source, workers, services, .. } = self;
        drop((workers, services));
        source.forget();
    }

    /// A listener of a keeper's, and one of these that cannot be bound beside it.
    pub(crate) fn in_the_way(
        &self,
        listeners: &[SocketAddr],
        services: &[SocketAddr],
    ) -> Option<(SocketAddr, SocketAddr)> {
        if !matches!(self.source, Source::Kept(..)) {
            // The others go when this process closes them.
            return None;
        }
        let of_workers = self.workers.iter().flat_map(|one| one.udp.iter().chain(&one.tcp));
        let unused = |all: &[SocketAddr], at: SocketAddr| (!all.contains(&at)).then_some(at);
        let unused_listeners = of_workers.filter_map(|(at, _)| unused(listeners, *at));
        let unused_services = self.services.iter().filter_map(|(at, _)| unused(services, *at));
        let mut unused = unused_listeners.chain(unused_services);
        unused.find_map(|before| {
            let mut now = listeners.iter().chain(services);
            now.find(|now| overlap(before, **now)).map(|now| (before, *now))
        })
    }

    /// Closes its listeners at other addresses than these. They would be in the way of new ones
    /// that overlap.
    #[must_use]
    pub(crate) fn with_listeners_at(
        mut self,
        listeners: &[SocketAddr],
        services: &[SocketAddr],
    ) -> Self {
        for Listeners { udp, tcp } in &mut self.workers {
            udp.retain(|(at, _)| listeners.contains(at));
            tcp.retain(|(at, _)| listeners.contains(at));
        }
        self.services.retain(|(at, _)| services.contains(at));
        self
    }

    /// Its process id.
    pub(crate) const fn process(&self) -> u32 {
        match &self.source {
            Source::Running(wire) => wire.process(),
            Source::Ended(_, leaving) | Source::Kept(_, leaving) => leaving.process,
        }
    }

    /// From then on no process serves; `None`: it serves yet.
    pub(crate) const fn silent_since(&self) -> Option<Instant> {
        match &self.source {
            Source::Running(_) => None,
            Source::Ended(_, leaving) | Source::Kept(_, leaving) => Some(leaving.since),
        }
    }

    /// The number of its workers: as many as this process has, since the kernel spreads clients
    /// over their sockets.
    pub(crate) const fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Key of the nonces that clients have.
    pub(crate) fn nonce_key(&self) -> Secret<[u8; 32]> {
        self.nonce_key
    }

    /// Returns whether it listens at an address: over UDP, and over TCP.
    pub(crate) fn listens(&self, at: SocketAddr) -> (bool, bool) {
        let is_there = |some: &[(SocketAddr, OwnedFd)]| some.iter().any(|one| one.0 == at);
        let first = self.workers.first();
        first.map(|one| (is_there(&one.udp), is_there(&one.tcp))).unwrap_or_default()
    }

    /// The listener of a worker for UDP at an address, if it had one.
    pub(crate) fn take_udp(&mut self, worker: usize, at: SocketAddr) -> Option<OwnedFd> {
        take_out(&mut self.workers.get_mut(worker)?.udp, at)
    }

    /// The same for TCP.
    pub(crate) fn take_tcp(&mut self, worker: usize, at: SocketAddr) -> Option<OwnedFd> {
        take_out(&mut self.workers.get_mut(worker)?.tcp, at)
    }

    /// The listener for HTTP at an address.
    pub(crate) fn take_service(&mut self, at: SocketAddr) -> Option<OwnedFd> {
        take_out(&mut self.services, at)
    }

    /// Settings of its relay sockets.
    pub(crate) const fn relay_settings(&self) -> RelaySettings {
        self.relay_sockets
    }

    /// Gives all that it has to `workers`, which are as many as its own. From the returned time on
    /// no process serves, until [`Self::enter`].
    ///
    /// # Errors
    /// It has failed, and goes on. Without the parts of a process that has ended this one begins
    /// anew.
    pub(crate) fn leave(&mut self, workers: &[SyncSender<Update>]) -> io::Result<Left> {
        if let Source::Running(wire) = &mut self.source {
            wire.send(&Step::Copy)?;
            self.receive_copies(workers)?;
        }
        let since = self.silent_since().unwrap_or_else(Clock::instant);
        if let Source::Running(wire) = &mut self.source {
            wire.send(&Step::Leave)?;
        }
        let mut missing: BTreeSet<usize> = (0..workers.len()).collect();
        let asked = match &mut self.source {
            Source::Kept(wire, _) => wire.send(&Step::Copy),
            Source::Running(_) | Source::Ended(..) => Ok(()),
        };
        let rest = asked.and_then(|()| self.receive_rest(workers, &mut missing));
        if rest.is_ok()
            && let Err(error) = self.receive_kernel_path(workers)
        {
            tracing::warn!(
                "the kernel path has ended, and its last traffic may not be counted: {error}"
            );
        }
        match (rest, &self.source) {
            (Ok(allocations), _) => Ok(Left { since, allocations }),
            (Err(error), Source::Ended(..) | Source::Kept(..)) => {
                tracing::warn!("calls of the process before have ended: {error}");
                for index in missing {
                    give(workers, index, Update::Last(Box::new(nothing(index))))?;
                }
                Ok(Left { since, allocations: 0 })
            }
            (Err(error), Source::Running(_)) => Err(error),
        }
    }

    /// Receives copies while the other process serves, until the ones of each worker were complete.
    fn receive_copies(&mut self, workers: &[SyncSender<Update>]) -> io::Result<()> {
        let mut incomplete: BTreeSet<usize> = (0..workers.len()).collect();
        while !incomplete.is_empty() {
            let News::Copies(part) = self.source.receive()? else { return Err(out_of_turn()) };
            let index = usize::from(part.worker.0);
            let copies = copying::copies(&mut self.source, part)?;
            if copies.complete {
                incomplete.remove(&index);
            }
            give(workers, index, Update::Copies(copies))?;
        }
        wait_for_workers(workers)
    }

    /// Receives the rest of all workers whose rest is `missing`; returns the number of allocations.
    fn receive_rest(
        &mut self,
        workers: &[SyncSender<Update>],
        missing: &mut BTreeSet<usize>,
    ) -> io::Result<usize> {
        let mut allocations = 0;
        while !missing.is_empty() {
            match self.source.receive()? {
                News::Copies(part) => {
                    let index = usize::from(part.worker.0);
                    let copies = copying::copies(&mut self.source, part)?;
                    give(workers, index, Update::Copies(copies))?;
                }
                News::Progress(_) | News::Totals(_) | News::Orders(_) => {
                    return Err(out_of_turn());
                }
                News::Last(last) => {
                    let index = usize::from(last.copies.worker.0);
                    let inheritance = self.receive_last(last)?;
                    allocations += inheritance.allocations;
                    if !missing.remove(&index) {
                        return Err(out_of_turn());
                    }
                    give(workers, index, Update::Last(Box::new(inheritance)))?;
                }
            }
        }
        Ok(allocations)
    }

    /// Receives the progress that the kernel path has made since.
    fn receive_progress(&mut self, workers: &[SyncSender<Update>]) -> io::Result<()> {
        let mut news = self.source.receive()?;
        if let News::Orders(orders) = news {
            self.orders = orders;
            news = self.source.receive()?;
        }
        if let News::Totals(totals) = news {
            self.totals = counting::read(&totals)
                .inspect_err(|error| {
                    tracing::warn!(
                        "counters begin at 0: those of the process before cannot be read: {error}"
                    );
                })
                .ok();
            news = self.source.receive()?;
        }
        let News::Progress(parts) = news else { return Err(out_of_turn()) };
        for (index, part) in parts.into_iter().enumerate() {
            give(workers, index, Update::Progress(part.allocations))?;
        }
        Ok(())
    }

    /// Receives the kernel's part of a process that has ended: the last progress, unless it died,
    /// and the path itself if it goes on.
    fn receive_kernel_path(&mut self, workers: &[SyncSender<Update>]) -> io::Result<()> {
        let goes_on = match &self.source {
            Source::Running(_) => return Ok(()),
            Source::Kept(_, leaving) => leaving.kernel_path,
            Source::Ended(_, leaving) => {
                let goes_on = leaving.kernel_path;
                self.receive_progress(workers)?;
                goes_on
            }
        };
        if goes_on {
            let KernelPathPart { descriptors } = self.source.receive()?;
            let descriptors = self.source.receive_descriptors(descriptors as usize)?;
            self.kernel_path = ParkedPath::from_descriptors(descriptors);
        }
        Ok(())
    }

    fn receive_last(&mut self, last: LastPart) -> io::Result<WorkerImport> {
        let LastPart { copies, progress, streams, tcp_relays, peers, losses, .. } = last;
        let LastPart { sessions, reserved, allocations, .. } = last;
        // Versions that did not tell sent the progress of all.
        let told = usize::try_from(allocations).unwrap_or(usize::MAX);
        let allocations = told.max(copies.changed.len() + progress.len());
        let copies = copying::copies(&mut self.source, copies)?;
        let streams = self.receive_streams(streams)?;
        let listening = self.source.receive_descriptors(tcp_relays.len())?;
        let relay = |(TcpRelayPart { relay, at }, fd)| {
            Ok(InheritedTcpRelay { relay, at, socket: tcp_relay_from_fd(fd)? })
        };
        let tcp_relays = tcp_relays.into_iter().zip(listening).map(relay);
        let tcp_relays = tcp_relays.collect::<io::Result<_>>()?;
        let peers = self.receive_streams(peers)?;
        let listeners = Vec::new();
        Ok(Inheritance {
            listeners,
            copies,
            progress,
            streams,
            sessions: sessions
                .into_iter()
                .map(|state| InheritedSession { state: state.0 })
                .collect(),
            tcp_relays,
            peers,
            losses,
            reserved,
            allocations,
        })
    }

    fn receive_streams(
        &mut self,
        parts: Vec<StreamPart>,
    ) -> io::Result<Vec<InheritedStream<TcpStream>>> {
        let descriptors = self.source.receive_descriptors(parts.len())?;
        let streams = parts.into_iter().zip(descriptors).filter_map(|(part, fd)| {
            let StreamPart { state, remote } = part;
            // One that has broken meanwhile is no connection any more.
            let socket = TcpStream::from_fd(fd).ok()?;
            Some(InheritedStream { state: state.0, remote, socket })
        });
        Ok(streams.collect())
    }

    /// Tells it that this process is ready to serve, which gets the last news for its `workers`;
    /// behind that, this process serves alone, and has its standard error.
    ///
    /// # Errors
    /// It has taken everything back, and this process may not serve.
    pub(crate) fn enter(mut self, workers: &[SyncSender<Update>]) -> io::Result<Retiring> {
        match &mut self.source {
            Source::Running(wire) => wire.send(&Step::Prepared)?,
            Source::Kept(wire, _) => {
                let retiring = Retiring::ended(self.kernel_path.take(), None);
                // A keeper that is gone has nothing to forget.
                let _ = wire.send(&Step::Prepared);
                return Ok(retiring);
            }
            Source::Ended(..) => {
                return Ok(Retiring::ended(self.kernel_path.take(), self.totals.take()));
            }
        }
        self.receive_progress(workers)?;
        let Source::Running(mut wire) = self.source else { return Err(out_of_turn()) };
        wire.expect(Step::Go)?;
        // After the commit nothing may fail.
        if let Some(Err(error)) = self.errors.as_ref().map(rustix::stdio::dup2_stderr) {
            tracing::warn!("the log goes to the standard error of the upgrade: {error}");
        }
        Ok(Retiring::runs(wire, self.totals, self.orders))
    }
}

/// Gives news to the worker of this number. One that could not be built has ended, which its thread
/// tells.
fn give(workers: &[SyncSender<Update>], index: usize, update: Update) -> io::Result<()> {
    let worker = workers.get(index).ok_or_else(out_of_turn)?;
    let _ = worker.send(update);
    Ok(())
}

/// Waits until all workers have taken what they were given: they open and watch sockets, which
/// takes longer than to pass them, and in the pause packets would wait for it.
fn wait_for_workers(workers: &[SyncSender<Update>]) -> io::Result<()> {
    let (answer, answers) = sync_channel(workers.len());
    for index in 0..workers.len() {
        give(workers, index, Update::Reached(answer.clone()))?;
    }
    drop(answer);
    loop {
        match answers.recv_timeout(PATIENCE) {
            Ok(()) => {}
            // All have answered. One that has ended is noticed later.
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                return Err(io::Error::other("a worker does not take what it is given"));
            }
        }
    }
}

/// The parts of a worker that has had nothing.
fn nothing(index: usize) -> WorkerImport {
    let worker = WorkerId(u16::try_from(index).unwrap_or(u16::MAX));
    Inheritance::of_copies(Copies {
        worker,
        last_id: AllocationId::new(worker, 0),
        shared: Vec::new(),
        changed: Vec::new(),
        ended: Vec::new(),
        complete: true,
    })
}

fn out_of_turn() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a message came out of turn")
}

/// Returns true if only one of two sockets of one protocol can be bound.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port()
        && (one.ip() == other.ip() || is_any && one.is_ipv4() == other.is_ipv4())
}

/// No process listens at a socket.
pub(super) fn is_absent(error: &io::Error) -> bool {
    [ErrorKind::NotFound, ErrorKind::ConnectionRefused].contains(&error.kind())
}

fn take_out(from: &mut Vec<(SocketAddr, OwnedFd)>, at: SocketAddr) -> Option<OwnedFd> {
    let index = from.iter().position(|(address, _)| *address == at)?;
    Some(from.swap_remove(index).1)
}

#[cfg(test)]
mod tests;
