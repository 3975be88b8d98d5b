//! What the rules ask for TCP allocations (RFC 6062), and what peers do: they are listened to, called,
//! accepted; and clients' connections are taken to theirs.

use std::io;
use std::net::SocketAddr;

use control::{Series, StreamEnd};
use linux_net::{Interest, TcpStream};
use turn_proto::{BindRequest, ConnectError, Event, OpenRelayError, TcpCommand};
use turn_types::{ConnectionId, PeerAddr, PendingId, RelayId, SocketId};

use crate::doors::{Arrival, Parcel};
use crate::limits::ACCEPTS_PER_TURN;
use crate::observe::Trouble;
use crate::peers::{Peer, Phase};
use crate::sockets::PEER_OPTIONS;
use crate::streams::{State, Stream};
use crate::tally::Sent;
use crate::worker::Worker;

impl Worker {
    pub(crate) fn carry_out_tcp(&mut self, command: TcpCommand) -> Option<Event> {
        match command {
            TcpCommand::Listen { pending, relay, at } => {
                let result = self.sockets.listen(relay, at).map_err(|error| {
                    if error.kind() == io::ErrorKind::AddrInUse {
                        return OpenRelayError::PortTaken;
                    }
                    let now = self.now.instant;
                    self.observer.warn(
                        now,
                        Trouble::RelaySocket,
                        &format_args!("{at}, TCP: {error}"),
                    );
                    OpenRelayError::Exhausted
                });
                Some(Event::RelayOpened { pending, relay, result })
            }
            TcpCommand::Connect { pending, connection, relay, peer } => {
                let begun = self.call_peer((pending, connection), relay, peer);
                let failed =
                    |_| Event::PeerConnected { pending, connection, result: Err(ConnectError) };
                begun.err().map(failed)
            }
            TcpCommand::Close { connection } => self.close_peer(connection),
            TcpCommand::Bind(request) => {
                self.take_to_its_peer(request);
                None
            }
        }
    }

    fn call_peer(
        &mut self,
        (pending, connection): (PendingId, ConnectionId),
        relay: RelayId,
        peer: PeerAddr,
    ) -> io::Result<()> {
        let listener = self.sockets.listening(relay).ok_or(io::ErrorKind::NotFound)?;
        let socket = listener.connect(peer.0, &PEER_OPTIONS)?;
        self.sockets.watch_peer(&socket, connection, Interest::Write)?;
        let phase = Phase::Connecting(pending);
        let peer = Peer::new(socket, phase, Interest::Write, self.now.instant);
        self.peers.insert(connection, peer);
        Ok(())
    }

    /// A peer that was called has answered, or cannot.
    pub(crate) fn peer_answered(&mut self, connection: ConnectionId, pending: PendingId) {
        let Some(peer) = self.peers.get_mut(connection) else { return };
        let asks = Interest::ErrorsOnce;
        let is_there = peer.socket.take_error().is_none()
            && self.sockets.change_peer(&peer.socket, connection, asks).is_ok();
        let result = if is_there {
            peer.phase = Phase::Unbound;
            peer.asked = asks;
            self.observer.count(Series::PeersConnected, 1);
            Ok(())
        } else {
            self.peers.remove(connection);
            Err(ConnectError)
        };
        self.hand_in(self.now, Event::PeerConnected { pending, connection, result });
        self.settle(self.now);
    }

    fn close_peer(&mut self, connection: ConnectionId) -> Option<Event> {
        match self.peers.get_mut(connection)?.phase {
            Phase::Connecting(pending) => {
                self.peers.remove(connection);
                let result = Err(ConnectError);
                Some(Event::PeerConnected { pending, connection, result })
            }
            Phase::Unbound => {
                self.peers.remove(connection);
                None
            }
            Phase::Bound(id) => {
                // It said what it said: nothing of that is to be lost by a break.
                self.peers.remove(connection);
                self.close_stream(id, StreamEnd::AllocationEnded);
                None
            }
        }
    }

