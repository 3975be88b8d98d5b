//! Pipes between a client's and a peer's connection (RFC 6062 §5.4). Bytes pass unchanged.
//!
//! A connection is not read until the other connection has accepted the bytes that were read
//! before. So at most one read per connection is stored, and TCP's flow control limits the senders.
//! The end of one direction is forwarded after all bytes of that direction. The other direction
//! continues.

use control::{Leg, Series, StreamEnd};
use linux_net::{FILL_BYTES, ReadOutcome};
use turn_proto::{Event, Server};
use turn_types::{ConnectionId, Direction, Now, SocketId};

use super::TcpRelay;
use super::peer::{Phase, Readiness};
use crate::context::{Context, Message};
use crate::input_queue::InputSource;
use crate::io::{Net, Source, StreamIo as _};
use crate::limits::PIPE_BYTES;
use crate::report::{Observer, Sent};
use crate::stream::{Input, ReadNext, State, Streams, input_bytes};
use crate::token::Token;

/// Result of reading one connection of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// Bytes were moved, and more may wait.
    Bytes,
    /// No bytes wait.
    Nothing,
    /// The connection that was read is broken.
    SourceBroken,
    /// The other connection is broken.
    SinkBroken,
}

impl<N: Net> TcpRelay<N> {
    /// Binds a client's connection to a peer's connection. Bytes that were read after the
    /// ConnectionBind request are the first bytes for the peer.
    pub(crate) fn bind(
        &mut self,
        cx: &mut Context<N>,
        streams: &mut Streams<N>,
        id: SocketId,
        connection: ConnectionId,
    ) {
        let (Some(stream), Some(peer)) = (streams.get_mut(id), self.peers.get_mut(connection))
        else {
            // The server still has the connection, which has just broken.
            cx.server.connection_ended(connection);
            return streams.close(cx, id, StreamEnd::PeerBroken);
        };
        // The interest is still the interest of a held connection. `update` changes the interest.
        stream.state = State::Data(connection);
        stream.is_read = false;
        peer.phase = Phase::Bound(id);
        peer.last_byte = cx.now.instant;
        let early = stream.take_partial();
        let Context { server, observer, now, .. } = cx;
        let moved = self.pass_to_peer((server, observer), *now, connection, &early);
        if moved == Moved::SinkBroken {
            return streams.close(cx, id, StreamEnd::PeerBroken);
        }
        self.update(cx, streams, connection);
        // TLS may have more data, which epoll does not report.
        streams.reread(id);
    }

    /// Reads a client's connection once, for the peer. The batch must have space for one read.
    pub(crate) fn read_client(
        &mut self,
        cx: &mut Context<N>,
        streams: &mut Streams<N>,
        id: SocketId,
        connection: ConnectionId,
    ) -> ReadNext {
        let moved = self.client_to_peer(cx, streams, id, connection);
        match moved {
            Moved::Bytes | Moved::Nothing => self.update(cx, streams, connection),
            Moved::SourceBroken => streams.close(cx, id, StreamEnd::Broken),
            Moved::SinkBroken => streams.close(cx, id, StreamEnd::PeerBroken),
        }
        if moved == Moved::Bytes { ReadNext::Again } else { ReadNext::Wait }
    }

    fn client_to_peer(
        &mut self,
        cx: &mut Context<N>,
        streams: &mut Streams<N>,
        id: SocketId,
        connection: ConnectionId,
    ) -> Moved {
        let Some(stream) = streams.get_mut(id) else { return Moved::Nothing };
        let Some(peer) = self.peers.get_mut(connection) else { return Moved::SinkBroken };
        if !peer.takes_more() {
            let broken = stream.socket.take_error().is_some();
            return if broken { Moved::SourceBroken } else { Moved::Nothing };
        }
        let input = stream.read(&mut cx.rx, &mut cx.scratch, FILL_BYTES);
        let (more, wants_write) = (stream.may_hold_more(), stream.wants_write());
        let bytes = input_bytes(&input, &cx.rx);
        streams.spend_read(cx, id, bytes);
        if wants_write {
            streams.write(cx, id);
        }
        match input {
            Ok(Input::Bytes(message)) => {
                let Context { rx, server, observer, now, .. } = cx;
                let bytes = rx.message(message).data;
                let moved = self.pass_to_peer((server, observer), *now, connection, bytes);
                if moved == Moved::Bytes && !more { Moved::Nothing } else { moved }
            }
            Ok(Input::Nothing) => Moved::Nothing,
            Ok(Input::Ended) => {
                if let Some(peer) = self.peers.get_mut(connection) {
                    peer.from_client.ended = true;
                }
                Moved::Nothing
            }
            Err(_) => Moved::SourceBroken,
        }
    }

