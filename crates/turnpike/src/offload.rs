//! The kernel path, as the settings want it: started with the server, looked after while it runs.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use control::{OffloadInfo, OffloadInterface, OffloadWatch};
use linux_net::{Clock, HostChanges};
use settings::{OffloadMode, Settings};
use turn_types::WorkerId;
use xdp_relay::device::Hook;
use xdp_relay::device::forwarding::OURS;
use xdp_relay::{Attachment, Offload, OffloadConfig, ParkedPath, Routes};

/// Time at which the kernel path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// At once.
    Now,
    /// By [`KernelPath::begin`]: another process has the interfaces.
    BehindAnother,
    /// Likewise, and its programs are loaded then: calls wait for this start.
    BehindCalls,
}

impl Beginning {
    /// The reason why no interface has the programs yet, for the log of the start.
    pub(crate) const fn waits_for(self) -> &'static str {
        match self {
            Self::Now => "waiting for an interface that carries the server's traffic",
            Self::BehindAnother => "the running server has the interfaces until this one serves",
            Self::BehindCalls => "begins when the calls of the process before are served",
        }
    }
}

/// The kernel path of a server, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct KernelPath(Option<Arc<Mutex<Offload>>>);

impl KernelPath {
    /// Starts it where the settings and this host allow. The outcome is in the facts: without
    /// it sockets relay everything.
    pub(crate) fn start(
        settings: &Settings,
        listeners: &[SocketAddr],
        relays: Vec<IpAddr>,
        beginning: Beginning,
    ) -> (Self, OffloadInfo) {
        let mut info = OffloadInfo {
            mode: settings.offload.mode.label().to_owned(),
            flows_max: settings.offload.flows.get(),
            ..OffloadInfo::default()
        };
        let hook = match settings.offload.mode {
            OffloadMode::Off => {
                info.off_because = Some("offload.mode is \"off\"".to_owned());
                return (Self(None), info);
            }
            OffloadMode::Auto => None,
            OffloadMode::Xdp => Some(Hook::Xdp),
            OffloadMode::XdpGeneric => Some(Hook::XdpGeneric),
            OffloadMode::Tc => Some(Hook::Tc),
        };
        let wanted = OffloadConfig {
            hook,
            interfaces: settings
                .offload
                .interfaces
                .iter()
                .map(|name| name.as_str().to_owned())
                .collect(),
            listeners: listeners.iter().map(SocketAddr::ip).collect(),
            relays,
            flows: settings.offload.flows.get(),
        };
        let started = match beginning {
            Beginning::Now | Beginning::BehindAnother => xdp_relay::start(&wanted),
            Beginning::BehindCalls => xdp_relay::prepare(&wanted),
        };
        match started {
            Ok(mut offload) => {
                tell(offload.sweep());
                for setting in offload.switched_on() {
                    tracing::info!(
                        "kernel path: {setting} is {OURS}, which was 0: the host does not become a \
                         router by it; the last server that ends puts it back"
                    );
                }
                if let Some(refused) = offload.refused() {
                    tracing::warn!(
                        "kernel path: what leaves by one family goes by sockets: {refused}"
                    );
                }
                // The start's own lines tell what became of each.
                if beginning == Beginning::Now
                    && let Err(error) = offload.update(true)
                {
                    tracing::warn!("kernel path: {error}");
                }
                info.interfaces = told(offload.attached());
                (Self(Some(Arc::new(Mutex::new(offload)))), info)
            }
            Err(why) => {
                info.off_because = Some(why);
                (Self(None), info)
            }
        }
    }

    /// Begins what has [waited](Beginning) until clients are served.
    pub(crate) fn begin(&self) {
        let loaded = self.offload().map_or(Ok(()), |mut offload| offload.load());
        if let Err(why) = loaded {
            tracing::warn!("kernel path: sockets relay everything: {why}");
        }
        self.look(HostChanges::ALL);
    }

    /// Copies the descriptors by which it goes on without this process; `None` where it does not.
    pub(crate) fn park(&self) -> Option<ParkedPath> {
        let parked = self.offload()?.park();
        parked
            .inspect_err(|error| tracing::warn!(%error, "the kernel path ends with this process"))
            .ok()
            .flatten()
    }

