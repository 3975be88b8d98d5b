//! What happens to an allocation that relays TCP (RFC 6062), requests apart: peers connect (§5.3),
//! connections carry, end, or have had their time.

use alloc::vec::Vec;

use stun_wire::{AttributeType, Class, MessageBuilder, Method};
use turn_types::{ConnectionId, Instant, PeerAddr, RelayId};

use crate::command::TcpCommand;
use crate::connection::{PeerConnection, Phase};
use crate::limits::{CONNECTIONS_MAX, CONNECTIONS_PER_ALLOCATION_MAX};
use crate::peers::{is_reachable_by_tcp, judge, to_public};
use crate::policy::Policy;
use crate::state::State;
use crate::table::Slot;
use crate::verdict::{Answer, PeerRefusal, ReplyBuffer};

/// Which way bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    /// From the client to the peer.
    Peer,
    /// From the peer to the client.
    Client,
}

/// A peer has connected to a relay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerArrival<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) now: Instant,
    pub(crate) relay: RelayId,
    pub(crate) peer: PeerAddr,
}

impl State {
    /// A peer has connected: a permitted one is told to the client, with a ConnectionAttempt indication.
    pub(crate) fn peer_arrived(
        &mut self,
        arrival: &PeerArrival<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(ConnectionId, Answer), PeerRefusal> {
        let PeerArrival { policy, now, relay, peer } = *arrival;
        let slot = self.table.of_relay(relay).ok_or(PeerRefusal::RelayClosed)?;
        let allocation = self.table.get(slot);
        if allocation.half(peer.family(), now).is_none() {
            return Err(PeerRefusal::RelayClosed);
        }
        let live = allocation.permissions.live(peer.ip(), now);
        let permission = live.ok_or(PeerRefusal::NoPermission)?;
        if !is_reachable_by_tcp(&permission.own, peer.port()) {
            return Err(PeerRefusal::OwnAddress);
        }
        if !self.has_room_for_connection(slot) {
            return Err(PeerRefusal::TooMany);
        }
        let to = self.table.get(slot).path;
        let transaction = self.random.transaction();
        let id = self.next_connection();
        let attempt = Method::CONNECTION_ATTEMPT;
        let mut builder = MessageBuilder::new(reply, Class::Indication, attempt, transaction);
        builder.connection_id(id.0);
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, to_public(policy, peer));
        let len = builder.finish().and_then(|len| u16::try_from(len).ok());
        // It always fits: two short attributes.
        let len = len.ok_or(PeerRefusal::TooMany)?;
        self.table.add_connection(slot, PeerConnection::unbound(id, peer, now));
        Ok((id, Answer { to, len, error: false, held: false }))
    }

    /// Whether an allocation may have one more connection.
    pub(crate) fn has_room_for_connection(&self, slot: Slot) -> bool {
        self.table.get(slot).connections.len() < CONNECTIONS_PER_ALLOCATION_MAX
            && self.table.connection_count() < CONNECTIONS_MAX
    }

    /// A number that no connection has.
    pub(crate) fn next_connection(&mut self) -> ConnectionId {
        loop {
            let id = ConnectionId::new(self.worker, self.random.u64() as u32);
            // Of four million numbers a few thousand are taken.
            if self.table.of_connection(id).is_none() {
                return id;
            }
        }
    }

    /// Has connections closed that have had their time. One that is being made is told of by its event.
    pub(crate) fn close_overdue(&mut self, slot: Slot, now: Instant) {
        let mut overdue = Vec::new();
        for connection in self.table.get(slot).connections.iter() {
            if connection.is_overdue(now) {
                overdue.push((connection.id, connection.phase));
            }
        }
        for (id, phase) in overdue {
            match phase {
                Phase::Connecting => {
                    if let Some(connection) = self.table.get_mut(slot).connections.get_mut(id) {
                        connection.deadline = None;
                    }
                    self.outbox.tcp(TcpCommand::Close { connection: id });
                }
                Phase::Unbound => self.close_connection(id),
                Phase::Bound => {}
            }
        }
    }

    /// Has a connection closed, if there is one of this number.
    pub(crate) fn close_connection(&mut self, id: ConnectionId) {
        if self.table.remove_connection(id) {
            self.outbox.tcp(TcpCommand::Close { connection: id });
        }
    }

    /// Counts what a connection carried, and says until when it is to rest for its allocation's rate.
    pub(crate) fn carried(
        &mut self,
        (policy, now): (&Policy, Instant),
        id: ConnectionId,
        (towards, bytes): (Towards, u64),
    ) -> Option<Instant> {
        let slot = self.table.of_connection(id)?;
        let allocation = self.table.get_mut(slot);
        let rate = policy.quotas.bytes_per_second;
        let bucket = match towards {
            Towards::Peer => {
                allocation.traffic.to_peer_bytes += bytes;
                &mut allocation.to_peer
            }
            Towards::Client => {
                allocation.traffic.to_client_bytes += bytes;
                &mut allocation.to_client
            }
        };
        bucket.carry(now, rate, bytes)
    }

    /// Closes an allocation's connections with peers that are forbidden now.
    pub(crate) fn judge_connections(&mut self, policy: &Policy, slot: Slot) {
        self.table.retain_connections(slot, &mut self.outbox, |connection| {
            let peer = connection.peer;
            judge(policy, peer.ip(), to_public(policy, peer).ip())
                .is_some_and(|own| is_reachable_by_tcp(&own, peer.port()))
        });
    }
}
