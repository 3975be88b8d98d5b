//! Export of connections to the successor, and import of the predecessor's connections.

use turn_types::{FiveTuple, SocketId};

use control::StreamEnd;

use super::connection::{ExportedStream, Stream, StreamImportError, StreamState};
use super::output::finish;
use super::{PipeEvent, Streams};
use crate::context::Context;
use crate::io::{Net, Source};
use crate::snapshot::{Descriptors, StreamSnapshot};
use crate::token::Token;

impl<N: Net> Streams<N> {
    /// Exports all connections. Exported connections retain their numbers until the
    /// [commit](Self::commit). A TLS handshake has no exportable state, so connections in a
    /// handshake are closed at the commit.
    pub(crate) fn export(&mut self, cx: &mut Context<N>) -> Vec<ExportedStream<N>> {
        let all = self.table.iter_mut().filter(|stream| !stream.is_handshaking());
        let ids: Vec<SocketId> = all.map(|stream| stream.path.socket).collect();
        let mut exported = Vec::new();
        for id in ids {
            let Some(stream) = self.table.lift(id) else { continue };
            match stream.export() {
                Ok(stream) => {
                    cx.net.unwatch(Source::Stream(&stream.socket));
                    exported.push(stream);
                }
                Err(broken) => {
                    self.table.put_back(broken);
                    self.close(cx, id, StreamEnd::Broken);
                }
            }
        }
        exported
    }

    /// Restores exported connections after a failure of the successor.
    pub(crate) fn roll_back(&mut self, cx: &mut Context<N>, exported: Vec<ExportedStream<N>>) {
        for stream in exported {
            let (id, five_tuple, pipe) =
                (stream.id, stream.state.five_tuple(), stream.state.pipe());
            match self.restore(cx, stream) {
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
    pub(crate) fn commit(&mut self, cx: &mut Context<N>, exported: Vec<ExportedStream<N>>) {
        for ExportedStream { id, state, .. } in exported {
            let five_tuple = state.five_tuple();
            self.table.forget(id, (five_tuple.client, five_tuple.server));
            // The allocation was exported. This call removes the server name.
            cx.server.close(cx.now, &five_tuple);
        }
        let others: Vec<SocketId> = self.table.iter_mut().map(|one| one.path.socket).collect();
        others.into_iter().for_each(|id| self.close(cx, id, StreamEnd::Shutdown));
    }

    /// Imports a connection of the predecessor, regardless of current limits.
    ///
    /// # Errors
    /// The state or the socket is invalid, or no memory is left. The connection is closed.
    pub(crate) fn import(
        &mut self,
        cx: &mut Context<N>,
        snapshot: StreamSnapshot,
        descriptors: &mut Descriptors<N::Descriptor>,
    ) -> Result<(), StreamImportError> {
        let socket = snapshot.open(&cx.net, descriptors).ok_or(StreamImportError::Socket)?;
        let state = snapshot.state.parse::<StreamState>().map_err(StreamImportError::Malformed)?;
        let permit = self.settings.admission.keep(state.customer());
        let has_client = state.customer().is_some();
        let id = self.table.next_id().ok_or(StreamImportError::NoRoom)?;
        let remote = snapshot.remote;
        let stream = self.restore(cx, ExportedStream { id, socket, remote, permit, state })?;
        self.table.insert(stream);
        if has_client {
            self.hold_addresses(cx, id);
            self.tell_server_name(cx, id);
        }
        Ok(())
    }

    /// Restores and watches a connection.
    fn restore(
        &mut self,
        cx: &Context<N>,
        exported: ExportedStream<N>,
    ) -> Result<Box<Stream<N>>, StreamImportError> {
        let id = exported.id;
        let stream = Stream::restore(exported)?;
        let (source, token) = (Source::Stream(&stream.socket), Token::Stream(id).number());
        cx.net.watch(source, token, stream.interest()).map_err(|_| StreamImportError::NoRoom)?;
        if !stream.is_flushed() {
            self.unsent.push(id);
        }
        // Complete messages may have been read already.
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

    /// Uses no socket until [`resume`](Self::resume), because the predecessor uses all sockets
    /// before the commit. Ends of connections are deferred.
    pub(crate) const fn wait_for_commit(&mut self) {
        self.is_before_commit = true;
    }

    /// Returns true before the commit of the predecessor.
    pub(crate) const fn is_before_commit(&self) -> bool {
        self.is_before_commit
    }

    /// Completes the deferred ends: this process serves.
    pub(crate) fn resume(&mut self, cx: &mut Context<N>) {
        self.is_before_commit = false;
        for (stream, end) in std::mem::take(&mut self.ended) {
            finish(cx, *stream, end);
        }
    }
}
