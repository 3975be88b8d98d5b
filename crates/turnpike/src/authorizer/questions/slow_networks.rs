//! Networks with many slow accounts. An attacker with a new account for each question is known by
//! the network.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use turn_proto::Applicant;
use turn_types::Prefix;

/// Time for which an account or network is slow after the latest slow answer.
pub(super) const SLOW_FOR: Duration = Duration::from_secs(45);

/// Time after the latest quick answer from which no account or network is slow: the service may
/// have become slow for all.
pub(super) const QUICK_FOR: Duration = Duration::from_secs(10);

/// Maximum number of networks with a slow account: some 200 KiB. The network that was added first
/// is removed.
const SLOW_NETWORKS_MAX: usize = 4096;

/// Smallest number of slow accounts of a slow network.
const SLOW_MIN: u16 = 4;

/// Number of counted accounts and answers after which both counts are halved.
const HALVE_AT: u16 = 64;

/// Networks (`/24`, `/48` of IPv6) with slow accounts.
#[derive(Debug, Default)]
pub(super) struct SlowNetworks {
    networks: HashMap<u64, Counts>,
    /// Keys, the first added first.
    order: VecDeque<u64>,
    /// Network and time of the latest quick answer, and of the latest in another network.
    quick: [Option<(u64, Instant)>; 2],
    hasher: RandomState,
}

/// Recent slow accounts and quick answers of a network.
#[derive(Clone, Copy, Debug)]
struct Counts {
    slow: u16,
    quick: u16,
    /// End of the slow time.
    until: Instant,
}

impl Counts {
    const fn add(&mut self, slow: u16, quick: u16) {
        if self.slow + self.quick >= HALVE_AT {
            (self.slow, self.quick) = (self.slow / 2, self.quick / 2);
        }
        (self.slow, self.quick) = (self.slow + slow, self.quick + quick);
    }
}

impl SlowNetworks {
    /// Notes an account that has become slow.
    pub(super) fn note_slow(&mut self, applicant: &Applicant, now: Instant) {
        let (key, until) = (self.key(applicant), now + SLOW_FOR);
        if let Some(counts) = self.networks.get_mut(&key) {
            counts.until = until;
            return counts.add(1, 0);
        }
        self.networks.insert(key, Counts { slow: 1, quick: 0, until });
        self.order.push_back(key);
        if self.order.len() > SLOW_NETWORKS_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.networks.remove(&first);
        }
    }

    /// Notes a quick answer.
    pub(super) fn note_quick(&mut self, applicant: &Applicant, now: Instant) {
        let key = self.key(applicant);
        let [latest, other] = &mut self.quick;
        if latest.is_some_and(|(network, _)| network != key) {
            *other = *latest;
        }
        *latest = Some((key, now));
        if let Some(counts) = self.networks.get_mut(&key) {
            counts.add(0, 1);
        }
    }

    /// Returns true if most accounts in the network of a client are slow, while the service answers
    /// clients of other networks quickly.
    pub(super) fn has(&self, applicant: &Applicant, now: Instant) -> bool {
        let key = self.key(applicant);
        let counts = self.networks.get(&key);
        let is_slow = |counts: &Counts| {
            counts.slow >= SLOW_MIN && counts.slow > counts.quick && now < counts.until
        };
        counts.is_some_and(is_slow)
            && self.quick.iter().flatten().any(|(network, at)| {
                *network != key && now.saturating_duration_since(*at) < QUICK_FOR
            })
    }

    /// A hash under a secret seed: no client can choose the key of another network.
    fn key(&self, applicant: &Applicant) -> u64 {
        self.hasher.hash_one(Prefix::network(applicant.client.ip()))
    }
}

#[cfg(test)]
mod tests {
    use turn_types::ClientAddr;

    use super::super::tests::request;
    use super::*;

    fn client(address: [u8; 4]) -> Applicant {
        let mut applicant = request("alice", 1).applicant;
        applicant.client = ClientAddr((address, 1).into());
        applicant
    }

    #[test]
    fn a_network_is_slow_while_most_of_it_is_and_others_are_not() {
        let (mut networks, now) = (SlowNetworks::default(), Instant::now());
        let [slow, neighbour, other] = [[192, 0, 2, 1], [192, 0, 2, 7], [192, 0, 3, 1]].map(client);
        for number in 0..SLOW_MIN {
            assert!(!networks.has(&neighbour, now), "{number}");
            networks.note_slow(&slow, now);
            networks.note_quick(&other, now);
        }
        assert!(networks.has(&neighbour, now) && !networks.has(&other, now));
        assert!(!networks.has(&neighbour, now + QUICK_FOR), "nobody else has quick answers");
        let later = now + SLOW_FOR;
        networks.note_quick(&other, later);
        assert!(!networks.has(&neighbour, later));
        // Quick answers of the network itself.
        (0..=SLOW_MIN).for_each(|_| networks.note_quick(&neighbour, now));
        assert!(!networks.has(&neighbour, now));
    }

    #[test]
    fn a_network_without_others_is_never_slow() {
        let (mut networks, now) = (SlowNetworks::default(), Instant::now());
        let [slow, neighbour] = [[192, 0, 2, 1], [192, 0, 2, 7]].map(client);
        for _ in 0..50 {
            networks.note_slow(&slow, now);
        }
        networks.note_quick(&neighbour, now);
        assert!(!networks.has(&neighbour, now));
    }

    #[test]
    fn their_number_is_bounded() {
        let (mut networks, now) = (SlowNetworks::default(), Instant::now());
        for number in 0..2 * SLOW_NETWORKS_MAX as u32 {
            let [_, _, high, low] = number.to_be_bytes();
            networks.note_slow(&client([60, high, low, 1]), now);
        }
        assert_eq!(
            (networks.networks.len(), networks.order.len()),
            (SLOW_NETWORKS_MAX, SLOW_NETWORKS_MAX)
        );
    }
}
