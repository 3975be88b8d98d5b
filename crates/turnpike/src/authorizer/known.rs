//! A client about which the service has answered promptly. While questions of others are open, the
//! question about the client is repeated, to learn if the service is silent for all, or hangs for
//! some clients.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use turn_proto::Applicant;

/// Shortest interval between two of these questions.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct KnownClient(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    applicant: Option<Applicant>,
    /// True if the last question about the client had no answer: the next client with a prompt
    /// answer takes its place.
    is_doubtful: bool,
    /// True while a question about the client waits or is open.
    is_asked: bool,
    /// Time of the last question about the client.
    asked: Option<Instant>,
}

impl KnownClient {
    /// Notes a client with a prompt answer. An earlier one remains while the service answers about
    /// it: no client takes the place by a later question.
    pub(super) fn note(&self, applicant: &Applicant) {
        let mut state = self.lock();
        if state.is_doubtful || state.applicant.is_none() {
            state.applicant = Some(applicant.clone());
            state.is_doubtful = false;
        }
    }

    /// The client to ask about, with the time to wait before. `None`: no client is known, or a
    /// question is open.
    pub(super) fn take(&self, now: Instant, every: Duration) -> Option<(Applicant, Duration)> {
        let mut state = self.lock();
        let applicant = state.applicant.clone().filter(|_| !state.is_asked)?;
        let since = state.asked.map(|asked| now.saturating_duration_since(asked));
        let pause = since.map_or(Duration::ZERO, |since| every.min(EVERY).saturating_sub(since));
        state.is_asked = true;
        state.asked = Some(now + pause);
        Some((applicant, pause))
    }

    /// Notes the end of a question; `is_answered` is `None` if it was not sent.
    pub(super) fn end(&self, is_answered: Option<bool>) {
        let mut state = self.lock();
        state.is_asked = false;
        if let Some(is_answered) = is_answered {
            state.is_doubtful = !is_answered;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use turn_types::{ClientAddr, Transport};

    use super::*;

    fn client(user: &str) -> Applicant {
        Applicant {
            realm: "r".into(),
            user: user.into(),
            account: user.into(),
            transport: Transport::Udp,
            client: ClientAddr(([192, 0, 2, 1], 1).into()),
        }
    }

    #[test]
    fn one_client_is_asked_about_once_a_second_and_until_there_is_no_answer() {
        let (known, now) = (KnownClient::default(), Instant::now());
        assert!(known.take(now, EVERY).is_none());
        known.note(&client("alice"));
        known.note(&client("mallory"));
        assert_eq!(known.take(now, EVERY), Some((client("alice"), Duration::ZERO)));
        assert!(known.take(now, EVERY).is_none(), "one is open");
        known.end(Some(true));
        known.note(&client("mallory"));
        assert_eq!(known.take(now, EVERY), Some((client("alice"), EVERY)));
        known.end(Some(false));
        let later = now + EVERY * 3;
        assert_eq!(known.take(later, EVERY), Some((client("alice"), Duration::ZERO)));
        known.end(None);
        known.note(&client("bob"));
        assert_eq!(known.take(later, EVERY).unwrap().0, client("bob"));
    }
}
