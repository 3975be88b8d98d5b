use core::net::IpAddr;
use std::vec::Vec;

use super::*;
use crate::attackers::{Attacker, honest};
use crate::levels::{CLIENTS, LOGGED_IN};

fn slots(levels: &'static Levels, capacity: u32) -> Slots {
    Slots::new(levels, capacity, RandomState::with_seeds(1, 2, 3, 4))
}

fn client(last: u8) -> Claimant<'static> {
    Claimant::at(IpAddr::from([192, 0, 2, last]))
}

/// Tables whose entries are permanent keep slots free from each attacker.
#[test]
fn no_attacker_takes_the_last_slots() {
    for (levels, attackers) in [(&CLIENTS, Attacker::strangers()), (&LOGGED_IN, Attacker::users())]
    {
        for mut attacker in attackers {
            let mut slots = slots(levels, 4096);
            for _ in 0..100_000 {
                // Never released.
                drop(slots.claim(&attacker.next()));
            }
            assert!(slots.held() > 4096 / 2, "{}: space is not wasted", attacker.name);
            for number in 0..20 {
                let claimed = slots.claim(&honest(number)).map(drop);
                assert_eq!(claimed, Ok(()), "{}, {number}", attacker.name);
            }
        }
    }
}

/// Other users of the realm get slots of a small table that one user fills, and other realms the
/// last slots.
#[test]
fn one_user_leaves_slots_of_a_small_table_to_others_of_the_realm() {
    let names: Vec<_> = (0..100_u8).map(|number| std::format!("user{number}")).collect();
    let user = |address: [u8; 4], name| Claimant::at(address.into()).with_account("r", name);
    for capacity in [16, 24, 30, 32, 40, 60, 64, 100, 128, 256, 500] {
        let mut slots = slots(&LOGGED_IN, capacity);
        let mallory = user([198, 51, 100, 7], "mallory");
        (0..2 * capacity).for_each(|_| drop(slots.claim(&mallory)));
        let left = capacity - slots.held();
        let others = names.iter().zip(0..).map(|(name, number)| user([203, number, 113, 1], name));
        let served = others.map(|other| slots.claim(&other)).filter(Result::is_ok).count() as u32;
        assert!((left / 2..left).contains(&served), "{served} of {left} of {capacity}");
    }
}

/// Clients of one network, account or realm in a table that is small for its weight.
#[test]
fn no_network_takes_the_last_slots_of_a_small_table() {
    for capacity in [9, 16, 40, 100, 200, 500] {
        let attackers = Attacker::strangers().into_iter().chain(Attacker::users());
        // A thousand networks fill such a table with one entry each.
        for mut attacker in attackers.filter(|attacker| attacker.name != "a botnet") {
            let mut slots = slots(&LOGGED_IN, capacity);
            (0..4 * capacity).for_each(|_| drop(slots.claim(&attacker.next())));
            let left = capacity - slots.held();
            let most = FEW.min(capacity / 4).max(capacity / 8);
            assert!((1..=most).contains(&left), "{} {capacity}: {left}", attacker.name);
            let claimed = slots.claim(&honest(0)).map(drop);
            assert_eq!(claimed, Ok(()), "{} {capacity}", attacker.name);
        }
    }
}

#[test]
fn a_second_network_does_not_take_the_last_slots_of_a_small_table() {
    for capacity in [40, 100, 200, 500] {
        let mut slots = slots(&CLIENTS, capacity);
        for name in ["one address", "a /32"] {
            let attackers = Attacker::strangers();
            let mut attacker = attackers.into_iter().find(|one| one.name == name).unwrap();
            (0..2 * capacity).for_each(|_| drop(slots.claim(&attacker.next())));
        }
        assert_eq!(slots.claim(&honest(0)).map(drop), Ok(()), "{capacity}");
    }
}

/// Newcomers get slots of attackers in a table whose entries can be dropped.
#[test]
fn attackers_make_room_and_nobody_else_does() {
    for mut attacker in Attacker::strangers() {
        let mut slots = slots(&CLIENTS, 512);
        let mut table: Vec<(Share, bool)> = Vec::new();
        let mut add = |newcomer: Claimant<'static>, is_honest: bool| {
            if slots.held() == slots.capacity() {
                let rival = slots.rival(&newcomer, table.len(), |position| &table[position].0);
                let Some(position) = rival else {
                    return Err(is_honest);
                };
                let (dropped, was_honest) = table.remove(position);
                slots.release(dropped);
                if was_honest {
                    return Err(true);
                }
            }
            table.push((slots.keep(&newcomer), is_honest));
            Ok(())
        };
        let mut added = 0;
        for _ in 0..2000 {
            added += usize::from(add(attacker.next(), false) == Ok(()));
        }
        assert!(added >= 512, "{}: space is not wasted", attacker.name);
        for number in 0..50 {
            let result = add(honest(number), true);
            assert_eq!(result, Ok(()), "{}: honest client {number}", attacker.name);
            for _ in 0..3 {
                let result = add(attacker.next(), false);
                assert_ne!(result, Err(true), "{}: an honest client lost", attacker.name);
            }
        }
    }
}

#[test]
fn one_client_may_have_nearly_all_of_a_table_that_nobody_else_uses() {
    for (claimant, least) in [
        (Claimant::at([192, 0, 2, 1].into()), 7 * 4096 / 8),
        (Claimant::at([192, 0, 2, 1].into()).with_account("r", "all"), 7 * 4096 / 8),
    ] {
        let mut slots = slots(&LOGGED_IN, 4096);
        while slots.claim(&claimant).map(drop).is_ok() {}
        assert_eq!(slots.check(&claimant), Err(Shortage::Share));
        assert!((least..4096).contains(&slots.held()), "{}", slots.held());
    }
}

