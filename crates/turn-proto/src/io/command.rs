//! Commands to the driver of the server. Each one with a [`PendingId`] is answered by one
//! [`Event`](crate::Event); until then its request waits.

use alloc::boxed::Box;
use alloc::sync::Arc;

use state_format::variants;
use turn_types::{
    ClientAddr, ConnectionId, PeerAddr, PendingId, Realm, RelayId, RelayedAddr, Transport, WorkerId,
};

use super::route::{Route, RouteId};
use super::worker::{BindRequest, Fetch, Question};

/// Something to be done outside.
#[derive(Debug)]
pub enum Command {
    /// Look up a user's keys; answered by [`Event::UserFound`](crate::Event::UserFound).
    FindUser {
        /// To be repeated in the answer.
        pending: PendingId,
        /// The client.
        client: ClientAddr,
        /// The client has the keys of the allocation on its 5-tuple, or the authorizer's consent to
        /// one.
        has_allocation: bool,
        /// The realm to look in.
        realm: Realm,
        /// The user.
        user: UserQuery,
    },
    /// Ask the authorizer about an Allocate that passed every check; answered by
    /// [`Event::Authorized`](crate::Event::Authorized).
    Authorize {
        /// To be repeated in the answer.
        pending: PendingId,
        /// The client that asks for an allocation.
        applicant: Box<Applicant>,
    },
    /// Open a relay socket; answered by [`Event::RelayOpened`](crate::Event::RelayOpened).
    OpenRelay {
        /// To be repeated in the answer.
        pending: PendingId,
        /// The name of the socket from now on.
        relay: RelayId,
        /// The address and port to bind.
        at: RelayedAddr,
    },
    /// Close a relay socket, or stop listening; not answered. Its port is free once this command is
    /// polled.
    CloseRelay {
        /// The socket.
        relay: RelayId,
    },
    /// Pass a question on to another worker:
    /// [`Server::answer_worker`](crate::Server::answer_worker) answers it by
    /// [`Event::WorkerAnswered`](crate::Event::WorkerAnswered); if it cannot be passed on,
    /// [`Question::unanswered`](crate::Question::unanswered) is the answer.
    AskWorker {
        /// The worker.
        worker: WorkerId,
        /// The question.
        question: Box<Question>,
    },
    /// Ask another worker to hand an allocation over: to withdraw it, and then to let it depart.
    /// Answered by [`Server::arrive`](crate::Server::arrive) or
    /// [`Event::FetchFailed`](crate::Event::FetchFailed); if neither comes it is asked again.
    Fetch {
        /// The worker.
        worker: WorkerId,
        /// The request.
        fetch: Fetch,
    },
    /// Hand an allocation over to a worker that has not asked yet: as if it had.
    HandOver(Fetch),
    /// A user look-up takes too long: its request is to be answered without it. Answered at once by
    /// [`Event::UserFound`](crate::Event::UserFound) with
    /// [`UserAnswer::Unavailable`](crate::UserAnswer::Unavailable), whatever becomes of the
    /// look-up.
    UserOverdue {
        /// To be repeated in the answer.
        pending: PendingId,
    },
    /// A route is new, or anything in it but `id` has changed; not answered. A driver that ignores
    /// it, or any other, forwards less and nothing wrong.
    SetRoute(Box<Route>),
    /// A route that was set is gone: its channel, relay socket or allocation ended, or the rules
    /// forbid its peer or its number now. Not answered. It comes before [`Self::CloseRelay`] of its
    /// socket.
    RemoveRoute(RouteId),
    /// Relay by no route until [`Self::ResumeRoutes`]: a new policy may deny peers of routes, which
    /// are judged by then. Not answered, and not to be ignored.
    SuspendRoutes,
    /// Relay by the routes that are set.
    ResumeRoutes,
    /// Something for an allocation that relays TCP; none comes unless
    /// [`Policy::tcp_relaying`](crate::Policy::tcp_relaying) is set.
    Tcp(TcpCommand),
}

/// Something to be done outside for an allocation that relays TCP (RFC 6062).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpCommand {
    /// Listen on a relayed address, in such a way that connections can leave from it as well;
    /// answered by [`Event::RelayOpened`](crate::Event::RelayOpened).
    Listen {
        /// To be repeated in the answer.
        pending: PendingId,
        /// The name of the listening socket from now on.
        relay: RelayId,
        /// The address and port to bind.
        at: RelayedAddr,
    },
    /// Connect to a peer from a relayed address; answered by
    /// [`Event::PeerConnected`](crate::Event::PeerConnected).
    Connect {
        /// To be repeated in the answer.
        pending: PendingId,
        /// The name of the connection from now on.
        connection: ConnectionId,
        /// The relayed address and port to connect from.
        relay: RelayId,
        /// The peer.
        peer: PeerAddr,
    },
    /// Close a connection with a peer, and with it the client's if they are one. Not answered, but
    /// that one which is still being made has failed by it.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
    /// Take a ConnectionBind, and the stream that it came by with all that follows on it, to the
    /// server of the worker that has the connection:
    /// [`Server::bind_connection`](crate::Server::bind_connection). If it cannot be taken there:
    /// [`Server::turn_bind_away`](crate::Server::turn_bind_away).
    Bind(Box<BindRequest>),
}

/// An authenticated client that asks for an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Applicant {
    /// Its realm.
    pub realm: Realm,
    /// The authenticated name: of a time-limited credential with its time, of an access token that
    /// of its key.
    pub user: Arc<str>,
    /// Account of its quotas: the name without time and limits.
    pub account: Arc<str>,
    /// Its transport, and its address as the server sees it.
    pub transport: Transport,
    /// As above.
    pub client: ClientAddr,
}

/// The user attribute of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserQuery {
    /// USERNAME.
    Name(Arc<str>),
    /// USERHASH: SHA-256 of `username:realm` (RFC 8489 §14.4).
    Hash([u8; 32]),
}

variants!(UserQuery, "user of a look-up" { 0 => Name(name), 1 => Hash(hash) });
