//! Listening relays, and connections with peers until the connections are bound.

use std::io;
use std::net::SocketAddr;

use control::{Series, StreamEnd};
use linux_net::Interest;
use linux_net::TcpOptions;
use turn_proto::{ConnectError, Event, OpenRelayError};
use turn_types::{ConnectionId, PeerAddr, PendingId, RelayId, RelayedAddr};

use super::peer::{Peer, Phase};
use super::{PEER_OPTIONS, TcpRelay};
use crate::context::{Connections, Context};
use crate::io::{AcceptIo as _, Net, Source, StreamIo as _};
use crate::limits::ACCEPTS_PER_TURN;
use crate::report::{Condition, Sent};
use crate::stream::Streams;
use crate::token::Token;

/// Returns the options of a relay at an address, and of the relay's connections.
///
/// # Errors
/// `AddrNotAvailable`: the host lacks the interface of relays.
fn peer_options<N: Net>(cx: &Context<N>, at: RelayedAddr) -> io::Result<TcpOptions> {
    let (device, free) = (cx.sockets.relay_device()?, cx.server.has_prefix_of(at));
    Ok(TcpOptions { device, free, ..PEER_OPTIONS })
}

impl<N: Net> TcpRelay<N> {
    /// Opens a listening relay.
    ///
    /// # Errors
    /// Another socket has the port, the host lacks the address or interface, or the kernel has no
    /// resources.
    pub(crate) fn listen(
        &mut self,
        cx: &mut Context<N>,
        relay: RelayId,
        at: RelayedAddr,
    ) -> Result<(), OpenRelayError> {
        let opened = peer_options(cx, at).and_then(|options| cx.net.listen(at.0, &options));
        let opened = opened.and_then(|listener| {
            let token = Token::Relay(relay).number();
            cx.net.watch(Source::Acceptor(&listener), token, Interest::Read)?;
            Ok(listener)
        });
        match opened {
            Ok(listener) => {
                self.listening.insert(relay, listener);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(OpenRelayError::PortTaken)
            }
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                Err(OpenRelayError::AddressAbsent)
            }
            Err(error) => {
                let details = format_args!("{at}, TCP: {error}");
                cx.observer.warn(cx.now.instant, Condition::RelaySocket, &details);
                Err(OpenRelayError::Exhausted)
            }
        }
    }

    /// Closes a listening relay.
    pub(crate) fn close_relay(&mut self, relay: RelayId) {
        self.listening.remove(&relay);
    }

    /// Starts a connection to a peer. Returns the event of an immediate failure.
    pub(crate) fn connect(
        &mut self,
        cx: &Context<N>,
        (pending, connection): (PendingId, ConnectionId),
        relay: RelayId,
        peer: PeerAddr,
    ) -> Option<Event> {
        let interest = Interest::Write;
        let begun = self.listening.get(&relay).ok_or_else(|| io::ErrorKind::NotFound.into());
        let begun = begun.and_then(|listener| {
            let at = RelayedAddr(listener.local_addr());
            listener.connect(peer.0, &peer_options(cx, at)?)
        });
        let begun = begun.and_then(|socket| {
            let token = Token::Peer(connection).number();
            cx.net.watch(Source::Stream(&socket), token, interest)?;
            Ok(socket)
        });
        let Ok(socket) = begun else {
            return Some(Event::PeerConnected { pending, connection, result: Err(ConnectError) });
        };
        let phase = Phase::Connecting(pending);
        self.peers.insert(connection, Peer::new(socket, phase, interest, cx.now.instant));
        None
    }

    /// Reports the outcome of a connection to a peer.
    pub(super) fn connected(
        &mut self,
        cx: &Context<N>,
        connection: ConnectionId,
        pending: PendingId,
    ) -> Option<Event> {
        let peer = self.peers.get_mut(connection)?;
        let interest = Interest::ErrorsOnce;
        let token = Token::Peer(connection).number();
        let is_open = peer.socket.take_error().is_none()
            && cx.net.rewatch(Source::Stream(&peer.socket), token, interest).is_ok();
        let result = if is_open {
            peer.phase = Phase::Unbound;
            peer.interest = interest;
            cx.observer.count(Series::PeersConnected, 1);
            Ok(())
        } else {
            self.peers.remove(connection);
            Err(ConnectError)
        };
        Some(Event::PeerConnected { pending, connection, result })
    }

    /// Closes a connection with a peer at the end of the allocation. Returns the event of a pending
    /// Connect.
    pub(crate) fn close_peer(
        &mut self,
        cx: &mut Context<N>,
        streams: &mut Streams<N>,
        connection: ConnectionId,
    ) -> Option<Event> {
        // Closed without a reset, so the peer's last bytes are not lost.
        match self.peers.remove(connection)?.phase {
            Phase::Connecting(pending) => {
                let result = Err(ConnectError);
                return Some(Event::PeerConnected { pending, connection, result });
            }
            Phase::Unbound => {}
            Phase::Bound(id) => streams.close(cx, id, StreamEnd::AllocationEnded),
        }
        None
    }

    /// Accepts connections of peers at a relay.
    pub(crate) fn accept(
        &mut self,
        cx: &mut Context<N>,
        clients: &mut impl Connections<N>,
        relay: RelayId,
    ) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.listening.get(&relay) else { return };
            match listener.accept() {
                Ok(Some((socket, from))) => self.accepted(cx, clients, relay, (socket, from)),
                Ok(None) => return,
                Err(error) => {
                    cx.observer.warn(cx.now.instant, Condition::Accept, &error);
                    // The error would be reported in each iteration. The next sweep tries again.
                    self.watch_relay(&cx.net, relay, Interest::ErrorsOnly);
                    return self.paused.push(relay);
                }
            }
        }
    }

    fn accepted(
        &mut self,
        cx: &mut Context<N>,
        clients: &mut impl Connections<N>,
        relay: RelayId,
        (socket, from): (N::Stream, SocketAddr),
    ) {
        let (now, from) = (cx.now, PeerAddr(from));
        let accepted = cx.server.handle_peer_connection(now, relay, from, &mut cx.reply);
        let (connection, indication) = match accepted {
            Ok(accepted) => accepted,
            // The refused connection is closed with the socket.
            Err(why) => return cx.observer.count(Series::PeersRefused(why), 1),
        };
        let interest = Interest::ErrorsOnce;
        let token = Token::Peer(connection).number();
        if cx.net.watch(Source::Stream(&socket), token, interest).is_err() {
            return cx.server.connection_ended(connection);
        }
        let peer = Peer::new(socket, Phase::Unbound, interest, now.instant);
        self.peers.insert(connection, peer);
        cx.observer.count(Series::PeersConnected, 1);
        cx.answer(clients, indication, Sent::ConnectionAttempt);
    }

    /// Resumes accepting at all paused relays.
    pub(crate) fn resume_relays(&mut self, net: &N) {
        for relay in std::mem::take(&mut self.paused) {
            self.watch_relay(net, relay, Interest::Read);
        }
    }

    fn watch_relay(&self, net: &N, relay: RelayId, interest: Interest) {
        if let Some(listener) = self.listening.get(&relay) {
            // The call fails only for sockets that are not watched.
            drop(net.rewatch(Source::Acceptor(listener), Token::Relay(relay).number(), interest));
        }
    }
}
