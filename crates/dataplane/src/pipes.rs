//! A client's connection and a peer's as one (RFC 6062 §5.4): what comes out of one goes into the other, as
//! it is. Neither is read while the other has not taken what it was given, so that no more is kept than a
//! read of each, and the windows of TCP do the rest. When one has said all, the other is told so behind it,
//! and may go on by itself.

use control::{Leg, Series, StreamEnd};
use linux_net::ReadOutcome;
use turn_proto::{Server, Towards};
use turn_types::{ConnectionId, Now, SocketId};

use crate::limits::{PIPE_BYTES, READS_PER_TURN};
use crate::observe::Observer;
use crate::peers::{Peers, Phase};
use crate::streams::{Heard, State};
use crate::tally::Sent;
use crate::worker::Worker;

/// What became of a look at one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// There may be more.
    Bytes,
    /// Nothing now.
    Nothing,
    /// The side that was read is broken.
    SourceBroken,
    /// The other one is.
    SinkBroken,
}

impl Worker {
    /// Makes a stream one with a peer's connection. What was read of it behind the request is the first that
    /// the peer hears.
    pub(crate) fn join(&mut self, id: SocketId, connection: ConnectionId) {
        let now = self.now.instant;
        let Self { streams, peers, .. } = self;
        let (Some(stream), Some(peer)) = (streams.get_mut(id), peers.get_mut(connection)) else {
            // The rules have it, and here it broke a moment ago.
            self.server.connection_ended(connection);
            return self.close_stream(id, StreamEnd::PeerBroken);
        };
        // As while it was held; what is to be waited for is settled below.
        stream.state = State::Data(connection);
        stream.is_read = false;
        peer.phase = Phase::Bound(id);
        peer.moved = now;
        let early = stream.take_partial();
        let Self { peers, server, observer, now, .. } = self;
        let passed = pass_to_peer((peers, connection), (server, observer), *now, &early);
        if passed == Moved::SinkBroken {
            return self.close_stream(id, StreamEnd::PeerBroken);
        }
        self.settle_pipe(connection);
        // There may be more that was read and is not known of by the kernel.
        self.released.push(id);
    }

    /// Reads a client's connection for its peer.
    pub(crate) fn hear_client(&mut self, id: SocketId, connection: ConnectionId) {
        for _ in 0..READS_PER_TURN {
            match self.client_to_peer(id, connection) {
                Moved::Bytes => {}
                Moved::Nothing => return self.settle_pipe(connection),
                Moved::SourceBroken => return self.close_stream(id, StreamEnd::Broken),
                Moved::SinkBroken => return self.close_stream(id, StreamEnd::PeerBroken),
            }
        }
        // It may hold more, of which the kernel does not tell.
        self.released.push(id);
        self.settle_pipe(connection);
    }

    fn client_to_peer(&mut self, id: SocketId, connection: ConnectionId) -> Moved {
        self.make_room_to_receive();
        let Self { streams, peers, rx, scratch, .. } = self;
        let Some(stream) = streams.get_mut(id) else { return Moved::Nothing };
        let Some(peer) = peers.get_mut(connection) else { return Moved::SinkBroken };
        if !peer.hears_client() {
            let broken = stream.socket.take_error().is_some();
            return if broken { Moved::SourceBroken } else { Moved::Nothing };
        }
        let heard = stream.read(rx, scratch);
        let more = stream.may_hold_more();
        if stream.wants_write() {
            self.write_stream(id);
        }
        match heard {
            Ok(Heard::Bytes(message)) => {
                let Self { rx, peers, server, observer, now, .. } = self;
                let bytes = rx.message(message).data;
                let moved = pass_to_peer((peers, connection), (server, observer), *now, bytes);
                if moved == Moved::Bytes && !more { Moved::Nothing } else { moved }
            }
            Ok(Heard::Nothing) => Moved::Nothing,
            Ok(Heard::Ended) => {
                if let Some(peer) = self.peers.get_mut(connection) {
                    peer.from_client.ended = true;
                }
                Moved::Nothing
            }
            Err(_) => Moved::SourceBroken,
        }
    }

    /// Something is to be done about a connection with a peer.
    pub(crate) fn serve_peer(&mut self, connection: ConnectionId, readable: bool, writable: bool) {
        let Some(peer) = self.peers.get_mut(connection) else { return };
        match peer.phase {
            Phase::Connecting(pending) => self.peer_answered(connection, pending),
            Phase::Unbound => {
                if peer.socket.take_error().is_some() {
                    self.peers.remove(connection);
                    self.server.connection_ended(connection);
                }
            }
            Phase::Bound(id) => {
                if writable {
                    let Ok(taken) = peer.say_on(self.now.instant) else {
                        return self.close_stream(id, StreamEnd::PeerBroken);
                    };
                    let goes_on = peer.hears_client();
                    self.observer.count(Series::PipedBytes(Leg::ToPeers), taken as u64);
                    if goes_on {
                        self.released.push(id);
                    }
                }
                if readable {
                    self.hear_peer(id, connection);
                }
                self.settle_pipe(connection);
            }
        }
    }

