//! Pins of maps in the BPF file system. Pinned maps outlive the process, so a successor could
//! continue with the routes.
//!
//! Each process has a separate directory, named by pid namespace and pid, because containers may
//! share a file system. The directory is removed at an orderly exit. Directories of killed
//! processes are removed at the next start. Without renewed leases, the routes in the maps are not
//! valid.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aya::maps::MapData;

/// Parent directory of the pins.
const ROOT: &str = "/sys/fs/bpf/turnpike";

/// Pinned maps. Dropping this value removes the pins.
#[derive(Debug)]
pub(crate) struct Pins {
    directory: PathBuf,
}

impl Pins {
    /// Pins maps by name. Returns `None` without a BPF file system to which this process may write,
    /// for example under systemd's `ProtectKernelTunables`. Nothing else needs the file system.
    pub(crate) fn make(maps: &[(&'static str, &MapData)]) -> Option<Self> {
        if !is_bpf_file_system(Path::new("/sys/fs/bpf")) {
            return None;
        }
        let space = fs::metadata("/proc/self/ns/pid").ok()?.ino();
        sweep(Path::new(ROOT), space);
        let directory = Path::new(ROOT).join(format!("{space}-{}", std::process::id()));
        // The directory may exist from an earlier process with this pid.
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory).ok()?;
        let pins = Self { directory };
        for (name, map) in maps {
            map.pin(pins.directory.join(name)).ok()?;
        }
        Some(pins)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        // If this fails, the next start removes the leftovers.
        drop(fs::remove_dir_all(&self.directory));
    }
}

/// Removes the directories of dead processes of this pid namespace.
fn sweep(root: &Path, space: u64) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(&format!("{space}-")));
        let process = process.and_then(|process| process.parse().ok()).filter(|one| *one > 0);
        if process.is_some_and(|process| !is_alive(process)) {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

/// Returns true if the process exists. The check uses a signal, because `/proc` may hide processes
/// with protected memory.
fn is_alive(process: libc::pid_t) -> bool {
    // SAFETY: the call takes only numbers, and signal 0 is not delivered.
    let sent = unsafe { libc::kill(process, 0) };
    sent == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

fn is_bpf_file_system(path: &Path) -> bool {
    is_mounted(path, &fs::read_to_string("/proc/self/mounts").unwrap_or_default())
}

/// Returns true if the mount table has a BPF file system at this path.
fn is_mounted(path: &Path, mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        words.next().map(Path::new) == Some(path) && words.next() == Some("bpf")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bpf_file_system_is_one() {
        let mounts = "proc /proc proc rw 0 0\nbpf /sys/fs/bpf bpf rw,mode=700 0 0\n";
        assert!(is_mounted(Path::new("/sys/fs/bpf"), mounts));
        assert!(!is_mounted(Path::new("/proc"), mounts));
        assert!(!is_mounted(Path::new("/sys/fs"), mounts));
    }

    #[test]
    fn directories_of_the_dead_are_swept_and_others_stay() -> io::Result<()> {
        let root = std::env::temp_dir().join(format!("turnpike-pins-{}", std::process::id()));
        let living = format!("1-{}", std::process::id());
        // No process has a number beyond the kernel's maximum of 2^22.
        for name in [living.as_str(), "1-4194305", "2-4194305", "notes"] {
            fs::create_dir_all(root.join(name))?;
        }
        sweep(&root, 1);
        let mut left: Vec<_> = fs::read_dir(&root)?
            .map(|entry| entry.map(|entry| entry.file_name().into_string().unwrap_or_default()))
            .collect::<io::Result<_>>()?;
        left.sort();
        fs::remove_dir_all(&root)?;
        assert_eq!(left, [living.as_str(), "2-4194305", "notes"]);
        Ok(())
    }
}
