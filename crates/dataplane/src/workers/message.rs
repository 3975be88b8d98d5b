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

/// Relay sockets of an allocation that moves, by their numbers at the sender.
pub(crate) type MovedSockets<N> = Vec<(RelayId, RelaySocket<N>)>;

/// A message to another worker. Those between the first and the last seven are the steps of a
/// client's move (RFC 8016), in their order; see `worker_move.rs` of `turn_proto`.
pub(crate) enum WorkerMessage<N: Net> {
    /// A client's connection, with its TLS and buffered bytes, whose ConnectionBind names a peer's
    /// connection of the receiver (RFC 6062).
    Bind(Box<Stream<N>>, Box<BindRequest>),
    /// A client has sent a mobility ticket of the receiver.
    Ask(Box<Question>),
    /// Answer of the worker that has the allocation.
    Answer(Box<WorkerAnswer>),
    /// The client has sent a packet: the allocation is to move.
    Fetch(Fetch),
    /// It does not move.
    FetchFailed(Fetch),
    /// The allocation, with its relay sockets.
    Arrive(Box<Departure>, MovedSockets<N>),
    /// Clients of imported allocations of the sender that are expected at the receiver.
    Expect(Vec<ExpectedMove>),
    /// Stops serving, for an export. Earlier messages are served before the answer.
    Pause(Reply<()>),
    /// Exports everything to the successor.
    Export(Reply<io::Result<Export<N::Descriptor>>>),
    /// Returns the progress by the kernel path; true: the kernel path ends.
    LastProgress(bool, Reply<Vec<(AllocationId, Progress)>>),
    /// The successor has failed.
    RollBack,
    /// The successor serves.
    Commit,
    /// Sends snapshots to another process.
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
