//! Commands to the driver of the server. The driver reports the result of each command with a
//! [`PendingId`] by one [`Event`](crate::Event). The request waits until then.

use alloc::boxed::Box;
use alloc::sync::Arc;

use state_format::variants;
use turn_types::{
    ClientAddr, ConnectionId, PeerAddr, PendingId, Realm, RelayId, RelayedAddr, Transport, WorkerId,
};

use super::route::{Route, RouteId};
use super::worker::{BindRequest, Fetch, Question};

/// Action for the driver to execute.
#[derive(Debug)]
pub enum Command {
    /// Look up a user's keys. The result is [`Event::UserFound`](crate::Event::UserFound).
    FindUser {
        /// Id to repeat in the event.
        pending: PendingId,
        /// Client that sent the request.
        client: ClientAddr,
        /// True if the client has proved the keys of the allocation on this 5-tuple, or has the
        /// authorizer's consent to an allocation.
        has_allocation: bool,
        /// Realm of the user.
        realm: Realm,
        /// User to look up.
        user: UserQuery,
    },
    /// Query the authorizer about an Allocate that passed every check. The result is
    /// [`Event::Authorized`](crate::Event::Authorized).
    Authorize {
        /// Id to repeat in the event.
        pending: PendingId,
        /// Client that requests the allocation.
        applicant: Box<Applicant>,
    },
    /// Open a relay socket. The result is [`Event::RelayOpened`](crate::Event::RelayOpened).
    OpenRelay {
        /// Id to repeat in the event.
        pending: PendingId,
        /// Name of the new socket.
        relay: RelayId,
        /// Address and port to bind.
        at: RelayedAddr,
    },
    /// Close a relay socket, or stop listening. Has no result. The port becomes free when the
    /// driver polls this command.
    CloseRelay {
        /// Socket to close.
        relay: RelayId,
    },
    /// Pass a question to another worker. [`Server::answer_worker`](crate::Server::answer_worker)
    /// of that worker answers, and the result is
    /// [`Event::WorkerAnswered`](crate::Event::WorkerAnswered). If the question cannot be passed,
    /// the driver returns [`Question::unanswered`](crate::Question::unanswered).
    AskWorker {
        /// Worker to query.
        worker: WorkerId,
        /// Question for the worker.
        question: Box<Question>,
    },
    /// Fetch an allocation from another worker, which withdraws the routes and releases the
    /// allocation. The result is [`Server::arrive`](crate::Server::arrive) or
    /// [`Event::FetchFailed`](crate::Event::FetchFailed). Without a result the server repeats the
    /// command.
    Fetch {
        /// Worker that has the allocation.
        worker: WorkerId,
        /// Allocation to fetch.
        fetch: Fetch,
    },
    /// Hand over an allocation as after [`Self::Fetch`], although the other worker has not sent the
    /// fetch.
    HandOver(Fetch),
    /// Respond to a request without the overdue user look-up. The driver immediately returns
    /// [`Event::UserFound`](crate::Event::UserFound) with
    /// [`UserAnswer::Unavailable`](crate::UserAnswer::Unavailable), regardless of the look-up's
    /// later result.
    UserOverdue {
        /// Id to repeat in the event.
        pending: PendingId,
    },
    /// Set a new route, or a route changed in any field except `id`. Has no result. A driver may
    /// ignore any of these commands: it then forwards less, and nothing wrongly.
    SetRoute(Box<Route>),
    /// Remove a route. The route's channel, relay socket or allocation has ended, or the rules now
    /// forbid its peer or channel number. Has no result. This command precedes [`Self::CloseRelay`]
    /// of the route's socket.
    RemoveRoute(RouteId),
    /// Stop relaying by all routes until [`Self::ResumeRoutes`]. A new policy may deny peers of
    /// routes, and is applied to all routes by then. Has no result. The driver must not ignore this
    /// command.
    SuspendRoutes,
    /// Resume relaying by the routes that are set.
    ResumeRoutes,
    /// Execute a command for an allocation that relays TCP. Issued only with
    /// [`Policy::tcp_relaying`](crate::Policy::tcp_relaying).
    Tcp(TcpCommand),
}

/// Action for the driver, for an allocation that relays TCP (RFC 6062).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpCommand {
    /// Listen on a relayed address, and permit outgoing connections from the address. The result is
    /// [`Event::RelayOpened`](crate::Event::RelayOpened).
    Listen {
        /// Id to repeat in the event.
        pending: PendingId,
        /// Name of the new listening socket.
        relay: RelayId,
        /// Address and port to bind.
        at: RelayedAddr,
    },
    /// Connect to a peer from a relayed address. The result is
    /// [`Event::PeerConnected`](crate::Event::PeerConnected).
    Connect {
        /// Id to repeat in the event.
        pending: PendingId,
        /// Name of the new connection.
        connection: ConnectionId,
        /// Listening socket whose relayed address and port are the source of the connection.
        relay: RelayId,
        /// Peer to connect to.
        peer: PeerAddr,
    },
    /// Close a connection with a peer, and a client connection bound to this connection. Has no
    /// result, except that an unfinished connection attempt fails.
    Close {
        /// Connection to close.
        connection: ConnectionId,
    },
    /// Pass a ConnectionBind and the request's stream to
    /// [`Server::bind_connection`](crate::Server::bind_connection) of the connection's worker. All
    /// later bytes of the stream go there as well. If this is not possible, call
    /// [`Server::turn_bind_away`](crate::Server::turn_bind_away).
    Bind(Box<BindRequest>),
}

/// Authenticated client that requests an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Applicant {
    /// Realm of the client.
    pub realm: Realm,
    /// Authenticated name. The name of a time-limited credential includes the time. For an access
    /// token this is the name of the token's key.
    pub user: Arc<str>,
    /// Account of the quotas: the name without time and limits.
    pub account: Arc<str>,
    /// Transport of the client.
    pub transport: Transport,
    /// Address of the client as received by the server.
    pub client: ClientAddr,
}

/// User attribute of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserQuery {
    /// USERNAME.
    Name(Arc<str>),
    /// USERHASH: SHA-256 of `username:realm` (RFC 8489 §14.4).
    Hash([u8; 32]),
}

variants!(UserQuery, "user of a look-up" { 0 => Name(name), 1 => Hash(hash) });
