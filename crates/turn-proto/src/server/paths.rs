//! 5-tuples that allocations have, for the driver.

use turn_types::FiveTuple;

use super::Server;

impl Server {
    /// Returns true if a client has an allocation, perhaps expired and not reclaimed, or one is on
    /// its way to it.
    pub fn serves(&mut self, five_tuple: &FiveTuple) -> bool {
        self.state.allocations.of_client(five_tuple).is_some()
            || self.state.moves().awaits(five_tuple)
    }

    /// Returns true if this 5-tuple is the path of an allocation, by which its data goes.
    pub fn carries(&mut self, five_tuple: &FiveTuple) -> bool {
        self.state.allocations.carries(five_tuple)
    }
}
