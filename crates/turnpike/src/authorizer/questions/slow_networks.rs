//! Networks with many slow questions. An attacker with a new account for each question is
//! identified by the network.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use turn_proto::Applicant;
use turn_types::{Prefix, Realm};

use super::super::kept::network;

/// Maximum number of questions in flight of a network and realm with a slow question, while the
/// service answers clients of other networks quickly. New accounts in the network of an attacker
/// share this number. Three further accounts per second for which the service hangs suffice to
/// block the new accounts.
pub(super) const SLOW_NETWORK_MAX: usize = 8;

/// Time after the latest quick answer from which no account or network is treated as slow, because
/// the service may have become slow for all.
pub(super) const QUICK_FOR: Duration = Duration::from_secs(10);

/// Networks (`/24`, `/48` of IPv6), each with a realm, with [`SLOW_NETWORK_MAX`] or more questions
/// in flight, including slow questions.
#[derive(Debug, Default)]
pub(super) struct SlowNetworks {
    full: Vec<(Prefix, Realm)>,
    /// Network and time of the latest quick answer, and of the latest quick answer in another
    /// network.
    quick: [Option<(Prefix, Instant)>; 2],
}

impl SlowNetworks {
    /// Records a quick answer.
    pub(super) fn note_quick(&mut self, applicant: &Applicant, now: Instant) {
        let network = network(applicant);
        let [latest, other] = &mut self.quick;
        if latest.is_some_and(|(before, _)| before != network) {
            *other = *latest;
        }
        *latest = Some((network, now));
    }

    /// Counts the questions in flight of each network and realm.
    pub(super) fn count<'a>(
        &mut self,
        prompt: impl ExactSizeIterator<Item = &'a Applicant>,
        slow: impl ExactSizeIterator<Item = &'a Applicant>,
        now: Instant,
    ) {
        self.full.clear();
        if slow.len() == 0 || prompt.len() + slow.len() < SLOW_NETWORK_MAX {
            return;
        }
        let mut counts = BTreeMap::new();
        let key = |applicant: &'a Applicant| (network(applicant), &applicant.realm);
        slow.for_each(|applicant| *counts.entry(key(applicant)).or_insert(0) += 1);
        for applicant in prompt {
            counts.entry(key(applicant)).and_modify(|count| *count += 1);
        }
        let full = counts.into_iter().filter(|(_, count)| *count >= SLOW_NETWORK_MAX);
        self.full = full.map(|((network, realm), _)| (network, realm.clone())).collect();
        let Self { full, quick } = self;
        full.retain(|(full, _)| {
            quick.iter().flatten().any(|(network, at)| {
                network != full && now.saturating_duration_since(*at) < QUICK_FOR
            })
        });
    }

    /// Returns true if the network of a client may have no further question of a new account.
    pub(super) fn is_full(&self, applicant: &Applicant) -> bool {
        let network = network(applicant);
        self.full.iter().any(|(full, realm)| *full == network && *realm == applicant.realm)
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
    fn a_network_with_a_slow_question_has_few_while_others_are_quick() {
        let (mut networks, now) = (SlowNetworks::default(), Instant::now());
        let [slow, neighbour, other] = [[192, 0, 2, 1], [192, 0, 2, 7], [192, 0, 3, 1]].map(client);
        let count = |networks: &mut SlowNetworks, prompt: usize, hanging: usize, now| {
            let prompt = vec![&neighbour; prompt];
            networks.count(prompt.into_iter(), vec![&slow; hanging].into_iter(), now);
            [&neighbour, &other].map(|client| networks.is_full(client))
        };
        networks.note_quick(&neighbour, now);
        assert_eq!(count(&mut networks, 99, 99, now), [false; 2], "nobody else has answers");
        networks.note_quick(&other, now);
        assert_eq!(count(&mut networks, SLOW_NETWORK_MAX - 2, 1, now), [false; 2]);
        assert_eq!(count(&mut networks, SLOW_NETWORK_MAX - 1, 1, now), [true, false]);
        let mut other_realm = neighbour.clone();
        other_realm.realm = "other".into();
        assert!(!networks.is_full(&other_realm));
        assert_eq!(count(&mut networks, 99, 0, now), [false; 2], "none is slow");
        networks.note_quick(&neighbour, now);
        assert_eq!(count(&mut networks, 0, SLOW_NETWORK_MAX, now), [true, false]);
        assert_eq!(count(&mut networks, 99, 99, now + QUICK_FOR), [false; 2]);
    }
}
