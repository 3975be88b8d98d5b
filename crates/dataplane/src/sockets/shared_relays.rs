//! Relays without sockets of their own: one socket receives what is sent to any address of a
//! prefix, and sends from each of them (`turn_proto::RelayPrefix`).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use ahash::RandomState;
use turn_types::RelayId;

use super::relay_sockets::ByNumber;

/// Bit of the numbers of the sockets themselves. Relays are counted from zero, and never reach it.
const SOCKET: u64 = 1 << 61;

/// Relays of one socket, by their addresses.
pub(crate) type ByAddress = HashMap<IpAddr, RelayId, RandomState>;

/// All relays of a worker that have no socket of their own.
#[derive(Debug)]
pub(crate) struct SharedRelays {
    /// The sockets, by their numbers: one for each family, and those of single relays. `None` for
    /// one that is gone: no number is given again.
    sockets: Vec<Option<SharedSocket>>,
    /// The socket and the address of each relay.
    relays: ByNumber<RelayId, (usize, IpAddr)>,
    hasher: RandomState,
}

/// Relays of one socket.
#[derive(Debug)]
struct SharedSocket {
    /// The unspecified address with its port, or the only one.
    at: SocketAddr,
    relays: ByAddress,
}

impl SharedRelays {
    /// No relays. `hasher` is for addresses.
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self { sockets: Vec::new(), relays: ByNumber::default(), hasher }
    }

    /// Adds a socket, and returns its number.
    pub(crate) fn add_socket(&mut self, at: SocketAddr) -> RelayId {
        let relays = HashMap::with_hasher(self.hasher.clone());
        self.sockets.push(Some(SharedSocket { at, relays }));
        number(self.sockets.len() - 1)
    }

    /// Removes the sockets for all addresses, whose relays are gone, and returns their numbers in
    /// order.
    pub(crate) fn remove_sockets(&mut self) -> Vec<RelayId> {
        let mut numbers = Vec::new();
        for (index, socket) in self.sockets.iter_mut().enumerate() {
            if let Some(shared) = socket.take_if(|socket| socket.at.ip().is_unspecified()) {
                debug_assert!(shared.relays.is_empty(), "relays are parts of it");
                numbers.push(number(index));
            }
        }
        numbers
    }

    /// Adds a relay at an address of a socket. Returns false if there is one already, or no such
    /// socket.
    pub(crate) fn insert(&mut self, relay: RelayId, at: SocketAddr) -> bool {
        let is_it = |socket: &SharedSocket| socket.at == unspecified(at);
        let index = self.sockets.iter().position(|socket| socket.as_ref().is_some_and(is_it));
        index.is_some_and(|index| self.put(relay, index, at.ip()))
    }

    fn put(&mut self, relay: RelayId, index: usize, ip: IpAddr) -> bool {
        let Some(socket) = &mut self.sockets[index] else { return false };
        if socket.relays.contains_key(&ip) {
            return false;
        }
        socket.relays.insert(ip, relay);
        self.relays.insert(relay, (index, ip));
        true
    }

    /// Removes a relay. Returns the number of its socket if that was for it alone and is gone now.
    pub(crate) fn remove(&mut self, relay: RelayId) -> Option<RelayId> {
        let (index, ip) = self.relays.remove(&relay)?;
        let socket = self.sockets[index].as_mut()?;
        socket.relays.remove(&ip);
        let alone = self.sockets[index].take_if(|socket| !socket.at.ip().is_unspecified());
        alone.map(|_| number(index))
    }

    /// Returns the number of the socket of a relay, and the relay's address.
    pub(crate) fn socket_of(&self, relay: RelayId) -> Option<(RelayId, SocketAddr)> {
        let (index, ip) = *self.relays.get(&relay)?;
        let port = self.sockets[index].as_ref()?.at.port();
        Some((number(index), SocketAddr::new(ip, port)))
    }

    /// Returns whether a relay has a socket for itself alone.
    pub(crate) fn is_alone(&self, relay: RelayId) -> bool {
        let socket = self.relays.get(&relay).and_then(|(index, _)| self.sockets[*index].as_ref());
        socket.is_some_and(|socket| !socket.at.ip().is_unspecified())
    }

    /// Returns the relays of a socket by its number; `None` for one that is a relay itself.
    pub(crate) fn of_socket(&self, number: RelayId) -> Option<&ByAddress> {
        let index = number.0.checked_sub(SOCKET)?;
        let socket = usize::try_from(index).ok().and_then(|index| self.sockets.get(index))?;
        socket.as_ref().map(|socket| &socket.relays)
    }
}

/// The unspecified address of a family with the same port.
fn unspecified(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    };
    SocketAddr::new(ip, at.port())
}

const fn number(index: usize) -> RelayId {
    RelayId(SOCKET | index as u64)
}
