//! Connections that go to the next process, and the ones that come from the one before.

use std::collections::HashSet;

use state_format::Reader;
use turn_types::{FiveTuple, SocketId};

use super::connection::{ConnectionLost, LeftStream, Stream, StreamState};
use super::{PipeEvent, Streams};
use crate::context::Context;
use crate::inheritance::InheritedStream;
use crate::io::{Net, Source, StreamIo as _};
use crate::token::Token;

impl<N: Net> Streams<N> {
    /// Takes out the connections that another process can go on with, but for the `staying` ones.
    /// They keep their numbers here.
    pub(crate) fn leave(&mut self, net: &N, staying: &HashSet<SocketId>) -> Vec<LeftStream<N>> {
        let may = self.table.iter_mut().filter(|stream| stream.may_leave());
        let may = may.filter(|stream| !staying.contains(&stream.path.socket));
        let ids: Vec<SocketId> = may.map(|stream| stream.path.socket).collect();
        let mut left = Vec::new();
        for id in ids {
            let Some(detached) = self.table.get_mut(id).and_then(Stream::detach) else { continue };
            if let Some(stream) = self.table.lift(id) {
                net.unwatch(Source::Stream(&stream.socket));
                left.push(stream.leave(detached));
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

    /// Closes the descriptors of connections that have left: the next process has others.
    pub(crate) fn forget(&mut self, cx: &mut Context<N>, left: Vec<LeftStream<N>>) {
        for LeftStream { id, state, .. } in left {
            let five_tuple = state.five_tuple();
            self.table.forget(id, (five_tuple.client, five_tuple.server));
            // Its allocation has left; the name that it asked for is all that is there.
            cx.server.close(cx.now, &five_tuple);
        }
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
        let permit = self.settings.admission.keep(state.five_tuple().client.0.ip());
        let id = self.table.next_id().ok_or(ConnectionLost::NoRoom)?;
        let stream = self.restore(cx, LeftStream { id, socket, remote, permit, state })?;
        self.table.insert(stream);
        self.hold_addresses(cx, id);
        self.tell_server_name(cx, id);
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

    /// Returns true if another process can go on with this connection.
    pub(crate) fn may_leave(&mut self, id: SocketId) -> bool {
        self.table.get_mut(id).is_some_and(|stream| stream.may_leave())
    }

    /// Returns the number of the connection with these addresses.
    pub(crate) fn of_client(&self, five_tuple: &FiveTuple) -> Option<SocketId> {
        self.table.holder_of(five_tuple.client, five_tuple.server)
    }
}
