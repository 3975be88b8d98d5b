//! Export of relays for TCP and of connections with peers, and import of the predecessor's.
//!
//! Bytes wait in the sockets meanwhile; the ones that were read and that the other end has not
//! taken go as state.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use control::StreamEnd;
use linux_net::{Interest, TcpListener};
use state_format::{Reader, Value as _, Writer, fields};
use turn_types::{ConnectionId, FiveTuple, Instant, RelayId, SocketId};

use super::peer::{Peer, Phase, PipeDirection};
use super::{PEER_OPTIONS, TcpRelay};
use crate::context::Context;
use crate::inheritance::{InheritedStream, InheritedTcpRelay};
use crate::io::{AcceptIo as _, Net, Source, StreamIo as _};
use crate::stream::{ConnectionLost, State, Streams};
use crate::token::Token;

/// A connection with a peer without its socket, as another process gets it.
struct PeerState {
    connection: ConnectionId,
    /// The client's connection that it is piped to.
    client: Option<FiveTuple>,
    unsent: Vec<u8>,
    from_client: PipeDirection,
    from_peer: PipeDirection,
    last_byte: Instant,
    blocked: Option<Instant>,
}

fields!(PeerState {
    1 => connection,
    2 => client,
    3 => unsent,
    4 => from_client,
    5 => from_peer,
    6 => last_byte,
    7 => blocked,
});
fields!(PipeDirection { 1 => ended, 2 => forwarded, 3 => paused_until });

/// Relays for TCP of another process, by their names there, until their allocations are taken.
#[derive(Debug)]
pub(super) struct Arrived<N: Net>(BTreeMap<RelayId, (SocketAddr, N::Acceptor)>);

impl<N: Net> Default for Arrived<N> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// Takes the listening socket of another process's relay.
///
/// # Errors
/// It is none that Turnpike could have opened.
pub fn tcp_relay_from_fd(fd: OwnedFd) -> io::Result<TcpListener> {
    TcpListener::from_fd(fd, &PEER_OPTIONS)
}

