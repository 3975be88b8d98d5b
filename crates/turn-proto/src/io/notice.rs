//! Notices: the raw material of log lines, metrics and accounting. They are optional to poll: the server never
//! waits for a reader.

use alloc::boxed::Box;
use alloc::sync::Arc;

use stun_wire::Method;
use turn_types::{AllocationId, ClientPath, FiveTuple, Instant, Prefix, Realm, RelayedAddr};

use super::allocate_request::AllocationAttributes;

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An allocation was made; its traffic is still zero and `end` is `None`.
    AllocationCreated(Box<AllocationRecord>),
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
    Refused {
        /// The path of the request.
        path: ClientPath,
        /// Its method.
        method: Method,
        /// The user, if the request was authentic.
        user: Option<Arc<str>>,
        /// The reason.
        reason: Refusal,
    },
    /// A source has used up a budget and gets no answers for now. At most one a minute for each budget.
    BudgetSpent {
        /// The budget.
        budget: Budget,
        /// The network or customer.
        source: Prefix,
    },
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
    /// The realm.
    pub realm: Realm,
    /// Client and server address.
    pub five_tuple: FiveTuple,
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
    /// Reason and time of its end, once it has ended.
    pub end: Option<(EndReason, Instant)>,
}

#[cfg(feature = "samples")]
impl AllocationRecord {
    /// The record of a new allocation, for tests that need one: of `alice` in realm `example.org`, over UDP, without
    /// traffic.
    #[must_use]
    pub fn sample() -> Self {
        let lifetime = core::time::Duration::from_mins(10);
        Self {
            id: AllocationId::new(turn_types::WorkerId(0), 1),
            user: "alice".into(),
            account: "alice".into(),
            realm: "example.org".into(),
            five_tuple: FiveTuple {
                transport: turn_types::Transport::Udp,
                client: turn_types::ClientAddr(([192, 0, 2, 9], 4000).into()),
                server: turn_types::ServerAddr(([203, 0, 113, 7], 3478).into()),
            },
            relayed: [Some(RelayedAddr(([203, 0, 113, 7], 50000).into())), None],
            created: Instant::ZERO,
            expires: Instant::ZERO + lifetime,
            permissions: 0,
            channels: 0,
            attributes: AllocationAttributes::default(),
            connections: 0,
            traffic: Traffic::default(),
            end: None,
        }
    }
}

/// Packets and payload bytes that were accepted for relaying, and packets dropped on the way. Connections
/// with peers have bytes and no packets.
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

impl Traffic {
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
        /// The server shut down.
        Shutdown => "shutdown",
        /// Its relay address was taken away by a reload.
        RelayAddressRemoved => "relay_address_removed",
        /// The system was out of memory when it moved with its client.
        SystemExhausted => "system_exhausted",
        /// The client's connection ended (TCP, TLS, DTLS).
        ConnectionClosed => "connection_closed",
    }
}

