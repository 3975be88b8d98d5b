//! Look-ups of users for the workers. Workers read a cache directly, without a context switch. For
//! other look-ups, a thread queries the store: many look-ups are in flight, each with a deadline,
//! and each key only once. If the store hangs, the answer is [`Answer::Unavailable`] at the
//! deadline. Workers never wait for the store.
//!
//! The number of look-ups in flight follows the response times of the store ([`Window`]), which
//! keeps the store's queue short. Further look-ups wait in two queues: look-ups for clients with an
//! allocation precede others. Each queue is sorted by the recent look-ups of clients and networks.
//! A flood of names from one network does not delay other networks. A look-up dropped for lack of
//! space or time gets [`Answer::Overloaded`].
//!
//! The directory checks for changes by other processes (`turnpike user add`) at most every half
//! second ([`DirectoryOptions::changes_after`]), triggered by a look-up. A change invalidates the
//! cache, and look-ups in flight are repeated. If the store does not report changes, answers are
//! valid for [`DirectoryOptions::unreported_for`]. The allocations of a deleted user expire at
//! their next refresh; `turnpike session end ID` closes them sooner.
//!
//! While the store fails, a user confirmed within [`DirectoryOptions::last_known_for`] is served
//! without a wait. One look-up at a time tests the store again: after a request for such a user,
//! and otherwise every [`DirectoryOptions::probe_every`]. An unusable row is not a store failure:
//! only that user is refused ([`Answer::Unusable`]). A store that answers other look-ups is not
//! failing either: a missed deadline then means overload.
//!
//! After an operator's order about a user, the directory forgets the user ([`Directory::forget`]).
//! No answer from before the order is delivered afterwards.

mod answers;
mod changes;
mod late;
mod outage;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fair_share::{CLIENTS, Claimant, FairQueue, QuestionNumber, Window, system_hasher};
use stun_wire::{UserName, userhash};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::answers::{Answers, KnownUsers};
use self::changes::{ChangeCount, Changes};
use self::late::LateLookups;
use self::outage::Outage;
use crate::cache::{Cache, Question, Times};
use crate::error::StoreError;
use crate::limits::{IN_FLIGHT_MAX, LOOKUP_DELAY, PROBE_EVERY, QUEUE_MAX, QUEUED_MAX};
use crate::store::{Lookup, UserQuery, UserReader, UserRecord};

/// Answer to a look-up.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The user exists.
    Known(UserRecord),
    /// The store failed. The user is as the store has last confirmed it.
    LastKnown(UserRecord),
    /// No such user exists.
    Unknown,
    /// The row of the user is unusable, and the user is refused. The store works. Until the store
    /// is queried again, the user is [`Unknown`](Self::Unknown).
    Unusable(Arc<StoreError>),
    /// The store failed, or missed the deadline.
    Unavailable(Arc<StoreError>),
    /// The store failed, and earlier keys of the user are not valid. The store has not confirmed
    /// the user since its last refusal or the last call of [`Directory::forget`].
    Unconfirmed(Arc<StoreError>),
    /// Too many look-ups wait, or the store answered only other look-ups in time.
    Overloaded,
}

/// Client of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupClient {
    /// Address of the client.
    pub address: IpAddr,
    /// True if the client has the keys of an allocation.
    pub has_allocation: bool,
}

/// Health of a store, as observed by look-ups.
#[derive(Clone, Debug)]
pub enum Health {
    /// A look-up failed. Last known users are served, and others cannot log in.
    Failing(Arc<StoreError>),
    /// A look-up succeeded after a failure.
    Recovered,
}

/// Times of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryOptions {
    /// Minimum interval between checks for changes.
    pub changes_after: Duration,
    /// Validity of a user without another query of the store.
    pub known_for: Duration,
    /// Validity of a name without a user.
    pub unknown_for: Duration,
    /// Both validity times, while the store does not report changes.
    pub unreported_for: Duration,
    /// Validity of a user while the store fails.
    pub last_known_for: Duration,
    /// Deadline of each call to the store.
    pub store_within: Duration,
    /// Maximum wait of a look-up for a call to the store.
    pub queued_within: Duration,
    /// Pause between probes of a failing store.
    pub probe_every: Duration,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        Self {
            changes_after: Duration::from_millis(500),
            known_for: Duration::from_secs(60),
            unknown_for: Duration::from_secs(10),
            // A user added or deleted by another server is detected within a second, including the
            // look-up.
            unreported_for: Duration::from_millis(500),
            last_known_for: Duration::from_secs(3600),
            // Shorter, with the time in the queue, than the wait of a worker.
            store_within: Duration::from_millis(1400),
            queued_within: QUEUED_MAX,
            probe_every: PROBE_EVERY,
        }
    }
}

