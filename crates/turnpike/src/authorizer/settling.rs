//! Questions about clients that `authorizer.when_silent` has served without an answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use turn_proto::Authorization;

use super::owed::OwedAnswer;
use super::{Asking, LATE_FOR, PROMPTLY};

/// Interval of questions about clients that were served without an answer.
const OWED_EVERY: Duration = Duration::from_secs(1);

/// Number of these questions that are sent together, besides those of waiting clients.
const OWED_OPEN_MAX: usize = 8;

impl Asking {
    /// Starts a task for questions about the clients that were served without an answer, unless it
    /// runs.
    pub(super) fn start_settling(self: &Arc<Self>) {
        let asking = Arc::clone(self);
        tokio::spawn(async move { asking.settle_owed().await });
    }

    /// A service that answers nothing gets one question at a time.
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

    /// Sends a question about a client. Without a prompt answer it yields to other questions, and
    /// its connection waits for a late answer if few others do. Each wait is twice as long as the
    /// previous wait: the service may be slow for this client, or an outage lost the question.
    async fn ask_again(self: Arc<Self>, mut owed: OwedAnswer) {
        let late = self.owed.wait_late();
        let patience = match late {
            Some(_) => self.answer_within / PROMPTLY,
            None => self.answer_within,
        };
        let (asking, applicant) = (Arc::clone(&self), owed.applicant.clone());
        let mut response = Box::pin(async move { asking.ask(&applicant).await });
        match (tokio::time::timeout(patience, &mut response).await, late) {
            (Ok(Ok(answer)), _) => self.settle(&owed, answer).await,
            (Ok(Err(_)), _) => {
                owed.lost = 0;
                self.put_back_owed(owed).await;
            }
            (Err(_), None) => self.put_back_owed(owed).await,
            (Err(_), Some(late)) => {
                let wait = self.answer_within.saturating_mul(1 << owed.lost.min(16)).min(LATE_FOR);
                owed.lost += 1;
                tokio::spawn(async move {
                    let answered = tokio::time::timeout(wait, response).await;
                    drop(late);
                    if let Ok(Ok(answer)) = answered {
                        self.outage.answered_late();
                        self.settle(&owed, answer).await;
                    } else {
                        self.put_back_owed(owed).await;
                        self.start_settling();
                    }
                });
            }
        }
    }

    /// Acts on an answer about a client, unless an earlier answer has settled it.
    async fn settle(&self, owed: &OwedAnswer, answer: Authorization) {
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
