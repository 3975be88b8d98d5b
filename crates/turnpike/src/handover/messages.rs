//! Messages between the two processes.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use dataplane::RelaySettings;
use state_format::{Malformed, Reader, Value, Writer, fields, variants};
use turn_proto::{Progress, ReservedPort};
use turn_types::{AllocationId, Instant, RelayId, Secret, WorkerId};

use super::passing::Outlet;
use crate::signals::Signal;

/// The next process introduces itself.
#[derive(Debug)]
pub(super) struct Hello {
    /// For the log.
    pub(super) version: String,
    pub(super) process: u32,
}

/// What a process that ends leaves: where it comes from. The offer and the parts of the workers
/// follow.
#[derive(Debug)]
pub(super) struct Leaving {
    /// For the log.
    pub(super) version: String,
    pub(super) process: u32,
    /// From then on no process serves.
    pub(super) since: Instant,
    /// The kernel path goes on: a [`KernelPathPart`] comes behind all parts.
    pub(super) kernel_path: bool,
}

/// A kernel path that goes on without a process. So many descriptors follow.
#[derive(Debug)]
pub(super) struct KernelPathPart {
    pub(super) descriptors: u32,
}

impl KernelPathPart {
    /// Sends it with its descriptors.
    pub(super) fn send(outlet: &mut impl Outlet, path: &[BorrowedFd<'_>]) -> io::Result<()> {
        let descriptors = u32::try_from(path.len()).map_err(io::Error::other)?;
        outlet.send(&Self { descriptors })?;
        outlet.send_descriptors(path)
    }
}

/// Parts that the next process needs for its preparations. Descriptors follow: of each worker's
/// listeners in this order, of the services, and from a process that still runs of standard error.
pub(super) struct Offer {
    /// Nonces that clients have go on.
    pub(super) nonce_key: Secret<[u8; 32]>,
    pub(super) workers: Vec<Listening>,
    /// Listeners of HTTP.
    pub(super) services: Vec<SocketAddr>,
    pub(super) relay_sockets: RelaySocketsPart,
    /// About as many come with the allocations.
    pub(super) descriptors: u32,
}

/// Settings that all relay sockets have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RelaySocketsPart {
    pub(super) option_set: u32,
    pub(super) recv_buffer: u64,
    pub(super) send_buffer: u64,
}

impl From<RelaySettings> for RelaySocketsPart {
    fn from(settings: RelaySettings) -> Self {
        let RelaySettings { option_set, recv_buffer, send_buffer } = settings;
        Self { option_set, recv_buffer, send_buffer }
    }
}

impl From<RelaySocketsPart> for RelaySettings {
    fn from(part: RelaySocketsPart) -> Self {
        let RelaySocketsPart { option_set, recv_buffer, send_buffer } = part;
        Self { option_set, recv_buffer, send_buffer }
    }
}

/// The listeners of one worker.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) udp: Vec<SocketAddr>,
    pub(super) tcp: Vec<SocketAddr>,
}

/// News of the process before, as the next one gets them.
pub(super) enum News {
    /// Copies of one worker, while it serves. Descriptors follow: see [`CopyPart`].
    Copies(CopyPart),
    /// The rest of one worker, which serves no more. Descriptors follow: of its copies, of clients'
    /// connections, of relays for TCP, of connections with peers.
    Last(LastPart),
    /// Progress of allocations for which the kernel has relayed since, of each worker: it relays no
    /// more.
    Progress(Vec<ProgressPart>),
    /// Counters of all processes so far, as [counting](super::counting) writes them; the progress
    /// follows.
    Totals(Bytes),
    /// Orders of operators, of a running process; the totals follow.
    Orders(Orders),
}

/// Orders of operators, for the successor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    /// Deadline of a drain.
    pub(crate) drain_until: Option<Instant>,
    /// Waiting signals.
    pub(crate) signals: Vec<Signal>,
}

/// Progress of allocations of one worker.
pub(super) struct ProgressPart {
    pub(super) allocations: Vec<(AllocationId, Progress)>,
}

/// The rest of one worker.
pub(super) struct LastPart {
    /// Allocations that the next process has no copies of, or older ones.
    pub(super) copies: CopyPart,
    pub(super) progress: Vec<(AllocationId, Progress)>,
    pub(super) streams: Vec<StreamPart>,
    /// Sessions of DTLS.
    pub(super) sessions: Vec<Bytes>,
    pub(super) tcp_relays: Vec<TcpRelayPart>,
    /// Connections with peers.
    pub(super) peers: Vec<StreamPart>,
    /// Datagrams that UDP sockets have lost and that were counted, by the socket's address.
    pub(super) losses: Vec<(SocketAddr, u32)>,
    /// Ports that clients of all workers have reserved.
    pub(super) reserved: Vec<ReservedPort>,
    /// The number of allocations that have left, those of earlier copies among them; 0: not told.
    pub(super) allocations: u64,
}

/// A relay for TCP.
#[derive(Debug)]
pub(super) struct TcpRelayPart {
    pub(super) relay: RelayId,
    pub(super) at: SocketAddr,
}

/// A connection of a client, or with a peer.
pub(super) struct StreamPart {
    pub(super) state: Bytes,
    /// The other end of its socket.
    pub(super) remote: SocketAddr,
}

/// A server introduces itself to a keeper.
#[derive(Debug)]
pub(super) struct KeeperHello {
    /// For the log.
    pub(super) version: String,
    pub(super) process: u32,
    /// It sends an offer and then copies; otherwise it asks for the ones of a server that is gone.
    pub(super) feeds: bool,
}

