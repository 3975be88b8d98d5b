//! Snapshot of an allocation as plain data, for a move to another worker or process.
//!
//! A [`Snapshot`] contains the data. [`Leases`] contains the leases within this process: ports, the
//! slot in the quotas, and the registered location. The driver transfers relay sockets separately,
//! identified by [`RelayId`].

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use state_format::fields;
use stun_wire::{ChannelNumber, TransactionId};
use turn_types::{
    AllocationId, ClientPath, FiveTuple, Instant, IpFamily, PeerAddr, Realm, RelayId,
    RelayProtocol, RelayedAddr, SocketId,
};

use super::allocation::{Allocation, RelaySocket};
use super::bandwidth::Bucket;
use super::channel::{Channel, Channels};
use super::connection::{PeerConnection, PeerConnections};
use super::history::History;
use super::mobility::{Answered, Mobility, Next};
use super::permission::{Permission, Permissions};
use super::registry::{LocationLease, QuotaLease};
use super::review::PolicyRevision;
use crate::credentials::{Grant, Ticket};
use crate::io::{
    AllocationAttributes, AllocationRecord, EndReason, InstalledRoute, Refusal, Traffic,
};
use crate::policy::PortLease;

/// Data of an allocation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) id: AllocationId,
    path: ClientPath,
    attached: bool,
    mobility: Option<MobilityData>,
    grant: Grant,
    created: Instant,
    transaction: TransactionId,
    token: Option<[u8; 8]>,
    address_error: Option<(IpFamily, Refusal)>,
    relayed: [Option<RelayedAddr>; 2],
    sockets: [Option<SocketData>; 2],
    permissions: Vec<(IpAddr, Instant)>,
    channels: Vec<ChannelData>,
    attributes: AllocationAttributes,
    connections: Vec<PeerConnection>,
    traffic: Traffic,
    history: History,
    to_peer: Bucket,
    to_client: Bucket,
    awaits_confirmation: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct MobilityData {
    ticket: Ticket,
    serial: u32,
    next: Option<Next>,
    answered: Option<Answered>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct SocketData {
    relay: RelayId,
    local: RelayedAddr,
    expires: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct ChannelData {
    number: ChannelNumber,
    peer: PeerAddr,
    expires: Instant,
    awaits_data: bool,
    route: Option<InstalledRoute>,
}

fields!(Snapshot {
    1 => id,
    2 => path,
    3 => attached,
    4 => mobility,
    5 => grant,
    6 => created,
    7 => transaction,
    8 => token,
    9 => address_error,
    10 => relayed,
    11 => sockets,
    12 => permissions,
    13 => channels,
    14 => attributes,
    15 => connections,
    16 => traffic,
    17 => history,
    18 => to_peer,
    19 => to_client,
    20 => awaits_confirmation or false,
});
fields!(MobilityData { 1 => ticket, 2 => serial, 3 => next, 4 => answered });
fields!(SocketData { 1 => relay, 2 => local, 3 => expires });
// The successor installs the routes of channels in use without waiting for data. Live sessions
// therefore continue on the kernel path after a restart, even in a direction without packets at
// that time.
fields!(ChannelData {
    1 => number,
    2 => peer,
    3 => expires,
    4 => awaits_data or false;
    route: None
});

/// Relayed packets, history and token buckets of an allocation. Packets change this progress and
/// nothing else in an allocation.
#[derive(Clone, Debug)]
pub struct Progress {
    traffic: Traffic,
    history: History,
    to_peer: Bucket,
    to_client: Bucket,
}

fields!(Progress { 1 => traffic, 2 => history, 3 => to_peer, 4 => to_client });

/// Leases of an allocation. Dropping this value releases the ports, the slot in the quotas and the
/// location.
#[derive(Debug)]
pub(crate) struct Leases {
    pub(crate) ports: [Option<PortLease>; 2],
    pub(crate) quota: QuotaLease,
    pub(crate) location: Option<LocationLease>,
}

impl Snapshot {
    pub(crate) const fn realm(&self) -> &Realm {
        &self.grant.realm
    }

    /// Returns true if the client has a path. False after the client has left and may return on
    /// another path.
    pub(crate) const fn is_attached(&self) -> bool {
        self.attached
    }

    /// Returns the 5-tuple of the client.
    pub(crate) const fn client(&self) -> FiveTuple {
        self.path.five_tuple
    }

    /// Returns the 5-tuple at which the client is expected, at this worker.
    pub(crate) fn expected_client(&self) -> Option<FiveTuple> {
        let Next::Here(path) = self.mobility.as_ref()?.next.as_ref()? else { return None };
        Some(path.five_tuple)
    }

    /// Sets the socket of each client path to the result of `socket_of`. An expected path without a
    /// socket is removed. Returns false if the path in use has no socket.
    pub(crate) fn is_reached_by(
        &mut self,
        socket_of: impl Fn(&ClientPath) -> Option<SocketId>,
    ) -> bool {
        if let Some(mobility) = &mut self.mobility
            && let Some(Next::Here(path)) = &mut mobility.next
        {
            match socket_of(path) {
                Some(socket) => path.socket = socket,
                None => mobility.next = None,
            }
        }
        match socket_of(&self.path) {
            Some(socket) => self.path.socket = socket,
            None if self.attached => return false,
            None => {}
        }
        true
    }

    /// Returns the account in the quotas.
    pub(crate) fn account(&self) -> Arc<str> {
        Arc::clone(&self.grant.account)
    }

    /// Returns the relayed protocol.
    pub(crate) const fn protocol(&self) -> RelayProtocol {
        self.attributes.protocol
    }

    /// Returns true if the client may move.
    pub(crate) const fn is_mobile(&self) -> bool {
        self.mobility.is_some()
    }

    /// Returns true while any relay socket has not expired.
    pub(crate) fn is_live(&self, now: Instant) -> bool {
        self.sockets.iter().flatten().any(|socket| now < socket.expires)
    }

    /// Returns the addresses that the relay sockets are bound to.
    pub(crate) fn relayed_from(&self) -> [Option<SocketAddr>; 2] {
        self.sockets.map(|socket| socket.map(|socket| socket.local.0))
    }

    /// Removes the relay socket of a family, with the permissions and channels of this family.
    pub(crate) fn remove_family(&mut self, family: IpFamily) {
        self.sockets[family.index()] = None;
        self.permissions.retain(|(ip, _)| IpFamily::of(*ip) != family);
        self.channels.retain(|channel| IpFamily::of(channel.peer.ip()) != family);
    }

    /// Returns the record of the ended allocation, with later progress if known.
    pub(crate) fn into_record(
        self,
        progress: Option<Progress>,
        end: (EndReason, Instant),
    ) -> AllocationRecord {
        let (traffic, history) = match progress {
            Some(Progress { traffic, history, .. }) => (traffic, history),
            None => (self.traffic, self.history),
        };
        let expires = self.sockets.iter().flatten().map(|socket| socket.expires).max();
        AllocationRecord {
            id: self.id,
            is_by_token: self.grant.keys.are_of_token(),
            user: self.grant.user,
            account: self.grant.account,
            renewed_by: self.grant.renewed_by,
            realm: self.grant.realm,
            five_tuple: self.path.five_tuple,
            has_moved: self.mobility.as_ref().is_some_and(|mobility| mobility.serial > 0),
            relayed: self.relayed,
            created: self.created,
            expires: expires.unwrap_or_default(),
            permissions: u32::try_from(self.permissions.len()).unwrap_or(u32::MAX),
            channels: u32::try_from(self.channels.len()).unwrap_or(u32::MAX),
            attributes: self.attributes,
            connections: u32::try_from(self.connections.len()).unwrap_or(u32::MAX),
            traffic,
            history: history.record(),
            end: Some(end),
        }
    }

    /// Returns the ids of the relay sockets.
    pub(crate) fn relays(&self) -> impl Iterator<Item = RelayId> {
        self.sockets.iter().flatten().map(|socket| socket.relay)
    }
}

impl Allocation {
    /// Returns the progress of the allocation.
    pub(crate) fn progress(&self) -> Progress {
        let Self { traffic, history, to_peer, to_client, .. } = self;
        Progress {
            traffic: *traffic,
            history: history.clone(),
            to_peer: *to_peer,
            to_client: *to_client,
        }
    }

    /// Returns a number that changes with the [progress](Self::progress): the sum of all counts.
    /// The token buckets need no count, because only packets spend tokens.
    pub(crate) fn progress_count(&self) -> u64 {
        self.traffic.total().wrapping_add(self.history.total())
    }

    /// Continues from the progress in the predecessor.
    pub(crate) fn set_progress(&mut self, progress: Progress) {
        let Progress { traffic, history, to_peer, to_client } = progress;
        (self.traffic, self.history) = (traffic, history);
        (self.to_peer, self.to_client) = (to_peer, to_client);
    }

    /// Returns the present data of the allocation.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let Self { permissions, channels, connections, .. } = self;
        let permissions = permissions.iter().map(|held| (held.ip, held.expires)).collect();
        let channels = channels.iter().map(|channel| {
            let Channel { number, peer, expires, awaits_data, route, own: _ } = *channel;
            ChannelData { number, peer, expires, awaits_data, route }
        });
        let sockets = self.sockets.each_ref().map(|socket| {
            let RelaySocket { relay, local, expires, lease: _ } = socket.as_ref()?;
            Some(SocketData { relay: *relay, local: *local, expires: *expires })
        });
        let mobility = self.mobility.as_ref().map(|mobility| {
            let Mobility { ticket, serial, next, answered, location: _ } = &**mobility;
            MobilityData { ticket: *ticket, serial: *serial, next: *next, answered: *answered }
        });
        Snapshot {
            id: self.id,
            path: self.path,
            attached: self.attached,
            mobility,
            grant: self.grant.clone(),
            created: self.created,
            transaction: self.transaction,
            token: self.token,
            address_error: self.address_error,
            relayed: self.relayed,
            sockets,
            permissions,
            channels: channels.collect(),
            attributes: self.attributes,
            connections: connections.iter().copied().collect(),
            traffic: self.traffic,
            history: self.history.clone(),
            to_peer: self.to_peer,
            to_client: self.to_client,
            awaits_confirmation: self.confirm_again.is_some(),
        }
    }

    /// Returns the allocation of a snapshot, with leases of the ports and location. The peers are
    /// not judged yet.
    pub(crate) fn from_snapshot(snapshot: Snapshot, leases: Leases) -> Self {
        let mut ports = leases.ports.into_iter();
        let sockets = snapshot.sockets.map(|data| {
            let lease = ports.next().flatten();
            let SocketData { relay, local, expires } = data?;
            Some(RelaySocket { relay, local, lease: lease?, expires })
        });
        let mobility = snapshot.mobility.zip(leases.location).map(|(data, location)| {
            let MobilityData { ticket, serial, next, answered } = data;
            Box::new(Mobility { ticket, serial, location, next, answered })
        });
        let mut permissions = Permissions::default();
        for (ip, expires) in snapshot.permissions {
            permissions.install(Permission { ip, expires, own: None });
        }
        let restored = snapshot.channels.into_iter().map(|data| {
            let ChannelData { number, peer, expires, awaits_data, route } = data;
            Channel { number, peer, expires, own: None, awaits_data, route }
        });
        let channels = Channels::restore(restored);
        let mut connections = PeerConnections::default();
        for connection in snapshot.connections {
            connections.add(connection);
        }
        Self {
            id: snapshot.id,
            path: snapshot.path,
            attached: snapshot.attached,
            mobility,
            grant: snapshot.grant.in_form(),
            revision: PolicyRevision::default(),
            quota: leases.quota,
            created: snapshot.created,
            confirmed: Instant::ZERO,
            // The look-up in progress is the other process's.
            confirm_again: snapshot.awaits_confirmation.then_some(Instant::ZERO),
            transaction: snapshot.transaction,
            token: snapshot.token,
            address_error: snapshot.address_error,
            relayed: snapshot.relayed,
            sockets,
            permissions,
            channels,
            attributes: snapshot.attributes,
            connections,
            traffic: snapshot.traffic,
            history: snapshot.history,
            to_peer: snapshot.to_peer,
            to_client: snapshot.to_client,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ports::{PortRange, PortRequirement, RelayPorts};
    use crate::random::Random;
    use crate::store::registry::{
        Account, AllocationQuota, Registry, RegistryHandle, SharedRegistry,
    };
    use alloc::sync::Arc;
    use core::time::Duration;
    use std::sync::Mutex;
    use std::vec;
    use turn_types::{ClientAddr, ConnectionId, Prefix, Secret, ServerAddr, Transport, WorkerId};

    #[derive(Default)]
    struct Shared(Mutex<Registry>);

    impl SharedRegistry for Shared {
        fn with(&self, f: &mut dyn FnMut(&mut Registry)) {
            f(&mut self.0.lock().unwrap());
        }
    }

    const END: Instant = Instant::from_nanos(600_000_000_000);

    fn peer(last: u8) -> PeerAddr {
        PeerAddr(([198, 51, 100, last], 7).into())
    }

    /// Returns an allocation with a value in each field.
    fn allocation(registry: &RegistryHandle, ports: &Arc<RelayPorts>) -> Allocation {
        let id = AllocationId::new(WorkerId(3), 9);
        let (realm, name) = (Realm::from("example.org"), Arc::from("ann"));
        let quota = AllocationQuota::default();
        let account = Account { realm: realm.clone(), name };
        let customer = Prefix::customer([192, 0, 2, 1].into());
        let (lease, _) = ports.claim(PortRange::DYNAMIC, PortRequirement::Any, 7).unwrap();
        let five_tuple = FiveTuple {
            transport: Transport::Udp,
            client: ClientAddr(([192, 0, 2, 1], 5000).into()),
            server: ServerAddr(([203, 0, 113, 1], 3478).into()),
        };
        let path = ClientPath { five_tuple, socket: SocketId(2) };
        let local = RelayedAddr(([203, 0, 113, 1], lease.port()).into());
        let mut mobility = Mobility::new(&Secret::new([7; 32]), registry.locate(id, WorkerId(3)));
        mobility.next = Some(Next::Worker(WorkerId(1), five_tuple));
        let transaction = TransactionId([5; 12]);
        mobility.answered = Some(Answered { five_tuple, transaction, serial: 0, lifetime: 600 });
        let mut permissions = Permissions::default();
        permissions.install(Permission { ip: peer(1).ip(), expires: END, own: None });
        permissions.install(Permission { ip: peer(2).ip(), expires: END, own: None });
        let mut channels = Channels::default();
        let route = InstalledRoute::default();
        for (raw, last) in [(0x4001, 1), (0x4000, 2)] {
            let number = ChannelNumber::new(raw).unwrap();
            let (peer, route) = (peer(last), Some(route));
            let channel =
                Channel { number, peer, expires: END, own: None, awaits_data: false, route };
            channels.bind(channel, |_| ());
        }
        let mut connections = PeerConnections::default();
        connections.add(PeerConnection::unbound(ConnectionId(4), peer(1), Instant::ZERO));
        let mut to_peer = Bucket::new(1000, Instant::ZERO);
        to_peer.draw(10);
        let mut history = History::default();
        history.refuse(Refusal::PeerForbidden);
        Allocation {
            id,
            path,
            attached: true,
            mobility: Some(Box::new(mobility)),
            grant: Grant::anonymous(realm),
            revision: PolicyRevision::default(),
            quota: registry.take_quota(account, customer, Transport::Udp, quota).unwrap(),
            created: Instant::ZERO + Duration::from_secs(1),
            confirmed: Instant::ZERO,
            confirm_again: Some(Instant::ZERO),
            transaction,
            token: Some([8; 8]),
            address_error: Some((IpFamily::V6, Refusal::PortsExhausted)),
            relayed: [Some(local), None],
            sockets: [Some(RelaySocket { relay: RelayId(6), local, lease, expires: END }), None],
            permissions,
            channels,
            attributes: AllocationAttributes::default(),
            connections,
            traffic: Traffic { to_peer_bytes: 11, ..Traffic::default() },
            history,
            to_peer,
            to_client: Bucket::new(1000, END),
        }
    }

    #[test]
    fn an_allocation_reads_back_as_it_was_written() {
        let registry =
            RegistryHandle::new(Arc::new(Shared::default()), Random::new([1; 32]).hasher());
        let ports = RelayPorts::new();
        let allocation = allocation(&registry, &ports);
        let id = allocation.id;
        let written = allocation.snapshot();
        assert_eq!(written.relays().collect::<Vec<_>>(), vec![RelayId(6)]);
        let Allocation { sockets, quota, mobility, .. } = allocation;
        let ports_of = sockets.map(|socket| socket.map(|socket| socket.lease));
        let location = mobility.map(|mobility| mobility.location);
        let leases = Leases { ports: ports_of, quota, location };
        let again = Allocation::from_snapshot(written.clone(), leases);
        assert_eq!((again.expires(), again.snapshot()), (Some(END), written));
        // The leases are the same as before.
        assert_eq!((ports.used(), registry.location_of(id)), (1, Some(WorkerId(3))));
        drop(again);
        assert_eq!((ports.used(), registry.location_of(id)), (0, None));
    }
}
