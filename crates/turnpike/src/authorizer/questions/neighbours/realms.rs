//! Clients of a realm for which the service hangs, next to clients of another realm.

use super::*;

/// Sends two hundred questions per second from a thousand networks with an account each, for which
/// the service hangs. Twenty other addresses send five questions per second, to which the service
/// responds.
fn next_to_botnet(realms: &[&str], answers_after: u32) -> Outcomes {
    let mut world = Neighbours::new(120 * TICKS);
    world.answers_after = answers_after;
    while world.tick < 20 * TICKS {
        if world.tick.is_multiple_of(20) {
            let number = world.tick / 20 % 20;
            world.push(&format!("other {number}"), [100, number as u8, 7, 1]);
        }
        if world.tick >= 3 * TICKS {
            for number in [0, 1].map(|more| (2 * world.tick + more) % 1000) {
                let [_, _, high, low] = number.to_be_bytes();
                let realm = realms[number as usize % realms.len()];
                world.push_hanging_in(realm, number, [60 + high, low, 2, 1]);
            }
        }
        world.advance();
    }
    assert!(world.open_max <= 256, "{realms:?} {answers_after}: {}", world.open_max);
    world.others
}

/// Realms with few open questions need separate slots: otherwise hardly any question of these
/// realms is sent.
#[test]
fn a_realm_for_which_the_service_hangs_leaves_slots_to_others() {
    let [one, two]: [&[&str]; 2] = [&["b"], &["b", "c"]];
    for (realms, answers_after) in [(one, 3), (one, 30), (two, 3)] {
        let others = next_to_botnet(realms, answers_after);
        let [percent, soon] = [others.percent(), others.percent_soon()];
        assert_eq!((percent, soon), (100, 100), "{realms:?} {answers_after}: {others:?}");
    }
}
