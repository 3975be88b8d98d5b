//! Notices: the data for log lines, metrics and accounting. Polling is optional, and the server
//! never waits for a reader.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use state_format::fields;
use stun_wire::Method;
use turn_types::{
    AllocationId, ClientPath, FiveTuple, Instant, PeerAddr, Prefix, Realm, RelayedAddr,
};

use super::allocate_request::AllocationAttributes;
use super::history::SessionHistory;
use super::refusal::Refusal;
use super::verdict::DropReason;
use crate::policy::peer_rules::{DeniedBy, PlacedRule};

/// Only reason for which a fast path drops packets. All other packets go to the sockets.
pub(crate) const FAST_PATH_DROPS: DropReason = DropReason::Bandwidth;

/// Event to report in logs, metrics and accounting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An allocation was created. The traffic is still zero, and `end` is `None`.
    AllocationCreated(Box<AllocationRecord>),
    /// An allocation was refreshed and continues. The policy enables this notice. At most one per
    /// allocation and second.
    AllocationRefreshed(Box<AllocationRecord>),
    /// An allocation ended. The record is the only report of the allocation's usage.
    AllocationEnded(Box<AllocationRecord>),
    /// A mobile client has moved to another 5-tuple (RFC 8016).
    AllocationMoved {
        /// Allocation of the client.
        id: AllocationId,
        /// Old 5-tuple.
        from: FiveTuple,
        /// New 5-tuple.
        to: FiveTuple,
    },
    /// A request was refused.
    Refused(RefusedRequest),
    /// A source has used up a budget, and gets no responses for now. At most one notice per budget
    /// and minute.
    BudgetSpent {
        /// Exhausted budget.
        budget: Budget,
        /// Network or customer.
        source: Prefix,
    },
}

/// Refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    /// Path of the request.
    pub path: ClientPath,
    /// Method of the request.
    pub method: Method,
    /// User of an authentic request.
    pub user: Option<Arc<str>>,
    /// User name in a request that was not authentic, in canonical form if there is such a form.
    /// Any client may have sent this name.
    pub claimed: Option<Arc<str>>,
    /// Account of the user or claimed name, without the time of a time-limited name.
    pub account: Option<Arc<str>>,
    /// Forbidden peer that caused the refusal.
    pub peer: Option<ForbiddenPeer>,
    /// Holder of the full share that caused the refusal: the level with the largest use.
    pub share: Option<ShareHolder>,
    /// Reason of the refusal.
    pub reason: Refusal,
}

/// Holder of a share of ports and quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareHolder {
    /// Network of clients.
    Network(Prefix),
    /// Account of users.
    Account(Arc<str>),
    /// Realm of accounts.
    Realm(Realm),
}

impl ShareHolder {
    /// Returns the level: `network`, `account` or `realm`.
    #[must_use]
    pub const fn level(&self) -> &'static str {
        match self {
            Self::Network(_) => "network",
            Self::Account(_) => "account",
            Self::Realm(_) => "realm",
        }
    }
}

/// Peer that the rules forbid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForbiddenPeer {
    /// Address of the peer in the request.
    pub address: IpAddr,
    /// Kind of the deciding rule.
    pub by: DeniedBy,
    /// Operator's rule, if [`DeniedBy::Rule`] decided.
    pub rule: Option<PlacedRule>,
}

/// Session record of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationRecord {
    /// Id of the allocation.
    pub id: AllocationId,
    /// Authenticated user; empty on an open relay.
    pub user: Arc<str>,
    /// Account of the quotas: the user name without the time stamp of a time-limited name.
    pub account: Arc<str>,
    /// Account of the latest access token, if different from `account`.
    pub renewed_by: Option<Arc<str>>,
    /// True if the client uses an access token (RFC 7635). `user` is then the name of the token's
    /// key.
    pub is_by_token: bool,
    /// Realm of the user.
    pub realm: Realm,
    /// Addresses of client and server.
    pub five_tuple: FiveTuple,
    /// True if the client has used a mobility ticket (RFC 8016). The client may have had another
    /// address.
    pub has_moved: bool,
    /// Relayed addresses in responses to clients: IPv4, IPv6. With 1:1 NAT these are the public
    /// addresses.
    pub relayed: [Option<RelayedAddr>; 2],
    /// Time of the Allocate.
    pub created: Instant,
    /// Expiry without another Refresh, the later expiry of two relayed addresses.
    pub expires: Instant,
    /// Number of live permissions.
    pub permissions: u32,
    /// Number of live channel bindings.
    pub channels: u32,
    /// Attributes of the Allocate.
    pub attributes: AllocationAttributes,
    /// Number of connections with peers, including unfinished connections.
    pub connections: u32,
    /// Relayed and dropped traffic.
    pub traffic: Traffic,
    /// Refusals, drops and served requests.
    pub history: SessionHistory,
    /// Reason and time of the end; `None` for a live allocation.
    pub end: Option<(EndReason, Instant)>,
}

/// Peers of an allocation, with the times until which each peer may send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationPeers {
    /// Permissions: address and expiry.
    pub permissions: Vec<(IpAddr, Instant)>,
    /// Channels: number, peer and expiry.
    pub channels: Vec<(u16, PeerAddr, Instant)>,
    /// Peers of connections (RFC 6062), including unfinished connections.
    pub connections: Vec<PeerAddr>,
}

impl AllocationRecord {
    /// Adds traffic carried by a fast path since the record was made.
    pub fn credit(&mut self, carried: &Traffic) {
        self.traffic.add(carried);
        self.history.add_carried(carried.packets());
        self.history.add_drops(FAST_PATH_DROPS, carried.dropped_packets);
    }
}

