//! Pause of questions while the service fails for many clients, because of a rate limit or an
//! outage.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fair_share::QuestionNumber;
use turn_proto::Applicant;
use turn_types::{Prefix, Realm};

use crate::authorizer::kept::network;

/// Pauses of a question after one failure of the service, and the maximum after several failures.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(25);
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Minimum number of accounts, and of networks, with a failure since the last decision for a pause.
/// The service may fail only for a few accounts, or for new accounts of one user.
pub(super) const FAILING_MIN: usize = 4;

/// Maximum number of recorded accounts and of networks with a failure. Beyond the maximum all
/// questions pause.
const FAILING_MAX: usize = 1024;

/// Pause after failures of the service. During the pause, the service is queried about clients
/// without a failure, with one question at a time. The service may fail only for the clients of one
/// attacker.
#[derive(Debug, Default)]
pub(super) struct Pause {
    until: Option<Instant>,
    /// Question that was opened in the pause.
    opened: Option<QuestionNumber>,
    /// Time of the last decision.
    decided: Option<Instant>,
    /// Number of failures since the last decision, and the affected accounts and networks, up to
    /// [`FAILING_MAX`].
    failures: u32,
    accounts: BTreeSet<(Realm, Arc<str>)>,
    networks: BTreeSet<Prefix>,
}

/// Returns the pause after a number of failures.
pub(super) fn pause_after(failures: u32) -> Duration {
    PAUSE_MAX.min(PAUSE_MIN * failures)
}

impl Pause {
    /// Records a failure. Starts the pause if the service fails for several accounts, and has made
    /// no recent decision. Returns the remaining pause.
    pub(super) fn note_failure(&mut self, applicant: &Applicant, now: Instant) -> Duration {
        self.failures += 1;
        if self.accounts.len() < FAILING_MAX {
            self.accounts.insert(account(applicant));
        }
        if self.networks.len() < FAILING_MAX {
            self.networks.insert(network(applicant));
        }
        let decides = self.decided.is_some_and(|at| now.saturating_duration_since(at) < PAUSE_MAX);
        let are_many = self.accounts.len().min(self.networks.len()) >= FAILING_MIN;
        if are_many && !decides {
            self.until = Some(now + pause_after(self.failures));
        }
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    pub(super) fn note_decision(&mut self, now: Instant) {
        *self = Self { decided: Some(now), ..Self::default() };
    }

    /// Records an opened question.
    pub(super) fn note_opened(&mut self, number: QuestionNumber, now: Instant) {
        if self.is_on(now) {
            self.opened = Some(number);
        }
    }

    /// Records that a question has been closed, or is late.
    pub(super) fn note_end(&mut self, number: QuestionNumber) {
        self.opened = self.opened.filter(|opened| *opened != number);
    }

    /// Returns true while no question about a client may be opened.
    pub(super) fn delays(&self, applicant: &Applicant, now: Instant) -> bool {
        self.is_on(now)
            && (self.opened.is_some()
                || self.accounts.len().max(self.networks.len()) >= FAILING_MAX
                || self.networks.contains(&network(applicant))
                || self.accounts.contains(&account(applicant)))
    }

    fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

fn account(applicant: &Applicant) -> (Realm, Arc<str>) {
    (applicant.realm.clone(), applicant.account.clone())
}
