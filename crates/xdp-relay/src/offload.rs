//! Starting: which devices, by which hooks, and why not by better ones.

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

/// Interval of warnings that another program disables look-ups.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The number of the loopback, in every network namespace.
const LOOPBACK: u32 = 1;

/// The operator's configuration of the kernel path.
#[derive(Clone, Debug)]
pub struct OffloadConfig {
    /// By which hook; `None` chooses by device.
    pub hook: Option<Hook>,
    /// Interfaces to use; empty: the interfaces of the server's traffic.
    pub interfaces: Vec<String>,
    /// Listener addresses.
    pub listeners: Vec<IpAddr>,
    /// Addresses of relay sockets.
    pub relays: Vec<IpAddr>,
    /// Channels that there is room for.
    pub flows: u32,
}

/// State of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The interface's present name.
    pub name: String,
    /// By which hook its packets are seen; `None`: sockets see them all.
    pub hook: Option<Hook>,
    /// Why not by a faster one; empty, if there is none.
    pub why: String,
    /// 0 for one that is not there.
    index: u32,
    /// The name that an operator gave; empty for one that was found.
    named: String,
    /// The device when it was last tried.
    tried: Option<Device>,
}

/// A kernel path at work.
#[derive(Debug)]
pub struct Offload {
    path: KernelPath,
    wanted: OffloadConfig,
    attached: Vec<Attachment>,
    /// Restores the settings on drop.
    lookup: forwarding::Lookup,
    /// Time of the last warning that another program disables look-ups.
    warned: Option<Instant>,
    programs: Programs,
}

/// State of the programs.
#[derive(Debug)]
enum Programs {
    /// They are being loaded.
    Loading,
    /// They may be attached.
    Loaded,
    /// The kernel refused them, or one does not work: the reason.
    Refused(String),
    /// The devices are another process's.
    Ended,
}

/// Starts the kernel path. Interfaces may appear later: call [`Offload::update`] at once.
///
/// # Errors
/// The reason, as a message for an operator: sockets relay all.
pub fn start(wanted: &OffloadConfig) -> Result<Offload, String> {
    let mut offload = begin(wanted, KernelPath::make)?;
    offload.begin_with_programs()?;
    Ok(offload)
}

