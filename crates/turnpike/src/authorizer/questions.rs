//! Questions to the authorizer: a limited number is open, and others wait, sorted by the recent
//! questions of accounts and networks. No user takes all slots of a slow service.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use control::AuthorizationRequest;
use fair_share::{
    Claimant, FairQueue, QuestionNumber, Share, Slots, Supply, USERS, Window, system_hasher,
};
use tokio::sync::oneshot;
use turn_proto::Applicant;

use super::answer::NoAnswer;

/// Maximum number of open questions, each with a connection. With an answer in 10 ms they are
/// 12,800 a second.
const OPEN_MAX: u32 = 128;

/// Maximum number of waiting questions: enough for all clients of a server that return at the same
/// time. With an answer in 10 ms the last question waits for a third of a second.
const WAITING_MAX: usize = 4096;

/// Longest wait of a question. The client's request then has time for the answer.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Part of the window for one account, as a divisor: the questions of one account may be slow.
const ACCOUNT_SHARE: usize = 8;

/// Part of the window for one address, as a divisor. The service may hang for all accounts of one
/// client; other clients of the network get the remaining slots.
const ADDRESS_SHARE: usize = 2;

/// Pause after a failure of the service, and the maximum after several. Questions of other clients
/// precede a repetition.
const PAUSE_MIN: Duration = Duration::from_millis(25);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Number of waiting questions searched for the next question: some microseconds.
const LOOKED_AT: usize = 64;

/// Delay of the next question of an address in the queue, for each earlier question.
const DELAY: Duration = Duration::from_millis(100);

/// Questions that are open, and those that wait.
#[derive(Debug)]
pub(super) struct Questions {
    /// Epoch of the queue.
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    open: Slots,
    /// Number of open questions that the service answers promptly.
    window: Window,
    /// Open questions past their deadlines, the oldest first.
    late: VecDeque<LateQuestion>,
    pause: Pause,
    waiting: FairQueue<WaitingQuestion>,
}

/// Pause after failures of the service: a rate limit, or a failing server of several.
#[derive(Debug, Default)]
struct Pause {
    until: Option<Instant>,
    /// Failures since the last decision.
    failures: u32,
}

#[derive(Debug)]
struct WaitingQuestion {
    request: AuthorizationRequest,
    asked: Instant,
    /// Failure of the last attempt.
    failure: Option<NoAnswer>,
}

/// A late question with its slot.
#[derive(Debug)]
struct LateQuestion {
    number: QuestionNumber,
    share: Share,
    /// Sender whose drop stops the wait.
    _wait: oneshot::Sender<()>,
}

/// An open question with its slot.
#[derive(Debug)]
pub(super) struct OpenQuestion {
    pub(super) request: AuthorizationRequest,
    number: QuestionNumber,
    asked: Instant,
    opened: Instant,
    share: Share,
}

/// A question that is not sent.
#[derive(Debug)]
pub(super) enum DroppedQuestion {
    /// The queue was full, and evicted this question.
    Crowded(AuthorizationRequest),
    /// A wait of [`WAIT_MAX`] is over, perhaps after failures.
    Late(AuthorizationRequest, NoAnswer),
}

impl Pause {
    /// Starts the pause after a failure. The pause increases with each further failure.
    fn begin(&mut self, now: Instant) -> Duration {
        self.failures += 1;
        let pause = PAUSE_MAX.min(PAUSE_MIN * self.failures);
        self.until = Some(now + pause);
        pause
    }

    fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

impl Questions {
    pub(super) fn new() -> Self {
        let open = Slots::new(&USERS, OPEN_MAX, system_hasher());
        let window = Window::new(OPEN_MAX as usize);
        let waiting = FairQueue::new(&USERS, WAITING_MAX, DELAY, system_hasher());
        let (late, pause) = (VecDeque::new(), Pause::default());
        let state = Mutex::new(State { open, window, late, pause, waiting });
        Self { started: Instant::now(), state }
    }

    /// Adds a question. Returns the question that has to go for it, which may be the same.
    pub(super) fn push(
        &self,
        request: AuthorizationRequest,
        now: Instant,
    ) -> Option<DroppedQuestion> {
        self.queue(WaitingQuestion { request, asked: now, failure: None }, now)
    }

