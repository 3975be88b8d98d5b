//! Events of a client.

use alloc::string::String;
use core::net::IpAddr;
use core::time::Duration;

use stun_wire::ChannelNumber;
use turn_types::{ClientAddr, PeerAddr, ServerAddr};

use crate::allocation::Allocation;

/// An event for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A Binding request was answered: this is how the server sees us.
    Bound {
        /// XOR-MAPPED-ADDRESS.
        mapped: ClientAddr,
    },
    /// There is an allocation now.
    Allocated(Allocation),
    /// The allocation was prolonged.
    Refreshed {
        /// Granted lifetime.
        lifetime: Duration,
    },
    /// A permission was installed for the first time. Refreshes cause no event.
    PermissionReady {
        /// The peer's address.
        peer: IpAddr,
    },
    /// A channel was bound for the first time; its permission is installed too.
    ChannelReady {
        /// The channel.
        channel: ChannelNumber,
        /// The peer.
        peer: PeerAddr,
    },
    /// The server redirected the client (RFC 8489 §10). The Allocate is repeated at this server:
    /// send to it, and receive from it, from now on.
    Redirected {
        /// The new server.
        server: ServerAddr,
        /// The name its certificate has, over TLS and DTLS.
        domain: Option<String>,
    },
    /// The server refused a request. An initial permission or channel is dropped; a refresh is
    /// repeated while there is time.
    Refused {
        /// Which request.
        request: RequestKind,
        /// The error code, 300..=699.
        code: u16,
        /// The reason phrase, for people.
        reason: String,
    },
    /// A request failed without an authentic answer.
    Failed {
        /// Which request.
        request: RequestKind,
        /// Why.
        failure: Failure,
    },
    /// A permission ended because it could not be refreshed in time.
    PermissionLost {
        /// The peer's address.
        peer: IpAddr,
    },
    /// A channel ended because it could not be refreshed in time.
    ChannelLost {
        /// The channel.
        channel: ChannelNumber,
        /// The peer.
        peer: PeerAddr,
    },
    /// The allocation ended against our will, and its permissions and channels with it.
    AllocationLost(LossReason),
    /// The allocation was deleted on request.
    Released,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Binding.
    Binding,
    /// Allocate.
    Allocate,
    /// Refresh.
    Refresh,
    /// CreatePermission for these peers; the first one when there are several.
    CreatePermission(IpAddr),
    /// ChannelBind.
    ChannelBind(ChannelNumber, PeerAddr),
}

/// Reason for a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No answer.
    TimedOut,
    /// Answers arrived, but none with valid integrity (RFC 8489 §9.2.5).
    IntegrityViolated,
    /// A nonce promises password algorithms that are not listed: a bid-down attack (RFC 8489
    /// §9.2.5).
    BidDown,
    /// No acceptable password algorithm is offered.
    NoAlgorithm,
    /// The server requires credentials and there are none, or they are unusable (the name is too
    /// long, the password has forbidden characters).
    Credentials,
    /// One challenge after the other.
    TooManyChallenges,
    /// Sent elsewhere too often, in a circle, or without an address that could be used.
    Redirect,
    /// A success without a required attribute, or an answer with unknown comprehension-required
    /// attributes (RFC 8489 §6.3.3).
    Malformed,
}

/// Why an allocation was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// It could not be refreshed in time.
    Expired,
    /// The allocation is unknown to the server (437): it restarted, or the client's address
    /// changed.
    Mismatch,
}
