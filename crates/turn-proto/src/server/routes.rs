//! Queries and updates by the driver about the routes of channels.

use fair_share::Claimant;
use turn_types::AllocationId;

use super::Server;
use crate::io::RouteId;

impl Server {
    /// Lets the next data of a channel install the channel's route again, after the driver has
    /// removed the route.
    pub fn await_data(&mut self, id: RouteId) {
        let allocations = &mut self.state.allocations;
        let slot = allocations.of_id(id.allocation);
        let channels = slot.map(|slot| &mut allocations.get_mut(slot).channels);
        if let Some(channel) = channels.and_then(|channels| channels.get_mut(id.channel)) {
            (channel.awaits_data, channel.route) = (true, None);
        }
    }

    /// Returns the client of an allocation in the form counted by tables with shares. The only
    /// realm of a server is not counted, because that realm would reserve slots against itself.
    #[must_use]
    pub fn claimant(&self, id: AllocationId) -> Option<Claimant<'_>> {
        let allocations = &self.state.allocations;
        let allocation = allocations.get(allocations.of_id(id)?);
        let client = allocation.path.five_tuple.client;
        Some(allocation.grant.competing_claimant(&self.policy, client))
    }
}
