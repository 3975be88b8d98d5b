//! The two directions of relayed data.

/// Direction of relayed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the client to the peer.
    ToPeer,
    /// From the peer to the client.
    ToClient,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ToPeer, Self::ToClient];

    /// Its name in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::ToPeer => "to_peer",
            Self::ToClient => "to_client",
        }
    }
}