impl DirectoryOptions {
    fn times(&self, reports_changes: bool) -> Times {
        if reports_changes {
            return Times { known_for: self.known_for, unknown_for: self.unknown_for };
        }
        Times { known_for: self.unreported_for, unknown_for: self.unreported_for }
    }
}

/// Background look-ups of users. `T` is the caller's ticket, returned with the answer.
pub struct Directory<T> {
    /// Dropped to stop the thread.
    queue: Option<mpsc::Sender<Job<T>>>,
    thread: Option<JoinHandle<()>>,
    answers: Arc<Answers>,
}

struct Job<T> {
    ticket: T,
    client: LookupClient,
    question: Question,
    /// Time of the call.
    asked: Instant,
}

impl<T: Send + 'static> Directory<T> {
    /// Starts the thread, which passes each answer to `deliver`. That function must not block,
    /// because all later answers would wait.
    ///
    /// # Errors
    /// The system cannot start a thread, or has no file descriptor left.
    pub fn start(
        reader: Box<dyn UserReader>,
        options: DirectoryOptions,
        deliver: impl Fn(T, Answer) + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::start_with_health(reader, options, deliver, |_| {})
    }

    /// Starts the thread, as [`Directory::start`], with reports about the store. The thread passes
    /// the failure of a look-up, and the recovery, to `report`. That function must not block,
    /// either.
    ///
    /// # Errors
    /// Fails for the reasons of [`Directory::start`].
    pub fn start_with_health(
        reader: Box<dyn UserReader>,
        options: DirectoryOptions,
        deliver: impl Fn(T, Answer) + Send + 'static,
        report: impl Fn(Health) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let cache = Cache::new(options.times(reader.reports_changes()));
        let answers = Arc::new(Answers {
            kept: Mutex::new(KnownUsers { cache, changes: Changes::default(), checked: None }),
            changes_after: options.changes_after,
        });
        // A store with a limit of zero would never answer.
        let in_flight_max = reader.concurrent_max().clamp(1, IN_FLIGHT_MAX);
        let lookups = Lookups {
            reader,
            deliver,
            report: Box::new(report),
            options,
            answers: Arc::clone(&answers),
            revision: None,
            started: Instant::now(),
            queues: [(); 2]
                .map(|()| FairQueue::new(&CLIENTS, QUEUE_MAX, LOOKUP_DELAY, system_hasher())),
            waiting: HashMap::new(),
            waiting_tickets: 0,
            checking: None,
            answered: None,
            outage: None,
            in_flight: JoinSet::new(),
            late: LateLookups::default(),
            window: Window::new(in_flight_max),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new()
            .name("users".to_owned())
            .spawn(move || runtime.block_on(lookups.run(jobs)))?;
        Ok(Self { queue: Some(queue), thread: Some(thread), answers })
    }

    /// Returns the cached answer. `Some(None)`: no such user exists. `None`: the store must be
    /// queried ([`find`](Self::find)).
    ///
    /// Never blocks: returns `None` while the thread updates the cache.
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

    /// Looks up a user. The answer is delivered with `ticket`. Never blocks. Returns false if the
    /// thread accepts no more look-ups.
    pub fn find(&self, ticket: T, client: LookupClient, realm: Arc<str>, user: UserQuery) -> bool {
        let question = Question { realm, user };
        let job = Job { ticket, client, question, asked: Instant::now() };
        self.queue.as_ref().is_some_and(|queue| queue.try_send(job).is_ok())
    }

    /// Forgets a user whom an operator has changed: the cached answer, and the last confirmed
    /// record. Look-ups of the user that started before are repeated.
    pub fn forget(&self, realm: &str, name: &str) {
        let realm: Arc<str> = realm.into();
        let by_hash = userhash(name, &realm).ok().map(UserQuery::Hash);
        let by_name = UserQuery::Name(UserName::form_of(name).as_ref().into());
        let mut kept = self.answers.lock();
        for user in [Some(by_name), by_hash].into_iter().flatten() {
            let question = Question { realm: Arc::clone(&realm), user };
            kept.cache.forget(&question);
            kept.changes.add(question);
        }
    }
}

impl<T> Directory<T> {
    /// Returns the number of changes to the set of [unconfirmed](Self::unconfirmed) users.
    #[must_use]
    pub fn unconfirmed_revision(&self) -> u64 {
        self.answers.lock().changes.revision()
    }

    /// Returns the unconfirmed users with their realms: each user by name and by hash. An operator
    /// has changed these users, or the store has refused them, since the store's last confirmation.
    #[must_use]
    pub fn unconfirmed(&self) -> Vec<(Arc<str>, UserQuery)> {
        let kept = self.answers.lock();
        let users = kept.changes.unconfirmed();
        users.map(|question| (question.realm, question.user)).collect()
    }

