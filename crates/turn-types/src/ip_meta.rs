//! Fields of an IP header that a relay transfers between client and peer.

/// TTL, traffic class and DF of a packet (RFC 8656 §§13-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpMeta {
    /// TTL (IPv4) or hop limit (IPv6), of a received packet or a packet to send. 0 means "unknown"
    /// when received, and "the system's default" when sent.
    pub ttl: u8,
    /// TOS byte or traffic class: 6 bits of DSCP, then 2 bits of ECN.
    pub tos: u8,
    /// True to forbid fragmentation: DF for IPv4, no fragmentation at the source for IPv6. User
    /// space cannot read DF from a datagram, so the value is false in every received packet.
    pub dont_fragment: bool,
}

impl IpMeta {
    /// Default values: the system's TTL, best effort, Not-ECT, fragmentation allowed.
    pub const DEFAULT: Self = Self { ttl: 0, tos: 0, dont_fragment: false };
}

impl Default for IpMeta {
    fn default() -> Self {
        Self::DEFAULT
    }
}
