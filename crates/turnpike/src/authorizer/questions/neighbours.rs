//! Simulation of clients in one network, next to clients for which the service hangs.

use std::collections::BTreeSet;

use tokio::sync::oneshot::error::TryRecvError;
use turn_types::ClientAddr;

use super::tests::request;
use super::*;

mod few_workers;
mod quick_answers;
mod rate_limit;
mod realms;
mod slow_accounts;

/// Numbers of ticks in a second, before the deadline of a question, and between two checks of the
/// queue without another event.
const TICKS: u32 = 100;
const DEADLINE: u32 = 3 * TICKS;
const WATCH_EVERY: u32 = TICKS / 10;

/// Time in ticks after which the service answers questions of slow accounts.
const SLOW: u32 = DEADLINE / 10 * 9;

/// Clients with accounts that are named for the behaviour of the service. Hanging and slow accounts
/// have one question at a time.
struct Neighbours {
    questions: Questions,
    now: Instant,
    tick: u32,
    /// Time in ticks after which a hanging service closes the connection.
    hangs_for: u32,
    /// Time in ticks after which the service answers prompt questions.
    answers_after: u32,
    /// Generator of random response times with mean `answers_after`, if times are random.
    is_random: Option<Random>,
    /// Open and late questions with ages in ticks.
    open: Vec<(OpenQuestion, u32)>,
    late: Vec<(QuestionNumber, u32, oneshot::Receiver<()>)>,
    /// Hanging and slow accounts with a waiting or open question.
    pending: BTreeSet<String>,
    /// Maximum number of open and late questions so far.
    open_max: usize,
    /// Outcomes of questions in the network of the hanging accounts, and in other networks.
    neighbours: Outcomes,
    others: Outcomes,
}

/// Generator with a fixed seed.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
        (self.0 >> 33) as usize % limit
    }
}

/// Number of questions with and without a response, and of questions that waited for half a second.
#[derive(Debug, Default)]
struct Outcomes {
    served: u32,
    refused: u32,
    waited: u32,
}

impl Outcomes {
    fn percent(&self) -> u32 {
        100 * self.served / (self.served + self.refused).max(1)
    }

    fn percent_soon(&self) -> u32 {
        100 * self.served.saturating_sub(self.waited) / (self.served + self.refused).max(1)
    }
}

impl Neighbours {
    fn new(hangs_for: u32) -> Self {
        Self {
            questions: Questions::new(),
            now: Instant::now(),
            tick: 0,
            hangs_for,
            answers_after: 3,
            is_random: None,
            open: Vec::new(),
            late: Vec::new(),
            pending: BTreeSet::new(),
            open_max: 0,
            neighbours: Outcomes::default(),
            others: Outcomes::default(),
        }
    }

    fn outcomes(&mut self, account: &str) -> Option<&mut Outcomes> {
        match account.split(' ').next() {
            Some("neighbour") => Some(&mut self.neighbours),
            Some("other") => Some(&mut self.others),
            _ => None,
        }
    }

    fn push(&mut self, account: &str, address: [u8; 4]) {
        self.push_in("r", account, address);
    }

    fn push_in(&mut self, realm: &str, account: &str, address: [u8; 4]) {
        let mut request = request(account, 1);
        request.applicant.realm = realm.into();
        request.applicant.client = ClientAddr((address, 1).into());
        if let Some(dropped) = self.questions.push(request, self.now) {
            self.dropped(dropped);
        }
    }

    /// Sends ten questions per second in the network of the hanging accounts, and ten in other
    /// networks.
    fn push_prompt(&mut self) {
        let number = self.tick / 10;
        match self.tick % 10 {
            0 => {
                let at = [192, 1, 10 + (number % 4) as u8, 1];
                self.push(&format!("neighbour {number}"), at);
            }
            5 => {
                let at = [198, 51 + (number % 4) as u8, 100, 1];
                self.push(&format!("other {number}"), at);
            }
            _ => {}
        }
    }

    fn push_hanging(&mut self, number: u32, address: [u8; 4]) {
        self.push_hanging_in("r", number, address);
    }

