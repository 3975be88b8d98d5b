//! The life of sessions and their traffic in Redis, in the keys and channels of coturn's
//! `redis-statsdb`.
//!
//! A thread of its own takes the events of workers out of a bounded queue. While Redis is away it
//! waits with what it has, the queue fills, and what does not fit is lost and counted. Keys expire
//! behind the lifetime of their allocation, so that a server that is killed leaves none, and none
//! deletes those of another.

mod payload;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use control::SessionEvent;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use user_db::{Publication, Publisher};

use self::payload::Payloads;

/// Events that are sent in one exchange.
const BATCH: usize = 256;

/// Time for an exchange.
const WITHIN: Duration = Duration::from_secs(5);

/// Pause behind an exchange that failed; it doubles up to the other.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Interval of looks whether the server ends.
const LOOK: Duration = Duration::from_millis(100);

/// Interval of lines about a Redis that is away.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Counts reports that are lost.
pub(crate) type CountLost = Box<dyn Fn(u64) + Send + Sync>;

/// The running thread. It ends when all senders are gone.
#[derive(Debug)]
pub(crate) struct RedisStatistics {
    thread: JoinHandle<()>,
    ends: Arc<AtomicBool>,
}

impl RedisStatistics {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no thread left.
    pub(crate) fn start(
        publisher: Publisher,
        events: Receiver<SessionEvent>,
        count_lost: CountLost,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ends = Arc::new(AtomicBool::new(false));
        let sender = Sender { publisher, runtime, ends: Arc::clone(&ends), told: None, count_lost };
        let work = move || sender.run(&events);
        let thread = thread::Builder::new().name("redis-stats".to_owned()).spawn(work)?;
        Ok(Self { thread, ends })
    }

    /// Waits for the end, after that of all senders. What a Redis that is away does not take then
    /// is left out.
    pub(crate) fn join(self) {
        self.ends.store(true, Ordering::Relaxed);
        // A panic of the thread has been told of by itself.
        drop(self.thread.join());
    }
}

struct Sender {
    publisher: Publisher,
    runtime: Runtime,
    ends: Arc<AtomicBool>,
    /// Time of the last line about a Redis that is away.
    told: Option<Instant>,
    count_lost: CountLost,
}

impl Sender {
    fn run(mut self, events: &Receiver<SessionEvent>) {
        let mut payloads = Payloads::default();
        loop {
            let first = match events.recv_timeout(TELL_EVERY) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let more = events.try_iter().take(BATCH - 1);
            let batch: Vec<Publication> =
                std::iter::once(first).chain(more).flat_map(|event| payloads.of(&event)).collect();
            match payloads.take_left_out() {
                0 => {}
                reports => (self.count_lost)(reports),
            }
            self.send(&batch);
        }
    }

    /// Sends a batch, again and again until it is taken or the server ends.
    fn send(&mut self, batch: &[Publication]) {
        let mut pause = PAUSE_MIN;
        while !batch.is_empty() {
            let exchange = async { timeout(WITHIN, self.publisher.send(batch)).await };
            let error = match self.runtime.block_on(exchange) {
                Ok(Ok(())) => {
                    if self.told.take().is_some() {
                        tracing::info!("statistics of sessions reach Redis again");
                    }
                    return;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it did not answer in time".to_owned(),
            };
            if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                self.told = Some(Instant::now());
                tracing::warn!(error, "statistics of sessions do not reach Redis");
            }
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if self.ends.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(LOOK);
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
