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
    last: Mutex<Option<(Instant, Findings)>>,
}

#[derive(Clone, Debug)]
struct Findings {
    listeners: Vec<ListenerHealth>,
    /// Workers without a turn in time.
    hanging: Vec<u64>,
}

impl Examination {
    pub(crate) fn new(monitored: Monitored, listeners: Arc<dyn ListenerTest>) -> Self {
        Self { monitored, listeners, last: Mutex::new(None) }
    }

    async fn findings(&self) -> Findings {
        // Held while it is examined: the next to ask waits, and is told the same.
        let mut last = self.last.lock().await;
        if let Some((at, findings)) = &*last
            && at.elapsed() < EXAMINATION_VALID
        {
            return findings.clone();
        }
        let (listeners, hanging) = tokio::join!(self.listeners.ask(), hanging(&self.monitored));
        let findings = Findings { listeners, hanging };
        *last = Some((Instant::now(), findings.clone()));
        findings
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

async fn examine(examination: &Examination) -> Health {
    let Findings { listeners, hanging } = examination.findings().await;
    let healthy = hanging.is_empty() && listeners.iter().all(|listener| listener.error.is_none());
    let draining = examination.monitored.handle.workers.is_draining();
    let missing_addresses = examination.monitored.handle.info().missing.clauses.clone();
    Health { healthy, draining, hanging_workers: hanging, missing_addresses, listeners }
}

fn answer(ok: bool, health: Health) -> (StatusCode, Json<Health>) {
    (if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, Json(health))
}

/// `GET /healthz`.
pub(crate) async fn healthy(
    State(examination): State<Arc<Examination>>,
) -> (StatusCode, Json<Health>) {
    let health = examine(&examination).await;
    answer(health.healthy, health)
}

/// `GET /readyz`.
pub(crate) async fn ready(
    State(examination): State<Arc<Examination>>,
) -> (StatusCode, Json<Health>) {
    let health = examine(&examination).await;
    let info = examination.monitored.handle.info();
    let (stays, serves) = (info.monitoring.ready_while_draining, !info.missing.are_all);
    answer(health.healthy && serves && (stays || !health.draining), health)
}
