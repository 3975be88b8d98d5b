//! Main loop of a running server: signals, operators' requests, draining, shutdown.

use std::ops::ControlFlow;
use std::thread::JoinHandle;
use std::time::Duration;

use admin::SocketFile;
use admin::limits::DRAIN_MAX;
use anyhow::anyhow;
use control::{CancelReport, DrainReport, Handle, KeeperState, OperatorRequest, ReloadReport};
use linux_net::{Clock, HostChanges};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use settings::SignalAction;

use crate::alternates::Alternates;
use crate::cli::PathOptions;
use crate::external::{self, ASKED_EVERY, Answers};
use crate::failure::{Failure, Result};
use crate::handover::{Change, HandoverReport, Handovers, KeeperLink, Orders};
use crate::host_watch::HostWatch;
use crate::offload::KernelPath;
use crate::output;
use crate::reload::{InForce, refused};
use crate::reload_job::{
    LoadedConfiguration, RefusedReload, ReloadInputs, ReloadJob, ReloadRequest,
};
use crate::requests::{Order, Requests};
use crate::restart;
use crate::revoking::stored;
use crate::service_manager::{ServiceManager, State};
use crate::session_records::Keeping;
use crate::signals::{Signal, Signals};
use crate::tables::Tables;
use crate::watchdog::{self, Watchdog};

/// Interval at which a draining server checks if few enough allocations are left.
const DRAIN_LOOK: Duration = Duration::from_millis(100);

/// Interval of checks for new certificate files.
const CERTIFICATES_LOOK: Duration = Duration::from_secs(5);

/// Interval of checks for expired revocations.
const REVOCATIONS_LOOK: Duration = Duration::from_secs(60);

/// Timeout of interim records before an exit after which another process continues the calls.
const INTERIM_WITHIN: Duration = Duration::from_secs(3);

/// Maximum time for workers to end their allocations and exit between two batches. A worker that
/// takes longer is stuck, and the process exits without that worker.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// Running server, with the sources of events that it processes.
pub(crate) struct Server {
    pub(crate) paths: PathOptions,
    pub(crate) in_force: InForce,
    pub(crate) handle: Handle,
    pub(crate) requests: Requests,
    /// Orders inherited from the predecessor.
    pub(crate) orders: Orders,
    pub(crate) signals: Signals,
    pub(crate) manager: ServiceManager,
    /// True if the last reload was refused, so the configuration in effect differs from the files.
    pub(crate) reload_refused: bool,
    pub(crate) threads: Threads,
    /// Records of sessions, if configured.
    pub(crate) records: Option<Keeping>,
    pub(crate) kernel_path: KernelPath,
    pub(crate) host: HostWatch,
    pub(crate) tables: Tables,
    pub(crate) alternates: Alternates,
    /// Receives a report when a successor has taken over.
    pub(crate) handed_over: mpsc::UnboundedReceiver<HandoverReport>,
    /// Guard of hand-overs to a successor.
    pub(crate) handovers: Option<Handovers>,
    /// Connection with a keeper, for copies of all calls.
    pub(crate) keeper: Option<KeeperLink>,
    /// Socket of hand-overs, held for the removal of its file.
    pub(crate) _handover_socket: SocketFile,
    /// Reload in progress.
    pub(crate) reload_job: ReloadJob,
}

/// Drain in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Draining {
    /// Deadline at which live allocations end.
    until: Instant,
    /// True after a signal to shut down. The next such signal stops the server immediately, and no
    /// operator can cancel the drain.
    told_to_end: bool,
}

impl Draining {
    /// Returns the drain that an operator has requested in place of `before`. The deadline counts
    /// from `now`.
    fn asked_for(before: Option<Self>, deadline: Duration, now: Instant) -> Self {
        let told_to_end = before.is_some_and(|drain| drain.told_to_end);
        Self { until: now + deadline, told_to_end }
    }

    /// Returns the drain of a signal, of length `configured`, in place of `before`. A later
    /// deadline of `before` is retained, because a supervisor sends SIGTERM after the command that
    /// drains.
    fn told_to_end(before: Option<Self>, configured: Duration, now: Instant) -> Self {
        let until = now + configured;
        let until = before.map_or(until, |drain| drain.until.max(until));
        Self { until, told_to_end: true }
    }

    fn left(self, now: Instant) -> Duration {
        self.until.saturating_duration_since(now)
    }
}

/// Worker threads, awaited without blocking.
pub(crate) struct Threads(JoinSet<()>);

