//! Starting: which devices, by which hooks, and why not by better ones.

use std::fmt::{self, Write as _};
use std::io;
use std::net::IpAddr;

use turn_types::{Instant, WorkerId};

use crate::device::{self, Device, Hook, forwarding, may_leave};
use crate::limits::SHOW_EVERY;
use crate::path::{KernelPath, Link, Options};
use crate::routes::Routes;
use crate::trouble::Trouble;

/// What an operator wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// By which hook; `None` chooses by device.
    pub hook: Option<Hook>,
    /// On which interfaces; empty: on those that carry the server's traffic.
    pub interfaces: Vec<String>,
    /// Where clients come in.
    pub listeners: Vec<IpAddr>,
    /// What relay sockets are bound to.
    pub relays: Vec<IpAddr>,
    /// Channels that there is room for.
    pub flows: u32,
}

/// What became of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The interface.
    pub name: String,
    /// By which hook its packets are seen; `None`: sockets see them all.
    pub hook: Option<Hook>,
    /// Why not by a faster one; empty, if there is none.
    pub why: String,
    index: u32,
}

/// A kernel path at work.
#[derive(Debug)]
pub struct Offload {
    path: KernelPath,
    wanted: Option<Hook>,
    attached: Vec<Attached>,
    /// Put back when it ends.
    lookup: forwarding::Lookup,
}

/// Starts the kernel path.
///
/// # Errors
/// Why there is none, in words for an operator: sockets relay all.
pub fn start(wanted: &Wanted, now: Instant) -> Result<Offload, String> {
    let missing = device::missing_capabilities();
    if !missing.is_empty() {
        return Err(format!(
            "this process lacks {} (run it as root, or under systemd set AmbientCapabilities)",
            missing.join(" and ")
        ));
    }
    let lookup = forwarding::prepare().map_err(|refused| refused.to_string())?;
    let options =
        Options { flows: wanted.flows, look_up_from: lookup.from, show_every: SHOW_EVERY };
    let mut path = KernelPath::make(options).map_err(|error| error.to_string())?;
    for hook in [Hook::Xdp, Hook::Tc] {
        path.self_test(now, hook).map_err(|error| error.to_string())?;
    }
    let names = match wanted.interfaces.as_slice() {
        [] => device::carrying(&wanted.listeners, &wanted.relays).map_err(unlisted)?,
        named => named.to_vec(),
    };
    if names.is_empty() {
        return Err("no interface carries the server's traffic but the loopback".to_owned());
    }
    let attached = names
        .into_iter()
        .map(|name| Attached { name, hook: None, why: String::new(), index: 0 })
        .collect();
    let mut offload = Offload { path, wanted: wanted.hook, attached, lookup };
    offload.look()?;
    if offload.attached.iter().all(|one| one.hook.is_none()) {
        let mut why = "no interface can take the program".to_owned();
        for one in &offload.attached {
            // Writing to a string cannot fail.
            let _ = write!(why, "; {}: {}", one.name, one.why);
        }
        return Err(why);
    }
    Ok(offload)
}

impl Offload {
    /// The routes of a worker.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn routes(&self, worker: WorkerId) -> Result<Routes, Trouble> {
        self.path.routes(worker)
    }

    /// The interfaces looked at.
    #[must_use]
    pub fn attached(&self) -> &[Attached] {
        &self.attached
    }

    /// Packets of known routes left to user space, by reason.
    #[must_use]
    pub fn passed(&self) -> Vec<(&'static str, u64)> {
        self.path.passed()
    }

    /// The family, of two, whose packets go by the sockets, and why.
    #[must_use]
    pub const fn refused(&self) -> Option<&forwarding::Refused> {
        self.lookup.refused.as_ref()
    }

    /// Bytes of memory that the maps take.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.path.memory()
    }

    /// Looks at the devices of the host anew: they come and go, and so do their addresses. To be
    /// called every few seconds. Returns what has changed, in words.
    ///
    /// # Errors
    /// The devices cannot be listed.
    pub fn look(&mut self) -> Result<Vec<String>, String> {
        let devices = list()?;
        let mut news = Vec::new();
        for place in 0..self.attached.len() {
            let before = self.attached[place].clone();
            let device = devices.iter().find(|device| device.name == before.name);
            let after = match device {
                // The program is on it still: devices keep it while they are down.
                Some(device) if device.index == before.index && before.hook.is_some() => continue,
                Some(device) => self.hang_on(device),
                None => Attached {
                    why: "there is no such interface".to_owned(),
                    hook: None,
                    index: 0,
                    name: before.name.clone(),
                },
            };
            if after.hook != before.hook || after.why != before.why {
                news.push(after.to_string());
            }
            self.attached[place] = after;
        }
        // Drivers tell what leaves by them when programs are on them.
        let devices = if news.is_empty() { devices } else { list()? };
        self.learn(&devices);
        Ok(news)
    }

    /// Tells the programs which devices there are, and what may leave by them.
    fn learn(&mut self, devices: &[Device]) {
        // A generic hook sends by other means than a driver's.
        let by_xdp =
            if self.wanted == Some(Hook::XdpGeneric) { Hook::XdpGeneric } else { Hook::Xdp };
        for device in devices {
            let (index, mac) = (device.index, device.mac);
            let (leave_xdp, leave_tc) = (may_leave(device, by_xdp), may_leave(device, Hook::Tc));
            // One with a number too high stays unknown: what goes by it is not relayed.
            drop(self.path.know(Link { index, mac, leave_xdp, leave_tc }));
        }
        self.path.keep(|index| devices.iter().any(|device| device.index == index));
    }

    /// Puts a program on a device, by the first hook that takes it.
    fn hang_on(&mut self, device: &Device) -> Attached {
        let choice = device::choose(device, self.wanted);
        let mut why = choice.left_out;
        let mut hung = None;
        for hook in choice.hooks {
            match self.path.attach(&device.name, device.index, hook) {
                Ok(()) => {
                    hung = Some(hook);
                    break;
                }
                Err(error) => why.push(format!("{hook}: {}", advice(&error))),
            }
        }
        Attached { name: device.name.clone(), hook: hung, why: why.join("; "), index: device.index }
    }
}

fn list() -> Result<Vec<Device>, String> {
    device::devices().map_err(unlisted)
}

fn unlisted(error: io::Error) -> String {
    format!("cannot list this host's interfaces: {error}")
}

impl fmt::Display for Attached {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hook {
            Some(hook) => write!(out, "{} by {hook}", self.name)?,
            None => write!(out, "{} by sockets", self.name)?,
        }
        if self.why.is_empty() { Ok(()) } else { write!(out, " ({})", self.why) }
    }
}

/// What to do about a device that does not take a program.
fn advice(error: &Trouble) -> String {
    match error.os_error() {
        Some(libc::EBUSY | libc::EEXIST) => {
            "another XDP program is on it (`ip link show` tells)".to_owned()
        }
        Some(libc::ERANGE) => "its MTU is too large for XDP".to_owned(),
        Some(libc::EOPNOTSUPP) => "its driver does not run XDP programs".to_owned(),
        Some(libc::EPERM) => {
            "the system forbids it (CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are wanted)".to_owned()
        }
        _ => error.to_string(),
    }
}
