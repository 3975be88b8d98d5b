//! Notices: the raw material of log lines, metrics and accounting. They are optional to poll: the
//! server never waits for a reader.

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

/// The only reason for which a fast path drops packets: others go to the sockets.
pub(crate) const FAST_PATH_DROPS: DropReason = DropReason::Bandwidth;

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An allocation was made; its traffic is still zero and `end` is `None`.
    AllocationCreated(Box<AllocationRecord>),
    /// An allocation was refreshed and continues. The policy enables this notice. An allocation has
    /// at most one in a second.
    AllocationRefreshed(Box<AllocationRecord>),
    /// An allocation ended: the one record of its usage.
    AllocationEnded(Box<AllocationRecord>),
    /// A client that may move has moved.
    AllocationMoved {
        /// Its allocation.
        id: AllocationId,
        /// The old 5-tuple.
        from: FiveTuple,
        /// The new 5-tuple.
        to: FiveTuple,
    },
    /// A request was refused.
    Refused(RefusedRequest),
    /// A source has used up a budget and gets no answers for now. At most one a minute for each
    /// budget.
    BudgetSpent {
        /// The budget.
        budget: Budget,
        /// The network or customer.
        source: Prefix,
    },
}

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    /// The path of the request.
    pub path: ClientPath,
    /// Its method.
    pub method: Method,
    /// The user, if the request was authentic.
    pub user: Option<Arc<str>>,
    /// The name in a request that was not, in its form if it has one: any client may have sent it.
    pub claimed: Option<Arc<str>>,
    /// Account of that user or name: without the time of a time-limited name.
    pub account: Option<Arc<str>>,
    /// The forbidden peer, where one is the reason.
    pub peer: Option<ForbiddenPeer>,
    /// The largest part of the client's use, where a full share is the reason.
    pub share: Option<ShareHolder>,
    /// The reason.
    pub reason: Refusal,
}

/// Holder of a share of ports and quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareHolder {
    /// A network of clients.
    Network(Prefix),
    /// An account.
    Account(Arc<str>),
    /// A realm.
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

/// A peer that the rules forbid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForbiddenPeer {
    /// Its address, as the client named it.
    pub address: IpAddr,
    /// The rule that decided.
    pub by: DeniedBy,
    /// The operator's rule, where [`DeniedBy::Rule`] decided.
    pub rule: Option<PlacedRule>,
}

/// Session record of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationRecord {
    /// Its id.
    pub id: AllocationId,
    /// The user, as authenticated; empty on an open relay.
    pub user: Arc<str>,
    /// The account that quotas count by: the user without the time stamp of a time-limited name.
    pub account: Arc<str>,
    /// Account of the token that was shown last, if it is another one.
    pub renewed_by: Option<Arc<str>>,
    /// The client has an access token (RFC 7635): the user is the name of the token's key.
    pub is_by_token: bool,
    /// The realm.
    pub realm: Realm,
    /// Client and server address.
    pub five_tuple: FiveTuple,
    /// The client has used a mobility ticket (RFC 8016): it may have had another address.
    pub has_moved: bool,
    /// Relayed addresses as clients are told them (behind 1:1 NAT the public ones): IPv4, IPv6.
    pub relayed: [Option<RelayedAddr>; 2],
    /// Time of its Allocate.
    pub created: Instant,
    /// Its end unless it is refreshed (the later one of two relayed addresses).
    pub expires: Instant,
    /// Live permissions.
    pub permissions: u32,
    /// Live channel bindings.
    pub channels: u32,
    /// The attributes of its Allocate.
    pub attributes: AllocationAttributes,
    /// Connections with peers, including unfinished ones.
    pub connections: u32,
    /// Relayed and dropped traffic.
    pub traffic: Traffic,
    /// Refusals, drops and served requests.
    pub history: SessionHistory,
    /// Reason and time of its end, once it has ended.
    pub end: Option<(EndReason, Instant)>,
}

/// The peers of an allocation, with the time until which each may send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationPeers {
    /// Permissions: address and end.
    pub permissions: Vec<(IpAddr, Instant)>,
    /// Channels: number, peer and end.
    pub channels: Vec<(u16, PeerAddr, Instant)>,
    /// Connections with peers (RFC 6062), including unfinished ones.
    pub connections: Vec<PeerAddr>,
}

impl AllocationRecord {
    /// Adds traffic that a fast path carried since the record was made.
    pub fn credit(&mut self, carried: &Traffic) {
        self.traffic.add(carried);
        self.history.add_carried(carried.packets());
        self.history.add_drops(FAST_PATH_DROPS, carried.dropped_packets);
    }
}

#[cfg(feature = "samples")]
impl RefusedRequest {
    /// A request of the client of [`AllocationRecord::sample`] that proved no user, for tests that
    /// need one.
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
    /// The account of what its client uses now.
    #[must_use]
    pub fn latest_account(&self) -> &str {
        self.renewed_by.as_ref().unwrap_or(&self.account)
    }
}

#[cfg(feature = "samples")]
impl AllocationRecord {
    /// The record of a new allocation, for tests that need one: of `alice` in realm `example.org`,
    /// over UDP, without traffic.
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

/// Packets and payload bytes that were accepted for relaying, and packets dropped on the way.
/// Connections with peers have bytes and no packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Client to peer.
    pub to_peer_packets: u64,
    /// Client to peer, bytes of payload.
    pub to_peer_bytes: u64,
    /// Peer to client.
    pub to_client_packets: u64,
    /// Peer to client, bytes of payload.
    pub to_client_bytes: u64,
    /// Dropped in either direction (no permission, no channel, bandwidth, ...).
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
    /// Relayed packets of both directions.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.to_peer_packets.saturating_add(self.to_client_packets)
    }

    /// The sum of all counts, which grows with each packet.
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
    /// A budget for the effects of unauthenticated sources.
    Budget {
        /// Binding responses to a network of possibly forged addresses.
        Bindings => "bindings",
        /// Other responses to a network of possibly forged addresses.
        Challenges => "challenges",
        /// Unauthenticated responses to a customer with a proved address.
        ProvedAddress => "proved_address",
        /// Failed verifications of a customer's requests.
        FailedVerifications => "failed_verifications",
        /// User look-ups at a time for a customer's clients.
        UserLookups => "user_lookups",
        /// Time for authenticated requests of a customer, or of an account that it uses.
        Requests => "requests",
        /// Responses to possibly forged addresses of all networks together.
        AllNetworks => "all_networks",
    }
}

turn_types::labels! {
    /// Why an allocation ended.
    EndReason {
        /// The client refreshed it with LIFETIME 0.
        Deleted => "deleted_by_client",
        /// It was not refreshed in time.
        Expired => "expired",
        /// An operator ended it.
        EndedByOperator => "ended_by_operator",
        /// Its credential was revoked, or is made with a secret or key that was removed.
        Revoked => "revoked",
        /// The server shut down.
        Shutdown => "shutdown",
        /// A reload, or the configuration of a successor, has removed its relay address.
        RelayAddressRemoved => "relay_address_removed",
        /// The system was out of memory when it moved with its client.
        SystemExhausted => "system_exhausted",
        /// The client's connection ended (TCP, TLS, DTLS).
        ConnectionClosed => "connection_closed",
        /// The configuration of a successor has removed the listener of its client.
        ListenerRemoved => "listener_removed",
    }
}
