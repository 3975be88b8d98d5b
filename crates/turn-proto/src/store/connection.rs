//! Connections of an allocation with peers (RFC 6062): peer, phase and deadline. The driver relays
//! the data of connections.

use alloc::vec::Vec;

use state_format::{fields, variants};
use turn_types::{ConnectionId, Instant, PeerAddr};

use crate::limits::{BIND_WITHIN, CONNECT_WITHIN};

/// Phase of a connection with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The peer has not accepted the connection yet.
    Connecting,
    /// The connection waits for the client's ConnectionBind.
    Unbound,
    /// The connection is joined to a connection of the client.
    Bound,
}

/// A connection with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerConnection {
    pub(crate) id: ConnectionId,
    pub(crate) peer: PeerAddr,
    pub(crate) phase: Phase,
    /// End of the wait; `None` for a bound or abandoned connection.
    pub(crate) deadline: Option<Instant>,
}

impl PeerConnection {
    /// Returns a connection that the server is opening.
    pub(crate) fn connecting(id: ConnectionId, peer: PeerAddr, now: Instant) -> Self {
        Self { id, peer, phase: Phase::Connecting, deadline: Some(now + CONNECT_WITHIN) }
    }

    /// Returns a connection that waits for the client.
    pub(crate) fn unbound(id: ConnectionId, peer: PeerAddr, now: Instant) -> Self {
        Self { id, peer, phase: Phase::Unbound, deadline: Some(now + BIND_WITHIN) }
    }

    /// Returns true if a client may bind the connection.
    pub(crate) fn can_be_bound(&self, now: Instant) -> bool {
        self.phase == Phase::Unbound && self.deadline.is_some_and(|deadline| now < deadline)
    }

    /// Returns true after the deadline.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

fields!(PeerConnection { 1 => id, 2 => peer, 3 => phase, 4 => deadline });

variants!(Phase, "phase of a connection" { 1 => Connecting, 2 => Unbound, 3 => Bound });

/// Connections of an allocation. The list is short.
#[derive(Debug, Default)]
pub(crate) struct PeerConnections {
    list: Vec<PeerConnection>,
}

impl PeerConnections {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PeerConnection> {
        self.list.iter()
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut PeerConnection> {
        self.list.iter_mut().find(|connection| connection.id == id)
    }

    /// Returns true if a connection with the peer exists, in any phase.
    pub(crate) fn is_with(&self, peer: PeerAddr) -> bool {
        self.list.iter().any(|connection| connection.peer == peer)
    }

    pub(crate) fn add(&mut self, connection: PeerConnection) {
        self.list.push(connection);
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) {
        self.list.retain(|connection| connection.id != id);
    }

    /// Removes the connections for which `keep` returns false, and passes the removed numbers to
    /// `gone`.
    pub(crate) fn retain(
        &mut self,
        mut keep: impl FnMut(&PeerConnection) -> bool,
        gone: impl FnMut(ConnectionId),
    ) {
        let removed = self.list.extract_if(.., |connection| !keep(connection));
        removed.map(|connection| connection.id).for_each(gone);
    }

    /// Returns the next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.list.iter().filter_map(|connection| connection.deadline).min()
    }
}
