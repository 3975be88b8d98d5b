//! Export of TCP relays and of connections with peers, and import of the predecessor's relays and
//! connections.
//!
//! Unread bytes remain in the sockets. Bytes that were read and not accepted by the other
//! connection are exported.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use control::StreamEnd;
use linux_net::Interest;
use state_format::{Bytes, fields};
use turn_types::{ConnectionId, FiveTuple, Instant, RelayId, SocketId};

use super::TcpRelay;
use super::peer::{Peer, Phase, PipeDirection};
use crate::context::Context;
use crate::io::{AcceptIo as _, Net, Source, StreamIo as _};
use crate::snapshot::{Descriptors, Export, StreamSnapshot};
use crate::stream::{State, StreamImportError, Streams};
use crate::token::Token;

/// Exported state of a connection with a peer.
struct PeerState {
    connection: ConnectionId,
    /// 5-tuple of the client's connection in the pipe. `None` without a pipe.
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

impl<N: Net> TcpRelay<N> {
    /// Returns the listening socket of a relay, or `None` for a UDP relay.
    pub(crate) fn listener(&self, relay: RelayId) -> Option<&N::Acceptor> {
        self.listening.get(&relay)
    }

    /// Adds all connections with peers to an export. `clients` contains the 5-tuples of the
    /// clients' exported connections.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn export_peers(
        &self,
        net: &N,
        clients: &HashMap<SocketId, FiveTuple>,
        export: &mut Export<N::Descriptor>,
    ) -> io::Result<()> {
        for (connection, peer) in self.peers.iter() {
            let client = match peer.phase {
                Phase::Bound(stream) => match clients.get(&stream) {
                    Some(client) => Some(*client),
                    None => continue,
                },
                Phase::Connecting(_) => continue,
                Phase::Unbound => None,
            };
            let remote = peer.socket.remote_addr().ok();
            let state = Bytes::of(&peer.state(connection, client));
            let socket = export.add(net.duplicate(Source::Stream(&peer.socket))?);
            export.snapshot.peers.push(StreamSnapshot { state, remote, socket });
        }
        Ok(())
    }

    /// Closes the descriptors of exported relays and connections.
    pub(crate) fn remove(
        &mut self,
        net: &N,
        relays: impl Iterator<Item = RelayId>,
        connections: impl Iterator<Item = ConnectionId>,
    ) {
        relays.for_each(|relay| drop(self.take(net, relay)));
        for connection in connections {
            if let Some(peer) = self.peers.remove(connection) {
                net.unwatch(Source::Stream(&peer.socket));
            }
        }
    }

    /// Imports a connection with a peer, before the connection's allocation.
    ///
    /// # Errors
    /// The state or the socket is invalid, or no memory is left for epoll. The connection is
    /// closed.
    pub(crate) fn import(
        &mut self,
        cx: &Context<N>,
        streams: &mut Streams<N>,
        snapshot: StreamSnapshot,
        descriptors: &mut Descriptors<N::Descriptor>,
    ) -> Result<(), StreamImportError> {
        let socket = snapshot.open(&cx.net, descriptors).ok_or(StreamImportError::Socket)?;
        let state = snapshot.state.parse::<PeerState>().map_err(StreamImportError::Malformed)?;
        let connection = state.connection;
        let phase = match state.client {
            None => Phase::Unbound,
            Some(client) => {
                let stream = streams.of_client(&client).filter(|id| {
                    let stream = streams.get_mut(*id);
                    stream.is_some_and(|stream| stream.state == State::Data(connection))
                });
                Phase::Bound(stream.ok_or(StreamImportError::Misfit)?)
            }
        };
        let token = Token::Peer(connection).number();
        let watched = cx.net.watch(Source::Stream(&socket), token, Interest::ErrorsOnce);
        watched.map_err(|_| StreamImportError::NoRoom)?;
        for until in [state.from_client.paused_until, state.from_peer.paused_until] {
            until.into_iter().for_each(|until| self.peers.pause(connection, until));
        }
        self.peers.insert(connection, Peer::restore(socket, phase, state));
        Ok(())
    }

    /// Watches the listening socket of an imported relay.
    ///
    /// # Errors
    /// The socket has another address, or cannot be watched.
    pub(crate) fn adopt(
        &mut self,
        net: &N,
        relay: RelayId,
        at: SocketAddr,
        listener: N::Acceptor,
    ) -> io::Result<()> {
        if listener.local_addr() != at {
            return Err(io::ErrorKind::InvalidData.into());
        }
        net.watch(Source::Acceptor(&listener), Token::Relay(relay).number(), Interest::Read)?;
        self.listening.insert(relay, listener);
        Ok(())
    }

    /// Removes the listening socket of a relay.
    pub(crate) fn take(&mut self, net: &N, relay: RelayId) -> Option<N::Acceptor> {
        let listener = self.listening.remove(&relay)?;
        net.unwatch(Source::Acceptor(&listener));
        Some(listener)
    }

    /// Resumes all pipes after a rollback, or at the commit of the predecessor.
    pub(crate) fn resume_all(&mut self, cx: &mut Context<N>, streams: &mut Streams<N>) {
        let connections: Vec<_> = self.peers.iter().map(|(id, _)| id).collect();
        connections.into_iter().for_each(|connection| self.update(cx, streams, connection));
    }

    /// Closes incomplete pipes. [`resume_all`](Self::resume_all) resumes the others.
    pub(crate) fn finish_import(&mut self, cx: &mut Context<N>, streams: &mut Streams<N>) {
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
