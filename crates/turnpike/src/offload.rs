//! Kernel path of a server: started with the server according to the settings, and updated after
//! changes of the host.

mod device_thread;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Weak};

use control::{OffloadInfo, OffloadInterface, OffloadWatch};
use linux_net::{Clock, HostChanges, force_receive_buffer};
use settings::{OffloadMode, Settings};
use turn_types::WorkerId;
use xdp_relay::device::Hook;
use xdp_relay::{Attachment, Offload, OffloadConfig, ParkedPath, Routes};

use self::device_thread::DeviceThread;

/// Condition for the start of the kernel path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// The kernel path starts immediately.
    Now,
    /// The kernel path starts with [`KernelPath::begin`], because another process has the
    /// interfaces until then.
    BehindAnother,
    /// The kernel path starts with [`KernelPath::begin`], which also loads the programs. Loading
    /// takes time for which the imported calls would wait.
    BehindCalls,
}

impl Beginning {
    /// Returns the reason why no interface has the programs yet, for the log of the start.
    pub(crate) const fn waits_for(self) -> &'static str {
        match self {
            Self::Now => "waiting for an interface that carries the server's traffic",
            Self::BehindAnother => "the running server has the interfaces until this one serves",
            Self::BehindCalls => "begins when the calls of the process before are served",
        }
    }
}

/// Kernel path of a server, if started.
#[derive(Clone, Debug)]
pub(crate) struct KernelPath(Option<Arc<DeviceThread>>);

impl KernelPath {
    /// Starts the kernel path, if the settings and this host permit. The returned facts contain the
    /// outcome. Without a kernel path sockets relay all packets.
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
        let begin = move || begin(&wanted, beginning);
        match DeviceThread::start(begin) {
            Ok(thread) => {
                info.interfaces =
                    thread.call(|offload| told(offload.attached())).unwrap_or_default();
                (Self(Some(Arc::new(thread))), info)
            }
            Err(why) => {
                info.off_because = Some(why);
                (Self(None), info)
            }
        }
    }

    /// Calls a function in the thread of the kernel path, which has the capabilities. Returns
    /// `None` without a kernel path.
    fn call<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut Offload) -> T + Send + 'static,
    ) -> Option<T> {
        self.0.as_ref()?.call(function)
    }

    /// Calls `confine`, which narrows the rights of the calling thread, in the thread of the kernel
    /// path. Returns `None` without a kernel path.
    pub(crate) fn confine<T: Send + 'static>(
        &self,
        confine: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.call(|_| confine())
    }

    /// Sets the receive buffers of sockets, beyond the limit of the host if this process has the
    /// capability. Otherwise the buffers are unchanged.
    pub(crate) fn force_receive_buffers(&self, sockets: Vec<OwnedFd>, bytes: usize) {
        let force = move || {
            for socket in &sockets {
                // Without the capability the buffer is unchanged.
                let _ = force_receive_buffer(socket.as_fd(), bytes);
            }
        };
        match &self.0 {
            Some(thread) => drop(thread.call(move |_| force())),
            None => force(),
        }
    }

    /// Starts the parts that have [waited](Beginning) until clients are served.
    pub(crate) fn begin(&self) {
        if let Some(Err(why)) = self.call(Offload::load) {
            tracing::warn!("kernel path: sockets relay everything: {why}");
        }
        self.look(HostChanges::ALL);
    }

    /// Duplicates the descriptors with which the kernel path continues without this process.
    /// Returns `None` if the kernel path cannot continue.
    pub(crate) fn park(&self) -> Option<ParkedPath> {
        self.call(|offload| offload.park())?
            .inspect_err(|error| tracing::warn!(%error, "the kernel path ends with this process"))
            .ok()
            .flatten()
    }

    /// Returns a weak reference, which does not keep the kernel path running.
    pub(crate) fn downgrade(&self) -> WeakKernelPath {
        WeakKernelPath(self.0.as_ref().map(Arc::downgrade).unwrap_or_default())
    }

    /// Detaches from the kernel path, which continues to relay for the successor.
    pub(crate) fn leave(&self) {
        self.call(Offload::leave);
    }

    /// Stops the kernel path, and releases the interfaces for another process.
    pub(crate) fn end(&self) {
        self.call(Offload::end);
    }

    /// Returns the routes of a worker, or `None` without a kernel path.
    pub(crate) fn routes(&self, worker: WorkerId) -> Option<Routes> {
        self.call(move |offload| offload.routes(worker))?
            .inspect_err(|error| {
                tracing::warn!(worker = worker.0, %error, "the worker relays by sockets alone");
            })
            .ok()
    }

    /// Returns the kernel memory in use in bytes, including the workers' share.
    pub(crate) fn memory(&self) -> u64 {
        self.call(|offload| offload.memory()).unwrap_or_default()
    }

    /// Examines the parts of the host that may have changed.
    pub(crate) fn look(&self, changes: HostChanges) {
        self.call(move |offload| look(offload, changes));
    }

    /// Follows a change of the relay addresses.
    pub(crate) fn follow_relays(&self, relays: Vec<IpAddr>) {
        self.call(move |offload| {
            offload.set_relays(relays);
            look(offload, HostChanges::ALL);
        });
    }

    /// Returns access to the state of the kernel path, for queries.
    pub(crate) fn watch(&self) -> Option<Arc<dyn OffloadWatch>> {
        self.0.as_ref().map(|_| Arc::new(self.clone()) as _)
    }
}

