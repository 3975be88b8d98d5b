//! Look-ups of next hops on a host that is no router.
//!
//! `bpf_fib_lookup` looks up the routing tables for a packet that came by some device, and answers
//! "forwarding is disabled" unless that device may forward. The host of a TURN server usually is no
//! router, and must not become one: it would forward packets of any sender. So the program looks up
//! for the loopback device, and forwarding is enabled for that alone:
//!
//! - The kernel finds the same next hop as for a socket of this host, whose packets come from the
//!   loopback in its view, too; rules with `iif lo` apply.
//! - It forwards no packets of others: they come by other devices, whose own setting decides (in
//!   IPv6 the one for all devices). Packets that come by the loopback were sent by this host.
//!
//! The settings are `net.ipv4.conf.lo.forwarding` and `net.ipv6.conf.lo.forwarding` of the network
//! namespace. Any number but 0 enables them, so the number identifies the program that did: the
//! first server writes [`OURS`] in place of 0, and the last one that ends writes 0 again. Servers
//! of one namespace detect each other by a lock on it, which a killed process loses; the number
//! that it leaves behind is harmless, for the second reason above, and makes the next server
//! restore 0. Another number belongs to another program, and stays.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::presence::Presence;

/// The loopback device's number, the same in every network namespace.
const LOOPBACK: u32 = 1;

/// Settings of the calling thread's network namespace.
const SETTINGS: &str = "/proc/sys/net";

/// The value that marks a setting as enabled by this server, in place of 0. The port of TURN, so
/// that an administrator recognises it.
pub const OURS: u32 = 3478;

/// The families, as the settings name them.
const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];

/// A lookup that works, as long as this exists.
#[derive(Debug)]
pub struct Lookup {
    /// Number of the device that the program looks up from; 0: the inbound one.
    pub from: u32,
    /// The family that it does not work for, of two: its packets go to the sockets.
    pub refused: Option<Refused>,
    held: InstalledFlow,
}

impl Lookup {
    /// The settings that are on because of servers like this one, such as
    /// `net.ipv4.conf.lo.forwarding`.
    #[must_use]
    pub fn switched_on(&self) -> Vec<String> {
        let ours = |setting: &&Setting| setting.value().is_ok_and(|value| value == OURS);
        self.held.settings.iter().filter(ours).map(|setting| setting.name.clone()).collect()
    }

    /// A descriptor by which the settings stay as they are when this is [left](Self::leave);
    /// `None`: servers do not detect each other.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn copy_presence(&self) -> io::Result<Option<OwnedFd>> {
        self.held.presence.as_ref().map(Presence::copy).transpose()
    }

    /// Leaves the settings to another process.
    pub fn leave(&mut self) {
        self.held.presence = None;
    }

    /// Enables settings again that another program disabled. Returns a message for each.
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
            // Already reported at the start.
            Err(_) => None,
        };
        self.held.settings.iter().filter(off).filter_map(renew).collect()
    }
}

/// The settings, restored when the last server present drops this.
#[derive(Debug)]
struct InstalledFlow {
    settings: Vec<Setting>,
    presence: Option<Presence>,
}

impl Drop for InstalledFlow {
    fn drop(&mut self) {
        // While others are there, they go on with it.
        let Some(_alone) = self.presence.take().and_then(Presence::leave) else { return };
        for setting in &self.settings {
            if setting.value().is_ok_and(|value| value == OURS) {
                // A process that has given up its privileges by now cannot; it is harmless.
                drop(setting.write(0));
            }
        }
    }
}

/// A setting of the kernel. The file stays open: the thread that restores it may be in another
/// network namespace.
#[derive(Debug)]
struct Setting {
    name: String,
    file: File,
    /// Why it cannot be written.
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

    /// Writes at the start of the file, as the kernel requires.
    fn write(&self, value: u32) -> io::Result<()> {
        if let Some(error) = &self.read_only {
            return Err(copy(error));
        }
        self.file.write_all_at(format!("{value}\n").as_bytes(), 0)
    }
}

/// The reason for which look-ups fail.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct Refused {
    /// The settings that are 0 and cannot be made 1, each with the reason; none where the system
    /// shows no settings at all.
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

/// `net.ipv4.conf.lo.forwarding` of `/proc/sys/net/ipv4/conf/lo/forwarding`.
fn sysctl_name(path: &Path) -> String {
    let name = path.strip_prefix("/proc/sys").unwrap_or(path);
    let parts: Vec<_> = name.iter().map(|part| part.to_string_lossy()).collect();
    parts.join(".")
}

/// Enables look-ups in the network namespace of the calling thread, with the fewest changes: none
/// where they work already. A host without IPv6 needs none for it.
///
/// # Errors
/// They cannot be enabled for any family: `/proc/sys` is read-only, as in containers, or the
/// process lacks `CAP_NET_ADMIN`.
pub fn prepare() -> Result<Lookup, Refused> {
    prepare_in(Path::new(SETTINGS))
}

fn prepare_in(settings: &Path) -> Result<Lookup, Refused> {
    // First, so that no ending server restores the value found here.
    let presence = Presence::take();
    let families: Vec<Family> =
        FAMILIES.iter().filter_map(|family| Family::find(&settings.join(family))).collect();
    let by_device = families.iter().filter(|family| family.by_device).count();
    // The program looks up from one device for both families: the one that works for more of them.
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

/// Settings of one family that look-ups depend on.
struct Family {
    /// The loopback's setting.
    path: PathBuf,
    setting: io::Result<Setting>,
    /// Look-ups work from any device: the host is a router, whose devices all forward.
    by_device: bool,
}

impl Family {
    /// `settings`: the directory of the family's settings. `None`: the host does without the
    /// family.
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

    /// Has lookups work from the loopback.
    fn switch_on(&self) -> io::Result<()> {
        let setting = self.setting.as_ref().map_err(copy)?;
        if setting.value()? == 0 { setting.write(OURS) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
