//! A thread of the lowest priority that counts the idle time of a core.
//!
//! It works in blocks of a fixed amount: a chain of dependent multiplications in registers. The
//! time of a block does not depend on caches, and hardly on the other thread of a physical core.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use lab_net::run_when_idle;
use linux_net::{pin_current_thread, thread_cpu_time};

/// Multiplications in a block: about a microsecond, which is how exact the count is.
const BLOCK: u64 = 1024;
/// Time of its own that each window of the calibration has. Cores change their pace from one
/// millisecond to the next by some parts of 100: shorter windows would find a pace that never
/// lasts.
const WINDOW: Duration = Duration::from_millis(50);
/// Time of the calibration.
const CALIBRATION: Duration = Duration::from_millis(500);
/// On a core that others keep full the thread gets a few parts of 1000, and a window would take
/// long: after this time a short one must do.
const HURRY: Duration = Duration::from_secs(2);
/// A short window.
const SHORT_WINDOW: Duration = Duration::from_millis(5);
/// Time enough for a short window on any core; where it is not, something never yields.
const PATIENCE: Duration = Duration::from_secs(90);

/// A thread on a core, until it is dropped.
#[derive(Debug)]
pub(super) struct IdleMeter {
    shared: Arc<Shared>,
    /// Blocks per second, alone.
    rate: f64,
}

/// On cache lines of its own: the thread writes there all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shared {
    blocks: AtomicU64,
    stop: AtomicBool,
}

/// A thread that is finding out how fast it is.
pub(super) struct Starting {
    idle_meter: IdleMeter,
    rate: Receiver<io::Result<f64>>,
}

/// Starts a thread on a core.
pub(super) fn start(core: usize) -> anyhow::Result<Starting> {
    let shared = Arc::new(Shared::default());
    let (tell, rate) = sync_channel(1);
    let theirs = Arc::clone(&shared);
    let run = move || match settle(core) {
        Ok(()) => {
            let rate = known_rate(core).unwrap_or_else(|| calibrate(core, &theirs));
            // The receiver is gone where another meter failed to start; then `stop` is set.
            drop(tell.send(Ok(rate)));
            while !theirs.stop.load(Relaxed) {
                count_block(&theirs);
            }
        }
        Err(error) => drop(tell.send(Err(error))),
    };
    outside_autogroups(|| thread::Builder::new().name(format!("idle_meter-{core}")).spawn(run))
        .context("starting a thread")?;
    Ok(Starting { idle_meter: IdleMeter { shared, rate: 0.0 }, rate })
}

impl Starting {
    /// Waits until the thread knows how fast it is.
    pub(super) fn calibrated(mut self) -> anyhow::Result<IdleMeter> {
        self.idle_meter.rate = match self.rate.recv_timeout(PATIENCE) {
            Ok(rate) => rate.context(
                "no thread can be kept there: does it exist, and may this process use it?",
            )?,
            Err(RecvTimeoutError::Timeout) => {
                bail!("in {PATIENCE:?} others left nothing of it to measure with")
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the thread ended"),
        };
        Ok(self.idle_meter)
    }
}

impl IdleMeter {
    /// Blocks done since the start.
    pub(super) fn blocks(&self) -> u64 {
        self.shared.blocks.load(Relaxed)
    }

    /// Blocks per second on an idle core.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }
}

impl Drop for IdleMeter {
    fn drop(&mut self) {
        // Not waited for: on a full core it may be long until the thread runs and sees this.
        self.shared.stop.store(true, Relaxed);
    }
}

fn settle(core: usize) -> io::Result<()> {
    pin_current_thread(core)?;
    run_when_idle()
}

/// The rates of cores that were calibrated before: a process that measures many runs in turn does
/// it once.
static RATES: Mutex<BTreeMap<usize, f64>> = Mutex::new(BTreeMap::new());

fn known_rate(core: usize) -> Option<f64> {
    RATES.lock().unwrap_or_else(PoisonError::into_inner).get(&core).copied()
}

/// Blocks per second in the best window. Windows are of the thread's CPU time, so that the core
/// need not be idle; other influences (interrupts) only make windows worse.
fn calibrate(core: usize, shared: &Shared) -> f64 {
    let begun = Instant::now();
    let mut best = 0.0_f64;
    while begun.elapsed() < CALIBRATION || best == 0.0 {
        let (blocks, from) = (shared.blocks.load(Relaxed), thread_cpu_time());
        let mut spent = Duration::ZERO;
        while spent < WINDOW && (spent < SHORT_WINDOW || begun.elapsed() < HURRY) {
            // Reading this clock is a system call. In between are many blocks, so that it does not
            // count.
            for _ in 0..200 {
                count_block(shared);
            }
            spent = thread_cpu_time() - from;
            if shared.stop.load(Relaxed) {
                return best;
            }
        }
        best = best.max((shared.blocks.load(Relaxed) - blocks) as f64 / spent.as_secs_f64());
    }
    RATES.lock().unwrap_or_else(PoisonError::into_inner).insert(core, best);
    best
}

// One piece of machine code for the calibration and for the measurement.
#[inline(never)]
fn count_block(shared: &Shared) {
    let mut value = black_box(1_u64);
    for _ in 0..BLOCK {
        // Odd times odd, and an addition: no compiler finds a shorter way when it cannot see where
        // it began.
        value = value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    }
    black_box(value);
    // This thread is the only writer.
    shared.blocks.store(shared.blocks.load(Relaxed) + 1, Relaxed);
}

const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// Starts a thread outside the scheduler's groups of sessions.
///
/// Linux may schedule all processes of a terminal session as one group. A SCHED_IDLE thread then
/// yields only within the session, and shares the core equally with threads outside, such as the
/// kernel's that receive packets. So the grouping is off while the thread is created. Without the
/// privilege to switch it off, the thread yields to the session's processes alone.
fn outside_autogroups<T>(make: impl FnOnce() -> T) -> T {
    let switch = File::options().write(true).open(AUTOGROUP);
    // Locked, lest of two processes that do this the second finds it off and leaves it so.
    let Some(mut switch) = switch.ok().filter(|file| file.lock().is_ok()) else { return make() };
    let was_on = fs::read_to_string(AUTOGROUP).is_ok_and(|text| text.trim() == "1");
    let turned_off = was_on && switch.write_all(b"0\n").is_ok();
    let made = make();
    if turned_off {
        // It was written a moment ago; and where it fails, sessions only share otherwise.
        drop(fs::write(AUTOGROUP, "1\n"));
    }
    made
}
