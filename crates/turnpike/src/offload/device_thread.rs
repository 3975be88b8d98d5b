//! Thread of the kernel path: only this thread loads programs, attaches programs to devices and
//! has the capabilities for that. It reads no data from clients or peers.
//!
//! Other threads send it functions to call, and wait for the results.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use xdp_relay::Offload;

/// Waiting calls. A caller waits for the result, so each thread has one call at most; the next
/// caller waits until the queue has space.
const CALLS_WAITING: usize = 16;

/// Function that the thread calls.
type Call = Box<dyn FnOnce(&mut Offload) + Send>;

/// Thread that owns the kernel path. Devices are as they were before when this value is dropped.
#[derive(Debug)]
pub(super) struct DeviceThread {
    /// `None` in the drop.
    calls: Option<SyncSender<Call>>,
    thread: Option<JoinHandle<()>>,
}

impl DeviceThread {
    /// Starts the thread, which starts the kernel path.
    ///
    /// # Errors
    /// The reason that `begin` returned, or there are no threads left.
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
            // The starting thread waits for it.
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

    /// Calls a function in the thread; `None` if the thread has ended by a fault.
    pub(super) fn call<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut Offload) -> T + Send + 'static,
    ) -> Option<T> {
        let (tell, result) = sync_channel(1);
        let call = move |offload: &mut Offload| {
            // The caller waits for it.
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
