//! Budgets of responses to requests that prove no user. They bound the traffic that forged source
//! addresses make the server send to others, and keep one source from using up the responses of
//! others.
//!
//! A source address of a datagram may be forged, so that its responses are counted by
//! [network](Prefix::network), the victim of reflection. Half of a network's responses are for
//! Binding, half are challenges of TURN, and each half is two buckets:
//!
//! ```text
//! common    first come, first served
//! reserve   when the common bucket is empty: for each address no more than its 256th part
//! ```
//!
//! So a flood from some addresses of a network leaves the reserve to all others of a /24. An
//! address that was proved, by a connection, by DTLS, or by a nonce that was given to it, takes
//! nothing of that: its responses are counted by [customer](Prefix::customer).

use core::net::IpAddr;
use core::time::Duration;

use stun_wire::Method;
use turn_types::{ClientPath, FiveTuple, Instant, Prefix};

use super::outbox::Outbox;
use super::source_budget::SourceBudget;
use crate::io::{Budget, DropReason, Notice, Request, SourceAddress};
use crate::limits::CUSTOMER_BUCKETS;
use crate::policy::{Policy, UnauthenticatedBudget};
use crate::random::Random;

const SECOND: Duration = Duration::from_secs(1);

/// Addresses among which the reserve of a network is divided: a /24.
const SHARES: u32 = 256;

/// Responses of its share that an address may have at once: a client with several relay candidates.
const SHARE_BURST: u32 = 4;

/// The source of an unauthenticated request, and the rate that bounds its responses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    rate: UnauthenticatedBudget,
    now: Instant,
    ip: IpAddr,
    address: SourceAddress,
}

impl Source {
    /// The source of a request before anything in it is looked at.
    pub(crate) const fn of(request: &Request<'_>) -> Self {
        Self::new(request.policy, request.now.instant, request.path)
    }

    /// The source of a packet on this path.
    pub(crate) const fn new(policy: &Policy, now: Instant, path: &ClientPath) -> Self {
        let FiveTuple { transport, client, .. } = path.five_tuple;
        let address = SourceAddress::of(transport);
        Self { rate: policy.unauthenticated, now, ip: client.0.ip(), address }
    }

    /// The same source behind a proof of its address.
    pub(crate) const fn proved(self) -> Self {
        Self { address: SourceAddress::Proved, ..self }
    }
}

/// The budgets for the effects of unauthenticated sources.
#[derive(Debug)]
pub(crate) struct Budgets {
    bindings: NetworkBudget,
    challenges: NetworkBudget,
    customers: SourceBudget,
    /// Failed verifications of each [customer](Prefix::customer): hashing is the largest cost that
    /// a source without credentials can cause, and a way to guess passwords.
    verifications: SourceBudget,
    spent: SpentBudgets,
}

