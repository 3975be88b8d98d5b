//! Messages between the two processes.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use control::{Handle, Trace, UnconfirmedUsers};
use dataplane::{Export, RelaySettings, Snapshot};
use linux_net::Clock;
use state_format::{Bytes, fields, variants};
use turn_proto::Progress;
use turn_types::{AllocationId, Instant, Secret};

use super::passing::{Inlet, Outlet};
use crate::signals::Signal;
use crate::tables::{LastRead, LastRows};

/// Introduction of a process, to a predecessor or a keeper.
#[derive(Debug)]
pub(super) struct Hello {
    /// For the log.
    pub(super) version: String,
    pub(super) process: u32,
    /// True at a keeper: an offer and news follow. True at a server: the process asks how the
    /// server was started. False: the process is a successor.
    pub(super) feeds: bool,
}

impl Hello {
    /// Describes the calling process.
    pub(super) fn new(feeds: bool) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { version, process: std::process::id(), feeds }
    }
}

/// Predecessor that has ended. The offer and the exports of the workers follow.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// For the log.
    pub(super) version: String,
    pub(super) process: u32,
    /// No process serves from then on.
    pub(super) since: Instant,
    /// The kernel path continues: it follows the exports.
    pub(super) kernel_path: bool,
    /// Orders of operators, after a crash.
    pub(super) orders: Orders,
}

impl Origin {
    /// Describes the calling process.
    pub(super) fn here(since: Instant, kernel_path: bool) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let orders = Orders::default();
        Self { version, process: std::process::id(), since, kernel_path, orders }
    }
}

/// Parts that the successor needs for its preparations. Descriptors follow: of each worker's
/// listeners in this order, of the services, and from a live process of standard error.
pub(super) struct Offer {
    /// Nonces of clients stay valid.
    pub(super) nonce_key: Secret<[u8; 32]>,
    /// Listeners of each worker.
    pub(super) workers: Vec<Vec<ListenerName>>,
    /// Listeners of HTTP.
    pub(super) services: Vec<SocketAddr>,
    pub(super) relay_sockets: RelaySettings,
    /// Approximate number of later descriptors.
    pub(super) descriptors: u32,
    /// Rules of the user database, as they were read last.
    pub(super) tables: Option<LastRows>,
    /// Users whom the database has to confirm.
    pub(super) unconfirmed: UnconfirmedUsers,
}

/// Name of a listener.
pub(super) type ListenerName = (ListenerKind, SocketAddr);

/// Kind of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// Shared socket of relays.
    Shared,
}

impl ListenerKind {
    /// Returns true if the address is one of the configuration.
    pub(super) const fn is_public(self) -> bool {
        matches!(self, Self::Udp | Self::Tcp)
    }
}

/// News of a predecessor, or of a server for its keeper.
pub(super) enum News {
    /// Snapshot of a worker that serves, and the number of the descriptors that follow.
    Snapshot(Snapshot, u32),
    /// The same of a paused worker; the last one.
    Last(Snapshot, u32),
    /// Progress by the kernel path since, of each worker.
    Progress(Vec<Vec<(AllocationId, Progress)>>),
    /// Counters of all processes so far; the progress follows. A document of its own: calls
    /// continue without counters that another version writes in another form.
    Totals(Bytes),
    /// Orders of operators, of a live process; the totals follow, or for a keeper nothing.
    Orders(Orders),
    /// Kernel path that continues without a process; this number of descriptors follows. For a
    /// keeper 0: no path continues.
    KernelPath(u32),
    /// Another process has everything. For a keeper.
    HandedOver,
    /// The server shuts down in order. For a keeper.
    Stopped,
}

/// Orders of operators, for the successor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    /// Deadline of a drain.
    pub(crate) drain_until: Option<Instant>,
    /// Waiting signals.
    pub(crate) signals: Vec<Signal>,
    /// Clients whose events are logged in detail.
    pub(crate) traces: Vec<Trace>,
    /// For a keeper: rules of the user database, as they were read last.
    pub(crate) tables: Option<LastRows>,
    /// For a keeper: users whom the database has to confirm.
    pub(crate) unconfirmed: UnconfirmedUsers,
}

