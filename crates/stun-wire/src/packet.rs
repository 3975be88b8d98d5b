//! Classification of a datagram by its first byte (RFC 7983 §7, RFC 8656 §12).

/// Protocol of a datagram, determined by the first byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PacketKind {
    /// STUN message (RFC 8489 §5): 0..=3.
    Stun,
    /// DTLS record: 20..=63.
    Dtls,
    /// ChannelData (RFC 8656 §12.4): 64..=79.
    ChannelData,
    /// Any other first byte, or an empty datagram. A TURN server does not use such a protocol.
    Other,
}

/// Classifies a datagram on a UDP port by the first byte. Later bytes are not checked.
#[must_use]
pub fn classify(datagram: &[u8]) -> PacketKind {
    match datagram.first() {
        Some(0..=3) => PacketKind::Stun,
        Some(20..=63) => PacketKind::Dtls,
        Some(64..=79) => PacketKind::ChannelData,
        Some(_) | None => PacketKind::Other,
    }
}

/// Classifies a datagram as [`classify`], for a server with clients of RFC 5766. Their channels use
/// first bytes up to 127.
#[must_use]
pub fn classify_rfc5766(datagram: &[u8]) -> PacketKind {
    match datagram.first() {
        Some(80..=127) => PacketKind::ChannelData,
        Some(_) | None => classify(datagram),
    }
}