impl<N: Net> TcpRelay<N> {
    /// Copies the listening sockets of these relays; the ones that relay UDP have none.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn copy_relays(
        &self,
        relays: impl Iterator<Item = RelayId>,
    ) -> io::Result<Vec<InheritedTcpRelay<N::Acceptor>>> {
        let copy = |relay| {
            let listener = self.listening.get(&relay)?;
            let copied = |socket| InheritedTcpRelay { relay, at: listener.local_addr(), socket };
            Some(listener.copy().map(copied))
        };
        relays.filter_map(copy).collect()
    }

    /// Copies these connections with peers. Their client's connections have left by these 5-tuples.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn copy_peers(
        &self,
        connections: impl Iterator<Item = ConnectionId>,
        left: &HashMap<SocketId, FiveTuple>,
    ) -> io::Result<Vec<InheritedStream<N::Stream>>> {
        let mut out = Writer::new();
        let copy = |connection| {
            let peer = self.peers.get(connection)?;
            // One that is broken has no address any more; the next process closes its pipe.
            let remote = peer.socket.remote_addr().ok()?;
            let client = match peer.phase {
                Phase::Bound(stream) => Some(*left.get(&stream)?),
                Phase::Connecting(_) | Phase::Unbound => None,
            };
            peer.state(connection, client).write(&mut out);
            let state = out.take_bytes();
            Some(peer.socket.copy().map(|socket| InheritedStream { state, remote, socket }))
        };
        connections.filter_map(copy).collect()
    }

    /// Closes the descriptors here of relays and connections that have left.
    pub(crate) fn forget(
        &mut self,
        net: &N,
        relays: impl Iterator<Item = RelayId>,
        connections: impl Iterator<Item = ConnectionId>,
    ) {
        for relay in relays {
            if let Some(listener) = self.listening.remove(&relay) {
                net.unwatch(Source::Acceptor(&listener));
            }
        }
        for connection in connections {
            if let Some(peer) = self.peers.remove(connection) {
                net.unwatch(Source::Stream(&peer.socket));
            }
        }
    }

    /// Takes relays of another process, for the allocations that come.
    pub(crate) fn arrive(&mut self, relays: Vec<InheritedTcpRelay<N::Acceptor>>) {
        let named = |InheritedTcpRelay { relay, at, socket }| (relay, (at, socket));
        self.arrived.0.extend(relays.into_iter().map(named));
    }

    /// Takes a connection with a peer of another process; its allocation comes behind it.
    ///
    /// # Errors
    /// It cannot be of another process: it is closed.
    pub(crate) fn inherit(
        &mut self,
        cx: &Context<N>,
        streams: &mut Streams<N>,
        InheritedStream { state, remote, socket }: InheritedStream<N::Stream>,
    ) -> Result<(), ConnectionLost> {
        let state: PeerState = Reader::new(&state).last().map_err(ConnectionLost::Malformed)?;
        if socket.remote_addr().ok() != Some(remote) {
            return Err(ConnectionLost::Socket);
        }
        let connection = state.connection;
        let phase = match state.client {
            None => Phase::Unbound,
            Some(client) => {
                let stream = streams.of_client(&client).filter(|id| {
                    let stream = streams.get_mut(*id);
                    stream.is_some_and(|stream| stream.state == State::Data(connection))
                });
                Phase::Bound(stream.ok_or(ConnectionLost::Misfit)?)
            }
        };
        let token = Token::Peer(connection).number();
        let watched = cx.net.watch(Source::Stream(&socket), token, Interest::ErrorsOnce);
        watched.map_err(|_| ConnectionLost::NoRoom)?;
        for until in [state.from_client.paused_until, state.from_peer.paused_until] {
            until.into_iter().for_each(|until| self.peers.pause(connection, until));
        }
        self.peers.insert(connection, Peer::restore(socket, phase, state));
        Ok(())
    }

    /// Gives a relay of another process the name that it has here. `None`: no relay for TCP has
    /// come by that name. False: its socket is another one, or cannot be watched.
    pub(crate) fn adopt(&mut self, net: &N, from: RelayId, to: RelayId) -> Option<bool> {
        let (at, listener) = self.arrived.0.remove(&from)?;
        let token = Token::Relay(to).number();
        let adopted = listener.local_addr() == at
            && net.watch(Source::Acceptor(&listener), token, Interest::Read).is_ok();
        if adopted {
            self.listening.insert(to, listener);
        }
        Some(adopted)
    }

    /// Gives a relay back its name in the other process, for a newer copy of its allocation. False:
    /// it relays UDP.
    pub(crate) fn give_back(&mut self, net: &N, from: RelayId, to: RelayId) -> bool {
        let Some(listener) = self.listening.remove(&to) else { return false };
        net.unwatch(Source::Acceptor(&listener));
        // One that has come again is another descriptor of the same socket.
        self.arrived.0.entry(from).or_insert_with(|| (listener.local_addr(), listener));
        true
    }

    /// Resumes all pipes: after a rollback, or at the commit of the predecessor.
    pub(crate) fn go_on(&mut self, cx: &mut Context<N>, streams: &mut Streams<N>) {
        let connections: Vec<_> = self.peers.iter().map(|(id, _)| id).collect();
        connections.into_iter().for_each(|connection| self.update(cx, streams, connection));
    }

    /// Closes incomplete pipes. [`go_on`](Self::go_on) resumes the others.
    pub(crate) fn settle_arrived(&mut self, cx: &mut Context<N>, streams: &mut Streams<N>) {
        self.arrived = Arrived::default();
        let peers: Vec<_> = self.peers.iter().map(|(id, peer)| (id, peer.phase)).collect();
        for (connection, phase) in peers {
            let is_known = cx.server.client_of_connection(connection).is_some();
            match phase {
                _ if is_known => {}
                Phase::Bound(stream) => streams.close(cx, stream, StreamEnd::AllocationEnded),
                Phase::Connecting(_) | Phase::Unbound => drop(self.peers.remove(connection)),
            }
        }
        for (stream, connection) in streams.pipes() {
            if self.peers.get(connection).is_none() {
                streams.close(cx, stream, StreamEnd::PeerBroken);
            }
        }
        for connection in cx.server.connections() {
            if self.peers.get(connection).is_none() {
                cx.server.connection_ended(connection);
            }
        }
    }
}

impl<N: Net> Peer<N> {
    fn state(&self, connection: ConnectionId, client: Option<FiveTuple>) -> PeerState {
        PeerState {
            connection,
            client,
            unsent: self.unsent.iter().copied().collect(),
            from_client: self.from_client,
            from_peer: self.from_peer,
            last_byte: self.last_byte,
            blocked: self.blocked,
        }
    }

    fn restore(socket: N::Stream, phase: Phase, state: PeerState) -> Self {
        let PeerState { unsent, from_client, from_peer, last_byte, blocked, .. } = state;
        let mut peer = Self::new(socket, phase, Interest::ErrorsOnce, last_byte);
        (peer.unsent, peer.blocked) = (unsent.into(), blocked);
        (peer.from_client, peer.from_peer) = (from_client, from_peer);
        peer
    }
}
