//! Questions in flight to the authorizer. Questions that the service answers promptly are limited
//! by a window. Questions that hang, for single clients or for all, are counted separately. Clients
//! have shares of both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use fair_share::{
    Claimant, LOGGED_IN, QuestionNumber, Share, Slots, Supply, Window, system_hasher,
};
use tokio::sync::oneshot;
use turn_proto::Applicant;

use super::slow_accounts::{Response, SlowAccounts};
use super::slow_networks::SlowNetworks;
use super::votes::Votes;
use crate::authorizer::kept::{claimant, network};

/// Maximum number of open questions without overtaken questions, each with a connection. With an
/// answer in 10 ms the service gets up to 12,800 questions per second.
pub(super) const OPEN_MAX: u32 = 128;

/// Maximum number of overtaken questions, each with a connection until its deadline. With a
/// deadline of 3 s the maximum corresponds to 40 questions per second.
const OVERTAKEN_MAX: u32 = 128;

/// Divisor of the window that defines the share of one account, because the questions of one
/// account may be slow. The divisor also applies to the overtaken questions.
pub(super) const ACCOUNT_SHARE: u32 = 8;

/// Number of open questions of an account without a quick answer so far, whose behaviour is
/// unknown. Each further consecutive quick answer permits one more, up to the share of an account.
pub(super) const NEW_ACCOUNT_MAX: u32 = 2;

/// Maximum number of late questions of one account that retain their slots. The connections of
/// further late questions are closed at their deadlines.
const LATE_OF_ACCOUNT_MAX: usize = 2;

/// Divisor of the window that defines the share of one address. The service may hang for all
/// accounts of one client, and other clients of the network get the remaining slots. The divisor
/// also applies to the overtaken questions.
const ADDRESS_SHARE: u32 = 2;

/// Divisor of the window that defines the share of all slow accounts together, including overtaken
/// questions. The service may have few workers, each of which takes seconds for such questions.
const SLOW_SHARE: u32 = 4;

/// Divisor of the overtaken questions that defines the share of all slow accounts.
const SLOW_OVERTAKEN_SHARE: u32 = 2;

/// Divisor of the window that defines the number of additional slots for realms. A realm with fewer
/// open questions than that number may use them. The service may hang for all clients of one realm,
/// which then fill the window.
const REALM_SHARE: u32 = 2;

/// Divisor of these additional slots that defines the number reserved for realms without an open
/// question.
const NEW_REALM_SHARE: u32 = 4;

/// Number of probes before their interval grows. The service may hang for the clients of many
/// addresses, and each probe concerns another address.
const PROBES_MIN: u32 = 16;

/// Maximum interval between probes of a service that hangs. A service that hangs for two minutes
/// gets 60 probes at this interval.
const PROBE_EVERY_MAX: Duration = Duration::from_secs(2);

/// Questions that the service has received and not answered, with a connection each.
///
/// An unanswered question is overtaken in two cases. Either a later question has an answer, and the
/// unanswered question is older than [`Window::hangs_after`]. Or a later question has a quick
/// answer, and the unanswered question is older than [`SlowAccounts::slow_after`]. In both cases
/// the service hangs for this question only. Overtaken questions do not occupy the window, so
/// clients of the same network do not wait for them.
///
/// Slow accounts have a common share of the window and of the overtaken questions.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Shares of prompt and late questions.
    open: Tables,
    /// Shares of overtaken questions.
    overtaken: Tables,
    /// Accounts for which the service is slow.
    accounts: SlowAccounts,
    networks: SlowNetworks,
    votes: Votes,
    /// Limit of the number of open questions that the service answers promptly.
    window: Window,
    /// Open questions before their deadlines.
    prompt: BTreeMap<QuestionNumber, SentQuestion>,
    /// Overtaken questions before their deadlines.
    hanging: BTreeMap<QuestionNumber, SentQuestion>,
    /// Open questions past their deadlines, the oldest first.
    late: VecDeque<LateQuestion>,
    /// Number of probes since the last response.
    probes: u32,
}

