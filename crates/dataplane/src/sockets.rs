//! All descriptors of one worker.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use linux_net::{
    Epoll, Events, Interest, SendSocket, SocketTable, TcpListener, TcpOptions, TcpStream,
    UdpOptions, UdpSocket, WakeReceiver,
};
use turn_proto::Policy;
use turn_types::{ConnectionId, Instant, RelayId, RelayedAddr, ServerAddr, SocketId};
use xdp_relay::Ring;

use crate::NetOptions;
use crate::limits::{PEERS_WAITING, RELAY_BUFFER_MAX, SOCKETS_PER_TURN};
use crate::listener::Listener;
use crate::ready::Ready;
use crate::relay_sockets::{RelaySocket, RelaySockets};
use crate::token::Token;

/// Listeners, relay sockets, the wake-up, and the epoll set that waits for them.
#[derive(Debug)]
pub(crate) struct Sockets {
    epoll: Epoll,
    events: Events,
    wake: WakeReceiver,
    listeners: Vec<Listener>,
    acceptors: Vec<TcpListener>,
    relays: RelaySockets,
    /// Relays that listen for TCP.
    listening: HashMap<RelayId, TcpListener>,
    /// Those of which no connection can be taken now.
    resting: Vec<RelayId>,
    net: NetOptions,
}

/// How connections with peers are: those that keep silent are asked whether they are there, and given up
/// after a quarter of an hour of nothing. Relays share their ports with nobody: the kernel prefers a relay,
/// whose address is specific, to listeners of the same port at the wildcard address.
pub(crate) const PEER_OPTIONS: TcpOptions = TcpOptions {
    reuse_port: false,
    keepalive: Duration::from_mins(10),
    unacknowledged: Duration::from_mins(1),
    backlog: PEERS_WAITING,
};

impl Sockets {
    /// # Errors
    /// No descriptors or no memory left for epoll.
    pub(crate) fn new(
        (listeners, acceptors): (Vec<Listener>, Vec<TcpListener>),
        wake: WakeReceiver,
        net: NetOptions,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(&wake, Token::Wake.number(), Interest::Read)?;
        for (id, listener) in (0..).map(SocketId).zip(&listeners) {
            epoll.add(&listener.socket, Token::Listener(id).number(), Interest::Read)?;
        }
        for (place, acceptor) in (0..).zip(&acceptors) {
            epoll.add(acceptor, Token::Acceptor(place).number(), Interest::Read)?;
        }
        let events = Events::new(SOCKETS_PER_TURN);
        let relays = RelaySockets::default();
        let (listening, resting) = (HashMap::new(), Vec::new());
        Ok(Self { epoll, events, wake, listeners, acceptors, relays, listening, resting, net })
    }

    /// Waits until something is ready, or for `timeout`; `None` waits for ever. Wake-ups are taken
    /// here, so the inbox is to be looked into afterwards.
    pub(crate) fn wait(&mut self, ready: &mut Ready, timeout: Option<Duration>) {
        // It fails only if the set were no epoll set or the list were not ours to write.
        self.epoll.wait(&mut self.events, timeout).expect("a set and a list that are ours");
        // At most a few per worker.
        let listeners = u32::try_from(self.listeners.len()).unwrap_or(u32::MAX);
        if ready.sort(&self.events, listeners) {
            self.wake.drain();
        }
    }

    pub(crate) fn listener(&self, id: SocketId) -> Option<&Listener> {
        self.listeners.get(id.0 as usize)
    }

    /// The listener that hears at an address, and its number.
    pub(crate) fn listener_at(&self, at: ServerAddr) -> Option<(SocketId, &Listener)> {
        (0..).map(SocketId).zip(&self.listeners).find(|(_, listener)| listener.hears_at(at))
    }

    /// Excludes the ports that this server listens on from those that may be relayed by. The kernel would
    /// refuse them; so they are not even tried, whatever rules come while the listeners stand.
    pub(crate) fn exclude_listening_ports(&self, policy: &Policy) {
        let datagrams = self.listeners.iter().map(Listener::local_addr);
        let connections = self.acceptors.iter().map(TcpListener::local_addr);
        for at in datagrams.chain(connections) {
            let same_family = |ip: IpAddr| at.is_ipv4() == ip.is_ipv4();
            for relay in &policy.relay {
                if at.ip() == relay.local || at.ip().is_unspecified() && same_family(relay.local) {
                    relay.ports.exclude(at.port());
                }
            }
        }
    }

