//! Questions in flight to the authorizer: those that the service answers promptly, in a window, and
//! those that hang for single clients or all. Shares of the window and of the questions that hang.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use fair_share::{Claimant, QuestionNumber, Share, Slots, Supply, USERS, Window, system_hasher};
use tokio::sync::oneshot;
use turn_proto::Applicant;

use crate::authorizer::kept::claimant;

/// Maximum number of open questions, each with a connection, without overtaken ones. With an answer
/// in 10 ms they are 12,800 a second.
pub(super) const OPEN_MAX: u32 = 128;

/// Maximum number of overtaken questions, each with a connection until its deadline: 40 a second
/// with a deadline of 3 s.
const OVERTAKEN_MAX: u32 = 128;

/// Part of the window for one account, as a divisor: the questions of one account may be slow. The
/// same part of the overtaken questions.
pub(super) const ACCOUNT_SHARE: u32 = 8;

/// Part of the window for one address, as a divisor. The service may hang for all accounts of one
/// client; other clients of the network get the remaining slots. The same part of the overtaken
/// questions.
const ADDRESS_SHARE: u32 = 2;

/// Number of probes before their interval grows: the service may hang for the clients of many
/// addresses, and each probe is of another address.
const PROBES_MIN: u32 = 16;

/// Longest interval between probes of a service that hangs. A service that hangs for two minutes
/// then gets 60 probes.
const PROBE_EVERY_MAX: Duration = Duration::from_secs(2);

/// Questions that the service has, with a connection each.
///
/// An unanswered question is overtaken if a later question has an answer and it is older than
/// [`Window::hangs_after`]: the service hangs for this question only. Overtaken questions do not
/// use the window: clients of the same network do not wait for them.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Shares of prompt and late questions.
    open: Slots,
    /// Shares of overtaken questions.
    overtaken: Slots,
    /// Number of open questions that the service answers promptly.
    window: Window,
    /// Open questions before their deadlines.
    prompt: BTreeMap<QuestionNumber, PromptQuestion>,
    /// Overtaken questions before their deadlines.
    hanging: BTreeMap<QuestionNumber, Share>,
    /// Open questions past their deadlines, the oldest first.
    late: VecDeque<LateQuestion>,
    /// Number of probes since the last response.
    probes: u32,
}

/// An open question with its slot.
#[derive(Debug)]
struct PromptQuestion {
    applicant: Applicant,
    opened: Instant,
    share: Share,
}

/// A late question with its slot.
#[derive(Debug)]
struct LateQuestion {
    number: QuestionNumber,
    share: Share,
    /// Sender whose drop stops the wait.
    _wait: oneshot::Sender<()>,
}

/// Decides for a waiting question whether it may be open.
pub(super) type MayOpen<'a> = &'a mut dyn FnMut(&Applicant) -> bool;

impl InFlight {
    pub(super) fn new() -> Self {
        Self {
            open: Slots::new(&USERS, OPEN_MAX, system_hasher()),
            overtaken: Slots::new(&USERS, OVERTAKEN_MAX, system_hasher()),
            window: Window::new(OPEN_MAX as usize),
            prompt: BTreeMap::new(),
            hanging: BTreeMap::new(),
            late: VecDeque::new(),
            probes: 0,
        }
    }

