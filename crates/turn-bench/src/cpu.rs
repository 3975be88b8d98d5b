//! Utilisation of whole cores and of a process.
//!
//! A server's work is spread over its threads, kernel threads and interrupts, and accounted to
//! other programs or to none. So the whole core is measured, by its idle time: a thread of the
//! lowest priority counts the work it gets done (`idle_meter`). The difference to its work on a
//! core of its own was used by others: programs, system calls, soft interrupts, interrupts, the
//! host of a virtual machine. The core must have a single role (`compare` does so; `taskset`
//! elsewhere).
//!
//! The shares of `/proc/stat` in the same time (`stat`) are a hint, not a measure: the kernel
//! samples them some hundred times a second, often at the moment when programs wake up.
//!
//! A watched core does not sleep. That costs power, and removes wake-up latency, for every server
//! alike.
//!
//! SCHED_IDLE is relative to the control group: where the server is in another one with a `cpu`
//! controller (a systemd service with `CPUWeight`), the meter takes its share like others. And
//! where two cores are threads of one physical core, watch both, so that both are calibrated under
//! load.

mod idle_meter;
mod stat;

use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use lab_net::process_cpu_time;
use serde::{Deserialize, Serialize};

use crate::outcome::{CoreUse, Used};
use idle_meter::IdleMeter;
use stat::Ticks;

/// A core to be watched, written `ROLE=CORE`: `server=1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Role of the core.
    pub role: String,
    /// Number of the core.
    pub core: usize,
}

impl FromStr for Watch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (role, core) = text
            .split_once('=')
            .ok_or_else(|| format!("{text}: write ROLE=CORE, such as server=1"))?;
        if role.is_empty() {
            return Err(format!("{text}: the role is missing, such as server=1"));
        }
        let core = core.parse().map_err(|_| format!("{core:?} is not the number of a core"))?;
        Ok(Self { role: role.to_owned(), core })
    }
}

/// Cores and process to watch during the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
pub struct Watched {
    /// Measure how busy this core is during the measured time, and call it by this role, such as
    /// `server=1`; may be given more than once. Only cores of this machine can be watched. A thread
    /// of lowest priority runs on the core: it does not slow others down, but keeps the core awake.
    #[arg(long = "watch", value_name = "ROLE=CORE")]
    pub cores: Vec<Watch>,
    /// Measure the CPU time of this process during the measured time: the server's own work,
    /// without the kernel's work outside of its system calls. The process has to be on this
    /// machine.
    #[arg(long = "pid", value_name = "PID")]
    pub process: Option<u32>,
}

/// Meters of cores and of a process, kept for as long as there are runs to be measured.
#[derive(Debug)]
pub struct Meters {
    meters: Vec<Meter>,
    /// The process, and how long it had run when measuring began.
    process: Option<(u32, Duration)>,
    begun: Instant,
}

#[derive(Debug)]
struct Meter {
    watch: Watch,
    idle: IdleMeter,
    blocks: u64,
    ticks: Ticks,
}

impl Meters {
    /// Puts a meter on each core and calibrates them all at once, which takes half a second, and
    /// more where the cores are busy; once in the life of a process. Measuring begins.
    ///
    /// # Errors
    /// A core that does not exist, or that this process may not use; one so busy that nothing at
    /// all is left of it; a process that does not exist.
    pub fn start(watched: &Watched) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let process = watched.process.map(started).transpose()?;
        let starting: Vec<_> = watched
            .cores
            .iter()
            .map(|watch| {
                idle_meter::start(watch.core)
                    .with_context(|| format!("the meter of core {} ({})", watch.core, watch.role))
            })
            .collect::<Result<_, _>>()?;
        let mut meters = Vec::with_capacity(watched.cores.len());
        for (watch, starting) in watched.cores.iter().zip(starting) {
            let idle = starting
                .calibrated()
                .with_context(|| format!("the meter of core {} ({})", watch.core, watch.role))?;
            let meter = Meter { watch: watch.clone(), idle, blocks: 0, ticks: Ticks::default() };
            meters.push(meter);
        }
        let mut meters = Self { meters, process, begun };
        meters.begin();
        Ok(meters)
    }

    /// The measured time begins now.
    pub fn begin(&mut self) {
        self.begun = Instant::now();
        for meter in &mut self.meters {
            meter.blocks = meter.idle.blocks();
            meter.ticks = Ticks::of(meter.watch.core);
        }
        if let Some((process, before)) = &mut self.process {
            *before = process_cpu_time(*process).unwrap_or_default();
        }
    }

    /// Utilisation of each core since the measured time began, in the order given, and the CPU time
    /// of the process; `None` where it has ended.
    #[must_use]
    pub fn end(&self) -> Used {
        let seconds = self.begun.elapsed().as_secs_f64();
        let used = |meter: &Meter| CoreUse {
            role: meter.watch.role.clone(),
            core: meter.watch.core,
            busy: busy(meter.idle.blocks() - meter.blocks, meter.idle.rate(), seconds),
            stat: Ticks::of(meter.watch.core).shares_since(&meter.ticks),
        };
        let process = self
            .process
            .and_then(|(process, before)| process_cpu_time(process).ok()?.checked_sub(before));
        Used { cores: self.meters.iter().map(used).collect(), process }
    }
}

