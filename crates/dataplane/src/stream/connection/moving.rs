//! A connection taken apart for the next process, and put together there.

use std::fmt;
use std::net::SocketAddr;

use state_format::{Malformed, fields};
use turn_session::{OutQueue, QueuedMessage, Tls, TlsState};
use turn_types::{
    ClientAddr, ClientPath, ConnectionId, FiveTuple, Instant, ServerAddr, SocketId, Transport,
};

use super::{State, Stream};
use crate::admission::Admitted;
use crate::io::{Net, StreamIo as _};
use crate::report::{Sent, Tag};

/// A connection without its socket, as another process gets it. Keys are in it.
pub(crate) struct StreamState {
    /// The addresses as the client sees them.
    client: SocketAddr,
    server: SocketAddr,
    opened: Instant,
    last_message: Instant,
    is_new: bool,
    partial: Vec<u8>,
    unsent: Vec<u8>,
    messages: Vec<QueuedMessage>,
    tls: Option<TlsState>,
    /// The peer's connection that it is bound to.
    pipe: Option<ConnectionId>,
}

fields!(StreamState {
    1 => client,
    2 => server,
    3 => opened,
    4 => last_message,
    5 => is_new,
    6 => partial,
    7 => unsent,
    8 => messages,
    9 => tls,
    10 => pipe,
});

/// A connection that was taken apart.
pub(crate) struct LeftStream<N: Net> {
    /// Its number.
    pub(crate) id: SocketId,
    pub(crate) socket: N::Stream,
    /// The address of its other end: a load balancer's, where one names the client.
    pub(crate) remote: SocketAddr,
    pub(crate) permit: Admitted,
    pub(crate) state: StreamState,
}

/// Parts that a connection had beside its own.
pub(crate) struct Detached {
    remote: SocketAddr,
    tls: Option<TlsState>,
}

impl<N: Net> fmt::Debug for LeftStream<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeftStream").field("remote", &self.remote).finish_non_exhaustive()
    }
}

/// Why a connection of another process is of no use.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConnectionLost {
    /// Its state cannot be read.
    #[error("its state cannot be read: {0}")]
    Malformed(Malformed),
    /// Its queue or its TLS cannot be what another process had.
    #[error("its state fits no connection")]
    Misfit,
    /// The socket is another one, or broken.
    #[error("its socket is broken or another one")]
    Socket,
    /// No room for it, or no memory.
    #[error("there is no room for it")]
    NoRoom,
}

impl<N: Net> Stream<N> {
    /// Returns true if another process can go on with it: between two requests or with the data of
    /// a peer's connection, and with keys that are agreed. The others end soon.
    pub(crate) fn may_leave(&self) -> bool {
        let is_between = matches!(self.state, State::New | State::Open | State::Data(_));
        is_between && self.waiting == 0 && self.tls.as_ref().is_none_or(Tls::may_leave)
    }

    /// Takes its keys out: it is to [leave](Self::leave). `None`: it is broken, or its TLS cannot
    /// be taken apart, and it stays as it was.
    pub(crate) fn detach(&mut self) -> Option<Detached> {
        let remote = self.socket.remote_addr().ok()?;
        match self.tls.take().map(Tls::leave).transpose() {
            Ok(tls) => Some(Detached { remote, tls }),
            Err(tls) => {
                self.tls = Some(tls);
                None
            }
        }
    }

    /// Takes the rest of it apart.
    pub(crate) fn leave(self, Detached { remote, tls }: Detached) -> LeftStream<N> {
        let Self { socket, path, partial, out, state, opened, last_message, permit, .. } = self;
        let (one, two) = out.next();
        let state = StreamState {
            client: path.five_tuple.client.0,
            server: path.five_tuple.server.0,
            opened,
            last_message,
            is_new: state == State::New,
            partial,
            unsent: [one, two].concat(),
            messages: out.messages().collect(),
            tls,
            pipe: state.pipe(),
        };
        LeftStream { id: path.socket, socket, remote, permit, state }
    }

    /// Puts it together.
    ///
    /// # Errors
    /// Its state fits no connection.
    pub(crate) fn restore(
        LeftStream { id, socket, permit, state, .. }: LeftStream<N>,
    ) -> Result<Self, ConnectionLost> {
        let five_tuple = state.five_tuple();
        let mut stream =
            Self::new(socket, ClientPath { five_tuple, socket: id }, state.opened, permit);
        let tag = |message: &QueuedMessage| tag(message, state.pipe.is_some());
        stream.out =
            OutQueue::restore(state.unsent, &state.messages, tag).ok_or(ConnectionLost::Misfit)?;
        let tls = state.tls.map(Tls::resume).transpose();
        stream.tls = tls.map_err(|_| ConnectionLost::Misfit)?;
        stream.partial = state.partial;
        stream.state = match state.pipe {
            Some(connection) => State::Data(connection),
            None if state.is_new => State::New,
            None => State::Open,
        };
        // A pipe is read when both of its ends are there.
        stream.is_read = state.pipe.is_none();
        stream.last_message = state.last_message;
        Ok(stream)
    }
}

impl StreamState {
    /// The 5-tuple as the client sees it.
    pub(crate) const fn five_tuple(&self) -> FiveTuple {
        FiveTuple {
            transport: if self.tls.is_some() { Transport::Tls } else { Transport::Tcp },
            client: ClientAddr(self.client),
            server: ServerAddr(self.server),
        }
    }

    /// The peer's connection that it is bound to.
    pub(crate) const fn pipe(&self) -> Option<ConnectionId> {
        self.pipe
    }
}

/// Tag that its fate is counted by; the old process knew better.
fn tag(message: &QueuedMessage, of_pipe: bool) -> u32 {
    let sent = match (of_pipe, message.droppable) {
        (true, _) => Sent::Piped,
        (false, true) => Sent::ToClient,
        (false, false) => Sent::Reply,
    };
    Tag { sent, bytes: message.left as usize }.number()
}
