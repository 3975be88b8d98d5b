//! The thread that writes records.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::journal::Journal;
use crate::limits::{END_WITHIN, RETRY_EVERY, SYNC_EVERY, TELL_EVERY};
use crate::losses::Losses;
use crate::outputs::Lines;

const CANNOT: &str =
    "records of sessions cannot be written; they are kept in memory, up to a bound";

const GROWS: &str = "a full file of records cannot be put aside: it grows, and nothing is lost; see that the \
                     server may create and rename files in its directory";

/// The running thread. It ends when all senders are gone and what they sent is written.
#[derive(Debug)]
pub struct Writer {
    thread: JoinHandle<()>,
    ends: Arc<AtomicBool>,
}

impl Writer {
    /// Waits for the end, after that of all senders; a disk that takes nothing is waited for some
    /// seconds at the most.
    pub fn join(self) {
        self.ends.store(true, Ordering::Relaxed);
        // A panic of the thread has been told of by itself.
        drop(self.thread.join());
    }
}

/// Starts the thread.
///
/// # Errors
/// There is no thread left.
pub fn start(journal: Journal, lines: Lines, losses: Losses) -> io::Result<Writer> {
    let ends = Arc::new(AtomicBool::new(false));
    let work = Work { journal, losses, told: None, unsynced_since: None, ends: Arc::clone(&ends) };
    let thread = thread::Builder::new().name("accounting".to_owned());
    Ok(Writer { thread: thread.spawn(move || work.run(&lines))?, ends })
}

struct Work {
    journal: Journal,
    losses: Losses,
    /// Time of the last line about an error.
    told: Option<Instant>,
    unsynced_since: Option<Instant>,
    /// The server ends.
    ends: Arc<AtomicBool>,
}

impl Work {
    fn run(mut self, lines: &Lines) {
        loop {
            match lines.recv_timeout(SYNC_EVERY) {
                Ok(line) => {
                    if !self.write(&line) {
                        // This record, and those that wait after it.
                        (self.losses.lost)(1 + lines.count());
                        break;
                    }
                    lines.done();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.unsynced_since.is_some_and(|since| since.elapsed() >= SYNC_EVERY) {
                self.sync();
            }
        }
        self.sync();
    }

    /// Writes a line, again and again if need be: the queue behind it fills, and workers count what
    /// no longer fits. False at the end of a server whose disk takes nothing.
    fn write(&mut self, line: &str) -> bool {
        let mut ends_at = None;
        loop {
            match self.journal.append(line) {
                Ok(()) => break,
                Err(error) => self.tell(CANNOT, &error),
            }
            if self.ends.load(Ordering::Relaxed) {
                let until = *ends_at.get_or_insert_with(|| Instant::now() + END_WITHIN);
                if Instant::now() >= until {
                    tracing::error!(
                        "records of sessions are lost: the disk takes nothing, and the server ends"
                    );
                    return false;
                }
            }
            thread::sleep(RETRY_EVERY);
        }
        match self.journal.take_failure() {
            Some(error) => self.tell(GROWS, &error),
            // A full file grows until the next attempt.
            None if self.journal.is_overfull() => {}
            None if self.told.take().is_some() => {
                tracing::info!("records of sessions are written again");
            }
            None => {}
        }
        self.unsynced_since.get_or_insert_with(Instant::now);
        true
    }

    fn sync(&mut self) {
        self.unsynced_since = None;
        if let Err(error) = self.journal.sync() {
            self.tell(CANNOT, &error);
        }
    }

    fn tell(&mut self, what: &str, error: &io::Error) {
        if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            self.told = Some(Instant::now());
            tracing::error!(%error, "{what}");
        }
    }
}
