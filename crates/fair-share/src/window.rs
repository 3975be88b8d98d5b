//! Window of questions in flight to a store or service, by the times of its responses.
//!
//! Questions that wait in a [`FairQueue`](crate::FairQueue) are sorted by client, and those that
//! wait in the service are not. A service that works serially would otherwise have the
//! questions of one flooder before all others.

use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

/// Initial size. A serial service, with 150 ms for each question, finishes a burst of this
/// size within a second or so.
const START: usize = 8;

/// Smallest size: a question that a lock holds up leaves space for another.
const MIN: usize = 2;

/// Smallest number of responses in a round: the median of fewer is chance.
const ROUND_MIN: usize = 12;

/// Limit beyond seven quarters of the usual time, above which a response is slow: delays of
/// threads and networks within one site.
const SLACK: Duration = Duration::from_millis(2);

/// Age of a question that hangs, as a multiple of the median response time. With exponential times
/// one of sixteen responses arrives later.
const HANGS_AFTER: u32 = 4;

/// Smallest age of a question that hangs: longer than pauses of threads and networks within one
/// site.
const HANGS_AFTER_MIN: Duration = Duration::from_millis(20);

/// Age of a question that hangs before the first response: a slow response takes less.
const HANGS_AFTER_FIRST: Duration = Duration::from_millis(250);

/// Step of the median from zero.
const MEDIAN_STEP: Duration = Duration::from_micros(100);

/// Maximum number of questions in flight.
///
/// The size changes after each round of at least `size` responses. It grows by an eighth after a
/// round in full use, and has its minimum after a round in which most responses were missed. After
/// a slow round, with a median of more than seven quarters of the usual time, it is halved, and the
/// next rounds decide. If the median falls, questions have waited in the service for each other. If
/// it does not fall although fewer were in flight, the service needs that time: the usual time
/// approaches it, and the window gets its former size. Neither different times nor quick answers to
/// some accounts lead to a small window.
///
/// A question then takes at most about twice the time of a single question.
#[derive(Debug)]
pub struct Window {
    size: usize,
    max: usize,
    /// Number of questions sent so far.
    sent: u64,
    /// The latest answered question.
    answered: Option<QuestionNumber>,
    /// Questions that the service works on although their deadline has passed.
    late: usize,
    /// Median response time without a queue in the service; `None` before the first round.
    usual: Option<Duration>,
    /// Median of recent response times; `None` before the first response.
    median: Option<Duration>,
    /// Questions in flight at the last halving, sent under the earlier size.
    ignored: usize,
    /// Number of completed rounds.
    rounds: u64,
    round: Round,
    /// The slow round before the size was halved.
    wider: Option<RoundResult>,
}

/// Responses of the present round.
#[derive(Debug, Default)]
struct Round {
    /// Response times; `Duration::MAX` for missed ones.
    times: Vec<Duration>,
    /// Number of missed ones.
    missed: usize,
    /// Sum of the questions in flight at each response.
    in_flight: usize,
    /// True if the window was full.
    was_full: bool,
}

/// Result of a round.
#[derive(Clone, Copy, Debug)]
struct RoundResult {
    size: usize,
    /// Mean number of questions in flight, in sixteenths.
    in_flight: usize,
    median: Duration,
    quickest: Duration,
}

impl Round {
    fn end(mut self, size: usize) -> RoundResult {
        let number = self.times.len().max(1);
        self.times.sort_unstable();
        let time = |index: usize| self.times.get(index).copied().unwrap_or_default();
        let (median, quickest) = (time(self.times.len() / 2), time(0));
        RoundResult { size, in_flight: self.in_flight * 16 / number, median, quickest }
    }
}

impl RoundResult {
    /// Returns true if most responses were missed.
    fn is_silent(&self) -> bool {
        self.median == Duration::MAX
    }

    /// Returns true if half of the window was in use.
    const fn is_in_use(&self) -> bool {
        self.in_flight * 2 >= self.size * 16
    }

    /// Returns true if far fewer questions were in flight than in the other round.
    const fn has_far_fewer(&self, than: &Self) -> bool {
        self.in_flight * 4 <= than.in_flight * 3
    }

    /// Returns true if the responses are hardly quicker than those of the other round.
    fn is_as_slow(&self, than: &Self) -> bool {
        self.median > than.median / 5 * 4
    }
}

/// Number of a question, counted by the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuestionNumber(u64);

