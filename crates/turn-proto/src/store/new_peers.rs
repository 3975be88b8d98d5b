//! The budget of new peers: how fast clients may begin to send to addresses that they did not send
//! to before. It keeps a leaked credential from scanning networks through the relay.
//!
//! It is counted by [customer](Prefix::customer), since one user may be many clients, and one
//! client many users (time-limited names and tokens are new ones each time). As an account may also
//! be used from many addresses, it is bounded too, at [`CUSTOMERS_PER_ACCOUNT`] times as much. The
//! peers of an allocation at a time are bounded by its permissions.

use core::time::Duration;

use turn_types::{Instant, Prefix};

use super::allocation::Allocation;
use super::source_budget::SourceBudget;
use crate::io::Refusal;
use crate::limits::{CUSTOMER_BUCKETS, PEERS_PER_REQUEST_MAX};
use crate::policy::Quotas;
use crate::random::Random;

/// A minute's worth may be used at once: when a server is started again, all clients of an office
/// come at the same time.
const BURST: Duration = Duration::from_secs(60);

/// Customers with whose peers an account is bounded: an installation may have one user for all its
/// clients.
const CUSTOMERS_PER_ACCOUNT: u32 = 20;

/// New peers of customers and of accounts.
#[derive(Debug)]
pub(crate) struct NewPeers {
    customers: SourceBudget,
    accounts: SourceBudget,
}

impl NewPeers {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self {
            customers: SourceBudget::with_buckets(random.hasher(), CUSTOMER_BUCKETS),
            accounts: SourceBudget::with_buckets(random.hasher(), CUSTOMER_BUCKETS),
        }
    }

    /// Takes `count` new peers, at most [`PEERS_PER_REQUEST_MAX`], of an allocation's client and
    /// account; of an account without a name, on an open relay, for the client alone.
    ///
    /// # Errors
    /// [`Refusal::NewPeerLimit`] when either has used up its budget.
    pub(crate) fn take(
        &mut self,
        quotas: &Quotas,
        now: Instant,
        allocation: &Allocation,
        count: usize,
    ) -> Result<(), Refusal> {
        let client = allocation.path.five_tuple.client.ip();
        let account = &*allocation.grant.account;
        let per_second = quotas.new_peers_per_second;
        if per_second == 0 || count == 0 {
            return Ok(());
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let cost = Duration::from_secs(1) / per_second;
        // At the lowest rates, too, a request has room.
        let burst = BURST.max(cost * PEERS_PER_REQUEST_MAX as u32);
        let of_customer = self.customers.spend(now, Prefix::customer(client), cost * count, burst);
        let mut of_account = || {
            let cost = cost / CUSTOMERS_PER_ACCOUNT * count;
            account.is_empty() || self.accounts.spend(now, account, cost, burst)
        };
        if of_customer && of_account() { Ok(()) } else { Err(Refusal::NewPeerLimit) }
    }
}