    /// Takes a waiting question that may be open now. `pop` removes the first waiting question for
    /// which its argument returns true.
    pub(super) fn choose<T>(
        &mut self,
        now: Instant,
        mut pop: impl FnMut(MayOpen<'_>) -> Option<T>,
    ) -> Option<T> {
        self.overtake(now);
        self.choose_by_share(&mut pop).or_else(|| self.choose_probe(now, &mut pop))
    }

    /// Moves overtaken questions from the window. A question remains in the window if its client
    /// has a full share of the overtaken questions.
    fn overtake(&mut self, now: Instant) {
        let Self { open, overtaken, window, prompt, hanging, .. } = self;
        let after = window.hangs_after();
        // The first questions are the oldest.
        let hangs = prompt.iter().take_while(|(number, question)| {
            window.is_lost(**number) && now.saturating_duration_since(question.opened) >= after
        });
        let numbers: Vec<_> = hangs.map(|(number, _)| *number).collect();
        for number in numbers {
            let free = OVERTAKEN_MAX.saturating_sub(overtaken.held());
            let supply = Supply { free, capacity: OVERTAKEN_MAX };
            let Some(question) = prompt.get(&number) else { continue };
            let claimant = claimant(&question.applicant);
            if has_share(overtaken, &claimant, supply) {
                hanging.insert(number, overtaken.keep(&claimant));
                if let Some(question) = prompt.remove(&number) {
                    open.release(question.share);
                }
            }
        }
    }

    /// Takes a waiting question within the window and the shares of its client.
    fn choose_by_share<T>(&mut self, pop: &mut impl FnMut(MayOpen<'_>) -> Option<T>) -> Option<T> {
        let Self { open, window, prompt, .. } = self;
        let free = window.size().saturating_sub(prompt.len());
        let [free, capacity] =
            [free, window.whole_size()].map(|slots| u32::try_from(slots).unwrap_or(u32::MAX));
        // Shares of the window, which is smaller than the table for a slow service.
        let supply = Supply { free: free.min(OPEN_MAX.saturating_sub(open.held())), capacity };
        if supply.free == 0 {
            return None;
        }
        let mut is_held_back = false;
        // The first questions may be of accounts whose others are open.
        let next = pop(&mut |applicant| {
            let claimant = claimant(applicant);
            is_held_back |= !networks_have_share(open, &claimant, supply);
            has_share(open, &claimant, supply)
        });
        if is_held_back {
            // All clients may have one address, or be in one network.
            window.use_in_full();
        }
        next
    }

    /// Takes a waiting question beyond the shares, if all questions in flight hang. The service may
    /// hang for their clients only, and nothing is known until another client's question is
    /// answered. After [`PROBES_MIN`] probes without a response, the interval doubles: a service
    /// that hangs for all gets few.
    fn choose_probe<T>(
        &mut self,
        now: Instant,
        pop: &mut impl FnMut(MayOpen<'_>) -> Option<T>,
    ) -> Option<T> {
        let Self { open, overtaken, window, prompt, probes, .. } = self;
        if open.held() >= OPEN_MAX {
            return None;
        }
        let newest = prompt.last_key_value().map(|(_, question)| question.opened);
        let factor = 1_u32.checked_shl(probes.saturating_sub(PROBES_MIN)).unwrap_or(u32::MAX);
        let every = window.hangs_after().saturating_mul(factor).min(PROBE_EVERY_MAX);
        if newest.is_some_and(|newest| now.saturating_duration_since(newest) < every) {
            return None;
        }
        let next = pop(&mut |applicant| {
            let claimant = claimant(applicant);
            open.held_by(&claimant) + overtaken.held_by(&claimant) == 0
        });
        // All clients may have one address.
        let next = match next {
            None if newest.is_none() => pop(&mut |applicant| {
                let claimant = claimant(applicant);
                open.held_by_account(&claimant) + overtaken.held_by_account(&claimant) == 0
            }),
            next => next,
        }?;
        *probes = probes.saturating_add(u32::from(newest.is_some()));
        Some(next)
    }

    /// Opens a question.
    pub(super) fn open(&mut self, applicant: &Applicant, now: Instant) -> QuestionNumber {
        let number = self.window.send();
        let share = self.open.keep(&claimant(applicant));
        let applicant = applicant.clone();
        self.prompt.insert(number, PromptQuestion { applicant, opened: now, share });
        number
    }

    /// Releases the slot of an answered question that was opened `time` ago.
    pub(super) fn close(&mut self, number: QuestionNumber, time: Duration) {
        let in_flight = self.in_flight_with(number);
        self.release(number);
        // A response to an overtaken question counts: it shows if the service is slow for most.
        self.window.note(number, time, in_flight);
        self.probes = 0;
        let Self { open, window, late, .. } = self;
        while let Some(lost) = late.pop_front_if(|late| window.is_lost(late.number)) {
            open.release(lost.share);
            window.end_late();
        }
    }

    /// Releases the slot of a question that failed.
    pub(super) fn fail(&mut self, number: QuestionNumber) {
        let in_flight = self.in_flight_with(number);
        self.release(number);
        self.window.fail(in_flight);
    }

    /// Notes a missed deadline. A late question keeps its slot until
    /// [`close_late`](Self::close_late), or until it is lost. The returned receiver then fails.
    pub(super) fn miss(&mut self, number: QuestionNumber) -> oneshot::Receiver<()> {
        let (_wait, lost) = oneshot::channel();
        let is_late = self.window.miss(number, self.in_flight_with(number));
        match self.prompt.remove(&number) {
            Some(PromptQuestion { share, .. }) if is_late => {
                self.late.push_back(LateQuestion { number, share, _wait });
            }
            Some(PromptQuestion { share, .. }) => self.open.release(share),
            None => self.release(number),
        }
        lost
    }

    /// Releases the slot of a late question, unless it was released before.
    pub(super) fn close_late(&mut self, number: QuestionNumber) {
        let position = self.late.iter().position(|late| late.number == number);
        if let Some(late) = position.and_then(|position| self.late.remove(position)) {
            self.open.release(late.share);
            self.window.end_late();
        }
    }

    /// Number of questions in the window, including this question even if overtaken.
    fn in_flight_with(&self, number: QuestionNumber) -> usize {
        self.prompt.len() + usize::from(self.hanging.contains_key(&number))
    }

    fn release(&mut self, number: QuestionNumber) {
        if let Some(question) = self.prompt.remove(&number) {
            self.open.release(question.share);
        }
        if let Some(share) = self.hanging.remove(&number) {
            self.overtaken.release(share);
        }
    }
}

/// Checks the shares of a client in a table, or in the part of it that is in use.
fn has_share(slots: &Slots, claimant: &Claimant<'_>, supply: Supply) -> bool {
    let of_account = (supply.capacity / ACCOUNT_SHARE).max(1);
    networks_have_share(slots, claimant, supply) && slots.held_by_account(claimant) < of_account
}

/// The same without the part of one account, which may be small while most of the table is free.
fn networks_have_share(slots: &Slots, claimant: &Claimant<'_>, supply: Supply) -> bool {
    slots.held_by(claimant) < supply.capacity.div_ceil(ADDRESS_SHARE)
        && slots.check_supply(claimant, 1, supply).is_ok()
}

#[cfg(test)]
impl InFlight {
    /// Questions in flight to a service that has answered many promptly.
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

    /// Number of questions that the service has.
    pub(super) const fn held(&self) -> u32 {
        self.open.held() + self.overtaken.held()
    }
}