    fn hear_peer(&mut self, id: SocketId, connection: ConnectionId) {
        let moved = self.peer_to_client(id, connection);
        if moved == Moved::SourceBroken {
            // What it said before goes as far as the client takes it.
            self.write_stream(id);
            self.close_stream(id, StreamEnd::PeerBroken);
        }
    }

    fn peer_to_client(&mut self, id: SocketId, connection: ConnectionId) -> Moved {
        let now = self.now;
        let Self { streams, peers, scratch, .. } = self;
        let Some(stream) = streams.get_mut(id) else { return Moved::SinkBroken };
        let Some(peer) = peers.get_mut(connection) else { return Moved::Nothing };
        if !peer.may_speak() || stream.unsent_bytes() >= PIPE_BYTES {
            let broken = peer.socket.take_error().is_some();
            return if broken { Moved::SourceBroken } else { Moved::Nothing };
        }
        let room = scratch.len().min(PIPE_BYTES);
        let len = match peer.socket.read(&mut scratch[..room]) {
            Ok(ReadOutcome::Read(len)) => len,
            Ok(ReadOutcome::WouldBlock) => return Moved::Nothing,
            Ok(ReadOutcome::Ended) => {
                peer.from_peer.ended = true;
                return Moved::Nothing;
            }
            Err(_) => return Moved::SourceBroken,
        };
        peer.moved = now.instant;
        let rest = self.server.carried(now, connection, Towards::Client, len as u64);
        peer.from_peer.rests_until = rest;
        if let Some(until) = rest {
            peers.rest(connection, until);
        }
        self.observer.count(Series::PipedBytes(Leg::FromPeers), len as u64);
        self.egress.to_stream(streams, id, [&scratch[..len], &[], &[]], Sent::Piped);
        Moved::Bytes
    }

    /// Passes on that a side has said all, once it is behind all that it said, and waits for what can be
    /// done next.
    pub(crate) fn settle_pipe(&mut self, connection: ConnectionId) {
        let Self { streams, peers, sockets, .. } = self;
        let Some(peer) = peers.get_mut(connection) else { return };
        let Phase::Bound(id) = peer.phase else { return };
        let Some(stream) = streams.get_mut(id) else { return };
        if peer.from_client.ended && !peer.from_client.told && !peer.is_behind() {
            peer.socket.end_sending();
            peer.from_client.told = true;
        }
        if peer.from_peer.ended && !peer.from_peer.told && stream.is_flushed() {
            stream.end_sending();
            peer.from_peer.told = true;
        }
        if peer.is_done() {
            return self.close_stream(id, StreamEnd::DataDone);
        }
        let before = stream.interest();
        stream.is_read = peer.hears_client();
        let after = stream.interest();
        let mut told = Ok(());
        if before != after {
            told = sockets.change(&stream.socket, id, after);
        }
        let asks = peer.interest(peer.may_speak() && stream.unsent_bytes() < PIPE_BYTES);
        if peer.asked != asks {
            peer.asked = asks;
            told = told.and_then(|()| sockets.change_peer(&peer.socket, connection, asks));
        }
        if told.is_err() {
            self.close_stream(id, StreamEnd::Broken);
        }
    }

    /// Lets go on what has rested for long enough.
    pub(crate) fn serve_rested(&mut self) {
        while let Some(connection) = self.peers.pop_rested(self.now.instant) {
            let Some(peer) = self.peers.get_mut(connection) else { continue };
            let Phase::Bound(id) = peer.phase else { continue };
            self.released.push(id);
            self.settle_pipe(connection);
        }
    }
}

/// Says to a peer what its client said.
fn pass_to_peer(
    (peers, connection): (&mut Peers, ConnectionId),
    (server, observer): (&mut Server, &Observer),
    now: Now,
    bytes: &[u8],
) -> Moved {
    let Some(peer) = peers.get_mut(connection) else { return Moved::SinkBroken };
    if bytes.is_empty() {
        return Moved::Nothing;
    }
    let Ok(taken) = peer.say(bytes, now.instant) else { return Moved::SinkBroken };
    let len = bytes.len() as u64;
    let rest = server.carried(now, connection, Towards::Peer, len);
    peer.from_client.rests_until = rest;
    if let Some(until) = rest {
        peers.rest(connection, until);
    }
    observer.count(Series::PipedBytes(Leg::FromClients), len);
    observer.count(Series::PipedBytes(Leg::ToPeers), taken as u64);
    Moved::Bytes
}