impl Threads {
    /// Watches worker threads. Must be called within a tokio runtime.
    pub(crate) fn watch(threads: Vec<JoinHandle<()>>) -> Self {
        let mut set = JoinSet::new();
        for thread in threads {
            // A panicking worker has reported on standard error. Only its exit matters here.
            set.spawn_blocking(move || drop(thread.join()));
        }
        Self(set)
    }

    /// Waits until a thread has exited. Waits forever if no thread is left.
    async fn one_ended(&mut self) {
        if self.0.join_next().await.is_none() {
            std::future::pending().await
        }
    }

    /// Waits until all threads have exited, at most [`STOP_DEADLINE`]. Returns true if all have
    /// exited.
    pub(crate) async fn all_ended(&mut self) -> bool {
        timeout(STOP_DEADLINE, async { while self.0.join_next().await.is_some() {} }).await.is_ok()
    }
}

impl Server {
    /// Runs until the server has been told to stop and has stopped.
    pub(crate) async fn run(mut self) -> Result<()> {
        let mut drain = self.inherited_drain();
        for trace in std::mem::take(&mut self.orders.traces) {
            // The predecessor had the same limit.
            let _ = self.handle.traces.add(Clock::instant(), trace);
        }
        for signal in std::mem::take(&mut self.orders.signals) {
            if self.obey(signal, &mut drain).await.is_break() {
                return self.stop().await;
            }
        }
        let mut empty_since: Option<Instant> = None;
        let mut external: JoinSet<Result<Answers>> = JoinSet::new();
        let mut external_look =
            interval_at(Instant::now() + self.in_force.external_pause(), ASKED_EVERY);
        let mut certificates_look = tokio::time::interval(CERTIFICATES_LOOK);
        let mut revocations_look = tokio::time::interval(REVOCATIONS_LOOK);
        let mut watchdog = Watchdog::default();
        let mut watch = tokio::time::interval(watchdog::LOOK_EVERY);
        // Checks missed while the process was stopped are not repeated.
        watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                signal = self.signals.next() => if self.obey(signal, &mut drain).await.is_break() {
                    break;
                },
                // A request waits until the preceding reload is complete.
                order = self.requests.next(), if self.reload_job.is_idle() => match order {
                    Order::Request(request, change) => {
                        self.answer(request, change, &mut drain).await;
                    }
                    Order::Signal(signal) => if self.obey(signal, &mut drain).await.is_break() {
                        break;
                    },
                },
                Some(over) = self.handed_over.recv() => {
                    self.retire(over);
                    break;
                }
                () = self.threads.one_ended() => {
                    // The worker's clients have no service, and its sockets still receive new
                    // clients. A restart is better.
                    let _ = self.handle.workers.stop();
                    return Err(Failure::failed(anyhow!("a worker has ended unexpectedly"))
                        .hint("this is a fault of the program: report it with the log"));
                }
                changes = self.host.next() => {
                    if changes.own_addresses {
                        external_look.reset_immediately();
                    }
                    self.follow_host(changes).await;
                }
                _ = external_look.tick(), if external.is_empty() => self.ask_for_external(&mut external),
                Some(Ok(answers)) = external.join_next() => {
                    self.in_force.follow_external(&self.handle, answers).await;
                    external_look.reset_after(self.in_force.external_pause());
                }
                reading = self.tables.changed() => {
                    self.tables.take(reading);
                    self.follow_tables().await;
                }
                silent = self.alternates.changed() => {
                    self.in_force.follow_alternates(&self.handle, silent).await;
                }
                _ = revocations_look.tick() => if let Some(change) = self.requests.changes.begin() {
                    self.prune_revocations(change).await;
                },
                Some((request, loaded)) = self.reload_job.next() => {
                    self.finish_reload(request, loaded).await;
                }
                _ = certificates_look.tick() => self.in_force.watch_certificates(),
                Some(read) = self.in_force.certificate_watch.next() => {
                    self.in_force.take_certificates(&self.handle, read);
                }
                _ = watch.tick() => self.look(&mut watchdog, drain).await?,
                () = sleep(DRAIN_LOOK), if drain.is_some() => {}
            }
            if self.is_drained(drain, &mut empty_since) {
                break;
            }
        }
        self.stop().await
    }

    /// Checks the workers, a late reload, and the tables.
    async fn look(&mut self, watchdog: &mut Watchdog, drain: Option<Draining>) -> Result<()> {
        let looked = watchdog.look(&self.handle.workers);
        self.report(watchdog.all_alive(), drain);
        looked?;
        if let Some((request, failure)) = self.reload_job.late() {
            self.finish_reload(request, Err(failure)).await;
        }
        self.tables.look();
        self.follow_tables().await;
        Ok(())
    }

    /// Applies new rules of the user database, and publishes failures to read its tables.
    async fn follow_tables(&mut self) {
        self.in_force.follow_tables(&self.handle, &mut self.tables).await;
        self.in_force.note_unread_tables(&self.handle, self.tables.failure());
    }

    /// Carries out a signal's action. Breaks at the second signal to shut down.
    async fn obey(&mut self, signal: Signal, drain: &mut Option<Draining>) -> ControlFlow<()> {
        // A signal to shut down does not wait for a hand-over.
        let change = match signal {
            Signal::End => None,
            Signal::Reload | Signal::User1 | Signal::User2 => match self.requests.begin(signal) {
                Some(change) => Some(change),
                None => return ControlFlow::Continue(()),
            },
        };
        match signal {
            Signal::Reload => {
                self.begin_reload(ReloadRequest { change, ..ReloadRequest::default() });
                return ControlFlow::Continue(());
            }
            Signal::End if drain.is_some_and(|drain| drain.told_to_end) => {
                tracing::info!("told to end again: stopping at once");
                return ControlFlow::Break(());
            }
            Signal::End => {
                self.requests.changes.end();
                self.manager.stopping();
                let next = Draining::told_to_end(*drain, self.configured_drain(), Instant::now());
                *drain = Some(self.drain(next));
            }
            Signal::User1 => self.act(self.in_force.settings.signals.usr1, drain),
            Signal::User2 => self.act(self.in_force.settings.signals.usr2, drain),
        }
        ControlFlow::Continue(())
    }

    /// Carries out an operator's request, and replies. The outcome is logged as well, because the
    /// caller may have disconnected.
    ///
    /// `change` delays hand-overs until the change is on disk. This function does not wait for a
    /// disk, because a hanging disk must not stop the watchdog.
    async fn answer(
        &mut self,
        request: OperatorRequest,
        change: Option<Change>,
        drain: &mut Option<Draining>,
    ) {
        match request {
            OperatorRequest::Reload { end_sessions, reply } => {
                self.begin_reload(ReloadRequest { end_sessions, reply: Some(reply), change });
            }
            OperatorRequest::Revoke { wish, reply } => {
                let changed = self.in_force.revoke(&self.handle, wish).await;
                tokio::spawn(async move {
                    let _ = reply.send(stored(changed).await);
                    drop(change);
                });
            }
            OperatorRequest::Restore { what, reply } => {
                let changed = self.in_force.restore(&self.handle, &what).await;
                tokio::spawn(async move {
                    let _ = reply.send(stored(changed).await);
                    drop(change);
                });
            }
            OperatorRequest::Mint { wish, reply } => {
                let _ = reply.send(self.in_force.mint(&wish));
            }
            OperatorRequest::Revocations(reply) => {
                let _ = reply.send(self.in_force.revocations.list());
            }
            OperatorRequest::Drain { deadline, reply } => {
                let deadline = deadline.unwrap_or_else(|| asked_for(self.configured_drain()));
                let allocations_live = self.live();
                let replaced = drain.map(|drain| drain.left(Instant::now()));
                let next = Draining::asked_for(*drain, deadline, Instant::now());
                *drain = Some(self.drain(next));
                let _ = reply.send(DrainReport { deadline, allocations_live, replaced });
            }
            OperatorRequest::CancelDrain(reply) => {
                let _ = reply.send(self.cancel(drain));
            }
        }
    }

    /// Returns true if a drain is over: its deadline has passed, or few enough allocations are
    /// left. `empty_since` is the time since which all checks have found so few allocations.
    fn is_drained(&self, drain: Option<Draining>, empty_since: &mut Option<Instant>) -> bool {
        let left = u64::from(self.in_force.settings.shutdown.drain_allocations_left.get());
        // A worker publishes an allocation after its response, so a single check could miss the
        // newest.
        let is_empty = drain.is_some() && self.live() <= left;
        *empty_since = is_empty.then(|| empty_since.unwrap_or_else(Instant::now));
        let is_over = |drain: Draining| Instant::now() >= drain.until;
        let stays_empty = empty_since.is_some_and(|since| since.elapsed() >= DRAIN_LOOK);
        stays_empty || drain.is_some_and(is_over)
    }

    /// Prepares the exit after a commit: the successor has all clients.
    fn retire(&mut self, over: HandoverReport) {
        self.manager.hand_over(over.to);
        if let Some(keeper) = &self.keeper {
            keeper.leave();
        }
        // The receiving thread may have exited.
        let _ = over.told.send(());
        tracing::info!(
            process = over.to,
            allocations = over.allocations,
            pause_us = over.pause.as_micros() as u64,
            "the next process serves; this one ends"
        );
        self.handovers = None;
    }

    /// Continues the drain of the predecessor.
    fn inherited_drain(&self) -> Option<Draining> {
        let left = self.orders.drain_until?.saturating_since(Clock::now().instant);
        Some(self.drain(Draining { until: Instant::now() + left, told_to_end: false }))
    }

    /// Carries out the action that is configured for a signal.
    fn act(&mut self, action: SignalAction, drain: &mut Option<Draining>) {
        match action {
            // A repeated signal does not change the deadline.
            SignalAction::Drain if drain.is_some() => {}
            SignalAction::Drain => {
                let deadline = asked_for(self.configured_drain());
                let next = Draining::asked_for(*drain, deadline, Instant::now());
                *drain = Some(self.drain(next));
            }
            SignalAction::Certificates => self.in_force.reload_certificates(),
            SignalAction::Ignore => {}
        }
    }

    /// Requests the public addresses of this host from STUN servers, if configured.
    fn ask_for_external(&self, external: &mut JoinSet<Result<Answers>>) {
        if self.in_force.settings.is_external_auto() {
            let settings = self.in_force.settings.clone();
            external.spawn(async move { external::ask(&settings).await });
        }
    }

    /// Examines the parts of the host that may have changed.
    async fn follow_host(&mut self, changes: HostChanges) {
        if changes.devices {
            self.in_force.follow_devices(&self.handle);
        }
        let before = self.in_force.relays();
        if changes.own_addresses && !self.in_force.follow_own_addresses(&self.handle).await {
            self.host.again(HostChanges { own_addresses: true, ..HostChanges::default() });
        }
        let relays = self.in_force.relays();
        if relays != before {
            self.kernel_path.follow_relays(relays);
        } else if changes.devices || changes.forwarding {
            self.kernel_path.look(changes);
        }
    }

    /// Reports the state to the service manager.
    fn report(&self, workers_alive: bool, drain: Option<Draining>) {
        if drain.is_some_and(|drain| drain.told_to_end) {
            self.manager.extend_deadline();
        }
        let drain = drain.map(|drain| drain.left(Instant::now()));
        let reload_refused = self.reload_refused;
        self.manager.report(State {
            allocations: self.live(),
            drain,
            reload_refused,
            workers_alive,
        });
    }

    /// Removes expired revocations.
    async fn prune_revocations(&mut self, change: Change) {
        let Some(written) = self.in_force.prune_revocations(&self.handle).await else { return };
        tokio::spawn(async move {
            if let Err(error) = written.wait().await {
                tracing::warn!(%error, "revocations whose time is over could not be removed from their file");
            }
            drop(change);
        });
    }

    /// Starts to read the configuration again. [`finish_reload`](Self::finish_reload) applies it.
    fn begin_reload(&mut self, request: ReloadRequest) {
        let inputs = ReloadInputs {
            paths: self.paths.clone(),
            settings: self.in_force.settings.clone(),
            certificates: self.in_force.certificates.reader(),
            readable: self.in_force.readable.clone(),
        };
        match self.reload_job.begin(request, inputs) {
            Ok(()) => {
                self.manager.reloading();
                self.in_force.log.reopen();
            }
            Err(RefusedReload::Joined) => {}
            Err(RefusedReload::DiskHangs(request, failure)) => {
                let report = refused(&failure);
                self.note_reload(&report);
                if let Some(reply) = request.reply {
                    let _ = reply.send(report);
                }
            }
        }
    }

    /// Applies a loaded configuration, and replies.
    async fn finish_reload(&mut self, request: ReloadRequest, loaded: Result<LoadedConfiguration>) {
        let ReloadRequest { end_sessions, reply, change } = request;
        let report = self.in_force.reload(&self.handle, loaded, end_sessions).await;
        self.alternates.follow(&self.in_force.settings);
        if let Some(coturn) = self.paths.coturn.clone() {
            let directory = self.in_force.settings.data.directory.clone();
            let handle = self.handle.clone();
            let tell = move || coturn.tell(&directory).iter().for_each(|one| one.show(&handle));
            drop(tokio::task::spawn_blocking(tell));
        }
        self.note_reload(&report);
        self.manager.ready();
        if let Some(reply) = reply {
            let _ = reply.send(report);
        }
        drop(change);
        if self.reload_job.take_wanted_again()
            && let Some(change) = self.requests.begin(Signal::Reload)
        {
            self.begin_reload(ReloadRequest { change: Some(change), ..ReloadRequest::default() });
        }
    }

    /// Stores the reason of a refusal for operators, until a reload is accepted.
    fn note_reload(&mut self, report: &ReloadReport) {
        self.reload_refused = report.refused.is_some();
        let mut info = (*self.handle.info()).clone();
        info.reload_refused.clone_from(&report.refused);
        if report.refused.is_none() {
            let keys = report.needs_restart.iter().map(|change| change.key.clone());
            info.needs_restart = keys.collect();
        }
        self.handle.set_info(info);
    }

    fn configured_drain(&self) -> Duration {
        self.in_force.settings.shutdown.drain.get()
    }

    /// Stops accepting new allocations.
    fn drain(&self, drain: Draining) -> Draining {
        if let Err(error) = self.handle.workers.drain(true) {
            tracing::warn!(%error, "not every worker was told to drain");
        }
        let left = drain.left(Instant::now());
        self.handle.set_drain_deadline(Some(Clock::now().instant + left));
        let live = self.live();
        if live > 0 && !left.is_zero() {
            let again = if drain.told_to_end { "again " } else { "twice " };
            tracing::info!(
                allocations = live,
                "draining: the server ends when the last allocation has, at the latest in {}; \
                 SIGTERM {again}ends it at once",
                output::duration(left)
            );
        }
        drain
    }

    /// Accepts new allocations again, unless a signal told the server to shut down.
    fn cancel(&self, drain: &mut Option<Draining>) -> CancelReport {
        match *drain {
            None => CancelReport::NotDraining,
            Some(Draining { told_to_end: true, .. }) => CancelReport::ToldToEnd,
            Some(cancelled) => {
                *drain = None;
                self.handle.set_drain_deadline(None);
                if let Err(error) = self.handle.workers.drain(false) {
                    tracing::warn!(%error, "not every worker was told to take allocations again");
                }
                tracing::info!("the drain was cancelled");
                CancelReport::Cancelled(cancelled.left(Instant::now()))
            }
        }
    }

    fn live(&self) -> u64 {
        self.handle.workers.totals().allocations_live()
    }

    async fn stop(mut self) -> Result<()> {
        self.manager.stopping();
        let is_kept = self.handovers.is_some()
            && (self.manager.keeps() || matches!(self.handle.keeper(), KeeperState::Connected(_)));
        if let Some(records) = self.records.as_ref().filter(|_| is_kept) {
            // Without a successor these are the last records.
            let _ = timeout(INTERIM_WITHIN, records.record_live()).await;
        }
        restart::leave(self.handovers.as_ref(), self.keeper.as_ref(), &self.manager);
        // After a hand-over the allocations belong to the successor.
        let allocations = if self.handovers.is_some() { self.live() } else { 0 };
        tracing::info!(allocations, "stopping");
        self.handovers = None;
        let _ = self.handle.workers.stop();
        if self.threads.all_ended().await {
            if let Some(keeper) = &self.keeper {
                keeper.end();
            }
            if let Some(records) = self.records {
                records.end().await;
            }
            tracing::info!("stopped");
            return Ok(());
        }
        Err(Failure::failed(anyhow!("a worker did not stop within {} s", STOP_DEADLINE.as_secs()))
            .hint("its allocations end with the process, without a line in the log"))
    }
}

/// Returns the time of a requested drain without a deadline. `shutdown.drain = "0 s"` only defines
/// how fast SIGTERM stops the server. A requested drain must not cut calls because of that value.
fn asked_for(configured: Duration) -> Duration {
    if configured.is_zero() { DRAIN_MAX } else { configured }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_keeps_the_later_deadline_and_cannot_be_taken_back() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let now = Instant::now();
        let asked = Draining::asked_for(None, minutes(10), now);
        assert!(!asked.told_to_end);
        let told = Draining::told_to_end(Some(asked), minutes(0), now);
        assert_eq!((told.left(now), told.told_to_end), (minutes(10), true));
        let told = Draining::told_to_end(Some(asked), minutes(30), now);
        assert_eq!(told.left(now), minutes(30));
        assert_eq!(Draining::told_to_end(None, minutes(0), now).left(now), minutes(0));
        // An operator's deadline takes precedence nevertheless.
        let again = Draining::asked_for(Some(told), minutes(1), now);
        assert_eq!((again.left(now), again.told_to_end), (minutes(1), true));
    }
}
