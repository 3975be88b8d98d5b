//! Resources of the process in use and their limits, from `/proc` and the control group.

use std::fs;
use std::path::{Component, Path};

/// Root of the control groups (cgroups(7)); of version 2, which has one tree.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Resident memory of the process in bytes. `None`: it cannot be read.
pub(crate) fn memory_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Memory that the control group of the process may use, in bytes: `MemoryMax` of a unit, the limit
/// of a container. `None`: unlimited or unreadable.
pub(crate) fn memory_max_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    smallest_limit(Path::new(CONTROL_GROUPS), Path::new(own))
}

/// Smallest limit of a group and the groups that it is part of.
fn smallest_limit(root: &Path, group: &Path) -> Option<u64> {
    // The path of a group outside the own namespace starts with `..`.
    let is_plain = group.components().all(|part| matches!(part, Component::Normal(_)));
    let group = if is_plain { group } else { Path::new("") };
    let limit = |group: &Path| {
        let text = fs::read_to_string(root.join(group).join("memory.max")).ok()?;
        text.trim().parse().ok()
    };
    group.ancestors().filter_map(limit).min()
}

/// Number of open file descriptors. `None`: it cannot be read.
pub(crate) fn open_files() -> Option<u64> {
    // Linux 6.2 and newer have the number as the size of the directory.
    match fs::metadata("/proc/self/fd").ok()?.len() {
        0 => Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64),
        count => Some(count),
    }
}

/// Number of file descriptors that the process may have open. `None`: it cannot be read.
pub(crate) fn open_files_max() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Name of the host. Empty: it cannot be read.
pub(crate) fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_this_process_are_known() {
        assert!(memory_bytes().unwrap() > 100_000);
        assert!(open_files().unwrap() >= 3 && open_files().unwrap() <= open_files_max().unwrap());
        assert!(!host_name().is_empty());
    }

    #[test]
    fn the_smallest_limit_of_the_groups_counts() {
        let root = std::env::temp_dir().join(format!("turnpike-groups-{}", std::process::id()));
        let own = Path::new("system.slice/turnpike.service");
        fs::create_dir_all(root.join(own)).unwrap();
        let set = |group: &Path, limit: &str| {
            fs::write(root.join(group).join("memory.max"), limit).unwrap();
        };
        assert_eq!(smallest_limit(&root, own), None, "no such control group");
        set(own, "max\n");
        assert_eq!(smallest_limit(&root, own), None);
        set(Path::new("system.slice"), "2000000\n");
        assert_eq!(smallest_limit(&root, own), Some(2_000_000));
        set(own, "3000000\n");
        assert_eq!(smallest_limit(&root, own), Some(2_000_000));
        set(Path::new(""), "1000000\n");
        assert_eq!(smallest_limit(&root, Path::new("../other")), Some(1_000_000));
        fs::remove_dir_all(root).unwrap();
    }
}