    /// Marks users as unconfirmed, as exported by another process.
    pub fn distrust(&self, users: impl IntoIterator<Item = (Arc<str>, UserQuery)>) {
        let mut kept = self.answers.lock();
        for (realm, user) in users {
            kept.changes.add(Question { realm, user });
        }
    }
}

impl<T> Drop for Directory<T> {
    /// Finishes the queued look-ups, and stops the thread.
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported already.
            let _ = thread.join();
        }
    }
}

impl<T> fmt::Debug for Directory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").finish_non_exhaustive()
    }
}

/// State of the directory's thread.
struct Lookups<T, D> {
    reader: Box<dyn UserReader>,
    deliver: D,
    report: Box<dyn Fn(Health) + Send>,
    options: DirectoryOptions,
    answers: Arc<Answers>,
    /// The store's revision at the last check for changes.
    revision: Option<u64>,
    /// Epoch of the queues.
    started: Instant,
    /// Waiting look-ups: of clients with an allocation, and of others.
    queues: [FairQueue<Job<T>>; 2],
    /// Waiting tickets by look-up key. Each key is in flight only once.
    waiting: HashMap<Question, Vec<T>>,
    waiting_tickets: usize,
    /// Keys that wait for the check for changes. `None` if no check is in progress.
    checking: Option<Vec<Question>>,
    /// Time of the last look-up with an answer.
    answered: Option<Instant>,
    /// Set while the store fails.
    outage: Option<Outage>,
    in_flight: JoinSet<Done>,
    late: LateLookups,
    window: Window,
}

/// Finished call to the store. `after` is the number of changes before the call.
enum Done {
    Revision(Result<u64, StoreError>),
    User {
        question: Question,
        after: ChangeCount,
        number: QuestionNumber,
        asked: Instant,
        found: Result<Option<UserRecord>, StoreError>,
    },
    /// Look-up that missed its deadline.
    Late {
        question: Question,
        after: ChangeCount,
        number: QuestionNumber,
        asked: Instant,
        lookup: Lookup<Option<UserRecord>>,
    },
}

impl<T, D: Fn(T, Answer)> Lookups<T, D> {
    async fn run(mut self, mut jobs: mpsc::Receiver<Job<T>>) {
        loop {
            // All received look-ups are sorted before the next look-up is taken.
            for _ in 0..QUEUE_MAX {
                let Ok(job) = jobs.try_recv() else { break };
                self.queue(job);
            }
            self.take_queued();
            tokio::select! {
                Some(done) = self.in_flight.join_next(), if !self.in_flight.is_empty() => {
                    self.finish(done);
                }
                Some(done) = self.late.next(), if !self.late.is_empty() => {
                    self.window.end_late();
                    if let Some((question, after, user)) = done {
                        self.keep(Instant::now(), &question, after, user.as_ref());
                    }
                }
                event = outage::next(&mut self.outage) => self.respond(event),
                job = jobs.recv() => match job {
                    Some(job) => self.queue(job),
                    None => break,
                },
            }
        }
        while let Some(done) = self.in_flight.join_next().await {
            self.finish(done);
            self.take_queued();
        }
    }

    /// Queues a look-up, unless the store fails and the user is known. A look-up dropped for lack
    /// of space gets [`Answer::Overloaded`].
    fn queue(&mut self, job: Job<T>) {
        if let Some(user) = self.last_known(Instant::now(), &job.question) {
            (self.deliver)(job.ticket, Answer::LastKnown(user));
            return self.probe(job.question);
        }
        let now = turn_types::Instant::ZERO + job.asked.duration_since(self.started);
        let claimant = Claimant::at(job.client.address);
        let [known, others] = &mut self.queues;
        let queue = if job.client.has_allocation { known } else { others };
        if let Some(dropped) = queue.push(now, &claimant, job) {
            (self.deliver)(dropped.ticket, Answer::Overloaded);
        }
    }

    /// Starts queued look-ups, up to the maximum number in flight.
    fn take_queued(&mut self) {
        while self.waiting.len() < self.window.size() && self.waiting_tickets < QUEUE_MAX {
            let Some(job) = self.queues.iter_mut().find_map(FairQueue::pop) else { return };
            let now = Instant::now();
            if now.saturating_duration_since(job.asked) > self.options.queued_within {
                let failing = self.outage.as_ref().map(|outage| Arc::clone(&outage.error));
                let unavailable = |error| self.unavailable(&job.question, error);
                (self.deliver)(job.ticket, failing.map_or(Answer::Overloaded, unavailable));
            } else {
                self.take(now, job);
            }
        }
    }

