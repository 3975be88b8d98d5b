//! Budgets of responses to requests without a proven user. The budgets bound the traffic that
//! forged source addresses direct to others. A source also cannot use up the responses of other
//! sources.
//!
//! The source address of a datagram may be forged. Responses to such an address are counted by
//! [network](Prefix::network), the target of reflection. Half of a network's budget is for Binding,
//! and half for challenges of TURN. The last quarter of each half is reserved for addresses that
//! have sent little, so a flood from some addresses does not use the reserve.
//!
//! An address can be proved by a connection, by DTLS, or by a nonce sent to the address. A proved
//! address does not use these budgets. Responses to a proved address are counted by the address and
//! its networks.
//!
//! A sender with thousands of networks, real or forged, is bounded by the worker's total budget.
//! This budget has no shares, because each address of such a sender may be new. Other clients over
//! UDP repeat their requests.

use core::net::IpAddr;
use core::time::Duration;

use fair_share::{Allowance, CLIENTS, Claimant, Meter, PROCESSOR_USERS, REFLECTION_TARGETS};
use stun_wire::Method;
use turn_types::{ClientPath, FiveTuple, Instant, Prefix};

use super::outbox::Outbox;
use crate::io::{Budget, DropReason, Notice, Request, SourceAddress};
use crate::policy::{Policy, UnauthenticatedBudget};
use crate::random::Random;

const SECOND: Duration = Duration::from_secs(1);

/// Weight of a network of [`REFLECTION_TARGETS`]: the number of addresses of a `/24`.
const ADDRESSES: u32 = 256;

/// Maximum burst of an address from the reserved quarter, in responses. A client with several relay
/// candidates needs this number.
const RESERVED_BURST: u32 = 4;

/// Maximum number of responses per second and worker to possibly forged addresses. These take about
/// two thirds of a processor's time. At this load relayed packets are not delayed, and dropping a
/// request costs a fraction of a response.
const RESPONSES_PER_SECOND: u32 = 49_152;

/// Burst of responses to possibly forged addresses, as time. Sized for clients that all return
/// after an outage.
const RESPONSES_BURST: Duration = Duration::from_millis(250);

/// Processor time charged for an authenticated request without its attributes: integrity and a
/// response.
const REQUEST_TIME: Duration = Duration::from_micros(15);

/// Processor time charged for each byte of an authenticated request. A CreatePermission with a
/// hundred peers has 1,220 bytes, and is charged 65 µs.
const REQUEST_BYTE_TIME: Duration = Duration::from_nanos(40);

/// Divisor of a worker's time, for the share of one address in authenticated requests. The share
/// suffices for 1,600 small requests per second, the number that a thousand new calls send. An
/// account has an eighth of the time, because all clients of an application may share an account. A
/// `/24` has a quarter. A provider's network has half, and so has each realm among several.
const REQUEST_SHARE: u32 = 32;

/// Burst of an address in authenticated requests, as time. Sized for a site whose clients all
/// return after an outage. A realm's burst delays other realms by a quarter of a second.
const REQUEST_BURST: Duration = Duration::from_millis(500);

/// Source of an unauthenticated request, with the rate that bounds the responses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    rate: UnauthenticatedBudget,
    now: Instant,
    ip: IpAddr,
    address: SourceAddress,
}

impl Source {
    /// Returns the source of a request. Nothing in the request needs to be verified.
    pub(crate) const fn of(request: &Request<'_>) -> Self {
        Self::new(request.policy, request.now.instant, request.path)
    }

    /// Returns the source of a packet that arrived by `path`.
    pub(crate) const fn new(policy: &Policy, now: Instant, path: &ClientPath) -> Self {
        let FiveTuple { transport, client, .. } = path.five_tuple;
        let address = SourceAddress::of(transport);
        Self { rate: policy.unauthenticated, now, ip: client.0.ip(), address }
    }

    /// Returns the source after a proof of the address.
    pub(crate) const fn proved(self) -> Self {
        Self { address: SourceAddress::Proved, ..self }
    }
}

/// Budgets for the effects of unauthenticated sources.
#[derive(Debug)]
pub(crate) struct Budgets {
    bindings: Meter,
    challenges: Meter,
    /// Responses to possibly forged addresses of all networks.
    unproved: WorkerTotal,
    /// Responses to proved addresses.
    proved: Meter,
    /// Failed verifications. Hashing is the largest cost that a source without credentials can
    /// cause, and verification is a way to guess passwords.
    verifications: Meter,
    /// Processor time for authenticated requests.
    requests: Meter,
    spent: SpentBudgets,
}

