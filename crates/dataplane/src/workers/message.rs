//! Messages between workers.

use std::sync::mpsc::SyncSender;
use std::{fmt, io};

use control::Reply;
use turn_proto::{BindRequest, Departure, Fetch, Progress, Question, WorkerAnswer};
use turn_types::{AllocationId, RelayId};

use crate::copies::{Copies, CopiesFor};
use crate::inheritance::Inherited;
use crate::io::Net;
use crate::sockets::RelaySocket;
use crate::stream::Stream;

/// Relay sockets of an allocation that moves, by their numbers at the sender.
pub(crate) type MovedSockets<N> = Vec<(RelayId, RelaySocket<N>)>;

/// A message to another worker. Those between the first and the last five are the steps of a
/// client's move (RFC 8016), in their order; see `handover.rs` of `turn_proto`.
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
    /// The next process asks for everything.
    Leave(LeaveReply<N>),
    /// The next process is about to serve.
    Withdraw(WithdrawReply),
    /// A worker that has left is asked for the progress of allocations that the kernel relays for;
    /// it goes on without this process.
    Progress(WithdrawReply),
    /// The next process has failed.
    TakeBack,
    /// The next process serves.
    Forget,
    /// Another process wants copies of everything.
    Copy(SyncSender<Copies<N::Udp>>, CopiesFor),
}

/// Takes what a worker has left, or why it could not.
pub(crate) type LeaveReply<N> = Reply<io::Result<Inherited<N>>>;

/// Takes the progress of allocations that the kernel has relayed for.
pub(crate) type WithdrawReply = Reply<Vec<(AllocationId, Progress)>>;

impl<N: Net> fmt::Debug for WorkerMessage<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bind(..) => "Bind",
            Self::Ask(_) => "Ask",
            Self::Answer(_) => "Answer",
            Self::Fetch(_) => "Fetch",
            Self::FetchFailed(_) => "FetchFailed",
            Self::Arrive(..) => "Arrive",
            Self::Leave(_) => "Leave",
            Self::Withdraw(_) => "Withdraw",
            Self::Progress(_) => "Progress",
            Self::TakeBack => "TakeBack",
            Self::Forget => "Forget",
            Self::Copy(..) => "Copy",
        })
    }
}
