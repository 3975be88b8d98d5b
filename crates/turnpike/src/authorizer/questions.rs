//! Questions to the authorizer. A limited number is open, and others wait in a queue sorted by the
//! recent questions of accounts and networks. Thus no user occupies all slots of a slow service.

mod in_flight;
#[cfg(test)]
mod neighbours;
mod pace;
mod pause;
pub(super) mod quick_accounts;
mod slow_accounts;
mod slow_networks;
mod votes;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use control::AuthorizationRequest;
use fair_share::{QuestionNumber, RealmQueue, USERS, system_hasher};
use tokio::sync::oneshot;

use self::in_flight::{InFlight, Search};
use self::pace::Pace;
use self::pause::{Pause, pause_after};
use super::answer::NoAnswer;
use super::kept::claimant;

/// Maximum number of waiting questions: enough for all clients of a server that reconnect at the
/// same time. With an answer in 10 ms the last question waits for a third of a second.
const WAITING_MAX: usize = 4096;

/// Maximum wait of a question. The client's request then has time for the answer.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Maximum number of waiting questions checked for the next question. Such a search takes some
/// microseconds.
const LOOKED_AT: usize = 64;

/// Maximum number of waiting questions checked in each realm, for a question of a realm with few
/// open questions.
const LOOKED_AT_OF_REALM: usize = 8;

/// Delay of an address's next question in the queue, for each earlier question.
const DELAY: Duration = Duration::from_millis(100);

/// Delay of an address's next question in the queue, for each earlier question without an answer in
/// time. Clients for which the service does not hang are therefore preferred.
const HANGS_DELAY: Duration = Duration::from_secs(3);

/// Open and waiting questions.
#[derive(Debug)]
pub(super) struct Questions {
    /// Epoch of the queue.
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    in_flight: InFlight,
    pause: Pause,
    pace: Pace,
    waiting: RealmQueue<WaitingQuestion>,
}

#[derive(Debug)]
struct WaitingQuestion {
    request: AuthorizationRequest,
    asked: Instant,
    attempts: Attempts,
    /// Failure of the last attempt.
    failure: Option<NoAnswer>,
}

/// Failed attempts at a question.
#[derive(Clone, Copy, Debug, Default)]
struct Attempts {
    failed: u32,
    /// Earliest time of the next attempt.
    next: Option<Instant>,
}

/// Open question.
#[derive(Debug)]
pub(super) struct OpenQuestion {
    pub(super) request: AuthorizationRequest,
    number: QuestionNumber,
    asked: Instant,
    attempts: Attempts,
}

/// Question that was removed from the queue without being sent.
#[derive(Debug)]
pub(super) enum DroppedQuestion {
    /// The queue was full, and evicted the question.
    Crowded(AuthorizationRequest),
    /// The question has waited for [`WAIT_MAX`], possibly after failures.
    Late(AuthorizationRequest, NoAnswer),
}

impl Attempts {
    /// Records a failure. Returns the pause before the next attempt.
    fn fail(&mut self, now: Instant) -> Duration {
        self.failed += 1;
        let pause = pause_after(self.failed);
        self.next = Some(now + pause);
        pause
    }
}

impl Questions {
    pub(super) fn new() -> Self {
        Self::with(InFlight::new())
    }

    fn with(in_flight: InFlight) -> Self {
        let waiting = RealmQueue::new(&USERS, WAITING_MAX, DELAY, system_hasher());
        let (pause, pace) = (Pause::default(), Pace::default());
        let state = Mutex::new(State { in_flight, pause, pace, waiting });
        Self { started: Instant::now(), state }
    }

    /// Adds a question. Returns the question that was evicted from a full queue, which may be the
    /// new question.
    pub(super) fn push(
        &self,
        request: AuthorizationRequest,
        now: Instant,
    ) -> Option<DroppedQuestion> {
        let attempts = Attempts::default();
        self.queue(WaitingQuestion { request, asked: now, attempts, failure: None }, now)
    }

    fn queue(&self, question: WaitingQuestion, now: Instant) -> Option<DroppedQuestion> {
        let since = self.since_start(now);
        let applicant = question.request.applicant.clone();
        let claimant = claimant(&applicant);
        let dropped = self.lock().waiting.push(since, &applicant.realm, &claimant, question);
        dropped.map(|dropped| DroppedQuestion::Crowded(dropped.request))
    }

