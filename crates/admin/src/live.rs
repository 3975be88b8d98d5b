//! The overview, made once a second for all that watch. Without viewers the counters alone are
//! kept, less often.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use hyper::body::Frame;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::limits::{EVENTS_QUEUED, SAMPLE_EVERY, SNAPSHOT_EVERY, VIEWING};
use crate::monitored::Monitored;
use crate::overview::History;
use crate::types::{Overview, TrafficHistory};
use crate::viewers::{ViewerEntry, Viewers};

/// The latest overview and its viewers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Its event.
    latest: watch::Sender<Option<Bytes>>,
    /// Made when the first routes are served.
    history: OnceLock<Mutex<History>>,
    viewers: Viewers,
}

impl Default for Inner {
    fn default() -> Self {
        let viewers = Viewers::default();
        Self { latest: watch::Sender::new(None), history: OnceLock::new(), viewers }
    }
}

impl Live {
    /// Starts the task that keeps the counters of the last minute, unless it runs; within a
    /// runtime, with which it ends.
    pub(crate) fn start(&self, monitored: &Monitored) {
        if self.0.history.set(Mutex::new(History::new(monitored))).is_ok() {
            tokio::spawn(self.clone().run(monitored.clone()));
        }
    }

    /// The overview of now.
    pub(crate) fn now(&self, monitored: &Monitored) -> Overview {
        let history = self.0.history.get_or_init(|| Mutex::new(History::new(monitored)));
        history.lock().unwrap_or_else(PoisonError::into_inner).overview(monitored)
    }

    /// The last hour.
    pub(crate) fn hour(&self) -> TrafficHistory {
        let history = self.0.history.get();
        let history = history.map(|one| one.lock().unwrap_or_else(PoisonError::into_inner).hour());
        history.unwrap_or_default()
    }

    fn sample(&self, monitored: &Monitored) {
        if let Some(history) = self.0.history.get() {
            history.lock().unwrap_or_else(PoisonError::into_inner).sample(monitored);
        }
    }

    /// Adds a stream of overviews for the holder of a token. `None`: the table of viewers is full,
    /// and no holder has more streams than this one.
    pub(crate) fn watch(&self, holder: &str) -> Option<Events> {
        let (entry, ended) = self.0.viewers.add(holder)?;
        let (events, queue) = mpsc::channel(EVENTS_QUEUED);
        let latest = self.0.latest.subscribe();
        tokio::spawn(async move {
            // The next stream shows that the token is still valid.
            let passed_on = timeout(VIEWING, pass_on(latest, events));
            tokio::select! {
                _ = passed_on => {}
                _ = ended => {}
            }
        });
        Some(Events { queue, _entry: entry })
    }

    async fn run(self, monitored: Monitored) {
        let mut every = interval(SNAPSHOT_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sampled = Instant::now();
        loop {
            every.tick().await;
            if self.0.latest.receiver_count() == 0 {
                // The next viewer waits for a new one.
                self.0.latest.send_replace(None);
                if sampled.elapsed() >= SAMPLE_EVERY {
                    self.sample(&monitored);
                    sampled = Instant::now();
                }
                continue;
            }
            let overview = self.now(&monitored);
            let json = serde_json::to_string(&overview).unwrap_or_default();
            let event = format!("retry: 500\nevent: overview\ndata: {json}\n\n").into();
            self.0.latest.send_replace(Some(event));
        }
    }
}

async fn pass_on(mut latest: watch::Receiver<Option<Bytes>>, events: mpsc::Sender<Bytes>) {
    loop {
        let event = latest.borrow_and_update().clone();
        if let Some(event) = event {
            // A viewer that does not read misses some.
            match events.try_send(event) {
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
    _entry: ViewerEntry,
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
