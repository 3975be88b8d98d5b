//! The async side: asks every worker and gathers the answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use turn_proto::{AllocationPeers, GrantLimits, Policy};
use turn_types::{AllocationId, Realm, WorkerId};

use crate::earlier::Earlier;
use crate::limits::{ANSWER_DEADLINE, CHECK_PAGE, LIST_PAGE};
use crate::registry::LockedRegistry;
use crate::{
    CounterTotals, EarlierTotals, KernelPathTotals, Mailbox, OffloadWatch, PostError, RealmTotals,
    RefusalFilter, Refused, Reply, Request, Session, SessionFilter, WorkerCounters,
};

/// Error of a request to the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlError {
    /// A worker's mailbox is full, or it did not answer within
    /// [`ANSWER_DEADLINE`].
    Unresponsive(WorkerId),
    /// The server is stopping.
    Stopping,
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unresponsive(worker) => write!(f, "worker {} does not answer", worker.0),
            Self::Stopping => f.write_str("the server is stopping"),
        }
    }
}

impl std::error::Error for ControlError {}

/// The workers of a server, in the order of their ids. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Workers {
    workers: Arc<[(Mailbox, Arc<WorkerCounters>)]>,
    draining: Arc<AtomicBool>,
    registry: Arc<LockedRegistry>,
    /// Counters of threads of the control plane.
    control_plane: Arc<WorkerCounters>,
    earlier: Arc<Earlier>,
}

impl Workers {
    /// The mailbox and the counters of each worker; the position is the worker's id.
    #[must_use]
    pub fn new(workers: Vec<(Mailbox, Arc<WorkerCounters>)>) -> Self {
        Self {
            workers: workers.into(),
            draining: Arc::default(),
            registry: Arc::default(),
            control_plane: Arc::new(WorkerCounters::new()),
            earlier: Arc::default(),
        }
    }

    /// Counters of the control plane, which are part of [`Self::totals`]. Each series has one
    /// thread that counts it.
    #[must_use]
    pub const fn control_plane(&self) -> &Arc<WorkerCounters> {
        &self.control_plane
    }

    /// The registry that they share.
    #[must_use]
    pub fn registry(&self) -> &Arc<LockedRegistry> {
        &self.registry
    }

    /// Their number.
    #[must_use]
    pub fn count(&self) -> usize {
        self.workers.len()
    }

    /// The mailbox of one worker.
    #[must_use]
    pub fn mailbox(&self, worker: WorkerId) -> Option<&Mailbox> {
        self.workers.get(usize::from(worker.0)).map(|(mailbox, _)| mailbox)
    }

    /// The counters of all workers, added up, with the counts of [earlier
    /// processes](Self::go_on_from). Disturbs no worker.
    #[must_use]
    pub fn totals(&self) -> CounterTotals {
        self.with_earlier(self.own_totals())
    }

    /// Adds the counters of earlier processes.
    #[must_use]
    pub fn with_earlier(&self, own: CounterTotals) -> CounterTotals {
        self.earlier.counters(own)
    }

    /// The counters of this process alone.
    #[must_use]
    pub fn own_totals(&self) -> CounterTotals {
        let workers = self.workers.iter().map(|(_, counters)| &**counters);
        CounterTotals::of(workers.chain([&*self.control_plane]))
    }

    /// Goes on from the counters of the process before.
    pub fn go_on_from(&self, earlier: EarlierTotals) {
        self.earlier.set(earlier);
    }

    /// Returns all counters, for the successor.
    pub fn all_totals(&self, kernel_path: Option<&dyn OffloadWatch>) -> EarlierTotals {
        let own = EarlierTotals {
            counters: self.own_totals(),
            realms: self.own_realm_totals(),
            turns: self.turns().collect(),
            kernel_path: kernel_path.map(KernelPathTotals::of).unwrap_or_default(),
        };
        self.earlier.add(own, kernel_path.is_some())
    }

    /// The counters of the kernel path's programs, with the counts of earlier processes.
    #[must_use]
    pub fn kernel_path_totals(&self, watch: &dyn OffloadWatch) -> KernelPathTotals {
        self.earlier.kernel_path(KernelPathTotals::of(watch))
    }

    /// The same as [`Self::turns`], with the turns of earlier processes.
    #[must_use]
    pub fn turn_totals(&self) -> Vec<u64> {
        self.earlier.turns(self.turns().collect())
    }

    /// Turns of each worker's loop so far, in the order of the ids. A worker has one when it is
    /// [woken](Self::wake), unless it hangs.
    pub fn turns(&self) -> impl Iterator<Item = u64> {
        self.workers.iter().map(|(_, counters)| counters.turns())
    }