    /// Takes connections that peers made to a relay.
    pub(crate) fn accept_peers(&mut self, relay: RelayId) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.sockets.listening(relay) else { return };
            match listener.accept() {
                Ok(Some((socket, from))) => self.receive_peer(relay, socket, from),
                Ok(None) => break,
                Err(error) => {
                    self.observer.warn(self.now.instant, Trouble::Accept, &error);
                    // It would be reported at each turn. The next sweep tries again.
                    self.sockets.rest_relay(relay);
                    break;
                }
            }
        }
        self.settle(self.now);
    }

    fn receive_peer(&mut self, relay: RelayId, socket: TcpStream, from: SocketAddr) {
        let now = self.now;
        self.egress.make_room(&self.rx, &self.sockets);
        let reply = self.egress.reply_buffer();
        let taken = self.server.handle_peer_connection(now, relay, PeerAddr(from), reply);
        let (connection, indication) = match taken {
            Ok(taken) => taken,
            Err(why) => {
                // Closed with its socket.
                self.observer.count(Series::PeersRefused(why), 1);
                return;
            }
        };
        let asks = Interest::ErrorsOnce;
        if self.sockets.watch_peer(&socket, connection, asks).is_err() {
            self.server.connection_ended(connection);
            return;
        }
        self.peers.insert(connection, Peer::new(socket, Phase::Unbound, asks, now.instant));
        self.observer.count(Series::PeersConnected, 1);
        self.send_answer(indication, Sent::ConnectionAttempt);
    }

    /// Takes a ConnectionBind, with its stream, to the worker that has the connection.
    fn take_to_its_peer(&mut self, request: Box<BindRequest>) {
        let path = *request.path();
        let Some(stream) = self.streams.remove(path.socket) else { return };
        // What else it asked for is not waited for: its stream is to be data, and perhaps elsewhere.
        self.server.close(self.now, &path.five_tuple);
        self.sockets.forget(&stream.socket);
        let arrival = Arrival { stream, request };
        let owner = arrival.request.owner();
        if owner == self.id || !self.doors.lead_to(owner) {
            return self.receive_stream(arrival);
        }
        let handed = self.doors.hand_over(owner, Parcel::Connection(arrival));
        if let Err(Parcel::Connection(Arrival { stream, mut request })) = handed {
            let Some(id) = self.adopt(stream, &mut request) else { return };
            self.egress.make_room(&self.rx, &self.sockets);
            let reply = self.egress.reply_buffer();
            if let Some(answer) = self.server.turn_bind_away(&request, reply) {
                self.send_answer(answer, Sent::LateError);
            }
            self.release(id);
        }
    }

    /// Takes in what other workers have handed over.
    pub(crate) fn serve_arrivals(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            match self.arrivals.take() {
                Some(Parcel::Connection(arrival)) => self.receive_stream(arrival),
                Some(Parcel::Move(message)) => self.serve_move(self.now, message),
                None => return,
            }
        }
        // There may be more.
        self.is_busy = true;
    }

    /// Answers a ConnectionBind where its connection is, if it is anywhere.
    fn receive_stream(&mut self, Arrival { stream, mut request }: Arrival) {
        let Some(id) = self.adopt(stream, &mut request) else { return };
        self.egress.make_room(&self.rx, &self.sockets);
        let reply = self.egress.reply_buffer();
        let Some(answer) = self.server.bind_connection(self.now, &request, reply) else {
            return self.close_stream(id, StreamEnd::ByUs);
        };
        let sent = if answer.error { Sent::LateError } else { Sent::LateSuccess };
        self.send_answer(answer, sent);
        if answer.error {
            self.release(id);
        } else {
            self.join(id, request.connection());
        }
        self.settle(self.now);
    }

    /// Gives a stream a place and a number here. `None`: there is none, and it is closed.
    fn adopt(&mut self, mut stream: Box<Stream>, request: &mut BindRequest) -> Option<SocketId> {
        let id = self.streams.next_id()?;
        stream.path.socket = id;
        stream.waiting = 0;
        request.came_by(stream.path);
        self.sockets.watch(&stream.socket, id).ok()?;
        let asks = stream.interest();
        self.sockets.change(&stream.socket, id, asks).ok()?;
        self.streams.insert(stream);
        self.take_addresses(id);
        Some(id)
    }

    /// What follows on a stream is messages again.
    pub(crate) fn release(&mut self, id: SocketId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.state != State::Held {
            return;
        }
        stream.state = State::Open;
        stream.heard = self.now.instant;
        if self.sockets.change(&stream.socket, id, stream.interest()).is_err() {
            return self.close_stream(id, StreamEnd::Broken);
        }
        self.released.push(id);
    }

    /// Looks at streams that may have been read further than they were served.
    pub(crate) fn serve_released(&mut self) {
        for id in std::mem::take(&mut self.released) {
            self.make_room_to_receive();
            let Self { streams, rx, .. } = self;
            let Some(stream) = streams.get_mut(id) else { continue };
            // One that is new has begun TLS, and there was no time for it.
            if matches!(stream.state, State::New | State::Open)
                && let Some(message) = stream.reread(rx)
            {
                self.serve_stream(id, message);
            }
            self.receive_from_stream(id);
        }
        self.is_busy |= !self.released.is_empty();
    }
}
