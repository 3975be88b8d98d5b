use std::vec::Vec;

use super::*;
use crate::attackers::{Attacker, honest};
use crate::levels::{CLIENTS, LOGGED_IN, REFLECTION_TARGETS};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn meter(levels: &'static Levels) -> Meter {
    Meter::new(levels, RandomState::with_seeds(1, 2, 3, 4))
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn client(text: &str) -> Claimant<'static> {
    Claimant::at(text.parse().unwrap())
}

#[test]
fn an_address_gets_its_rate_and_its_burst() {
    let mut meter = meter(&CLIENTS);
    let mut spent = |millis, tries| {
        let spend = |_: &usize| meter.spend(at(millis), &client("192.0.2.1"), SECOND / 10, SECOND);
        (0..tries).filter(spend).count()
    };
    assert_eq!(spent(5000, 50), 10);
    assert_eq!((spent(5099, 1), spent(5100, 1), spent(5100, 1)), (0, 1, 0));
    assert_eq!(spent(5600, 50), 5);
    assert_eq!(spent(60_000, 50), 10, "no more than a burst is saved up");
}

#[test]
fn networks_have_shares_by_their_weights() {
    for (network, weight) in [("192.0.2", 16), ("192.0", 64), ("192", u32::MAX)] {
        let mut meter = meter(&CLIENTS);
        let mut spent = 0;
        for number in 0..2560_u32 {
            let [.., a, b] = number.to_be_bytes();
            let address = match network {
                "192.0.2" => [192, 0, 2, b],
                "192.0" => [192, 0, a, b],
                _ => [192, b, a, 1],
            };
            spent += u32::from(meter.spend(at(0), &Claimant::at(address.into()), SECOND, SECOND));
        }
        // One in a hundred shares all of its counters.
        let most = weight.min(2560);
        assert!((most * 97 / 100..=most).contains(&spent), "{network}: {spent}");
    }
}

/// The recent use of an attacker in all its shapes is larger than that of any honest client, with
/// which the attacker shares no counter.
#[test]
fn attackers_are_told_from_others() {
    for (levels, attackers) in [(&CLIENTS, Attacker::strangers()), (&LOGGED_IN, Attacker::users())]
    {
        for mut attacker in attackers {
            let mut meter = meter(levels);
            for number in 0..60_000 {
                // A server that is busy all the time: a millisecond of work after the other.
                meter.charge(at(number), &attacker.next(), 32 * MILLI);
            }
            let now = at(60_000);
            let least = (0..1000).map(|_| meter.backlog(now, &attacker.next())).min();
            let honest: Vec<_> =
                (0..50).map(|number| meter.backlog(now, &honest(number))).collect();
            let most = honest.iter().max();
            assert!(most <= least.as_ref(), "{}: {most:?} > {least:?}", attacker.name);
        }
    }
}

#[test]
fn the_rest_of_a_flooded_network_has_its_part_of_the_reserve() {
    let mut meter = meter(&REFLECTION_TARGETS);
    // 400 responses a second for a network.
    let cost = 256 * SECOND / 400;
    let allowance = Allowance { burst: SECOND, reserved: 4 * cost };
    let mut spent = |millis, address| {
        let spend = |_: &usize| meter.spend_shared(at(millis), &client(address), cost, allowance);
        (0..1000).filter(spend).count()
    };
    assert_eq!(spent(0, "198.51.100.1"), 300);
    assert_eq!(spent(0, "198.51.100.2"), 4);
    assert_eq!(spent(0, "::ffff:198.51.100.3"), 4);
    assert_eq!(spent(0, "198.51.101.3"), 300, "another network");
    assert_eq!(spent(1000, "198.51.100.1"), 300);
}

#[test]
fn work_that_was_done_is_charged_beyond_any_burst() {
    let mut meter = meter(&LOGGED_IN);
    let [here, elsewhere] =
        ["2001:db8::1", "2001:db8:ffff::1"].map(|ip| client(ip).with_account("r", "a"));
    meter.charge(at(0), &here, 100 * SECOND);
    assert!(!meter.spend(at(1000), &here, MILLI, SECOND));
    assert_eq!(meter.backlog(at(1000), &here), 99 * SECOND);
    // An account is sixteen addresses.
    assert_eq!(meter.backlog(at(0), &elsewhere), 100 * SECOND / 16);
    let stranger = client("2001:db8::2");
    assert_eq!(meter.backlog(at(0), &stranger), 100 * SECOND, "of the same /64");
}
