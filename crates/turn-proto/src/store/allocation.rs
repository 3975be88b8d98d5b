//! Allocation (RFC 8656 §6): grant, 5-tuple, relay sockets, permissions and channels. A dual
//! allocation has a relay socket for each family, and the two sockets expire separately.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::IpAddr;

use stun_wire::TransactionId;
use turn_types::{
    AllocationId, ClientPath, Direction, FiveTuple, Instant, IpFamily, RelayId, RelayedAddr,
};

use super::bandwidth::{Bucket, with_headers};
use super::channel::{Channel, Channels};
use super::connection::PeerConnections;
use super::history::History;
use super::mobility::{Mobility, Next};
use super::permission::{Permission, Permissions};
use super::registry::QuotaLease;
use super::review::PolicyRevision;
use crate::credentials::Grant;
use crate::io::{
    AllocationAttributes, AllocationPeers, AllocationRecord, DropReason, EndReason,
    FAST_PATH_DROPS, Refusal, Traffic,
};
use crate::limits::CONFIRMED_FOR;
use crate::policy::peers::{OwnPorts, judge_again};
use crate::policy::{Policy, PortLease};

/// Relay socket, which provides one relayed address. Dropping this value frees the port.
#[derive(Debug)]
pub(crate) struct RelaySocket {
    pub(crate) relay: RelayId,
    /// Address that the socket is bound to.
    pub(crate) local: RelayedAddr,
    pub(crate) lease: PortLease,
    pub(crate) expires: Instant,
}

#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) id: AllocationId,
    /// Path of the client, or the last path if not [`Self::attached`].
    pub(crate) path: ClientPath,
    /// True if the client can be reached. False only between two paths of a mobile client.
    pub(crate) attached: bool,
    /// State of a mobile client (RFC 8016); `None` if the client may not move.
    pub(crate) mobility: Option<Box<Mobility>>,
    pub(crate) grant: Grant,
    /// Revision of the policy that last judged the peers.
    pub(crate) revision: PolicyRevision,
    /// Quotas of the user and customer, charged until the allocation is dropped.
    pub(crate) quota: QuotaLease,
    pub(crate) created: Instant,
    /// Time of the last confirmation of the keys. The user database confirms keys, and so does a
    /// shared secret or token key in effect.
    pub(crate) confirmed: Instant,
    /// Time of the next look-up of the keys. `Some` if requests for peers were granted after the
    /// keys were due, and the user database has not answered.
    pub(crate) confirm_again: Option<Instant>,
    /// Transaction of the Allocate, to recognise a retransmission.
    pub(crate) transaction: TransactionId,
    /// RESERVATION-TOKEN in the response to the Allocate, for a retransmission.
    pub(crate) token: Option<[u8; 8]>,
    /// ADDRESS-ERROR-CODE in the response to the Allocate, for a retransmission.
    pub(crate) address_error: Option<(IpFamily, Refusal)>,
    /// XOR-RELAYED-ADDRESS in the response to the Allocate: IPv4, IPv6.
    pub(crate) relayed: [Option<RelayedAddr>; 2],
    pub(crate) sockets: [Option<RelaySocket>; 2],
    /// Permissions of both families.
    pub(crate) permissions: Permissions,
    pub(crate) channels: Channels,
    pub(crate) attributes: AllocationAttributes,
    pub(crate) connections: PeerConnections,
    pub(crate) traffic: Traffic,
    pub(crate) history: History,
    pub(crate) to_peer: Bucket,
    pub(crate) to_client: Bucket,
}

impl Allocation {
    /// Returns the relay socket of a family, unless the socket has expired.
    pub(crate) fn socket(&self, family: IpFamily, now: Instant) -> Option<&RelaySocket> {
        self.sockets[family.index()].as_ref().filter(|socket| now < socket.expires)
    }