/// Worker's total budget of responses to possibly forged addresses.
#[derive(Debug)]
struct WorkerTotal {
    empty_at: Instant,
}

impl WorkerTotal {
    /// Takes one response. Returns false if the budget is spent.
    fn take(&mut self, now: Instant) -> bool {
        let backlog = self.empty_at.saturating_since(now) + SECOND / RESPONSES_PER_SECOND;
        let has = backlog <= RESPONSES_BURST;
        if has {
            self.empty_at = now + backlog;
        }
        has
    }
}

impl Budgets {
    pub(crate) fn new(random: &mut Random) -> Self {
        let hasher = random.hasher();
        Self {
            requests: Meter::new(&PROCESSOR_USERS, hasher.clone()),
            bindings: Meter::new(&REFLECTION_TARGETS, hasher),
            challenges: Meter::new(&REFLECTION_TARGETS, random.hasher()),
            unproved: WorkerTotal { empty_at: Instant::ZERO },
            proved: Meter::new(&CLIENTS, random.hasher()),
            verifications: Meter::new(&CLIENTS, random.hasher()),
            spent: SpentBudgets::default(),
        }
    }

    /// Takes one response to an unauthenticated request from the budget of the source.
    ///
    /// # Errors
    /// The budget is spent, and no response may be sent.
    pub(crate) fn charge_response(
        &mut self,
        source: Source,
        method: Method,
        outbox: &mut Outbox,
    ) -> Result<(), DropReason> {
        let Source { rate, now, ip, address } = source;
        if rate.per_second == 0 {
            return Ok(());
        }
        let (own, budget, prefix) = match (address, method) {
            (SourceAddress::Proved, _) => {
                (&mut self.proved, Budget::ProvedAddress, Prefix::customer(ip))
            }
            (SourceAddress::Unproved, Method::BINDING) => {
                (&mut self.bindings, Budget::Bindings, Prefix::network(ip))
            }
            (SourceAddress::Unproved, _) => {
                (&mut self.challenges, Budget::Challenges, Prefix::network(ip))
            }
        };
        let (taken, spent) = match address {
            SourceAddress::Proved => {
                let cost = SECOND / rate.per_second;
                let taken = own.spend(now, &Claimant::at(ip), cost, SECOND);
                (taken, DropReason::ProvedAddressBudget)
            }
            SourceAddress::Unproved => {
                (take_unproved(own, now, ip, rate), DropReason::UnauthenticatedBudget)
            }
        };
        if !taken {
            self.report_spent(now, budget, prefix, outbox);
            return Err(spent);
        }
        if address == SourceAddress::Unproved && !self.unproved.take(now) {
            self.report_spent(now, Budget::AllNetworks, prefix, outbox);
            return Err(DropReason::AllNetworksBudget);
        }
        Ok(())
    }

    /// Returns true if the address, and the account if known, have time for a request. The charge
    /// follows after the integrity has proved the sender.
    pub(crate) fn may_request(&self, source: Source, claimant: &Claimant<'_>) -> bool {
        let Source { rate, now, .. } = source;
        rate.per_second == 0 || self.requests.backlog(now, claimant) < REQUEST_BURST
    }

    /// Charges an authenticated request of `bytes` bytes.
    pub(crate) fn charge_request(&mut self, source: Source, claimant: &Claimant<'_>, bytes: usize) {
        let Source { rate, now, .. } = source;
        if rate.per_second > 0 {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let time = REQUEST_TIME + REQUEST_BYTE_TIME * bytes.min(1 << 16);
            self.requests.charge(now, claimant, time * REQUEST_SHARE);
        }
    }

    /// Returns true if a request of this source may be verified.
    pub(crate) fn may_verify(&self, source: Source) -> bool {
        let Source { rate, now, ip, .. } = source;
        rate.per_second == 0 || self.verifications.backlog(now, &Claimant::at(ip)) < SECOND
    }

    /// Charges failed verifications to the source.
    pub(crate) fn charge_verifications(&mut self, source: Source, failed: u32) {
        let Source { rate, now, ip, .. } = source;
        if rate.per_second > 0 {
            let cost = SECOND / rate.failed_verifications() * failed;
            self.verifications.charge(now, &Claimant::at(ip), cost);
        }
    }

