//! Successor's side of a hand-over: imports everything, or exits without effects.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};

use anyhow::anyhow;
use control::{EarlierTotals, UnconfirmedUsers};
use dataplane::{Export, RelaySettings, Snapshot, Update};
use linux_net::Clock;
use state_format::Value;
use turn_types::{Instant, Secret, WorkerId};
use xdp_relay::ParkedPath;

use super::PATIENCE;
use super::messages::{
    Hello, ListenerKind, ListenerName, News, Offer, Orders, Origin, Step, out_of_turn,
    receive_export,
};
use super::parked::{Found, Parked};
use super::passing::{Inlet, Outlet as _};
use super::retiring::Retiring;
use super::room::make_room;
use super::wire::Wire;
use crate::failure::{Failure, Result};
use crate::tables::LastRows;
use crate::upgrade_command;

/// Listeners of one worker.
type Listeners = Vec<(ListenerName, OwnedFd)>;

/// Server that this process replaces.
pub(crate) struct Predecessor {
    source: Source,
    nonce_key: Secret<[u8; 32]>,
    workers: Vec<Listeners>,
    services: Vec<(SocketAddr, OwnedFd)>,
    /// Settings of the predecessor's relay sockets.
    relay_sockets: RelaySettings,
    /// Standard error of a running predecessor.
    errors: Option<OwnedFd>,
    /// Kernel path that continues to relay without a process.
    kernel_path: Option<ParkedPath>,
    /// Counters of the predecessor. `None` means that counters start at 0.
    totals: Option<EarlierTotals>,
    /// Rules of the user database, as last read.
    tables: Option<LastRows>,
    /// Users that the database must confirm.
    unconfirmed: UnconfirmedUsers,
    /// Orders of operators that this process must continue to obey.
    orders: Orders,
}

/// Source of the predecessor's messages.
enum Source {
    /// Running predecessor, which serves until the commit.
    Running(Wire),
    /// Parked state of an exited predecessor.
    Ended(Found, Origin),
    /// Keeper of a dead predecessor.
    Kept(Wire, Origin),
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

impl Source {
    /// Instructs a keeper to close the sockets of the calls. Other sources are not notified.
    fn discard(&mut self) {
        match self {
            Self::Kept(wire, _) => {
                // A keeper that has closed the connection has closed the sockets as well.
                let _ = wire.send(&Step::Discard).and_then(|()| wire.expect(Step::Released));
            }
            Self::Running(_) | Self::Ended(..) => {}
        }
    }
}

impl Predecessor {
    /// Connects to the running server at `socket`, and receives its offer.
    ///
    /// # Errors
    /// No server listens at the socket, the server's messages have another form, or the server is
    /// in another network namespace. The server continues to serve.
    pub(crate) fn meet(socket: &Path) -> Result<Self> {
        let met = UnixStream::connect(socket).and_then(Wire::new).and_then(|mut wire| {
            wire.send(&Hello::new(false))?;
            let predecessor = Self::read_offer(Source::Running(wire))?;
            let is_own = predecessor.is_of_own_network()?;
            Ok((predecessor, is_own))
        });
        let (predecessor, is_own) = met.map_err(|error| {
            let hint = if is_absent(&error) {
                "is the server running, with these --config and --data?"
            } else {
                "it goes on as before: its log says more"
            };
            Failure::failed(anyhow!("the running server hands nothing over: {error}")).hint(hint)
        })?;
        if is_own { Ok(predecessor) } else { Err(other_network(predecessor.process())) }
    }

    /// Reads the offer from parked state.
    ///
    /// # Errors
    /// The messages have another form or are incomplete. The sockets are closed.
    pub(crate) fn find(parked: Parked) -> io::Result<Self> {
        let mut found = Found::open(parked)?;
        let origin = found.receive()?;
        Self::read_offer(Source::Ended(found, origin))
    }

