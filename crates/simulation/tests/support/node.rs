//! Hosts of a world.

use netsim::{Host, Outbox, Packet};
use simulation::{
    ClientHost, PeerHost, ProbeHost, ServerHost, StrayHost, TcpClientHost, TcpPeerHost,
};
use turn_types::{Instant, Now};

/// A host of any kind.
pub(crate) enum Node {
    Server(Box<ServerHost>),
    Client(Box<ClientHost>),
    Peer(PeerHost),
    Stray(Box<StrayHost>),
    TcpClient(Box<TcpClientHost>),
    TcpPeer(Box<TcpPeerHost>),
    Probe(Box<ProbeHost>),
}

impl Host for Node {
    fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.receive(now, packet, out),
            Self::Client(client) => client.receive(now, packet, out),
            Self::Peer(peer) => peer.receive(packet, out),
            Self::Probe(probe) => probe.receive(&packet),
            Self::Stray(_) | Self::TcpClient(_) | Self::TcpPeer(_) => {}
        }
    }

    fn wake(&mut self, now: Now, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.run(now, out),
            Self::Client(client) => client.wake(now, out),
            Self::Peer(_) => {}
            Self::Stray(stray) => stray.wake(now, out),
            Self::TcpClient(client) => client.wake(now),
            Self::TcpPeer(peer) => peer.wake(now),
            Self::Probe(probe) => probe.wake(now, out),
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        match self {
            Self::Server(server) => server.next_wake(),
            Self::Client(client) => client.next_wake(),
            Self::Peer(_) => None,
            Self::Stray(stray) => stray.next_wake(),
            Self::TcpClient(client) => client.next_wake(),
            Self::TcpPeer(peer) => peer.next_wake(),
            Self::Probe(probe) => probe.next_wake(),
        }
    }
}

impl Node {
    /// Time at which a server is no longer suspended.
    pub(crate) fn suspended_until(&self) -> Instant {
        if let Self::Server(server) = self { server.suspended_until() } else { Instant::ZERO }
    }

    pub(crate) fn violation(&self) -> Option<&String> {
        match self {
            Self::Server(server) => server.violation.as_ref(),
            Self::Client(client) => client.violation.as_ref(),
            Self::Peer(peer) => peer.violation.as_ref(),
            Self::TcpClient(client) => client.violation.as_ref(),
            Self::TcpPeer(peer) => peer.violation.as_ref(),
            Self::Probe(probe) => probe.violation.as_ref(),
            Self::Stray(_) => None,
        }
    }
}