impl KeeperHello {
    /// Of this process.
    pub(super) fn new(feeds: bool) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { version, process: std::process::id(), feeds }
    }
}

/// Copies of one worker, for a keeper or for the next process. Descriptors follow: of the sockets
/// that relays share, of relays that come with theirs.
pub(super) struct CopyPart {
    pub(super) worker: WorkerId,
    pub(super) last_id: AllocationId,
    pub(super) shared: u32,
    pub(super) changed: Vec<ChangedPart>,
    pub(super) ended: Vec<AllocationId>,
    /// Another process has them all: the keeper forgets them.
    pub(super) farewell: bool,
    /// The server ends, as it was told to: it has not died.
    pub(super) stops: bool,
    /// Nothing else had changed.
    pub(super) complete: bool,
    /// For a keeper: the kernel path is another one. So many descriptors follow; none: it goes on
    /// without a server no longer.
    pub(super) kernel_path: Option<u32>,
}

impl LastPart {
    /// Of a worker of which there is nothing but copies.
    pub(super) fn of_copies(copies: CopyPart) -> Self {
        let allocations = copies.changed.len() as u64;
        Self {
            copies,
            progress: Vec::new(),
            streams: Vec::new(),
            sessions: Vec::new(),
            tcp_relays: Vec::new(),
            peers: Vec::new(),
            losses: Vec::new(),
            reserved: Vec::new(),
            allocations,
        }
    }
}

impl CopyPart {
    /// Without a change.
    pub(super) const fn nothing(worker: WorkerId, last_id: AllocationId) -> Self {
        Self {
            worker,
            last_id,
            shared: 0,
            changed: Vec::new(),
            ended: Vec::new(),
            farewell: false,
            stops: false,
            complete: false,
            kernel_path: None,
        }
    }

    /// The number of sockets that come with it.
    pub(super) fn sockets(&self) -> usize {
        let relays = self.changed.iter().flat_map(|changed| &changed.relays);
        relays.filter(|relay| relay.comes).count() + self.shared as usize
    }
}

/// An allocation that is new or has changed.
pub(super) struct ChangedPart {
    pub(super) id: AllocationId,
    pub(super) state: Bytes,
    pub(super) relays: Vec<ChangedRelayPart>,
    /// The DTLS session of its client, for a keeper.
    pub(super) session: Option<Bytes>,
}

/// A relay of an allocation that has changed.
#[derive(Debug)]
pub(super) struct ChangedRelayPart {
    pub(super) part: RelayPart,
    /// Its socket comes with it.
    pub(super) comes: bool,
}

/// A relay of an allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct RelayPart {
    pub(super) relay: RelayId,
    pub(super) at: SocketAddr,
    /// It has a socket of its own.
    pub(super) own: bool,
}

/// Bytes with a form of their own.
pub(super) struct Bytes(pub(super) Vec<u8>);

fields!(Hello { 1 => version, 2 => process });
fields!(Leaving { 1 => version, 2 => process, 3 => since, 4 => kernel_path or false });
fields!(KernelPathPart { 1 => descriptors });
fields!(Offer {
    1 => nonce_key,
    2 => workers,
    3 => services,
    4 => relay_sockets or RelaySocketsPart::default(),
    5 => descriptors or 0,
});
fields!(RelaySocketsPart { 1 => option_set, 2 => recv_buffer, 3 => send_buffer });
fields!(Listening { 1 => udp, 2 => tcp });
variants!(News, "news of a worker" {
    0 => Copies(copies),
    1 => Last(last),
    2 => Progress(parts),
    3 => Totals(totals),
    4 => Orders(orders),
});
fields!(Orders { 1 => drain_until, 2 => signals });
variants!(Signal, "signal" { 0 => Reload, 1 => End, 2 => User1, 3 => User2 });
fields!(ProgressPart { 1 => allocations });
fields!(LastPart {
    1 => copies,
    2 => progress,
    4 => streams,
    5 => tcp_relays or Vec::new(),
    6 => peers or Vec::new(),
    7 => losses or Vec::new(),
    8 => allocations or 0,
    9 => reserved or Vec::new(),
    10 => sessions or Vec::new(),
});
fields!(TcpRelayPart { 1 => relay, 2 => at });
fields!(StreamPart { 1 => state, 2 => remote });
fields!(KeeperHello { 1 => version, 2 => process, 3 => feeds });
fields!(CopyPart {
    1 => worker,
    2 => last_id,
    3 => shared,
    4 => changed,
    5 => ended,
    6 => farewell,
    7 => complete or false,
    8 => stops or false,
    9 => kernel_path or None,
});
fields!(ChangedPart { 1 => id, 2 => state, 3 => relays, 4 => session or None });
fields!(ChangedRelayPart { 1 => part, 2 => comes });
fields!(RelayPart { 1 => relay, 2 => at, 3 => own });

impl Value for Bytes {
    fn write(&self, out: &mut Writer) {
        out.sized(|out| out.put(&self.0));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let len = input.count()?;
        input.take(len).map(|bytes| Self(bytes.to_vec()))
    }
}

/// A step that has no more to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The next process has all copies, and is ready to take over.
    Leave,
    /// It has taken over, and waits.
    Prepared,
    /// It serves from now on.
    Go,
    /// The old process has let go of the rest.
    Gone,
    /// The next process has its listeners, and wants copies. A keeper that has them wants some as
    /// well.
    Copy,
    /// The next process cannot go on with the calls that a keeper has: they have ended.
    Forget,
}

variants!(Step, "step of a hand-over" {
    0 => Leave,
    1 => Prepared,
    2 => Go,
    3 => Gone,
    4 => Copy,
    5 => Forget,
});