impl Window {
    /// A window up to a size.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            size: START.min(max),
            max,
            sent: 0,
            answered: None,
            late: 0,
            usual: None,
            median: None,
            ignored: 0,
            rounds: 0,
            round: Round::default(),
            wider: None,
        }
    }

    /// Maximum number of questions in flight, without late questions. At least one, which tests
    /// whether the service is silent.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size.saturating_sub(self.late).max(1)
    }

    /// Maximum number of questions in flight, late ones included.
    #[must_use]
    pub const fn whole_size(&self) -> usize {
        self.size
    }

    /// Numbers a question that is sent.
    pub const fn send(&mut self) -> QuestionNumber {
        self.sent += 1;
        QuestionNumber(self.sent)
    }

    /// Returns true for an unanswered question that was sent before an answered one: the service
    /// does not work on the question.
    #[must_use]
    pub fn is_lost(&self, number: QuestionNumber) -> bool {
        self.answered.is_some_and(|answered| number < answered)
    }

    /// Age from which a question hangs if a later question has an answer: four times the median of
    /// recent response times, those of questions that hung included. If the service becomes slow
    /// for all, the median follows within some tens of responses.
    #[must_use]
    pub fn hangs_after(&self) -> Duration {
        let after = |median: Duration| (median * HANGS_AFTER).max(HANGS_AFTER_MIN);
        self.median.map_or(HANGS_AFTER_FIRST, after)
    }

    /// Notes the time of a response. `in_flight` includes the question.
    pub fn note(&mut self, number: QuestionNumber, time: Duration, in_flight: usize) {
        self.answered = self.answered.max(Some(number));
        self.adapt_median(time);
        self.add(time, in_flight);
    }

    /// Notes a response whose time tells nothing about the service: it is slow for single clients.
    pub fn note_one(&mut self, number: QuestionNumber) {
        self.answered = self.answered.max(Some(number));
    }

    /// Notes a missed deadline. `in_flight` includes the question. Returns true if the question is
    /// late until [`end_late`](Self::end_late), false if it is [lost](Self::is_lost), which does
    /// not show that the service is slow.
    #[must_use]
    pub fn miss(&mut self, number: QuestionNumber, in_flight: usize) -> bool {
        let is_late = self.miss_one(number);
        if is_late {
            self.fail(in_flight);
        }
        is_late
    }

    /// Notes a missed deadline of a client for which the service hangs: the size remains. Returns
    /// the same as [`miss`](Self::miss).
    #[must_use]
    pub fn miss_one(&mut self, number: QuestionNumber) -> bool {
        let is_late = !self.is_lost(number);
        self.late += usize::from(is_late);
        is_late
    }

    /// Notes a failure of the service. `in_flight` includes the question.
    pub fn fail(&mut self, in_flight: usize) {
        self.add(Duration::MAX, in_flight);
    }

    /// Number of the present round, and of its responses.
    #[must_use]
    pub fn round(&self) -> (u64, usize) {
        (self.rounds, self.round_length())
    }

    fn round_length(&self) -> usize {
        self.size.max(ROUND_MIN)
    }

    /// Marks the round as fully used: the share of an address or network, half of the window or
    /// more, holds questions back.
    pub const fn use_in_full(&mut self) {
        self.round.was_full = true;
    }

    /// Removes a late question: the service has responded, or the wait is over.
    pub const fn end_late(&mut self) {
        self.late = self.late.saturating_sub(1);
    }

    /// Adds a response to the round, unless the question was sent under an earlier size.
    fn add(&mut self, time: Duration, in_flight: usize) {
        if self.ignored > 0 {
            self.ignored -= 1;
            return;
        }
        self.round.times.push(time);
        self.round.in_flight += in_flight.min(self.max);
        self.round.was_full |= in_flight.saturating_add(self.late) >= self.size;
        self.round.missed += usize::from(time == Duration::MAX);
        let is_silent = self.round.missed * 2 > self.size;
        let least = if is_silent { self.size } else { self.round_length() };
        if self.round.times.len() >= least {
            self.rounds += 1;
            let was_full = self.round.was_full;
            let result = mem::take(&mut self.round).end(self.size);
            self.adapt(result, was_full, in_flight);
        }
    }

    /// Adapts the size after a round.
    fn adapt(&mut self, round: RoundResult, was_full: bool, in_flight: usize) {
        if round.is_silent() {
            self.wider = None;
            return self.shrink(MIN, in_flight);
        }
        if let Some(wider) = self.wider.take_if(|wider| round.has_far_fewer(wider)) {
            if !round.is_in_use() {
                // Too few clients to tell.
                self.size = wider.size;
                return;
            }
            if round.is_as_slow(&wider) {
                // Not because of the questions in flight.
                self.usual = self.usual.map(|usual| (usual + round.median) / 2);
                self.size = wider.size;
                return;
            }
            self.usual = self.usual.map(|usual| usual.min((usual + round.median) / 2));
        }
        if !self.is_slow(&round) {
            self.wider = None;
            if was_full {
                self.size = (self.size + self.size / 8 + 1).min(self.max);
            }
        } else if self.size > MIN {
            self.wider.get_or_insert(round);
            self.shrink((self.size / 2).max(MIN), in_flight);
        }
    }

    fn shrink(&mut self, size: usize, in_flight: usize) {
        self.size = size.min(self.max);
        self.ignored = in_flight.saturating_sub(1);
    }

    /// Adapts the usual time to each round while few questions are in flight, else to quicker ones.
    /// Returns true for a slow round.
    fn is_slow(&mut self, round: &RoundResult) -> bool {
        let usual = self.usual.unwrap_or(round.quickest);
        let usual = if round.median < usual {
            (usual * 31 + round.median) / 32
        } else if self.size <= MIN {
            (usual + round.median) / 2
        } else {
            usual
        };
        self.usual = Some(usual);
        round.median > usual / 4 * 7 + SLACK
    }

    /// Moves the median by a quarter, at most to the time. Single slow responses change little.
    fn adapt_median(&mut self, time: Duration) {
        let median = self.median.unwrap_or(time);
        self.median = Some(if time > median {
            (median + median / 4 + MEDIAN_STEP).min(time)
        } else {
            (median * 4 / 5).max(time)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const STEP: Duration = Duration::from_millis(50);

    /// A service of some workers. A worker responds after [`STEP`].
    struct Service {
        workers: usize,
        now: Duration,
        /// Number, start and response time of each question in flight.
        in_flight: VecDeque<(QuestionNumber, Duration, Duration)>,
    }

    impl Service {
        fn new(workers: usize) -> Self {
            Self { workers, now: Duration::ZERO, in_flight: VecDeque::new() }
        }

        fn send(&mut self, number: QuestionNumber) {
            let before = self.in_flight.len().checked_sub(self.workers);
            let free = before.map_or(self.now, |index| self.in_flight[index].2);
            self.in_flight.push_back((number, self.now, free + STEP));
        }

        /// Fills the window after each response, or after all responses. Returns the largest size
        /// of the last quarter.
        fn flood(&mut self, window: &mut Window, responses: usize, in_bursts: bool) -> usize {
            let mut largest = 0;
            for number in 0..responses {
                if !in_bursts || self.in_flight.is_empty() {
                    while self.in_flight.len() < window.size() {
                        self.send(window.send());
                    }
                }
                let (question, sent, answered) = self.in_flight[0];
                self.now = answered;
                window.note(question, answered - sent, self.in_flight.len());
                self.in_flight.pop_front();
                if number * 4 >= responses * 3 {
                    largest = largest.max(window.size());
                }
            }
            largest
        }
    }

    #[test]
    fn a_service_that_answers_all_at_once_gets_all() {
        let mut window = Window::new(256);
        Service::new(1000).flood(&mut window, 6000, false);
        assert_eq!(window.size(), 256);
    }

    #[test]
    fn a_service_that_answers_one_after_the_other_gets_few() {
        for in_bursts in [false, true] {
            let mut window = Window::new(256);
            let largest = Service::new(1).flood(&mut window, 6000, in_bursts);
            assert!((MIN..=8).contains(&largest), "{largest}, in bursts: {in_bursts}");
            // It is well again.
            Service::new(1000).flood(&mut window, 6000, false);
            assert_eq!(window.size(), 256);
        }
    }

    #[test]
    fn a_service_with_some_workers_has_few_more_in_flight() {
        for in_bursts in [false, true] {
            let mut window = Window::new(256);
            let largest = Service::new(16).flood(&mut window, 5000, in_bursts);
            let most = if in_bursts { 48 } else { 32 };
            assert!((16..=most).contains(&largest), "{largest}, in bursts: {in_bursts}");
        }
    }

    #[test]
    fn a_service_that_becomes_slower_is_not_taken_for_a_full_one() {
        let mut window = Window::new(256);
        let mut answer = |time, responses| {
            (0..responses).for_each(|_| {
                let number = window.send();
                window.note(number, Duration::from_millis(time), window.size());
            });
            window.size()
        };
        assert_eq!(answer(1, 6000), 256);
        assert_eq!(answer(400, 9000), 256);
    }

    /// Clients of a service that works on all questions together: `per_second` arrive, and each
    /// response takes a time of `times`, in milliseconds. Returns the largest number of waiting
    /// clients.
    fn arrive(
        window: &mut Window,
        per_second: u32,
        seconds: u32,
        mut time: impl FnMut(u32) -> u64,
    ) -> usize {
        let (mut open, mut waiting, mut most) = (Vec::new(), VecDeque::new(), 0);
        let mut number = 0;
        for millisecond in 0..seconds * 1000 {
            let due = |at: u32| at * per_second / 1000;
            for _ in due(millisecond)..due(millisecond + 1) {
                waiting.push_back(time(number));
                number += 1;
            }
            let at = u64::from(millisecond);
            while let Some(index) = open.iter().position(|(_, sent, took)| sent + took <= at) {
                let in_flight = open.len();
                let (question, _, took) = open.swap_remove(index);
                window.note(question, Duration::from_millis(took), in_flight);
            }
            while open.len() < window.size()
                && let Some(took) = waiting.pop_front()
            {
                open.push((window.send(), at, took));
            }
            most = most.max(waiting.len());
        }
        most
    }

    /// Thirty clients per second, who need six places.
    #[test]
    fn different_times_are_no_sign_of_a_full_service() {
        let uniform = |number: u32| 20 + u64::from(number.wrapping_mul(2_654_435_761) >> 16) % 380;
        let mut window = Window::new(128);
        assert!(arrive(&mut window, 30, 10, |_| 200) <= 2);
        assert!(arrive(&mut window, 30, 20, |n| if n % 10 == 0 { 20 } else { 200 }) <= 15);
        let most = arrive(&mut window, 30, 60, uniform);
        assert!(most <= 30, "{most}");
        assert!(arrive(&mut window, 30, 10, |_| 200) <= 15);
    }

    /// An account for which the service has quick answers, next to thirty other clients per second.
    #[test]
    fn quick_answers_to_one_account_leave_places_to_others() {
        for every in [16, 8, 4, 3, 2] {
            let mut window = Window::new(128);
            assert!(arrive(&mut window, 30, 10, |_| 200) <= 2);
            let most = arrive(&mut window, 30 + 30 / (every - 1), 60, |n| {
                if n % every == 0 { 1 } else { 200 }
            });
            assert!(most <= 20, "one of {every}: {most}");
        }
    }

    #[test]
    fn a_service_that_becomes_slow_gets_its_places_soon() {
        let mut window = Window::new(128);
        arrive(&mut window, 30, 10, |_| 1);
        let most = arrive(&mut window, 30, 10, |_| 200);
        assert!(most <= 24, "{most}");
    }

    /// A question hangs by the time of other questions, however slow the service is for all.
    #[test]
    fn a_question_hangs_by_the_median_of_response_times() {
        let mut window = Window::new(256);
        let mut answer = |times: &[u64], rounds| {
            for time in (0..rounds).flat_map(|_| times) {
                let number = window.send();
                window.note(number, Duration::from_millis(*time), window.size());
            }
            window.hangs_after().as_millis()
        };
        assert_eq!(answer(&[], 0), 250);
        assert_eq!(answer(&[1], 10), 20);
        assert_eq!(answer(&[30], 40), 120);
        let with_some_slow = answer(&[30, 30, 30, 2500], 100);
        assert!((96..=200).contains(&with_some_slow), "{with_some_slow}");
        assert_eq!(answer(&[700], 40), 2800);
    }

    #[test]
    fn a_silent_service_gets_few() {
        let mut window = Window::new(256);
        Service::new(1000).flood(&mut window, 6000, false);
        let questions: Vec<_> = (0..256).map(|_| window.send()).collect();
        for (question, in_flight) in questions.into_iter().zip((1..=256).rev()) {
            assert!(window.miss(question, in_flight));
        }
        assert_eq!(window.size(), 1, "the service works on late ones");
        (0..256).for_each(|_| window.end_late());
        assert_eq!(window.size(), MIN);
    }

    #[test]
    fn single_late_responses_do_not_count() {
        let mut window = Window::new(256);
        for number in 0..5000 {
            let late = if number % 4 == 0 { 100 } else { 1 };
            let question = window.send();
            window.note(question, STEP * late, window.size());
        }
        assert_eq!(window.size(), 256);
    }

    /// Some servers of a service hang, and the others respond.
    #[test]
    fn lost_questions_are_no_sign_of_a_slow_service() {
        let mut window = Window::new(256);
        let mut lost = Vec::new();
        for number in 0..5000 {
            let question = window.send();
            match number % 3 {
                0 => lost.push(question),
                _ => window.note(question, STEP, window.size()),
            }
        }
        let after = window.send();
        assert!(lost.into_iter().all(|question| !window.miss(question, 256)));
        assert_eq!(window.size(), 256);
        assert!(window.miss(after, 1), "no later question is answered");
    }

    #[test]
    fn a_small_service_has_its_own_maximum() {
        for max in [1, 4] {
            let mut window = Window::new(max);
            assert_eq!(Service::new(1000).flood(&mut window, 1000, false), max);
            assert!(Service::new(1).flood(&mut window, 1000, false) <= max);
        }
    }
}
