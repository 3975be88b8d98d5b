//! Thread of the kernel path. Only this thread loads programs, attaches programs to devices and has
//! the capabilities for these tasks. It reads no data from clients or peers.
//!
//! Other threads send functions to this thread, and wait for the results.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use xdp_relay::Offload;

/// Maximum number of waiting calls. Each calling thread has at most one call, because it waits for
/// the result. If the queue is full, further callers wait for space.
const CALLS_WAITING: usize = 16;

/// Function to call in the thread.
type Call = Box<dyn FnOnce(&mut Offload) + Send>;

/// Thread that owns the kernel path. Dropping the value restores the devices.
#[derive(Debug)]
pub(super) struct DeviceThread {
    /// `None` only during the drop.
    calls: Option<SyncSender<Call>>,
    thread: Option<JoinHandle<()>>,
}

impl DeviceThread {
    /// Starts the thread, which calls `begin` to start the kernel path.
    ///
    /// # Errors
    /// `begin` failed, or the process has no thread left.
    pub(super) fn start(
        begin: impl FnOnce() -> Result<Offload, String> + Send + 'static,
    ) -> Result<Self, String> {
        let (calls, waiting) = sync_channel(CALLS_WAITING);
        let (tell, outcome) = sync_channel(1);
        let run = move || {
            let begun = begin();
            let (outcome, offload) = match begun {
                Ok(offload) => (Ok(()), Some(offload)),
                Err(why) => (Err(why), None),
            };
            // The starting thread waits for the outcome.
            let _ = tell.send(outcome);
            if let Some(offload) = offload {
                serve(offload, &waiting);
            }
        };
        let thread = thread::Builder::new().name("kernel-path".to_owned()).spawn(run);
        let thread = thread.map_err(|error| format!("cannot start its thread: {error}"))?;
        let outcome = outcome.recv();
        outcome
            .unwrap_or_else(|_| Err("its thread has ended; the log has the fault".to_owned()))?;
        Ok(Self { calls: Some(calls), thread: Some(thread) })
    }

    /// Calls a function in the thread. Returns `None` if the thread has panicked.
    pub(super) fn call<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut Offload) -> T + Send + 'static,
    ) -> Option<T> {
        let (tell, result) = sync_channel(1);
        let call = move |offload: &mut Offload| {
            // The caller waits for the result.
            let _ = tell.send(function(offload));
        };
        self.calls.as_ref()?.send(Box::new(call)).ok()?;
        result.recv().ok()
    }
}

fn serve(mut offload: Offload, calls: &Receiver<Call>) {
    while let Ok(call) = calls.recv() {
        call(&mut offload);
    }
}

impl Drop for DeviceThread {
    fn drop(&mut self) {
        self.calls = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported on standard error.
            let _ = thread.join();
        }
    }
}
