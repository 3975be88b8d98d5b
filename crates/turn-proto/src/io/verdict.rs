//! Verdicts: the outcome of each packet. Every packet has exactly one verdict, and every verdict is
//! counted.

use core::net::IpAddr;

use turn_types::{ClientAddr, ClientPath, IpMeta, PeerAddr, RelayId, ServerAddr, SocketId};

/// Maximum length in bytes of responses and ICMP reports written by the server: the limit of RFC
/// 8489 §6.1 over IPv4 with an unknown path MTU. Relayed data keeps the length chosen by the
/// sender.
pub const REPLY_MAX: usize = 548;

/// Maximum length in bytes of the header before a peer's datagram. A Data indication from an IPv6
/// peer has 20 (header) + 24 (XOR-PEER-ADDRESS) + 4 (DATA) bytes.
pub const HEADER_MAX: usize = 48;

/// Buffer for a response.
pub type ReplyBuffer = [u8; REPLY_MAX];

/// Buffer for the header before a peer's datagram.
pub type HeaderBuffer = [u8; HEADER_MAX];

/// Outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send the first `len` bytes of the reply buffer back to the packet's source.
    Reply {
        /// Number of bytes in the reply buffer.
        len: u16,
        /// True for an error response.
        error: bool,
    },
    /// Send the first `len` bytes of the reply buffer, followed by zeros, to the client's address
    /// (RFC 5780 §6.1). The source is another server address than the packet's destination, or the
    /// destination is another port of the client. The packet was a datagram.
    ReplyFrom {
        /// Number of bytes in the reply buffer.
        len: u16,
        /// Number of zero bytes after the reply, at most
        /// [`PADDING_MAX`](crate::limits::PADDING_MAX).
        padding: u16,
        /// Address of the listening socket that sends the response.
        from: ServerAddr,
        /// Destination port at the client's address.
        to_port: u16,
    },
    /// Send `len` bytes of the packet, from offset `start`, unchanged from a relay socket.
    ToPeer {
        /// Relay socket to send from.
        relay: RelayId,
        /// Destination peer.
        peer: PeerAddr,
        /// Offset of the payload in the packet.
        start: u16,
        /// Length of the payload in bytes; 0 is an empty datagram.
        len: u16,
        /// TTL, traffic class and DF of the sent datagram.
        meta: IpMeta,
    },
    /// Send the first `header` bytes of the header buffer, the complete datagram of the peer, and
    /// `padding` zero bytes to a client.
    ToClient {
        /// Server socket of the client.
        socket: SocketId,
        /// Destination client.
        client: ClientAddr,
        /// Server address to send from.
        from: IpAddr,
        /// Number of bytes in the header buffer: 4 for ChannelData, 36 or 48 for a Data indication.
        header: u8,
        /// Number of zero bytes after the datagram, 0..=3. DATA attributes are padded (RFC 8489
        /// §14), and ChannelData on streams (RFC 8656 §12.5).
        padding: u8,
        /// TTL and traffic class of the sent message.
        meta: IpMeta,
    },
    /// The request waits for the result of a command, and gets an [`Answer`] later.
    Wait,
    /// A ConnectionBind waits for the result of a command, and gets an [`Answer`] later. The
    /// following bytes of the stream may be data (RFC 6062 §5.4). The caller must hold these bytes
    /// until the answer.
    Hold,
    /// The packet is queued until the client's allocation has arrived from another worker (RFC
    /// 8016). [`Server::poll_queued`](crate::Server::poll_queued) returns the packet later. The
    /// caller then passes the packet to the server again, and gets the final verdict.
    Queued,
    /// Send nothing, for this reason.
    Drop(DropReason),
}

impl Verdict {
    /// Returns the answer for a request that waited, or was [held](Self::Hold). `None` if nothing
    /// is sent.
    pub(crate) const fn into_answer(self, to: ClientPath, held: bool) -> Option<Answer> {
        let Self::Reply { len, error } = self else { return None };
        Some(Answer { to, len, error, held })
    }
}

// A verdict is passed by value for each packet, and must stay within a cache line.
const _: () = assert!(size_of::<Verdict>() <= 64);

/// Response to a request that waited, or ICMP report for a client. In contrast to a verdict, an
/// answer does not belong to a packet just received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Destination client, and the socket for the client.
    pub to: ClientPath,
    /// Number of bytes in the reply buffer.
    pub len: u16,
    /// True for an error response.
    pub error: bool,
    /// True if the request was [held](Verdict::Hold).
    pub held: bool,
}

turn_types::labels! {
    /// Reason to close a peer's connection immediately after the accept (RFC 6062 §5.3).
    PeerRefusal {
        /// The peer has no permission.
        NoPermission => "no_permission",
        /// The peer is an address of this host, at a port that is no live allocation.
        OwnAddress => "own_address",
        /// The allocation, or the worker, has the maximum number of connections.
        TooMany => "too_many",
        /// The allocation has ended.
        RelayClosed => "relay_closed",
    }
}

