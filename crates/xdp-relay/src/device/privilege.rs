//! What a process needs for BPF programs that forward packets.

use std::fs;

/// What this process lacks for BPF programs: names of capabilities, none if it has them.
///
/// `CAP_BPF` makes maps and loads programs, `CAP_NET_ADMIN` loads those that see packets and puts them
/// on devices. `CAP_SYS_ADMIN` includes the first. The system may forbid more than this says, as where
/// a filter of system calls is: what decides is to try.
#[must_use]
pub fn missing_capabilities() -> Vec<&'static str> {
    missing(&fs::read_to_string("/proc/thread-self/status").unwrap_or_default())
}

/// Of a thread with this status.
fn missing(status: &str) -> Vec<&'static str> {
    // Bits of linux/capability.h.
    const NET_ADMIN: u32 = 12;
    const SYS_ADMIN: u32 = 21;
    const BPF: u32 = 39;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    let mut missing = Vec::new();
    if !has(NET_ADMIN) {
        missing.push("CAP_NET_ADMIN");
    }
    if !has(BPF) && !has(SYS_ADMIN) {
        missing.push("CAP_BPF");
    }
    missing
}

/// The running kernel's release, such as `6.1.0-18-amd64`; empty where `/proc` does not tell.
#[must_use]
pub fn kernel_release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// Whether the running kernel is older than a release, which is given as (6, 3).
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
        assert_eq!(with(0), ["CAP_NET_ADMIN", "CAP_BPF"]);
        assert_eq!(with(1 << 12), ["CAP_BPF"]);
        assert_eq!(with(1 << 39), ["CAP_NET_ADMIN"]);
        assert_eq!(with(1 << 21), ["CAP_NET_ADMIN"]);
        assert_eq!(with(1 << 12 | 1 << 39), [""; 0]);
        assert_eq!(with(1 << 12 | 1 << 21), [""; 0]);
        // Where the system does not tell, nothing is there.
        assert_eq!(missing(""), ["CAP_NET_ADMIN", "CAP_BPF"]);
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
