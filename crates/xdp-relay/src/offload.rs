//! Start and supervision of the kernel path: selects devices and hooks, and reports why faster
//! hooks are not used.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use linux_net::Clock;
use turn_types::{Instant, WorkerId};

use crate::bpf::object::{TAP, TC};
use crate::device::{self, Device, Hook, forwarding, may_leave};
use crate::error::KernelPathError;
use crate::options::{Options, Proof};
use crate::parked::ParkedPath;
use crate::path::{KernelPath, Link};
use crate::routes::Routes;

/// Minimum interval between warnings that another program disables look-ups.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Index of the loopback, equal in every network namespace.
const LOOPBACK: u32 = 1;

/// Operator's configuration of the kernel path.
#[derive(Clone, Debug)]
pub struct OffloadConfig {
    /// Hook for all devices. `None` selects a hook for each device.
    pub hook: Option<Hook>,
    /// Names of the interfaces to use. If empty, the interfaces that carry the server's traffic are
    /// used.
    pub interfaces: Vec<String>,
    /// Addresses of listeners.
    pub listeners: Vec<IpAddr>,
    /// Addresses of relay sockets.
    pub relays: Vec<IpAddr>,
    /// Maximum number of channels.
    pub flows: u32,
}

/// State of an interface of the kernel path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Present name of the interface.
    pub name: String,
    /// Hook at which the program receives the interface's packets. `None` if all packets pass to
    /// the sockets.
    pub hook: Option<Hook>,
    /// Reason why no faster hook is used. Empty if no faster hook exists.
    pub why: String,
    /// Index of the interface. 0 if the interface does not exist.
    index: u32,
    /// Name from the operator's configuration. Empty for an interface that was detected.
    named: String,
    /// State of the device at the last attempt to attach the program.
    tried: Option<Device>,
}

/// Running kernel path.
#[derive(Debug)]
pub struct Offload {
    path: KernelPath,
    wanted: OffloadConfig,
    attached: Vec<Attachment>,
    /// Enabled look-ups. Restores the host's settings on drop.
    lookup: forwarding::Lookup,
    /// Time of the last warning that another program disables look-ups.
    warned: Option<Instant>,
    programs: Programs,
}

/// State of the BPF programs.
#[derive(Debug)]
enum Programs {
    /// The programs are not loaded yet.
    Loading,
    /// The programs are loaded and can be attached.
    Loaded,
    /// The kernel refused a program, or a program failed the self-test. Contains the reason.
    Refused(String),
    /// The devices belong to another process.
    Ended,
}

/// Starts the kernel path and loads the programs. The caller must call [`Offload::update`]
/// immediately, which attaches the programs. Interfaces may also appear later.
///
/// # Errors
/// Returns the reason as a message for an operator. Sockets relay all packets in that case.
pub fn start(wanted: &OffloadConfig) -> Result<Offload, String> {
    let mut offload = begin(wanted, KernelPath::make)?;
    offload.begin_with_programs()?;
    Ok(offload)
}

/// Starts the kernel path without the programs, since loading takes time. Workers can already have
/// [routes](Offload::routes). No packet is relayed by these routes until [`Offload::load`] has
/// loaded the programs.
///
/// # Errors
/// Returns the reason as a message for an operator. Sockets relay all packets in that case.
pub fn prepare(wanted: &OffloadConfig) -> Result<Offload, String> {
    begin(wanted, KernelPath::prepare)
}

fn begin(
    wanted: &OffloadConfig,
    make: impl FnOnce(Options) -> Result<KernelPath, KernelPathError>,
) -> Result<Offload, String> {
    let missing = device::missing_capabilities();
    if !missing.is_empty() {
        return Err(format!(
            "missing capabilities: {} (run as root, or set AmbientCapabilities under systemd)",
            missing.join(" and ")
        ));
    }
    let mut own = wanted.listeners.iter().chain(&wanted.relays);
    if wanted.interfaces.is_empty() && own.all(IpAddr::is_loopback) {
        return Err("only the loopback carries the server's traffic".to_owned());
    }
    let lookup = forwarding::prepare().map_err(|refused| refused.to_string())?;
    let options = Options { flows: wanted.flows, look_up_from: lookup.from, proof: Proof::SERVER };
    let path = make(options).map_err(|error| error.to_string())?;
    Ok(Offload {
        path,
        wanted: wanted.clone(),
        attached: Vec::new(),
        lookup,
        warned: None,
        programs: Programs::Loading,
    })
}