    pub(crate) fn acceptor(&self, place: u32) -> Option<&TcpListener> {
        self.acceptors.get(place as usize)
    }

    /// Waits for no more connections at a place, until it is to [resume](Self::resume).
    pub(crate) fn rest(&self, place: u32) {
        self.accept_at(place, Interest::ErrorsOnly);
    }

    /// Waits for connections everywhere.
    pub(crate) fn resume(&self) {
        for place in (0..).take(self.acceptors.len()) {
            self.accept_at(place, Interest::Read);
        }
    }

    /// Waits for no more connections of peers at a relay, until they are to [resume](Self::resume_relays).
    pub(crate) fn rest_relay(&mut self, relay: RelayId) {
        self.peers_at(relay, Interest::ErrorsOnly);
        self.resting.push(relay);
    }

    /// Waits for connections of peers everywhere.
    pub(crate) fn resume_relays(&mut self) {
        for relay in std::mem::take(&mut self.resting) {
            self.peers_at(relay, Interest::Read);
        }
    }

    fn peers_at(&self, relay: RelayId, interest: Interest) {
        if let Some(listener) = self.listening(relay) {
            // It fails only for what is not in the set.
            drop(self.epoll.modify(listener, Token::Relay(relay).number(), interest));
        }
    }

    fn accept_at(&self, place: u32, interest: Interest) {
        if let Some(acceptor) = self.acceptor(place) {
            // It fails only for what is not in the set.
            drop(self.epoll.modify(acceptor, Token::Acceptor(place).number(), interest));
        }
    }

    /// Waits for what comes by a stream.
    ///
    /// # Errors
    /// No memory left for epoll.
    pub(crate) fn watch(&self, stream: &TcpStream, id: SocketId) -> io::Result<()> {
        self.epoll.add(stream, Token::Stream(id).number(), Interest::Read)
    }

    /// Changes what is waited for.
    ///
    /// # Errors
    /// It is not watched.
    pub(crate) fn change(
        &self,
        stream: &TcpStream,
        id: SocketId,
        interest: Interest,
    ) -> io::Result<()> {
        self.epoll.modify(stream, Token::Stream(id).number(), interest)
    }

    /// Waits for nothing of a stream any more: another worker may.
    pub(crate) fn forget(&self, stream: &TcpStream) {
        // It fails only for what is not in the set.
        drop(self.epoll.delete(stream));
    }

    /// Waits for what the kernel hands over.
    ///
    /// # Errors
    /// No memory left for epoll.
    pub(crate) fn watch_ring(&self, ring: &Ring) -> io::Result<()> {
        self.epoll.add(ring, Token::Ring.number(), Interest::Read)
    }

    /// Waits for what comes of a peer.
    ///
    /// # Errors
    /// No memory left for epoll.
    pub(crate) fn watch_peer(
        &self,
        peer: &TcpStream,
        id: ConnectionId,
        interest: Interest,
    ) -> io::Result<()> {
        self.epoll.add(peer, Token::Peer(id).number(), interest)
    }

    /// Changes what is waited for of a peer.
    ///
    /// # Errors
    /// It is not watched.
    pub(crate) fn change_peer(
        &self,
        peer: &TcpStream,
        id: ConnectionId,
        interest: Interest,
    ) -> io::Result<()> {
        self.epoll.modify(peer, Token::Peer(id).number(), interest)
    }

    /// The listening socket of a relay that is for TCP.
    pub(crate) fn listening(&self, relay: RelayId) -> Option<&TcpListener> {
        self.listening.get(&relay)
    }

    /// Listens at a relayed address, from which connections can [leave](TcpListener::connect) as well.
    ///
    /// # Errors
    /// Whatever the kernel says, such as that somebody listens there, or at the wildcard address; nothing is
    /// left open then.
    pub(crate) fn listen(&mut self, relay: RelayId, at: RelayedAddr) -> io::Result<()> {
        let listener = TcpListener::bind(at.0, &PEER_OPTIONS)?;
        self.epoll.add(&listener, Token::Relay(relay).number(), Interest::Read)?;
        self.listening.insert(relay, listener);
        Ok(())
    }

    pub(crate) fn relay(&self, relay: RelayId) -> Option<&RelaySocket> {
        self.relays.get(relay)
    }

