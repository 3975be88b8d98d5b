use core::net::IpAddr;
use std::vec::Vec;

use super::*;
use crate::attackers::{Attacker, honest};
use crate::levels::{CLIENTS, LOGGED_IN, USERS};

const DELAY: Duration = Duration::from_secs(1);

fn queue<T>(levels: &'static Levels, capacity: usize) -> FairQueue<T> {
    FairQueue::new(levels, capacity, DELAY, RandomState::with_seeds(1, 2, 3, 4))
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// A server that has time for one of three entries: honest clients are served next.
#[test]
fn honest_clients_are_served_before_any_attacker() {
    for (levels, attackers) in [(&CLIENTS, Attacker::strangers()), (&LOGGED_IN, Attacker::users())]
    {
        for mut attacker in attackers {
            let mut queue = queue(levels, 512);
            let mut served = 0;
            for millis in 0..3000 {
                for _ in 0..3 {
                    queue.push(at(millis), &attacker.next(), false);
                }
                served += usize::from(queue.pop().is_some());
            }
            queue.push(at(3000), &attacker.next(), false);
            assert_eq!((queue.len(), served), (512, 3000), "{}: no time is wasted", attacker.name);
            for number in 0..50 {
                assert_eq!(queue.push(at(3000), &honest(number), true), Some(false));
            }
            // A few entries of the attacker have waited for their turn already.
            let order: Vec<bool> = queue.iter().copied().collect();
            let last = order.iter().rposition(|is_honest| *is_honest).unwrap();
            assert!(last < 75, "{}: {last}", attacker.name);
        }
    }
}

#[test]
fn entries_of_one_client_stay_in_their_order_and_the_last_is_dropped() {
    let mut queue = queue(&CLIENTS, 4);
    let [one, two] = [honest(0), honest(1)];
    for number in 1..=3 {
        assert_eq!(queue.push(at(0), &one, number), None);
    }
    assert_eq!(queue.push(at(5), &two, 11), None);
    assert_eq!(queue.push(at(5), &one, 4), Some(4));
    assert_eq!(queue.push(at(5), &two, 12), Some(3));
    assert_eq!(queue.first(), Some(&1));
    let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
    assert_eq!(order, [1, 11, 2, 12]);
    assert!(queue.is_empty());
}

#[test]
fn what_a_client_did_is_forgotten_within_a_minute() {
    let mut queue = queue(&CLIENTS, 1);
    for _ in 0..100_000 {
        queue.push(at(0), &honest(0), ());
    }
    let limit = at(0) + REMEMBERED + DELAY;
    assert_eq!(queue.meter.backlog(limit, &honest(0)), Duration::ZERO);
}

#[test]
fn entries_can_be_changed() {
    let mut queue = queue(&CLIENTS, 9);
    (1..=3).for_each(|number| assert_eq!(queue.push(at(0), &honest(0), number), None));
    queue.iter_mut().for_each(|entry| *entry *= 10);
    assert_eq!(queue.iter().copied().collect::<Vec<_>>(), [10, 20, 30]);
    assert_eq!(queue.len(), 3);
}

/// Levels without realms: all clients of a server with one realm would share that level.
#[test]
fn clients_are_told_apart_within_one_realm() {
    let mut queue = queue(&USERS, 512);
    let of = |account: &'static str, [a, b]: [u8; 2]| {
        let network = if account.len() < 6 { 7 } else { 51 };
        Claimant::at([198, network, a, b].into()).with_account("only", account)
    };
    for millis in 0..20_000_u64 {
        let [.., a, b] = millis.to_be_bytes();
        queue.push(at(millis), &of("mallory", [a, b]), "mallory");
        queue.push(at(millis), &of("a crowd", [a, b]), "a crowd");
        if millis % 2 == 0 {
            queue.pop();
        }
    }
    for honest in ["alice", "bob"] {
        queue.push(at(20_000), &of(honest, [200, honest.len() as u8]), honest);
    }
    let next: Vec<_> = std::iter::from_fn(|| queue.pop()).take(20).collect();
    assert!(next.contains(&"alice") && next.contains(&"bob"), "{next:?}");
}

#[test]
fn a_client_never_overtakes_itself_however_long_its_entries_wait() {
    let mut queue = queue(&LOGGED_IN, 512);
    let client = Claimant::at([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into()).with_account("r", "a");
    for number in 0..200_u64 {
        let millis = number * number * 10;
        assert_eq!(queue.push(at(millis), &client, number), None);
    }
    let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
    assert!(order.is_sorted());
}

/// Many accounts that each ask less than any fixed rate, and together more than is served.
#[test]
fn newcomers_come_first_however_slow_the_service_is() {
    let mut queue = queue(&LOGGED_IN, 4096);
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for millis in 0..60_000_u64 {
        if millis % 100 == 0 {
            for (number, name) in NAMES.into_iter().enumerate() {
                let address = IpAddr::from([198, 51, number as u8, 1]);
                queue.push(at(millis), &Claimant::at(address).with_account("r", name), name);
            }
        }
        if millis % 20 == 0 {
            queue.pop();
        }
    }
    assert!(queue.len() > 1000);
    let newcomer = Claimant::at(IpAddr::from([203, 0, 113, 1])).with_account("r", "alice");
    queue.push(at(60_000), &newcomer, "alice");
    let position = queue.iter().position(|name| *name == "alice").unwrap();
    assert!(position < NAMES.len(), "{position} of {}", queue.len());
}

#[test]
fn the_first_entry_is_removed_in_the_same_way_with_and_without_a_condition() {
    let order = |pop: fn(&mut FairQueue<u64>) -> Option<u64>| {
        let mut queue = queue(&CLIENTS, 512);
        for millis in 0..400_u64 {
            queue.push(at(millis), &honest((millis % 3) as u8), millis);
            queue.push(at(millis), &honest((millis % 7) as u8), 1000 + millis);
            pop(&mut queue);
        }
        std::iter::from_fn(|| pop(&mut queue)).collect::<Vec<_>>()
    };
    assert_eq!(order(FairQueue::pop), order(|queue| queue.pop_where(64, |_| true)));
}

#[test]
fn newcomers_come_before_entries_that_are_skipped() {
    let mut queue = queue(&CLIENTS, 512);
    (0..63).for_each(|_| assert!(queue.push(at(0), &honest(0), "skipped").is_none()));
    queue.push(at(0), &honest(0), "removed");
    assert!(queue.pop_where(64, |entry| *entry == "removed").is_some());
    queue.push(at(0), &honest(1), "newcomer");
    let position = queue.iter().position(|entry| *entry == "newcomer").unwrap();
    assert!(position < 2, "{position}");
}

#[test]
fn a_charged_client_comes_after_others_with_more_entries() {
    let mut queue = queue(&CLIENTS, 512);
    queue.charge(at(0), &honest(0), 8 * DELAY);
    (0..4).for_each(|_| assert!(queue.push(at(0), &honest(1), "other").is_none()));
    queue.push(at(0), &honest(0), "charged");
    queue.push(at(0), &honest(1), "other");
    let position = queue.iter().position(|entry| *entry == "charged").unwrap();
    assert_eq!(position, 5);
}
