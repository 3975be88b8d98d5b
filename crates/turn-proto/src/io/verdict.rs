//! The fate of a packet. There is exactly one, it is small, and it is counted.

use core::net::IpAddr;

use turn_types::{ClientAddr, ClientPath, IpMeta, PeerAddr, RelayId, ServerAddr, SocketId};

/// Largest answer or ICMP report that the server makes, in bytes: the limit of RFC 8489 §6.1 over
/// IPv4 when the path MTU is unknown. Relayed data is as large as its sender made it.
pub const REPLY_MAX: usize = 548;

/// Largest header that goes in front of a peer's datagram: a Data indication from an IPv6 peer is
/// 20 (header) + 24 (XOR-PEER-ADDRESS) + 4 (DATA) bytes.
pub const HEADER_MAX: usize = 48;

/// Buffer of an answer.
pub type ReplyBuffer = [u8; REPLY_MAX];

/// Buffer of the header of a peer's datagram for the client.
pub type HeaderBuffer = [u8; HEADER_MAX];

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send the first `len` bytes of the reply buffer back to where the packet came from.
    Reply {
        /// Bytes in the reply buffer.
        len: u16,
        /// It is an error response.
        error: bool,
    },
    /// Send the first `len` bytes of the reply buffer, and zeros behind them, to the client's
    /// address from an address of ours that the packet did not come to, or to another port (RFC
    /// 5780 §6.1). The packet was a datagram.
    ReplyFrom {
        /// Bytes in the reply buffer.
        len: u16,
        /// Zero bytes behind them, at most [`PADDING_MAX`](crate::limits::PADDING_MAX).
        padding: u16,
        /// The address of a listening socket, which sends the answer.
        from: ServerAddr,
        /// The port at the client's address.
        to_port: u16,
    },
    /// Send `payload` of the packet out of a relay socket, as it is.
    ToPeer {
        /// The relay socket.
        relay: RelayId,
        /// The peer.
        peer: PeerAddr,
        /// Offset of the payload in the packet.
        start: u16,
        /// Its length in bytes; 0 is an empty datagram.
        len: u16,
        /// TTL, traffic class and DF to send it with.
        meta: IpMeta,
    },
    /// Send the header buffer's first `header` bytes, the peer's whole datagram, and `padding` zero
    /// bytes to a client.
    ToClient {
        /// The client's socket on our side.
        socket: SocketId,
        /// The client.
        client: ClientAddr,
        /// The address of ours to send from.
        from: IpAddr,
        /// Bytes in the header buffer: 4 for ChannelData, 36 or 48 for a Data indication.
        header: u8,
        /// Zero bytes behind the datagram, 0..=3: a DATA attribute is padded (RFC 8489 §14), and so
        /// is ChannelData on a stream (RFC 8656 §12.5).
        padding: u8,
        /// TTL and traffic class to send it with.
        meta: IpMeta,
    },
    /// The request waits for an answer from outside; it will be answered by an [`Answer`].
    Wait,
    /// The same for a ConnectionBind: the bytes behind it on its stream may be no messages (RFC
    /// 6062 §5.4), and are not to be handed in before the answer.
    Hold,
    /// The packet is kept until its client's allocation has arrived from another worker (RFC 8016).
    /// It comes back by [`Server::poll_queued`](crate::Server::poll_queued), is handed in again,
    /// and has its fate then.
    Queued,
    /// Nothing is sent.
    Drop(DropReason),
}

impl Verdict {
    /// The answer to a request that waited, `held` or not; `None` if nothing is sent.
    pub(crate) const fn into_answer(self, to: ClientPath, held: bool) -> Option<Answer> {
        let Self::Reply { len, error } = self else { return None };
        Some(Answer { to, len, error, held })
    }
}

// A verdict is passed by value for each packet: it must stay within a cache line.
const _: () = assert!(size_of::<Verdict>() <= 64);

/// An answer that is not the fate of a packet just handed in: to a request that waited, or an ICMP
/// report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The client, and the socket to it.
    pub to: ClientPath,
    /// Bytes in the reply buffer.
    pub len: u16,
    /// It is an error response.
    pub error: bool,
    /// Its request was [held](Verdict::Hold).
    pub held: bool,
}

turn_types::labels! {
    /// Reason to close a peer's connection as soon as it was accepted (RFC 6062 §5.3).
    PeerRefusal {
        /// No permission for the peer.
        NoPermission => "no_permission",
        /// Our own address, at a port that is no live allocation.
        OwnAddress => "own_address",
        /// The allocation, or the worker, has as many connections as it may have.
        TooMany => "too_many",
        /// The allocation is gone.
        RelayClosed => "relay_closed",
    }
}