#[test]
fn slots_come_back_and_nothing_is_remembered() {
    let mut slots = slots(&LOGGED_IN, 4);
    let claimants = [client(1), client(2).with_account("r", "a"), client(2).with_account("r", "")];
    let mut shares: Vec<_> = claimants.iter().map(|claimant| slots.claim(claimant)).collect();
    shares.push(Ok(slots.keep(&client(3))));
    assert_eq!(slots.claim(&client(4)).map(drop), Err(Shortage::Table));
    shares.push(Ok(slots.keep(&client(4))));
    assert_eq!((slots.held(), slots.capacity()), (5, 4));
    shares.into_iter().for_each(|share| slots.release(share.unwrap()));
    assert!(slots.held() == 0 && slots.counts.is_empty());
}

#[test]
fn the_newest_of_the_largest_makes_room_and_the_oldest_of_equals() {
    let mut slots = slots(&CLIENTS, 6);
    let mut table = Vec::from([1, 2, 1, 3, 1, 2].map(|last| slots.keep(&client(last))));
    let mut others = (10..).map(client);
    let mut next = |table: &mut Vec<Share>| {
        let newcomer = others.next()?;
        let position = slots.rival(&newcomer, table.len(), |position| &table[position])?;
        slots.release(table.remove(position));
        table.push(slots.keep(&newcomer));
        Some(position)
    };
    assert_eq!(next(&mut table), Some(4), "the newest of the client with three");
    // Of two clients with two entries each, the newest entry: then one entry is left of each.
    assert_eq!(next(&mut table), Some(4));
    assert_eq!(next(&mut table), Some(2));
    assert_eq!(next(&mut table), Some(0), "the oldest of all");
    let mut slots = self::slots(&CLIENTS, 3);
    let table = [1, 1, 2].map(|last| slots.keep(&client(last)));
    assert_eq!(slots.rival(&client(1), 3, |position| &table[position]), Some(0), "its own oldest");
    let table = [5, 6, 7].map(|last| slots.keep(&client(last)));
    assert_eq!(slots.rival(&client(1), 3, |position| &table[position]), None, "it has more");
}

#[test]
fn an_account_makes_room_for_others_of_its_realm_and_provider() {
    let mut slots = slots(&LOGGED_IN, 512);
    let of = |account: &'static str, number: u16| {
        let [a, b] = number.to_be_bytes();
        Claimant::at(IpAddr::from([198, 51, a, b])).with_account("only", account)
    };
    let mut table: Vec<_> = (0..500).map(|number| slots.keep(&of("mallory", number))).collect();
    table.extend((500..512).map(|number| slots.keep(&of("alice", number))));
    assert_eq!(slots.held_by_account(&of("mallory", 600)), 500);
    let position = slots.rival(&of("bob", 600), table.len(), |position| &table[position]).unwrap();
    assert!(position < 500, "{position}");
}

/// The last slots of a single realm are for its clients, and the last of two realms for the other.
#[test]
fn the_only_realm_has_the_whole_table() {
    let of = |realm: &'static str, number: u32| {
        Claimant::at(IpAddr::from(((number + 0x1000) << 16).to_be_bytes())).with_account(realm, "")
    };
    let mut slots = slots(&LOGGED_IN, 4096);
    slots.set_realms_compete(false);
    for number in 0..4095 {
        assert_eq!(slots.claim(&of("a", number)).map(drop), Ok(()), "{number}");
    }
    slots.set_realms_compete(true);
    assert_eq!(slots.check(&of("a", 5000)), Err(Shortage::Share));
    assert_eq!(slots.check(&of("b", 5000)), Ok(()));
    slots.set_realms_compete(false);
    assert_eq!(slots.check(&of("a", 5000)), Ok(()));
}

/// Entries with the weight of several slots, as in a queue of bytes.
#[test]
fn large_entries_leave_slots_to_others_and_come_back() {
    let mut slots = slots(&CLIENTS, 1 << 20);
    let mut shares = Vec::new();
    while slots.check_slots(&client(1), 1500).is_ok() {
        shares.push(slots.keep_slots(&client(1), 1500));
    }
    assert!((7 << 17..1 << 20).contains(&slots.held()), "{}", slots.held());
    assert_eq!(slots.check_slots(&honest(1), 1500), Ok(()));
    assert_eq!(slots.check_slots(&honest(1), 1 << 20), Err(Shortage::Table));
    shares.into_iter().for_each(|share| slots.release(share));
    assert!(slots.held() == 0 && slots.counts.is_empty());
}

#[test]
fn entries_of_one_table_are_shares_of_another() {
    let mut slots = slots(&LOGGED_IN, u32::MAX);
    let shares: Vec<_> = (0..900).map(|_| slots.keep(&client(1))).collect();
    let [ample, scarce, full] = [125, 124, 0].map(|free| Supply { free, capacity: 1000 });
    assert_eq!(slots.check_supply(&client(1), 1, ample), Ok(()));
    assert_eq!(slots.check_supply(&client(1), 1, scarce), Err(Shortage::Share));
    assert_eq!(slots.check_supply(&client(1), 0, scarce), Err(Shortage::Share));
    assert_eq!(slots.check_supply(&honest(1), 1, scarce), Ok(()));
    assert_eq!(slots.check_supply(&honest(1), 1, full), Err(Shortage::Table));
    // No network counts at shared addresses.
    let anywhere = Claimant::at_shared_address();
    assert_eq!(slots.check_supply(&anywhere, 1, scarce), Ok(()));
    drop(shares);
}
