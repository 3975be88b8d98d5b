//! Traffic of all allocations of a worker, by kind of client.

use turn_types::{FiveTuple, IpFamily, Transport};

use super::allocation::Allocation;
use crate::io::Traffic;

/// Traffic that a worker has relayed since the start, by transport and family of the client.
///
/// The packet path counts only in the allocation, and the sums are computed on reading. Counts
/// wrap. A worker that imported an allocation may have a count below zero, and the sum over all
/// workers is correct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CarriedTraffic([[Traffic; IpFamily::ALL.len()]; Transport::ALL.len()]);

impl CarriedTraffic {
    /// Returns the traffic of clients with a transport and family.
    #[must_use]
    pub const fn of(&self, transport: Transport, family: IpFamily) -> &Traffic {
        &self.0[transport.index()][family.index()]
    }

    pub(crate) fn add(&mut self, allocation: &Allocation) {
        self.add_for(&allocation.path.five_tuple, &allocation.traffic);
    }

    /// Subtracts the traffic of a live allocation, which is counted in the allocation.
    pub(crate) fn subtract(&mut self, allocation: &Allocation) {
        self.subtract_for(&allocation.path.five_tuple, &allocation.traffic);
    }

    pub(crate) fn add_for(&mut self, five_tuple: &FiveTuple, traffic: &Traffic) {
        self.change(five_tuple, traffic, u64::wrapping_add);
    }

    pub(crate) fn subtract_for(&mut self, five_tuple: &FiveTuple, traffic: &Traffic) {
        self.change(five_tuple, traffic, u64::wrapping_sub);
    }

    fn change(&mut self, client: &FiveTuple, by: &Traffic, with: impl Fn(u64, u64) -> u64) {
        let sums = &mut self.0[client.transport.index()][client.client.family().index()];
        *sums = Traffic {
            to_peer_packets: with(sums.to_peer_packets, by.to_peer_packets),
            to_peer_bytes: with(sums.to_peer_bytes, by.to_peer_bytes),
            to_client_packets: with(sums.to_client_packets, by.to_client_packets),
            to_client_bytes: with(sums.to_client_bytes, by.to_client_bytes),
            dropped_packets: with(sums.dropped_packets, by.dropped_packets),
        };
    }
}