    /// Allocations that ended since the start of the first process, by realm.
    #[must_use]
    pub fn realm_totals(&self) -> BTreeMap<Realm, RealmTotals> {
        self.earlier.realms(self.own_realm_totals())
    }

    fn own_realm_totals(&self) -> BTreeMap<Realm, RealmTotals> {
        let mut sums = BTreeMap::new();
        self.workers.iter().for_each(|(_, counters)| counters.add_realms_to(&mut sums));
        sums
    }

    /// Wakes a worker.
    pub fn wake(&self, worker: WorkerId) {
        if let Some(mailbox) = self.mailbox(worker) {
            mailbox.wake();
        }
    }

    /// Returns whether [`drain`](Self::drain) was last called with `true`.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Live allocations, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`ControlError`] when any worker does not answer: a list with a hole would mislead.
    pub async fn sessions(
        &self,
        filter: SessionFilter,
        limit: usize,
    ) -> Result<Vec<Session>, ControlError> {
        let lists =
            self.ask_all(|reply| Request::List { filter: filter.clone(), limit, reply }).await?;
        let mut sessions: Vec<_> = lists.into_iter().flatten().collect();
        sessions.sort_by_key(|Session { record, .. }| (record.created, record.id));
        sessions.truncate(limit);
        Ok(sessions)
    }

    /// All live allocations that the filter selects, in the order of their ids. Each worker is
    /// asked for [`LIST_PAGE`] at a time, and relays packets between two pages.
    ///
    /// # Errors
    /// [`ControlError`] when any worker does not answer.
    pub async fn all_sessions(&self, filter: &SessionFilter) -> Result<Vec<Session>, ControlError> {
        let mut all: Vec<Session> = Vec::new();
        for (worker, _) in self.named() {
            let mut filter = filter.clone();
            loop {
                let list =
                    |reply| Request::List { filter: filter.clone(), limit: LIST_PAGE, reply };
                let answer = self.ask(worker, list)?;
                let page = gather(worker, answer, Instant::now() + ANSWER_DEADLINE).await?;
                let last = page.last().map(|session| session.record.id);
                let is_full = page.len() >= LIST_PAGE;
                all.extend(page);
                if !is_full {
                    break;
                }
                filter.after = last;
            }
        }
        // One that moved to another worker meanwhile was perhaps listed by both.
        all.sort_by_key(|session| session.record.id);
        all.dedup_by_key(|session| session.record.id);
        Ok(all)
    }

    /// Recent refusals, the latest first, at most `limit`: of all workers together.
    ///
    /// # Errors
    /// [`ControlError`] when any worker does not answer.
    pub async fn refusals(
        &self,
        filter: RefusalFilter,
        limit: usize,
    ) -> Result<Vec<Refused>, ControlError> {
        // All of them, which are bounded: what is old at one worker may be part of the latest of
        // another.
        let limit_of_each = usize::MAX;
        let ask = |reply| Request::Refusals { filter: filter.clone(), limit: limit_of_each, reply };
        let lists = self.ask_all(ask).await?;
        let mut refusals = Refused::merge(lists.into_iter().flatten());
        filter.sort(&mut refusals);
        refusals.truncate(limit);
        Ok(refusals)
    }

    /// Makes every worker bring [`Series::RelayedPackets`](crate::Series::RelayedPackets) and the
    /// bytes up to date.
    ///
    /// # Errors
    /// [`ControlError`] when any worker does not answer: its sums are as of an earlier call.
    pub async fn count_traffic(&self) -> Result<(), ControlError> {
        self.ask_all(|done| Request::CountTraffic { done }).await.map(drop)
    }

    /// An allocation with its peers; `None` without one of this id.
    ///
    /// # Errors
    /// [`ControlError`] when a worker does not answer.
    pub async fn session(
        &self,
        id: AllocationId,
    ) -> Result<Option<(Session, AllocationPeers)>, ControlError> {
        // Its client may have taken it to any of them.
        let found = self.ask_all(|reply| Request::Show { id, reply }).await?;
        Ok(found.into_iter().flatten().next())
    }

    /// Ends an allocation; whether there was one.
    ///
    /// # Errors
    /// [`ControlError`] when a worker does not answer.
    pub async fn end_session(&self, id: AllocationId) -> Result<bool, ControlError> {
        // Its client may have taken it to any of them.
        let ended = self.ask_all(|reply| Request::End { id, reply }).await?;
        Ok(ended.contains(&true))
    }

