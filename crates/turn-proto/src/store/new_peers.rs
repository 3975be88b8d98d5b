//! The budget of new peers: how fast clients may begin to send to addresses that they did not send
//! to before. It keeps a leaked credential from scanning networks through the relay.
//!
//! It is counted by address and network, since one user may be many clients, and one client many
//! users (time-limited names and tokens are new ones each time), and by account, which may be used
//! from many addresses. The peers of an allocation at a time are bounded by its permissions.

use core::time::Duration;

use fair_share::{Meter, USERS};
use turn_types::Instant;

use super::allocation::Allocation;
use crate::io::Refusal;
use crate::limits::PEERS_PER_REQUEST_MAX;
use crate::policy::Quotas;
use crate::random::Random;

/// A minute's worth may be used at once: when a server is started again, all clients of an office
/// come at the same time.
const BURST: Duration = Duration::from_secs(60);

/// New peers of clients and of accounts.
#[derive(Debug)]
pub(crate) struct NewPeers(Meter);

impl NewPeers {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self(Meter::new(&USERS, random.hasher()))
    }

    /// Takes `count` new peers, at most [`PEERS_PER_REQUEST_MAX`], of an allocation's client and
    /// account; of an account without a name, on an open relay, for the client alone.
    ///
    /// # Errors
    /// [`Refusal::NewPeerLimit`] when one of them has used up its budget.
    pub(crate) fn take(
        &mut self,
        quotas: &Quotas,
        now: Instant,
        allocation: &Allocation,
        count: usize,
    ) -> Result<(), Refusal> {
        let per_second = quotas.new_peers_per_second;
        if per_second == 0 || count == 0 {
            return Ok(());
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let cost = Duration::from_secs(1) / per_second;
        // At the lowest rates, too, a request has room.
        let burst = BURST.max(cost * PEERS_PER_REQUEST_MAX as u32);
        let claimant = allocation.grant.claimant(allocation.path.five_tuple.client);
        let is_taken = self.0.spend(now, &claimant, cost * count, burst);
        if is_taken { Ok(()) } else { Err(Refusal::NewPeerLimit) }
    }
}