    fn push_hanging_in(&mut self, realm: &str, number: u32, address: [u8; 4]) {
        self.push_pending(realm, format!("hanging {number}"), address);
    }

    fn push_as(&mut self, kind: &str, number: u32, address: [u8; 4]) {
        self.push_pending("r", format!("{kind} {number}"), address);
    }

    fn push_pending(&mut self, realm: &str, account: String, address: [u8; 4]) {
        if self.pending.insert(account.clone()) {
            self.push_in(realm, &account, address);
        }
    }

    fn is_due(&mut self, age: u32, answers_after: u32) -> bool {
        match &mut self.is_random {
            Some(random) => random.below(answers_after as usize) == 0,
            None => age >= answers_after,
        }
    }

    fn dropped(&mut self, dropped: DroppedQuestion) {
        let (DroppedQuestion::Late(request, _) | DroppedQuestion::Crowded(request)) = dropped;
        self.pending.remove(&*request.applicant.account);
        if let Some(outcomes) = self.outcomes(&request.applicant.account) {
            outcomes.refused += 1;
        }
    }

    /// Responds to prompt and slow questions that are old enough. Opens waiting questions.
    fn advance(&mut self) {
        let mut is_due = self.tick.is_multiple_of(WATCH_EVERY) || self.tick.is_multiple_of(5);
        for (question, age) in std::mem::take(&mut self.open) {
            let account = &question.request.applicant.account;
            let hangs = account.starts_with("hanging");
            let answers_after = match account.strip_prefix("slow ") {
                None if account.starts_with("quick") => 0,
                // Spreads the responses over several ticks.
                Some(number) => SLOW + number.parse::<u32>().map_or(0, |number| number * 7 % 20),
                None => self.answers_after,
            };
            if hangs && age >= DEADLINE {
                let (request, number, lost) = self.questions.miss(question, self.now);
                self.late.push((number, age, lost));
                self.pending.remove(&*request.applicant.account);
                is_due = true;
            } else if !hangs && self.is_due(age, answers_after) {
                let request = self.questions.close(question, self.now);
                self.pending.remove(&*request.applicant.account);
                if let Some(outcomes) = self.outcomes(&request.applicant.account) {
                    outcomes.served += 1;
                }
                is_due = true;
            } else {
                self.open.push((question, age + 1));
            }
        }
        let (questions, hangs_for) = (&self.questions, self.hangs_for);
        self.late.retain_mut(|(number, age, lost)| {
            *age += 1;
            let is_over = lost.try_recv() == Err(TryRecvError::Closed) || *age >= hangs_for;
            if is_over {
                questions.close_late(*number);
            }
            !is_over
        });
        while let Some(next) = is_due.then(|| self.questions.take(self.now)).flatten() {
            match next {
                Ok(question) => {
                    let has_waited = self.now - question.asked >= Duration::from_millis(500);
                    if let Some(outcomes) = self.outcomes(&question.request.applicant.account) {
                        outcomes.waited += u32::from(has_waited);
                    }
                    self.open.push((question, 0));
                }
                Err(dropped) => self.dropped(dropped),
            }
        }
        self.open_max = self.open_max.max(self.open.len() + self.late.len());
        self.now += Duration::from_millis(10);
        self.tick += 1;
    }
}

/// Covers the time during the flood of one address, and after the flood.
#[test]
fn an_address_for_which_the_service_hangs_leaves_slots_to_its_neighbours() {
    let mut world = Neighbours::new(20 * TICKS);
    while world.tick < 25 * TICKS {
        if world.tick < 8 * TICKS {
            (0..100).for_each(|account| world.push_hanging(account, [192, 1, 2, 1]));
        }
        world.push_prompt();
        world.advance();
    }
    assert_eq!((world.neighbours.percent(), world.others.percent()), (100, 100));
}

