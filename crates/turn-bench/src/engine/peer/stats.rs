//! Statistics of the peer, once per second.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::runs::Runs;

/// The length of a clock tick in `/proc`, which is the same on all architectures that Linux has.
const TICKS_PER_SECOND: f64 = 100.0;

const INTERVAL: Duration = Duration::from_secs(1);

/// Interval of checks for the end.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Default)]
struct Sample {
    received: u64,
    sent: u64,
    dropped: u64,
    /// CPU time of the process, user and system, in seconds.
    cpu: f64,
}

/// Prints one line per second until `halt` is set.
pub(super) fn print_until(halt: &AtomicBool, runs: &Runs) {
    let (mut before, mut since) = (sample(runs), Instant::now());
    while !halt.load(Relaxed) {
        thread::sleep(LOOK);
        let elapsed = since.elapsed();
        if elapsed >= INTERVAL {
            let now = sample(runs);
            println!("{}", line(&before, &now, elapsed.as_secs_f64()));
            (before, since) = (now, Instant::now());
        }
    }
}

fn line(before: &Sample, now: &Sample, seconds: f64) -> String {
    let per_second = |a: u64, b: u64| (b.saturating_sub(a) as f64 / seconds).round();
    format!(
        "in_pps={} out_pps={} dropped={} cpu={:.2}",
        per_second(before.received, now.received),
        per_second(before.sent, now.sent),
        now.dropped.saturating_sub(before.dropped),
        (now.cpu - before.cpu) / seconds,
    )
}

fn sample(runs: &Runs) -> Sample {
    let mut sample = Sample { dropped: runs.dropped(), cpu: cpu_seconds(), ..Sample::default() };
    sample.received = runs.received_by_ends();
    for meter in &runs.traffic {
        sample.received += meter.received.load(Relaxed);
        sample.sent += meter.sent.load(Relaxed);
    }
    sample
}

fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    parse(&stat).unwrap_or(0.0)
}

/// User and system time of `/proc/pid/stat`, in seconds. The name of the process, second and in
/// parentheses, may hold anything.
fn parse(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<f64>);
    let (user, system) = (times.next()?.ok()?, times.next()?.ok()?);
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_any_name() {
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 100 5 6";
        assert_eq!(parse(stat), Some(3.0));
        assert_eq!(parse("7 (a"), None);
    }

    #[test]
    fn work_takes_cpu_time() {
        let before = cpu_seconds();
        test_support::eventually("CPU time of this process grows", || {
            (0..1_000_000_u32).for_each(|n| _ = std::hint::black_box(n));
            cpu_seconds() > before
        });
    }

    #[test]
    fn a_line_tells_the_last_second() {
        let before = Sample { received: 10, sent: 20, dropped: 3, cpu: 1.0 };
        let now = Sample { received: 2010, sent: 20, dropped: 5, cpu: 2.5 };
        assert_eq!(line(&before, &now, 2.0), "in_pps=1000 out_pps=0 dropped=2 cpu=0.75");
    }
}
