//! Budgets of responses to requests that prove no user. They bound what a forged source address makes the
//! server send to others, and keep one source from using up what others need.
//!
//! A source address of a datagram may be forged, so that its responses are counted by
//! [network](Prefix::network), the victim of reflection. Half of a network's responses are for Binding,
//! half are challenges of TURN, and each half is two buckets:
//!
//! ```text
//! common    whoever asks first
//! reserve   when the common bucket is empty: for each address no more than its 256th part
//! ```
//!
//! So a flood from some addresses of a network leaves the reserve to all others of a /24. An address that was
//! proved, by a connection, by DTLS, or by a nonce that was given to it, takes nothing of that: its responses
//! are counted by [customer](Prefix::customer).

use core::net::IpAddr;
use core::time::Duration;

use stun_wire::Method;
use turn_types::{FiveTuple, Instant, Prefix, Transport};

use crate::limits::CUSTOMER_BUCKETS;
use crate::notice::{Budget, Notice};
use crate::policy::UnauthenticatedBudget;
use crate::random::Random;
use crate::source_budget::SourceBudget;
use crate::state::State;
use crate::verdict::DropReason;

const SECOND: Duration = Duration::from_secs(1);

/// Addresses among which the reserve of a network is divided: those of a /24.
const SHARES: u32 = 256;

/// Responses of its share that an address may have at once: a client with several relay candidates.
const SHARE_BURST: u32 = 4;

/// Whether a client has shown that it receives what is sent to its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceAddress {
    /// By its connection, or by a nonce that was given to this very address.
    Proved,
    /// It may be forged.
    Unproved,
}

impl SourceAddress {
    /// What a message shows by its transport alone.
    pub(crate) const fn of(transport: Transport) -> Self {
        match transport {
            Transport::Udp => Self::Unproved,
            Transport::Tcp | Transport::Tls | Transport::Dtls => Self::Proved,
        }
    }
}

impl State {
    /// Takes one unauthenticated response to a request out of its budget.
    ///
    /// # Errors
    /// The budget is spent: nothing is to be sent.
    pub(crate) fn charge_response(
        &mut self,
        (rate, now): (UnauthenticatedBudget, Instant),
        (from, method): (&FiveTuple, Method),
        address: SourceAddress,
    ) -> Result<(), DropReason> {
        let ip = from.client.ip();
        let budgets = &mut self.responses;
        let (taken, budget, source) = match (address, method) {
            (SourceAddress::Proved, _) => {
                let customer = Prefix::customer(ip);
                let taken = budgets.customers.take(now, customer, rate.per_second);
                (taken, Budget::ProvedAddress, customer)
            }
            (SourceAddress::Unproved, Method::BINDING) => {
                (budgets.bindings.take(now, ip, rate), Budget::Bindings, Prefix::network(ip))
            }
            (SourceAddress::Unproved, _) => {
                (budgets.challenges.take(now, ip, rate), Budget::Challenges, Prefix::network(ip))
            }
        };
        if taken {
            return Ok(());
        }
        self.report_spent(now, budget, source);
        Err(match address {
            SourceAddress::Proved => DropReason::ProvedAddressBudget,
            SourceAddress::Unproved => DropReason::UnauthenticatedBudget,
        })
    }

    /// Reports a spent budget, unless that was done within the last minute.
    pub(crate) fn report_spent(&mut self, now: Instant, budget: Budget, source: Prefix) {
        if self.spent.report(now, budget) {
            self.outbox.notice(Notice::BudgetSpent { budget, source });
        }
    }
}

/// The three budgets of unauthenticated responses.
#[derive(Debug)]
pub(crate) struct ResponseBudget {
    bindings: NetworkBudget,
    challenges: NetworkBudget,
    customers: SourceBudget,
}

/// The budget of verifications that fail, by [customer](Prefix::customer): hashing is the dearest thing that
/// somebody without credentials can cause, and who does it guesses passwords.
#[derive(Debug)]
pub(crate) struct VerificationBudget(SourceBudget);

impl VerificationBudget {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self(SourceBudget::with_buckets(random.hasher(), CUSTOMER_BUCKETS))
    }
}

impl State {
    /// Whether a request of this client may be verified.
    pub(crate) fn may_verify(&self, rate: UnauthenticatedBudget, now: Instant, ip: IpAddr) -> bool {
        rate.per_second == 0 || !self.verifications.0.is_spent(now, Prefix::customer(ip), SECOND)
    }

    /// Takes verifications that have failed out of their budget.
    pub(crate) fn charge_verifications(
        &mut self,
        rate: UnauthenticatedBudget,
        now: Instant,
        (ip, failed): (IpAddr, u32),
    ) {
        if rate.per_second > 0 {
            let cost = SECOND / rate.failed_verifications() * failed;
            self.verifications.0.draw(now, Prefix::customer(ip), cost);
        }
    }
}

impl ResponseBudget {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self {
            bindings: NetworkBudget::new(random),
            challenges: NetworkBudget::new(random),
            customers: SourceBudget::with_buckets(random.hasher(), CUSTOMER_BUCKETS),
        }
    }
}

/// Responses of one kind to addresses that may be forged.
#[derive(Debug)]
struct NetworkBudget {
    common: SourceBudget,
    reserve: SourceBudget,
    /// What each address may take of the reserve.
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

/// When each budget was last reported as spent: a flood is one notice a minute.
#[derive(Debug, Default)]
pub(crate) struct SpentBudgets([Option<Instant>; Budget::ALL.len()]);

impl SpentBudgets {
    /// Whether a spent budget is to be reported now.
    pub(crate) fn report(&mut self, now: Instant, budget: Budget) -> bool {
        const EVERY: Duration = Duration::from_secs(60);
        let last = &mut self.0[budget.index()];
        let due = last.is_none_or(|last| now.saturating_since(last) >= EVERY);
        if due {
            *last = Some(now);
        }
        due
    }
}
