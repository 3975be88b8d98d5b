//! Delivery of records to a web service: a thread that puts them into the spool, and one that posts
//! what is in it.

use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use outgoing_http::{Bounds, Client, HttpError, Url};

use crate::lasting_state::StateLog;
use crate::limits::{ANSWER_BYTES_MAX, END_WITHIN, PAUSE_MAX, PAUSE_MIN, RETRY_EVERY, SYNC_EVERY};
use crate::losses::Losses;
use crate::outputs::Lines;
use crate::spool::{Batch, Spool};

/// The web service.
#[derive(Debug)]
pub struct Webhook {
    /// Takes the requests.
    pub client: Client,
    /// URL of the service.
    pub url: Url,
    /// Value of the Authorization header.
    pub authorization: Option<String>,
    /// Records in a request at the most.
    pub batch: usize,
    /// Longest time for a request: [`REQUEST_WITHIN`](crate::REQUEST_WITHIN) outside of tests.
    pub deadline: Duration,
}

/// The running threads. They end when all senders are gone; what is not delivered then stays in the
/// spool.
#[derive(Debug)]
pub struct Delivery {
    spooler: JoinHandle<()>,
    poster: JoinHandle<()>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    losses: Losses,
}

#[derive(Debug)]
struct State {
    spool: Spool,
    /// All senders are gone: what is in the spool is all there will be.
    complete: bool,
    /// The server ends.
    ends: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something changes, or for some time.
    fn wait(&self, time: Duration) {
        let state = self.lock();
        if !state.complete {
            drop(self.changed.wait_timeout(state, time));
        }
    }
}

impl Delivery {
    /// Starts the threads.
    ///
    /// # Errors
    /// There is no thread left.
    pub fn start(webhook: Webhook, spool: Spool, lines: Lines, losses: Losses) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let state = Mutex::new(State { spool, complete: false, ends: false });
        let shared = Arc::new(Shared { state, changed: Condvar::new(), losses });
        let (of_spooler, of_poster) = (Arc::clone(&shared), Arc::clone(&shared));
        let spooler = thread::Builder::new()
            .name("webhook-spool".to_owned())
            .spawn(move || spool_all(&of_spooler, &lines))?;
        let poster = Poster {
            webhook,
            runtime,
            shared: of_poster,
            failures: StateLog::default(),
            refusals: StateLog::default(),
            singly: 0,
        };
        let poster =
            thread::Builder::new().name("webhook".to_owned()).spawn(move || poster.run())?;
        Ok(Self { spooler, poster, shared })
    }

    /// Waits for the end, after that of all senders; a service that takes nothing is waited for
    /// some seconds at the most.
    pub fn join(self) {
        self.shared.lock().ends = true;
        self.shared.changed.notify_all();
        // A panic of a thread has been told of by itself.
        drop(self.spooler.join());
        drop(self.poster.join());
    }
}