impl Orders {
    /// Returns the orders in effect.
    pub(super) fn of(handle: &Handle, tables: &LastRead) -> Self {
        let traces = handle.traces.list(Clock::instant());
        let drain_until = handle.drain_deadline();
        let unconfirmed = handle.unconfirmed_users();
        Self { drain_until, signals: Vec::new(), traces, tables: tables.get(), unconfirmed }
    }
}

/// Step of a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The successor has all snapshots, and is ready for the pause.
    Pause,
    /// The successor has imported everything, and waits.
    Ready,
    /// The predecessor commits: the successor serves from now on.
    Commit,
    /// The predecessor has released everything.
    Released,
    /// The successor has its listeners, and wants snapshots. A keeper with the listeners wants some
    /// as well.
    Copy,
    /// The successor cannot serve the calls of a keeper: they have ended.
    Discard,
}

fields!(Hello { 1 => version, 2 => process, 3 => feeds or false });
fields!(Origin { 1 => version, 2 => process, 3 => since, 4 => kernel_path, 5 => orders });
fields!(Offer {
    1 => nonce_key,
    2 => workers,
    3 => services,
    4 => relay_sockets,
    5 => descriptors,
    6 => tables or None,
    7 => unconfirmed or UnconfirmedUsers::default(),
});
variants!(ListenerKind, "kind of a listener" { 0 => Udp, 1 => Tcp, 2 => Shared });
variants!(News, "news of a predecessor" {
    0 => Snapshot(snapshot, descriptors),
    1 => Last(snapshot, descriptors),
    2 => Progress(workers),
    3 => Totals(totals),
    4 => Orders(orders),
    5 => KernelPath(descriptors),
    6 => HandedOver,
    7 => Stopped,
});
fields!(Orders {
    1 => drain_until,
    2 => signals,
    3 => traces,
    4 => tables or None,
    5 => unconfirmed or UnconfirmedUsers::default(),
});
variants!(Signal, "signal" { 0 => Reload, 1 => End, 2 => User1, 3 => User2 });
variants!(Step, "step of a hand-over" {
    0 => Pause,
    1 => Ready,
    2 => Commit,
    3 => Released,
    4 => Copy,
    5 => Discard,
});

/// Sends an export as a message with its descriptors, and returns them: to close thousands takes
/// time, in which the successor would wait.
pub(super) fn send_export<D: AsFd, M: state_format::Value>(
    outlet: &mut impl Outlet,
    export: Export<D>,
    message: impl FnOnce(Snapshot, u32) -> M,
) -> io::Result<Vec<D>> {
    let Export { snapshot, descriptors } = export;
    outlet.send(&message(snapshot, descriptors.len() as u32))?;
    send_descriptors(outlet, &descriptors)?;
    Ok(descriptors)
}

/// Sends a kernel path that continues without a process.
pub(super) fn send_kernel_path(outlet: &mut impl Outlet, path: &[impl AsFd]) -> io::Result<()> {
    outlet.send(&News::KernelPath(path.len() as u32))?;
    send_descriptors(outlet, path)
}

/// Sends descriptors.
pub(super) fn send_descriptors(outlet: &mut impl Outlet, all: &[impl AsFd]) -> io::Result<()> {
    let all: Vec<BorrowedFd<'_>> = all.iter().map(AsFd::as_fd).collect();
    outlet.send_descriptors(&all)
}

/// Error of a message that is not expected.
pub(super) fn out_of_turn() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message came out of turn")
}

/// Receives the descriptors of a snapshot.
pub(super) fn receive_export(
    inlet: &mut impl Inlet,
    (snapshot, descriptors): (Snapshot, u32),
) -> io::Result<Export<OwnedFd>> {
    let descriptors = inlet.receive_descriptors(descriptors as usize)?;
    Ok(Export { snapshot, descriptors })
}
