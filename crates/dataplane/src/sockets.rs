//! UDP sockets of one worker: listeners and relay sockets.
//!
//! A relay has a dedicated socket, or is a part of a *shared socket* (shared_relays.rs). Before a
//! relay of a shared socket moves to another worker, the relay gets a *detached* socket for the
//! relay's address. The functions [`Sockets::part`] and [`Sockets::unpart`] open and close detached
//! sockets.

mod gro;
mod listener;
mod losses;
mod relay_sockets;
mod shared_relays;
mod shared_socket;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use ahash::RandomState;
use linux_net::{Flow, Interest, SendSocket, UdpOptions};
use turn_types::{Instant, IpMeta, PeerAddr, RelayId, RelayedAddr, ServerAddr, SocketId};

use crate::io::{Net, Source, UdpIo as _, UdpTable};
use crate::token::Token;

pub(crate) use gro::Arrivals;
pub use listener::{DeviceIndex, Listener, NetOptions, RelaySettings};
pub(crate) use losses::Losses;
use relay_sockets::RelaySockets;
pub(crate) use relay_sockets::{ByNumber, RelaySocket};
pub(crate) use shared_relays::ByAddress;
use shared_relays::SharedRelays;
pub use shared_socket::SharedSocket;

/// Listeners and relay sockets, by number.
#[derive(Debug)]
pub(crate) struct Sockets<N: Net> {
    listeners: Vec<Listener<N>>,
    relays: RelaySockets<N>,
    /// Relays without a dedicated socket.
    shared: SharedRelays,
    /// Detached sockets of shared relays that are about to move.
    parted: RelaySockets<N>,
    options: NetOptions,
}

impl<N: Net> Sockets<N> {
    /// Creates the table, and watches the listeners and the shared sockets of relays.
    ///
    /// # Errors
    /// No memory is left for epoll.
    pub(crate) fn new(
        net: &N,
        listeners: Vec<Listener<N>>,
        shared: Vec<SharedSocket<N>>,
        options: NetOptions,
    ) -> io::Result<Self> {
        let hasher =
            RandomState::with_seeds(net.random(), net.random(), net.random(), net.random());
        let [relays, parted] = [0; 2].map(|_| RelaySockets::new(hasher.clone()));
        let mut sockets =
            Self { listeners, relays, shared: SharedRelays::new(hasher), parted, options };
        sockets.watch_listeners(net)?;
        shared.into_iter().try_for_each(|socket| sockets.add_shared(net, socket))?;
        Ok(sockets)
    }

    /// Stops receiving from the listeners. The listeners still send, for clients over DTLS.
    pub(crate) fn unwatch_listeners(&self, net: &N) {
        for listener in &self.listeners {
            net.unwatch(Source::Udp(&listener.socket));
        }
    }

    /// Starts receiving from the listeners.
    ///
    /// # Errors
    /// No memory is left for epoll.
    pub(crate) fn watch_listeners(&self, net: &N) -> io::Result<()> {
        for (id, listener) in (0..).map(SocketId).zip(&self.listeners) {
            let token = Token::Listener(id).number();
            net.watch(Source::Udp(&listener.socket), token, Interest::Read)?;
        }
        Ok(())
    }

    pub(crate) fn listeners(&self) -> &[Listener<N>] {
        &self.listeners
    }

    pub(crate) fn listener(&self, id: SocketId) -> Option<&Listener<N>> {
        self.listeners.get(id.0 as usize)
    }

    /// Returns the listener that receives at an address, and the listener's number.
    pub(crate) fn listener_at(&self, at: ServerAddr) -> Option<(SocketId, &Listener<N>)> {
        (0..).map(SocketId).zip(&self.listeners).find(|(_, listener)| listener.receives_at(at))
    }

