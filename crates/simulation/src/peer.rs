//! A peer: takes payloads that are for it, and echoes them.

use std::net::SocketAddr;

use netsim::{Body, Outbox, Packet, Rng};

use crate::framing::{Board, client_of};

/// A peer.
#[derive(Debug)]
pub struct PeerHost {
    me: SocketAddr,
    board: Board,
    rng: Rng,
    /// Payloads received.
    pub received: u64,
    /// The first byte that should not have come here.
    pub violation: Option<String>,
}

impl PeerHost {
    /// A peer at this address and port; other ports are closed.
    #[must_use]
    pub const fn new(me: SocketAddr, board: Board, rng: Rng) -> Self {
        Self { me, board, rng, received: 0, violation: None }
    }

    /// Takes a packet.
    pub fn receive(&mut self, packet: Packet, out: &mut Outbox) {
        let Body::Udp(payload) = &packet.body else { return };
        if packet.dst != self.me {
            packet.port_unreachable().into_iter().for_each(|error| out.send(error));
            return;
        }
        self.received += 1;
        match client_of(payload, self.me) {
            Some(client) if self.board.has_owned(client, packet.src) => {}
            client => {
                let from = packet.src;
                self.violation
                    .get_or_insert_with(|| format!("{from} sent bytes of client {client:?}"));
            }
        }
        // Sometimes in bursts of equal size, which the server's kernel coalesces.
        for _ in 0..=self.rng.below(3) {
            out.send(Packet::udp(self.me, packet.src, payload.clone()));
        }
    }
}