fn spool_all(shared: &Shared, lines: &Lines) {
    let mut failures = StateLog::default();
    let mut overflow = StateLog::default();
    let mut unsynced = false;
    loop {
        match lines.recv_timeout(SYNC_EVERY) {
            Ok(line) => {
                let dropped = spool_one(shared, &line, &mut failures);
                lines.done();
                if dropped > 0 {
                    (shared.losses.lost)(dropped);
                    overflow.failed(
                        "records of sessions are lost",
                        &"the web service does not take them, and the spool is full",
                    );
                }
                unsynced = true;
                shared.changed.notify_all();
            }
            Err(RecvTimeoutError::Timeout) if unsynced => {
                unsynced = false;
                if let Err(error) = shared.lock().spool.sync() {
                    failures.failed("the spool of records cannot be written", &error);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let mut state = shared.lock();
    state.complete = true;
    drop(state.spool.sync());
    drop(state);
    shared.changed.notify_all();
}

/// Puts a record into the spool, again and again if need be: the queue behind it fills, and workers
/// count what no longer fits. Returns the number of lost records: older ones, and this one at the
/// end of a server whose disk takes nothing.
fn spool_one(shared: &Shared, line: &str, failures: &mut StateLog) -> u64 {
    let mut dropped = 0;
    loop {
        let mut state = shared.lock();
        let ends = state.ends;
        let appended = state.spool.append(line);
        let failure = state.spool.take_failure();
        dropped += state.spool.take_dropped();
        drop(state);
        match (appended, failure) {
            (Ok(()), Some(error)) => {
                failures.failed("a full file of the spool cannot be closed: it grows", &error);
                return dropped;
            }
            (Ok(()), None) => {
                failures.works("the spool of records is written again");
                return dropped;
            }
            (Err(error), _) => failures.failed("the spool of records cannot be written", &error),
        }
        if ends {
            return dropped + 1;
        }
        thread::sleep(RETRY_EVERY);
    }
}

struct Poster {
    webhook: Webhook,
    runtime: tokio::runtime::Runtime,
    shared: Arc<Shared>,
    failures: StateLog,
    refusals: StateLog,
    /// Records of a refused batch that are yet to be posted one by one.
    singly: usize,
}

/// Fate of a batch.
enum Posted {
    Accepted,
    /// The service does not accept these records: a status that is about their content.
    Refused(u16),
}

impl Poster {
    fn run(mut self) {
        let mut pause = PAUSE_MIN;
        let mut until = None;
        loop {
            let mut state = self.shared.lock();
            let complete = state.complete;
            if complete
                && *until.get_or_insert_with(|| Instant::now() + END_WITHIN) < Instant::now()
            {
                break;
            }
            let most = if self.singly > 0 { 1 } else { self.webhook.batch };
            let batch = state.spool.batch(most);
            drop(state);
            let delivered = match batch {
                Ok(None) if complete => break,
                Ok(None) => {
                    self.shared.wait(SYNC_EVERY);
                    continue;
                }
                Ok(Some(batch)) => self.deliver(&batch, complete),
                Err(error) => Err(error.to_string()),
            };
            match delivered {
                Ok(()) => {
                    pause = PAUSE_MIN;
                    self.failures
                        .works("records of sessions are delivered to the web service again");
                }
                Err(error) => {
                    self.failures.failed("records of sessions are not delivered: they stay in the spool, up to its bound, and are posted again", &error);
                    if complete {
                        break;
                    }
                    self.pause(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Waits before the next attempt; the end of the server makes it the last one.
    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if self.shared.lock().complete {
                break;
            }
            self.shared.wait(left);
        }
    }

    /// Posts a batch. Records of a refused batch are posted one by one, and a refused record is set
    /// aside: it must not delay later records.
    fn deliver(&mut self, batch: &Batch, ends: bool) -> Result<(), String> {
        let posted = self.post(batch, ends)?;
        let records = batch.records.len();
        let mut state = self.shared.lock();
        let kept = match posted {
            Posted::Refused(_) if records > 1 => {
                self.singly = records;
                return Ok(());
            }
            Posted::Accepted => state.spool.accept(batch),
            Posted::Refused(_) => state.spool.set_aside(batch),
        };
        let dropped = state.spool.take_dropped();
        drop(state);
        if dropped > 0 {
            (self.shared.losses.lost)(dropped);
        }
        kept.map_err(|error| error.to_string())?;
        self.singly = self.singly.saturating_sub(records);
        if let Posted::Refused(status) = posted {
            (self.shared.losses.refused)(records as u64);
            let what = "the web service refuses a record of a session: it is in refused.jsonl in the spool's directory";
            self.refusals.failed(what, &HttpError::Status(status));
        }
        Ok(())
    }

    /// Posts records.
    ///
    /// # Errors
    /// The service cannot be reached, or its answer is not about these records.
    fn post(&self, batch: &Batch, ends: bool) -> Result<Posted, String> {
        let Webhook { client, url, authorization, deadline, .. } = &self.webhook;
        let authorization = authorization.as_deref().map(|value| ("authorization", value));
        let headers: Vec<_> = authorization.into_iter().collect();
        let deadline = if ends { END_WITHIN } else { *deadline };
        let bounds = Bounds { deadline, body: ANSWER_BYTES_MAX };
        let answer = client.post_json(url, &headers, batch.body(), bounds);
        let answer = self.runtime.block_on(answer).map_err(|error| error.to_string())?;
        match answer.status {
            _ if answer.is_success() => Ok(Posted::Accepted),
            status if is_about_records(status) => Ok(Posted::Refused(status)),
            status => Err(HttpError::Status(status).to_string()),
        }
    }
}

/// Returns true for a refusal of these records. Other refusals concern every request: credentials
/// (401, 403, 407), the URL (404, 405, 410, 421, 426), the rate (408, 425, 429).
const fn is_about_records(status: u16) -> bool {
    matches!(status, 400..=499)
        && !matches!(status, 401 | 403 | 404 | 405 | 407 | 408 | 410 | 421 | 425 | 426 | 429)
}
