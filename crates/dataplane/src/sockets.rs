//! UDP sockets of one worker: listeners and relay sockets.

mod gro;
mod listener;
mod losses;
mod relay_sockets;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use linux_net::{Interest, SendSocket, UdpOptions};
use turn_types::{Instant, RelayId, RelayedAddr, ServerAddr, SocketId};

use crate::io::{Net, Source, UdpIo as _, UdpTable};
use crate::limits::RELAY_BUFFER_MAX;
use crate::token::Token;

pub(crate) use gro::Arrivals;
pub use listener::{Listener, NetOptions};
pub(crate) use losses::Losses;
use relay_sockets::RelaySockets;
pub(crate) use relay_sockets::{ByNumber, RelaySocket};

/// Listeners and relay sockets, by their numbers.
#[derive(Debug)]
pub(crate) struct Sockets<N: Net> {
    listeners: Vec<Listener<N>>,
    relays: RelaySockets<N>,
    options: NetOptions,
}

impl<N: Net> Sockets<N> {
    /// Watches the listeners.
    ///
    /// # Errors
    /// No memory left for epoll.
    pub(crate) fn new(
        net: &N,
        listeners: Vec<Listener<N>>,
        options: NetOptions,
    ) -> io::Result<Self> {
        for (id, listener) in (0..).map(SocketId).zip(&listeners) {
            let token = Token::Listener(id).number();
            net.watch(Source::Udp(&listener.socket), token, Interest::Read)?;
        }
        Ok(Self { listeners, relays: RelaySockets::default(), options })
    }

    pub(crate) fn listeners(&self) -> &[Listener<N>] {
        &self.listeners
    }

    pub(crate) fn listener(&self, id: SocketId) -> Option<&Listener<N>> {
        self.listeners.get(id.0 as usize)
    }

    /// Returns the listener that receives at an address, and its number.
    pub(crate) fn listener_at(&self, at: ServerAddr) -> Option<(SocketId, &Listener<N>)> {
        (0..).map(SocketId).zip(&self.listeners).find(|(_, listener)| listener.receives_at(at))
    }

    /// Returns the local addresses of the listeners.
    pub(crate) fn listener_addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().map(|listener| listener.socket.local_addr())
    }

    /// Returns the interface that peers are behind, if there is one alone.
    pub(crate) const fn relay_device(&self) -> Option<NonZeroU32> {
        self.options.relay_device
    }

    pub(crate) fn relay(&self, relay: RelayId) -> Option<&RelaySocket<N>> {
        self.relays.get(relay)
    }

    /// Opens and watches a relay socket.
    ///
    /// # Errors
    /// Those of the kernel; no socket is left open then.
    pub(crate) fn open_relay(
        &mut self,
        net: &N,
        relay: RelayId,
        at: RelayedAddr,
    ) -> io::Result<()> {
        let options = UdpOptions {
            reuse_port: false,
            recv_buffer: self.options.recv_buffer.min(RELAY_BUFFER_MAX),
            send_buffer: self.options.send_buffer.min(RELAY_BUFFER_MAX),
            // It begins when it is worth it.
            gro: false,
            packet_info: false,
            error_queue: true,
            device: self.options.relay_device,
        };
        let socket = net.bind_udp(at.0, &options)?;
        self.adopt_relay(net, relay, RelaySocket::new(socket, self.options.gro))
    }

    /// Watches a relay socket that another worker had.
    ///
    /// # Errors
    /// No memory left for epoll; the socket is closed then.
    pub(crate) fn adopt_relay(
        &mut self,
        net: &N,
        relay: RelayId,
        socket: RelaySocket<N>,
    ) -> io::Result<()> {
        net.watch(Source::Udp(&socket.socket), Token::Relay(relay).number(), Interest::Read)?;
        self.relays.insert(relay, socket);
        Ok(())
    }

    /// Takes a relay socket out, for another worker.
    pub(crate) fn take_relay(&mut self, net: &N, relay: RelayId) -> Option<RelaySocket<N>> {
        let socket = self.relays.remove(relay)?;
        net.unwatch(Source::Udp(&socket.socket));
        Some(socket)
    }

    /// Closes a relay socket; its descriptor leaves the epoll set with that.
    pub(crate) fn close_relay(&mut self, relay: RelayId) {
        self.relays.remove(relay);
    }

    /// Notes that a program at tc has a route of a client at the listener of `server`, and of a relay socket.
    pub(crate) fn routed_at_tc(&self, server: ServerAddr, relay: RelayId, now: Instant) {
        if let Some((_, listener)) = self.listener_at(server) {
            listener.gro.routed(now);
        }
        if let Some(relay) = self.relay(relay) {
            relay.gro.routed(now);
        }
    }

    /// Notes that the kernel has no route of this worker any more.
    pub(crate) fn unrouted(&self) {
        self.listeners.iter().for_each(|listener| listener.gro.unrouted());
    }
}

impl<N: Net> UdpTable<N> for Sockets<N> {
    fn udp(&self, socket: SendSocket) -> Option<&N::Udp> {
        match Token::of(socket.0) {
            Token::Relay(relay) => self.relay(relay).map(|relay| &relay.socket),
            Token::Listener(id) => self.listener(id).map(|listener| &listener.socket),
            Token::Stream(_) | Token::Peer(_) | Token::Acceptor(_) | Token::Ring => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linux_net::Waker;

    use super::*;
    use crate::io::Kernel;

    #[test]
    fn a_closed_relay_socket_is_gone_for_senders_and_for_epoll() {
        let (_waker, wake) = Waker::new().unwrap();
        let mut net = Kernel::new(wake).unwrap();
        let mut sockets = Sockets::new(&net, vec![], NetOptions::default()).unwrap();
        let relay = RelayId(7);
        sockets.open_relay(&net, relay, RelayedAddr("127.0.0.1:0".parse().unwrap())).unwrap();
        let address = sockets.relay(relay).unwrap().socket.local_addr();
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.send_to(b"x", address).unwrap();
        let mut reported = Vec::new();
        net.wait(None, |event| reported.push(event.token));
        assert_eq!(reported, [Token::Relay(relay).number()]);

        sockets.close_relay(relay);
        assert!(sockets.udp(Token::Relay(relay).send_socket()).is_none());
        net.wait(Some(Duration::ZERO), |event| panic!("{event:?}"));
    }
}
