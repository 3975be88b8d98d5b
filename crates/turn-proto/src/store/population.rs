//! Live allocations by kind.

use turn_types::{IpFamily, Transport};

use super::allocation::Allocation;

/// Numbers of live allocations of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Population {
    /// Number of allocations by transport of the client, indexed as [`Transport::ALL`].
    pub transports: [u32; Transport::ALL.len()],
    /// Number of relayed addresses by family, indexed as [`IpFamily::ALL`]. An allocation has one
    /// or two.
    pub relayed: [u32; IpFamily::ALL.len()],
}

impl Population {
    pub(crate) fn add(&mut self, allocation: &Allocation) {
        self.transports[allocation.path.five_tuple.transport.index()] += 1;
        for (count, socket) in self.relayed.iter_mut().zip(&allocation.sockets) {
            *count += u32::from(socket.is_some());
        }
    }

    pub(crate) fn subtract(&mut self, allocation: &Allocation) {
        self.transports[allocation.path.five_tuple.transport.index()] -= 1;
        for (count, socket) in self.relayed.iter_mut().zip(&allocation.sockets) {
            *count -= u32::from(socket.is_some());
        }
    }

    pub(crate) const fn moved(&mut self, from: Transport, to: Transport) {
        self.transports[from.index()] -= 1;
        self.transports[to.index()] += 1;
    }
}
