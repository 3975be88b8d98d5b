//! Export and import of one connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use state_format::{Malformed, fields, variants};
use turn_session::{OutQueue, QueuedMessage, Tls, TlsState};
use turn_types::{ClientPath, ConnectionId, FiveTuple, Instant, SocketId, Transport};

use super::{State, Stream};
use crate::admission::Admitted;
use crate::io::{Net, StreamIo as _};
use crate::report::Tag;

/// Exported state of a connection, with keys.
pub(crate) struct StreamState {
    /// Addresses from the client's view.
    five_tuple: FiveTuple,
    opened: Instant,
    last_message: Instant,
    state: State,
    partial: Vec<u8>,
    unsent: Vec<u8>,
    messages: Vec<QueuedMessage>,
    tls: Option<TlsState>,
    /// Requests without an answer.
    unserved: Vec<Vec<u8>>,
}

fields!(StreamState {
    1 => five_tuple,
    2 => opened,
    3 => last_message,
    4 => state,
    5 => partial,
    6 => unsent,
    7 => messages,
    8 => tls,
    9 => unserved,
});
variants!(State, "state of a connection" {
    0 => Open,
    1 => New,
    2 => Proxied,
    3 => Ending,
    4 => Answering,
    5 => Held,
    6 => Data(connection),
});

/// Exported connection.
pub(crate) struct ExportedStream<N: Net> {
    /// Number of the connection.
    pub(crate) id: SocketId,
    pub(crate) socket: N::Stream,
    /// Remote address, as in the [`StreamSnapshot`](crate::StreamSnapshot). A load balancer that
    /// names the client has this address.
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) permit: Admitted,
    pub(crate) state: StreamState,
}

impl<N: Net> fmt::Debug for ExportedStream<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportedStream").field("remote", &self.remote).finish_non_exhaustive()
    }
}

/// Error of an import. The connection is closed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StreamImportError {
    /// The state is malformed.
    #[error("its state cannot be read: {0}")]
    Malformed(Malformed),
    /// The queue or TLS state is invalid.
    #[error("its state fits no connection")]
    Misfit,
    /// The descriptor belongs to another socket, or the socket is broken.
    #[error("its socket is broken or another one")]
    Socket,
    /// The table is full, or the kernel has no memory.
    #[error("there is no room for it")]
    NoRoom,
}

impl<N: Net> Stream<N> {
    /// Stores a request without an answer, before all later input.
    pub(crate) fn unserve(&mut self, request: Box<[u8]>) {
        self.unserved.push_front(request);
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Exports the connection.
    ///
    /// # Errors
    /// TLS has no exportable state, and the unchanged connection is returned.
    pub(crate) fn export(mut self: Box<Self>) -> Result<ExportedStream<N>, Box<Self>> {
        let remote = self.socket.remote_addr().ok();
        let tls = match self.tls.take().map(Tls::leave).transpose() {
            Ok(tls) => tls,
            Err(tls) => {
                self.tls = Some(tls);
                return Err(self);
            }
        };
        let Self { socket, path, unserved, partial, out, state, .. } = *self;
        let (opened, last_message, permit) = (self.opened, self.last_message, self.permit);
        let (one, two) = out.next();
        let state = StreamState {
            five_tuple: path.five_tuple,
            opened,
            last_message,
            state,
            partial,
            unsent: [one, two].concat(),
            messages: out.messages().collect(),
            tls,
            unserved: unserved.into_iter().map(<[u8]>::into_vec).collect(),
        };
        Ok(ExportedStream { id: path.socket, socket, remote, permit, state })
    }

    /// Restores a connection from the exported state.
    ///
    /// # Errors
    /// The state is invalid for a connection.
    pub(crate) fn restore(
        ExportedStream { id, socket, permit, state, .. }: ExportedStream<N>,
    ) -> Result<Self, StreamImportError> {
        let five_tuple = state.five_tuple();
        let mut stream =
            Self::new(socket, ClientPath { five_tuple, socket: id }, state.opened, permit);
        let is_known = |message: &QueuedMessage| Tag::is_known(message.tag);
        let messages = Some(&state.messages).filter(|messages| messages.iter().all(is_known));
        let out = messages.and_then(|messages| OutQueue::restore(state.unsent, messages));
        stream.out = out.ok_or(StreamImportError::Misfit)?;
        if (five_tuple.transport == Transport::Tls) != state.tls.is_some() {
            return Err(StreamImportError::Misfit);
        }
        let tls = state.tls.map(Tls::resume).transpose();
        stream.tls = tls.map_err(|_| StreamImportError::Misfit)?;
        stream.unserved = state.unserved.into_iter().map(Vec::into_boxed_slice).collect();
        stream.partial = state.partial;
        stream.state = match state.state {
            // The end of input is read again, and unserved requests are handled again.
            State::Answering | State::Held => State::Open,
            kept @ (State::Proxied | State::New | State::Open | State::Data(_) | State::Ending) => {
                kept
            }
        };
        // A pipe is read when both connections exist.
        stream.is_read = stream.state.pipe().is_none();
        stream.last_message = state.last_message;
        Ok(stream)
    }
}

impl StreamState {
    /// Returns the 5-tuple from the client's view.
    pub(crate) const fn five_tuple(&self) -> FiveTuple {
        self.five_tuple
    }

    /// Returns the address of the client, for limits. Returns `None` if a load balancer has not yet
    /// named the client.
    pub(crate) fn customer(&self) -> Option<IpAddr> {
        (self.state != State::Proxied).then_some(self.five_tuple.client.ip())
    }

    /// Returns the peer's connection of a pipe.
    pub(crate) const fn pipe(&self) -> Option<ConnectionId> {
        self.state.pipe()
    }
}
