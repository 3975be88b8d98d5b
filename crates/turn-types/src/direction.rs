//! Directions of relayed data.

/// Direction of relayed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Data from the client to the peer.
    ToPeer,
    /// Data from the peer to the client.
    ToClient,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::ToPeer, Self::ToClient];

    /// Returns the metric label of the direction.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::ToPeer => "to_peer",
            Self::ToClient => "to_client",
        }
    }
}
