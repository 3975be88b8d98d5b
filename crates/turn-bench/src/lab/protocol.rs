//! What is relayed: as little as makes a relay.
//!
//! ```text
//! client ──  id  ──▶ registration port    the relay remembers: id → the client's address,
//! client ◀──  id  ── registration port    and says so
//! peer ── id, payload ──▶ data port       looked up by id and sent on as it is
//! client ◀── id, payload ── data port
//! ```
//!
//! That the client hears from another port than it spoke to would not pass a NAT; there is none in
//! the lab, and each thread of the relay has one socket to look after.

use std::fmt;

/// Bytes of a session id, with which every datagram begins.
pub(super) const ID: usize = 8;

/// The largest datagram that is relayed.
pub(super) const DATAGRAM_MAX: usize = 2048;

/// Names a client.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SessionId(pub(super) [u8; ID]);

impl SessionId {
    /// The id of the `number`-th session, far from its neighbours' as a real one would be.
    pub(super) fn of_number(number: u32) -> Self {
        // The finaliser of a known mixing function: one-to-one, so no two are equal.
        let mut mixed = u64::from(number) + 0x9E37_79B9_7F4A_7C15;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Self((mixed ^ (mixed >> 31)).to_be_bytes())
    }

    /// The id at the beginning of a datagram, and what follows it; `None` when it is too short.
    pub(super) fn split(datagram: &[u8]) -> Option<(Self, &[u8])> {
        datagram.split_first_chunk().map(|(id, rest)| (Self(*id), rest))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_differ_and_are_read_as_they_were_written() {
        let ids: HashSet<SessionId> = (0..10_000).map(SessionId::of_number).collect();
        assert_eq!(ids.len(), 10_000);
        let id = SessionId::of_number(7);
        let datagram = [&id.0[..], b"rest"].concat();
        assert_eq!(SessionId::split(&datagram), Some((id, &b"rest"[..])));
        assert_eq!(SessionId::split(&datagram[..8]), Some((id, &b""[..])));
        assert_eq!(SessionId::split(&datagram[..7]), None);
    }
}
