//! The fields of an IP header that a relay carries from one leg to the other.

/// TTL, traffic class and DF of one packet (RFC 8656 §§13-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpMeta {
    /// TTL (IPv4) or hop limit (IPv6), as received or as to be sent. 0 means "not known" when
    /// received and "the system's default" when sent.
    pub ttl: u8,
    /// TOS byte or traffic class: 6 bits of DSCP, then 2 bits of ECN.
    pub tos: u8,
    /// Do not fragment: sets DF (IPv4), forbids fragmentation at the source (IPv6). User space
    /// cannot read DF from a datagram, so it is false in every received packet.
    pub dont_fragment: bool,
}

impl IpMeta {
    /// System default TTL, best effort, Not-ECT, fragmentation allowed.
    pub const DEFAULT: Self = Self { ttl: 0, tos: 0, dont_fragment: false };
}

impl Default for IpMeta {
    fn default() -> Self {
        Self::DEFAULT
    }
}
