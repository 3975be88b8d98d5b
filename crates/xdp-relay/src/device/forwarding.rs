//! Look-ups of next hops on a host that is not a router.
//!
//! `bpf_fib_lookup` searches the routing tables for a packet that arrived at some device. The
//! result is "forwarding is disabled" unless that device may forward. The host of a TURN server
//! usually is not a router and must not become a router, since a router forwards packets of any
//! sender. The program therefore performs look-ups for the loopback device, and forwarding is
//! enabled only for the loopback:
//!
//! - The kernel finds the same next hop as for a socket of this host. For the kernel, packets of
//!   such a socket also arrive at the loopback, and rules with `iif lo` apply.
//! - The kernel forwards no packets of other hosts. Such packets arrive at other devices, whose own
//!   settings apply (in IPv6 the setting for all devices). Packets that arrive at the loopback were
//!   sent by this host.
//!
//! The settings are `net.ipv4.conf.lo.forwarding` and `net.ipv6.conf.lo.forwarding` of the network
//! namespace. Any number except 0 enables forwarding, so the number can identify the program that
//! enabled the setting. The first server writes [`OURS`] in place of 0, and the last server that
//! exits writes 0 again. Servers of one namespace detect each other by a lock on the namespace,
//! which a killed process loses. The number left by a killed process is harmless, for the second
//! reason above, and makes the next server restore 0. Another number belongs to another program and
//! is not changed.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::presence::Presence;

/// Index of the loopback device, equal in every network namespace.
const LOOPBACK: u32 = 1;

/// Directory of the settings of the calling thread's network namespace.
const SETTINGS: &str = "/proc/sys/net";

/// Value, in place of 0, that marks a setting as enabled by this server. The value is the port of
/// TURN, which an administrator can recognise.
pub const OURS: u32 = 3478;

/// Names of the address families in the settings.
const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];

/// Enabled look-ups. The look-ups work while this value exists.
#[derive(Debug)]
pub struct Lookup {
    /// Index of the device from which the program looks up next hops. 0 means the inbound device.
    pub from: u32,
    /// Address family for which look-ups fail, if the other family works. Packets of the failing
    /// family pass to the sockets.
    pub refused: Option<Refused>,
    held: InstalledFlow,
}

impl Lookup {
    /// Returns the names of the settings that are enabled because of servers like this, such as
    /// `net.ipv4.conf.lo.forwarding`.
    #[must_use]
    pub fn switched_on(&self) -> Vec<String> {
        let ours = |setting: &&Setting| setting.value().is_ok_and(|value| value == OURS);
        self.held.settings.iter().filter(ours).map(|setting| setting.name.clone()).collect()
    }

    /// Returns a descriptor that keeps the settings enabled after [`leave`](Self::leave). Returns
    /// `None` if servers do not detect each other.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn copy_presence(&self) -> io::Result<Option<OwnedFd>> {
        self.held.presence.as_ref().map(Presence::copy).transpose()
    }

    /// Leaves the settings enabled on drop, because another process is responsible for them now.
    pub fn leave(&mut self) {
        self.held.presence = None;
    }

    /// Enables settings again that another program has disabled. Returns a message for each
    /// setting.
    pub fn renew(&self) -> Vec<String> {
        if self.from != LOOPBACK {
            return Vec::new();
        }
        let off = |setting: &&Setting| setting.value().is_ok_and(|value| value == 0);
        let renew = |setting: &Setting| match setting.write(OURS) {
            Ok(()) => Some(format!(
                "another program set {} to 0, which disables route look-ups by BPF programs: it is {OURS} again",
                setting.name
            )),
            // The error was already reported at the start.
            Err(_) => None,
        };
        self.held.settings.iter().filter(off).filter_map(renew).collect()
    }
}

/// Settings and presence of this server. The settings are restored when the last server present
/// drops this value.
#[derive(Debug)]
struct InstalledFlow {
    settings: Vec<Setting>,
    presence: Option<Presence>,
}

impl Drop for InstalledFlow {
    fn drop(&mut self) {
        // Other servers that are present still need the settings.
        let Some(_alone) = self.presence.take().and_then(Presence::leave) else { return };
        for setting in &self.settings {
            if setting.value().is_ok_and(|value| value == OURS) {
                // A process that has dropped its privileges cannot write the setting, which is
                // harmless.
                drop(setting.write(0));
            }
        }
    }
}

/// Setting of the kernel. The file remains open, because the thread that restores the setting may
/// be in another network namespace.
#[derive(Debug)]
struct Setting {
    name: String,
    file: File,
    /// Reason why the setting cannot be written.
    read_only: Option<io::Error>,
}