impl Offload {
    /// Loads the programs of a [prepared](prepare) kernel path, unless they are loaded already.
    /// Sockets relay all packets until then.
    ///
    /// # Errors
    /// The kernel refused a program, or a program failed the self-test. Returns the reason as a
    /// message for an operator.
    pub fn load(&mut self) -> Result<(), String> {
        match self.programs {
            Programs::Loading => {}
            Programs::Loaded | Programs::Refused(_) | Programs::Ended => return Ok(()),
        }
        let loaded = self.path.load().map_err(|error| error.to_string());
        let loaded = loaded.and_then(|()| self.begin_with_programs());
        loaded.inspect_err(|why| self.programs = Programs::Refused(why.clone()))
    }

    fn begin_with_programs(&mut self) -> Result<(), String> {
        for hook in [Hook::Xdp, Hook::Tc] {
            // The time is read for each hook. Loading may take longer than a route lives, for
            // example on an emulated processor.
            self.path.self_test(Clock::instant(), hook).map_err(|error| error.to_string())?;
        }
        // Relays of this host send to each other over the loopback. If the tap cannot be attached
        // there, sockets relay these packets.
        drop(self.path.tap("lo", LOOPBACK));
        self.programs = Programs::Loaded;
        Ok(())
    }

    /// Returns the routes of a worker.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn routes(&self, worker: WorkerId) -> Result<Routes, KernelPathError> {
        self.path.routes(worker)
    }

    /// Sets the addresses of relay sockets. The next [`update`](Self::update) selects interfaces by
    /// these addresses.
    pub fn set_relays(&mut self, relays: Vec<IpAddr>) {
        self.wanted.relays = relays;
    }

    /// Returns the examined interfaces and their states.
    #[must_use]
    pub fn attached(&self) -> &[Attachment] {
        &self.attached
    }

    /// Returns the reason why no interface has the program, in words for an operator. Returns
    /// `None` if an interface has the program.
    #[must_use]
    pub fn idle_because(&self) -> Option<&str> {
        match &self.programs {
            Programs::Loading => Some("its programs are being loaded"),
            Programs::Refused(why) => Some(why),
            Programs::Ended => Some("another process has the interfaces"),
            Programs::Loaded if self.attached.iter().any(|one| one.hook.is_some()) => None,
            Programs::Loaded if self.attached.is_empty() => {
                Some("no interface carries the server's traffic now")
            }
            Programs::Loaded => Some("no interface accepts the program now"),
        }
    }

    /// Returns the number of packets with a known route that passed to user space, by reason.
    #[must_use]
    pub fn passed(&self) -> Vec<(&'static str, u64)> {
        self.path.passed()
    }

    /// Returns the number of packets with partial checksums that the programs relayed or delivered.
    /// Such packets have a sender on the same machine.
    #[must_use]
    pub fn partial_checksums(&self) -> u64 {
        self.path.partial_checksums()
    }

    /// Returns the number of frames that XDP programs of this host redirected and that did not
    /// leave. Returns `None` if no program of this process is at XDP, or the kernel does not report
    /// such frames.
    #[must_use]
    pub fn redirects_lost(&self) -> Option<u64> {
        self.path.redirects_lost()
    }

    /// Returns the address family whose packets pass to the sockets, with the reason, if only the
    /// other family works.
    #[must_use]
    pub const fn refused(&self) -> Option<&forwarding::Refused> {
        self.lookup.refused.as_ref()
    }

    /// Returns the kernel settings that are enabled because of servers like this.
    #[must_use]
    pub fn switched_on(&self) -> Vec<String> {
        self.lookup.switched_on()
    }

    /// Returns the memory of the maps in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.path.memory()
    }

    /// Removes programs of killed servers from interfaces. Returns a message for each interface.
    pub fn sweep(&self) -> Vec<String> {
        let swept = list().and_then(|devices| {
            device::leftovers::sweep(&devices, [TC, TAP]).map_err(|error| error.to_string())
        });
        let removed = |name| format!("{name}: removed the programs of a killed server");
        swept.map_or_else(|error| vec![error], |names| names.into_iter().map(removed).collect())
    }

    /// Enables look-ups again if another program has disabled them. Returns messages at most once
    /// per minute, because the other program may disable look-ups repeatedly.
    pub fn renew_lookup(&mut self, now: Instant) -> Vec<String> {
        let changes = self.lookup.renew();
        if changes.is_empty() || self.warned.is_some_and(|at| now < at + WARN_EVERY) {
            return Vec::new();
        }
        self.warned = Some(now);
        changes
    }

    /// Examines the devices of the host, and attaches the program to the devices that carry the
    /// server's traffic now. The caller must call this function after each notification of the
    /// kernel.
    ///
    /// Devices are identified by index, under any name. A device keeps the program while the device
    /// exists. A device that refused the program is tried again when the device has changed, and by
    /// every call with `retries`. Returns messages about changes.
    ///
    /// # Errors
    /// The devices cannot be listed.
    pub fn update(&mut self, retries: bool) -> Result<Vec<String>, String> {
        match self.programs {
            Programs::Loaded => {}
            Programs::Loading | Programs::Refused(_) | Programs::Ended => return Ok(Vec::new()),
        }
        let devices = list()?;
        let wanted = self.wanted_of(&devices)?;
        self.path.keep(|index| devices.iter().any(|device| device.index == index));
        let before = std::mem::take(&mut self.attached);
        for device in &devices {
            let known = before.iter().find(|one| one.index == device.index);
            let after = match known {
                // A device keeps the program while the device is down.
                Some(known) if known.hook.is_some() => {
                    // An error was already reported when the program was attached.
                    drop(self.keep_tap(device));
                    Attachment { name: device.name.clone(), ..known.clone() }
                }
                _ if !wanted.contains(&device.index) => continue,
                Some(known) if !retries && known.tried.as_ref() == Some(device) => known.clone(),
                _ => self.attach(device),
            };
            self.attached.push(after);
        }
        self.attached.sort_by(|a, b| a.name.cmp(&b.name));
        for name in &self.wanted.interfaces {
            if self.attached.iter().all(|one| one.named != *name) {
                self.attached.push(Attachment::missing(name));
            }
        }
        let changes = changes(&before, &self.attached);
        // Drivers report outbound support only after programs are attached.
        let devices = if changes.is_empty() { devices } else { list()? };
        self.update_links(&devices);
        Ok(changes)
    }

    /// Copies the descriptors with which the programs continue without this process, for the
    /// successor. Returns `None` if no program is attached, or a program is attached without a
    /// link, as on older kernels.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn park(&self) -> Result<Option<ParkedPath>, KernelPathError> {
        let Some(path) = self.copy()? else { return Ok(None) };
        let presence = self.lookup.copy_presence().map_err(KernelPathError::Kernel)?;
        Ok(Some(path.with(presence)))
    }

    /// Copies the descriptors like [`park`](Self::park), for a process that runs in addition to
    /// this server. The copy does not include the presence lock, so it does not keep settings of
    /// the host enabled.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn copy(&self) -> Result<Option<ParkedPath>, KernelPathError> {
        if self.attached.iter().all(|one| one.hook.is_none()) {
            return Ok(None);
        }
        let links = self.path.copy_links().map_err(KernelPathError::Kernel)?;
        let Some(links) = links else { return Ok(None) };
        Ok(Some(ParkedPath::new(self.path.copy_leases()?, links)))
    }

    /// Returns the number of changes so far that concern the descriptors of [`copy`](Self::copy).
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.path.changes()
    }

    /// Hands over programs, routes and settings to the successor, which has the
    /// [parked](Self::park) path. All three remain when this process exits.
    pub fn leave(&mut self) {
        self.path.leave_routes();
        self.lookup.leave();
        self.programs = Programs::Ended;
    }

    /// Detaches the programs from all devices permanently. The successor attaches separate
    /// programs.
    pub fn end(&mut self) {
        self.programs = Programs::Ended;
        self.path.keep(|_| false);
        self.attached.clear();
    }

    /// Returns the indices of the devices that should have the program.
    fn wanted_of(&self, devices: &[Device]) -> Result<BTreeSet<u32>, String> {
        let OffloadConfig { interfaces, listeners, relays, .. } = &self.wanted;
        if interfaces.is_empty() {
            return device::carrying(devices, listeners, relays).map_err(unlisted);
        }
        let named = devices.iter().filter(|device| interfaces.contains(&device.name));
        Ok(named.map(|device| device.index).collect())
    }

    /// Passes the devices, and the outbound support of each, to the programs.
    fn update_links(&mut self, devices: &[Device]) {
        // The generic hook does not send through the driver's XDP support.
        let by_xdp =
            if self.wanted.hook == Some(Hook::XdpGeneric) { Hook::XdpGeneric } else { Hook::Xdp };
        for device in devices {
            let (index, mac) = (device.index, device.mac);
            // Without a tap on the device, no direction can be proven.
            let leaves = |hook| may_leave(device, hook) && self.path.is_tapped(index);
            let (leave_xdp, leave_tc) = (leaves(by_xdp), leaves(Hook::Tc));
            let hook = self.attached.iter().find(|one| one.index == index).and_then(|one| one.hook);
            // Merged packets arrive as one packet at the generic hook, and in the drivers of other
            // virtual devices.
            let partial_at_xdp = device.veth && hook == Some(Hook::Xdp);
            let link = Link { index, mac, leave_xdp, leave_tc, partial_at_xdp };
            // A device with an index beyond the limit remains unknown, so packets of that device
            // are not relayed.
            drop(self.path.set_link(link));
        }
    }

    /// Attaches the tap to a device, unless the device is a port. Packets of a bridge or bond leave
    /// first by the bridge or bond and then by a port. A tap on the port would store the port as
    /// the proof's interface, but no route leads to the port.
    fn keep_tap(&mut self, device: &Device) -> Result<(), KernelPathError> {
        match (device.port, self.path.is_tapped(device.index)) {
            (true, true) => self.path.untap(device.index),
            (false, false) => self.path.tap(&device.name, device.index),
            (true, false) | (false, true) => Ok(()),
        }
    }

    /// Attaches a program to a device, at the first hook that accepts the program.
    fn attach(&mut self, device: &Device) -> Attachment {
        let choice = device::choose(device, self.wanted.hook);
        let mut why = choice.left_out;
        let mut programs = None;
        for hook in choice.hooks {
            match self.path.attach(&device.name, device.index, hook) {
                Ok(()) => {
                    programs = Some(hook);
                    break;
                }
                Err(error) => why.push(format!("{hook}: {}", advice(&error))),
            }
        }
        if programs.is_some()
            && let Err(error) = self.keep_tap(device)
        {
            why.push(format!(
                "packets that leave by it are relayed by sockets: {}",
                advice(&error)
            ));
        }
        let is_named = self.wanted.interfaces.contains(&device.name);
        Attachment {
            name: device.name.clone(),
            hook: programs,
            why: why.join("; "),
            index: device.index,
            named: if is_named { device.name.clone() } else { String::new() },
            tried: Some(device.clone()),
        }
    }
}