    /// Returns the local addresses of the listeners.
    pub(crate) fn listener_addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().map(|listener| listener.socket.local_addr())
    }

    /// Returns the interface of the peers, if the configuration names only one interface.
    ///
    /// # Errors
    /// `AddrNotAvailable`: the host lacks the interface.
    pub(crate) fn relay_device(&self) -> io::Result<Option<NonZeroU32>> {
        self.options.relay_interface()
    }

    pub(crate) fn relay(&self, relay: RelayId) -> Option<&RelaySocket<N>> {
        self.relays.get(relay)
    }

    /// Counts a relay for a client. Repeated calls have no effect. Relays of shared sockets are not
    /// counted.
    pub(crate) fn own_relay(&mut self, relay: RelayId, client: IpAddr) {
        self.relays.own(relay, client);
    }

    /// Marks a crowded relay as waiting in the input queue, and returns the relay's client. Returns
    /// `None` for a relay that waits already.
    pub(crate) fn postpone_relay(&mut self, relay: RelayId) -> Option<IpAddr> {
        self.relays.get_mut(relay)?.postpone()
    }

    /// Marks a relay from the input queue as served. Returns true if the relay is open, and can be
    /// read.
    pub(crate) fn take_postponed_relay(&mut self, net: &N, relay: RelayId) -> bool {
        let Some(socket) = self.relays.get_mut(relay) else { return false };
        if socket.resume() {
            rewatch(net, relay, socket, Interest::Read);
        }
        true
    }

    /// Ignores the kernel's input reports of a postponed relay.
    pub(crate) fn ignore_postponed_relay(&mut self, net: &N, relay: RelayId) {
        if let Some(socket) = self.relays.get_mut(relay)
            && socket.ignore()
        {
            rewatch(net, relay, socket, Interest::ErrorsOnce);
        }
    }

    /// Returns the relays of a shared socket, by address. Returns `None` for a dedicated socket.
    pub(crate) fn relays_of(&self, socket: RelayId) -> Option<&ByAddress> {
        self.shared.of_socket(socket)
    }

    /// Returns the flow from a relay to a peer.
    pub(crate) fn flow_to_peer(&self, relay: RelayId, peer: PeerAddr, meta: IpMeta) -> Flow {
        let found = if relay.is_shared() { self.shared.socket_of(relay) } else { None };
        let (socket, from) = found.map_or((relay, None), |(number, at)| (number, Some(at.ip())));
        Flow { socket: Token::Relay(socket).send_socket(), to: peer.0, from, meta }
    }

    /// Opens and watches a relay socket, or adds the relay to a shared socket. With `of_prefix` no
    /// interface has the address.
    ///
    /// # Errors
    /// The errors of the kernel are returned, and no socket remains open.
    pub(crate) fn open_relay(
        &mut self,
        net: &N,
        relay: RelayId,
        at: RelayedAddr,
        of_prefix: bool,
    ) -> io::Result<()> {
        if relay.is_shared() {
            return self.share(relay, at.0);
        }
        let device = self.relay_device()?;
        let options = UdpOptions { free: of_prefix, device, ..self.options.of_relay() };
        let socket = net.bind_udp(at.0, &options)?;
        self.adopt_relay(net, relay, RelaySocket::new(socket, self.options.gro))
    }

    /// Allows fragmentation at all sockets, before another process uses the sockets.
    pub(crate) fn allow_fragments(&self) {
        self.listeners.iter().for_each(|listener| listener.socket.allow_fragments());
        self.relays.all().for_each(|relay| relay.socket.allow_fragments());
    }

    /// Watches a shared socket.
    ///
    /// # Errors
    /// No memory is left for epoll, and the socket is closed.
    pub(crate) fn add_shared(&mut self, net: &N, socket: SharedSocket<N>) -> io::Result<()> {
        let socket: RelaySocket<N> = RelaySocket::new(socket.into_socket(), self.options.gro);
        let number = self.shared.add_socket(socket.socket.local_addr());
        self.watch_relay(net, number, socket)
    }

    /// Closes the shared sockets.
    pub(crate) fn remove_shared(&mut self, net: &N) {
        for number in self.shared.remove_sockets() {
            if let Some(socket) = self.relays.remove(number) {
                net.unwatch(Source::Udp(&socket.socket));
            }
        }
    }

    /// Opens the imported socket of a relay.
    ///
    /// # Errors
    /// The descriptor does not belong to a UDP socket.
    pub(crate) fn open_imported(
        &self,
        net: &N,
        descriptor: N::Descriptor,
        before: RelaySettings,
    ) -> io::Result<RelaySocket<N>> {
        let is_set_up = before == self.options.relay_settings();
        let socket = net.open_udp(descriptor, &self.options.of_relay(), is_set_up)?;
        Ok(RelaySocket::imported(socket, self.options.gro))
    }

    /// Returns the counted losses of each socket by address, without sockets that lost nothing.
    pub(crate) fn losses(&self) -> Vec<(SocketAddr, u32)> {
        let counted = self.all_losses().map(|(at, losses)| (at, losses.counted()));
        counted.filter(|(_, counted)| *counted > 0).collect()
    }

    /// Continues from the losses that another process has [counted](Self::losses).
    pub(crate) fn set_losses(&self, counted: &[(SocketAddr, u32)]) {
        if counted.is_empty() {
            return;
        }
        let counted: BTreeMap<SocketAddr, u32> = counted.iter().copied().collect();
        for (at, losses) in self.all_losses() {
            if let Some(counted) = counted.get(&at) {
                losses.go_on_from(*counted);
            }
        }
    }

    fn all_losses(&self) -> impl Iterator<Item = (SocketAddr, &Losses)> {
        let listeners = self.listeners.iter().map(|one| (one.socket.local_addr(), &one.losses));
        listeners.chain(self.relays.all().map(|one| (one.socket.local_addr(), &one.losses)))
    }

    /// Returns the address of a relay. The socket is `None` for a relay of a shared socket.
    pub(crate) fn at(&self, relay: RelayId) -> Option<(SocketAddr, Option<&N::Udp>)> {
        if let Some((_, at)) = self.shared.socket_of(relay) {
            return Some((at, None));
        }
        let socket = &self.relays.get(relay)?.socket;
        Some((socket.local_addr(), Some(socket)))
    }

    /// Removes a relay, and returns the address. The socket is `None` for a relay of a shared
    /// socket.
    pub(crate) fn remove_relay(
        &mut self,
        net: &N,
        relay: RelayId,
    ) -> Option<(SocketAddr, Option<RelaySocket<N>>)> {
        if let Some((_, at)) = self.shared.socket_of(relay) {
            self.unshare(relay);
            return Some((at, None));
        }
        let socket = self.take_relay(net, relay)?;
        Some((socket.socket.local_addr(), Some(socket)))
    }

    /// Removes a relay from a socket. A socket for only this relay is closed.
    fn unshare(&mut self, relay: RelayId) {
        if let Some(number) = self.shared.remove(relay) {
            self.relays.remove(number);
        }
    }

    /// Adds a relay to the shared socket at the relay's port.
    ///
    /// # Errors
    /// No such socket exists, or another relay has the address.
    pub(crate) fn share(&mut self, relay: RelayId, at: SocketAddr) -> io::Result<()> {
        if self.shared.insert(relay, at) { Ok(()) } else { Err(io::ErrorKind::AddrInUse.into()) }
    }

    /// Watches a relay socket of another worker, or of an earlier attempt to move. A relay with a
    /// shared name becomes a part of the shared socket again.
    ///
    /// # Errors
    /// The kernel has no memory left for epoll, or the address is taken in the shared socket. The
    /// socket is closed.
    pub(crate) fn adopt_relay(
        &mut self,
        net: &N,
        relay: RelayId,
        socket: RelaySocket<N>,
    ) -> io::Result<()> {
        if relay.is_shared() {
            return self.share(relay, socket.socket.local_addr());
        }
        self.watch_relay(net, relay, socket)
    }

    fn watch_relay(&mut self, net: &N, relay: RelayId, socket: RelaySocket<N>) -> io::Result<()> {
        net.watch(Source::Udp(&socket.socket), Token::Relay(relay).number(), Interest::Read)?;
        self.relays.insert(relay, socket);
        Ok(())
    }

    /// Opens a detached socket for a relay of a shared socket. The kernel prefers a socket at a
    /// specific address to a socket at all addresses.
    ///
    /// Returns the number of the shared socket, where earlier datagrams may wait. Returns `None`
    /// for a relay with a dedicated socket.
    ///
    /// # Errors
    /// No descriptors are left, and the relay is unchanged.
    pub(crate) fn part(&mut self, net: &N, relay: RelayId) -> io::Result<Option<RelayId>> {
        let Some((number, at)) = self.shared.socket_of(relay) else { return Ok(None) };
        if self.shared.is_alone(relay) {
            return Ok(None);
        }
        if self.parted.get(relay).is_none() {
            // A relay that remains at this socket is found by address, like the relays of the
            // shared socket.
            let (reuse_port, packet_info, free) = (true, true, true);
            let options = UdpOptions { reuse_port, packet_info, free, ..self.options.of_relay() };
            let socket = net.bind_udp(at, &options)?;
            self.parted.insert(relay, RelaySocket::new(socket, self.options.gro));
        }
        Ok(Some(number))
    }

    /// Closes the [detached](Self::part) socket of a relay.
    pub(crate) fn unpart(&mut self, relay: RelayId) {
        self.parted.remove(relay);
    }

    /// Removes the socket of a relay, for another worker or process. For a relay of a shared
    /// socket, the [detached](Self::part) socket is returned.
    pub(crate) fn take_relay(&mut self, net: &N, relay: RelayId) -> Option<RelaySocket<N>> {
        let alone = self.shared.remove(relay);
        if relay.is_shared() && alone.is_none() {
            return self.parted.remove(relay);
        }
        let socket = self.relays.remove(alone.unwrap_or(relay))?;
        net.unwatch(Source::Udp(&socket.socket));
        Some(socket)
    }

    /// Closes the dedicated socket of a relay, or removes the relay from a shared socket. Closing a
    /// descriptor also removes the descriptor from the epoll set.
    pub(crate) fn close_relay(&mut self, relay: RelayId) {
        if relay.is_shared() {
            self.unshare(relay);
            self.parted.remove(relay);
        } else {
            self.relays.remove(relay);
        }
    }

    /// Notes that a program at tc has a route for a client of the listener at `server` and for a
    /// relay.
    pub(crate) fn routed_at_tc(&self, server: ServerAddr, relay: RelayId, now: Instant) {
        if let Some((_, listener)) = self.listener_at(server) {
            listener.gro.routed(now);
        }
        let socket = self.shared.socket_of(relay).map_or(relay, |(number, _)| number);
        if let Some(relay) = self.relay(socket) {
            relay.gro.routed(now);
        }
    }

    /// Notes that the kernel has no more routes of this worker.
    pub(crate) fn unrouted(&self) {
        self.listeners.iter().for_each(|listener| listener.gro.unrouted());
    }
}

fn rewatch<N: Net>(net: &N, relay: RelayId, socket: &RelaySocket<N>, interest: Interest) {
    // The call fails only for sockets that are not watched.
    drop(net.rewatch(Source::Udp(&socket.socket), Token::Relay(relay).number(), interest));
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
        let mut sockets = Sockets::new(&net, vec![], vec![], NetOptions::default()).unwrap();
        let relay = RelayId(7);
        let at = RelayedAddr("127.0.0.1:0".parse().unwrap());
        sockets.open_relay(&net, relay, at, false).unwrap();
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
