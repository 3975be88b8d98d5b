//! Room in the table of open files, made before the pause.

use std::io;
use std::os::fd::AsRawFd as _;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// Descriptors that a process opens beside the ones that it is given.
const OTHERS: u32 = 1024;

/// The largest table that is made beforehand: of 8 MiB. A process with more descriptors waits.
const ROOM_MAX: u32 = 1 << 20;

/// Descriptors of this process, or somewhat fewer.
pub(super) fn open_descriptors() -> u32 {
    // The kernel gives the lowest number that is free.
    let lowest_free = fcntl_dupfd_cloexec(io::stderr(), 0).map(|copy| copy.as_raw_fd());
    lowest_free.ok().and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

/// Lets the kernel make room for so many more descriptors, as far as the limit of open files
/// allows. Otherwise it doubles the table again and again while they come, and for each step a
/// process with threads waits until all processors have seen it: with 5,000 descriptors a third of
/// the pause.
pub(super) fn make_room(more: u32) {
    let wanted = open_descriptors().saturating_add(more).saturating_add(OTHERS).min(ROOM_MAX);
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let highest = u64::from(wanted).min(limit.saturating_sub(1));
    if let Ok(highest) = i32::try_from(highest) {
        // Closed at once: the table stays as large. Without room it is as before, only slower.
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
        // Other tests of this program open files meanwhile.
        test_support::eventually("it is closed", || open_descriptors() < before + 500);
        // Beyond the limit it is as large as that allows.
        make_room(u32::MAX);
    }
}