#[cfg(feature = "samples")]
impl RefusedRequest {
    /// Returns a sample request of the client of [`AllocationRecord::sample`] without a proven
    /// user, for tests.
    #[must_use]
    pub fn sample(reason: Refusal) -> Self {
        let five_tuple = AllocationRecord::sample().five_tuple;
        Self {
            path: ClientPath { five_tuple, socket: turn_types::SocketId(0) },
            method: Method::CREATE_PERMISSION,
            user: None,
            claimed: None,
            account: None,
            peer: None,
            share: None,
            reason,
        }
    }
}

impl AllocationRecord {
    /// Returns the account of the credential that the client uses now.
    #[must_use]
    pub fn latest_account(&self) -> &str {
        self.renewed_by.as_ref().unwrap_or(&self.account)
    }
}

#[cfg(feature = "samples")]
impl AllocationRecord {
    /// Returns a sample record of a new allocation without traffic, for tests. The user is `alice`
    /// in the realm `example.org`, over UDP.
    #[must_use]
    pub fn sample() -> Self {
        let lifetime = core::time::Duration::from_mins(10);
        Self {
            id: AllocationId::new(turn_types::WorkerId(0), 1),
            user: "alice".into(),
            account: "alice".into(),
            renewed_by: None,
            is_by_token: false,
            realm: "example.org".into(),
            five_tuple: FiveTuple {
                transport: turn_types::Transport::Udp,
                client: turn_types::ClientAddr(([192, 0, 2, 9], 4000).into()),
                server: turn_types::ServerAddr(([203, 0, 113, 7], 3478).into()),
            },
            has_moved: false,
            relayed: [Some(RelayedAddr(([203, 0, 113, 7], 50000).into())), None],
            created: Instant::ZERO,
            expires: Instant::ZERO + lifetime,
            permissions: 0,
            channels: 0,
            attributes: AllocationAttributes::default(),
            connections: 0,
            traffic: Traffic::default(),
            history: SessionHistory::default(),
            end: None,
        }
    }
}

/// Packets and payload bytes accepted for relaying, and dropped packets. Connections with peers
/// count bytes and no packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of packets from client to peers.
    pub to_peer_packets: u64,
    /// Payload bytes from client to peers.
    pub to_peer_bytes: u64,
    /// Number of packets from peers to client.
    pub to_client_packets: u64,
    /// Payload bytes from peers to client.
    pub to_client_bytes: u64,
    /// Number of packets dropped in either direction (no permission, no channel, bandwidth, ...).
    pub dropped_packets: u64,
}

fields!(Traffic {
    1 => to_peer_packets,
    2 => to_peer_bytes,
    3 => to_client_packets,
    4 => to_client_bytes,
    5 => dropped_packets,
});

impl Traffic {
    /// Returns the number of relayed packets in both directions.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.to_peer_packets.saturating_add(self.to_client_packets)
    }

    /// Returns the sum of all counts, which changes with each packet.
    pub(crate) const fn total(&self) -> u64 {
        let Self {
            to_peer_packets,
            to_peer_bytes,
            to_client_packets,
            to_client_bytes,
            dropped_packets,
        } = *self;
        let packets = to_peer_packets.wrapping_add(to_client_packets);
        let bytes = to_peer_bytes.wrapping_add(to_client_bytes);
        packets.wrapping_add(bytes).wrapping_add(dropped_packets)
    }

    /// Adds the counts of `other`.
    pub const fn add(&mut self, other: &Self) {
        let Self {
            to_peer_packets,
            to_peer_bytes,
            to_client_packets,
            to_client_bytes,
            dropped_packets,
        } = self;
        *to_peer_packets = to_peer_packets.saturating_add(other.to_peer_packets);
        *to_peer_bytes = to_peer_bytes.saturating_add(other.to_peer_bytes);
        *to_client_packets = to_client_packets.saturating_add(other.to_client_packets);
        *to_client_bytes = to_client_bytes.saturating_add(other.to_client_bytes);
        *dropped_packets = dropped_packets.saturating_add(other.dropped_packets);
    }
}

turn_types::labels! {
    /// Budget that limits the effects of unauthenticated sources.
    Budget {
        /// Binding responses to a network of possibly forged addresses.
        Bindings => "bindings",
        /// Other responses to a network of possibly forged addresses.
        Challenges => "challenges",
        /// Unauthenticated responses to a customer with a proved address.
        ProvedAddress => "proved_address",
        /// Failed verifications of a customer's requests.
        FailedVerifications => "failed_verifications",
        /// Concurrent user look-ups for a customer's clients.
        UserLookups => "user_lookups",
        /// Processor time for authenticated requests of a customer, or of an account that the
        /// customer uses.
        Requests => "requests",
        /// Responses to possibly forged addresses of all networks together.
        AllNetworks => "all_networks",
    }
}

turn_types::labels! {
    /// Reason why an allocation ended.
    EndReason {
        /// The client sent a Refresh with LIFETIME 0.
        Deleted => "deleted_by_client",
        /// The client did not refresh the allocation in time.
        Expired => "expired",
        /// An operator ended the allocation.
        EndedByOperator => "ended_by_operator",
        /// The credential was revoked, or the credential's secret or key was removed.
        Revoked => "revoked",
        /// The server shut down.
        Shutdown => "shutdown",
        /// A reload, or the configuration of a successor, has removed the relay address.
        RelayAddressRemoved => "relay_address_removed",
        /// The system was out of memory when the allocation moved with the client.
        SystemExhausted => "system_exhausted",
        /// The client's connection ended (TCP, TLS, DTLS).
        ConnectionClosed => "connection_closed",
        /// The configuration of a successor has removed the client's listener.
        ListenerRemoved => "listener_removed",
    }
}
