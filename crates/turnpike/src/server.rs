//! The life of a running server after its start: signals, operators' requests, draining, the end.

use std::thread::JoinHandle;
use std::time::Duration;

use admin::limits::DRAIN_MAX;
use anyhow::anyhow;
use control::{DrainReport, Handle, OperatorRequest};
use linux_net::HostChanges;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};

use crate::cli::Place;
use crate::failure::{Failure, Result};
use crate::host_watch::HostWatch;
use crate::offload::KernelPath;
use crate::output;
use crate::place;
use crate::reload::InForce;
use crate::signals::{Signals, Wish};
use crate::watchdog::{self, Watchdog};

/// How often a draining server looks whether it is empty.
const DRAIN_LOOK: Duration = Duration::from_millis(100);

/// How often the server looks whether files of certificates are new.
const CERTIFICATES_LOOK: Duration = Duration::from_secs(5);

/// How long workers may take to end their allocations and leave. They do it between two batches;
/// later means that one is stuck, and the process ends without it.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// A running server and all that may be asked of it.
pub(crate) struct Server {
    pub(crate) place: Place,
    pub(crate) in_force: InForce,
    pub(crate) handle: Handle,
    pub(crate) requests: mpsc::Receiver<OperatorRequest>,
    pub(crate) signals: Signals,
    pub(crate) threads: Threads,
    pub(crate) kernel_path: KernelPath,
    pub(crate) host: HostWatch,
}

/// Waits for worker threads without blocking.
pub(crate) struct Threads(JoinSet<()>);

impl Threads {
    /// Must be called within a tokio runtime.
    pub(crate) fn watch(threads: Vec<JoinHandle<()>>) -> Self {
        let mut set = JoinSet::new();
        for thread in threads {
            // A worker that panicked has said so on standard error; that it ended is what counts.
            set.spawn_blocking(move || drop(thread.join()));
        }
        Self(set)
    }

    /// Waits until one has ended; never, when there is none left.
    async fn one_ended(&mut self) {
        if self.0.join_next().await.is_none() {
            std::future::pending().await
        }
    }

    /// Waits until all have ended, or for [`STOP_DEADLINE`]; whether they have.
    pub(crate) async fn all_ended(&mut self) -> bool {
        timeout(STOP_DEADLINE, async { while self.0.join_next().await.is_some() {} }).await.is_ok()
    }
}

impl Server {
    /// Runs until the server was told to end and has ended.
    pub(crate) async fn run(mut self) -> Result<()> {
        let mut drain: Option<Instant> = None;
        let mut certificates_look = tokio::time::interval(CERTIFICATES_LOOK);
        let mut watchdog = Watchdog::default();
        let mut watch = tokio::time::interval(watchdog::LOOK_EVERY);
        // Looks that were missed, as while the process was stopped, are not made up for.
        watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                wish = self.signals.next() => match wish {
                    Wish::Reload => drop(self.reload().await),
                    Wish::End if drain.is_some() => {
                        tracing::info!("told to end again: stopping at once");
                        break;
                    }
                    Wish::End => drain = Some(self.drain(self.in_force.settings.drain)),
                },
                Some(request) = self.requests.recv() => match request {
                    OperatorRequest::Reload(reply) => {
                        // Who asked may be gone; the log has it too.
                        let _ = reply.send(self.reload().await);
                    }
                    OperatorRequest::Drain { deadline, reply } => {
                        let configured = self.in_force.settings.drain;
                        let deadline = deadline.unwrap_or_else(|| asked_for(configured));
                        let allocations_live = self.live();
                        drain = Some(self.drain(deadline));
                        let _ = reply.send(DrainReport { deadline, allocations_live });
                    }
                },
                () = self.threads.one_ended() => {
                    // Its clients are cut off and new ones still come to its sockets: starting
                    // again is better than serving some.
                    let _ = self.handle.workers.stop();
                    return Err(Failure::failed(anyhow!("a worker has ended unexpectedly"))
                        .hint("this is a fault of the program: report it with the log"));
                }
                changes = self.host.next() => self.follow_host(changes).await,
                _ = certificates_look.tick() => self.in_force.watch_certificates(&self.handle),
                _ = watch.tick() => watchdog.look(&self.handle.workers)?,
                () = sleep(DRAIN_LOOK), if drain.is_some() => {}
            }
            if drain.is_some_and(|until| self.live() == 0 || Instant::now() >= until) {
                break;
            }
        }
        self.stop().await
    }

    /// Looks at what of the host may have changed.
    async fn follow_host(&mut self, changes: HostChanges) {
        // First what protects the host.
        if changes.own_addresses && !self.in_force.follow_own_addresses(&self.handle).await {
            self.host.again(HostChanges { own_addresses: true, ..HostChanges::default() });
        }
        if changes.devices || changes.forwarding {
            self.kernel_path.look();
        }
    }

    async fn reload(&mut self) -> control::ReloadReport {
        let place = &self.place;
        let load = || place::load(place).map(|configuration| configuration.settings);
        self.in_force.reload(&self.handle, load).await
    }

    /// Takes no new allocations from now on; when what is left is ended.
    fn drain(&self, deadline: Duration) -> Instant {
        if let Err(error) = self.handle.workers.drain(true) {
            tracing::warn!(%error, "not every worker was told to drain");
        }
        let live = self.live();
        if live > 0 && !deadline.is_zero() {
            tracing::info!(
                allocations = live,
                "draining: the server ends when the last allocation has, at the latest in {}; \
                 SIGTERM ends it at once",
                output::duration(deadline)
            );
        }
        Instant::now() + deadline
    }

    fn live(&self) -> u64 {
        self.handle.workers.totals().allocations_live()
    }

    async fn stop(mut self) -> Result<()> {
        tracing::info!(allocations = self.live(), "stopping");
        let _ = self.handle.workers.stop();
        if self.threads.all_ended().await {
            tracing::info!("stopped");
            return Ok(());
        }
        Err(Failure::failed(anyhow!("a worker did not stop within {} s", STOP_DEADLINE.as_secs()))
            .hint("its allocations end with the process, without a line in the log"))
    }
}

/// How long a drain that somebody asked for may last when they named no time. Whoever says drain
/// wants calls to end by themselves: a configuration that only says how fast SIGTERM has to be
/// (`shutdown.drain = "0 s"`) does not cut them.
fn asked_for(configured: Duration) -> Duration {
    if configured.is_zero() { DRAIN_MAX } else { configured }
}
