//! Capabilities needed for BPF programs that forward packets.

use std::fs;

/// Returns the names of the capabilities for BPF programs that the calling thread lacks. The result
/// is empty if the thread has all.
///
/// - `CAP_BPF` creates maps and loads programs.
/// - `CAP_NET_ADMIN` loads programs that access packets, and attaches programs to devices.
/// - `CAP_PERFMON` permits arbitrary address computation. Without `CAP_PERFMON` the kernel accepts
///   only programs that it can verify under speculative execution, and refuses this program with
///   `EACCES`.
///
/// `CAP_SYS_ADMIN` includes `CAP_BPF` and `CAP_PERFMON`. The system may impose further
/// restrictions, for example a system call filter. Only an attempt shows if programs can be loaded.
#[must_use]
pub fn missing_capabilities() -> Vec<&'static str> {
    missing(&fs::read_to_string("/proc/thread-self/status").unwrap_or_default())
}

/// Returns the capabilities that a thread with this status lacks.
fn missing(status: &str) -> Vec<&'static str> {
    // Bit numbers of linux/capability.h.
    const NET_ADMIN: u32 = 12;
    const SYS_ADMIN: u32 = 21;
    const PERFMON: u32 = 38;
    const BPF: u32 = 39;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    let wanted = [
        ("CAP_BPF", has(BPF) || has(SYS_ADMIN)),
        ("CAP_NET_ADMIN", has(NET_ADMIN)),
        ("CAP_PERFMON", has(PERFMON) || has(SYS_ADMIN)),
    ];
    wanted.into_iter().filter(|(_, has)| !has).map(|(name, _)| name).collect()
}

/// Returns the running kernel's release, such as `6.1.0-18-amd64`. Empty if `/proc` does not
/// contain the release.
#[must_use]
pub fn kernel_release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// Returns true if the running kernel is older than a release, such as (6, 3).
#[must_use]
pub fn kernel_is_older_than(release: (u32, u32)) -> bool {
    version(&kernel_release()) < release
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let with = |bits: u64| missing(&format!("Name:\tx\nCapEff:\t{bits:016x}\nCapBnd:\t0\n"));
        let all = ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"];
        assert_eq!(with(0), all);
        assert_eq!(with(1 << 12), ["CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(with(1 << 38), ["CAP_BPF", "CAP_NET_ADMIN"]);
        assert_eq!(with(1 << 39), ["CAP_NET_ADMIN", "CAP_PERFMON"]);
        assert_eq!(with(1 << 21), ["CAP_NET_ADMIN"]);
        assert_eq!(with(1 << 12 | 1 << 38 | 1 << 39), [""; 0]);
        assert_eq!(with(1 << 12 | 1 << 21), [""; 0]);
        // Without the kernel's report, all capabilities are missing.
        assert_eq!(missing(""), all);
    }

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert_eq!(version("6.1.0-18-amd64"), (6, 1));
        assert_eq!(version("5.18-rc3"), (5, 18));
        assert!(version("5.9.1") < (5, 18));
        assert!(!kernel_is_older_than((2, 6)));
        assert!(kernel_is_older_than((99, 0)));
    }
}
