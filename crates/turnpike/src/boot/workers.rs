//! The workers of a server at its start: their parts, and their threads.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use control::{Authorizer, TookOverInfo, UserDirectory, WorkerCounters};
use dataplane::limits::COPIES_WAITING;
use dataplane::{
    DtlsSettings, Entrance, LogOptions, NetOptions, StreamSettings, Update, WorkerChannels,
    WorkerEndpoint, WorkerSpec,
};
use linux_net::{Clock, random_bytes};
use turn_proto::{Policy, SharedRegistry};
use turn_types::WorkerId;
use xdp_relay::Routes;

use crate::confinement::WorkerConfinement;
use crate::failure::{OrFail as _, Result};
use crate::handover::{Predecessor, Retiring};
use crate::sockets::WorkerSockets;

/// Parts that all workers of a server have in common.
pub(super) struct SharedParts {
    /// Start time of the process, since 1970.
    pub(super) started: Duration,
    pub(super) streams: StreamSettings,
    pub(super) dtls: DtlsSettings,
    pub(super) policy: Arc<Policy>,
    pub(super) registry: Arc<dyn SharedRegistry>,
    pub(super) directory: Arc<dyn UserDirectory>,
    pub(super) authorizer: Arc<dyn Authorizer>,
    pub(super) channels: WorkerChannels,
    pub(super) net: NetOptions,
    pub(super) log: LogOptions,
}

/// Parts of one worker.
pub(super) struct OwnParts {
    /// The core that it runs on; `None` leaves it to the scheduler.
    pub(super) core: Option<usize>,
    pub(super) sockets: WorkerSockets,
    pub(super) endpoint: WorkerEndpoint,
    pub(super) counters: Arc<WorkerCounters>,
    /// Routes of the kernel path; `None`: the sockets relay everything.
    pub(super) routes: Option<Routes>,
}

impl SharedParts {
    /// The specification of a worker, and its core.
    fn with(&self, id: WorkerId, own: OwnParts) -> (WorkerSpec, Option<usize>) {
        let OwnParts { core, sockets, endpoint, counters, routes } = own;
        let spec = WorkerSpec {
            id,
            started: self.started,
            listeners: sockets.udp,
            shared: sockets.shared,
            acceptors: sockets.tcp,
            streams: self.streams.clone(),
            dtls: self.dtls.clone(),
            policy: Arc::clone(&self.policy),
            registry: Arc::clone(&self.registry),
            seed: random_bytes(),
            directory: Arc::clone(&self.directory),
            authorizer: Arc::clone(&self.authorizer),
            counters,
            endpoint,
            workers: self.channels.clone(),
            routes,
            net: self.net.clone(),
            log: self.log.clone(),
        };
        (spec, core)
    }
}

/// Workers that have not started.
pub(crate) struct Starting {
    specs: Vec<(WorkerSpec, Option<usize>)>,
    rights: WorkerConfinement,
    predecessor: Option<Predecessor>,
}

/// Workers that serve.
pub(crate) struct Started {
    pub(crate) threads: Vec<JoinHandle<()>>,
    /// The process before, which lets go of the rest.
    pub(crate) retiring: Option<Retiring>,
    /// What came from it.
    pub(crate) took_over: Option<TookOverInfo>,
}

impl Starting {
    /// Workers of these parts, in the order of their numbers. With a `predecessor` they begin with
    /// what that has.
    pub(super) fn new(
        shared: &SharedParts,
        own: impl Iterator<Item = OwnParts>,
        rights: WorkerConfinement,
        predecessor: Option<Predecessor>,
    ) -> Self {
        let specs = (0..).map(WorkerId).zip(own).map(|(id, own)| shared.with(id, own));
        Self { specs: specs.collect(), rights, predecessor }
    }

    /// Starts the workers, with all that the process before has: behind that nothing may fail,
    /// since calls would end. It may be dropped between two workers: a start that is slow can be
    /// ended.
    ///
    /// # Errors
    /// No descriptors, memory or threads left; the process before has failed to hand over, and goes
    /// on.
    pub(crate) async fn begin(self) -> Result<Started> {
        let Self { specs, rights, mut predecessor } = self;
        let before = predecessor.as_ref().map(|it| (it.process(), it.relay_settings()));
        let (mut spawned, mut news) = (Vec::new(), Vec::new());
        for (spec, core) in specs {
            let entrance = before.map(|(_, settings)| {
                let (tell, updates) = sync_channel(COPIES_WAITING);
                news.push(tell);
                Entrance { settings, updates }
            });
            let worker = rights.start(|| dataplane::spawn(spec, core, entrance))?;
            spawned.push(worker.or_fail("cannot start a worker")?);
        }
        let since = predecessor.as_mut().map(|before| before.import(&news)).transpose();
        let since = since.or_fail("the running server did not hand over, and goes on")?;
        let (mut threads, mut allocations) = (Vec::new(), 0);
        for worker in spawned {
            let (thread, imported) = worker.built().or_fail("cannot start a worker")?;
            threads.push(thread);
            allocations += imported;
            tokio::task::yield_now().await; // signals are heard
        }
        let retiring = predecessor.map(|before| before.commit(&news)).transpose();
        let retiring = retiring.or_fail("the running server took everything back, and goes on")?;
        for worker in news {
            // One that has ended is noticed as one that ends later.
            let drains = retiring.as_ref().is_some_and(|one| one.orders().drain_until.is_some());
            let _ = worker.send(Update::Commit { drains });
        }
        let took_over = before.zip(since).map(|((process, _), since)| TookOverInfo {
            process,
            allocations,
            pause: Clock::instant().saturating_since(since),
        });
        Ok(Started { threads, retiring, took_over })
    }
}
