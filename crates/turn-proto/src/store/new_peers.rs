//! Budget of new peers: the rate at which clients may start to send to new addresses. The budget
//! keeps a leaked credential from scanning networks through the relay.
//!
//! New peers are counted by address and network, because a user may have many clients. A client may
//! also appear under several user names, because time-limited names and tokens change each time.
//! New peers are also counted by account, because many addresses can share an account. The
//! permissions bound the number of peers that an allocation has at a time.

use core::time::Duration;

use fair_share::{Meter, USERS};
use turn_types::Instant;

use super::allocation::Allocation;
use crate::io::Refusal;
use crate::limits::PEERS_PER_REQUEST_MAX;
use crate::policy::Quotas;
use crate::random::Random;

/// Burst of new peers, as time: the budget of one minute. After a server restart, all clients of an
/// office return at the same moment.
const BURST: Duration = Duration::from_secs(60);

/// Budget of new peers, per client and account.
#[derive(Debug)]
pub(crate) struct NewPeers(Meter);

impl NewPeers {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self(Meter::new(&USERS, random.hasher()))
    }

    /// Takes `count` new peers, at most [`PEERS_PER_REQUEST_MAX`], for the allocation's client and
    /// account. On an open relay the account has no name, and only the client is charged.
    ///
    /// # Errors
    /// [`Refusal::NewPeerLimit`]: the client, the client's network or the account has used up the
    /// budget.
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
        // At the lowest rates, the burst must still hold one request.
        let burst = BURST.max(cost * PEERS_PER_REQUEST_MAX as u32);
        let claimant = allocation.grant.claimant(allocation.path.five_tuple.client);
        let is_taken = self.0.spend(now, &claimant, cost * count, burst);
        if is_taken { Ok(()) } else { Err(Refusal::NewPeerLimit) }
    }
}
