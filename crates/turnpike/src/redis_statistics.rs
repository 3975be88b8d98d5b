//! Statistics of sessions and their traffic in Redis, with the keys and channels of coturn's
//! `redis-statsdb`.
//!
//! A dedicated thread receives the events of workers from a bounded queue. While Redis is
//! unreachable, the thread retries its current batch. The queue fills, and further events are lost
//! and counted.
//!
//! Keys expire after the lifetime of their allocation. Even a killed server thus leaves no keys,
//! and no server deletes keys of another server.

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

/// Maximum number of events in one exchange.
const BATCH: usize = 256;

/// Maximum time for an exchange.
const WITHIN: Duration = Duration::from_secs(5);

/// Pauses after a failed exchange: the first pause, which doubles up to the maximum.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Interval at which a pause checks for a shutdown of the server.
const LOOK: Duration = Duration::from_millis(100);

/// Interval of log lines about an unreachable Redis.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Function that receives the number of lost reports.
pub(crate) type CountLost = Box<dyn Fn(u64) + Send + Sync>;

/// Handle of the running thread, which exits after all senders have been dropped.
#[derive(Debug)]
pub(crate) struct RedisStatistics {
    thread: JoinHandle<()>,
    ends: Arc<AtomicBool>,
}

impl RedisStatistics {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created.
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

    /// Waits until the thread exits. All senders must be dropped before. Events that an unreachable
    /// Redis does not accept are then dropped.
    pub(crate) fn join(self) {
        self.ends.store(true, Ordering::Relaxed);
        // A panic of the thread has already been reported.
        drop(self.thread.join());
    }
}

struct Sender {
    publisher: Publisher,
    runtime: Runtime,
    ends: Arc<AtomicBool>,
    /// Time of the last log line about an unreachable Redis.
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

    /// Sends a batch until Redis accepts it. Drops the batch if an exchange fails during the
    /// shutdown.
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
