//! Grouping of a send batch. The tables find the message that a datagram may join, and the other
//! messages of a socket, in constant time.

use std::net::{IpAddr, SocketAddr};

use super::types::SendSocket;

/// Number of slots. A power of two, twice the number of datagrams in a batch, so most entries have
/// separate slots.
const SLOTS: usize = 4096;

/// Table that maps a hash to the index of the latest message, or of the latest group of messages.
///
/// A slot is a hint and is never cleared. The reader must check that the entry matches. A matching
/// entry is the latest, since a later entry with an equal hash would have replaced it. Colliding
/// entries replace each other. A collision can prevent grouping, but never changes the order.
pub(crate) struct Latest(Box<[u16; SLOTS]>);

impl Latest {
    pub(crate) fn new() -> Self {
        Self(Box::new([0; SLOTS]))
    }

    /// Returns the slot of a hash. The caller checks the entry, and writes the index of a new
    /// message or group.
    pub(crate) const fn slot(&mut self, hash: u64) -> &mut u16 {
        &mut self.0[(hash >> 48) as usize % SLOTS]
    }
}

/// Returns the hash of a socket with the destination address and port, and with the source address
/// if the socket has several. Datagrams from several sources to one destination therefore do not
/// split each other's runs.
pub(crate) fn hash_way(socket: SendSocket, from: Option<IpAddr>, to: SocketAddr) -> u64 {
    let address = hash_address(to.ip()) ^ u64::from(to.port());
    let from = from.map_or(0, hash_address).wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    hash_socket(socket) ^ (address ^ from).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns the hash of a socket.
pub(crate) const fn hash_socket(socket: SendSocket) -> u64 {
    socket.0.wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// Returns the hash of an address. For IPv4 the low 16 bits are zero, to be combined with a port.
pub(crate) fn hash_address(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(v4) => u64::from(v4.to_bits()) << 16,
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64 ^ (v6.to_bits() as u64).rotate_left(16),
    }
}
