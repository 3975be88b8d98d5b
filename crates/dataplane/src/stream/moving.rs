//! Export of connections to the successor, and import of the predecessor's.

use state_format::Reader;
use turn_types::{FiveTuple, SocketId};

use control::StreamEnd;

use super::connection::{ConnectionLost, LeftStream, Stream, StreamState};
use super::output::finish;
use super::{PipeEvent, Streams};
use crate::context::Context;
use crate::inheritance::InheritedStream;
use crate::io::{Net, Source, StreamIo as _};
use crate::token::Token;

impl<N: Net> Streams<N> {
    /// Exports all connections. Connections within a TLS handshake, which has no exportable state,
    /// are closed at the [commit](Self::forget). Exported connections retain their numbers until
    /// the commit.
    pub(crate) fn leave(&mut self, cx: &mut Context<N>) -> Vec<LeftStream<N>> {
        let all = self.table.iter_mut().filter(|stream| !stream.is_handshaking());
        let ids: Vec<SocketId> = all.map(|stream| stream.path.socket).collect();
        let mut left = Vec::new();
        for id in ids {
            match self.table.get_mut(id).and_then(Stream::detach) {
                Some(detached) => {
                    if let Some(stream) = self.table.lift(id) {
                        cx.net.unwatch(Source::Stream(&stream.socket));
                        left.push(stream.leave(detached));
                    }
                }
                // Broken.
                None => self.close(cx, id, StreamEnd::Broken),
            }
        }
        left
    }

    /// Takes connections back that have left.
    pub(crate) fn take_back(&mut self, cx: &mut Context<N>, left: Vec<LeftStream<N>>) {
        for left in left {
            let (id, five_tuple, pipe) = (left.id, left.state.five_tuple(), left.state.pipe());
            match self.restore(cx, left) {
                Ok(stream) => self.table.put_back(stream),
                Err(_) => {
                    self.pipes.extend(pipe.map(PipeEvent::Closed));
                    self.table.forget(id, (five_tuple.client, five_tuple.server));
                    cx.server.close(cx.now, &five_tuple);
                }
            }
        }
    }

    /// Closes the descriptors of exported connections, and closes all other connections.
    pub(crate) fn forget(&mut self, cx: &mut Context<N>, left: Vec<LeftStream<N>>) {
        for LeftStream { id, state, .. } in left {
            let five_tuple = state.five_tuple();
            self.table.forget(id, (five_tuple.client, five_tuple.server));
            // The allocation was exported; this removes the server name.
            cx.server.close(cx.now, &five_tuple);
        }
        let others: Vec<SocketId> = self.table.iter_mut().map(|one| one.path.socket).collect();
        others.into_iter().for_each(|id| self.close(cx, id, StreamEnd::Shutdown));
    }

    /// Takes a connection of another process. It counts among all, whatever the limits are now.
    ///
    /// # Errors
    /// It cannot be what another process had, or there is no memory for it: it is closed.
    pub(crate) fn inherit(
        &mut self,
        cx: &mut Context<N>,
        inherited: InheritedStream<N::Stream>,
    ) -> Result<(), ConnectionLost> {
        let InheritedStream { remote, socket, state } = inherited;
        let state: StreamState = Reader::new(&state).last().map_err(ConnectionLost::Malformed)?;
        if socket.remote_addr().ok() != Some(remote) {
            return Err(ConnectionLost::Socket);
        }
        let permit = self.settings.admission.keep(state.customer());
        let has_client = state.customer().is_some();
        let id = self.table.next_id().ok_or(ConnectionLost::NoRoom)?;
        let stream = self.restore(cx, LeftStream { id, socket, remote, permit, state })?;
        self.table.insert(stream);
        if has_client {
            self.hold_addresses(cx, id);
            self.tell_server_name(cx, id);
        }
        Ok(())
    }

    /// Puts a connection together and watches it.
    fn restore(
        &mut self,
        cx: &Context<N>,
        left: LeftStream<N>,
    ) -> Result<Box<Stream<N>>, ConnectionLost> {
        let id = left.id;
        let stream = Stream::restore(left)?;
        let (source, token) = (Source::Stream(&stream.socket), Token::Stream(id).number());
        cx.net.watch(source, token, stream.interest()).map_err(|_| ConnectionLost::NoRoom)?;
        if !stream.is_flushed() {
            self.unsent.push(id);
        }
        // Whole messages may have been read already.
        self.reread.push(id);
        Ok(Box::new(stream))
    }

    /// Stores a request without an answer in the connection, before all later input.
    pub(crate) fn unserve(&mut self, id: SocketId, request: Box<[u8]>) {
        if let Some(stream) = self.table.get_mut(id) {
            stream.unserve(request);
        }
    }

    /// Returns the number of the connection with these addresses.
    pub(crate) fn of_client(&self, five_tuple: &FiveTuple) -> Option<SocketId> {
        self.table.holder_of(five_tuple.client, five_tuple.server)
    }

    /// Uses no socket until [`go_on`](Self::go_on): before the commit the predecessor has all of
    /// them. Ends of connections are deferred.
    pub(crate) const fn wait_for_commit(&mut self) {
        self.is_before_commit = true;
    }

    /// Returns true before the commit of the predecessor.
    pub(crate) const fn is_before_commit(&self) -> bool {
        self.is_before_commit
    }

    /// Finishes the deferred ends: this process serves.
    pub(crate) fn go_on(&mut self, cx: &mut Context<N>) {
        self.is_before_commit = false;
        for (stream, end) in std::mem::take(&mut self.ended) {
            finish(cx, *stream, end);
        }
    }
}
