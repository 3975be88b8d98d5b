//! Processes that use all processor time they get: a busy machine, as a test must stand it.

use std::process::{Child, Command};

/// The argument that makes this program a busy process.
pub(crate) const WORD: &str = "--be-busy";

/// Running busy processes. They end with the value.
#[derive(Debug)]
pub(crate) struct BusyProcesses(Vec<Child>);

impl BusyProcesses {
    /// # Errors
    /// This program cannot be started.
    pub(crate) fn start(count: u32) -> std::io::Result<Self> {
        let own = std::env::current_exe()?;
        (0..count).map(|_| Command::new(&own).arg(WORD).spawn()).collect::<Result<_, _>>().map(Self)
    }
}

impl Drop for BusyProcesses {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // A process that has ended is what is wanted.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Computes until the process is ended, at the latest with the process that started it.
pub(crate) fn work() -> ! {
    // Without it an interrupted run would leave the machine busy for ever; then it is better not to
    // begin.
    let ends_with_parent =
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    if ends_with_parent.is_err() {
        std::process::exit(1);
    }
    let mut value = 1_u64;
    loop {
        value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
