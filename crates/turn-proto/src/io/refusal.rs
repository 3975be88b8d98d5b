//! Reasons to refuse a request, and their error codes.

turn_types::labels! {
    /// Reason of a refused request, for operators. The client gets the error code:
    /// [`Refusal::code`].
    Refusal {
        /// No credentials; the normal first step of every client.
        NoCredentials => "no_credentials",
        /// Integrity without USERNAME or USERHASH, REALM or NONCE.
        IncompleteCredentials => "incomplete_credentials",
        /// The password algorithms do not match the offer (bid-down protection).
        PasswordAlgorithms => "password_algorithms",
        /// REALM is not ours.
        WrongRealm => "wrong_realm",
        /// USERNAME is empty, too long, or has a character that RFC 8265 forbids.
        InvalidUsername => "invalid_username",
        /// No such user.
        UnknownUser => "unknown_user",
        /// The user is known, the key is wrong.
        WrongPassword => "wrong_password",
        /// A time-limited credential that no shared secret of ours has made.
        WrongSecret => "wrong_secret",
        /// An access token that cannot be read: altered, made for another server, or with another
        /// key.
        BadToken => "bad_token",
        /// An access token with a USERNAME that names no key of ours.
        UnknownTokenKey => "unknown_token_key",
        /// An expired time-limited credential or access token.
        CredentialExpired => "credential_expired",
        /// A credential, user or key that an operator has revoked.
        CredentialRevoked => "credential_revoked",
        /// The limits in the name of a time-limited credential cannot be read.
        UnreadableLimits => "unreadable_limits",
        /// The authorizer denies the client an allocation.
        NotAuthorized => "not_authorized",
        /// The authorizer gives no answer.
        AuthorizerUnavailable => "authorizer_unavailable",
        /// Too many Allocate requests wait for the authorizer.
        AuthorizerOverloaded => "authorizer_overloaded",
        /// A nonce that is too old.
        StaleNonce => "stale_nonce",
        /// A nonce that was not given to this client.
        InvalidNonce => "invalid_nonce",
        /// The user database could not be asked.
        UserDatabaseUnavailable => "user_database_unavailable",
        /// Too many requests wait for user look-ups.
        UserLookupsOverloaded => "user_lookups_overloaded",
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
        /// REQUESTED-TRANSPORT is neither UDP nor TCP, or one that is not relayed here.
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
        /// Few relay ports are free, and the network, account or realm of the client has its share.
        PortsShare => "ports_share",
        /// The host does not have the relay address now.
        RelayAddressAbsent => "relay_address_absent",
        /// The system is out of sockets or memory.
        SystemExhausted => "system_exhausted",
        /// The user has as many allocations as allowed.
        UserQuota => "user_quota",
        /// The customer's clients have as many allocations as allowed.
        AddressQuota => "address_quota",
        /// The realm has as many allocations as allowed.
        RealmQuota => "realm_quota",
        /// The server has as many allocations as allowed.
        TotalQuota => "total_quota",
        /// The rates of all allocations, or of the realm's, add up to as much as allowed.
        BandwidthQuota => "bandwidth_quota",
        /// Little of the server's or realm's quota is left, and the network, account or
        /// realm of the client has its share.
        QuotaShare => "quota_share",
        /// Few connections or DTLS sessions are left that may have an allocation, and the network,
        /// account or realm of the client has its share.
        ConnectionShare => "connection_share",
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

state_format::labelled!(Refusal, "reason of a refusal");

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
            | Self::InvalidUsername
            | Self::UnknownUser
            | Self::WrongPassword
            | Self::WrongSecret
            | Self::BadToken
            | Self::UnknownTokenKey
            | Self::CredentialExpired
            | Self::CredentialRevoked => 401,
            Self::PeerForbidden
            | Self::TunnelClient
            | Self::RelayProtocol
            | Self::UnreadableLimits
            | Self::NotAuthorized => 403,
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
            Self::UserQuota | Self::AddressQuota | Self::RealmQuota => 486,
            Self::UserDatabaseUnavailable
            | Self::UserLookupsOverloaded
            | Self::AuthorizerUnavailable
            | Self::AuthorizerOverloaded
            | Self::NoCookie
            | Self::MoveUnavailable => 500,
            Self::TotalQuota
            | Self::BandwidthQuota
            | Self::BadReservationToken
            | Self::PortsExhausted
            | Self::PortsShare
            | Self::RelayAddressAbsent
            | Self::QuotaShare
            | Self::ConnectionShare
            | Self::SystemExhausted
            | Self::PermissionLimit
            | Self::NewPeerLimit
            | Self::ChannelLimit
            | Self::ConnectionLimit
            | Self::Draining => 508,
        }
    }
}