    /// Returns true if a request for peers must start a confirmation of the keys.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.confirmed + CONFIRMED_FOR
    }

    /// Returns true while any relay socket has not expired.
    pub(crate) fn is_live(&self, now: Instant) -> bool {
        self.sockets.iter().flatten().any(|socket| now < socket.expires)
    }

    /// Judges a peer by a policy. Returns `None` if the policy denies the peer, or all peers of
    /// this allocation.
    #[cold]
    pub(crate) fn judge(&self, policy: &Policy, ip: IpAddr) -> Option<OwnPorts> {
        let socket = self.sockets[IpFamily::of(ip).index()].as_ref()?;
        if !policy.relays_from(socket.local.ip()) || self.grant.is_revoked(&policy.revoked) {
            return None;
        }
        let rules = policy.of(&self.grant.realm);
        judge_again(policy, rules, self.grant.limits.as_deref(), ip)
    }

    /// Returns the later expiry of the relay sockets; `None` if the allocation has no relay socket.
    pub(crate) fn expires(&self) -> Option<Instant> {
        self.sockets.iter().flatten().map(|socket| socket.expires).max()
    }

    /// Returns the next deadline of a relay socket, permission, channel or connection.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let sockets = self.sockets.iter().flatten().map(|socket| socket.expires).min();
        let Self { permissions, channels, connections, confirm_again, .. } = self;
        let peers =
            [permissions.next_expiry(), channels.next_expiry(), connections.next_deadline()];
        peers.into_iter().chain([sockets, *confirm_again]).flatten().min()
    }

    /// Returns the path or worker at which the client is expected.
    pub(crate) fn next(&self) -> Option<Next> {
        self.mobility.as_ref()?.next
    }

    /// Returns the path at this worker at which the client is expected.
    pub(crate) fn next_path(&self) -> Option<ClientPath> {
        match self.next()? {
            Next::Here(path) => Some(path),
            Next::Worker(..) => None,
        }
    }

    /// Returns true if the client is expected at a 5-tuple.
    pub(crate) fn expects(&self, five_tuple: &FiveTuple) -> bool {
        let next = self.mobility.as_ref().and_then(|mobility| mobility.next.as_ref());
        matches!(next, Some(Next::Here(path)) if path.five_tuple == *five_tuple)
    }

    /// Sets the rate in each direction, in bytes per second; 0 is unlimited.
    pub(crate) const fn set_rate(&mut self, rate: u64) {
        self.to_peer.set_rate(rate);
        self.to_client.set_rate(rate);
    }

    /// Counts traffic that a fast path carried, and charges this traffic against the rate.
    pub(crate) fn credit(&mut self, carried: &Traffic) {
        self.traffic.add(carried);
        self.history.carry(carried.packets());
        let Traffic {
            to_peer_packets,
            to_peer_bytes,
            to_client_packets,
            to_client_bytes,
            dropped_packets,
        } = *carried;
        self.history.drop_packets(FAST_PATH_DROPS, dropped_packets);
        // The sums of a dual allocation do not contain the family of the peers.
        let peers = if self.sockets[1].is_some() { IpFamily::V6 } else { IpFamily::V4 };
        let client = self.path.five_tuple.client.family();
        self.to_peer.draw(with_headers(peers, to_peer_packets, to_peer_bytes));
        self.to_client.draw(with_headers(client, to_client_packets, to_client_bytes));
    }

    /// Counts a dropped packet.
    pub(crate) fn count_drop(&mut self, reason: DropReason) {
        self.traffic.dropped_packets += 1;
        self.history.drop_packets(reason, 1);
    }

    /// Counts bytes of a connection. Returns the time until which this direction must pause.
    pub(crate) fn carry(
        &mut self,
        now: Instant,
        direction: Direction,
        bytes: u64,
    ) -> Option<Instant> {
        let (count, bucket) = match direction {
            Direction::ToPeer => (&mut self.traffic.to_peer_bytes, &mut self.to_peer),
            Direction::ToClient => (&mut self.traffic.to_client_bytes, &mut self.to_client),
        };
        *count += bytes;
        bucket.carry(now, bytes)
    }

    /// Returns the peers of the allocation.
    pub(crate) fn peers(&self) -> AllocationPeers {
        let permission = |one: &Permission| (one.ip, one.expires);
        let channel = |one: &Channel| (one.number.get(), one.peer, one.expires);
        AllocationPeers {
            permissions: self.permissions.iter().map(permission).collect(),
            channels: self.channels.iter().map(channel).collect(),
            connections: self.connections.iter().map(|one| one.peer).collect(),
        }
    }

    /// Returns the session record so far, or the final record if `end` is set.
    pub(crate) fn record(&self, end: Option<(EndReason, Instant)>) -> AllocationRecord {
        let ended = end.map(|(_, at)| at);
        AllocationRecord {
            id: self.id,
            user: Arc::clone(&self.grant.user),
            account: Arc::clone(&self.grant.account),
            renewed_by: self.grant.renewed_by.clone(),
            is_by_token: self.grant.keys.are_of_token(),
            realm: self.grant.realm.clone(),
            five_tuple: self.path.five_tuple,
            has_moved: self.mobility.as_ref().is_some_and(|mobility| mobility.serial > 0),
            relayed: self.relayed,
            created: self.created,
            expires: self.expires().or(ended).unwrap_or_default(),
            permissions: u32::try_from(self.permissions.len()).unwrap_or(u32::MAX),
            channels: u32::try_from(self.channels.len()).unwrap_or(u32::MAX),
            attributes: self.attributes,
            connections: u32::try_from(self.connections.len()).unwrap_or(u32::MAX),
            traffic: self.traffic,
            history: self.history.record(),
            end,
        }
    }
}