    fn take(&mut self, now: Instant, Job { ticket, question, .. }: Job<T>) {
        self.waiting_tickets += 1;
        let tickets = self.waiting.entry(question.clone()).or_default();
        tickets.push(ticket);
        let is_first = tickets.len() == 1;
        if let Some(parked) = &mut self.checking {
            parked.extend(is_first.then_some(question));
        } else if self.answers.lock().is_stale(now, self.options.changes_after) {
            // This also covers a ticket that joins a look-up in flight: an answer from before a
            // change is not accepted.
            self.checking = Some(is_first.then_some(question).into_iter().collect());
            let revision = within(self.options.store_within, self.reader.revision());
            self.in_flight.spawn(async { Done::Revision(revision.await) });
        } else if is_first {
            self.look_up(now, question);
        }
    }

    /// Answers from the cache, or queries the store.
    fn look_up(&mut self, now: Instant, question: Question) {
        let known = self.answers.lock().cache.find(now, &question);
        if let Some(known) = known {
            return self.answer(&question, known.map_or(Answer::Unknown, Answer::Known));
        }
        if let Some(user) = self.last_known(now, &question) {
            self.answer(&question, Answer::LastKnown(user));
            return self.probe(question);
        }
        // The look-up tests the store, and replaces a probe.
        self.put_off_probe();
        let within = self.options.store_within;
        let after = self.answers.lock().changes.count();
        let number = self.window.send();
        let mut lookup = self.reader.find(&question.realm, &question.user);
        self.in_flight.spawn(async move {
            match timeout(within, &mut lookup).await {
                Ok(found) => Done::User { question, after, number, asked: now, found },
                Err(_) => Done::Late { question, after, number, asked: now, lookup },
            }
        });
    }

    /// Stores an answer of the user store. Returns false if the answer precedes a change.
    fn keep(
        &mut self,
        now: Instant,
        question: &Question,
        after: ChangeCount,
        user: Option<&UserRecord>,
    ) -> bool {
        self.recovered(now);
        let mut kept = self.answers.lock();
        let is_current = kept.changes.is_current(question, after);
        if is_current {
            kept.keep(now, question, user);
        }
        is_current
    }

    fn finish(&mut self, done: Result<Done, tokio::task::JoinError>) {
        let now = Instant::now();
        match done {
            Ok(Done::Revision(revision)) => self.checked(now, revision),
            Ok(Done::User { question, after, number, asked, found }) => {
                let time = now.saturating_duration_since(asked);
                self.window.note(number, time, self.waiting.len());
                self.late.abort_where(|number| self.window.is_lost(number));
                self.found(now, question, after, found);
            }
            Ok(Done::Late { question, after, number, asked, lookup }) => {
                if self.window.miss(number, self.waiting.len())
                    && !self.late.follow(number, question.clone(), after, lookup)
                {
                    self.window.end_late();
                }
                self.missed(now, &question, asked);
            }
            // No task is cancelled, so this is a panic of the store, and an answer would be
            // missing.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    fn found(
        &mut self,
        now: Instant,
        question: Question,
        after: ChangeCount,
        found: Result<Option<UserRecord>, StoreError>,
    ) {
        let (user, answer) = match found {
            Ok(user) => (user.clone(), user.map_or(Answer::Unknown, Answer::Known)),
            Err(error @ StoreError::Row { .. }) => (None, Answer::Unusable(Arc::new(error))),
            Err(error) => return self.failed(now, &question, error),
        };
        if self.keep(now, &question, after, user.as_ref()) {
            self.answer(&question, answer);
        } else {
            // At most once for each check for changes, and for each order about the user.
            self.look_up(now, question);
        }
    }

    /// Continues after a check for changes.
    fn checked(&mut self, now: Instant, revision: Result<u64, StoreError>) {
        let parked = self.checking.take().unwrap_or_default();
        match revision {
            Ok(revision) => {
                let mut kept = self.answers.lock();
                if self.revision != Some(revision) {
                    kept.cache.outdate();
                    kept.changes.add_unnamed();
                    self.revision = Some(revision);
                }
                kept.cache.set_times(self.options.times(self.reader.reports_changes()));
                kept.checked = Some(now);
                drop(kept);
                parked.into_iter().for_each(|question| self.look_up(now, question));
            }
            // Last known users are served until the next check. Other look-ups fail with the store.
            Err(_) => {
                self.answers.lock().checked = Some(now);
                parked.into_iter().for_each(|question| self.look_up(now, question));
            }
        }
    }

    fn answer(&mut self, question: &Question, answer: Answer) {
        for ticket in self.waiting.remove(question).unwrap_or_default() {
            self.waiting_tickets -= 1;
            (self.deliver)(ticket, answer.clone());
        }
    }
}

/// Adds a deadline to a call to the store.
async fn within<V>(deadline: Duration, lookup: Lookup<V>) -> Result<V, StoreError> {
    let late = StoreError::TimedOut { within: deadline };
    timeout(deadline, lookup).await.unwrap_or(Err(late))
}