    fn queue(&self, question: WaitingQuestion, now: Instant) -> Option<DroppedQuestion> {
        let since = turn_types::Instant::ZERO + now.saturating_duration_since(self.started);
        let applicant = question.request.applicant.clone();
        let dropped = self.lock().waiting.push(since, &claimant(&applicant), question);
        dropped.map(|dropped| DroppedQuestion::Crowded(dropped.request))
    }

    /// Takes the next question, if one more may be open.
    ///
    /// # Errors
    /// The next question has waited for too long.
    pub(super) fn take(&self, now: Instant) -> Option<Result<OpenQuestion, DroppedQuestion>> {
        let State { open, window, late, pause, waiting } = &mut *self.lock();
        let first = waiting.first()?;
        if now.saturating_duration_since(first.asked) >= WAIT_MAX {
            let WaitingQuestion { request, failure, .. } = waiting.pop()?;
            let failure = failure.unwrap_or(NoAnswer::Unsent);
            return Some(Err(DroppedQuestion::Late(request, failure)));
        }
        let held = open.held() as usize;
        let in_flight = held - late.len();
        if pause.is_on(now) || in_flight >= window.size() {
            return None;
        }
        // Shares of the window, which is smaller than the table for a slow service.
        let free = (window.size() - in_flight).min((OPEN_MAX as usize).saturating_sub(held));
        let [free, capacity] =
            [free, window.whole_size()].map(|slots| u32::try_from(slots).unwrap_or(u32::MAX));
        let supply = Supply { free, capacity };
        // The first questions may be of accounts whose others are open.
        let of_account = (window.whole_size() / ACCOUNT_SHARE).max(1);
        let of_address = window.whole_size().div_ceil(ADDRESS_SHARE);
        let mut is_held_back = false;
        let may_open = |question: &WaitingQuestion| {
            let claimant = claimant(&question.request.applicant);
            let may_address = (open.held_by(&claimant) as usize) < of_address;
            is_held_back |= !may_address;
            may_address
                && open.check_supply(&claimant, 1, supply).is_ok()
                && (open.held_by_account(&claimant) as usize) < of_account
        };
        let next = waiting.pop_where(LOOKED_AT, may_open);
        if is_held_back {
            // All clients may have one address.
            window.use_in_full();
        }
        let WaitingQuestion { request, asked, .. } = next?;
        let share = open.keep(&claimant(&request.applicant));
        let number = window.send();
        Some(Ok(OpenQuestion { request, number, asked, opened: now, share }))
    }

    /// Releases the slot of a question, with or without a decision.
    pub(super) fn close(&self, question: OpenQuestion, now: Instant) -> AuthorizationRequest {
        let OpenQuestion { request, number, opened, share, .. } = question;
        let State { open, window, late, pause, .. } = &mut *self.lock();
        let time = now.saturating_duration_since(opened);
        window.note(number, time, open.held() as usize - late.len());
        open.release(share);
        *pause = Pause::default();
        while let Some(lost) = late.pop_front_if(|late| window.is_lost(late.number)) {
            open.release(lost.share);
            window.end_late();
        }
        request
    }

    /// Queues a question again after a failure of the service, and starts a pause. Returns the
    /// length of the pause, and the question evicted from the queue.
    pub(super) fn put_back(
        &self,
        question: OpenQuestion,
        failure: NoAnswer,
        now: Instant,
    ) -> (Duration, Option<DroppedQuestion>) {
        let OpenQuestion { request, asked, share, .. } = question;
        let pause = {
            let State { open, window, late, pause, .. } = &mut *self.lock();
            window.fail(open.held() as usize - late.len());
            open.release(share);
            pause.begin(now)
        };
        let waiting = WaitingQuestion { request, asked, failure: Some(failure) };
        (pause, self.queue(waiting, now))
    }

    /// Notes a missed deadline. A late question keeps its slot until
    /// [`close_late`](Self::close_late), or until it is lost. The returned receiver then fails.
    pub(super) fn miss(
        &self,
        question: OpenQuestion,
    ) -> (AuthorizationRequest, QuestionNumber, oneshot::Receiver<()>) {
        let OpenQuestion { request, number, share, .. } = question;
        let (_wait, lost) = oneshot::channel();
        let State { open, window, late, .. } = &mut *self.lock();
        if window.miss(number, open.held() as usize - late.len()) {
            late.push_back(LateQuestion { number, share, _wait });
        } else {
            open.release(share);
        }
        (request, number, lost)
    }

