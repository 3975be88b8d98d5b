//! Export and import of allocations, for a hand-over between processes.
//!
//! The predecessor keeps an exported allocation until the commit.

use alloc::boxed::Box;
use core::net::{IpAddr, SocketAddr};

use state_format::{Malformed, Reader, Value as _, Writer, fields};
use turn_types::{
    ClientPath, FiveTuple, Instant, IpFamily, Prefix, RelayId, RelayProtocol, ServerAddr, SocketId,
};

use super::Moves;
use super::worker_move::Renamed;
use crate::io::{EndReason, Notice};
use crate::policy::{Policy, PortLease, PortRange, PortRequirement};
use crate::store::{Account, Allocation, Leases, Progress, Snapshot};

/// Exported allocation.
struct Transfer {
    snapshot: Box<Snapshot>,
    /// Customer and rate for which the quota slots of the allocation were taken.
    customer: Prefix,
    rate: u64,
}

fields!(Transfer { 1 => snapshot, 2 => customer, 3 => rate });

/// Error of an import, which then has no effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocationImportError {
    /// The state cannot be read.
    #[error("their state cannot be read: {0}")]
    Malformed(Malformed),
    /// The allocation has expired during the hand-over.
    #[error("they have expired")]
    Expired,
    /// An allocation with the same id or on the same 5-tuple exists.
    #[error("they are here already")]
    Exists,
    /// The relay address of the allocation is not served by this process.
    #[error("nothing is relayed from {0} any more")]
    RelayAddress(IpAddr),
    /// The port of the allocation is in use.
    #[error("their relayed address {0} is in use here")]
    Port(SocketAddr),
    /// The process has no listener at this server address of the client, or does not have the
    /// client's connection.
    #[error("nothing listens at {} any more, or their connections are gone", .0.0)]
    Client(ServerAddr),
}

impl AllocationImportError {
    /// Returns the reason for the session record. `None`: the allocation is unknown, or is live in
    /// this process.
    const fn end(self) -> Option<EndReason> {
        match self {
            Self::Malformed(_) | Self::Exists => None,
            Self::Expired => Some(EndReason::Expired),
            Self::RelayAddress(_) | Self::Port(_) => Some(EndReason::RelayAddressRemoved),
            Self::Client(_) => Some(EndReason::ListenerRemoved),
        }
    }
}

/// Result of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportedAllocation {
    /// Relayed protocol.
    pub protocol: RelayProtocol,
    /// Names of the relay sockets in both processes.
    pub renamed: [Option<Renamed>; 2],
}

/// Copy of a live allocation, for another process.
#[expect(missing_debug_implementations, reason = "it holds keys")]
pub struct AllocationCopy(Transfer);

impl AllocationCopy {
    pub(crate) fn of(allocation: &Allocation) -> Self {
        let (snapshot, quota) = (Box::new(allocation.snapshot()), &allocation.quota);
        Self(Transfer { snapshot, customer: quota.customer(), rate: quota.rate() })
    }

    /// Returns the 5-tuple of the client.
    #[must_use]
    pub fn client(&self) -> FiveTuple {
        self.0.snapshot.client()
    }

    /// Returns the 5-tuple where the client is expected after a move within the same worker.
    #[must_use]
    pub fn expected_client(&self) -> Option<FiveTuple> {
        self.0.snapshot.expected_client()
    }

    /// Returns the relayed protocol.
    #[must_use]
    pub fn protocol(&self) -> RelayProtocol {
        self.0.snapshot.protocol()
    }

    /// Returns the names of the relay sockets.
    pub fn relays(&self) -> impl Iterator<Item = RelayId> {
        self.0.snapshot.relays()
    }

    /// Writes the state for an [import](crate::Server::import).
    pub fn write(&self, out: &mut Writer) {
        self.0.write(out);
    }
}