impl Attachment {
    /// Creates the state of an interface that an operator named, and that does not exist.
    fn missing(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            hook: None,
            why: "no such interface".to_owned(),
            index: 0,
            named: name.to_owned(),
            tried: None,
        }
    }

    /// Returns true if two states have equal reports.
    fn is_same(&self, other: &Self) -> bool {
        (self.index, &self.name, self.hook, &self.why)
            == (other.index, &other.name, other.hook, &other.why)
    }
}

/// Returns the changes between two states, as messages.
fn changes(before: &[Attachment], after: &[Attachment]) -> Vec<String> {
    let mut changes = Vec::new();
    for one in after {
        let known = before.iter().find(|known| known.index == one.index && one.index != 0);
        match known {
            Some(known) if known.name != one.name => {
                changes.push(format!("{one}, which was {}", known.name));
            }
            _ if before.iter().any(|known| known.is_same(one)) => {}
            _ => changes.push(one.to_string()),
        }
    }
    let gone = |known: &&Attachment| after.iter().all(|one| one.index != known.index);
    for known in before.iter().filter(|known| known.index != 0).filter(gone) {
        let is_told = after.iter().any(|one| one.name == known.name);
        if !is_told {
            changes.push(format!("{} is gone", known.name));
        }
    }
    changes
}

fn list() -> Result<Vec<Device>, String> {
    device::devices().map_err(unlisted)
}

fn unlisted(error: io::Error) -> String {
    format!("cannot list this host's interfaces: {error}")
}

impl fmt::Display for Attachment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hook {
            Some(hook) => write!(out, "{} by {hook}", self.name)?,
            None => write!(out, "{} by sockets", self.name)?,
        }
        if self.why.is_empty() { Ok(()) } else { write!(out, " ({})", self.why) }
    }
}

/// Returns the message for a device that refused a program.
fn advice(error: &KernelPathError) -> String {
    match error.os_error() {
        Some(libc::EBUSY | libc::EEXIST) => {
            "another XDP program is attached (see `ip link show`)".to_owned()
        }
        Some(libc::ERANGE) => "its MTU is too large for XDP".to_owned(),
        Some(libc::EOPNOTSUPP) => "its driver does not run XDP programs".to_owned(),
        Some(libc::EPERM) => {
            "not permitted (needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON)".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
