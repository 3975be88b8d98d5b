//! Relay sockets of one worker, by the numbers of their relays.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use turn_types::RelayId;

use super::gro::GroPolicy;
use super::losses::Losses;
use crate::io::Net;

/// A relay socket.
#[derive(Debug)]
pub(crate) struct RelaySocket<N: Net> {
    pub(crate) socket: N::Udp,
    pub(crate) losses: Losses,
    pub(crate) gro: GroPolicy,
}

impl<N: Net> RelaySocket<N> {
    /// A socket that does not coalesce yet, and may if `gro` is true.
    pub(crate) fn new(socket: N::Udp, gro: bool) -> Self {
        Self { socket, losses: Losses::default(), gro: GroPolicy::off(gro) }
    }
}

/// Map with keys that the server counts up.
pub(crate) type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<CounterHasher>>;

/// Relay sockets: one look-up per batch; a socket is closed by its removal.
#[derive(Debug)]
pub(crate) struct RelaySockets<N: Net>(ByNumber<RelayId, RelaySocket<N>>);

impl<N: Net> Default for RelaySockets<N> {
    fn default() -> Self {
        Self(ByNumber::default())
    }
}

impl<N: Net> RelaySockets<N> {
    pub(crate) fn insert(&mut self, relay: RelayId, socket: RelaySocket<N>) {
        let before = self.0.insert(relay, socket);
        debug_assert!(before.is_none(), "relay numbers are never reused");
    }

    pub(crate) fn get(&self, relay: RelayId) -> Option<&RelaySocket<N>> {
        self.0.get(&relay)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &RelaySocket<N>> {
        self.0.values()
    }

    pub(crate) fn remove(&mut self, relay: RelayId) -> Option<RelaySocket<N>> {
        self.0.remove(&relay)
    }
}

/// Hasher of keys that the server counts up: no client can choose colliding ones. The
/// multiplication carries the low bits, which differ, to the high bits, which the table compares.
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
