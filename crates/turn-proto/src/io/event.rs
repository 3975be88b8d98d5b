//! Events for the server from outside, other than packets and time.

use alloc::boxed::Box;
use alloc::sync::Arc;

use turn_types::{ConnectionId, IpFamily, PendingId, RelayId};

use super::worker::{Fetch, WorkerAnswer};
use crate::credentials::UserKeys;
use crate::policy::GrantLimits;

/// The answer to a [`Command`](crate::Command).
#[derive(Clone, Debug)]
pub enum Event {
    /// A user was looked up.
    UserFound {
        /// From the command.
        pending: PendingId,
        /// The result of the look-up.
        answer: UserAnswer,
    },
    /// The authorizer was asked about an Allocate.
    Authorized {
        /// From the command.
        pending: PendingId,
        /// Its answer.
        answer: Authorization,
    },
    /// A relay socket was opened, or could not be.
    RelayOpened {
        /// From the command.
        pending: PendingId,
        /// From the command.
        relay: RelayId,
        /// Success if it is open.
        result: Result<(), OpenRelayError>,
    },
    /// A connection with a peer was made, or could not be.
    PeerConnected {
        /// From the command.
        pending: PendingId,
        /// From the command.
        connection: ConnectionId,
        /// Success if it is there.
        result: Result<(), ConnectError>,
    },
    /// Another worker has answered.
    WorkerAnswered(Box<WorkerAnswer>),
    /// Another worker does not hand an allocation over, or cannot be asked.
    FetchFailed(Fetch),
}

/// Answer of the authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// The client may have the allocation, within these limits.
    Granted(GrantLimits),
    /// It may not.
    Denied,
    /// The authorizer failed, or gave no answer in time: the policy decides.
    Unavailable,
    /// Response without a decision, or a failure between decisions: the client is refused.
    Unusable,
    /// Too many questions wait, or the authorizer answered only other questions in time: the client
    /// is refused.
    Overloaded,
}

/// Answer of the user database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserAnswer {
    /// There is such a user.
    Known(User),
    /// The database failed. The user as the database has last confirmed it: valid for a login, and
    /// no confirmation of keys.
    LastKnown(User),
    /// There is none.
    Unknown,
    /// The database failed, or gave no answer in time. The client of an allocation continues with
    /// its last known keys; any other gets 500 and tries again.
    Unavailable,
    /// The database failed, and an operator has changed the user since the last answer. Earlier
    /// keys are not valid: any client gets 500 and tries again.
    Unconfirmed,
    /// The database was not asked, as too many look-ups wait. No client is served; over UDP the
    /// request is dropped, and the client retransmits.
    Overloaded,
}

/// A user of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name in clear, also when it was looked up by its hash.
    pub name: Arc<str>,
    /// The keys.
    pub keys: UserKeys,
    /// A limit of live allocations for this user instead of the policy's.
    pub allocations_max: Option<u32>,
}

/// Why a relay socket could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenRelayError {
    /// Somebody else on this host has the port: another one may do.
    PortTaken,
    /// The host does not have the address.
    AddressAbsent,
    /// No file descriptors, no memory: no other port will do.
    Exhausted,
}

/// A connection with a peer could not be made: it was refused, the peer does not answer, there is
/// no way to it, or it was closed on the way. The client is told nothing finer (447).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectError;

/// An ICMP error that the kernel reported about a datagram we sent (RFC 8656 §11.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpReport {
    /// ICMPv4 or ICMPv6.
    pub family: IpFamily,
    /// ICMP type.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// Next-hop MTU for "too big" messages, otherwise 0.
    pub data: u32,
}
