//! Answers the workers' questions: one thread that owns the store, so that the same question is never
//! put to it twice at a time, and a cache that askers may look into first, without a thread in between.
//!
//! A change made by another process (`turnpike user add`) is seen by the first question that comes
//! half a second or more after the last look for changes ([`DirectoryOptions::changes_after`]). The
//! allocations of a user who is deleted end at their next refresh; `turnpike session end ID` ends them
//! sooner.

use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cache::{Cache, Question};
use crate::error::StoreError;
use crate::limits::QUEUE_MAX;
use crate::store::{UserQuery, UserRecord, UserStore};

/// What the store says.
#[derive(Debug)]
pub enum Answer {
    /// There is such a user.
    Known(UserRecord),
    /// There is none.
    Unknown,
    /// The store could not say.
    Unavailable(StoreError),
}

/// How long answers are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryOptions {
    /// How long after the last look for changes the store is asked again whether there are any.
    pub changes_after: Duration,
    /// How long a user is believed in without asking again: for stores that cannot tell of changes.
    pub known_for: Duration,
    /// How long a name is believed to be nobody's.
    pub unknown_for: Duration,
    /// How long a question waits for an answer. One that has waited longer is dropped unanswered, without asking
    /// the store: after a stall the thread goes on with the questions that somebody still waits for.
    pub answer_within: Duration,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        Self {
            changes_after: Duration::from_millis(500),
            known_for: Duration::from_secs(60),
            unknown_for: Duration::from_secs(10),
            answer_within: Duration::from_secs(3),
        }
    }
}

/// Users, found in the background. `T` is the asker's own note, handed back with the answer.
pub struct Directory<T> {
    /// Dropped to end the thread.
    queue: Option<SyncSender<Job<T>>>,
    thread: Option<JoinHandle<()>>,
    answers: Arc<Answers>,
}

/// What the store said, shared by the thread and the askers.
struct Answers {
    kept: Mutex<Kept>,
    changes_after: Duration,
}

struct Kept {
    cache: Cache,
    /// When the store was last asked for changes.
    looked: Option<Instant>,
}

impl Answers {
    /// Nobody panics in there, and what is kept would still be whole if somebody did.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Whether the store has to be asked for changes before anything kept is believed.
    fn is_stale(&self, now: Instant, changes_after: Duration) -> bool {
        self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= changes_after)
    }
}

struct Job<T> {
    ticket: T,
    question: Question,
    /// When it was asked.
    asked: Instant,
}

impl<T: Send + 'static> Directory<T> {
    /// Starts the thread, which owns `store` and hands each answer to `deliver`. That must not wait
    /// for anything: every question behind it would wait too.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(
        store: Box<dyn UserStore>,
        options: DirectoryOptions,
        deliver: impl Fn(T, Answer) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (queue, jobs) = sync_channel(QUEUE_MAX);
        let cache = Cache::new(options.known_for, options.unknown_for);
        let answers = Arc::new(Answers {
            kept: Mutex::new(Kept { cache, looked: None }),
            changes_after: options.changes_after,
        });
        let clerk = Clerk {
            store,
            answers: Arc::clone(&answers),
            revision: None,
            answer_within: options.answer_within,
        };
        let thread = std::thread::Builder::new()
            .name("users".to_owned())
            .spawn(move || clerk.work(&jobs, &deliver))?;
        Ok(Self { queue: Some(queue), thread: Some(thread), answers })
    }

    /// The answer, if it is known without asking the store for anything: `Some(None)` when there is
    /// no such user. `None` otherwise, then [`find`](Self::find) it. Never waits: while the thread is
    /// writing down another answer, nothing is known.
    #[must_use]
    pub fn known(&self, realm: &Arc<str>, user: &UserQuery) -> Option<Option<UserRecord>> {
        let now = Instant::now();
        let mut kept = self.answers.kept.try_lock().ok()?;
        if kept.is_stale(now, self.answers.changes_after) {
            return None;
        }
        let question = Question { realm: Arc::clone(realm), user: user.clone() };
        kept.cache.find(now, &question)
    }

    /// Asks for a user; the answer is delivered with `ticket`. Never waits: false when so many
    /// questions are waiting that this one was not taken.
    pub fn find(&self, ticket: T, realm: Arc<str>, user: UserQuery) -> bool {
        let job = Job { ticket, question: Question { realm, user }, asked: Instant::now() };
        self.queue.as_ref().is_some_and(|queue| queue.try_send(job).is_ok())
    }
}

impl<T> Drop for Directory<T> {
    /// Answers what was asked, and ends the thread.
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl<T> fmt::Debug for Directory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").finish_non_exhaustive()
    }
}

/// What the thread works with.
struct Clerk {
    store: Box<dyn UserStore>,
    answers: Arc<Answers>,
    /// What the store said when it was last asked for changes.
    revision: Option<u64>,
    answer_within: Duration,
}

impl Clerk {
    fn work<T>(mut self, jobs: &Receiver<Job<T>>, deliver: &impl Fn(T, Answer)) {
        for job in jobs {
            let now = Instant::now();
            if now.saturating_duration_since(job.asked) > self.answer_within {
                continue;
            }
            let answer = match self.find(now, job.question) {
                Ok(Some(user)) => Answer::Known(user),
                Ok(None) => Answer::Unknown,
                Err(error) => Answer::Unavailable(error),
            };
            deliver(job.ticket, answer);
        }
    }

    fn find(&mut self, now: Instant, question: Question) -> Result<Option<UserRecord>, StoreError> {
        self.look_for_changes(now)?;
        if let Some(answer) = self.answers.lock().cache.find(now, &question) {
            return Ok(answer);
        }
        // Not while it is locked: the store may take its time.
        let answer = self.store.find(&question.realm, &question.user)?;
        self.answers.lock().cache.keep(now, question, answer.as_ref());
        Ok(answer)
    }

    fn look_for_changes(&mut self, now: Instant) -> Result<(), StoreError> {
        if !self.answers.lock().is_stale(now, self.answers.changes_after) {
            return Ok(());
        }
        let revision = Some(self.store.revision()?);
        let mut kept = self.answers.lock();
        if revision != self.revision {
            kept.cache.clear();
            self.revision = revision;
        }
        kept.looked = Some(now);
        Ok(())
    }
}
