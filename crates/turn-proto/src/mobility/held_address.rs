//! Relayed addresses that another process has.

use crate::policy::PortLease;

/// A relayed address that an allocation of another process has. As long as this is there, no
/// allocation here gets it, and it is a peer as those of allocations here.
#[derive(Debug)]
pub struct HeldAddress {
    _lease: PortLease,
}

impl HeldAddress {
    pub(crate) const fn new(lease: PortLease) -> Self {
        Self { _lease: lease }
    }
}
