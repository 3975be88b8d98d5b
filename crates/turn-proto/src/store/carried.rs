//! Traffic of all allocations of a worker, by kind of client.

use turn_types::{FiveTuple, IpFamily, Transport};

use super::allocation::Allocation;
use crate::io::Traffic;

/// Traffic that a worker has relayed since its start, by transport and family of the client.
///
/// The packet path counts for its allocation alone; the sums are made when they are read. Counts
/// wrap: a worker to which an allocation has moved may be below zero, and the sum over all workers
/// is right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CarriedTraffic([[Traffic; IpFamily::ALL.len()]; Transport::ALL.len()]);

impl CarriedTraffic {
    /// Traffic of clients of one kind.
    #[must_use]
    pub const fn of(&self, transport: Transport, family: IpFamily) -> &Traffic {
        &self.0[transport.index()][family.index()]
    }

    pub(crate) fn add(&mut self, allocation: &Allocation) {
        self.add_for(&allocation.path.five_tuple, &allocation.traffic);
    }

    /// Takes back the traffic of an allocation that goes on being counted elsewhere.
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
