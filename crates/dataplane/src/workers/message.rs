//! Messages between workers.

use std::sync::mpsc::SyncSender;
use std::{fmt, io};

use control::Reply;
use turn_proto::{BindRequest, Departure, ExpectedMove, Fetch, Progress, Question, WorkerAnswer};
use turn_types::{AllocationId, RelayId};

use crate::copying::Recipient;
use crate::io::Net;
use crate::snapshot::Export;
use crate::sockets::RelaySocket;
use crate::stream::Stream;

/// Relay sockets of a moving allocation, by their numbers at the sender.
pub(crate) type MovedSockets<N> = Vec<(RelayId, RelaySocket<N>)>;

/// Message to another worker. The variants from [`Ask`](Self::Ask) to [`Arrive`](Self::Arrive) are
/// the steps of a client's move (RFC 8016), in order. See `worker_move.rs` of `turn_proto`.
pub(crate) enum WorkerMessage<N: Net> {
    /// Client's connection, with TLS state and buffered bytes. The client's ConnectionBind names a
    /// peer's connection of the receiver (RFC 6062).
    Bind(Box<Stream<N>>, Box<BindRequest>),
    /// A client has sent a mobility ticket of the receiver.
    Ask(Box<Question>),
    /// The worker of the allocation has answered the question.
    Answer(Box<WorkerAnswer>),
    /// The client has sent a packet, so the allocation must move.
    Fetch(Fetch),
    /// The allocation does not move.
    FetchFailed(Fetch),
    /// The allocation arrives with the relay sockets.
    Arrive(Box<Departure>, MovedSockets<N>),
    /// The receiver must expect these clients of allocations that the sender has imported.
    Expect(Vec<ExpectedMove>),
    /// The receiver must stop serving, for an export. Earlier messages are served before the
    /// response.
    Pause(Reply<()>),
    /// The receiver must export everything to the successor.
    Export(Reply<io::Result<Export<N::Descriptor>>>),
    /// The receiver must return the progress of the kernel path. With true the kernel path stops.
    LastProgress(bool, Reply<Vec<(AllocationId, Progress)>>),
    /// The successor has failed.
    RollBack,
    /// The successor serves.
    Commit,
    /// The receiver must send snapshots to another process.
    Copy(SyncSender<Export<N::Descriptor>>, Recipient),
}

impl<N: Net> fmt::Debug for WorkerMessage<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bind(..) => "Bind",
            Self::Ask(_) => "Ask",
            Self::Answer(_) => "Answer",
            Self::Fetch(_) => "Fetch",
            Self::FetchFailed(_) => "FetchFailed",
            Self::Arrive(..) => "Arrive",
            Self::Expect(_) => "Expect",
            Self::Pause(_) => "Pause",
            Self::Export(_) => "Export",
            Self::LastProgress(..) => "LastProgress",
            Self::RollBack => "RollBack",
            Self::Commit => "Commit",
            Self::Copy(..) => "Copy",
        })
    }
}