    /// Releases the slot of a late question, unless it was released before.
    pub(super) fn close_late(&self, number: QuestionNumber) {
        let State { open, window, late, .. } = &mut *self.lock();
        let position = late.iter().position(|late| late.number == number);
        if let Some(late) = position.and_then(|position| late.remove(position)) {
            open.release(late.share);
            window.end_late();
        }
    }

    /// Returns true if questions wait.
    pub(super) fn has_waiting(&self) -> bool {
        self.lock().waiting.first().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in it can be half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn claimant(applicant: &Applicant) -> Claimant<'_> {
    Claimant::at(applicant.client.ip()).with_account(&applicant.realm, &applicant.account)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tokio::sync::oneshot::error::TryRecvError;
    use turn_types::{ClientAddr, PendingId, Transport, WorkerId};

    use super::*;

    fn request(account: &str, host: u8) -> AuthorizationRequest {
        let applicant = Applicant {
            realm: "r".into(),
            user: account.into(),
            account: account.into(),
            transport: Transport::Udp,
            client: ClientAddr(([192, host, 2, 1], 1).into()),
        };
        AuthorizationRequest { worker: WorkerId(0), pending: PendingId(0), applicant }
    }

    /// Questions to a service that has answered many promptly.
    fn prompt() -> Questions {
        let questions = Questions::new();
        let mut state = questions.lock();
        for _ in 0..20 * OPEN_MAX {
            let number = state.window.send();
            state.window.note(number, Duration::from_millis(1), usize::MAX);
        }
        drop(state);
        questions
    }

    fn open(questions: &Questions, now: Instant) -> Vec<OpenQuestion> {
        std::iter::from_fn(|| questions.take(now)).filter_map(Result::ok).collect()
    }

    #[test]
    fn one_account_leaves_slots_to_others_and_gives_its_own_back() {
        let (questions, now) = (prompt(), Instant::now());
        for host in 0..200 {
            assert!(questions.push(request("mallory", host), now).is_none());
        }
        let mallorys = open(&questions, now);
        assert_eq!(mallorys.len(), OPEN_MAX as usize / ACCOUNT_SHARE);
        assert!(questions.take(now).is_none(), "the others wait");
        for name in ["alice", "bob"] {
            assert!(questions.push(request(name, 201), now).is_none());
            let next = questions.take(now).unwrap().unwrap();
            assert_eq!(&*next.request.applicant.account, name);
            questions.close(next, now);
        }
        mallorys.into_iter().for_each(|question| drop(questions.close(question, now)));
        assert!(questions.take(now).is_some());
    }

    /// A silent service: late questions keep their slots, and each deadline opens one more.
    #[test]
    fn late_questions_are_bounded() {
        let (questions, mut now) = (prompt(), Instant::now());
        for round in 0..1000_u32 {
            let [_, _, host, account] = round.to_be_bytes();
            questions.push(request(&format!("account {account}"), host), now);
            for question in open(&questions, now) {
                drop(questions.miss(question));
            }
            now += Duration::from_millis(100);
        }
        assert!(questions.lock().open.held() <= OPEN_MAX);
    }

    /// Accounts of one client for which the service hangs.
    #[test]
    fn one_client_with_many_accounts_leaves_slots_to_others() {
        for questions in [Questions::new(), prompt()] {
            let now = Instant::now();
            for account in 0..200 {
                questions.push(request(&format!("account {account}"), 1), now);
            }
            let hanging = open(&questions, now);
            for round in 0..3 {
                questions.push(request("alice", 201), now);
                let next = questions.take(now).unwrap().unwrap();
                assert_eq!(&*next.request.applicant.account, "alice", "{round}");
                questions.close(next, now);
            }
            assert!(questions.take(now).is_none());
            drop(hanging);
        }
    }

    /// A service that is slow has few open questions.
    #[test]
    fn a_slow_service_has_no_queue_of_its_own() {
        let (questions, mut now) = (prompt(), Instant::now());
        for _ in 0..10 {
            for host in 0..200 {
                questions.push(request("mallory", host), now);
                questions.push(request(&format!("account {host}"), host), now);
            }
            let opened = open(&questions, now);
            // The service is serial.
            for question in opened {
                now += Duration::from_millis(100);
                questions.close(question, now);
            }
        }
        let opened = open(&questions, now);
        assert!(opened.len() <= 8, "{}", opened.len());
        questions.push(request("alice", 201), now);
        for question in opened {
            questions.close(question, now);
            let next = open(&questions, now).remove(0);
            if &*next.request.applicant.account == "alice" {
                return;
            }
        }
        panic!("alice waits");
    }

    /// Questions of one account that come slowly, and are before a newcomer's in the order.
    #[test]
    fn an_account_with_its_share_does_not_block_others() {
        let (questions, now) = (prompt(), Instant::now());
        for host in 0..200 {
            questions.push(request("mallory", host), now);
        }
        let mallorys = open(&questions, now);
        let later = now + Duration::from_millis(500);
        while let Some(more) = questions.lock().waiting.pop() {
            drop(more);
        }
        questions.push(request("mallory", 1), later);
        questions.push(request("alice", 201), later);
        let next = questions.take(later).unwrap().unwrap();
        assert_eq!(&*next.request.applicant.account, "alice");
        assert!(questions.take(later).is_none());
        drop(mallorys);
    }

    #[test]
    fn who_asks_most_is_dropped_for_others_and_so_is_who_waits_too_long() {
        let (questions, now) = (prompt(), Instant::now());
        let mut number = 0;
        while questions.push(request("mallory", number), now).is_none() {
            number = (number + 1) % 200;
        }
        let dropped = questions.push(request("alice", 201), now).unwrap();
        let DroppedQuestion::Crowded(dropped) = dropped else { panic!("{dropped:?}") };
        assert_eq!(&*dropped.applicant.account, "mallory");
        let next: Vec<_> = (0..2).map(|_| questions.take(now).unwrap().unwrap()).collect();
        assert_eq!(&*next[1].request.applicant.account, "alice", "behind the first of all");
        let late = questions.take(now + WAIT_MAX).unwrap();
        assert!(matches!(late, Err(DroppedQuestion::Late(..))), "{late:?}");
    }

    /// A flood that a rate limit refuses delays no other client: the question of another client is
    /// next after the pause.
    #[test]
    fn failures_are_repeated_in_the_order_of_the_queue() {
        let (questions, mut now) = (Questions::new(), Instant::now());
        for host in 0..100 {
            questions.push(request("mallory", host), now);
        }
        for round in 0..10 {
            let question = questions.take(now).unwrap().unwrap();
            assert_eq!(&*question.request.applicant.account, "mallory");
            let (pause, dropped) = questions.put_back(question, NoAnswer::Busy, now);
            assert!(dropped.is_none() && pause <= PAUSE_MAX, "{round}: {pause:?}");
            assert!(questions.take(now).is_none(), "a pause");
            now += pause;
        }
        questions.push(request("alice", 201), now);
        let question = questions.take(now).unwrap().unwrap();
        assert_eq!(&*question.request.applicant.account, "alice");
        questions.close(question, now);
        let (pause, _) =
            questions.put_back(questions.take(now).unwrap().unwrap(), NoAnswer::Busy, now);
        assert_eq!(pause, PAUSE_MIN, "the service is well again");
    }

    /// A service with late questions gets one more, which tests whether the service is silent.
    #[test]
    fn late_questions_keep_their_slots() {
        let (questions, now) = (Questions::new(), Instant::now());
        for host in 0..200 {
            questions.push(request(&format!("account {host}"), host), now);
        }
        let late = open(&questions, now);
        assert!(late.len() > 2);
        let late: Vec<_> = late.into_iter().map(|question| questions.miss(question)).collect();
        let next = open(&questions, now);
        assert_eq!(next.len(), 1);
        late.iter().for_each(|(_, id, _)| questions.close_late(*id));
        assert_eq!(open(&questions, now).len(), 1, "as few as a silent service gets");
        drop(next);
    }

    /// Some servers of a service hang, and the window remains large enough for the others.
    #[test]
    fn late_questions_are_lost_when_a_later_one_is_answered() {
        let (questions, mut now) = (Questions::new(), Instant::now());
        for number in 0..200_u8 {
            questions.push(request(&format!("account {number}"), number), now);
            let question = questions.take(now).unwrap().unwrap();
            if number % 3 == 0 {
                let (_, _, wait) = questions.miss(question);
                drop(wait);
            } else {
                questions.close(question, now);
            }
            now += Duration::from_millis(10);
        }
        let state = questions.lock();
        assert!(state.late.len() <= 1 && state.window.size() > 2, "{:?}", state.window);
    }

    /// Number of ticks in a second, before the deadline of a question, and before a hanging service
    /// closes the connection.
    const TICKS: u32 = 100;
    const DEADLINE: u32 = 3 * TICKS;
    const HANGS_FOR: u32 = 20 * TICKS;

    /// Neighbours in one `/16`: ten questions per second with answers within 30 ms, next to a
    /// client with accounts for which the service hangs.
    struct Neighbours {
        questions: Questions,
        now: Instant,
        /// Open and late questions with their ages.
        open: Vec<(OpenQuestion, u32)>,
        late: Vec<(QuestionNumber, u32, oneshot::Receiver<()>)>,
        /// Hanging accounts with a waiting or open question.
        pending: BTreeSet<String>,
        served: u32,
        refused: u32,
    }

    impl Neighbours {
        fn tick(&mut self, tick: u32) {
            if tick.is_multiple_of(10) {
                let mut neighbour = request(&format!("neighbour {tick}"), 1);
                let at = [192, 1, 10 + (tick / 10 % 4) as u8, 1];
                neighbour.applicant.client = ClientAddr((at, 1).into());
                self.questions.push(neighbour, self.now);
            }
            for (question, age) in std::mem::take(&mut self.open) {
                match question.request.applicant.account.starts_with("hanging") {
                    true if age >= DEADLINE => {
                        let (request, number, lost) = self.questions.miss(question);
                        self.late.push((number, age, lost));
                        self.pending.remove(&*request.applicant.account);
                    }
                    false if age >= 3 => {
                        self.questions.close(question, self.now);
                        self.served += 1;
                    }
                    _ => self.open.push((question, age + 1)),
                }
            }
            let questions = &self.questions;
            self.late.retain_mut(|(number, age, lost)| {
                *age += 1;
                let is_lost = lost.try_recv() == Err(TryRecvError::Closed);
                if is_lost || *age >= HANGS_FOR {
                    questions.close_late(*number);
                    return false;
                }
                true
            });
            while let Some(next) = self.questions.take(self.now) {
                match next {
                    Ok(question) => self.open.push((question, 0)),
                    Err(DroppedQuestion::Late(request, _) | DroppedQuestion::Crowded(request)) => {
                        let is_hanging = self.pending.remove(&*request.applicant.account);
                        self.refused += u32::from(!is_hanging);
                    }
                }
            }
            self.now += Duration::from_millis(10);
        }
    }

    /// During the flood of one address, and after it.
    #[test]
    fn an_address_for_which_the_service_hangs_leaves_slots_to_its_neighbours() {
        let mut world = Neighbours {
            questions: Questions::new(),
            now: Instant::now(),
            open: Vec::new(),
            late: Vec::new(),
            pending: BTreeSet::new(),
            served: 0,
            refused: 0,
        };
        for tick in 0..25 * TICKS {
            for account in 0..100 {
                let account = format!("hanging {account}");
                if tick < 8 * TICKS && world.pending.insert(account.clone()) {
                    world.questions.push(request(&account, 1), world.now);
                }
            }
            world.tick(tick);
        }
        assert_eq!((world.refused, world.served), (0, 25 * 10));
    }

    /// The window grows although only half is in use, by the share of the address.
    #[test]
    fn all_clients_may_have_one_address() {
        let (questions, mut now) = (Questions::new(), Instant::now());
        for round in 0..60 {
            for account in 0..100 {
                questions.push(request(&format!("account {account} {round}"), 1), now);
            }
            for question in open(&questions, now) {
                questions.close(question, now + Duration::from_millis(100));
            }
            now += Duration::from_millis(100);
        }
        assert!(open(&questions, now).len() >= 32, "{:?}", questions.lock().window);
    }
}
