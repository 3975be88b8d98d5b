//! Capacity of the table of open files, reserved before the pause.

use std::io;
use std::os::fd::AsRawFd as _;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// Number of descriptors that a process opens in addition to received descriptors.
const OTHERS: u32 = 1024;

/// Maximum number of slots reserved in advance: a table of 8 MiB. A process with more descriptors
/// grows the table during the pause.
const ROOM_MAX: u32 = 1 << 20;

/// Returns the number of open descriptors of this process, or fewer if a lower number is free.
pub(super) fn open_descriptors() -> u32 {
    // The kernel returns the lowest free number.
    let lowest_free = fcntl_dupfd_cloexec(io::stderr(), 0).map(|copy| copy.as_raw_fd());
    lowest_free.ok().and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

/// Reserves kernel capacity for `more` additional descriptors, within the limit of open files.
/// Otherwise the kernel doubles the table several times while descriptors arrive. For each step a
/// process with threads waits until all processors have passed an RCU grace period. With 5,000
/// descriptors these waits take a third of the pause.
pub(super) fn make_room(more: u32) {
    let wanted = open_descriptors().saturating_add(more).saturating_add(OTHERS).min(ROOM_MAX);
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let highest = u64::from(wanted).min(limit.saturating_sub(1));
    if let Ok(highest) = i32::try_from(highest) {
        // Closed immediately: the table retains its size. If the kernel cannot reserve, the pause
        // is only longer.
        drop(fcntl_dupfd_cloexec(io::stderr(), highest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_size() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        line.trim().parse().unwrap()
    }

    #[test]
    fn the_table_is_as_large_as_is_asked_for_and_no_descriptor_stays() {
        let before = open_descriptors();
        make_room(2000);
        assert!(table_size() >= 2000, "{}", table_size());
        // Other tests of this program open files concurrently.
        test_support::eventually("it is closed", || open_descriptors() < before + 500);
        // Beyond the limit the table has the size that the limit allows.
        make_room(u32::MAX);
    }
}