    /// Removes and returns the next question, if another question may be opened. The value is an
    /// error if the next question has waited longer than [`WAIT_MAX`].
    pub(super) fn take(&self, now: Instant) -> Option<Result<OpenQuestion, DroppedQuestion>> {
        let State { in_flight, pause, pace, waiting } = &mut *self.lock();
        let first = waiting.first()?;
        if now.saturating_duration_since(first.asked) >= WAIT_MAX {
            let WaitingQuestion { request, failure, .. } = waiting.pop()?;
            let failure = failure.unwrap_or(NoAnswer::Unsent);
            return Some(Err(DroppedQuestion::Late(request, failure)));
        }
        let next = in_flight.choose(now, |search, may_open| {
            let may_open = |question: &WaitingQuestion| {
                question.attempts.next.is_none_or(|next| now >= next)
                    && !pause.delays(&question.request.applicant, now)
                    && pace.wait_of(&question.request.applicant, now).is_zero()
                    && may_open(&question.request.applicant)
            };
            match search {
                Search::Queue => waiting.pop_where(LOOKED_AT, may_open),
                Search::Realms => waiting.pop_in_realms(LOOKED_AT_OF_REALM, may_open),
            }
        });
        let WaitingQuestion { request, asked, attempts, .. } = next?;
        let number = in_flight.open(&request.applicant, now);
        pause.note_opened(number, now);
        pace.note_opened(&request.applicant, now);
        Some(Ok(OpenQuestion { request, number, asked, attempts }))
    }

    /// Releases the slot of a question, with or without a decision.
    pub(super) fn close(&self, question: OpenQuestion, now: Instant) -> AuthorizationRequest {
        let OpenQuestion { request, number, .. } = question;
        let State { in_flight, pause, pace, .. } = &mut *self.lock();
        in_flight.close(number, now);
        pause.note_decision(now);
        pace.note_decision(&request.applicant, now);
        request
    }

    /// Releases the slot of a question that was not sent to the service.
    pub(super) fn withdraw(&self, question: OpenQuestion) -> AuthorizationRequest {
        let State { in_flight, pause, pace, .. } = &mut *self.lock();
        in_flight.withdraw(question.number);
        pause.note_end(question.number);
        pace.note_unsent(&question.request.applicant, Instant::now());
        question.request
    }

    /// Queues a question again after a failure of the service. Returns the time until the next
    /// attempt, and the question evicted from the queue.
    pub(super) fn put_back(
        &self,
        question: OpenQuestion,
        failure: NoAnswer,
        now: Instant,
    ) -> (Duration, Option<DroppedQuestion>) {
        let OpenQuestion { request, number, asked, mut attempts } = question;
        let pause = {
            let State { in_flight, pause, pace, .. } = &mut *self.lock();
            in_flight.fail(number, now);
            pause.note_end(number);
            let of_many = pause.note_failure(&request.applicant, now);
            let of_question = if matches!(failure, NoAnswer::Busy) {
                pace.note_refusal(&request.applicant, now);
                Duration::ZERO
            } else {
                attempts.fail(now)
            };
            of_question.max(pace.wait_of(&request.applicant, now)).max(of_many)
        };
        let waiting = WaitingQuestion { request, asked, attempts, failure: Some(failure) };
        (pause, self.queue(waiting, now))
    }

    /// Records a missed deadline. A late question retains its slot until
    /// [`close_late`](Self::close_late), or until the question is lost. The returned receiver fails
    /// in the latter case.
    pub(super) fn miss(
        &self,
        question: OpenQuestion,
        now: Instant,
    ) -> (AuthorizationRequest, QuestionNumber, oneshot::Receiver<()>) {
        let OpenQuestion { request, number, .. } = question;
        let since = self.since_start(now);
        let State { in_flight, pause, waiting, .. } = &mut *self.lock();
        pause.note_end(number);
        waiting.charge(since, &claimant(&request.applicant), HANGS_DELAY);
        let lost = in_flight.miss(number, now);
        (request, number, lost)
    }

    /// Releases the slot of a late question, unless the slot has already been released.
    pub(super) fn close_late(&self, number: QuestionNumber) {
        self.lock().in_flight.close_late(number);
    }

    /// Returns true if questions wait.
    pub(super) fn has_waiting(&self) -> bool {
        self.lock().waiting.first().is_some()
    }

