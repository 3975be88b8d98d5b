//! Busy processes, which load the machine while tests run.

use std::process::{Child, Command};

/// Argument for a busy process.
pub(crate) const WORD: &str = "--be-busy";

/// Running busy processes. Dropping the value stops the processes.
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
            // An error means that the process has exited.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Computes until a signal stops the process. The kernel sends one when the parent exits.
pub(crate) fn work() -> ! {
    // Without the parent's death signal, an interrupted run would keep the machine busy forever.
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