fn started(process: u32) -> anyhow::Result<(u32, Duration)> {
    let time = process_cpu_time(process)
        .with_context(|| format!("--pid {process}: how long it has run"))?;
    Ok((process, time))
}

/// Share of `seconds` used by others, when `blocks` were done and `rate` per second are done on an
/// idle core.
fn busy(blocks: u64, rate: f64, seconds: f64) -> f64 {
    let alone = rate * seconds;
    if alone > 0.0 { (1.0 - blocks as f64 / alone).clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores<const N: usize>(cores: [Watch; N]) -> Watched {
        Watched { cores: cores.into(), process: None }
    }

    #[test]
    fn a_watch_is_a_role_and_a_core() {
        assert_eq!("server=1".parse(), Ok(Watch { role: "server".into(), core: 1 }));
        for wrong in ["server", "=1", "server=", "server=x", "server=-1", "1"] {
            assert!(wrong.parse::<Watch>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_missing_was_used() {
        assert!((busy(0, 1000.0, 2.0) - 1.0).abs() < 1e-9);
        assert!((busy(500, 1000.0, 2.0) - 0.75).abs() < 1e-9);
        assert!(busy(2000, 1000.0, 2.0).abs() < 1e-9);
        // More than alone is the noise of calibration, not less than nothing.
        assert!(busy(2010, 1000.0, 2.0).abs() < 1e-9);
        assert!(busy(0, 1000.0, 0.0).abs() < 1e-9);
    }

    #[test]
    fn a_core_that_is_not_there_is_an_error_that_names_it() {
        let watch = Watch { role: "server".into(), core: 1023 };
        let error = format!("{:#}", Meters::start(&cores([watch])).unwrap_err());
        assert!(error.contains("core 1023 (server)"), "{error}");
    }

    #[test]
    fn a_core_that_a_thread_keeps_for_itself_is_seen_as_busy() {
        let core = linux_net::allowed_cores().unwrap()[0];
        let mut meters = Meters::start(&cores([Watch { role: "server".into(), core }])).unwrap();
        std::thread::spawn(move || {
            linux_net::pin_current_thread(core).unwrap();
            let (wall, cpu) = (linux_net::Clock::instant(), linux_net::thread_cpu_time());
            meters.begin();
            while (linux_net::thread_cpu_time() - cpu).as_millis() < 100 {}
            let used = meters.end().cores;
            assert_eq!((used[0].role.as_str(), used[0].core), ("server", core));
            // Other programs can only add to the 100 ms of this thread. The hypervisor may stop the
            // core meanwhile.
            let elapsed = linux_net::Clock::instant().saturating_since(wall);
            assert!(used[0].busy * elapsed.as_secs_f64() > 0.09, "{used:?} in {elapsed:?}");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn of_a_process_its_threads_are_measured() {
        let watched = Watched { process: Some(std::process::id()), ..Watched::default() };
        let mut meters = Meters::start(&watched).unwrap();
        let work = || while linux_net::thread_cpu_time() < Duration::from_millis(20) {};
        std::thread::spawn(work).join().unwrap();
        assert!(meters.end().process.unwrap() >= Duration::from_millis(20));
        meters.begin();
        std::thread::spawn(work).join().unwrap();
        assert!(meters.end().process.unwrap() >= Duration::from_millis(20));

        let gone = Watched { process: Some(u32::MAX), ..Watched::default() };
        let error = format!("{:#}", Meters::start(&gone).unwrap_err());
        assert!(error.contains("--pid 4294967295"), "{error}");
    }

    #[test]
    fn without_cores_nothing_is_measured() {
        assert_eq!(Meters::start(&Watched::default()).unwrap().end(), Used::default());
    }
}
