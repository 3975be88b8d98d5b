//! Clients' TCP connections: accepted, read, written, closed.
//!
//! `connection.rs` contains one connection with TLS and queues. `table.rs` contains all connections
//! of a worker. The other files contain the operations of [`Streams`].
//!
//! Terms:
//!
//! - A connection *holds its addresses* if only this connection can act on the allocation of its
//!   5-tuple. At most one connection per 5-tuple holds the addresses.
//! - A connection is *postponed* while the connection waits in the fair input queue.
//! - A connection is *paused* while a TLS handshake waits for processor time of the customer's
//!   share.
//! - A request is *unserved* if the client has no response yet, and the request will be handled
//!   again.

mod accept;
mod connection;
mod deadlines;
mod handover;
mod http;
mod output;
mod postponed;
mod receive;
mod table;
mod tls;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use control::StreamEnd;
use linux_net::Interest;
use turn_session::TlsConfig;
use turn_types::{ConnectionId, Instant, Prefix, SocketId};

use crate::admission::Admission;
use crate::io::{AcceptIo as _, Net, Source};
use crate::token::Token;

pub use connection::StreamImportError;
pub(crate) use connection::{ExportedStream, Input, State, Stream};
use deadlines::Evictable;
pub(crate) use receive::{ReadNext, input_bytes};
use table::StreamTable;

/// Settings of clients' TCP connections.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// Addresses of load balancers. Connections from these addresses start with a PROXY header.
    pub proxies: Vec<Prefix>,
    /// TLS configuration. `None` if TLS is not served.
    pub tls: Option<TlsConfig>,
    /// True if STUN is also served without TLS.
    pub plain: bool,
    /// URL prefix for redirecting certificate authorities, to which the token of the challenge is
    /// appended (RFC 8555 §8.3).
    pub acme_redirect: Option<String>,
    /// Connection limits of all workers together.
    pub admission: Arc<Admission>,
}

/// Clients' TCP connections of one worker.
#[derive(Debug)]
pub(crate) struct Streams<N: Net> {
    table: StreamTable<N>,
    acceptors: Vec<N::Acceptor>,
    settings: StreamSettings,
    evictable: Evictable,
    /// Connections with new output.
    unsent: Vec<SocketId>,
    /// Connections with an output queue that is full of answers.
    stuck: Vec<SocketId>,
    /// Connections to read in the next iteration without a report of epoll, which does not report
    /// buffered bytes.
    reread: Vec<SocketId>,
    /// Connections with handshakes that wait for a share of the time, sorted by age.
    paused: VecDeque<SocketId>,
    /// Events of pipes, for the peers' connections.
    pipes: Vec<PipeEvent>,
    /// Time of the next sweep. `None` without connections.
    sweep_at: Option<Instant>,
    /// True if this process accepts connections. False if another process does.
    accepts: bool,
    /// True before the predecessor has committed. No socket is used in that time.
    is_before_commit: bool,
    /// Connections that have ended before the commit.
    ended: Vec<(Box<Stream<N>>, StreamEnd)>,
}

/// Change of a pipe's connection with the client (RFC 6062).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PipeEvent {
    /// Output was written.
    Written(ConnectionId),
    /// The connection is closed.
    Closed(ConnectionId),
}

impl<N: Net> Streams<N> {
    /// Creates the state, and watches the acceptors.
    ///
    /// # Errors
    /// No memory is left for epoll.
    pub(crate) fn new(
        net: &N,
        acceptors: Vec<N::Acceptor>,
        settings: StreamSettings,
    ) -> io::Result<Self> {
        for (index, acceptor) in (0..).zip(&acceptors) {
            let token = Token::Acceptor(index).number();
            net.watch(Source::Acceptor(acceptor), token, Interest::Read)?;
        }
        Ok(Self {
            table: StreamTable::default(),
            acceptors,
            settings,
            evictable: Evictable::default(),
            unsent: Vec::new(),
            stuck: Vec::new(),
            reread: Vec::new(),
            paused: VecDeque::new(),
            pipes: Vec::new(),
            sweep_at: None,
            accepts: true,
            is_before_commit: false,
            ended: Vec::new(),
        })
    }

    /// Returns the number of connections.
    pub(crate) const fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the local addresses of the acceptors.
    pub(crate) fn acceptor_addrs(&self) -> impl Iterator<Item = std::net::SocketAddr> {
        self.acceptors.iter().map(|acceptor| acceptor.local_addr())
    }

    pub(crate) fn get_mut(&mut self, id: SocketId) -> Option<&mut Stream<N>> {
        self.table.get_mut(id)
    }

    /// Reads a connection in the next iteration, without a report of epoll.
    pub(crate) fn reread(&mut self, id: SocketId) {
        self.reread.push(id);
    }

    /// Returns true if connections must be read in the next iteration.
    pub(crate) const fn has_rereads(&self) -> bool {
        !self.reread.is_empty()
    }

    /// Takes the connections to read without a report of epoll.
    pub(crate) fn take_rereads(&mut self) -> Vec<SocketId> {
        std::mem::take(&mut self.reread)
    }

    /// Returns the connections that are bound to peers' connections, with the peers' connections.
    pub(crate) fn pipes(&mut self) -> Vec<(SocketId, ConnectionId)> {
        let pipe = |stream: &mut Stream<N>| Some((stream.path.socket, stream.state.pipe()?));
        self.table.iter_mut().filter_map(pipe).collect()
    }

    /// Takes the next event of a pipe.
    pub(crate) fn pop_pipe_event(&mut self) -> Option<PipeEvent> {
        self.pipes.pop()
    }
}
