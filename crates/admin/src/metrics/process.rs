//! The process, under the names that Prometheus libraries give such metrics.

use std::fs;

use super::{Metric, Value};
use crate::resources;

/// Clock ticks of `/proc` in a second: `USER_HZ`, which is 100 on every architecture that Linux has
/// today.
const TICKS_PER_SECOND: f64 = 100.0;

/// Fields of `/proc/self/stat` behind the name, which may have spaces in it: proc_pid_stat(5)
/// counts from 1, and the first behind the name is its third.
const USER_TICKS: usize = 14 - 3;
const SYSTEM_TICKS: usize = 15 - 3;

/// What cannot be read is left out.
pub(super) fn metrics() -> Vec<Metric> {
    let gauge =
        |name, help, value: Option<u64>| value.map(|value| Metric::gauge(name, help).with(value));
    let memory = gauge(
        "process_resident_memory_bytes",
        "Resident memory of the process",
        resources::memory_bytes(),
    );
    let open = gauge("process_open_fds", "Open file descriptors", resources::open_files());
    let most = gauge(
        "process_max_fds",
        "File descriptors that the process may have open",
        resources::open_files_max(),
    );
    [processor_time(), memory, open, most].into_iter().flatten().collect()
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