/// Several addresses of one network query a service that holds connections for minutes. No other
/// network has clients at first.
#[test]
fn addresses_for_which_the_service_hangs_leave_slots_to_their_network() {
    let mut world = Neighbours::new(120 * TICKS);
    while world.tick < 80 * TICKS {
        if world.tick < 40 * TICKS {
            for account in 0..16 {
                world.push_hanging(account, [192, 1, 100 + (account / 2) as u8, 9]);
            }
        }
        let has_others = world.tick >= 20 * TICKS;
        if has_others || world.tick.is_multiple_of(10) {
            world.push_prompt();
        }
        world.advance();
    }
    assert!(world.neighbours.percent() >= 99, "{:?}", world.neighbours);
    assert_eq!(world.others.percent(), 100, "{:?}", world.others);
    assert!(world.open_max <= 32, "{}", world.open_max);
}

/// More accounts and addresses are affected than the window has slots.
#[test]
fn many_addresses_for_which_the_service_hangs_leave_slots_to_others() {
    let mut world = Neighbours::new(120 * TICKS);
    while world.tick < 40 * TICKS {
        for account in 0..64 {
            world.push_hanging(account, [192, 1, 100 + (account % 32) as u8, 9]);
        }
        world.push_prompt();
        world.advance();
    }
    assert!(world.neighbours.percent() >= 95, "{:?}", world.neighbours);
    assert_eq!(world.others.percent(), 100, "{:?}", world.others);
}

/// Twenty questions per second are sent in one network, of which one in twenty or ten hangs. A
/// slower service gets more questions concurrently.
#[test]
fn single_questions_that_hang_delay_no_other() {
    for (answers_after, one_in) in [(3, 20), (30, 20), (30, 10)] {
        let mut world = Neighbours::new(120 * TICKS);
        world.answers_after = answers_after;
        let mut random = Random(12_345);
        while world.tick < 60 * TICKS {
            if random.below(5) == 0 {
                let (number, at) = (world.tick, [192, 1, random.below(200) as u8, 1]);
                match random.below(one_in) {
                    0 => world.push_hanging(number, at),
                    _ => world.push(&format!("neighbour {number}"), at),
                }
            }
            world.advance();
        }
        assert_eq!(
            world.neighbours.refused, 0,
            "{answers_after}, {one_in}: {:?}",
            world.neighbours
        );
    }
}

/// A service that hangs for all gets few questions, regardless of the number of clients. After
/// recovery the service is used again.
#[test]
fn a_service_that_hangs_for_all_gets_few_questions() {
    let mut world = Neighbours::new(120 * TICKS);
    while world.tick < 100 * TICKS {
        let number = world.tick;
        let [_, _, high, low] = number.to_be_bytes();
        match world.tick / TICKS {
            // Each client is in a different network.
            5..90 => world.push(&format!("hanging {number}"), [60 + high, low, 2, 1]),
            _ => world.push_prompt(),
        }
        world.advance();
        if world.tick == 90 * TICKS {
            // A window, probes, and a question or two for each deadline.
            assert!(world.open_max <= 100, "{}", world.open_max);
            world.neighbours = Outcomes::default();
        }
    }
    assert!(world.neighbours.percent() >= 90, "{:?}", world.neighbours);
}

/// The service has one thread, which processes waiting questions in random order. Later questions
/// overtake earlier questions, and the service has at most the window's number of questions in the
/// long run.
#[test]
fn a_service_that_is_slow_for_all_is_not_flooded() {
    let questions = Questions::new();
    let (mut now, mut open, mut random) = (Instant::now(), Vec::new(), Random(1));
    let mut largest = 0;
    for round in 0..4000_u32 {
        for _ in 0..2 {
            let [_, _, high, low] = (2 * round).to_be_bytes();
            let mut request = request(&format!("account {round}"), low);
            request.applicant.client = ClientAddr(([60 + high, low, 2, 1], 1).into());
            questions.push(request, now);
        }
        while let Some(next) = questions.take(now) {
            open.extend(next.ok().map(|question| (question, now)));
        }
        if round >= 1000 {
            largest = largest.max(open.len());
        }
        now += Duration::from_millis(50);
        for index in (0..open.len()).rev() {
            if now - open[index].1 >= Duration::from_secs(3) {
                let (_, number, _) = questions.miss(open.remove(index).0, now);
                questions.close_late(number);
            }
        }
        if !open.is_empty() {
            let index = random.below(open.len());
            questions.close(open.swap_remove(index).0, now);
        }
    }
    assert!(largest <= 16, "{largest}");
}
