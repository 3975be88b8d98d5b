//! Capabilities of the process, dropped after the last step of the start that needs a capability.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability, CapsHashSet};
use control::KeptCapability;

use crate::failure::{OrFail as _, Result};

/// Capabilities of the kernel path for interfaces that appear later: loading programs that read
/// packets and compute with addresses, and attaching these programs to devices.
const KERNEL_PATH: [Capability; 3] =
    [Capability::CAP_BPF, Capability::CAP_NET_ADMIN, Capability::CAP_PERFMON];

const CANNOT: &str = "cannot give up capabilities";

/// Returns the first file that belongs to another user or is in another user's directory, if this
/// process runs as root. Root needs a capability to read such a file again. Processes of other
/// users can read their files without a capability.
pub(super) fn foreign<'a>(mut files: impl Iterator<Item = &'a Path>) -> Option<PathBuf> {
    let owner = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.uid());
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let others = |path: &Path| owner(path).is_some_and(|uid| uid != 0);
    files.find(|path| others(path) || path.parent().is_some_and(others)).map(Path::to_owned)
}

/// Threads that retain capabilities.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keeper<'a> {
    /// The thread of the kernel path, which receives no data of clients and peers.
    KernelPath,
    /// The calling thread and all threads started later.
    Others {
        /// File of another user.
        foreign: Option<&'a Path>,
        /// True if the kernel demands a capability for elements of open maps.
        maps_want_it: bool,
    },
}

/// Drops all capabilities of the calling thread except the capabilities needed later. Returns the
/// retained capabilities, with reasons.
pub(super) fn keep(keeper: Keeper<'_>) -> Result<Vec<KeptCapability>> {
    let have = caps::read(None, CapSet::Permitted).or_fail(CANNOT)?;
    let kept = wanted(&have, keeper);
    let keep: CapsHashSet = kept.iter().map(|(capability, _)| *capability).collect();
    give_up(&keep).or_fail(CANNOT)?;
    let told = |(capability, why): (Capability, String)| KeptCapability {
        name: capability.to_string(),
        why,
    };
    Ok(kept.into_iter().map(told).collect())
}

/// Returns the capabilities of a thread that are needed later, in a fixed order.
fn wanted(have: &HashSet<Capability>, keeper: Keeper<'_>) -> Vec<(Capability, String)> {
    let mut kept = Vec::new();
    match keeper {
        Keeper::KernelPath => {
            let why = "the kernel path, in one thread: interfaces that come later";
            kept.extend(KERNEL_PATH.iter().map(|capability| (*capability, why.to_owned())));
            if !have.contains(&Capability::CAP_BPF) {
                // Before Linux 5.8, `CAP_SYS_ADMIN` includes `CAP_BPF` and `CAP_PERFMON`.
                kept.push((Capability::CAP_SYS_ADMIN, why.to_owned()));
            }
        }
        Keeper::Others { foreign, maps_want_it } => {
            if maps_want_it {
                let why = "routes of workers, before Linux 5.19".to_owned();
                kept.push((Capability::CAP_BPF, why));
            }
            if let Some(file) = foreign {
                let why = format!("{} belongs to another user", file.display());
                kept.push((Capability::CAP_DAC_OVERRIDE, why));
            }
        }
    }
    kept.retain(|(capability, _)| have.contains(capability));
    kept
}

/// Limits the calling thread and its children to the capabilities in `keep`.
fn give_up(keep: &CapsHashSet) -> Result<(), caps::errors::CapsError> {
    if caps::read(None, CapSet::Permitted)?.is_empty() && keep.is_empty() {
        // The sandbox of this process may refuse the calls.
        return Ok(());
    }
    // A change of the bounding set needs a capability, so the bounding set is changed first.
    // Without that capability no capability can be gained, because the process has no_new_privs.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for capability in caps::read(None, CapSet::Bounding)?.difference(keep) {
            caps::drop(None, CapSet::Bounding, *capability)?;
        }
    }
    // Kernels before 4.3 have no ambient set.
    let _ = caps::clear(None, CapSet::Ambient);
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, keep)?;
    caps::set(None, CapSet::Permitted, keep)
}

/// Calls `start` in a thread without capabilities. Threads that `start` creates have none, either.
///
/// # Errors
/// The kernel refuses the change.
pub(crate) fn without_capabilities<T: Send>(start: impl FnOnce() -> T + Send) -> Result<T> {
    with_no_other(&CapsHashSet::new(), start)
}

/// Calls `start` in a thread for workers. The thread retains only the capability for elements of
/// maps, if the calling thread has that capability.
///
/// # Errors
/// The kernel refuses the change.
pub(super) fn as_worker<T: Send>(start: impl FnOnce() -> T + Send) -> Result<T> {
    let have = caps::read(None, CapSet::Permitted).or_fail(CANNOT)?;
    let keep = have.into_iter().filter(|capability| *capability == Capability::CAP_BPF);
    with_no_other(&keep.collect(), start)
}

fn with_no_other<T: Send>(keep: &CapsHashSet, start: impl FnOnce() -> T + Send) -> Result<T> {
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| give_up(keep).map(|()| start()));
        thread.join()
    });
    outcome.unwrap_or_else(|panic| resume_unwind(panic)).or_fail(CANNOT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_and_there_is_kept() {
        let all: HashSet<Capability> = caps::all();
        let names = |kept: Vec<(Capability, String)>| {
            kept.iter().map(|(capability, _)| capability.to_string()).collect::<Vec<_>>()
        };
        let others = |foreign, maps_want_it| Keeper::Others { foreign, maps_want_it };
        let path = Keeper::KernelPath;
        assert_eq!(names(wanted(&all, others(None, false))), [""; 0]);
        assert_eq!(names(wanted(&all, path)), ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"]);
        let file = Some(Path::new("/srv/t.toml"));
        assert_eq!(names(wanted(&all, others(file, false))), ["CAP_DAC_OVERRIDE"]);
        assert_eq!(names(wanted(&all, others(file, true))), ["CAP_BPF", "CAP_DAC_OVERRIDE"]);
        let some = HashSet::from([Capability::CAP_NET_ADMIN, Capability::CAP_SYS_ADMIN]);
        assert_eq!(names(wanted(&some, path)), ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
        assert_eq!(names(wanted(&HashSet::new(), others(file, true))), [""; 0]);
    }

    #[test]
    fn a_thread_without_capabilities_has_none() {
        let status = || fs::read_to_string("/proc/thread-self/status").unwrap();
        let inside = without_capabilities(|| std::thread::spawn(status).join().unwrap()).unwrap();
        for set in ["CapInh", "CapPrm", "CapEff"] {
            let line = inside.lines().find(|line| line.starts_with(set)).unwrap();
            assert!(line.ends_with("0000000000000000"), "{line}");
        }
        let mine =
            |text: String| text.lines().find(|line| line.starts_with("CapPrm")).map(str::to_owned);
        assert_eq!(mine(status()), mine(status()));
    }
}