impl Setting {
    fn open(path: &Path) -> io::Result<Self> {
        let name = sysctl_name(path);
        match File::options().read(true).write(true).open(path) {
            Ok(file) => Ok(Self { name, file, read_only: None }),
            Err(error) => Ok(Self { name, file: File::open(path)?, read_only: Some(error) }),
        }
    }

    fn value(&self) -> io::Result<u32> {
        let mut text = [0; 16];
        let len = self.file.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..len]);
        text.trim().parse().map_err(|_| io::Error::other(format!("{} is {text}", self.name)))
    }

    /// Writes the value at the start of the file, as the kernel requires.
    fn write(&self, value: u32) -> io::Result<()> {
        if let Some(error) = &self.read_only {
            return Err(copy(error));
        }
        self.file.write_all_at(format!("{value}\n").as_bytes(), 0)
    }
}

/// Reason why look-ups fail for an address family.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct Refused {
    /// Settings that are 0 and cannot be enabled, each with the reason. Empty if the system has no
    /// such settings.
    pub settings: Vec<(PathBuf, io::Error)>,
}

impl Refused {
    fn text(&self) -> String {
        if self.settings.is_empty() {
            return format!(
                "{SETTINGS} has no settings of IPv4 or IPv6: mount /proc, or grant access to it"
            );
        }
        let settings: Vec<String> = self
            .settings
            .iter()
            .map(|(path, error)| {
                let name = sysctl_name(path);
                format!(
                    "cannot set {} to 1 ({error}), which BPF programs need for route look-ups: set it from outside with `sysctl -w {name}=1`, or start the container with `--sysctl {name}=1` (the host does not become a router)",
                    path.display()
                )
            })
            .collect();
        settings.join("; ")
    }
}

/// Returns the name of a setting: `net.ipv4.conf.lo.forwarding` for
/// `/proc/sys/net/ipv4/conf/lo/forwarding`.
fn sysctl_name(path: &Path) -> String {
    let name = path.strip_prefix("/proc/sys").unwrap_or(path);
    let parts: Vec<_> = name.iter().map(|part| part.to_string_lossy()).collect();
    parts.join(".")
}

/// Enables look-ups in the network namespace of the calling thread, with the fewest changes.
/// Nothing is changed if look-ups already work. A host without IPv6 needs no setting for IPv6.
///
/// # Errors
/// Look-ups cannot be enabled for any family. `/proc/sys` is read-only, as in containers, or the
/// process lacks `CAP_NET_ADMIN`.
pub fn prepare() -> Result<Lookup, Refused> {
    prepare_in(Path::new(SETTINGS))
}

fn prepare_in(settings: &Path) -> Result<Lookup, Refused> {
    // The lock is taken first, so no exiting server restores the values that are read below.
    let presence = Presence::take();
    let families: Vec<Family> =
        FAMILIES.iter().filter_map(|family| Family::find(&settings.join(family))).collect();
    let by_device = families.iter().filter(|family| family.by_device).count();
    // The program looks up from one device for both families. The device that works for more
    // families is selected.
    let by_loopback = families.iter().filter(|family| family.switch_on().is_ok()).count();
    let from = if by_device > by_loopback { 0 } else { LOOPBACK };
    let refused = families.iter().filter_map(|family| {
        let works = from == 0 && family.by_device;
        let error = if works { None } else { family.switch_on().err() };
        error.map(|error| (family.path.clone(), error))
    });
    let refused: Vec<_> = refused.collect();
    if by_loopback.max(by_device) == 0 {
        return Err(Refused { settings: refused });
    }
    let refused = (!refused.is_empty()).then_some(Refused { settings: refused });
    let settings = families.into_iter().filter_map(|family| family.setting.ok()).collect();
    Ok(Lookup { from, refused, held: InstalledFlow { settings, presence } })
}

fn copy(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

/// Settings of one address family that affect look-ups.
struct Family {
    /// Path of the loopback's setting.
    path: PathBuf,
    setting: io::Result<Setting>,
    /// True if look-ups work from any device, because the host is a router whose devices all
    /// forward.
    by_device: bool,
}

impl Family {
    /// Finds the settings of an address family in the directory `settings`. Returns `None` if the
    /// host does not use the family.
    fn find(settings: &Path) -> Option<Self> {
        let path = settings.join("conf/lo/forwarding");
        let setting = Setting::open(&path);
        if setting.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return None;
        }
        let all = fs::read_to_string(settings.join("conf/all/forwarding"));
        let by_device = all.is_ok_and(|value| value.trim() != "0");
        Some(Self { path, setting, by_device })
    }

    /// Enables look-ups from the loopback.
    fn switch_on(&self) -> io::Result<()> {
        let setting = self.setting.as_ref().map_err(copy)?;
        if setting.value()? == 0 { setting.write(OURS) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