    /// Serves a connection with a peer that epoll has reported. Returns the outcome of a pending
    /// Connect.
    pub(crate) fn serve(
        &mut self,
        cx: &mut Context<N>,
        streams: &mut Streams<N>,
        connection: ConnectionId,
        Readiness { readable, writable }: Readiness,
    ) -> Option<Event> {
        let peer = self.peers.get_mut(connection)?;
        match peer.phase {
            Phase::Connecting(pending) => return self.connected(cx, connection, pending),
            Phase::Unbound => {
                if peer.socket.take_error().is_some() {
                    self.peers.remove(connection);
                    cx.server.connection_ended(connection);
                }
            }
            Phase::Bound(id) => {
                if writable {
                    let Ok(written) = peer.write_unsent(cx.now.instant) else {
                        streams.close(cx, id, StreamEnd::PeerBroken);
                        return None;
                    };
                    if peer.takes_more() {
                        streams.reread(id);
                    }
                    cx.observer.count(Series::PipedBytes(Leg::ToPeers), written as u64);
                }
                if readable {
                    self.read_peer(cx, streams, id, connection);
                }
                self.update(cx, streams, connection);
            }
        }
        None
    }

    /// Defers reading a peer to a later iteration. Returns false without a pipe.
    pub(crate) fn postpone(
        &mut self,
        cx: &mut Context<N>,
        streams: &mut Streams<N>,
        connection: ConnectionId,
    ) -> bool {
        let Some(peer) = self.peers.get_mut(connection) else { return false };
        let Phase::Bound(id) = peer.phase else { return false };
        let Some(stream) = streams.get_mut(id) else { return false };
        if peer.postponement.begin() {
            let client = stream.path.five_tuple.client.0.ip();
            cx.input.push(cx.now.instant, client, InputSource::Peer(connection));
        }
        true
    }

    /// Returns true if a peer from the input queue is connected, and may be read.
    pub(crate) fn take_postponed(&mut self, connection: ConnectionId) -> bool {
        self.peers.get_mut(connection).is_some_and(|peer| peer.postponement.end())
    }

    /// Returns true for a peer in the input queue.
    pub(crate) fn waits(&self, connection: ConnectionId) -> bool {
        self.peers.get(connection).is_some_and(|peer| peer.postponement.waits())
    }

    fn read_peer(
        &mut self,
        cx: &mut Context<N>,
        streams: &mut Streams<N>,
        id: SocketId,
        connection: ConnectionId,
    ) {
        if self.peer_to_client(cx, streams, id, connection) == Moved::SourceBroken {
            // Earlier bytes are sent if the client accepts output.
            streams.write(cx, id);
            streams.close(cx, id, StreamEnd::PeerBroken);
        }
    }

