//! Start of a server's workers: their parts and threads.

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

/// Parts common to all workers of a server.
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
    /// Core that the worker runs on. `None` means that the scheduler chooses.
    pub(super) core: Option<usize>,
    pub(super) sockets: WorkerSockets,
    pub(super) endpoint: WorkerEndpoint,
    pub(super) counters: Arc<WorkerCounters>,
    /// Routes of the kernel path. `None` means that sockets relay all packets.
    pub(super) routes: Option<Routes>,
}

impl SharedParts {
    /// Returns the specification of a worker, and its core.
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
    /// The predecessor, which must still release the kernel path.
    pub(crate) retiring: Option<Retiring>,
    /// Facts about the calls imported from the predecessor.
    pub(crate) took_over: Option<TookOverInfo>,
}

impl Starting {
    /// Creates the specifications of workers, sorted by id. With a `predecessor` the workers import
    /// its calls.
    pub(super) fn new(
        shared: &SharedParts,
        own: impl Iterator<Item = OwnParts>,
        rights: WorkerConfinement,
        predecessor: Option<Predecessor>,
    ) -> Self {
        let specs = (0..).map(WorkerId).zip(own).map(|(id, own)| shared.with(id, own));
        Self { specs: specs.collect(), rights, predecessor }
    }

    /// Starts the workers and imports the predecessor's calls. After success no later step may
    /// fail, because calls would end. The future may be dropped between two workers, so a slow
    /// start can be cancelled.
    ///
    /// # Errors
    /// No descriptors, memory or threads are left, or the hand-over has failed and the predecessor
    /// continues to serve.
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
            tokio::task::yield_now().await; // signals are processed
        }
        let retiring = predecessor.map(|before| before.commit(&news)).transpose();
        let retiring = retiring.or_fail("the running server took everything back, and goes on")?;
        for worker in news {
            // A worker that has exited is detected later, like any worker that exits.
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
