//! Results of commands, as events for the server.

use alloc::boxed::Box;
use alloc::sync::Arc;

use turn_types::{ConnectionId, IpFamily, PendingId, RelayId};

use super::worker::{Fetch, WorkerAnswer};
use crate::credentials::UserKeys;
use crate::policy::GrantLimits;

/// Result of a [`Command`](crate::Command).
#[derive(Clone, Debug)]
pub enum Event {
    /// Result of a user look-up.
    UserFound {
        /// Id from the command.
        pending: PendingId,
        /// Response of the user database.
        answer: UserAnswer,
    },
    /// Result of an authorizer query about an Allocate.
    Authorized {
        /// Id from the command.
        pending: PendingId,
        /// Decision of the authorizer.
        answer: Authorization,
    },
    /// Result of opening a relay socket.
    RelayOpened {
        /// Id from the command.
        pending: PendingId,
        /// Name of the socket from the command.
        relay: RelayId,
        /// Success if the socket is open.
        result: Result<(), OpenRelayError>,
    },
    /// Result of connecting to a peer.
    PeerConnected {
        /// Id from the command.
        pending: PendingId,
        /// Name of the connection from the command.
        connection: ConnectionId,
        /// Success if the connection is established.
        result: Result<(), ConnectError>,
    },
    /// Response of another worker to a question.
    WorkerAnswered(Box<WorkerAnswer>),
    /// Failed fetch: another worker does not hand over the allocation, or cannot be reached.
    FetchFailed(Fetch),
}

/// Response of the authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// The client may have the allocation, within these limits.
    Granted(GrantLimits),
    /// The client may not have the allocation.
    Denied,
    /// The authorizer failed, or did not respond in time. The policy decides.
    Unavailable,
    /// The response contained no decision, or the authorizer failed between decisions. The client
    /// is refused.
    Unusable,
    /// Too many queries wait, or the authorizer responded in time only to other queries. The client
    /// is refused.
    Overloaded,
}

/// Response of the user database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserAnswer {
    /// The user exists.
    Known(User),
    /// The database failed. The user is as the database has last confirmed it. The keys are valid
    /// for a login, but are not confirmed.
    LastKnown(User),
    /// The user does not exist.
    Unknown,
    /// The database failed, or did not respond in time. The client of an allocation continues with
    /// its last known keys. Any other client gets 500 and tries again.
    Unavailable,
    /// The database failed, and an operator has changed the user since the last response. Earlier
    /// keys are not valid. Any client gets 500 and tries again.
    Unconfirmed,
    /// The database was not queried, because too many look-ups wait. No client is served. Over UDP
    /// the request is dropped, and the client retransmits.
    Overloaded,
}

/// User of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Name in clear text, also after a look-up by USERHASH.
    pub name: Arc<str>,
    /// Keys of the user.
    pub keys: UserKeys,
    /// Maximum number of live allocations for this user, instead of the policy's limit.
    pub allocations_max: Option<u32>,
}

/// Reason why a relay socket could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenRelayError {
    /// The port is used by another process on this host. Another port may be free.
    PortTaken,
    /// The host does not have the address.
    AddressAbsent,
    /// The process has no file descriptors or memory left. No other port will help.
    Exhausted,
}

/// Failure to connect to a peer: refused, no response, no route, or closed during the attempt. The
/// client gets 447 in all cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectError;

/// ICMP error reported by the kernel for a sent datagram (RFC 8656 §11.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpReport {
    /// Family of the ICMP error: ICMPv4 or ICMPv6.
    pub family: IpFamily,
    /// ICMP type.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// Next-hop MTU for "too big" messages, otherwise 0.
    pub data: u32,
}
