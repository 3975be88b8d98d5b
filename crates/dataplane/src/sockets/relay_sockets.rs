//! Dedicated and shared relay sockets of one worker, by number.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

use ahash::RandomState;
use fair_share::{CLIENTS, Claimant, Share, Slots};
use turn_types::RelayId;

use super::gro::GroPolicy;
use super::losses::Losses;
use crate::input_queue::Postponement;
use crate::io::Net;
use crate::limits::RELAYS_OUT_OF_ORDER;

/// Relay socket.
#[derive(Debug)]
pub(crate) struct RelaySocket<N: Net> {
    pub(crate) socket: N::Udp,
    pub(crate) losses: Losses,
    pub(crate) gro: GroPolicy,
    owner: Option<Owner>,
}

/// Client of a relay.
#[derive(Debug)]
struct Owner {
    client: IpAddr,
    share: Share,
    /// True if the client already had many relays.
    is_crowded: bool,
    postponement: Postponement,
}

impl<N: Net> RelaySocket<N> {
    /// Creates the state of a socket that does not coalesce now, and may coalesce if `gro` is true.
    pub(crate) fn new(socket: N::Udp, gro: bool) -> Self {
        Self { socket, losses: Losses::default(), gro: GroPolicy::off(gro), owner: None }
    }

    /// Creates the state of a socket of another process. The socket may be coalescing already.
    /// Later the socket may coalesce only if `gro` is true.
    pub(crate) fn imported(socket: N::Udp, gro: bool) -> Self {
        Self { gro: GroPolicy::imported(gro), ..Self::new(socket, gro) }
    }

    /// Returns true for a relay of a client with many relays, which the input queue may schedule.
    pub(crate) fn is_crowded(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.is_crowded)
    }

    /// Marks a crowded socket as waiting in the input queue, and returns the client. Returns `None`
    /// for a socket that waits already.
    pub(crate) fn postpone(&mut self) -> Option<IpAddr> {
        let owner = self.owner.as_mut()?;
        owner.postponement.begin().then_some(owner.client)
    }

    /// Marks a socket as served. Returns true if the kernel must report the socket's input again.
    pub(crate) fn resume(&mut self) -> bool {
        self.owner.as_mut().is_some_and(|owner| {
            owner.postponement.end();
            owner.postponement.watch_again()
        })
    }

    /// Returns true if the socket waits and the kernel must stop reporting the socket's input.
    pub(crate) fn ignore(&mut self) -> bool {
        self.owner.as_mut().is_some_and(|owner| owner.postponement.ignore())
    }

    /// Returns true if the socket is in the input queue.
    pub(crate) fn waits(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.postponement.waits())
    }
}

/// Map whose keys are counters of the server.
pub(crate) type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<CounterHasher>>;

/// Relay sockets with one look-up per batch. Removing a socket closes the socket.
#[derive(Debug)]
pub(crate) struct RelaySockets<N: Net> {
    sockets: ByNumber<RelayId, RelaySocket<N>>,
    /// Number of sockets of each client.
    owned: Slots,
}

impl<N: Net> RelaySockets<N> {
    /// Creates a table without sockets. `hasher` is for addresses.
    pub(crate) fn new(hasher: RandomState) -> Self {
        let owned = Slots::new(&CLIENTS, u32::MAX, hasher);
        Self { sockets: ByNumber::default(), owned }
    }

    pub(crate) fn insert(&mut self, relay: RelayId, socket: RelaySocket<N>) {
        let before = self.sockets.insert(relay, socket);
        debug_assert!(before.is_none(), "relay numbers are never reused");
    }

    /// Counts a socket for a client. Repeated calls have no effect.
    pub(crate) fn own(&mut self, relay: RelayId, client: IpAddr) {
        let Some(socket) = self.sockets.get_mut(&relay) else { return };
        let claimant = Claimant::at(client);
        socket.owner.get_or_insert_with(|| {
            let is_crowded = self.owned.entries_before(&claimant) >= RELAYS_OUT_OF_ORDER;
            let share = self.owned.keep(&claimant);
            Owner { client, share, is_crowded, postponement: Postponement::default() }
        });
    }

    pub(crate) fn get(&self, relay: RelayId) -> Option<&RelaySocket<N>> {
        self.sockets.get(&relay)
    }

    pub(crate) fn get_mut(&mut self, relay: RelayId) -> Option<&mut RelaySocket<N>> {
        self.sockets.get_mut(&relay)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &RelaySocket<N>> {
        self.sockets.values()
    }

    /// Removes a socket. The returned socket has no client.
    pub(crate) fn remove(&mut self, relay: RelayId) -> Option<RelaySocket<N>> {
        let mut socket = self.sockets.remove(&relay)?;
        if let Some(owner) = socket.owner.take() {
            self.owned.release(owner.share);
        }
        Some(socket)
    }
}

/// Hasher for keys that are counters of the server, so no client can choose colliding keys. The
/// multiplication moves the low bits, which differ, to the high bits, which the table compares.
#[derive(Debug, Default)]
pub(crate) struct CounterHasher(u64);

impl Hasher for CounterHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use linux_net::{UdpOptions, Waker};

    use super::*;
    use crate::io::Kernel;

    fn hasher() -> RandomState {
        RandomState::with_seeds(1, 2, 3, 4)
    }

    #[test]
    fn further_relays_of_a_client_and_of_a_network_with_many_are_crowded() {
        let (_waker, wake) = Waker::new().unwrap();
        let net = Kernel::new(wake).unwrap();
        let mut relays = RelaySockets::<Kernel>::new(hasher());
        let mut numbers = (0..).map(RelayId);
        let mut add = |relays: &mut RelaySockets<Kernel>, client: [u8; 4]| {
            let at = (Ipv4Addr::LOCALHOST, 0).into();
            let socket = net.bind_udp(at, &UdpOptions::default()).unwrap();
            let relay = numbers.next().unwrap();
            relays.insert(relay, RelaySocket::new(socket, false));
            relays.own(relay, client.into());
            relays.own(relay, client.into());
            (relay, relays.get(relay).unwrap().is_crowded())
        };
        let of_mallory: Vec<_> =
            (0..RELAYS_OUT_OF_ORDER + 4).map(|_| add(&mut relays, [192, 0, 2, 1])).collect();
        let crowded = of_mallory.iter().filter(|(_, is_crowded)| *is_crowded).count() as u64;
        assert!((4..8).contains(&crowded), "{crowded}");
        assert!(!add(&mut relays, [192, 0, 2, 2]).1, "a neighbour");
        // A network has the share of sixteen addresses.
        let of_network = (0..20 * RELAYS_OUT_OF_ORDER)
            .map(|number| add(&mut relays, [198, 51, 100, number as u8]))
            .filter(|(_, is_crowded)| *is_crowded)
            .count();
        assert!(of_network > 0);
        assert!(!add(&mut relays, [203, 0, 113, 1]).1, "another network");
        // Closed relays are not counted.
        of_mallory.iter().for_each(|(relay, _)| drop(relays.remove(*relay)));
        assert!(!add(&mut relays, [192, 0, 2, 1]).1);
    }
}
