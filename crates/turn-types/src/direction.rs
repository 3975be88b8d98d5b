//! The two directions of relayed data.

/// Direction of relayed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the client to the peer.
    ToPeer,
    /// From the peer to the client.
    ToClient,
}
