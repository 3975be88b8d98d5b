//! Simulation of one account with quick answers, next to accounts with slower answers.

use super::*;

/// Simulates sixty concurrent clients every five seconds, and one account with `quick_per_second`
/// questions per second.
fn percent_of_bursts(quick_per_second: u32) -> u32 {
    let mut world = Neighbours::new(20 * TICKS);
    world.answers_after = TICKS / 5;
    while world.tick < 100 * TICKS {
        if world.tick.is_multiple_of(5 * TICKS) {
            for client in 0..60 {
                let name = format!("other {client} {}", world.tick);
                world.push(&name, [60 + (client / 4) as u8, 1, client as u8, 1]);
            }
        }
        let due = |tick: u32| tick * quick_per_second / TICKS;
        for _ in due(world.tick)..due(world.tick + 1) {
            world.push_in("b", "quick", [203, 0, 113, 1]);
        }
        world.advance();
    }
    world.others.percent()
}

#[test]
fn quick_answers_to_one_account_leave_slots_to_others() {
    for quick_per_second in [0, 2, 20, 50, 100] {
        let percent = percent_of_bursts(quick_per_second);
        assert_eq!(percent, 100, "{quick_per_second} per second");
    }
}

/// Thirty clients per second query a service with exponential response times, where the median of a
/// round is random.
#[test]
fn different_times_lead_to_few_refusals() {
    let mut world = Neighbours::new(20 * TICKS);
    (world.answers_after, world.is_random) = (TICKS / 5, Some(Random(1)));
    while world.tick < 100 * TICKS {
        if world.tick % 10 < 3 {
            let number = world.tick;
            world.push(&format!("other {number}"), [60 + (number % 50) as u8, 1, 1, 1]);
        }
        world.advance();
    }
    assert!(world.others.percent() >= 95, "{:?}", world.others);
}
