//! Grouping of a batch: finds the message that a datagram may join, and the other messages of its
//! socket, in constant time.

use std::net::{IpAddr, SocketAddr};

use super::types::SendSocket;

/// A power of two, twice the datagrams of a batch, so that most have a slot of their own.
const SLOTS: usize = 4096;

/// For each hash the number of the latest message, or group of messages.
///
/// A slot is a hint and is never cleared: the reader checks that the entry matches. A matching
/// entry is the latest of its kind, since a later one with the same hash would have replaced it.
/// Colliding addresses replace each other, which costs grouping and never order.
pub(crate) struct Latest(Box<[u16; SLOTS]>);

impl Latest {
    pub(crate) fn new() -> Self {
        Self(Box::new([0; SLOTS]))
    }

    /// The slot of a hash, to be looked into and to be written when something is begun.
    pub(crate) const fn slot(&mut self, hash: u64) -> &mut u16 {
        &mut self.0[(hash >> 48) as usize % SLOTS]
    }
}

/// Hash of a socket with a destination address and port, and the source address where the socket
/// has several: those to one destination do not split each other's runs then.
pub(crate) fn hash_way(socket: SendSocket, from: Option<IpAddr>, to: SocketAddr) -> u64 {
    let address = hash_address(to.ip()) ^ u64::from(to.port());
    let from = from.map_or(0, hash_address).wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    hash_socket(socket) ^ (address ^ from).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// For a socket.
pub(crate) const fn hash_socket(socket: SendSocket) -> u64 {
    socket.0.wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// For an address; the low 16 bits of the shorter kind are left to a port.
pub(crate) fn hash_address(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(v4) => u64::from(v4.to_bits()) << 16,
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64 ^ (v6.to_bits() as u64).rotate_left(16),
    }
}
