//! Messages between the processes of a hand-over: predecessor, successor and keeper.

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

/// First message of a connecting process, to a running server or to a keeper.
#[derive(Debug)]
pub(super) struct Hello {
    /// Version of the sender, for the log.
    pub(super) version: String,
    pub(super) process: u32,
    /// True if a server sends this message to a keeper: an offer and news follow. True at a server
    /// requests the facts about the server's start. False if the sender is a successor.
    pub(super) feeds: bool,
}

impl Hello {
    /// Describes the calling process.
    pub(super) fn new(feeds: bool) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { version, process: std::process::id(), feeds }
    }
}

/// Description of a predecessor that has exited. The offer and the exports of the workers follow.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// Version of the predecessor, for the log.
    pub(super) version: String,
    pub(super) process: u32,
    /// Time since which no process serves.
    pub(super) since: Instant,
    /// True if the kernel path continues to relay. Its descriptors follow the exports.
    pub(super) kernel_path: bool,
    /// Orders of operators. Set only after a crash.
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

/// State that the successor needs for its preparations. Descriptors follow in this order: the
/// listeners of each worker, the listeners of services, and, if the predecessor runs, standard
/// error.
pub(super) struct Offer {
    /// Key of nonces. With the same key the nonces of clients remain valid.
    pub(super) nonce_key: Secret<[u8; 32]>,
    /// Names of the listeners of each worker.
    pub(super) workers: Vec<Vec<ListenerName>>,
    /// Addresses of the HTTP listeners.
    pub(super) services: Vec<SocketAddr>,
    pub(super) relay_sockets: RelaySettings,
    /// Approximate number of descriptors that the successor will receive later.
    pub(super) descriptors: u32,
    /// Rules of the user database, as last read.
    pub(super) tables: Option<LastRows>,
    /// Users that the database must confirm before earlier keys of these users are valid in an
    /// outage.
    pub(super) unconfirmed: UnconfirmedUsers,
}

/// Name of a listener: kind and address.
pub(super) type ListenerName = (ListenerKind, SocketAddr);

/// Kind of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// UDP listener of the workers.
    Udp,
    /// TCP listener of the workers.
    Tcp,
    /// Shared socket of relays.
    Shared,
}

impl ListenerKind {
    /// Returns true if the listener's address is in the configuration.
    pub(super) const fn is_public(self) -> bool {
        matches!(self, Self::Udp | Self::Tcp)
    }
}

/// State of a server, sent to a successor or a keeper.
pub(super) enum News {
    /// Snapshot of a serving worker, and the number of descriptors that follow.
    Snapshot(Snapshot, u32),
    /// Last snapshot of a paused worker, and the number of descriptors that follow.
    Last(Snapshot, u32),
    /// Progress of allocations through the kernel path since the last snapshot, for each worker.
    Progress(Vec<Vec<(AllocationId, Progress)>>),
    /// Counters accumulated over all predecessors and this process. [`Progress`](Self::Progress)
    /// follows. The counters are a separate document, because calls must continue even if the
    /// successor cannot parse the counters of another version.
    Totals(Bytes),
    /// Orders of operators of a running process. [`Totals`](Self::Totals) follow, except to a
    /// keeper.
    Orders(Orders),
    /// Kernel path that continues to relay without a process, and the number of descriptors that
    /// follow. To a keeper, 0 means that no kernel path continues.
    KernelPath(u32),
    /// Message to a keeper that another process has taken over all calls.
    HandedOver,
    /// The server shuts down in an orderly way. Sent to a keeper.
    Stopped,
}

/// Orders of operators that the successor must continue to obey.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    /// Deadline of a drain.
    pub(crate) drain_until: Option<Instant>,
    /// Signals that were delayed by the hand-over.
    pub(crate) signals: Vec<Signal>,
    /// Clients whose events are logged in detail.
    pub(crate) traces: Vec<Trace>,
    /// Rules of the user database, as last read. Set only for a keeper.
    pub(crate) tables: Option<LastRows>,
    /// Users that the database must confirm.
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
    /// The successor has received all snapshots, and is ready for the pause.
    Pause,
    /// The successor has imported everything, and waits for the commit.
    Ready,
    /// The predecessor commits: from now on the successor serves.
    Commit,
    /// The predecessor has released the kernel path, or the keeper has closed the sockets.
    Released,
    /// The successor has the listeners, and requests snapshots. A keeper that has received the
    /// listeners requests snapshots with the same step.
    Copy,
    /// The successor cannot serve the calls that a keeper retains: the keeper closes them.
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

/// Sends an export as a message followed by descriptors. Returns the descriptors for later closing:
/// closing thousands takes time for which the successor would wait.
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

/// Sends the descriptors of a kernel path that continues without a process.
pub(super) fn send_kernel_path(outlet: &mut impl Outlet, path: &[impl AsFd]) -> io::Result<()> {
    outlet.send(&News::KernelPath(path.len() as u32))?;
    send_descriptors(outlet, path)
}

/// Sends descriptors in the given order.
pub(super) fn send_descriptors(outlet: &mut impl Outlet, all: &[impl AsFd]) -> io::Result<()> {
    let all: Vec<BorrowedFd<'_>> = all.iter().map(AsFd::as_fd).collect();
    outlet.send_descriptors(&all)
}

/// Returns the error for a message that is not expected at this point.
pub(super) fn out_of_turn() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message came out of turn")
}

/// Receives the descriptors of a snapshot, and returns both as an export.
pub(super) fn receive_export(
    inlet: &mut impl Inlet,
    (snapshot, descriptors): (Snapshot, u32),
) -> io::Result<Export<OwnedFd>> {
    let descriptors = inlet.receive_descriptors(descriptors as usize)?;
    Ok(Export { snapshot, descriptors })
}
