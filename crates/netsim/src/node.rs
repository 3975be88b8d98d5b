//! Names of the nodes of a world.

/// A node of one world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) usize);

impl NodeId {
    /// Its number, in order of adding.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}
