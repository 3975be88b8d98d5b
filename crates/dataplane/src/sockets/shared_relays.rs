//! Relays without dedicated sockets. One socket receives the datagrams for all addresses of a
//! prefix, and sends from each of these addresses (`turn_proto::RelayPrefix`).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use ahash::RandomState;
use turn_types::RelayId;

use super::relay_sockets::ByNumber;

/// Bit in the numbers of sockets, as opposed to relays. Relays are numbered from zero, and never
/// reach this bit.
const SOCKET: u64 = 1 << 61;

/// Relays of one socket, by address.
pub(crate) type ByAddress = HashMap<IpAddr, RelayId, RandomState>;

/// All relays of a worker without a dedicated socket.
#[derive(Debug)]
pub(crate) struct SharedRelays {
    /// Sockets by number: one for each family, and sockets of single relays. `None` for a closed
    /// socket, because numbers are never reused.
    sockets: Vec<Option<SharedSocket>>,
    /// Socket and address of each relay.
    relays: ByNumber<RelayId, (usize, IpAddr)>,
    hasher: RandomState,
}

/// Relays of one socket.
#[derive(Debug)]
struct SharedSocket {
    /// Unspecified address with the socket's port, or the address of the only relay.
    at: SocketAddr,
    relays: ByAddress,
}

impl SharedRelays {
    /// Creates a table without relays. `hasher` is for addresses.
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self { sockets: Vec::new(), relays: ByNumber::default(), hasher }
    }

    /// Adds a socket, and returns the number.
    pub(crate) fn add_socket(&mut self, at: SocketAddr) -> RelayId {
        let relays = HashMap::with_hasher(self.hasher.clone());
        self.sockets.push(Some(SharedSocket { at, relays }));
        number(self.sockets.len() - 1)
    }

    /// Removes the sockets that are bound to all addresses, and returns the sockets' numbers in
    /// order. The relays of these sockets must be removed before.
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

    /// Adds a relay at an address of a socket. Returns false if the address has a relay already, or
    /// if no such socket exists.
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

    /// Removes a relay. Returns the number of the relay's socket if the socket belonged to only
    /// this relay. That socket is removed as well.
    pub(crate) fn remove(&mut self, relay: RelayId) -> Option<RelayId> {
        let (index, ip) = self.relays.remove(&relay)?;
        let socket = self.sockets[index].as_mut()?;
        socket.relays.remove(&ip);
        let alone = self.sockets[index].take_if(|socket| !socket.at.ip().is_unspecified());
        alone.map(|_| number(index))
    }

    /// Returns the number of a relay's socket, and the relay's address.
    pub(crate) fn socket_of(&self, relay: RelayId) -> Option<(RelayId, SocketAddr)> {
        let (index, ip) = *self.relays.get(&relay)?;
        let port = self.sockets[index].as_ref()?.at.port();
        Some((number(index), SocketAddr::new(ip, port)))
    }

    /// Returns true if a relay does not share its socket.
    pub(crate) fn is_alone(&self, relay: RelayId) -> bool {
        let socket = self.relays.get(&relay).and_then(|(index, _)| self.sockets[*index].as_ref());
        socket.is_some_and(|socket| !socket.at.ip().is_unspecified())
    }

    /// Returns the relays of a socket, by the socket's number. Returns `None` for the number of a
    /// relay.
    pub(crate) fn of_socket(&self, number: RelayId) -> Option<&ByAddress> {
        let index = number.0.checked_sub(SOCKET)?;
        let socket = usize::try_from(index).ok().and_then(|index| self.sockets.get(index))?;
        socket.as_ref().map(|socket| &socket.relays)
    }
}

/// Returns the unspecified address of the address family, with the port of `at`.
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