/// Open question with its slot.
#[derive(Debug)]
struct SentQuestion {
    applicant: Applicant,
    opened: Instant,
    share: Share,
    /// True if the account was slow when the question was sent.
    is_slow: bool,
}

/// Question whose slot has been released.
#[derive(Debug)]
struct EndedQuestion {
    applicant: Applicant,
    opened: Instant,
    was_slow: bool,
}

/// Late question with its slot.
#[derive(Debug)]
struct LateQuestion {
    number: QuestionNumber,
    applicant: Applicant,
    share: Share,
    is_slow: bool,
    /// Sender that stops the wait for an answer when dropped.
    _wait: oneshot::Sender<()>,
}

/// Shares of slow accounts, and shares of other accounts.
#[derive(Debug)]
struct Tables {
    slow: Slots,
    others: Slots,
}

impl Tables {
    fn new(capacity: u32) -> Self {
        let slots = || {
            let mut slots = Slots::new(&LOGGED_IN, capacity, system_hasher());
            // The only realm with questions may use all slots. Other realms have additional slots
            // beyond the window instead.
            slots.set_realms_compete(false);
            slots
        };
        Self { slow: slots(), others: slots() }
    }

    const fn of(&self, is_slow: bool) -> &Slots {
        if is_slow { &self.slow } else { &self.others }
    }

    const fn of_mut(&mut self, is_slow: bool) -> &mut Slots {
        if is_slow { &mut self.slow } else { &mut self.others }
    }

    const fn held(&self) -> u32 {
        self.slow.held() + self.others.held()
    }

    /// Returns the number of entries of an account in both tables.
    fn held_by_account(&self, claimant: &Claimant<'_>) -> u32 {
        self.slow.held_by_account(claimant) + self.others.held_by_account(claimant)
    }

    /// Returns the number of entries of a realm in both tables.
    fn held_by_realm(&self, claimant: &Claimant<'_>) -> u32 {
        self.slow.held_by_realm(claimant) + self.others.held_by_realm(claimant)
    }
}

/// Returns the part of a supply that slow accounts may use, of which `held` entries are in use.
fn part_for_slow(whole: Supply, held: u32, share: u32) -> Supply {
    let capacity = (whole.capacity / share).max(1);
    Supply { free: whole.free.min(capacity.saturating_sub(held)), capacity }
}

/// Set of waiting questions that are searched for the next question.
#[derive(Clone, Copy, Debug)]
pub(super) enum Search {
    /// The first questions of the queue.
    Queue,
    /// The first questions of each realm.
    Realms,
}

/// Predicate that returns true if a waiting question of a client may be opened.
pub(super) type MayOpen<'a> = &'a mut dyn FnMut(&Applicant) -> bool;

impl InFlight {
    pub(super) fn new() -> Self {
        Self {
            open: Tables::new(OPEN_MAX),
            overtaken: Tables::new(OVERTAKEN_MAX),
            accounts: SlowAccounts::new(),
            networks: SlowNetworks::default(),
            votes: Votes::new(),
            window: Window::new(OPEN_MAX as usize),
            prompt: BTreeMap::new(),
            hanging: BTreeMap::new(),
            late: VecDeque::new(),
            probes: 0,
        }
    }

