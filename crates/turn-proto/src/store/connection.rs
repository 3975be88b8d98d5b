//! Connections of one allocation with peers (RFC 6062): peer, phase and deadline of each. Their
//! data is not seen here.

use alloc::vec::Vec;

use state_format::{fields, variants};
use turn_types::{ConnectionId, Instant, PeerAddr};

use crate::limits::{BIND_WITHIN, CONNECT_WITHIN};

/// Phase of a connection with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The peer has not answered.
    Connecting,
    /// It waits for the client's connection.
    Unbound,
    /// It is one with the client's connection.
    Bound,
}

/// A connection with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerConnection {
    pub(crate) id: ConnectionId,
    pub(crate) peer: PeerAddr,
    pub(crate) phase: Phase,
    /// End of the wait; `None` once it is bound or was given up.
    pub(crate) deadline: Option<Instant>,
}

impl PeerConnection {
    /// One that is being made.
    pub(crate) fn connecting(id: ConnectionId, peer: PeerAddr, now: Instant) -> Self {
        Self { id, peer, phase: Phase::Connecting, deadline: Some(now + CONNECT_WITHIN) }
    }

    /// One that waits for the client.
    pub(crate) fn unbound(id: ConnectionId, peer: PeerAddr, now: Instant) -> Self {
        Self { id, peer, phase: Phase::Unbound, deadline: Some(now + BIND_WITHIN) }
    }

    /// Returns true if a client's connection may be bound to it.
    pub(crate) fn can_be_bound(&self, now: Instant) -> bool {
        self.phase == Phase::Unbound && self.deadline.is_some_and(|deadline| now < deadline)
    }

    /// Returns true once its time is over.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

fields!(PeerConnection { 1 => id, 2 => peer, 3 => phase, 4 => deadline });

variants!(Phase, "phase of a connection" { 1 => Connecting, 2 => Unbound, 3 => Bound });

/// The connections of one allocation. They are few.
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

    /// Returns true if there is one with this peer, in any phase.
    pub(crate) fn is_with(&self, peer: PeerAddr) -> bool {
        self.list.iter().any(|connection| connection.peer == peer)
    }

    pub(crate) fn add(&mut self, connection: PeerConnection) {
        self.list.push(connection);
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) {
        self.list.retain(|connection| connection.id != id);
    }

    /// Removes the connections for which `keep` returns false.
    pub(crate) fn retain(
        &mut self,
        mut keep: impl FnMut(&PeerConnection) -> bool,
        gone: impl FnMut(ConnectionId),
    ) {
        let removed = self.list.extract_if(.., |connection| !keep(connection));
        removed.map(|connection| connection.id).for_each(gone);
    }

    /// The next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.list.iter().filter_map(|connection| connection.deadline).min()
    }
}
