//! What of a batch goes together: finds the message that a datagram may join, and the socket's
//! other messages, however many datagrams of others came in between.

use std::net::{IpAddr, SocketAddr};

use super::types::SendSocket;

/// A power of two, twice the datagrams of a batch, so that most have a slot of their own.
const SLOTS: usize = 4096;

/// For each hash the number of the message, or group of messages, that was begun last.
///
/// A slot is a hint and nothing is ever cleared: whoever looks into one sees for himself whether
/// what it names is what he looks for. If it is, then it is the latest one of its kind: a later
/// one of the same kind, having the same hash, would have taken its place. Addresses that collide
/// push each other out, which costs grouping and never order.
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

/// For the way from a socket to an address and port.
pub(crate) fn hash_way(socket: SendSocket, to: SocketAddr) -> u64 {
    let address = hash_address(to.ip()) ^ u64::from(to.port());
    hash_socket(socket) ^ address.wrapping_mul(0x9E37_79B9_7F4A_7C15)
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
