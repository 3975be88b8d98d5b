//! Clients' TCP connections: accepted, read, written, closed.
//!
//! `connection.rs` is one connection with its TLS and queues, `table.rs` all of a worker. The other
//! files are the verbs of [`Streams`].

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
    /// Load balancers: connections from there begin with a PROXY header.
    pub proxies: Vec<Prefix>,
    /// TLS configuration; `None`: TLS is not served.
    pub tls: Option<TlsConfig>,
    /// Serves STUN without TLS as well.
    pub plain: bool,
    /// URL to which certificate authorities are redirected, before the token of the challenge (RFC
    /// 8555 §8.3).
    pub acme_redirect: Option<String>,
    /// Limits of connections, of all workers together.
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
    /// Connections whose output queue is full of answers.
    stuck: Vec<SocketId>,
    /// Connections to be read in the next turn without a report of epoll, which does not know of
    /// buffered bytes.
    reread: Vec<SocketId>,
    /// Connections whose handshakes wait for a share of the time, sorted by age.
    paused: VecDeque<SocketId>,
    /// Pipes whose client's connection was written or closed, for their other end.
    pipes: Vec<PipeEvent>,
    /// Time of the next sweep; `None` without connections.
    sweep_at: Option<Instant>,
    /// New connections are for another process.
    accepts: bool,
    /// No socket is used: the predecessor has not committed.
    is_before_commit: bool,
    /// Connections that have ended before the commit.
    ended: Vec<(Box<Stream<N>>, StreamEnd)>,
}

/// Change of the client's side of a pipe (RFC 6062).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PipeEvent {
    /// Output was written.
    Written(ConnectionId),
    /// The connection is closed.
    Closed(ConnectionId),
}

impl<N: Net> Streams<N> {
    /// Watches the acceptors.
    ///
    /// # Errors
    /// No memory left for epoll.
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

    /// Reads a connection in the next turn, whatever epoll reports.
    pub(crate) fn reread(&mut self, id: SocketId) {
        self.reread.push(id);
    }

    /// Returns true if connections are to be read in the next turn.
    pub(crate) const fn has_rereads(&self) -> bool {
        !self.reread.is_empty()
    }

    /// Takes the connections to be read without a report of epoll.
    pub(crate) fn take_rereads(&mut self) -> Vec<SocketId> {
        std::mem::take(&mut self.reread)
    }

    /// Returns the connections that are bound to a peer's, with these.
    pub(crate) fn pipes(&mut self) -> Vec<(SocketId, ConnectionId)> {
        let pipe = |stream: &mut Stream<N>| Some((stream.path.socket, stream.state.pipe()?));
        self.table.iter_mut().filter_map(pipe).collect()
    }

    /// Takes the next change of a pipe.
    pub(crate) fn pop_pipe_event(&mut self) -> Option<PipeEvent> {
        self.pipes.pop()
    }
}
