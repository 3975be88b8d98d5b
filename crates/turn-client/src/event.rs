//! Events of a client.

use alloc::string::String;
use core::net::IpAddr;
use core::time::Duration;

use stun_wire::ChannelNumber;
use turn_types::{ClientAddr, PeerAddr, ServerAddr};

use crate::allocation::Allocation;

/// Event for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A Binding request succeeded, and returned the client's address as received by the server.
    Bound {
        /// XOR-MAPPED-ADDRESS.
        mapped: ClientAddr,
    },
    /// The allocation was granted.
    Allocated(Allocation),
    /// The allocation was refreshed.
    Refreshed {
        /// Granted lifetime.
        lifetime: Duration,
    },
    /// A permission was installed for the first time. Refreshes cause no event.
    PermissionReady {
        /// Address of the peer.
        peer: IpAddr,
    },
    /// A channel was bound for the first time. The permission is installed too.
    ChannelReady {
        /// Number of the channel.
        channel: ChannelNumber,
        /// Address and port of the peer.
        peer: PeerAddr,
    },
    /// The server redirected the client (RFC 8489 §10), which repeats the Allocate at another
    /// server. From now on, send to that server, and receive from it.
    Redirected {
        /// Address of the new server.
        server: ServerAddr,
        /// Domain name in the server's certificate, over TLS and DTLS.
        domain: Option<String>,
    },
    /// The server refused a request. An initial permission or channel is dropped. A refresh is
    /// repeated while there is time.
    Refused {
        /// Kind of request.
        request: RequestKind,
        /// Error code, 300..=699.
        code: u16,
        /// Human-readable reason phrase.
        reason: String,
    },
    /// A request failed without an authentic response.
    Failed {
        /// Kind of request.
        request: RequestKind,
        /// Reason for the failure.
        failure: Failure,
    },
    /// A permission expired, because no refresh succeeded in time.
    PermissionLost {
        /// Address of the peer.
        peer: IpAddr,
    },
    /// A channel expired, because no refresh succeeded in time.
    ChannelLost {
        /// Number of the channel.
        channel: ChannelNumber,
        /// Address and port of the peer.
        peer: PeerAddr,
    },
    /// The allocation was lost without a request, including its permissions and channels.
    AllocationLost(LossReason),
    /// The allocation was deleted on request.
    Released,
}

/// Kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Binding.
    Binding,
    /// Allocate.
    Allocate,
    /// Refresh.
    Refresh,
    /// CreatePermission. The address is that of the first peer.
    CreatePermission(IpAddr),
    /// ChannelBind.
    ChannelBind(ChannelNumber, PeerAddr),
}

/// Reason for a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No response arrived.
    TimedOut,
    /// Responses arrived, but none with valid integrity (RFC 8489 §9.2.5).
    IntegrityViolated,
    /// The nonce announces password algorithms that the response does not list: a bid-down attack
    /// (RFC 8489 §9.2.5).
    BidDown,
    /// The server offers no acceptable password algorithm.
    NoAlgorithm,
    /// The server requires credentials, which are missing or unusable (the name is too long, the
    /// password has forbidden characters).
    Credentials,
    /// Too many consecutive challenges.
    TooManyChallenges,
    /// Too many redirections, a loop, or no usable address.
    Redirect,
    /// A success response lacks a required attribute, or a response has unknown
    /// comprehension-required attributes (RFC 8489 §6.3.3).
    Malformed,
}

/// Reason why an allocation was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// No refresh succeeded in time.
    Expired,
    /// The server does not know the allocation (437), for example after a restart, or a change of
    /// the client's address.
    Mismatch,
}
