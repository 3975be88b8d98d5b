//! Whether the server serves: each worker has turns of its loop, and each listener answers.

use std::pin::Pin;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use turn_types::WorkerId;

use crate::limits::{EXAMINATION_VALID, TURN_DEADLINE, TURN_LOOK};
use crate::monitored::Monitored;
use crate::problem::Problem;
use crate::types::{Health, ListenerHealth};

/// The answers of all listeners.
pub type Answers<'a> = Pin<Box<dyn Future<Output = Vec<ListenerHealth>> + Send + 'a>>;

/// Sends a request to each listener of the server.
pub trait ListenerTest: Send + Sync {
    /// Asks all listeners at the same time, within a deadline of its own of a few seconds.
    fn ask(&self) -> Answers<'_>;
}

/// The last examination of the server. Others that ask within a second are told the same, so that
/// the answers cost the server as much for one monitor as for many.
pub(crate) struct Examination {
    monitored: Monitored,
    listeners: Arc<dyn ListenerTest>,
    last: Arc<Mutex<Option<(Instant, Findings)>>>,
}

#[derive(Clone, Debug)]
struct Findings {
    listeners: Vec<ListenerHealth>,
    /// Workers without a turn in time.
    hanging: Vec<u64>,
}

impl Examination {
    pub(crate) fn new(monitored: Monitored, listeners: Arc<dyn ListenerTest>) -> Self {
        Self { monitored, listeners, last: Arc::default() }
    }

    /// The findings of the last second. `None` while the process ends.
    async fn findings(&self) -> Option<Findings> {
        // Held while it is examined: the next to ask waits, and is told the same.
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((at, findings)) = &*last
            && at.elapsed() < EXAMINATION_VALID
        {
            return Some(findings.clone());
        }
        let (monitored, listeners) = (self.monitored.clone(), Arc::clone(&self.listeners));
        // In a task of its own: for clients that leave meanwhile it is not begun again.
        let examined = tokio::spawn(async move {
            let (listeners, hanging) = tokio::join!(listeners.ask(), hanging(&monitored));
            let findings = Findings { listeners, hanging };
            *last = Some((Instant::now(), findings.clone()));
            findings
        });
        examined.await.ok()
    }
}

/// Workers that have no turn of their loop in time after they were woken.
async fn hanging(monitored: &Monitored) -> Vec<u64> {
    let workers = &monitored.handle.workers;
    let before: Vec<u64> = workers.turns().collect();
    (0..workers.count())
        .filter_map(|id| u16::try_from(id).ok())
        .for_each(|id| workers.wake(WorkerId(id)));
    let deadline = Instant::now() + TURN_DEADLINE;
    loop {
        let still = workers.turns().zip(&before).enumerate();
        let still: Vec<u64> =
            still.filter(|(_, (now, before))| now == *before).map(|(id, _)| id as u64).collect();
        if still.is_empty() || Instant::now() >= deadline {
            return still;
        }
        sleep(TURN_LOOK).await;
    }
}

async fn examine(examination: &Examination) -> Result<Health, Problem> {
    let Findings { listeners, hanging } =
        examination.findings().await.ok_or_else(Problem::stopping)?;
    let healthy = hanging.is_empty() && listeners.iter().all(|listener| listener.error.is_none());
    let draining = examination.monitored.handle.workers.is_draining();
    let missing_addresses = examination.monitored.handle.info().missing.clauses.clone();
    Ok(Health { healthy, draining, hanging_workers: hanging, missing_addresses, listeners })
}

fn answer(ok: bool, health: Health) -> (StatusCode, Json<Health>) {
    (if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, Json(health))
}

/// `GET /healthz`.
pub(crate) async fn healthy(
    State(examination): State<Arc<Examination>>,
) -> Result<(StatusCode, Json<Health>), Problem> {
    let health = examine(&examination).await?;
    Ok(answer(health.healthy, health))
}

/// `GET /readyz`.
pub(crate) async fn ready(
    State(examination): State<Arc<Examination>>,
) -> Result<(StatusCode, Json<Health>), Problem> {
    let health = examine(&examination).await?;
    let info = examination.monitored.handle.info();
    let stays = info.monitoring.ready_while_draining;
    let serves = !info.missing.are_all && !info.unread.are_all;
    Ok(answer(health.healthy && serves && (stays || !health.draining), health))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use control::{Handle, Workers};
    use tokio::time::timeout;

    use super::*;
    use crate::metrics;

    /// Listeners that answer late.
    #[derive(Default)]
    struct Late(AtomicU32);

    impl ListenerTest for Late {
        fn ask(&self) -> Answers<'_> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                sleep(Duration::from_millis(20)).await;
                Vec::new()
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_leave_begin_no_more_examinations() {
        let (handle, _requests) = Handle::new(Workers::new(Vec::new()), metrics::example_info());
        let clock = || turn_types::Instant::ZERO;
        let listeners = Arc::new(Late::default());
        let monitored = Monitored { handle, clock, offload: None };
        let examination = Examination::new(monitored, Arc::clone(&listeners) as _);
        for _ in 0..20 {
            drop(timeout(Duration::from_millis(3), examine(&examination)).await);
        }
        assert!(examine(&examination).await.is_ok_and(|health| health.healthy));
        assert_eq!(listeners.0.load(Ordering::Relaxed), 1);
    }
}