turn_types::labels! {
    /// Reason of a dropped packet. The label names the reason in metrics and logs, and the counter
    /// follows from the label. For a new reason, add a variant and a simulated world in which the
    /// reason occurs. Otherwise list the reason with its test in `simulation/tests/elsewhere`.
    DropReason {
        /// The first byte belongs neither to STUN nor to ChannelData (RFC 8656 §12).
        NotStun => "not_stun",
        /// The packet looks like STUN and is malformed: length, cookie or attribute structure, more
        /// than 192 attributes, or a request of more than 4,096 bytes.
        MalformedStun => "malformed_stun",
        /// FINGERPRINT does not match (RFC 8489 §6.3).
        BadFingerprint => "bad_fingerprint",
        /// The method is unknown, or does not allow this class (RFC 8489 §6.3).
        UnexpectedMethod => "unexpected_method",
        /// A response matches no transaction of this server (RFC 8489 §6.3).
        UnexpectedResponse => "unexpected_response",
        /// A Binding indication was accepted, and has no effect (RFC 8489 §6.3.2).
        BindingIndication => "binding_indication",
        /// An indication has an unknown comprehension-required attribute (RFC 8489 §6.3.2).
        UnknownAttribute => "unknown_attribute",
        /// The budget of unauthenticated responses for a network of possibly forged addresses is
        /// used up.
        UnauthenticatedBudget => "unauthenticated_budget",
        /// The budget of unauthenticated responses for a client at a proved address is used up.
        ProvedAddressBudget => "proved_address_budget",
        /// The worker's budget of unauthenticated responses for all networks of possibly forged
        /// addresses is used up.
        AllNetworksBudget => "all_networks_budget",
        /// Too many verifications have failed for the client's address. For now only clients with
        /// an allocation are verified.
        VerificationBudget => "verification_budget",
        /// The client's address, network, account or realm has used up a share of the worker's time
        /// for requests.
        RequestBudget => "request_budget",
        /// Too many requests wait for a user look-up or another command.
        TooManyPending => "too_many_pending",
        /// The packet retransmits a request that still waits.
        AlreadyPending => "already_pending",
        /// An indication or ChannelData arrived on a 5-tuple without an allocation (RFC 8656 §5).
        NoAllocation => "no_allocation",
        /// The client's allocation is moving from another worker, and the client's queue is full
        /// (RFC 8016).
        Moving => "moving",
        /// ChannelData is shorter than the length in the header (RFC 8656 §12.6).
        MalformedChannelData => "malformed_channel_data",
        /// The channel of ChannelData is not bound (RFC 8656 §12.6).
        ChannelNotBound => "channel_not_bound",
        /// A Send indication has no usable XOR-PEER-ADDRESS or DATA (RFC 8656 §11.2).
        MalformedSend => "malformed_send",
        /// The peer has no permission (RFC 8656 §§9, 11.2, 11.3).
        NoPermission => "no_permission",
        /// Send or ChannelData arrived for an allocation that relays TCP (RFC 6062 §4).
        RelaysTcp => "relays_tcp",
        /// The allocation has no relayed address of the peer's family (RFC 8656 §11.2).
        PeerFamily => "peer_family",
        /// The peer is an address of this host, at a port that is no live allocation.
        OwnAddress => "own_address",
        /// The allocation has reached the bandwidth limit (RFC 8656 §5).
        Bandwidth => "bandwidth",
        /// TTL or hop limit reached zero.
        TtlExpired => "ttl_expired",
        /// The relay socket has no live allocation, or was closed before sending.
        RelayClosed => "relay_closed",
        /// The peer's datagram with the header for the client is too long for a STUN message, a UDP
        /// datagram or a DTLS record. Or a response does not fit, because the settings have too
        /// long a realm or domain.
        TooLong => "too_long",
        /// The ICMP error has a type that is not reported, or belongs to no live permission (RFC
        /// 8656 §11.5).
        IcmpIgnored => "icmp_ignored",
        /// The UDP checksum is wrong, because the packet was damaged in transit (RFC 768). Sockets
        /// never deliver such packets.
        Checksum => "checksum",
        /// The kernel delivered only part of a datagram.
        Truncated => "truncated",
        /// A packet without DTLS arrived over UDP, at a listener that serves only DTLS.
        UdpNotServed => "udp_not_served",
        /// The socket's send buffer was full, or the kernel had no memory for the datagram.
        SendBufferFull => "send_buffer_full",
        /// The kernel refused to send: no route, forbidden by a firewall, unreachable.
        SendRefused => "send_refused",
        /// The client reads the connection too slowly, and the oldest queued data was dropped.
        StreamBacklog => "stream_backlog",
        /// The client's connection or DTLS session ended before the packet was sent.
        StreamClosed => "stream_closed",
        /// A DTLS packet arrived on a 5-tuple without a DTLS association.
        DtlsStray => "dtls_stray",
        /// A fragment of a ClientHello arrived out of order, without a valid cookie first (RFC 6347
        /// §4.2.1), or beyond the capacity. Or a ClientHello is too long.
        DtlsHelloInPieces => "dtls_hello_in_pieces",
        /// The first message of a DTLS client is not a well-formed ClientHello.
        DtlsMalformed => "dtls_malformed",
        /// A DTLS client has proved the address by a cookie, and the table of sessions has no slot
        /// for the client.
        DtlsNoPlace => "dtls_no_place",
        /// No processor time is left for part of a DTLS handshake. The client's address has used
        /// its share, or the queue for handshakes is full, or the part waited too long. The client
        /// retransmits.
        DtlsBusy => "dtls_busy",
        /// A DTLS client sent a cookie that already started an association, which has ended.
        DtlsCookieUsed => "dtls_cookie_used",
        /// A DTLS session rejected a record that was repeated, forged or unexpected.
        DtlsRefused => "dtls_refused",
        /// The packet is larger than the outgoing link, with DF set (RFC 8656 §14).
        TooBigForLink => "too_big_for_link",
    }
}

state_format::labelled!(DropReason, "reason of a drop");