impl Budgets {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self {
            bindings: NetworkBudget::new(random),
            challenges: NetworkBudget::new(random),
            customers: SourceBudget::with_buckets(random.hasher(), CUSTOMER_BUCKETS),
            verifications: SourceBudget::with_buckets(random.hasher(), CUSTOMER_BUCKETS),
            spent: SpentBudgets::default(),
        }
    }

    /// Takes one unauthenticated response to a request out of its budget.
    ///
    /// # Errors
    /// The budget is spent: nothing is to be sent.
    pub(crate) fn charge_response(
        &mut self,
        source: Source,
        method: Method,
        outbox: &mut Outbox,
    ) -> Result<(), DropReason> {
        let Source { rate, now, ip, address } = source;
        let (taken, budget, prefix) = match (address, method) {
            (SourceAddress::Proved, _) => {
                let customer = Prefix::customer(ip);
                let taken = self.customers.take(now, customer, rate.per_second);
                (taken, Budget::ProvedAddress, customer)
            }
            (SourceAddress::Unproved, Method::BINDING) => {
                (self.bindings.take(now, ip, rate), Budget::Bindings, Prefix::network(ip))
            }
            (SourceAddress::Unproved, _) => {
                (self.challenges.take(now, ip, rate), Budget::Challenges, Prefix::network(ip))
            }
        };
        if taken {
            return Ok(());
        }
        self.report_spent(now, budget, prefix, outbox);
        Err(match address {
            SourceAddress::Proved => DropReason::ProvedAddressBudget,
            SourceAddress::Unproved => DropReason::UnauthenticatedBudget,
        })
    }

    /// Returns true if a request of this source may be verified.
    pub(crate) fn may_verify(&self, source: Source) -> bool {
        let Source { rate, now, ip, .. } = source;
        rate.per_second == 0 || !self.verifications.is_spent(now, Prefix::customer(ip), SECOND)
    }

    /// Takes failed verifications out of their budget.
    pub(crate) fn charge_verifications(&mut self, source: Source, failed: u32) {
        let Source { rate, now, ip, .. } = source;
        if rate.per_second > 0 {
            let cost = SECOND / rate.failed_verifications() * failed;
            self.verifications.draw(now, Prefix::customer(ip), cost);
        }
    }

    /// Reports a spent budget, unless that was done within the last minute.
    pub(crate) fn report_spent(
        &mut self,
        now: Instant,
        budget: Budget,
        source: Prefix,
        outbox: &mut Outbox,
    ) {
        if self.spent.report(now, budget) {
            outbox.notice(Notice::BudgetSpent { budget, source });
        }
    }
}

/// Responses of one kind to addresses that may be forged.
#[derive(Debug)]
struct NetworkBudget {
    common: SourceBudget,
    reserve: SourceBudget,
    /// The share of each address in the reserve.
    shares: SourceBudget,
}

impl NetworkBudget {
    fn new(random: &mut Random) -> Self {
        Self {
            common: SourceBudget::new(random.hasher()),
            reserve: SourceBudget::new(random.hasher()),
            shares: SourceBudget::with_buckets(random.hasher(), CUSTOMER_BUCKETS),
        }
    }

    fn take(&mut self, now: Instant, ip: IpAddr, rate: UnauthenticatedBudget) -> bool {
        if rate.per_second == 0 {
            return true;
        }
        // Each bucket has a quarter of the rate, and room for one response at the lowest rates.
        let cost = SECOND * 4 / rate.per_second;
        let (network, burst) = (Prefix::network(ip), cost.max(SECOND));
        if self.common.spend(now, network, cost, burst) {
            return true;
        }
        let share = cost * SHARES;
        self.shares.spend(now, Prefix::customer(ip), share, share * SHARE_BURST)
            && self.reserve.spend(now, network, cost, burst)
    }
}

/// Time of the last report of each spent budget: a flood is one notice a minute.
#[derive(Debug, Default)]
struct SpentBudgets([Option<Instant>; Budget::ALL.len()]);

impl SpentBudgets {
    /// Returns true if a spent budget is to be reported now.
    fn report(&mut self, now: Instant, budget: Budget) -> bool {
        const EVERY: Duration = Duration::from_secs(60);
        let last = &mut self.0[budget.index()];
        let due = last.is_none_or(|last| now.saturating_since(last) >= EVERY);
        if due {
            *last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever floods in the name of a network leaves a few responses for each other address.
    #[test]
    fn an_address_gets_no_more_than_its_share_of_the_reserve() {
        let mut budget = NetworkBudget::new(&mut Random::new([1; 32]));
        let rate = UnauthenticatedBudget { per_second: 400 };
        let mut taken = |now, last| {
            let ip = IpAddr::from([198, 51, 100, last]);
            (0..1000).filter(|_| budget.take(now, ip, rate)).count()
        };
        let start = Instant::ZERO;
        // One second of a quarter of the rate, and the share.
        assert_eq!([1, 2, 3].map(|last| taken(start, last)), [104, 4, 4]);
        // A share is a 256th part of the rate.
        assert_eq!(taken(start + SECOND, 1), 100);
        assert_eq!(taken(start + SECOND * 4, 1), 101);
    }
}