turn_types::labels! {
    /// Reason of a dropped packet. The label is its name in metrics and logs; the counter follows
    /// from it. A new reason is added here and happens in a simulated world, or is listed with its
    /// test in `simulation/tests/elsewhere`.
    DropReason {
        /// The first byte says that it is neither STUN nor ChannelData (RFC 8656 §12).
        NotStun => "not_stun",
        /// It looks like STUN and is malformed: length, cookie or attribute structure, more than
        /// 192 attributes, or a request of more than 4,096 bytes.
        MalformedStun => "malformed_stun",
        /// A FINGERPRINT that does not match (RFC 8489 §6.3).
        BadFingerprint => "bad_fingerprint",
        /// A method we do not have, or a class that the method does not allow (RFC 8489 §6.3).
        UnexpectedMethod => "unexpected_method",
        /// A response: it matches no transaction of ours (RFC 8489 §6.3).
        UnexpectedResponse => "unexpected_response",
        /// A Binding indication: accepted, and has no effect (RFC 8489 §6.3.2).
        BindingIndication => "binding_indication",
        /// An indication with an unknown comprehension-required attribute (RFC 8489 §6.3.2).
        UnknownAttribute => "unknown_attribute",
        /// The network, of possibly forged addresses, used up its budget of unauthenticated
        /// responses.
        UnauthenticatedBudget => "unauthenticated_budget",
        /// The client, at a proved address, used up its budget of unauthenticated responses.
        ProvedAddressBudget => "proved_address_budget",
        /// All networks together, of possibly forged addresses, used up the responses of the worker
        /// to unauthenticated requests.
        AllNetworksBudget => "all_networks_budget",
        /// Too many verifications have failed for the client's address: nothing is verified for
        /// now, but for clients that have an allocation.
        VerificationBudget => "verification_budget",
        /// The client's address, network, account or realm used up its part of the worker's time
        /// for requests.
        RequestBudget => "request_budget",
        /// Too many requests wait for an answer from outside.
        TooManyPending => "too_many_pending",
        /// A retransmission of a request that still waits.
        AlreadyPending => "already_pending",
        /// An indication or ChannelData on a 5-tuple without an allocation (RFC 8656 §5).
        NoAllocation => "no_allocation",
        /// The client's allocation is on its way from another worker, and its queue is full (RFC
        /// 8016).
        Moving => "moving",
        /// ChannelData shorter than it says (RFC 8656 §12.6).
        MalformedChannelData => "malformed_channel_data",
        /// ChannelData on a channel that is not bound (RFC 8656 §12.6).
        ChannelNotBound => "channel_not_bound",
        /// A Send indication without a usable XOR-PEER-ADDRESS or DATA (RFC 8656 §11.2).
        MalformedSend => "malformed_send",
        /// No permission for the peer (RFC 8656 §§9, 11.2, 11.3).
        NoPermission => "no_permission",
        /// Send or ChannelData where TCP is relayed (RFC 6062 §4).
        RelaysTcp => "relays_tcp",
        /// The peer's family has no relayed address in the allocation (RFC 8656 §11.2).
        PeerFamily => "peer_family",
        /// Our own address, at a port that is no live allocation.
        OwnAddress => "own_address",
        /// The allocation's bandwidth limit (RFC 8656 §5).
        Bandwidth => "bandwidth",
        /// TTL or hop limit reached zero.
        TtlExpired => "ttl_expired",
        /// A peer's datagram at a relay socket that has no live allocation any more.
        RelayClosed => "relay_closed",
        /// A peer's datagram too long for a STUN message or a UDP datagram with its header in
        /// front; or an answer that does not fit, for settings with too long a realm or domain.
        TooLong => "too_long",
        /// ICMP of a type that is not reported, or about no live permission (RFC 8656 §11.5).
        IcmpIgnored => "icmp_ignored",
        /// Its UDP checksum is wrong: damaged on its way (RFC 768). Sockets do not even show such.
        Checksum => "checksum",
        /// The kernel handed over only part of a datagram.
        Truncated => "truncated",
        /// Over UDP without DTLS, where only DTLS is served.
        UdpNotServed => "udp_not_served",
        /// The socket's send buffer was full, or that of the way to the process before an upgrade.
        SendBufferFull => "send_buffer_full",
        /// The kernel refused to send: no route, forbidden by a firewall, unreachable.
        SendRefused => "send_refused",
        /// The oldest data for a client with a full connection.
        StreamBacklog => "stream_backlog",
        /// The client's connection or DTLS session ended before it was sent.
        StreamClosed => "stream_closed",
        /// Of DTLS, and its 5-tuple has no association.
        DtlsStray => "dtls_stray",
        /// A fragment of a ClientHello out of order, without a valid cookie before it (RFC 6347
        /// §4.2.1) or beyond the capacity; or a ClientHello that is too long.
        DtlsHelloInPieces => "dtls_hello_in_pieces",
        /// The first message of a DTLS client, and it does not keep to its form.
        DtlsMalformed => "dtls_malformed",
        /// A DTLS client came back with its cookie, and there is no place for it.
        DtlsNoPlace => "dtls_no_place",
        /// Part of a DTLS handshake for which there is no processor time: its address has used its
        /// share, or more waits for time than may, or it has waited too long. The client sends it
        /// again.
        DtlsBusy => "dtls_busy",
        /// A DTLS client came with a cookie that has begun an association already, which has ended.
        DtlsCookieUsed => "dtls_cookie_used",
        /// A DTLS record that its session has no use for: it was repeated or forged, or has no
        /// place there.
        DtlsRefused => "dtls_refused",
        /// Larger than the outgoing link, with DF set (RFC 8656 §14).
        TooBigForLink => "too_big_for_link",
    }
}

state_format::labelled!(DropReason, "reason of a drop");
