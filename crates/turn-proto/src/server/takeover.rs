//! The move of allocations to another process, and from one.

use state_format::Reader;
use turn_types::{AllocationId, Now};

use super::Server;
use crate::mobility::handover::Departure;
use crate::mobility::takeover::{TakenOver, TakeoverError};

impl Server {
    /// Withdraws the routes of all allocations, before they [leave](Self::leave). Commands are to be carried out before, so
    /// that the traffic of routes is still counted.
    pub fn withdraw_all(&mut self) {
        self.state.moves().withdraw_all();
    }

    /// Takes an allocation out, with its relay sockets, to write it for another process. [`Self::take_back`] undoes that.
    pub fn leave(&mut self, id: AllocationId) -> Option<Departure> {
        self.state.moves().leave(id)
    }

    /// Takes an allocation that another process [wrote](Departure::write), as it is: whatever the quotas are now. Its relay sockets
    /// get other names.
    ///
    /// # Errors
    /// It cannot be read, has expired, or has an address that is not to be had here. Nothing of it stays.
    pub fn take_over(&mut self, now: Now, state: Reader<'_>) -> Result<TakenOver, TakeoverError> {
        let Self { policy, state: own } = self;
        own.moves().take_over(policy, now.instant, state)
    }

    /// The last id that was given: the next process [goes on](Self::go_on_behind) behind it.
    #[must_use]
    pub const fn last_id(&self) -> AllocationId {
        self.state.ids.last_allocation()
    }

    /// Gives no id that a worker of this number had given in the process before, up to this one.
    pub const fn go_on_behind(&mut self, last: AllocationId) {
        self.state.ids.go_on_behind(last);
    }
}
