//! The relay sockets of one worker, by the number of their relay.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use linux_net::UdpSocket;
use turn_types::RelayId;

use crate::losses::Losses;
use crate::merging::Merging;

/// A relay socket.
#[derive(Debug)]
pub(crate) struct RelaySocket {
    pub(crate) socket: UdpSocket,
    pub(crate) losses: Losses,
    pub(crate) merging: Merging,
}

/// By keys that we count up ourselves.
pub(crate) type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<CounterHasher>>;

/// Relay sockets. Each is found with one look-up per batch, and closed by being removed.
#[derive(Debug, Default)]
pub(crate) struct RelaySockets {
    sockets: ByNumber<RelayId, RelaySocket>,
}

impl RelaySockets {
    pub(crate) fn insert(&mut self, relay: RelayId, socket: UdpSocket) {
        let (losses, merging) = (Losses::default(), Merging::default());
        let socket = RelaySocket { socket, losses, merging };
        let before = self.sockets.insert(relay, socket);
        debug_assert!(before.is_none(), "relay numbers are never reused");
    }

    pub(crate) fn get(&self, relay: RelayId) -> Option<&RelaySocket> {
        self.sockets.get(&relay)
    }

    /// Adds one that another worker had.
    pub(crate) fn adopt(&mut self, relay: RelayId, socket: RelaySocket) {
        self.sockets.insert(relay, socket);
    }

    pub(crate) fn remove(&mut self, relay: RelayId) -> Option<RelaySocket> {
        self.sockets.remove(&relay)
    }
}

/// For keys that we count up ourselves: nobody can choose them to collide. The multiplication
/// carries the low bits, which differ, to the high bits, which the table compares by.
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
