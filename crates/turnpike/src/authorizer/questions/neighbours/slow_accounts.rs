//! Accounts for which the service is slow or hangs, next to clients that get prompt answers. Also
//! services that are equally slow for all accounts.

use super::*;

/// Simulates accounts that send a new question after each response, each in a separate network.
/// After ten seconds twenty new clients per second appear in new networks.
fn beside_accounts(kind: &str, accounts: u8, others_from: u32) -> Outcomes {
    let mut world = Neighbours::new(120 * TICKS);
    world.answers_after = 0;
    while world.tick < 60 * TICKS {
        for number in 0..accounts {
            world.push_as(kind, number.into(), [60, number, 2, 1]);
        }
        if world.tick >= others_from && world.tick.is_multiple_of(5) {
            push_newcomer(&mut world);
        }
        world.advance();
    }
    assert!(world.open_max <= 192, "{kind} {accounts}: {}", world.open_max);
    world.others
}

/// Sends a question of a new account in a new network.
fn push_newcomer(world: &mut Neighbours) {
    let [_, _, high, low] = (world.tick / 5).to_be_bytes();
    world.push(&format!("other {}", world.tick), [100 + high, low, 7, 1]);
}

/// Most answers are slow.
#[test]
fn slow_accounts_in_many_networks_leave_slots_to_others() {
    for (accounts, others_from) in [(50, 0), (50, 20), (200, 0), (200, 10)] {
        let others = beside_accounts("slow", accounts, others_from * TICKS);
        let [percent, soon] = [others.percent(), others.percent_soon()];
        assert!(percent >= 97 && soon >= 85, "{accounts}, {others_from} s: {others:?}");
    }
}

#[test]
fn hanging_accounts_in_many_networks_leave_slots_to_others() {
    for (accounts, others_from) in [(50, 10), (200, 10)] {
        let others = beside_accounts("hanging", accounts, others_from * TICKS);
        let [percent, soon] = [others.percent(), others.percent_soon()];
        assert!(percent >= 99 && soon >= 90, "{accounts}, {others_from} s: {others:?}");
    }
}

/// No other address has clients.
#[test]
fn accounts_for_which_the_service_hangs_leave_slots_to_their_address() {
    for accounts in [4, 16] {
        let mut world = Neighbours::new(120 * TICKS);
        while world.tick < 60 * TICKS {
            let asking = if world.tick < 10 * TICKS { 0 } else { accounts };
            for number in 0..asking {
                world.push_as("hanging", number, [192, 1, 2, 1]);
            }
            if world.tick % (3 * TICKS) == 50 {
                world.push(&format!("neighbour {}", world.tick), [192, 1, 2, 1]);
            }
            world.advance();
        }
        let Outcomes { served, waited, .. } = world.neighbours;
        assert_eq!((served, waited), (20, 0), "{accounts}: {:?}", world.neighbours);
    }
}

/// The service was quick for other accounts, which send no questions at first. It processes each
/// question for two minutes.
#[test]
fn a_new_account_at_many_addresses_gets_few_workers() {
    let mut world = Neighbours::new(120 * TICKS);
    world.questions = Questions::with(InFlight::prompt());
    while world.tick < 20 * TICKS {
        if (10 * TICKS..12 * TICKS).contains(&world.tick) && world.tick.is_multiple_of(5) {
            let host = (world.tick / 5 % 20) as u8;
            world.push("hanging", [192, 1, 2, host]);
        }
        if world.tick >= 11 * TICKS && world.tick.is_multiple_of(5) {
            push_newcomer(&mut world);
        }
        world.advance();
    }
    let Outcomes { refused, waited, .. } = world.others;
    assert_eq!((refused, waited), (0, 0), "{:?}", world.others);
    assert!(world.open_max <= 6, "{}", world.open_max);
}

/// The only account, such as that of an application, is affected while the service hangs for all,
/// and after recovery.
#[test]
fn the_only_account_is_asked_about_when_the_service_is_back() {
    let (questions, mut now) = (Questions::new(), Instant::now());
    let mut open = Vec::new();
    let mut served = 0;
    for tick in 0..40 * TICKS {
        if tick.is_multiple_of(5) {
            questions.push(request("all", (tick / 5 % 200) as u8), now);
        }
        while let Some(next) = questions.take(now) {
            open.extend(next.ok().map(|question| (question, now)));
        }
        now += Duration::from_millis(10);
        let hangs = (10 * TICKS..20 * TICKS).contains(&tick);
        for (question, opened) in std::mem::take(&mut open) {
            if !hangs && now - opened < Duration::from_secs(3) {
                questions.close(question, now);
                served += u32::from(tick >= 25 * TICKS);
            } else if now - opened >= Duration::from_secs(3) {
                drop(questions.miss(question, now));
            } else {
                open.push((question, opened));
            }
        }
    }
    assert!(served >= 15 * 20, "{served}");
}

/// Sends twenty questions per second, of `accounts` accounts or of new accounts, to a service with
/// equal response times for all. The time changes after twenty seconds.
fn all_alike(accounts: u32, is_random: bool, times: [u32; 2]) -> Outcomes {
    let mut world = Neighbours::new(120 * TICKS);
    world.is_random = is_random.then_some(Random(12_345));
    while world.tick < 80 * TICKS {
        world.answers_after = times[usize::from(world.tick >= 20 * TICKS)];
        if world.tick.is_multiple_of(5) {
            let number = (world.tick / 5).checked_rem(accounts).unwrap_or(world.tick / 5);
            let [_, _, high, low] = number.to_be_bytes();
            world.push(&format!("other {number}"), [100 + high, low, 7, 1]);
        }
        world.advance();
    }
    world.others
}

/// Only the window limits the questions.
#[test]
fn a_service_that_is_slow_for_all_has_no_slow_accounts() {
    for accounts in [0, 100] {
        let steady = all_alike(accounts, false, [TICKS, TICKS]);
        assert!(steady.percent() >= 99, "{accounts}: {steady:?}");
        let random = all_alike(accounts, true, [30, 30]);
        assert!(random.percent() >= 90, "{accounts}: {random:?}");
    }
    // Few accounts have few open questions while each account seems slow.
    for (accounts, least) in [(0, 85), (20, 50), (100, 80)] {
        let slower = all_alike(accounts, false, [0, TICKS]);
        assert!(slower.percent() >= least, "{accounts}: {slower:?}");
    }
}
