//! Reasons to refuse a request, and their error codes.

turn_types::labels! {
    /// Reason of a refused request, for operators. The client gets the error code
    /// ([`Refusal::code`]).
    Refusal {
        /// The request has no credentials, which is the normal first step of every client.
        NoCredentials => "no_credentials",
        /// The request has integrity without USERNAME or USERHASH, REALM or NONCE.
        IncompleteCredentials => "incomplete_credentials",
        /// The password algorithms do not match the offer (bid-down protection).
        PasswordAlgorithms => "password_algorithms",
        /// REALM names no realm of this server.
        WrongRealm => "wrong_realm",
        /// USERNAME is empty, too long, or has a character that RFC 8265 forbids.
        InvalidUsername => "invalid_username",
        /// The user does not exist.
        UnknownUser => "unknown_user",
        /// The user is known, the key is wrong.
        WrongPassword => "wrong_password",
        /// A time-limited credential was made with none of this server's shared secrets.
        WrongSecret => "wrong_secret",
        /// An access token cannot be decrypted: altered, made for another server, or encrypted with
        /// another key.
        BadToken => "bad_token",
        /// USERNAME of a request with an access token names no key of this server.
        UnknownTokenKey => "unknown_token_key",
        /// A time-limited credential or access token has expired.
        CredentialExpired => "credential_expired",
        /// An operator has revoked the credential, user or key.
        CredentialRevoked => "credential_revoked",
        /// The limits in the name of a time-limited credential cannot be read.
        UnreadableLimits => "unreadable_limits",
        /// The authorizer denies the client an allocation.
        NotAuthorized => "not_authorized",
        /// The authorizer does not respond.
        AuthorizerUnavailable => "authorizer_unavailable",
        /// Too many Allocate requests wait for the authorizer.
        AuthorizerOverloaded => "authorizer_overloaded",
        /// The nonce is too old.
        StaleNonce => "stale_nonce",
        /// The nonce was not issued to this client.
        InvalidNonce => "invalid_nonce",
        /// The user database could not be queried.
        UserDatabaseUnavailable => "user_database_unavailable",
        /// Too many requests wait for user look-ups.
        UserLookupsOverloaded => "user_lookups_overloaded",
        /// The request has unknown comprehension-required attributes.
        UnknownAttributes => "unknown_attributes",
        /// A request without the magic cookie over DTLS (RFC 8489 §11).
        NoCookie => "no_cookie",
        /// An attribute is missing, malformed, or contradicts another.
        BadRequest => "bad_request",
        /// The channel number is outside 0x4000..=0x4FFF. Clients of RFC 5766 send such numbers.
        ChannelNumber => "channel_number",
        /// The 5-tuple of the request has no allocation.
        NoAllocation => "no_allocation",
        /// The 5-tuple of an Allocate already has an allocation.
        AllocationExists => "allocation_exists",
        /// The request is authentic, but not from the user of the allocation.
        WrongUser => "wrong_user",
        /// REQUESTED-TRANSPORT is neither UDP nor TCP, or is not relayed by this server.
        UnsupportedTransport => "unsupported_transport",
        /// The request does not fit the allocation's protocol: Connect for UDP, ChannelBind for
        /// TCP.
        RelayProtocol => "relay_protocol",
        /// Connect names a peer that already has a connection with the allocation.
        ConnectionExists => "connection_exists",
        /// The peer refused the connection, did not respond, or is unreachable.
        ConnectionFailed => "connection_failed",
        /// CONNECTION-ID names no connection that waits for a client connection.
        UnknownConnection => "unknown_connection",
        /// The allocation, or the worker, has the maximum number of connections with peers.
        ConnectionLimit => "connection_limit",
        /// DF cannot be honoured on this kind of relay.
        DontFragment => "dont_fragment",
        /// The address family is not served.
        FamilyUnsupported => "family_unsupported",
        /// The allocation has no relayed address of the peer's family.
        PeerFamilyMismatch => "peer_family_mismatch",
        /// RESERVATION-TOKEN is unknown, used or expired.
        BadReservationToken => "bad_reservation_token",
        /// No relay port is free.
        PortsExhausted => "ports_exhausted",
        /// Few relay ports are free, and the share of the client's network, account or realm is
        /// used up.
        PortsShare => "ports_share",
        /// The host does not have the relay address now.
        RelayAddressAbsent => "relay_address_absent",
        /// The system is out of sockets or memory.
        SystemExhausted => "system_exhausted",
        /// The user has the maximum number of allocations.
        UserQuota => "user_quota",
        /// The customer's clients have the maximum number of allocations.
        AddressQuota => "address_quota",
        /// The realm has the maximum number of allocations.
        RealmQuota => "realm_quota",
        /// The server has the maximum number of allocations.
        TotalQuota => "total_quota",
        /// The rates of all allocations, or of the realm's allocations, add up to the maximum.
        BandwidthQuota => "bandwidth_quota",
        /// Little of the server's or realm's quota is left, and the share of the client's network,
        /// account or realm is used up.
        QuotaShare => "quota_share",
        /// Few connections or DTLS sessions that may have an allocation are left, and the share of
        /// the client's network, account or realm is used up.
        ConnectionShare => "connection_share",
        /// The allocation has the maximum number of permissions.
        PermissionLimit => "permission_limit",
        /// The customer, or the account, started to send to too many peers in a short time.
        NewPeerLimit => "new_peer_limit",
        /// The allocation has the maximum number of channels.
        ChannelLimit => "channel_limit",
        /// The channel is bound to another peer, or the peer to another channel.
        ChannelConflict => "channel_conflict",
        /// The peer rules forbid the peer.
        PeerForbidden => "peer_forbidden",
        /// The client address belongs to a tunnel range (Teredo, 6to4), which RFC 8656 §21.4
        /// forbids.
        TunnelClient => "tunnel_client",
        /// The server is draining, and refuses new allocations.
        Draining => "draining",
        /// The request has a MOBILITY-TICKET, and this client may not move.
        MobilityForbidden => "mobility_forbidden",
        /// MOBILITY-TICKET is void, was not made by this server, or names an ended allocation.
        BadTicket => "bad_ticket",
        /// The worker with the allocation could not be queried, or the allocation was moving
        /// between workers.
        MoveUnavailable => "move_unavailable",
        /// The client is redirected to another server.
        Redirected => "redirected",
    }
}

state_format::labelled!(Refusal, "reason of a refusal");

impl Refusal {
    /// Returns the STUN error code for the client (RFC 8489 §14.8, RFC 8656 §19).
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
