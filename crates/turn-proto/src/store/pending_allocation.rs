//! An Allocate behind all its checks: its ports are claimed, its relay sockets are being opened. It
//! holds all that it claimed, so that dropping it gives everything back.

use alloc::vec::Vec;
use core::time::Duration;

use turn_types::{Instant, IpFamily, RelayId, RelayedAddr};

use super::outbox::Outbox;
use super::registry::QuotaLease;
use crate::credentials::Grant;
use crate::io::{AllocateRequest, Refusal, Responder};
use crate::policy::{PortLease, PortRequirement};

/// An Allocate that waits for its relay sockets.
#[derive(Debug)]
pub(crate) struct PendingAllocation {
    pub(crate) responder: Responder,
    pub(crate) arrived: Instant,
    pub(crate) grant: Grant,
    pub(crate) lifetime: Duration,
    pub(crate) quota: QuotaLease,
    pub(crate) wanted: AllocateRequest,
    pub(crate) sockets: [SocketState; 2],
    /// Ports in use by other processes: kept until the end, so as not to be tried twice.
    pub(crate) taken: Vec<PortLease>,
}

/// One relay socket of a pending allocation.
#[derive(Debug, Default)]
pub(crate) enum SocketState {
    #[default]
    NotRequested,
    Failed(Refusal),
    Opening(ClaimedPort),
    Open(ClaimedPort),
}

/// A claimed port of a relay address.
#[derive(Debug)]
pub(crate) struct ClaimedPort {
    pub(crate) relay: RelayId,
    pub(crate) at: RelayedAddr,
    /// Its XOR-RELAYED-ADDRESS.
    pub(crate) public: RelayedAddr,
    pub(crate) lease: PortLease,
    /// The next port, to be reserved.
    pub(crate) next: Option<PortLease>,
    /// The requirement of another port when this one proves to be in use; `None` for a reserved
    /// port.
    pub(crate) requirement: Option<PortRequirement>,
}

impl PendingAllocation {
    /// Adds the claimed port of a family.
    pub(crate) fn set(&mut self, family: IpFamily, socket: SocketState) {
        self.sockets[family.index()] = socket;
    }

    /// Returns true while a relay socket is being opened.
    pub(crate) fn waits(&self) -> bool {
        self.sockets.iter().any(|socket| matches!(socket, SocketState::Opening(_)))
    }

    /// The relay sockets that are being opened.
    pub(crate) fn opening(&self) -> impl Iterator<Item = &ClaimedPort> {
        self.sockets.iter().filter_map(|socket| match socket {
            SocketState::Opening(port) => Some(port),
            SocketState::NotRequested | SocketState::Failed(_) | SocketState::Open(_) => None,
        })
    }

    /// Takes out the port of a relay socket that is being opened, with its family.
    pub(crate) fn take_opening(&mut self, relay: RelayId) -> Option<(IpFamily, ClaimedPort)> {
        let family = self.opening().find(|port| port.relay == relay)?.at.family();
        let SocketState::Opening(port) = core::mem::take(&mut self.sockets[family.index()]) else {
            return None;
        };
        Some((family, port))
    }

    /// Gives up: closes all relay sockets that are open, or may be by now.
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
