//! Allocate that passed all checks, with claimed ports and opening relay sockets. Dropping a
//! [`PendingAllocation`] releases everything claimed.

use alloc::vec::Vec;
use core::time::Duration;

use turn_types::{Instant, IpFamily, RelayId, RelayedAddr};

use super::outbox::Outbox;
use super::registry::QuotaLease;
use crate::credentials::Grant;
use crate::io::{AllocateRequest, Refusal, Responder};
use crate::policy::{PortLease, PortRequirement};

/// Allocate that waits for relay sockets.
#[derive(Debug)]
pub(crate) struct PendingAllocation {
    pub(crate) responder: Responder,
    pub(crate) arrived: Instant,
    pub(crate) grant: Grant,
    pub(crate) lifetime: Duration,
    pub(crate) quota: QuotaLease,
    pub(crate) wanted: AllocateRequest,
    pub(crate) sockets: [SocketState; 2],
    /// Ports in use by other processes. The leases are retained until the end of the request, so no
    /// port is tried twice.
    pub(crate) taken: Vec<PortLease>,
}

/// State of a relay socket of a pending allocation.
#[derive(Debug, Default)]
pub(crate) enum SocketState {
    #[default]
    NotRequested,
    Failed(Refusal),
    Opening(ClaimedPort),
    Open(ClaimedPort),
}

/// Claimed port of a relay address.
#[derive(Debug)]
pub(crate) struct ClaimedPort {
    pub(crate) relay: RelayId,
    pub(crate) at: RelayedAddr,
    /// XOR-RELAYED-ADDRESS of the port.
    pub(crate) public: RelayedAddr,
    pub(crate) lease: PortLease,
    /// Next port, which will be reserved for the client.
    pub(crate) next: Option<PortLease>,
    /// Requirement of a replacement if another process uses the port; `None` for a reserved port.
    pub(crate) requirement: Option<PortRequirement>,
}

impl PendingAllocation {
    /// Sets the state of a family's relay socket.
    pub(crate) fn set(&mut self, family: IpFamily, socket: SocketState) {
        self.sockets[family.index()] = socket;
    }

    /// Returns true while a relay socket is opening.
    pub(crate) fn waits(&self) -> bool {
        self.sockets.iter().any(|socket| matches!(socket, SocketState::Opening(_)))
    }

    /// Returns the ports of opening relay sockets.
    pub(crate) fn opening(&self) -> impl Iterator<Item = &ClaimedPort> {
        self.sockets.iter().filter_map(|socket| match socket {
            SocketState::Opening(port) => Some(port),
            SocketState::NotRequested | SocketState::Failed(_) | SocketState::Open(_) => None,
        })
    }

    /// Removes the port of an opening relay socket. Returns the port with its family.
    pub(crate) fn take_opening(&mut self, relay: RelayId) -> Option<(IpFamily, ClaimedPort)> {
        let family = self.opening().find(|port| port.relay == relay)?.at.family();
        let SocketState::Opening(port) = core::mem::take(&mut self.sockets[family.index()]) else {
            return None;
        };
        Some((family, port))
    }

    /// Abandons the request. Closes all relay sockets that are open, or may be open by now.
    pub(crate) fn abandon(self, outbox: &mut Outbox) {
        for socket in self.sockets {
            match socket {
                SocketState::Opening(port) | SocketState::Open(port) => {
                    outbox.close_relay(port.relay, port.lease);
                }
                SocketState::NotRequested | SocketState::Failed(_) => {}
            }
        }
    }
}
