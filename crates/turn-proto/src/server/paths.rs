//! Queries by the driver about the allocations of 5-tuples.

use turn_types::FiveTuple;

use super::Server;

impl Server {
    /// Returns true if a 5-tuple has an allocation, or if an allocation is moving to the 5-tuple.
    /// The allocation may be expired and not yet reclaimed.
    pub fn serves(&mut self, five_tuple: &FiveTuple) -> bool {
        self.state.allocations.of_client(five_tuple).is_some()
            || self.state.moves().awaits(five_tuple)
    }

    /// Returns true if an allocation's data uses this 5-tuple as path to the client.
    pub fn carries(&mut self, five_tuple: &FiveTuple) -> bool {
        self.state.allocations.carries(five_tuple)
    }
}