    fn peer_to_client(
        &mut self,
        cx: &mut Context<N>,
        streams: &mut Streams<N>,
        id: SocketId,
        connection: ConnectionId,
    ) -> Moved {
        let Some(stream) = streams.get_mut(id) else { return Moved::SinkBroken };
        let Some(peer) = self.peers.get_mut(connection) else { return Moved::Nothing };
        if !peer.may_be_read() || stream.unsent_bytes() >= PIPE_BYTES {
            let broken = peer.socket.take_error().is_some();
            return if broken { Moved::SourceBroken } else { Moved::Nothing };
        }
        let room = cx.scratch.len().min(PIPE_BYTES);
        let len = match peer.socket.read(&mut cx.scratch[..room]) {
            Ok(ReadOutcome::Read(len)) => len,
            Ok(ReadOutcome::WouldBlock) => return Moved::Nothing,
            Ok(ReadOutcome::Ended) => {
                peer.from_peer.ended = true;
                return Moved::Nothing;
            }
            Err(_) => return Moved::SourceBroken,
        };
        cx.input.spend_read(&cx.net, 0, len);
        peer.last_byte = cx.now.instant;
        let pause = cx.server.carried(cx.now, connection, Direction::ToClient, len as u64);
        peer.from_peer.paused_until = pause;
        if let Some(until) = pause {
            self.peers.pause(connection, until);
        }
        cx.observer.count(Series::PipedBytes(Leg::FromPeers), len as u64);
        streams.queue(&cx.egress, id, Message::plain(&cx.scratch[..len], Sent::Piped));
        Moved::Bytes
    }

    /// Writes bytes of a client to the client's peer.
    fn pass_to_peer(
        &mut self,
        (server, observer): (&mut Server, &Observer),
        now: Now,
        connection: ConnectionId,
        bytes: &[u8],
    ) -> Moved {
        let Some(peer) = self.peers.get_mut(connection) else { return Moved::SinkBroken };
        if bytes.is_empty() {
            return Moved::Nothing;
        }
        let Ok(written) = peer.write(bytes, now.instant) else { return Moved::SinkBroken };
        let len = bytes.len() as u64;
        let pause = server.carried(now, connection, Direction::ToPeer, len);
        peer.from_client.paused_until = pause;
        if let Some(until) = pause {
            self.peers.pause(connection, until);
        }
        observer.count(Series::PipedBytes(Leg::FromClients), len);
        observer.count(Series::PipedBytes(Leg::ToPeers), written as u64);
        Moved::Bytes
    }

    /// Forwards the end of each direction after all bytes are forwarded, and waits for the next
    /// readiness.
    pub(crate) fn update(
        &mut self,
        cx: &mut Context<N>,
        streams: &mut Streams<N>,
        connection: ConnectionId,
    ) {
        let Some(peer) = self.peers.get_mut(connection) else { return };
        let Phase::Bound(id) = peer.phase else { return };
        let Some(stream) = streams.get_mut(id) else { return };
        if peer.from_client.ended && !peer.from_client.forwarded && !peer.has_unsent() {
            peer.socket.end_sending();
            peer.from_client.forwarded = true;
        }
        if peer.from_peer.ended && !peer.from_peer.forwarded && stream.is_flushed() {
            stream.end_sending();
            peer.from_peer.forwarded = true;
        }
        if peer.is_done() {
            return streams.close(cx, id, StreamEnd::DataDone);
        }
        let before = stream.interest();
        stream.is_read = peer.takes_more();
        let changed = stream.interest() != before;
        let wanted = peer.wanted_interest(peer.may_be_read() && stream.unsent_bytes() < PIPE_BYTES);
        let mut failed = changed && !streams.rewatch(cx, id);
        if peer.interest != wanted {
            peer.interest = wanted;
            let token = Token::Peer(connection).number();
            failed |= cx.net.rewatch(Source::Stream(&peer.socket), token, wanted).is_err();
        }
        if failed {
            streams.close(cx, id, StreamEnd::Broken);
        }
    }

    /// Resumes the pipes whose pause for bandwidth is over.
    pub(crate) fn resume(&mut self, cx: &mut Context<N>, streams: &mut Streams<N>) {
        while let Some(connection) = self.peers.pop_paused(cx.now.instant) {
            let Some(peer) = self.peers.get_mut(connection) else { continue };
            let Phase::Bound(id) = peer.phase else { continue };
            streams.reread(id);
            self.update(cx, streams, connection);
        }
    }

    /// Closes the peer's connection of a pipe after the client's connection was closed.
    pub(crate) fn client_closed(&mut self, cx: &mut Context<N>, connection: ConnectionId) {
        cx.server.connection_ended(connection);
        // A reset is sent if bytes are missing.
        if let Some(peer) = self.peers.remove(connection)
            && !peer.is_done()
        {
            peer.socket.reset();
        }
    }
}