    /// Opens a relay socket and waits for packets on it.
    ///
    /// # Errors
    /// Whatever the kernel says; nothing is left open then.
    pub(crate) fn open_relay(&mut self, relay: RelayId, at: RelayedAddr) -> io::Result<()> {
        let options = UdpOptions {
            reuse_port: false,
            recv_buffer: self.net.recv_buffer.min(RELAY_BUFFER_MAX),
            send_buffer: self.net.send_buffer.min(RELAY_BUFFER_MAX),
            gro: self.net.gro,
            packet_info: false,
            error_queue: true,
        };
        let socket = UdpSocket::bind_unasked(at.0, &options)?;
        self.epoll.add(&socket, Token::Relay(relay).number(), Interest::Read)?;
        self.relays.insert(relay, socket);
        Ok(())
    }

    /// Takes a relay socket out, for another worker.
    pub(crate) fn take_relay(&mut self, relay: RelayId) -> Option<RelaySocket> {
        let socket = self.relays.remove(relay)?;
        // It fails only for what is not in the set.
        drop(self.epoll.delete(&socket.socket));
        Some(socket)
    }

    /// Waits for packets on a relay socket that another worker had.
    ///
    /// # Errors
    /// No memory left for epoll; the socket is closed then.
    pub(crate) fn adopt_relay(&mut self, relay: RelayId, socket: RelaySocket) -> io::Result<()> {
        self.epoll.add(&socket.socket, Token::Relay(relay).number(), Interest::Read)?;
        self.relays.adopt(relay, socket);
        Ok(())
    }

    /// A program at tc has a route now, of a client at the listener of `server`, and of a relay socket.
    pub(crate) fn routed_at_tc(&self, server: ServerAddr, relay: RelayId, now: Instant) {
        // One that never asks is not to begin.
        if !self.net.gro {
            return;
        }
        if let Some((_, listener)) = self.listener_at(server) {
            listener.merging.routed(now);
        }
        if let Some(relay) = self.relay(relay) {
            relay.merging.routed(now);
        }
    }

    /// No program has a route of this worker any more.
    pub(crate) fn unrouted(&self) {
        self.listeners.iter().for_each(|listener| listener.merging.unrouted(&listener.socket));
    }

    /// Closes a relay socket, for UDP or TCP; its descriptor leaves the epoll set by that.
    pub(crate) fn close_relay(&mut self, relay: RelayId) {
        self.relays.remove(relay);
        self.listening.remove(&relay);
    }
}

impl SocketTable for Sockets {
    fn socket(&self, socket: SendSocket) -> Option<&UdpSocket> {
        match Token::of(socket.0) {
            Token::Relay(relay) => self.relay(relay).map(|relay| &relay.socket),
            Token::Listener(id) => self.listener(id).map(|listener| &listener.socket),
            Token::Stream(_) | Token::Peer(_) | Token::Acceptor(_) | Token::Ring | Token::Wake => {
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use linux_net::Waker;

    use super::*;

    #[test]
    fn a_wake_up_ends_one_wait_and_not_the_next() {
        let (waker, wake) = Waker::new().unwrap();
        let mut sockets = Sockets::new((vec![], vec![]), wake, NetOptions::default()).unwrap();
        let mut ready = Ready::new();
        waker.wake();
        // For ever, were it not for the wake-up.
        sockets.wait(&mut ready, None);
        assert_eq!(sockets.events.iter().count(), 1);
        sockets.wait(&mut ready, Some(Duration::ZERO));
        assert_eq!(sockets.events.iter().count(), 0, "or the worker would never rest");
    }

    #[test]
    fn a_closed_relay_is_gone_for_senders_and_for_epoll() {
        let (_waker, wake) = Waker::new().unwrap();
        let mut sockets = Sockets::new((vec![], vec![]), wake, NetOptions::default()).unwrap();
        let relay = RelayId(7);
        let at = RelayedAddr("127.0.0.1:0".parse().unwrap());
        sockets.open_relay(relay, at).unwrap();
        let address = sockets.relay(relay).unwrap().socket.local_addr();
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.send_to(b"x", address).unwrap();
        let mut ready = Ready::new();
        sockets.wait(&mut ready, None);
        assert_eq!(ready.relay(0), Some(relay));

        sockets.close_relay(relay);
        assert!(sockets.socket(Token::Relay(relay).send_socket()).is_none());
        sockets.wait(&mut ready, Some(Duration::ZERO));
        assert_eq!(ready.relay(0), None);
    }
}
