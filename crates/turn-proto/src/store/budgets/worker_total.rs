//! Bound on the effects of unauthenticated sources of all networks together, in one worker.
//!
//! A budget of each network is no bound for a sender with thousands of networks, or with forged
//! addresses of thousands: the responses take the processor from relayed packets. To drop a
//! request takes a fraction of the time of a response.

use core::net::IpAddr;
use core::time::Duration;

use ahash::RandomState;
use fair_share::{Claimant, Meter, NETWORKS};
use turn_types::Instant;

/// Responses of one worker per second, for each budget: a fifth of a processor's time. With three
/// such budgets spent, relayed packets are still not delayed.
const PER_SECOND: u32 = 16_384;

/// Time that one response takes of the total.
const COST: Duration = Duration::from_nanos(1_000_000_000 / PER_SECOND as u64);

/// Responses in a burst, as time: clients that all return after an outage.
const BURST: Duration = Duration::from_millis(250);

/// Time for which a response counts as recent use of its network: a network with ten per second,
/// as a company with a hundred callers, still has little.
const RECENT: Duration = Duration::from_millis(100);

/// Recent responses to a network with little use, at most: a client with several candidates.
const LITTLE_USES: u32 = 8;

/// The same as time.
const LITTLE: Duration = RECENT.saturating_mul(LITTLE_USES);

/// Total of one budget. The last quarter is for networks with little recent use.
#[derive(Debug)]
pub(super) struct WorkerTotal {
    networks: Meter,
    empty_at: Instant,
}

impl WorkerTotal {
    /// A total of which nothing is spent. The hasher has a secret seed.
    pub(super) fn new(hasher: RandomState) -> Self {
        Self { networks: Meter::new(&NETWORKS, hasher), empty_at: Instant::ZERO }
    }

    /// Returns true if there is something left for this source.
    pub(super) fn has(&self, now: Instant, ip: IpAddr) -> bool {
        let after = self.empty_at.saturating_since(now) + COST;
        let recent = || self.networks.backlog(now, &Claimant::at(ip)) + RECENT;
        after <= BURST / 4 * 3 || after <= BURST && recent() <= LITTLE
    }

    /// Charges effects of a source.
    pub(super) fn charge(&mut self, now: Instant, ip: IpAddr, number: u32) {
        let backlog = self.empty_at.saturating_since(now) + COST * number;
        self.empty_at = now + backlog.min(BURST);
        // A network with more than a little is charged no further.
        let _ =
            self.networks.spend(now, &Claimant::at(ip), RECENT * number.min(LITTLE_USES), LITTLE);
    }

    /// Takes one effect of a source. Returns false if nothing is left for it.
    pub(super) fn take(&mut self, now: Instant, ip: IpAddr) -> bool {
        let has = self.has(now, ip);
        if has {
            self.charge(now, ip, 1);
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn total() -> WorkerTotal {
        WorkerTotal::new(crate::random::Random::new([1; 32]).hasher())
    }

    /// An address in one of 65,536 networks of IPv4.
    fn address(network: u32) -> IpAddr {
        IpAddr::from((network << 8 | 7).to_be_bytes())
    }

    /// Requests of each of these networks per second, for ten seconds; returns the responses per
    /// second to the networks, and how many of a quiet client's requests got one.
    fn flood(networks: u32, each: u32) -> (u32, u32) {
        let (mut total, mut answered, mut quiet) = (total(), 0, 0);
        let spacing = SECOND / (networks * each);
        let mut now = Instant::ZERO;
        for _ in 0..10 {
            for number in 0..networks * each {
                now = now + spacing;
                answered += u32::from(total.take(now, address(256 + number % networks)));
            }
            quiet += u32::from(total.take(now, address(1)));
        }
        (answered / 10, quiet)
    }

    #[test]
    fn a_thousand_networks_take_no_more_than_the_total_and_leave_others_theirs() {
        for (networks, each) in [(1000, 77), (1000, 400), (100, 1000)] {
            let (answered, quiet) = flood(networks, each);
            assert!(answered <= PER_SECOND + PER_SECOND / 10, "{networks}: {answered}");
            assert_eq!(quiet, 10, "{networks} networks with {each} requests");
        }
    }

    #[test]
    fn without_a_flood_everybody_is_answered() {
        assert_eq!(flood(1000, 10), (10_000, 10));
        assert_eq!(flood(5, 2000), (10_000, 10));
    }

    #[test]
    fn a_flood_is_forgotten_within_a_second() {
        let mut total = total();
        for _ in 0..100_000 {
            total.charge(Instant::ZERO, address(1), 100);
        }
        assert!(!total.has(Instant::ZERO, address(2)), "everything is spent");
        assert!(total.has(Instant::ZERO + SECOND, address(1)));
    }
}
