//! Service with a few workers, each of which processes one question at a time. One account, or some
//! accounts of one realm, have questions with a long processing time. Next to these accounts,
//! twenty new clients per second of another realm need one worker of the service.

use super::*;

/// Processing time in ticks of a question of the other clients.
const QUICK: u32 = TICKS / 20;

/// Returns the outcomes of the other clients' questions after ten quiet seconds, including waits of
/// half a second.
fn next_to_slow_accounts(workers: usize, accounts: u32, takes: u32) -> Outcomes {
    next_to_slow_questions(workers, accounts, 12, takes)
}

/// Returns the outcomes of [`next_to_slow_accounts`] with a question of a slow account after each
/// `every` ticks.
fn next_to_slow_questions(workers: usize, accounts: u32, every: u32, takes: u32) -> Outcomes {
    let (questions, mut now) = (Questions::new(), Instant::now());
    // Remaining ticks of each question. Questions past their deadlines are identified only by
    // number.
    let mut open: Vec<(Option<OpenQuestion>, Option<QuestionNumber>, Instant, u32)> = Vec::new();
    let mut outcomes = Outcomes::default();
    let push = |questions: &Questions, realm: &str, name: String, address: [u8; 4], now| {
        let mut request = request(&name, 1);
        request.applicant.realm = realm.into();
        request.applicant.client = ClientAddr((address, 1).into());
        questions.push(request, now)
    };
    let refused = |dropped: Option<DroppedQuestion>, outcomes: &mut Outcomes| {
        let Some(DroppedQuestion::Late(request, _) | DroppedQuestion::Crowded(request)) = dropped
        else {
            return;
        };
        outcomes.refused += u32::from(&*request.applicant.realm == "r");
    };
    for tick in 0..40 * TICKS {
        if tick.is_multiple_of(5) {
            let [_, _, high, low] = (tick / 5).to_be_bytes();
            let dropped =
                push(&questions, "r", format!("other {tick}"), [100 + high, low, 7, 1], now);
            refused(dropped, &mut outcomes);
        }
        if tick >= 10 * TICKS && tick.is_multiple_of(every) {
            let number = tick / every % accounts;
            let host = match accounts {
                u32::MAX => number % 150,
                // Questions arrive from twenty addresses.
                1 if every == 1 => tick % 20,
                _ => 1,
            } as u8;
            let name = format!("slow {number}");
            refused(push(&questions, "b", name, [60, 1, 2, host], now), &mut outcomes);
        }
        while let Some(next) = questions.take(now) {
            match next {
                Ok(question) => {
                    let is_slow = &*question.request.applicant.realm == "b";
                    open.push((Some(question), None, now, if is_slow { takes } else { QUICK }));
                }
                Err(dropped) => refused(Some(dropped), &mut outcomes),
            }
        }
        now += Duration::from_millis(10);
        for (_, _, _, left) in open.iter_mut().take(workers) {
            *left -= 1;
        }
        for index in (0..open.len()).rev() {
            let (question, number, opened, left) = &mut open[index];
            if *left == 0 {
                if let Some(question) = question.take() {
                    let has_waited = now - question.asked >= Duration::from_millis(500);
                    let request = questions.close(question, now);
                    if &*request.applicant.realm == "r" {
                        outcomes.served += 1;
                        outcomes.waited += u32::from(has_waited);
                    }
                } else if let Some(number) = number {
                    questions.close_late(*number);
                }
                open.remove(index);
            } else if now - *opened >= Duration::from_secs(3)
                && let Some(late) = question.take()
            {
                outcomes.refused += u32::from(&*late.request.applicant.realm == "r");
                *number = Some(questions.miss(late, now).1);
            }
        }
    }
    outcomes
}

#[test]
fn a_slow_account_leaves_workers_of_the_service_to_others() {
    for workers in [4, 8, 16] {
        for takes in [TICKS, 2 * TICKS, 29 * TICKS / 10] {
            let others = next_to_slow_accounts(workers, 1, takes);
            let [percent, soon] = [others.percent(), others.percent_soon()];
            assert!(percent >= 99 && soon >= 90, "{workers} {takes}: {others:?}");
        }
    }
}

/// The service is idle at first, so these unknown accounts occupy all workers of a small service
/// briefly.
#[test]
fn slow_accounts_of_one_realm_leave_workers_of_the_service_to_others() {
    for (workers, least) in [(4, 75), (16, 99)] {
        for takes in [TICKS, 2 * TICKS, 29 * TICKS / 10] {
            let others = next_to_slow_accounts(workers, 20, takes);
            assert!(others.percent() >= least, "{workers} {takes}: {others:?}");
        }
    }
}

/// All questions of a burst concern an unknown account at many addresses.
#[test]
fn a_new_account_leaves_workers_of_the_service_to_others() {
    for takes in [TICKS, 2 * TICKS, 29 * TICKS / 10, 120 * TICKS] {
        let others = next_to_slow_questions(4, 1, 1, takes);
        let [percent, soon] = [others.percent(), others.percent_soon()];
        assert!(percent >= 99 && soon >= 90, "{takes}: {others:?}");
    }
}

/// Each question belongs to a different account of one network.
#[test]
fn slow_accounts_of_one_network_leave_workers_of_the_service_to_others() {
    for workers in [32, 64] {
        for every in [2, 4] {
            let others = next_to_slow_questions(workers, u32::MAX, every, 3 * TICKS / 2);
            let [percent, soon] = [others.percent(), others.percent_soon()];
            assert!(percent >= 99 && soon >= 95, "{workers} {every}: {others:?}");
        }
    }
}

/// The service processes questions until 27 s after their deadlines: two questions concurrently.
#[test]
fn an_account_that_hangs_leaves_workers_of_the_service_to_others() {
    for workers in [4, 5, 16] {
        let others = next_to_slow_accounts(workers, 1, 30 * TICKS);
        assert!(others.percent() >= 99, "{workers}: {others:?}");
    }
}