    /// Removes and returns a waiting question that may be opened now. `pop` removes the first
    /// waiting question for which its argument returns true.
    pub(super) fn choose<T>(
        &mut self,
        now: Instant,
        mut pop: impl FnMut(Search, MayOpen<'_>) -> Option<T>,
    ) -> Option<T> {
        self.overtake(now);
        let [prompt, slow] = [&self.prompt, &self.hanging]
            .map(|questions| questions.values().map(|question| &question.applicant));
        self.networks.count(prompt, slow, now);
        self.choose_by_share(now, &mut |may_open| pop(Search::Queue, may_open))
            .or_else(|| self.choose_in_realms(now, &mut |may_open| pop(Search::Realms, may_open)))
            .or_else(|| self.choose_probe(now, &mut pop))
    }

    /// Moves overtaken questions from the window. A question remains in the window if its client
    /// has used its share of the overtaken questions.
    fn overtake(&mut self, now: Instant) {
        let Self { window, accounts, prompt, .. } = self;
        let (hangs_after, slow_after) = (window.hangs_after(), accounts.slow_after());
        let is_overtaken = |number: QuestionNumber, question: &SentQuestion| {
            let age = now.saturating_duration_since(question.opened);
            let is_slow =
                slow_after.is_some_and(|after| age >= after) && accounts.is_overtaken(number);
            is_slow || window.is_lost(number) && age >= hangs_after
        };
        let hangs = prompt.iter().filter(|(number, question)| is_overtaken(**number, question));
        let numbers: Vec<_> = hangs.map(|(number, _)| *number).collect();
        let Self { open, overtaken, accounts, prompt, hanging, .. } = self;
        for number in numbers {
            let Some(question) = prompt.get(&number) else { continue };
            accounts.unanswered(
                &question.applicant,
                now.saturating_duration_since(question.opened),
                now,
            );
            let is_slow = question.is_slow;
            let free = OVERTAKEN_MAX.saturating_sub(overtaken.held());
            let mut supply = Supply { free, capacity: OVERTAKEN_MAX };
            if is_slow {
                supply = part_for_slow(supply, overtaken.slow.held(), SLOW_OVERTAKEN_SHARE);
            }
            let claimant = claimant(&question.applicant);
            if has_share(overtaken.of(is_slow), &claimant, supply) {
                let share = overtaken.of_mut(is_slow).keep(&claimant);
                if let Some(question) = prompt.remove(&number) {
                    open.of_mut(is_slow).release(question.share);
                    hanging.insert(number, SentQuestion { share, ..question });
                }
            }
        }
    }

    /// Removes and returns a waiting question within the window and the shares of its client.
    fn choose_by_share<T>(
        &mut self,
        now: Instant,
        pop: &mut impl FnMut(MayOpen<'_>) -> Option<T>,
    ) -> Option<T> {
        let Self { open, window, prompt, .. } = &*self;
        let free = window.size().saturating_sub(prompt.len());
        let [free, capacity] =
            [free, window.whole_size()].map(|slots| u32::try_from(slots).unwrap_or(u32::MAX));
        // Shares are computed from the window, which is smaller than the table for a slow service.
        let supply = Supply { free: free.min(OPEN_MAX.saturating_sub(open.held())), capacity };
        if supply.free == 0 {
            return None;
        }
        let mut is_held_back = false;
        // The first waiting questions may belong to accounts that have used their shares.
        let next = pop(&mut |applicant| {
            let is_slow = self.accounts.has(applicant, now);
            is_held_back |= !is_slow && {
                !networks_have_share(&self.open.others, &claimant(applicant), supply)
            };
            self.may_be_open(applicant, now, supply)
        });
        if is_held_back {
            // All clients may have one address, or be in one network.
            self.window.use_in_full();
        }
        next
    }

    /// Removes and returns a waiting question of a realm with few open questions, beyond the
    /// window.
    fn choose_in_realms<T>(
        &mut self,
        now: Instant,
        pop: &mut impl FnMut(MayOpen<'_>) -> Option<T>,
    ) -> Option<T> {
        let Self { open, window, prompt, .. } = &*self;
        let beyond = prompt.len().saturating_sub(window.size());
        let [beyond, capacity] =
            [beyond, window.whole_size()].map(|slots| u32::try_from(slots).unwrap_or(u32::MAX));
        let most = (capacity / REALM_SHARE).max(1);
        let free = (OPEN_MAX + OPEN_MAX / REALM_SHARE).saturating_sub(open.held());
        let supply = Supply { free: free.min(most.saturating_sub(beyond)), capacity };
        if supply.free == 0 {
            return None;
        }
        let is_for_new = supply.free <= most.div_ceil(NEW_REALM_SHARE);
        pop(&mut |applicant| {
            let claimant = claimant(applicant);
            let of_realm = open.held_by_realm(&claimant);
            if of_realm > 0 && (is_for_new || of_realm >= most) {
                return false;
            }
            self.may_be_open(applicant, now, supply)
        })
    }

    /// Checks the shares of a client. A slow account may have one question at a time. Other
    /// accounts have the share of an account, which is small before quick answers. Overtaken
    /// questions are included, because the service may process them. A new account waits while its
    /// network has many slow questions.
    fn may_be_open(&self, applicant: &Applicant, now: Instant, supply: Supply) -> bool {
        let claimant = claimant(applicant);
        let held = self.open.held_by_account(&claimant) + self.overtaken.held_by_account(&claimant);
        if !self.accounts.has(applicant, now) {
            let quick_answers = self.accounts.quick_answers(applicant);
            let of_account = (supply.capacity / ACCOUNT_SHARE).max(1);
            return held < of_account.min(NEW_ACCOUNT_MAX.saturating_add(quick_answers))
                && (quick_answers > 0 || !self.networks.is_full(applicant))
                && networks_have_share(&self.open.others, &claimant, supply);
        }
        let supply = part_for_slow(supply, self.slow_held(), SLOW_SHARE);
        held == 0
            && self.accounts.may_have_one(applicant, now)
            && networks_have_share(&self.open.slow, &claimant, supply)
    }

    /// Removes and returns a waiting question beyond the shares, if all questions in flight hang.
    /// The service may hang for the clients of these questions only, which a question of another
    /// client shows. The account must have no question in flight. Accounts in other networks are
    /// preferred. After [`PROBES_MIN`] probes without a response, the interval doubles with each
    /// probe, because a service that hangs for all should get few questions.
    fn choose_probe<T>(
        &mut self,
        now: Instant,
        pop: &mut impl FnMut(Search, MayOpen<'_>) -> Option<T>,
    ) -> Option<T> {
        let Self { open, overtaken, accounts, window, prompt, hanging, late, probes, .. } = self;
        if open.held() >= OPEN_MAX {
            return None;
        }
        // Slow accounts are expected to hang.
        let newest = prompt.values().rev().find(|question| !question.is_slow);
        let newest = newest.map(|question| question.opened);
        let factor = 1_u32.checked_shl(probes.saturating_sub(PROBES_MIN)).unwrap_or(u32::MAX);
        let every = window.hangs_after().saturating_mul(factor).min(PROBE_EVERY_MAX);
        if newest.is_some_and(|newest| now.saturating_duration_since(newest) < every) {
            return None;
        }
        let has_none = |applicant: &Applicant| {
            let claimant = claimant(applicant);
            open.held_by_account(&claimant) + overtaken.held_by_account(&claimant) == 0
        };
        let in_flight = prompt.values().chain(hanging.values()).map(|sent| &sent.applicant);
        let in_flight = in_flight.chain(late.iter().map(|late| &late.applicant));
        let networks: BTreeSet<_> = in_flight.map(network).collect();
        let is_other = |applicant: &Applicant| has_none(applicant) && !accounts.has(applicant, now);
        let is_elsewhere = |applicant: &Applicant| {
            let claimant = claimant(applicant);
            let held = open.others.held_by(&claimant) + overtaken.others.held_by(&claimant);
            held == 0 && is_other(applicant)
        };
        let is_new =
            |applicant: &Applicant| !networks.contains(&network(applicant)) && is_other(applicant);
        // Most open questions may belong to one realm.
        let is_of_few = |applicant: &Applicant| {
            2 * open.held_by_realm(&claimant(applicant)) < open.held() && is_new(applicant)
        };
        let next = pop(Search::Realms, &mut |applicant| is_of_few(applicant))
            .or_else(|| pop(Search::Queue, &mut |applicant| is_new(applicant)));
        // All clients may be in one network, or have one address.
        let next = next
            .or_else(|| pop(Search::Queue, &mut |applicant| is_elsewhere(applicant)))
            .or_else(|| pop(Search::Queue, &mut |applicant| is_other(applicant)));
        // All clients may have one account.
        let next = match next {
            None if prompt.is_empty() => pop(Search::Queue, &mut |applicant| has_none(applicant))
                .or_else(|| pop(Search::Queue, &mut |applicant| !accounts.has(applicant, now))),
            next => next,
        }?;
        *probes = probes.saturating_add(u32::from(newest.is_some()));
        Some(next)
    }

    /// Records a question as open, and returns its number.
    pub(super) fn open(&mut self, applicant: &Applicant, now: Instant) -> QuestionNumber {
        let number = self.window.send();
        let is_slow = self.accounts.has(applicant, now);
        let share = self.open.of_mut(is_slow).keep(&claimant(applicant));
        let applicant = applicant.clone();
        self.prompt.insert(number, SentQuestion { applicant, opened: now, share, is_slow });
        number
    }

    /// Releases the slot of an answered question.
    pub(super) fn close(&mut self, number: QuestionNumber, now: Instant) {
        let in_flight = self.in_flight_with(number);
        let Some(EndedQuestion { applicant, opened, was_slow }) = self.remove(number) else {
            return;
        };
        let time = now.saturating_duration_since(opened);
        let has_vote = self.votes.take(&applicant, now, self.window.round());
        let response = Response { number, took: time, has_vote };
        let is_slow = self.accounts.answered(&applicant, response, now);
        if !is_slow {
            self.networks.note_quick(&applicant, now);
        }
        if is_slow && was_slow || !has_vote {
            self.window.note_one(number);
        } else {
            // The response to an overtaken question is recorded as well, because it shows if the
            // service is slow for most questions.
            self.window.note(number, time, in_flight);
        }
        self.probes = 0;
        let Self { open, window, late, .. } = self;
        while let Some(lost) = late.pop_front_if(|late| window.is_lost(late.number)) {
            open.of_mut(lost.is_slow).release(lost.share);
            window.end_late();
        }
    }

    /// Releases the slot of a question that was not sent to the service.
    pub(super) fn withdraw(&mut self, number: QuestionNumber) {
        drop(self.remove(number));
    }

    /// Releases the slot of a question that failed.
    pub(super) fn fail(&mut self, number: QuestionNumber, now: Instant) {
        let in_flight = self.in_flight_with(number);
        if let Some(EndedQuestion { applicant, opened, .. }) = self.remove(number) {
            self.accounts.unanswered(&applicant, now.saturating_duration_since(opened), now);
        }
        self.window.fail(in_flight);
    }

    /// Records a missed deadline. A late question retains its slot until
    /// [`close_late`](Self::close_late), or until the question is lost. The returned receiver fails
    /// in the latter case.
    pub(super) fn miss(&mut self, number: QuestionNumber, now: Instant) -> oneshot::Receiver<()> {
        let (_wait, lost) = oneshot::channel();
        let in_flight = self.in_flight_with(number);
        let sent = self.prompt.get(&number).or_else(|| self.hanging.get(&number));
        let mut was_slow = false;
        if let Some(SentQuestion { applicant, opened, is_slow, .. }) = sent {
            was_slow = *is_slow;
            self.accounts.unanswered(applicant, now.saturating_duration_since(*opened), now);
        }
        if self.window.is_lost(number)
            && let Some(SentQuestion { applicant, .. }) = sent
        {
            self.accounts.missed(applicant, now);
        }
        let is_late = if was_slow {
            self.window.miss_one(number)
        } else {
            self.window.miss(number, in_flight)
        };
        match self.prompt.remove(&number) {
            Some(SentQuestion { applicant, share, is_slow, .. })
                if is_late && self.late_of_account(&applicant) < LATE_OF_ACCOUNT_MAX =>
            {
                self.late.push_back(LateQuestion { number, applicant, share, is_slow, _wait });
            }
            Some(SentQuestion { share, is_slow, .. }) => {
                self.open.of_mut(is_slow).release(share);
                if is_late {
                    self.window.end_late();
                }
            }
            None => drop(self.remove(number)),
        }
        lost
    }

    /// Releases the slot of a late question, unless the slot has already been released.
    pub(super) fn close_late(&mut self, number: QuestionNumber) {
        let position = self.late.iter().position(|late| late.number == number);
        if let Some(late) = position.and_then(|position| self.late.remove(position)) {
            self.open.of_mut(late.is_slow).release(late.share);
            self.window.end_late();
        }
    }

    /// Returns the number of late questions of an account.
    fn late_of_account(&self, applicant: &Applicant) -> usize {
        let Applicant { realm, account, .. } = applicant;
        let is_own = |late: &&LateQuestion| {
            late.applicant.account == *account && late.applicant.realm == *realm
        };
        self.late.iter().filter(is_own).count()
    }

    /// Returns the number of questions of slow accounts that the service may process. Returns 0 if
    /// all of them are late: slow accounts then get one more question, as a silent service does.
    fn slow_held(&self) -> u32 {
        let held = self.open.slow.held() + self.overtaken.slow.held();
        let mut before_deadline = self.prompt.values().chain(self.hanging.values());
        if before_deadline.any(|question| question.is_slow) { held } else { 0 }
    }

    /// Returns the number of questions in the window, including this question even if overtaken.
    fn in_flight_with(&self, number: QuestionNumber) -> usize {
        self.prompt.len() + usize::from(self.hanging.contains_key(&number))
    }

    /// Removes a question before its deadline, and releases its slot.
    fn remove(&mut self, number: QuestionNumber) -> Option<EndedQuestion> {
        let (question, tables) = match self.prompt.remove(&number) {
            Some(question) => (question, &mut self.open),
            None => (self.hanging.remove(&number)?, &mut self.overtaken),
        };
        let SentQuestion { applicant, opened, share, is_slow } = question;
        tables.of_mut(is_slow).release(share);
        Some(EndedQuestion { applicant, opened, was_slow: is_slow })
    }
}

/// Returns true if a client has not used up its share of a table. `supply` limits the shares to the
/// part of the table in use.
fn has_share(slots: &Slots, claimant: &Claimant<'_>, supply: Supply) -> bool {
    let of_account = (supply.capacity / ACCOUNT_SHARE).max(1);
    networks_have_share(slots, claimant, supply) && slots.held_by_account(claimant) < of_account
}

/// Returns true if a client's networks have not used their shares. The account's share is not
/// checked, because that share may be small while most of the table is free.
fn networks_have_share(slots: &Slots, claimant: &Claimant<'_>, supply: Supply) -> bool {
    slots.held_by(claimant) < supply.capacity.div_ceil(ADDRESS_SHARE)
        && slots.check_supply(claimant, 1, supply).is_ok()
}

#[cfg(test)]
impl InFlight {
    /// Creates questions in flight to a service that has answered many questions promptly.
    pub(super) fn prompt() -> Self {
        let mut questions = Self::new();
        for _ in 0..20 * OPEN_MAX {
            let number = questions.window.send();
            questions.window.note(number, Duration::from_millis(1), usize::MAX);
        }
        questions
    }

    pub(super) const fn window(&self) -> &Window {
        &self.window
    }

    pub(super) fn late(&self) -> usize {
        self.late.len()
    }

    /// Returns the number of questions that the service has received and not answered.
    pub(super) const fn held(&self) -> u32 {
        self.open.held() + self.overtaken.held()
    }
}