    /// The same, which is free to end.
    pub(crate) fn downgrade(&self) -> WeakKernelPath {
        WeakKernelPath(self.0.as_ref().map(Arc::downgrade).unwrap_or_default())
    }

    /// Leaves it, as it is, to the next process.
    pub(crate) fn leave(&self) {
        if let Some(mut offload) = self.offload() {
            offload.leave();
        }
    }

    /// Leaves the interfaces to another process.
    pub(crate) fn end(&self) {
        if let Some(mut offload) = self.offload() {
            offload.end();
        }
    }

    /// The routes of a worker; `None` without a kernel path.
    pub(crate) fn routes(&self, worker: WorkerId) -> Option<Routes> {
        let routes = self.offload()?.routes(worker);
        routes
            .inspect_err(|error| {
                tracing::warn!(worker = worker.0, %error, "the worker relays by sockets alone");
            })
            .ok()
    }

    /// Bytes of the kernel's memory in use, with the workers' share.
    pub(crate) fn memory(&self) -> u64 {
        self.offload().map_or(0, |offload| offload.memory())
    }

    /// Looks at parts of the host that may have changed.
    pub(crate) fn look(&self, changes: HostChanges) {
        let Some(mut offload) = self.offload() else { return };
        if changes.forwarding {
            for line in offload.renew_lookup(Clock::instant()) {
                tracing::warn!("kernel path: {line}");
            }
        }
        if changes.devices {
            match offload.update(changes == HostChanges::ALL) {
                Ok(news) => tell(news),
                Err(error) => tracing::warn!("kernel path: {error}"),
            }
        }
    }

    /// Source of its state, for queries.
    pub(crate) fn watch(&self) -> Option<Arc<dyn OffloadWatch>> {
        self.0.as_ref().map(|_| Arc::new(self.clone()) as _)
    }

    fn offload(&self) -> Option<MutexGuard<'_, Offload>> {
        // What it holds is whole whatever happened to who looked at it.
        self.0.as_ref().map(|offload| offload.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The kernel path of a server, as long as it has one: it ends when the server does.
#[derive(Clone, Debug)]
pub(crate) struct WeakKernelPath(Weak<Mutex<Offload>>);

impl WeakKernelPath {
    /// A copy for a keeper, if another one than at the changes that it knows; the inner `None`:
    /// there is nothing to copy.
    pub(crate) fn changed_copy(&self, known: &mut Option<u64>) -> Option<Option<ParkedPath>> {
        let offload = self.0.upgrade()?;
        let offload = offload.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = Some(offload.changes());
        if std::mem::replace(known, changes) == changes {
            return None;
        }
        Some(offload.copy().ok().flatten())
    }
}

fn tell(news: Vec<String>) {
    for line in news {
        tracing::info!("kernel path: {line}");
    }
}

impl OffloadWatch for KernelPath {
    fn interfaces(&self) -> Vec<OffloadInterface> {
        self.offload().map(|offload| told(offload.attached())).unwrap_or_default()
    }

    fn idle_because(&self) -> Option<String> {
        self.offload()?.idle_because().map(ToOwned::to_owned)
    }

    fn settings(&self) -> Vec<String> {
        self.offload().map(|offload| offload.switched_on()).unwrap_or_default()
    }

    fn passed(&self) -> Vec<(&'static str, u64)> {
        self.offload().map(|offload| offload.passed()).unwrap_or_default()
    }

    fn partial_checksums(&self) -> u64 {
        self.offload().map(|offload| offload.partial_checksums()).unwrap_or_default()
    }

    fn redirects_lost(&self) -> Option<u64> {
        self.offload()?.redirects_lost()
    }
}

fn told(attached: &[Attachment]) -> Vec<OffloadInterface> {
    let one = |attached: &Attachment| OffloadInterface {
        name: attached.name.clone(),
        hook: attached.hook.map(|hook| hook.to_string()),
        why: attached.why.clone(),
    };
    attached.iter().map(one).collect()
}