    /// Requests the offer of a dead predecessor from the keeper at `socket`. Returns `None` if the
    /// keeper has no calls, or no keeper listens.
    ///
    /// # Errors
    /// The messages have another form or are incomplete.
    pub(crate) fn ask_keeper(socket: &Path) -> io::Result<Option<Self>> {
        let mut wire = match UnixStream::connect(socket) {
            Ok(stream) => Wire::new(stream)?,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        wire.send(&Hello::new(false))?;
        let origin: Option<Origin> = wire.receive()?;
        origin.map(|origin| Self::read_offer(Source::Kept(wire, origin))).transpose()
    }

    fn read_offer(mut source: Source) -> io::Result<Self> {
        let offered = source.receive().and_then(|offer: Offer| {
            make_room(offer.descriptors);
            let of_workers: usize = offer.workers.iter().map(Vec::len).sum();
            let others = usize::from(matches!(source, Source::Running(_)));
            let count = of_workers + offer.services.len() + others;
            Ok((offer, source.receive_descriptors(count)?))
        });
        let (offer, descriptors) = offered.inspect_err(|_| source.discard())?;
        let Offer { nonce_key, workers, services, relay_sockets, tables, unconfirmed, .. } = offer;
        let mut descriptors = descriptors.into_iter();
        let mut listeners = |names: Vec<_>| names.into_iter().zip(descriptors.by_ref()).collect();
        let workers = workers.into_iter().map(&mut listeners).collect();
        let services = services.into_iter().zip(descriptors.by_ref()).collect();
        let errors = descriptors.next();
        let (kernel_path, totals, orders) = (None, None, Orders::default());
        Ok(Self {
            source,
            nonce_key,
            workers,
            services,
            relay_sockets,
            tables,
            unconfirmed,
            errors,
            kernel_path,
            totals,
            orders,
        })
    }

    /// Returns true if the listeners belong to the network namespace of this process. Sockets of
    /// another namespace continue to work there, but the clients and peers of that namespace would
    /// not reach new relays.
    ///
    /// # Errors
    /// A listener's descriptor does not refer to a socket.
    pub(crate) fn is_of_own_network(&self) -> io::Result<bool> {
        let of_workers = self.workers.iter().flatten().map(|(_, listener)| listener);
        let services = self.services.iter().map(|(_, listener)| listener);
        for listener in of_workers.chain(services) {
            if !linux_net::is_of_own_network(listener.as_fd())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Discards everything. A keeper closes its sockets, which would otherwise keep ports in use.
    pub(crate) fn discard(self) {
        let Self { mut source, workers, services, .. } = self;
        drop((workers, services));
        source.discard();
    }

    /// Returns a keeper's unused listener that overlaps with an address of `listeners` or
    /// `services`, and that address.
    pub(crate) fn in_the_way(
        &self,
        listeners: &[SocketAddr],
        services: &[SocketAddr],
    ) -> Option<(SocketAddr, SocketAddr)> {
        if !matches!(self.source, Source::Kept(..)) {
            // Listeners of other sources are closed when this process closes its descriptors.
            return None;
        }
        let of_workers = self.workers.iter().flatten().filter(|((kind, _), _)| kind.is_public());
        let unused = |all: &[SocketAddr], at: SocketAddr| (!all.contains(&at)).then_some(at);
        let unused_listeners = of_workers.filter_map(|((_, at), _)| unused(listeners, *at));
        let unused_services = self.services.iter().filter_map(|(at, _)| unused(services, *at));
        let mut unused = unused_listeners.chain(unused_services);
        unused.find_map(|before| {
            let mut now = listeners.iter().chain(services);
            now.find(|now| overlap(before, **now)).map(|now| (before, *now))
        })
    }

    /// Closes the listeners at addresses outside `listeners` and `services`. These listeners would
    /// prevent new listeners at overlapping addresses.
    #[must_use]
    pub(crate) fn with_listeners_at(
        mut self,
        listeners: &[SocketAddr],
        services: &[SocketAddr],
    ) -> Self {
        for worker in &mut self.workers {
            worker.retain(|((kind, at), _)| match kind {
                ListenerKind::Udp | ListenerKind::Tcp => listeners.contains(at),
                ListenerKind::Shared => !listeners.iter().any(|one| overlap(*one, *at)),
            });
        }
        self.services.retain(|(at, _)| services.contains(at));
        self
    }

    /// Returns the process id of the predecessor.
    pub(crate) const fn process(&self) -> u32 {
        match &self.source {
            Source::Running(wire) => wire.process(),
            Source::Ended(_, origin) | Source::Kept(_, origin) => origin.process,
        }
    }

    /// Returns the time at which the predecessor stopped serving, or `None` if it serves.
    pub(crate) const fn silent_since(&self) -> Option<Instant> {
        match &self.source {
            Source::Running(_) => None,
            Source::Ended(_, origin) | Source::Kept(_, origin) => Some(origin.since),
        }
    }

    /// Returns the number of the predecessor's workers. This process must have the same number,
    /// because the kernel distributes clients over the workers' sockets.
    pub(crate) const fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Returns the key of the nonces that clients have.
    pub(crate) fn nonce_key(&self) -> Secret<[u8; 32]> {
        self.nonce_key
    }

    /// Returns true if the predecessor has the listener.
    pub(crate) fn has(&self, listener: ListenerName) -> bool {
        self.workers.iter().flatten().any(|(name, _)| *name == listener)
    }

    /// Removes and returns a listener of a worker.
    pub(crate) fn take(&mut self, worker: usize, listener: ListenerName) -> Option<OwnedFd> {
        take_out(self.workers.get_mut(worker)?, &listener)
    }

    /// Removes and returns the HTTP listener at an address.
    pub(crate) fn take_service(&mut self, at: SocketAddr) -> Option<OwnedFd> {
        take_out(&mut self.services, &at)
    }

    /// Returns the rules of the predecessor's user database, as last read.
    pub(crate) const fn tables(&self) -> Option<&LastRows> {
        match &self.source {
            Source::Kept(_, Origin { orders: Orders { tables: Some(later), .. }, .. }) => {
                Some(later)
            }
            Source::Running(_) | Source::Ended(..) | Source::Kept(..) => self.tables.as_ref(),
        }
    }

    /// Returns the users that the predecessor's database must confirm before earlier keys of these
    /// users are valid in an outage.
    pub(crate) const fn unconfirmed(&self) -> &UnconfirmedUsers {
        match &self.source {
            Source::Kept(_, origin) => &origin.orders.unconfirmed,
            Source::Running(_) | Source::Ended(..) => &self.unconfirmed,
        }
    }

    /// Returns the settings of the predecessor's relay sockets.
    pub(crate) const fn relay_settings(&self) -> RelaySettings {
        self.relay_sockets
    }

    /// Imports everything into `workers`, one for each worker of the predecessor. No process serves
    /// between the returned time and the [commit](Self::commit). If the state of an exited or dead
    /// predecessor is incomplete, the workers without a part start empty.
    ///
    /// # Errors
    /// The running predecessor failed or does not respond. It rolls back and continues to serve.
    pub(crate) fn import(&mut self, workers: &[SyncSender<Update>]) -> io::Result<Instant> {
        let all = || (0..).map(WorkerId).take(workers.len()).collect::<BTreeSet<_>>();
        if let Source::Running(wire) = &mut self.source {
            wire.send(&Step::Copy)?;
            self.receive_snapshots(workers, &mut all(), false)?;
            wait_for_workers(workers)?;
        }
        let since = self.silent_since().unwrap_or_else(Clock::instant);
        let mut missing = all();
        let asked = match &mut self.source {
            Source::Running(wire) => wire.send(&Step::Pause),
            Source::Kept(wire, _) => wire.send(&Step::Copy),
            Source::Ended(..) => Ok(()),
        };
        let rest = asked.and_then(|()| self.receive_snapshots(workers, &mut missing, true));
        if rest.is_ok()
            && let Err(error) = self.receive_kernel_path(workers)
        {
            tracing::warn!(
                "the kernel path has ended, and its last traffic may not be counted: {error}"
            );
        }
        match (rest, &self.source) {
            (Ok(()), _) => Ok(since),
            (Err(error), Source::Ended(..) | Source::Kept(..)) => {
                tracing::warn!("calls of the process before have ended: {error}");
                for worker in missing {
                    give(workers, worker, Update::Last(Box::new(Export::new(worker))))?;
                }
                Ok(since)
            }
            (Err(error), Source::Running(_)) => Err(error),
        }
    }

    /// Receives snapshots for the `missing` workers. Outside the pause, the call returns after a
    /// complete snapshot of each worker's allocations. In the pause, the call returns after the
    /// last snapshot of each worker.
    fn receive_snapshots(
        &mut self,
        workers: &[SyncSender<Update>],
        missing: &mut BTreeSet<WorkerId>,
        in_pause: bool,
    ) -> io::Result<()> {
        while !missing.is_empty() {
            let (snapshot, count, is_last) = match self.source.receive()? {
                News::Snapshot(snapshot, count) => (snapshot, count, false),
                News::Last(snapshot, count) if in_pause => (snapshot, count, true),
                News::Last(..)
                | News::Progress(_)
                | News::Totals(_)
                | News::Orders(_)
                | News::KernelPath(_)
                | News::HandedOver
                | News::Stopped => return Err(out_of_turn()),
            };
            let export = receive_export(&mut self.source, (snapshot, count))?;
            let Snapshot { worker, complete, .. } = export.snapshot;
            if is_last {
                missing.remove(&worker).then_some(()).ok_or_else(out_of_turn)?;
                give(workers, worker, Update::Last(Box::new(export)))?;
                continue;
            }
            if complete && !in_pause {
                missing.remove(&worker);
            }
            give(workers, worker, Update::Snapshot(Box::new(export)))?;
        }
        Ok(())
    }

    /// Receives orders and counters, if sent, and then the progress of allocations through the
    /// kernel path since the last snapshots.
    fn receive_progress(&mut self, workers: &[SyncSender<Update>]) -> io::Result<()> {
        let mut news = self.source.receive()?;
        if let News::Orders(orders) = news {
            self.orders = orders;
            news = self.source.receive()?;
        }
        if let News::Totals(totals) = news {
            self.totals = totals
                .parse()
                .inspect_err(|error| {
                    tracing::warn!(
                        "counters begin at 0: those of the process before cannot be read: {error}"
                    );
                })
                .ok();
            news = self.source.receive()?;
        }
        let News::Progress(all) = news else { return Err(out_of_turn()) };
        let mut all = (0..).map(WorkerId).zip(all);
        all.try_for_each(|(worker, progress)| give(workers, worker, Update::Progress(progress)))
    }

    /// Receives the kernel path of a predecessor that no longer runs. An exited predecessor has
    /// also parked its last progress. The descriptors of the path follow if the path continues to
    /// relay.
    fn receive_kernel_path(&mut self, workers: &[SyncSender<Update>]) -> io::Result<()> {
        let continues = match &self.source {
            Source::Running(_) => return Ok(()),
            Source::Kept(_, origin) => origin.kernel_path,
            Source::Ended(_, origin) => {
                let continues = origin.kernel_path;
                self.receive_progress(workers)?;
                continues
            }
        };
        if continues {
            let News::KernelPath(descriptors) = self.source.receive()? else {
                return Err(out_of_turn());
            };
            let descriptors = self.source.receive_descriptors(descriptors as usize)?;
            self.kernel_path = ParkedPath::from_descriptors(descriptors);
        }
        Ok(())
    }

    /// Requests the commit, and passes the last progress to the `workers`. Afterwards this process
    /// serves, with the predecessor's standard error.
    ///
    /// # Errors
    /// The predecessor has rolled back, or `turnpike upgrade` has exited. This process must not
    /// serve.
    pub(crate) fn commit(mut self, workers: &[SyncSender<Update>]) -> io::Result<Retiring> {
        if let Source::Running(wire) = &mut self.source {
            if upgrade_command::is_abandoned() {
                return Err(io::Error::other("the `turnpike upgrade` of this process has ended"));
            }
            wire.send(&Step::Ready)?;
            self.receive_progress(workers)?;
        }
        let mut wire = match self.source {
            Source::Running(wire) => wire,
            Source::Kept(wire, origin) => {
                return Ok(Retiring::died(self.kernel_path, origin.orders, wire));
            }
            Source::Ended(..) => return Ok(Retiring::ended(self.kernel_path, self.totals)),
        };
        wire.expect(Step::Commit)?;
        // After the commit no step may fail.
        if let Some(Err(error)) = self.errors.as_ref().map(rustix::stdio::dup2_stderr) {
            tracing::warn!("the log goes to the standard error of the upgrade: {error}");
        }
        Ok(Retiring::runs(wire, self.totals, self.orders))
    }
}

/// Passes an update to a worker. A worker that could not be built is ignored, because its own
/// thread reports the failure.
///
/// # Errors
/// The predecessor has more workers than this process.
fn give(workers: &[SyncSender<Update>], worker: WorkerId, update: Update) -> io::Result<()> {
    let worker = workers.get(usize::from(worker.0)).ok_or_else(out_of_turn)?;
    let _ = worker.send(update);
    Ok(())
}

/// Waits until all workers have processed their updates. Workers open and register sockets, which
/// takes longer than receiving them. Without this wait packets would wait for the workers in the
/// pause.
///
/// # Errors
/// A worker takes longer than [`PATIENCE`].
fn wait_for_workers(workers: &[SyncSender<Update>]) -> io::Result<()> {
    let (answer, answers) = sync_channel(workers.len());
    for worker in workers {
        let _ = worker.send(Update::Reached(answer.clone()));
    }
    drop(answer);
    loop {
        match answers.recv_timeout(PATIENCE) {
            Ok(()) => {}
            // Every worker has replied, or has exited, which is detected later.
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                return Err(io::Error::other("a worker does not take what it is given"));
            }
        }
    }
}

/// Returns true if two sockets of the same protocol cannot both be bound to these addresses.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port()
        && (one.ip() == other.ip() || is_any && one.is_ipv4() == other.is_ipv4())
}

/// Returns the error of an upgrade from another network namespace. `process` is the id of the
/// running server, or 0 if the PID namespace of this process does not contain that server.
fn other_network(process: u32) -> Failure {
    let what = anyhow!("the running server is in another network namespace than this process");
    let id = if process == 0 { "PID".to_owned() } else { process.to_string() };
    Failure::failed(what).hint(format!(
        "the server goes on as before; upgrade it from its namespace: \
         `nsenter -t {id} -n turnpike upgrade`, with the same options"
    ))
}

/// Returns true if no process listens at a socket.
pub(super) fn is_absent(error: &io::Error) -> bool {
    [ErrorKind::NotFound, ErrorKind::ConnectionRefused].contains(&error.kind())
}

fn take_out<T: PartialEq>(from: &mut Vec<(T, OwnedFd)>, name: &T) -> Option<OwnedFd> {
    let index = from.iter().position(|(known, _)| known == name)?;
    Some(from.swap_remove(index).1)
}

#[cfg(test)]
mod tests;