turn_types::labels! {
    /// Reason of a refused request, for operators. The client gets the error code: [`Refusal::code`].
    Refusal {
        /// No credentials; the normal first step of every client.
        NoCredentials => "no_credentials",
        /// Integrity without USERNAME or USERHASH, REALM or NONCE.
        IncompleteCredentials => "incomplete_credentials",
        /// The password algorithms do not match the offer (bid-down protection).
        PasswordAlgorithms => "password_algorithms",
        /// REALM is not ours.
        WrongRealm => "wrong_realm",
        /// No such user.
        UnknownUser => "unknown_user",
        /// The user is known, the key is wrong.
        WrongPassword => "wrong_password",
        /// An access token that cannot be read: altered, made for another server, or with another key.
        BadToken => "bad_token",
        /// An access token with a USERNAME that names no key of ours.
        UnknownTokenKey => "unknown_token_key",
        /// An expired time-limited credential or access token.
        CredentialExpired => "credential_expired",
        /// A nonce that is too old.
        StaleNonce => "stale_nonce",
        /// A nonce that was not given to this client.
        InvalidNonce => "invalid_nonce",
        /// The user database could not be asked.
        UserDatabaseUnavailable => "user_database_unavailable",
        /// Unknown comprehension-required attributes.
        UnknownAttributes => "unknown_attributes",
        /// A request without the magic cookie over DTLS (RFC 8489 §11).
        NoCookie => "no_cookie",
        /// An attribute is missing, malformed, or contradicts another.
        BadRequest => "bad_request",
        /// A channel number outside 0x4000..=0x4FFF, as clients of RFC 5766 send it.
        ChannelNumber => "channel_number",
        /// A request on a 5-tuple that has no allocation.
        NoAllocation => "no_allocation",
        /// A second Allocate on a 5-tuple.
        AllocationExists => "allocation_exists",
        /// Authentic, but not the user of the allocation.
        WrongUser => "wrong_user",
        /// REQUESTED-TRANSPORT is neither UDP nor, where it is served, TCP.
        UnsupportedTransport => "unsupported_transport",
        /// Not for the protocol of the allocation: Connect for UDP, ChannelBind for TCP.
        RelayProtocol => "relay_protocol",
        /// Connect to a peer with which there is a connection.
        ConnectionExists => "connection_exists",
        /// The peer refused the connection, or did not answer, or is out of reach.
        ConnectionFailed => "connection_failed",
        /// CONNECTION-ID names no connection that waits for the client's.
        UnknownConnection => "unknown_connection",
        /// The allocation, or the worker, has as many connections with peers as it may have.
        ConnectionLimit => "connection_limit",
        /// DF cannot be honoured on this kind of relay.
        DontFragment => "dont_fragment",
        /// An address family that is not served.
        FamilyUnsupported => "family_unsupported",
        /// The peer's family has no relayed address.
        PeerFamilyMismatch => "peer_family_mismatch",
        /// RESERVATION-TOKEN is unknown, used or expired.
        BadReservationToken => "bad_reservation_token",
        /// No relay port is free.
        PortsExhausted => "ports_exhausted",
        /// The system is out of sockets or memory.
        SystemExhausted => "system_exhausted",
        /// The user has as many allocations as allowed.
        UserQuota => "user_quota",
        /// The customer's clients have as many allocations as allowed.
        AddressQuota => "address_quota",
        /// The server has as many allocations as allowed.
        TotalQuota => "total_quota",
        /// The allocation has as many permissions as allowed.
        PermissionLimit => "permission_limit",
        /// The customer, or the account, began to send to too many peers in a short time.
        NewPeerLimit => "new_peer_limit",
        /// The allocation has as many channels as allowed.
        ChannelLimit => "channel_limit",
        /// The channel is bound to another peer, or the peer to another channel.
        ChannelConflict => "channel_conflict",
        /// The peer rules forbid the peer.
        PeerForbidden => "peer_forbidden",
        /// A client address from a tunnel range (Teredo, 6to4), which RFC 8656 §21.4 forbids.
        TunnelClient => "tunnel_client",
        /// The server is draining: no new allocations.
        Draining => "draining",
        /// MOBILITY-TICKET where clients may not move.
        MobilityForbidden => "mobility_forbidden",
        /// MOBILITY-TICKET is none of ours, void, or of an allocation that has ended.
        BadTicket => "bad_ticket",
        /// The worker that has the allocation could not be asked, or the allocation was on its way
        /// from one to another.
        MoveUnavailable => "move_unavailable",
        /// The client is sent elsewhere.
        Redirected => "redirected",
    }
}

impl Refusal {
    /// The STUN error code that the client is told (RFC 8489 §14.8, RFC 8656 §19).
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Redirected => 300,
            Self::IncompleteCredentials
            | Self::PasswordAlgorithms
            | Self::BadRequest
            | Self::ChannelNumber
            | Self::BadTicket
            | Self::ChannelConflict
            | Self::UnknownConnection => 400,
            Self::NoCredentials
            | Self::WrongRealm
            | Self::UnknownUser
            | Self::WrongPassword
            | Self::BadToken
            | Self::UnknownTokenKey
            | Self::CredentialExpired => 401,
            Self::PeerForbidden | Self::TunnelClient | Self::RelayProtocol => 403,
            Self::MobilityForbidden => 405,
            Self::UnknownAttributes | Self::DontFragment => 420,
            Self::NoAllocation | Self::AllocationExists => 437,
            Self::StaleNonce | Self::InvalidNonce => 438,
            Self::FamilyUnsupported => 440,
            Self::WrongUser => 441,
            Self::UnsupportedTransport => 442,
            Self::PeerFamilyMismatch => 443,
            Self::ConnectionExists => 446,
            Self::ConnectionFailed => 447,
            Self::UserQuota | Self::AddressQuota => 486,
            Self::UserDatabaseUnavailable | Self::NoCookie | Self::MoveUnavailable => 500,
            Self::TotalQuota
            | Self::BadReservationToken
            | Self::PortsExhausted
            | Self::SystemExhausted
            | Self::PermissionLimit
            | Self::NewPeerLimit
            | Self::ChannelLimit
            | Self::ConnectionLimit
            | Self::Draining => 508,
        }
    }
}
