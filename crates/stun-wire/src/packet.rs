//! First look at a datagram: which protocol is it? By its first byte alone (RFC 7983 §7, RFC 8656
//! §12).

/// Kind of a datagram by its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PacketKind {
    /// 0..=3: a STUN message (RFC 8489 §5).
    Stun,
    /// 20..=63: a DTLS record.
    Dtls,
    /// 64..=79: ChannelData (RFC 8656 §12.4).
    ChannelData,
    /// Any other first byte, or an empty datagram: nothing a TURN server speaks.
    Other,
}

/// Tells the protocols on one UDP port apart. Says nothing about the bytes behind the first.
#[must_use]
pub fn classify(datagram: &[u8]) -> PacketKind {
    match datagram.first() {
        Some(0..=3) => PacketKind::Stun,
        Some(20..=63) => PacketKind::Dtls,
        Some(64..=79) => PacketKind::ChannelData,
        Some(_) | None => PacketKind::Other,
    }
}

/// The same where clients of RFC 5766 are served: their channels reach up to first byte 127.
#[must_use]
pub fn classify_rfc5766(datagram: &[u8]) -> PacketKind {
    match datagram.first() {
        Some(80..=127) => PacketKind::ChannelData,
        Some(_) | None => classify(datagram),
    }
}