/// Starts the kernel path without its programs, whose loading takes time: workers can have
/// [routes](Offload::routes), by which no packet is relayed until they are [loaded](Offload::load).
///
/// # Errors
/// The reason, as a message for an operator: sockets relay all.
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
    /// Loads the programs of one that was [prepared](prepare), unless they are. Without them
    /// sockets relay all.
    ///
    /// # Errors
    /// The kernel refuses, or one does not work on it: the reason, as a message for an operator.
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
            // Loading may take longer than a route lives, as on an emulated processor.
            self.path.self_test(Clock::instant(), hook).map_err(|error| error.to_string())?;
        }
        // Relays of this host send to each other by it. Where that is not seen, sockets relay it.
        drop(self.path.tap("lo", LOOPBACK));
        self.programs = Programs::Loaded;
        Ok(())
    }

    /// The routes of a worker.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn routes(&self, worker: WorkerId) -> Result<Routes, KernelPathError> {
        self.path.routes(worker)
    }

    /// Sets the addresses that are relayed from. The next [update](Self::update) of all interfaces
    /// goes by them.
    pub fn set_relays(&mut self, relays: Vec<IpAddr>) {
        self.wanted.relays = relays;
    }

    /// The interfaces looked at.
    #[must_use]
    pub fn attached(&self) -> &[Attachment] {
        &self.attached
    }

    /// Why no interface has the program, in words for an operator; `None`: one has.
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

    /// Packets of known routes left to user space, by reason.
    #[must_use]
    pub fn passed(&self) -> Vec<(&'static str, u64)> {
        self.path.passed()
    }

    /// Packets with partial checksums that the programs took: those of senders on the same machine.
    #[must_use]
    pub fn partial_checksums(&self) -> u64 {
        self.path.partial_checksums()
    }

    /// Frames that programs of XDP on this host redirected and that did not leave; `None`: none of
    /// these is at XDP, or they cannot be seen.
    #[must_use]
    pub fn redirects_lost(&self) -> Option<u64> {
        self.path.redirects_lost()
    }

    /// The family, of two, whose packets go to the sockets, with the reason.
    #[must_use]
    pub const fn refused(&self) -> Option<&forwarding::Refused> {
        self.lookup.refused.as_ref()
    }

    /// The settings of the kernel that are on because of servers like this one.
    #[must_use]
    pub fn switched_on(&self) -> Vec<String> {
        self.lookup.switched_on()
    }

    /// Bytes of memory that the maps take.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.path.memory()
    }

    /// Removes leftovers of killed servers from interfaces. Returns a message for each.
    pub fn sweep(&self) -> Vec<String> {
        let swept = list().and_then(|devices| {
            device::leftovers::sweep(&devices, [TC, TAP]).map_err(|error| error.to_string())
        });
        let removed = |name| format!("{name}: removed the programs of a killed server");
        swept.map_or_else(|error| vec![error], |names| names.into_iter().map(removed).collect())
    }

    /// Enables look-ups again if another program disabled them. Returns messages, once a minute at
    /// most: it may happen repeatedly.
    pub fn renew_lookup(&mut self, now: Instant) -> Vec<String> {
        let changes = self.lookup.renew();
        if changes.is_empty() || self.warned.is_some_and(|at| now < at + WARN_EVERY) {
            return Vec::new();
        }
        self.warned = Some(now);
        changes
    }

    /// Examines the devices of the host, and attaches the program to the devices that carry the
    /// server's traffic now: call it after each notification of the kernel. Devices are identified
    /// by their numbers, under any name. A device keeps the program as long as it exists. One that
    /// refused it is tried again when it has changed, and by every call with `retries`. Returns
    /// messages about changes.
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
                // Devices keep the program while they are down.
                Some(known) if known.hook.is_some() => {
                    // An error has been reported when it got the program.
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
        // Drivers report their outbound support when programs are attached.
        let devices = if changes.is_empty() { devices } else { list()? };
        self.update_links(&devices);
        Ok(changes)
    }

    /// Copies the descriptors by which the programs go on without this process, for the next one.
    /// `None` where they do not: none is attached, or one in the way of older kernels.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn park(&self) -> Result<Option<ParkedPath>, KernelPathError> {
        let Some(path) = self.copy()? else { return Ok(None) };
        let presence = self.lookup.copy_presence().map_err(KernelPathError::Kernel)?;
        Ok(Some(path.with(presence)))
    }

    /// The same for a process that stays beside this one: settings of the host are as they would be
    /// without it.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn copy(&self) -> Result<Option<ParkedPath>, KernelPathError> {
        if self.attached.iter().all(|one| one.hook.is_none()) {
            return Ok(None);
        }
        let links = self.path.copy_links().map_err(KernelPathError::Kernel)?;
        let Some(links) = links else { return Ok(None) };
        Ok(Some(ParkedPath::new(self.path.copy_leases()?, links)))
    }

    /// Changes until now of the descriptors that would be [copied](Self::copy).
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.path.changes()
    }

    /// Leaves everything as it is to the next process, which has the [parked](Self::park) path:
    /// programs, routes and settings stay when this process ends.
    pub fn leave(&mut self) {
        self.path.leave_routes();
        self.lookup.leave();
        self.programs = Programs::Ended;
    }

    /// Detaches the programs from all devices for good: the next process of the server attaches its
    /// own.
    pub fn end(&mut self) {
        self.programs = Programs::Ended;
        self.path.keep(|_| false);
        self.attached.clear();
    }

    /// The numbers of the devices that are to have the program.
    fn wanted_of(&self, devices: &[Device]) -> Result<BTreeSet<u32>, String> {
        let OffloadConfig { interfaces, listeners, relays, .. } = &self.wanted;
        if interfaces.is_empty() {
            return device::carrying(devices, listeners, relays).map_err(unlisted);
        }
        let named = devices.iter().filter(|device| interfaces.contains(&device.name));
        Ok(named.map(|device| device.index).collect())
    }

    /// Passes the devices, and their outbound support, to the programs.
    fn update_links(&mut self, devices: &[Device]) {
        // A generic hook sends by other means than a driver's.
        let by_xdp =
            if self.wanted.hook == Some(Hook::XdpGeneric) { Hook::XdpGeneric } else { Hook::Xdp };
        for device in devices {
            let (index, mac) = (device.index, device.mac);
            // Without a tap on the device, no direction is ever proven.
            let leaves = |hook| may_leave(device, hook) && self.path.is_tapped(index);
            let (leave_xdp, leave_tc) = (leaves(by_xdp), leaves(Hook::Tc));
            let hook = self.attached.iter().find(|one| one.index == index).and_then(|one| one.hook);
            // By the generic hook merged packets come as one, and by drivers of other virtual
            // devices.
            let partial_at_xdp = device.veth && hook == Some(Hook::Xdp);
            let link = Link { index, mac, leave_xdp, leave_tc, partial_at_xdp };
            // A device with a number beyond the limit stays unknown: its packets are not relayed.
            drop(self.path.set_link(link));
        }
    }

    /// Attaches the tap to a device, unless it is a port. Packets of a bridge or bond leave by that
    /// first and then by its port: a tap there would prove the port, to which no route leads.
    fn keep_tap(&mut self, device: &Device) -> Result<(), KernelPathError> {
        match (device.port, self.path.is_tapped(device.index)) {
            (true, true) => self.path.untap(device.index),
            (false, false) => self.path.tap(&device.name, device.index),
            (true, false) | (false, true) => Ok(()),
        }
    }

    /// Attaches a program to a device, by the first hook that accepts it.
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
    /// An interface that an operator named, and that is not there.
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

    /// True if two states are reported as the same.
    fn is_same(&self, other: &Self) -> bool {
        (self.index, &self.name, self.hook, &self.why)
            == (other.index, &other.name, other.hook, &other.why)
    }
}

/// Changes between two states, as messages.
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

/// Advice for a device that refused a program.
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
