//! Connections of one allocation with peers (RFC 6062): who they are with, how far they have come, and
//! until when. What goes through them is none of our business.

use alloc::vec::Vec;

use turn_types::{ConnectionId, Instant, PeerAddr};

use crate::limits::{BIND_WITHIN, CONNECT_WITHIN};

/// How far a connection with a peer has come.
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerConnection {
    pub(crate) id: ConnectionId,
    pub(crate) peer: PeerAddr,
    pub(crate) phase: Phase,
    /// When it is given up; never, once it is bound or was given up.
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

    /// Whether a client's connection may be joined to it.
    pub(crate) fn can_be_bound(&self, now: Instant) -> bool {
        self.phase == Phase::Unbound && self.deadline.is_some_and(|deadline| now < deadline)
    }

    /// Whether it has had its time.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

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

    /// Whether there is one with this peer, however far it has come.
    pub(crate) fn is_with(&self, peer: PeerAddr) -> bool {
        self.list.iter().any(|connection| connection.peer == peer)
    }

    pub(crate) fn add(&mut self, connection: PeerConnection) {
        self.list.push(connection);
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) {
        self.list.retain(|connection| connection.id != id);
    }

    /// Takes out those that `keep` does not keep.
    pub(crate) fn retain(
        &mut self,
        mut keep: impl FnMut(&PeerConnection) -> bool,
        mut gone: impl FnMut(ConnectionId),
    ) {
        self.list.retain(|connection| {
            let kept = keep(connection);
            if !kept {
                gone(connection.id);
            }
            kept
        });
    }

    /// The next moment at which one has had its time.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.list.iter().filter_map(|connection| connection.deadline).min()
    }
}
