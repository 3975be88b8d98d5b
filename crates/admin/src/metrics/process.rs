//! The process, under the names that Prometheus libraries give such metrics.

use std::fs;

use super::{Metric, Value};

/// Clock ticks of `/proc` in a second: `USER_HZ`, which is 100 on every architecture that Linux has
/// today.
const TICKS_PER_SECOND: f64 = 100.0;

/// Fields of `/proc/self/stat` behind the name, which may have spaces in it: proc_pid_stat(5)
/// counts from 1, and the first behind the name is its third.
const USER_TICKS: usize = 14 - 3;
const SYSTEM_TICKS: usize = 15 - 3;

/// What cannot be read is left out.
pub(super) fn metrics() -> Vec<Metric> {
    [processor_time(), memory(), open_files(), open_files_most()].into_iter().flatten().collect()
}

fn stat_field(index: usize) -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split_ascii_whitespace().nth(index)?.parse().ok()
}

fn processor_time() -> Option<Metric> {
    let ticks = stat_field(USER_TICKS)? + stat_field(SYSTEM_TICKS)?;
    let metric = Metric::counter("process_cpu_seconds", "Processor time of the process");
    Some(metric.sample([], Value::Real(ticks / TICKS_PER_SECOND)))
}

fn memory() -> Option<Metric> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    let metric = Metric::gauge("process_resident_memory_bytes", "Resident memory of the process");
    Some(metric.with(kibibytes * 1024))
}

fn open_files() -> Option<Metric> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    Some(Metric::gauge("process_open_fds", "Open file descriptors").with(count as u64))
}

fn open_files_most() -> Option<Metric> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let soft = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(
        Metric::gauge("process_max_fds", "File descriptors that the process may have open")
            .with(soft),
    )
}