    /// Reports a spent budget, unless the last report of this budget is less than a minute old.
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

/// Charges a response to a possibly forged address to the network's budget. Returns false if the
/// budget is spent.
fn take_unproved(meter: &mut Meter, now: Instant, ip: IpAddr, rate: UnauthenticatedBudget) -> bool {
    // Binding and challenges have half of the rate each.
    let of_network = SECOND * 2 / rate.per_second;
    let cost = of_network * ADDRESSES;
    // At the lowest rates, three quarters of the burst must hold one response.
    let burst = SECOND.max(of_network * 2);
    let allowance = Allowance { burst, reserved: cost * RESERVED_BURST };
    meter.spend_shared(now, &Claimant::at(ip), cost, allowance)
}

/// Time of the last report of each spent budget. A flood causes one notice per minute.
#[derive(Debug, Default)]
struct SpentBudgets([Option<Instant>; Budget::ALL.len()]);

impl SpentBudgets {
    /// Returns true if a spent budget is due for a report.
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

    /// A flood in the name of a network leaves a few responses for each other address.
    #[test]
    fn an_address_gets_no_more_than_its_share_of_the_reserve() {
        let mut meter = Meter::new(&REFLECTION_TARGETS, Random::new([1; 32]).hasher());
        let rate = UnauthenticatedBudget { per_second: 400 };
        let mut taken = |now, last| {
            let ip = IpAddr::from([198, 51, 100, last]);
            (0..1000).filter(|_| take_unproved(&mut meter, now, ip, rate)).count()
        };
        let start = Instant::ZERO;
        // Three quarters of a second at half the rate.
        assert_eq!([1, 2, 3].map(|last| taken(start, last)), [150, 4, 4]);
        assert_eq!(taken(start + SECOND, 1), 150);
        assert_eq!(taken(start + SECOND + SECOND / 10, 1), 20, "a tenth of half of the rate");
    }

    #[test]
    fn the_total_of_a_worker_is_bounded_and_returns() {
        let (mut total, start) = (WorkerTotal { empty_at: Instant::ZERO }, Instant::ZERO + SECOND);
        let mut taken =
            |after: Duration| (0..100_000).filter(|_| total.take(start + after)).count();
        let burst = RESPONSES_PER_SECOND as usize / 4;
        assert_eq!([taken(Duration::ZERO), taken(SECOND)], [burst, burst]);
        let tenth = taken(SECOND + SECOND / 10);
        assert!((4900..=4916).contains(&tenth), "{tenth}");
    }

    /// Returns the time used by concurrent requests of 1,000 clients with an account each. `client`
    /// returns the address and realm of a client.
    fn time_used(client: impl Fn(u32) -> ([u8; 4], &'static str)) -> Duration {
        let mut budgets = Budgets::new(&mut Random::new([1; 32]));
        let source = Source {
            rate: UnauthenticatedBudget { per_second: 400 },
            now: Instant::ZERO + SECOND,
            ip: [198, 51, 100, 1].into(),
            address: SourceAddress::Proved,
        };
        let mut used = Duration::ZERO;
        for number in 0..100_000 {
            let (address, realm) = client(number % 1000);
            let account = std::format!("{}", number % 1000);
            let claimant = Claimant::at(address.into()).with_account(realm, &account);
            if budgets.may_request(source, &claimant) {
                budgets.charge_request(source, &claimant, 0);
                used += REQUEST_TIME;
            }
        }
        used
    }

    #[test]
    fn a_realm_or_a_network_gets_a_part_of_the_burst() {
        let many = |number: u32| {
            let [_, _, high, low] = (number * 64).to_be_bytes();
            [high, low, 2, 1]
        };
        assert_eq!(time_used(|number| (many(number), "a")).as_millis(), 250, "a realm");
        let of_provider = |number: u32| {
            let [_, _, high, low] = number.to_be_bytes();
            ([60, 1, high * 64 + low / 4, low], ["a", "b", "c", "d"][number as usize % 4])
        };
        assert_eq!(time_used(of_provider).as_millis(), 250, "a /16");
        let of_network = |number: u32| ([60, 1, 1, number.to_be_bytes()[3]], "a");
        assert_eq!(time_used(of_network).as_millis(), 125, "a /24");
    }

    #[test]
    fn the_lowest_rate_answers_and_the_highest_counts() {
        let ip = IpAddr::from([198, 51, 100, 1]);
        for (per_second, most) in [(1, 1), (2, 1), (u32::MAX, 10_000)] {
            let mut meter = Meter::new(&REFLECTION_TARGETS, Random::new([1; 32]).hasher());
            let rate = UnauthenticatedBudget { per_second };
            let taken = (0..most).filter(|_| take_unproved(&mut meter, Instant::ZERO, ip, rate));
            assert_eq!(taken.count(), most, "{per_second}");
        }
    }
}
