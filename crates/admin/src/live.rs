//! The overview, made once a second for all that watch, and not at all while nobody does.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::limits::{EVENTS_QUEUED, ROUTE_DEADLINE, SNAPSHOT_EVERY, VIEWERS_MAX, VIEWING};
use crate::monitored::Monitored;
use crate::overview::History;
use crate::types::Overview;

/// An overview, and its event.
#[derive(Clone, Debug)]
struct Snapshot {
    overview: Arc<Overview>,
    event: Bytes,
}

/// The latest overview and its viewers.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    latest: watch::Sender<Option<Snapshot>>,
    is_running: Arc<Mutex<bool>>,
    viewers: Arc<Semaphore>,
}

impl Default for Live {
    fn default() -> Self {
        let viewers = Arc::new(Semaphore::new(VIEWERS_MAX));
        Self { latest: watch::Sender::new(None), is_running: Arc::default(), viewers }
    }
}

impl Live {
    /// The next overview; `None` when there is none in time.
    pub(crate) async fn next(&self, monitored: &Monitored) -> Option<Arc<Overview>> {
        let mut latest = self.subscribe(monitored);
        latest.mark_unchanged();
        timeout(ROUTE_DEADLINE, latest.changed()).await.ok()?.ok()?;
        let snapshot = latest.borrow().clone();
        snapshot.map(|snapshot| snapshot.overview)
    }

    /// A stream of overviews; `None` if there are as many as there may be.
    pub(crate) fn watch(&self, monitored: &Monitored) -> Option<Events> {
        let place = Arc::clone(&self.viewers).try_acquire_owned().ok()?;
        let (events, queue) = mpsc::channel(EVENTS_QUEUED);
        let latest = self.subscribe(monitored);
        tokio::spawn(async move {
            // The next stream shows that the token is still valid.
            let _ = timeout(VIEWING, pass_on(latest, events)).await;
        });
        Some(Events { queue, _place: place })
    }

    /// Subscribes, and starts the task that makes overviews unless it runs.
    fn subscribe(&self, monitored: &Monitored) -> watch::Receiver<Option<Snapshot>> {
        let receiver = self.latest.subscribe();
        let mut is_running = self.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_running {
            *is_running = true;
            tokio::spawn(self.clone().run(monitored.clone()));
        }
        receiver
    }

    async fn run(self, monitored: Monitored) {
        let mut history = History::new(&monitored);
        let mut every = interval(SNAPSHOT_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        every.tick().await;
        loop {
            every.tick().await;
            {
                let mut is_running = self.is_running.lock().unwrap_or_else(PoisonError::into_inner);
                if self.latest.receiver_count() == 0 {
                    *is_running = false;
                    // Of a time when nobody watched: the next viewer waits for a new one.
                    self.latest.send_replace(None);
                    return;
                }
            }
            let overview = history.overview(&monitored);
            let json = serde_json::to_string(&overview).unwrap_or_default();
            let event = format!("retry: 500\nevent: overview\ndata: {json}\n\n").into();
            self.latest.send_replace(Some(Snapshot { overview: Arc::new(overview), event }));
        }
    }
}

async fn pass_on(mut latest: watch::Receiver<Option<Snapshot>>, events: mpsc::Sender<Bytes>) {
    loop {
        let snapshot = latest.borrow_and_update().clone();
        if let Some(snapshot) = snapshot {
            // A viewer that does not read misses some.
            match events.try_send(snapshot.event) {
                Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => {}
                Err(mpsc::error::TrySendError::Closed(_)) => return,
            }
        }
        tokio::select! {
            changed = latest.changed() => if changed.is_err() { return },
            () = events.closed() => return,
            () = sleep(VIEWING) => return,
        }
    }
}

/// Server-sent events as the body of an answer.
#[derive(Debug)]
pub(crate) struct Events {
    queue: mpsc::Receiver<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.queue.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}