    /// Returns the time until the pace permits a waiting question, or zero if no question is paced.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.lock().pace.wait(now)
    }

    /// Returns the time in the queue's clock.
    fn since_start(&self, now: Instant) -> turn_types::Instant {
        turn_types::Instant::ZERO + now.saturating_duration_since(self.started)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use turn_proto::Applicant;
    use turn_types::{ClientAddr, PendingId, Transport, WorkerId};

    use super::in_flight::{ACCOUNT_SHARE, NEW_ACCOUNT_MAX, OPEN_MAX};
    use super::pause::{FAILING_MIN, PAUSE_MAX};
    use super::*;

    pub(super) fn request(account: &str, host: u8) -> AuthorizationRequest {
        let applicant = Applicant {
            realm: "r".into(),
            user: account.into(),
            account: account.into(),
            transport: Transport::Udp,
            client: ClientAddr(([192, host, 2, 1], 1).into()),
        };
        AuthorizationRequest { worker: WorkerId(0), pending: PendingId(0), applicant }
    }

    /// Creates questions to a service that has answered many questions promptly.
    fn prompt() -> Questions {
        Questions::with(InFlight::prompt())
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
        // Quick answers increase the limit to the full share.
        let mut mallorys = open(&questions, now);
        assert_eq!(mallorys.len(), NEW_ACCOUNT_MAX as usize);
        for _ in 0..OPEN_MAX / ACCOUNT_SHARE {
            questions.close(mallorys.remove(0), now);
            mallorys.extend(open(&questions, now));
        }
        assert_eq!(mallorys.len(), (OPEN_MAX / ACCOUNT_SHARE) as usize);
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

    /// A silent service: late questions retain their slots, and each deadline opens one more
    /// question.
    #[test]
    fn late_questions_are_bounded() {
        let (questions, mut now) = (prompt(), Instant::now());
        for round in 0..1000_u32 {
            let [_, _, host, account] = round.to_be_bytes();
            questions.push(request(&format!("account {account}"), host), now);
            for question in open(&questions, now) {
                drop(questions.miss(question, now));
            }
            now += Duration::from_millis(100);
        }
        assert!(questions.lock().in_flight.held() <= OPEN_MAX);
    }

    /// The service hangs for several accounts of one client.
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

    /// A slow service has few open questions.
    #[test]
    fn a_slow_service_has_no_queue_of_its_own() {
        let (questions, mut now) = (prompt(), Instant::now());
        for _ in 0..10 {
            for host in 0..200 {
                questions.push(request("mallory", host), now);
                questions.push(request(&format!("account {host}"), host), now);
            }
            let opened = open(&questions, now);
            // The service processes questions one by one.
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

    /// Questions of one account are slow, and precede a newcomer's question in the queue.
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

    /// Failures of one account delay only that account's questions.
    #[test]
    fn a_service_that_fails_for_one_account_delays_no_other() {
        let (questions, mut now) = (Questions::new(), Instant::now());
        for round in 0..20 {
            questions.push(request("mallory", 1), now);
            let question = questions.take(now).unwrap().unwrap();
            assert_eq!(&*question.request.applicant.account, "mallory", "{round}");
            let (pause, _) = questions.put_back(question, NoAnswer::Busy, now);
            assert!(!pause.is_zero() && pause <= PAUSE_MAX, "{round}: {pause:?}");
            assert!(questions.take(now).is_none(), "its own pause");
            questions.push(request("alice", 201), now);
            let next = questions.take(now).unwrap().unwrap();
            assert_eq!(&*next.request.applicant.account, "alice", "{round}");
            drop(questions.withdraw(next));
            now += pause;
            drop(questions.take(now).unwrap().map(|question| questions.close(question, now)));
            now += PAUSE_MAX;
        }
    }

    /// A flood for which the service fails delays no other client: the question of another client
    /// is next in the pause.
    #[test]
    fn failures_are_repeated_in_the_order_of_the_queue() {
        let (questions, mut now) = (Questions::new(), Instant::now());
        let fail = |question: OpenQuestion, now| {
            let failure = NoAnswer::Failed(String::new());
            let (pause, dropped) = questions.put_back(question, failure, now);
            assert!(dropped.is_none() && pause <= PAUSE_MAX, "{pause:?}");
        };
        for round in 0..3 {
            for host in 1..=FAILING_MIN as u8 {
                questions.push(request(&format!("mallory {host}"), host), now);
            }
            while let Some(question) = questions.take(now) {
                fail(question.unwrap(), now);
            }
            for (name, host) in [("alice", 201), ("mallory 5", 1), ("mallory 1", 5)] {
                questions.push(request(name, host), now);
            }
            let alices = questions.take(now).unwrap().unwrap();
            assert_eq!(&*alices.request.applicant.account, "alice", "{round}");
            questions.push(request("bob", 202), now);
            assert!(questions.take(now).is_none(), "{round}: one at a time");
            fail(alices, now);
            let bobs = questions.take(now).unwrap().unwrap();
            assert_eq!(&*bobs.request.applicant.account, "bob", "{round}");
            fail(bobs, now);
            assert!(questions.take(now).is_none(), "{round}: a pause");
            now += PAUSE_MAX;
            let mut asked = Vec::new();
            while let Some(question) = questions.take(now) {
                let question = question.unwrap();
                asked.push(question.request.applicant.account.to_string());
                questions.close(question, now);
            }
            assert_eq!(asked.len(), FAILING_MIN + 4, "{asked:?}");
            now += PAUSE_MAX;
        }
    }

    /// The service may fail only for new accounts of one user.
    #[test]
    fn failures_for_one_network_pause_no_other_question() {
        let (questions, now) = (Questions::new(), Instant::now());
        for account in 0..3 * FAILING_MIN {
            questions.push(request(&format!("mallory {account}"), 1), now);
        }
        while let Some(question) = questions.take(now) {
            questions.put_back(question.unwrap(), NoAnswer::Busy, now);
        }
        questions.push(request("alice", 201), now);
        let question = questions.take(now).unwrap().unwrap();
        assert_eq!(&*question.request.applicant.account, "alice");
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
        let late: Vec<_> = late.into_iter().map(|question| questions.miss(question, now)).collect();
        let next = open(&questions, now);
        assert_eq!(next.len(), 1);
        late.iter().for_each(|(_, id, _)| questions.close_late(*id));
        assert_eq!(open(&questions, now).len(), 1, "as few as a silent service gets");
        drop(next);
    }

    /// A question that fails in a pace is repeated after the returned pause.
    #[test]
    fn a_failure_is_repeated_in_the_pace() {
        let (questions, mut now) = (Questions::new(), Instant::now());
        questions.push(request("alice", 1), now);
        for failure in [NoAnswer::Busy, NoAnswer::Failed(String::new()), NoAnswer::Busy] {
            let question = questions.take(now).unwrap().unwrap();
            now += questions.put_back(question, failure, now).0;
        }
        assert!(questions.take(now).is_some_and(|next| next.is_ok()));
    }

    /// Late questions of one account leave the window free for other accounts.
    #[test]
    fn an_account_has_two_late_questions() {
        let (questions, mut now) = (prompt(), Instant::now());
        for host in 0..40 {
            questions.push(request("mallory", host), now);
        }
        let mut late = Vec::new();
        for _ in 0..20 {
            for question in open(&questions, now) {
                late.push(questions.miss(question, now));
            }
            now += Duration::from_millis(50);
        }
        assert_eq!(questions.lock().in_flight.late(), 2);
        let is_closed = |lost: &mut oneshot::Receiver<()>| lost.try_recv().is_err_and(is_closed);
        let closed = late.iter_mut().filter_map(|(_, _, lost)| is_closed(lost).then_some(()));
        assert_eq!(closed.count(), late.len() - 2);
        questions.push(request("alice", 201), now);
        let next: Vec<_> = open(&questions, now);
        assert!(next.iter().any(|question| &*question.request.applicant.account == "alice"));
    }

    fn is_closed(error: oneshot::error::TryRecvError) -> bool {
        error == oneshot::error::TryRecvError::Closed
    }

    /// Some servers of a service hang, and the window remains large enough for the working servers.
    #[test]
    fn late_questions_are_lost_when_a_later_one_is_answered() {
        let (questions, mut now) = (Questions::new(), Instant::now());
        for number in 0..200_u8 {
            questions.push(request(&format!("account {number}"), number), now);
            let question = questions.take(now).unwrap().unwrap();
            if number % 3 == 0 {
                let (_, _, wait) = questions.miss(question, now);
                drop(wait);
            } else {
                questions.close(question, now);
            }
            now += Duration::from_millis(10);
        }
        let in_flight = &questions.lock().in_flight;
        let is_large = in_flight.window().size() > 2;
        assert!(in_flight.late() <= 1 && is_large, "{:?}", in_flight.window());
    }

    /// The window grows although, because of the address's share, only half is in use.
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
        assert!(open(&questions, now).len() >= 32, "{:?}", questions.lock().in_flight.window());
    }
}
