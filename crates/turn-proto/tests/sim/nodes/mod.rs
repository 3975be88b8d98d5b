//! The hosts of a simulated world: the server, clients, peers, and attackers.

mod client;
mod hostile;
mod payload;
mod peer;
mod server;

use netsim::{Host, Outbox, Packet};
use turn_types::{Instant, Now};

pub use client::{Board, ClientNode, ClientPlan};
pub use hostile::{HostileNode, SharedTap};
pub use peer::PeerNode;
pub use server::{ServerNode, Surroundings};

/// Host of any kind.
pub enum Node {
    Server(Box<ServerNode>),
    Client(Box<ClientNode>),
    Peer(PeerNode),
    Hostile(HostileNode),
}

impl Host for Node {
    fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.receive(now, packet, out),
            Self::Client(client) => client.receive(now, packet, out),
            Self::Peer(peer) => peer.receive(packet, out),
            Self::Hostile(_) => {}
        }
    }

    fn wake(&mut self, now: Now, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.wake(now, out),
            Self::Client(client) => client.wake(now, out),
            Self::Peer(peer) => peer.wake(now, out),
            Self::Hostile(hostile) => hostile.wake(now, out),
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        match self {
            Self::Server(server) => server.next_wake(),
            Self::Client(client) => client.next_wake(),
            Self::Peer(peer) => peer.next,
            Self::Hostile(hostile) => hostile.next,
        }
    }
}
