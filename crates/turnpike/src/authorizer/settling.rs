//! Repeated questions about clients that `authorizer.when_silent` has served without an answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use turn_proto::Authorization;

use super::owed::OwedAnswer;
use super::{Asking, LATE_FOR, PROMPTLY, Response};

/// Interval of questions about clients that were served without an answer.
const OWED_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of these questions that are sent together, in addition to the questions of
/// waiting clients.
const OWED_OPEN_MAX: usize = 8;

/// Interval of searches for the sessions of an account whose question is late. The session of a
/// client that was served more recently may not exist yet.
const SEARCHED_EVERY: Duration = Duration::from_secs(10);

/// Outcome of a wait for a late answer.
enum Late {
    Answered(Authorization),
    /// No answer arrived.
    Lost,
    /// The client has no session.
    Ended,
}

impl Asking {
    /// Starts a task for questions about the clients that were served without an answer, unless
    /// the task is running.
    pub(super) fn start_settling(self: &Arc<Self>) {
        let asking = Arc::clone(self);
        tokio::spawn(async move { asking.settle_owed().await });
    }

    /// Repeats questions until the service has answered about each client. A silent service gets
    /// one question at a time.
    async fn settle_owed(self: &Arc<Self>) {
        while !self.owed.is_empty() && !self.is_settling.swap(true, Ordering::AcqRel) {
            let mut next = tokio::time::Instant::now() + OWED_EVERY;
            while !self.owed.is_empty() {
                tokio::time::sleep_until(next).await;
                next = tokio::time::Instant::now() + OWED_EVERY;
                let most = if self.is_silent() { 1 } else { OWED_OPEN_MAX };
                let mut open = JoinSet::new();
                for owed in (0..most).map_while(|_| self.owed.take()) {
                    open.spawn(Arc::clone(self).ask_again(owed));
                }
                open.join_all().await;
            }
            self.is_settling.store(false, Ordering::Release);
        }
    }

    /// Sends a question about a client. Without a prompt answer the task yields to other questions,
    /// and the connection waits for a late answer if few other connections do. Each wait is twice
    /// as long as the previous wait. The service may be slow for this client, or an outage may have
    /// lost the question.
    async fn ask_again(self: Arc<Self>, mut owed: OwedAnswer) {
        let late = self.owed.wait_late();
        let patience = match late {
            Some(_) => self.answer_within / PROMPTLY,
            None => self.answer_within,
        };
        let (asking, applicant) = (Arc::clone(&self), owed.applicant.clone());
        let mut response = Box::pin(async move { asking.ask(&applicant).await });
        match (tokio::time::timeout(patience, &mut response).await, late) {
            (Ok(Ok(answer)), _) => {
                self.owed.note(&owed.applicant, true);
                self.settle(&owed, answer).await;
            }
            (Ok(Err(_)), _) => {
                owed.lost = 0;
                self.put_back_owed(owed).await;
            }
            (Err(_), None) => {
                self.owed.note(&owed.applicant, false);
                self.put_back_owed(owed).await;
            }
            (Err(_), Some(late)) => {
                let wait = self.answer_within.saturating_mul(1 << owed.lost.min(16)).min(LATE_FOR);
                owed.lost += 1;
                self.owed.note(&owed.applicant, false);
                tokio::spawn(async move {
                    let ended = self.wait_late(&owed, response.as_mut(), wait).await;
                    drop((late, response));
                    match ended {
                        Late::Answered(answer) => {
                            self.outage.answered_late();
                            self.settle(&owed, answer).await;
                        }
                        Late::Lost => {
                            self.put_back_owed(owed).await;
                            self.start_settling();
                        }
                        Late::Ended => self.owed.end(&owed.applicant),
                    }
                });
            }
        }
    }

    /// Waits for a late answer while the client has sessions.
    async fn wait_late(
        &self,
        owed: &OwedAnswer,
        mut response: Pin<&mut impl Future<Output = Response>>,
        wait: Duration,
    ) -> Late {
        let end = tokio::time::Instant::now() + wait;
        while tokio::time::Instant::now() < end {
            let next = end.min(tokio::time::Instant::now() + SEARCHED_EVERY);
            match tokio::time::timeout_at(next, &mut response).await {
                Ok(Ok(answer)) => return Late::Answered(answer),
                Ok(Err(_)) => return Late::Lost,
                Err(_) if self.remove_ended(owed).await => return Late::Ended,
                Err(_) => {}
            }
        }
        Late::Lost
    }

    /// Removes the clients of an account whose sessions have ended, for example after a revocation.
    /// Returns true if the client `asked` was removed.
    async fn remove_ended(&self, asked: &OwedAnswer) -> bool {
        let Some(since) = Instant::now().checked_sub(SEARCHED_EVERY) else { return false };
        let Ok(sessions) = self.account_sessions(&asked.applicant).await else { return false };
        self.owed.remove_ended(asked, since, |owed| sessions.has(&owed.applicant, owed.opened))
    }

    /// Acts on an answer about a client, unless an earlier answer has settled the client.
    async fn settle(&self, owed: &OwedAnswer, answer: Authorization) {
        self.owed.end(&owed.applicant);
        let answer = self.judge(&owed.applicant, Ok(answer));
        if self.owed.settle(&owed.applicant) {
            self.act_late(&owed.applicant, owed.opened, &answer).await;
        }
    }

    async fn put_back_owed(&self, owed: OwedAnswer) {
        if let Some(dropped) = self.owed.put_back(owed, Instant::now()) {
            self.end_sessions(&dropped.applicant, dropped.opened).await;
        }
    }
}