/// Returns a sentence about the changes that the kernel path makes to the host, and how to avoid
/// them. `settings` are the kernel settings that were switched on.
pub(crate) fn changes_of_host(settings: &[String]) -> String {
    let switched_on = if settings.is_empty() {
        String::new()
    } else {
        let names = settings.join(" and ");
        format!(
            "has switched on {names} until the last server ends (the host does not become a router), "
        )
    };
    format!(
        "it keeps capabilities in one thread, {switched_on}and shows this host's firewall one packet of each flow in two seconds; \
         offload.mode = \"off\" goes without"
    )
}

/// Starts the kernel path, in its thread.
fn begin(wanted: &OffloadConfig, beginning: Beginning) -> Result<Offload, String> {
    let mut offload = match beginning {
        Beginning::Now | Beginning::BehindAnother => xdp_relay::start(wanted),
        Beginning::BehindCalls => xdp_relay::prepare(wanted),
    }?;
    tell(offload.sweep());
    if let Some(refused) = offload.refused() {
        tracing::warn!("kernel path: what leaves by one family goes by sockets: {refused}");
    }
    // The log lines of the start report the outcome for each interface.
    if beginning == Beginning::Now
        && let Err(error) = offload.update(true)
    {
        tracing::warn!("kernel path: {error}");
    }
    Ok(offload)
}

fn look(offload: &mut Offload, changes: HostChanges) {
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

/// Weak reference to the kernel path of a server, which stops with the server.
#[derive(Clone, Debug)]
pub(crate) struct WeakKernelPath(Weak<DeviceThread>);

impl WeakKernelPath {
    /// Returns copies of the descriptors for a keeper, if the kernel path has changed since the
    /// state `known`. The inner value is `None` if nothing can be copied.
    pub(crate) fn changed_copy(&self, known: &mut Option<u64>) -> Option<Option<ParkedPath>> {
        let before = *known;
        let (changes, copy) = self.0.upgrade()?.call(move |offload| {
            let changes = Some(offload.changes());
            (changes, (changes != before).then(|| offload.copy().ok().flatten()))
        })?;
        *known = changes;
        copy
    }
}

fn tell(news: Vec<String>) {
    for line in news {
        tracing::info!("kernel path: {line}");
    }
}

impl OffloadWatch for KernelPath {
    fn interfaces(&self) -> Vec<OffloadInterface> {
        self.call(|offload| told(offload.attached())).unwrap_or_default()
    }

    fn idle_because(&self) -> Option<String> {
        self.call(|offload| offload.idle_because().map(ToOwned::to_owned))?
    }

    fn settings(&self) -> Vec<String> {
        self.call(|offload| offload.switched_on()).unwrap_or_default()
    }

    fn passed(&self) -> Vec<(&'static str, u64)> {
        self.call(|offload| offload.passed()).unwrap_or_default()
    }

    fn partial_checksums(&self) -> u64 {
        self.call(|offload| offload.partial_checksums()).unwrap_or_default()
    }

    fn redirects_lost(&self) -> Option<u64> {
        self.call(|offload| offload.redirects_lost())?
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
