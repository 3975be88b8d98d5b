//! Lets the program look up a packet's way on a host that is no router.
//!
//! `bpf_fib_lookup` asks the routing tables on behalf of a device that a packet came by, and answers
//! "forwarding is disabled" unless that device may forward. The host of a TURN server usually is no
//! router, and must not become one: it would carry anybody's packets anywhere. So the program asks on
//! behalf of the loopback device, and that alone is let forward:
//!
//! - The kernel finds the very way that it would find for a socket of this host, whose packets come
//!   "from the loopback" in its eyes, too; rules that say `iif lo` hold for it.
//! - It forwards nobody's packet for it: what comes from outside comes by another device, whose own
//!   setting decides (in IPv6 the one for all devices). What does come by the loopback was sent by
//!   this host.
//!
//! The settings are `net.ipv4.conf.lo.forwarding` and `net.ipv6.conf.lo.forwarding` of the network
//! namespace. [`Lookup`] puts back what it changed. A process that is killed leaves them at 1, which
//! is harmless for the second of these reasons, and the next one finds them as it needs them. When two
//! processes share a namespace and the one that changed them ends, the other's lookups fail, and its
//! packets go to the sockets until it is started again.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// The loopback device's number, the same in every network namespace.
const LOOPBACK: u32 = 1;

/// Where the settings of the calling thread's network namespace are.
const SETTINGS: &str = "/proc/sys/net";

/// The families, as the settings name them.
const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];

/// A lookup that works, as long as this exists.
#[derive(Debug)]
pub struct Lookup {
    /// The number of the device that the program is to look up from; 0: the one that the packet came
    /// by.
    pub from: u32,
    /// The family that it does not work for, of two: its packets go to the sockets.
    pub refused: Option<Refused>,
    /// Put back when this is dropped.
    _changed: Vec<Changed>,
}

/// A setting that was 0 before, and is put back. It stays open: whoever puts it back may be in another
/// network namespace then.
#[derive(Debug)]
struct Changed(File);

impl Drop for Changed {
    fn drop(&mut self) {
        // A process that has given up its privileges by now cannot put it back; it is harmless.
        drop(write(&self.0, b"0\n"));
    }
}

/// Why the program can look nothing up.
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
                "{SETTINGS} shows no settings of IPv4 or IPv6: mount /proc, or grant it"
            );
        }
        let settings: Vec<String> = self
            .settings
            .iter()
            .map(|(path, error)| {
                let name = sysctl_name(path);
                format!(
                    "{} cannot be set to 1 ({error}), and without it the kernel tells BPF programs no way: set it from outside with `sysctl -w {name}=1`, or start the container with `--sysctl {name}=1` (it makes no router of the host)",
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

/// Makes lookups work in the network namespace of the calling thread, and changes as little as it can
/// for that: nothing where they work already. A host without IPv6 needs nothing for it.
///
/// # Errors
/// They can be made to work for no family: `/proc/sys` is read-only, as it is in containers, or the
/// process lacks `CAP_NET_ADMIN`.
pub fn prepare() -> Result<Lookup, Refused> {
    prepare_in(Path::new(SETTINGS))
}

fn prepare_in(settings: &Path) -> Result<Lookup, Refused> {
    let families: Vec<Family> =
        FAMILIES.iter().filter_map(|family| Family::prepare(&settings.join(family))).collect();
    let by_loopback = families.iter().filter(|family| family.by_loopback.is_ok()).count();
    let by_device = families.iter().filter(|family| family.by_device).count();
    // The program looks up from one place for both families: from where more of them work.
    let from = if by_device > by_loopback { 0 } else { LOOPBACK };

    let mut changed = Vec::new();
    let mut refused = Vec::new();
    for Family { setting, by_loopback, by_device } in families {
        match by_loopback {
            _ if from == 0 && by_device => {}
            Ok(change) => changed.extend(change),
            Err(error) => refused.push((setting, error)),
        }
    }
    if by_loopback.max(by_device) == 0 {
        return Err(Refused { settings: refused });
    }
    let refused = (!refused.is_empty()).then_some(Refused { settings: refused });
    Ok(Lookup { from, refused, _changed: changed })
}

/// What lookups of one family work by.
struct Family {
    /// The loopback's setting.
    setting: PathBuf,
    /// They work from the loopback, perhaps after a change; or what keeps it from being made.
    by_loopback: Result<Option<Changed>, io::Error>,
    /// They work from any device: the host is a router, whose devices all forward.
    by_device: bool,
}

impl Family {
    /// `settings`: the directory of the family's settings. `None`: the host does without the family.
    fn prepare(settings: &Path) -> Option<Self> {
        let setting = settings.join("conf/lo/forwarding");
        let by_loopback = match is_set(&setting) {
            Ok(true) => Ok(None),
            Ok(false) => Changed::make(&setting).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => Err(error),
        };
        let by_device = is_set(&settings.join("conf/all/forwarding")).unwrap_or(false);
        Some(Self { setting, by_loopback, by_device })
    }
}

impl Changed {
    fn make(setting: &Path) -> io::Result<Self> {
        let file = File::options().write(true).open(setting)?;
        write(&file, b"1\n")?;
        Ok(Self(file))
    }
}

fn is_set(setting: &Path) -> io::Result<bool> {
    Ok(fs::read_to_string(setting)?.trim() != "0")
}

/// At the start of the file: the kernel takes no number behind one that was written before.
fn write(setting: &File, number: &[u8]) -> io::Result<()> {
    setting.write_all_at(number, 0)
}

#[cfg(test)]
mod tests;