    /// Narrows the limits of an allocation; whether there was one.
    ///
    /// # Errors
    /// [`ControlError`] when a worker does not answer.
    pub async fn limit_session(
        &self,
        id: AllocationId,
        limits: &GrantLimits,
    ) -> Result<bool, ControlError> {
        // Its client may have taken it to any of them.
        let limited =
            self.ask_all(|reply| Request::Limit { id, limits: limits.clone(), reply }).await?;
        Ok(limited.contains(&true))
    }

    /// Ends allocations whose secret or key counts no longer, of a realm or of all; returns their
    /// number. Workers relay packets between two parts.
    ///
    /// # Errors
    /// [`ControlError`] when a worker does not answer.
    pub async fn end_unaccepted(&self, realm: Option<&Realm>) -> Result<u64, ControlError> {
        let mut ended = 0;
        for (worker, _) in self.named() {
            let mut after = None;
            loop {
                let realm = realm.cloned();
                let end = |reply| Request::EndUnaccepted { realm, after, limit: CHECK_PAGE, reply };
                let answer = self.ask(worker, end)?;
                let part = gather(worker, answer, Instant::now() + ANSWER_DEADLINE).await?;
                ended += part.ended;
                after = part.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(ended)
    }

    /// Makes every worker use a policy, and returns when all do.
    ///
    /// # Errors
    /// [`ControlError`]; some workers may use it already, the others will when they come to it,
    /// unless their mailbox is full.
    pub async fn apply(&self, policy: Arc<Policy>) -> Result<(), ControlError> {
        let apply = |done| Request::Apply { policy: Arc::clone(&policy), done };
        self.ask_all(apply).await.map(drop)
    }

    /// Makes every worker refuse new allocations, or take them again.
    ///
    /// # Errors
    /// [`ControlError`]; the other workers are told all the same.
    pub fn drain(&self, on: bool) -> Result<(), ControlError> {
        self.draining.store(on, Ordering::Relaxed);
        self.tell_all(|| Request::Drain(on))
    }

    /// Makes every worker end its allocations and leave. Their threads end soon after.
    ///
    /// # Errors
    /// [`ControlError::Unresponsive`] for a worker that cannot be told; the others are. A worker
    /// that is gone already is no error.
    pub fn stop(&self) -> Result<(), ControlError> {
        match self.tell_all(|| Request::Stop) {
            Err(ControlError::Stopping) => Ok(()),
            other => other,
        }
    }

    /// Posts to every worker, whatever becomes of the others, and returns the worst error.
    fn tell_all(&self, request: impl Fn() -> Request) -> Result<(), ControlError> {
        let mut result = Ok(());
        for (worker, (mailbox, _)) in self.named() {
            match mailbox.post(request()) {
                Ok(()) => {}
                Err(PostError::Full) => result = Err(ControlError::Unresponsive(worker)),
                Err(PostError::Gone) => result = result.and(Err(ControlError::Stopping)),
            }
        }
        result
    }

    /// Asks every worker at the same time and waits for all answers, in the order of the ids.
    async fn ask_all<T: Send + 'static>(
        &self,
        request: impl Fn(Reply<T>) -> Request,
    ) -> Result<Vec<T>, ControlError> {
        let deadline = Instant::now() + ANSWER_DEADLINE;
        let asked: Vec<_> =
            self.named().map(|(worker, _)| (worker, self.ask(worker, &request))).collect();
        let mut answers = Vec::with_capacity(asked.len());
        for (worker, answer) in asked {
            answers.push(gather(worker, answer?, deadline).await?);
        }
        Ok(answers)
    }

    fn ask<T: Send + 'static>(
        &self,
        worker: WorkerId,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<oneshot::Receiver<T>, ControlError> {
        let mailbox = self.mailbox(worker).ok_or(ControlError::Stopping)?;
        let (sender, answer) = oneshot::channel();
        // An asker that is gone does not want the answer.
        let reply = Box::new(move |value| drop(sender.send(value)));
        match mailbox.post(request(reply)) {
            Ok(()) => Ok(answer),
            Err(PostError::Full) => Err(ControlError::Unresponsive(worker)),
            Err(PostError::Gone) => Err(ControlError::Stopping),
        }
    }

    fn named(&self) -> impl Iterator<Item = (WorkerId, &(Mailbox, Arc<WorkerCounters>))> {
        (0..).map(WorkerId).zip(self.workers.iter())
    }
}

async fn gather<T>(
    worker: WorkerId,
    answer: oneshot::Receiver<T>,
    deadline: Instant,
) -> Result<T, ControlError> {
    match timeout_at(deadline, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(_)) => Err(ControlError::Stopping),
        Err(_) => Err(ControlError::Unresponsive(worker)),
    }
}