impl Moves<'_> {
    /// Imports an allocation of the predecessor. `socket_of` returns the socket of a client's path.
    pub(crate) fn import(
        &mut self,
        policy: &Policy,
        now: Instant,
        state: Reader<'_>,
        socket_of: impl Fn(&ClientPath) -> Option<SocketId>,
    ) -> Result<ImportedAllocation, AllocationImportError> {
        let mut transfer: Transfer = state.last().map_err(AllocationImportError::Malformed)?;
        let snapshot = &mut transfer.snapshot;
        if !snapshot.is_live(now) {
            return Err(AllocationImportError::Expired);
        }
        let (id, protocol, at) = (snapshot.id, snapshot.protocol(), snapshot.client());
        // Another client may now use the 5-tuple of a detached client.
        let is_taken = snapshot.is_attached() && self.allocations.of_client(&at).is_some();
        if is_taken || self.allocations.of_id(id).is_some() {
            return Err(AllocationImportError::Exists);
        }
        if !snapshot.is_reached_by(socket_of) {
            return Err(AllocationImportError::Client(at.server));
        }
        let mut allocation = self.restore(policy, transfer)?;
        let mut renamed = [None; 2];
        for (socket, renamed) in allocation.sockets.iter_mut().zip(&mut renamed) {
            if let Some(socket) = socket {
                let to = self.next_name(socket.relay);
                *renamed = Some(Renamed { from: socket.relay, to });
                socket.relay = to;
            }
        }
        self.ids.skip_to(id);
        let slot = self.allocations.insert_whole(allocation);
        self.allocations.apply(policy, now, slot, self.outbox);
        Ok(ImportedAllocation { protocol, renamed })
    }

    /// Writes the record of an allocation whose import has failed with `error`.
    pub(crate) fn end_refused(
        &mut self,
        now: Instant,
        state: Reader<'_>,
        error: AllocationImportError,
        progress: Option<Progress>,
    ) {
        let (Ok(transfer), Some(reason)) = (state.last::<Transfer>(), error.end()) else { return };
        // After a crash another worker may have imported an earlier copy.
        if self.registry.location_of(transfer.snapshot.id).is_some() {
            return;
        }
        let record = transfer.snapshot.into_record(progress, (reason, now));
        self.outbox.notice(Notice::AllocationEnded(Box::new(record)));
    }

    /// Returns a new name for a relay socket. A relay on a shared socket keeps this property.
    const fn next_name(&mut self, before: RelayId) -> RelayId {
        if before.is_shared() { self.ids.next_shared_relay() } else { self.ids.next_relay() }
    }

    /// Returns the allocation of a snapshot. The allocation keeps its quota slots, even beyond the
    /// current limits. If the relay address of one family is unavailable, the allocation continues
    /// with the other family.
    fn restore(
        &self,
        policy: &Policy,
        Transfer { mut snapshot, customer, rate }: Transfer,
    ) -> Result<Allocation, AllocationImportError> {
        let mut ports = [None, None];
        for (family, at) in IpFamily::ALL.into_iter().zip(snapshot.relayed_from()) {
            match at.map(|at| claim(policy, at)).transpose() {
                Ok(lease) => ports[family.index()] = lease,
                Err(AllocationImportError::RelayAddress(_))
                    if snapshot.relayed_from()[family.other().index()].is_some() =>
                {
                    snapshot.remove_family(family);
                }
                Err(error) => return Err(error),
            }
        }
        ports.iter().flatten().for_each(|lease| lease.mark_open(snapshot.protocol()));
        let transport = snapshot.client().transport;
        let account = Account { realm: snapshot.realm().clone(), name: snapshot.account() };
        let quota = self.registry.keep_quota(account, customer, transport, rate);
        let locate = || self.registry.locate(snapshot.id, self.ids.worker());
        let location = snapshot.is_mobile().then(locate);
        Ok(Allocation::from_snapshot(*snapshot, Leases { ports, quota, location }))
    }
}

/// Claims a specific port of a relay address, or a specific address of a prefix.
pub(crate) fn claim(policy: &Policy, at: SocketAddr) -> Result<PortLease, AllocationImportError> {
    if let Some(prefix) = policy.prefix_of(at.ip()) {
        return prefix.claim_again(at).ok_or(AllocationImportError::Port(at));
    }
    let ip = at.ip();
    let relay = policy.relay.iter().find(|relay| relay.local == ip);
    let relay = relay.ok_or(AllocationImportError::RelayAddress(ip))?;
    let only = PortRange::of_places(at.port(), at.port());
    let claimed = relay.ports.claim(only, PortRequirement::Any, 0);
    claimed.map(|(lease, _)| lease).ok_or(AllocationImportError::Port(at))
}
