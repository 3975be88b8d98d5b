//! Clients of TCP allocations (RFC 6062), for the tests of its sections.

use stun_wire::{AttributeType, Method};
use turn_proto::Policy;
use turn_types::Transport;

use super::{Client, World, addr, policy};

/// A world in which TCP is relayed.
pub fn tcp_world() -> World {
    World::with(Policy { tcp_relaying: true, ..policy() })
}

/// Alice, by a connection from this port.
pub fn alice(port: u16) -> Client {
    Client::new(port).over(Transport::Tcp)
}

/// A Connect to a peer that has not answered yet.
pub fn connect_request(world: &mut World, client: &mut Client, peer: &str) -> Vec<u8> {
    client.sealed(world, Method::CONNECT, |builder| {
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(peer));
    })
}
