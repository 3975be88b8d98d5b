//! Worker threads.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use control::{Mailbox, Wake};
use linux_net::{Waker, pin_current_thread};
use turn_proto::Progress;
use turn_types::{AllocationId, WorkerId};

use crate::io::Kernel;
use crate::snapshot::Export;
use crate::sockets::RelaySettings;
use crate::worker::{ImportError, Worker, WorkerSpec};
use crate::workers::WorkerEndpoint;

/// Source of an import, for one worker of the successor.
#[derive(Debug)]
pub struct Entrance {
    /// Settings of the predecessor's relay sockets.
    pub settings: RelaySettings,
    /// Updates from the predecessor. The worker serves after [`Update::Commit`]. If the channel
    /// closes earlier, the worker exits without effects.
    pub updates: Receiver<Update>,
}

/// Update from the predecessor for one worker.
#[derive(Debug)]
pub enum Update {
    /// Snapshot, sent while the predecessor serves.
    Snapshot(Box<Export<OwnedFd>>),
    /// Request for a notification after the import of all earlier snapshots.
    Reached(SyncSender<()>),
    /// Last snapshot, sent during the pause.
    Last(Box<Export<OwnedFd>>),
    /// Last progress of allocations that the kernel path relays.
    Progress(Vec<(AllocationId, Progress)>),
    /// The predecessor has committed.
    Commit {
        /// True if new allocations are refused, because the predecessor drained.
        drains: bool,
    },
}

/// Creates the mailbox of one worker, and the receiving ends.
///
/// # Errors
/// No descriptors are left.
pub fn mailbox() -> io::Result<(Mailbox, WorkerEndpoint)> {
    struct WorkerWake(Waker);

    impl Wake for WorkerWake {
        fn wake(&self) {
            self.0.wake();
        }
    }

    let (waker, wake) = Waker::new()?;
    Ok(WorkerEndpoint::new(Kernel::new(wake)?, Arc::new(WorkerWake(waker))))
}

/// Worker thread that is building its worker.
#[derive(Debug)]
pub struct Spawned {
    thread: JoinHandle<()>,
    outcome: Receiver<io::Result<usize>>,
}

impl Spawned {
    /// Waits until the worker is built, and returns the number of allocations. The worker runs
    /// until [`Request::Stop`](control::Request::Stop). The thread handle reports a panic.
    ///
    /// # Errors
    /// No descriptors or memory are left.
    pub fn built(self) -> io::Result<(JoinHandle<()>, usize)> {
        match self.outcome.recv() {
            Ok(outcome) => outcome.map(|allocations| (self.thread, allocations)),
            // A panic was reported on standard error.
            Err(_) => Err(io::Error::other("the worker's thread ended while it was built")),
        }
    }
}

/// Starts a worker on a thread, pinned to `core` if given. With an `entrance` the worker imports
/// first. Several workers can be built concurrently.
///
/// # Errors
/// No threads are left.
pub fn spawn(
    spec: WorkerSpec,
    core: Option<usize>,
    entrance: Option<Entrance>,
) -> io::Result<Spawned> {
    let id = spec.id;
    let build = move || {
        let built = match entrance {
            None => (Worker::new(spec)?, None),
            Some(entrance) => {
                let (worker, updates) = entrance.enter(spec)?;
                (worker, Some(updates))
            }
        };
        let allocations = built.0.allocations();
        Ok((built, allocations))
    };
    start(id, core, build, move |(mut worker, updates): (Worker, Option<Receiver<Update>>)| {
        if updates.is_none_or(|updates| is_to_serve(id, &mut worker, &updates)) {
            worker.run();
        }
    })
}

/// Waits for the commit of the predecessor. Returns false if the hand-over has failed.
fn is_to_serve(id: WorkerId, worker: &mut Worker, updates: &Receiver<Update>) -> bool {
    loop {
        match updates.recv() {
            Ok(Update::Progress(progress)) => worker.set_progress(progress),
            Ok(Update::Commit { drains }) => {
                tell_refused(id, &worker.commit_import(drains));
                return true;
            }
            Ok(Update::Snapshot(_) | Update::Reached(_) | Update::Last(_)) | Err(_) => {
                return false;
            }
        }
    }
}

impl Entrance {
    /// Builds a worker with the state of the predecessor's worker.
    fn enter(self, spec: WorkerSpec) -> io::Result<(Worker, Receiver<Update>)> {
        let Self { settings, updates } = self;
        let mut worker = Worker::new(spec)?;
        worker.begin_import(settings);
        loop {
            match updates.recv() {
                Ok(Update::Snapshot(export)) => worker.import(*export),
                // Without a receiver the hand-over has failed, as the next update shows.
                Ok(Update::Reached(answer)) => drop(answer.send(())),
                Ok(Update::Last(export)) => {
                    worker.import(*export);
                    worker.finish_import();
                    return Ok((worker, updates));
                }
                Ok(Update::Progress(_) | Update::Commit { .. }) | Err(_) => {
                    return Err(io::Error::other("the predecessor has exported nothing"));
                }
            }
        }
    }
}

/// Maximum number of import errors that are examined for the log.
const REFUSED_TOLD_MAX: usize = 1000;

/// Logs a warning for each distinct error of an import.
fn tell_refused(worker: WorkerId, refused: &[ImportError]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for why in refused.iter().take(REFUSED_TOLD_MAX) {
        *counts.entry(why.to_string()).or_default() += 1;
    }
    for (why, count) in counts {
        tracing::warn!(
            worker = worker.0,
            count,
            "some calls of the process before have ended: {why}"
        );
    }
}

/// Builds and runs a value on the same thread and core. So the value's memory is allocated on the
/// NUMA node of the core.
fn start<T>(
    id: WorkerId,
    core: Option<usize>,
    build: impl FnOnce() -> io::Result<(T, usize)> + Send + 'static,
    run: impl FnOnce(T) + Send + 'static,
) -> io::Result<Spawned> {
    let (tell, outcome) = sync_channel(1);
    let thread = thread::Builder::new().name(format!("worker-{}", id.0)).spawn(move || {
        if let Some(core) = core
            && let Err(error) = pin_current_thread(core)
        {
            tracing::warn!(worker = id.0, core, %error, "cannot keep the worker on its core");
        }
        let (built, result) = match build() {
            Ok((built, allocations)) => (Some(built), Ok(allocations)),
            Err(error) => (None, Err(error)),
        };
        // If the start has failed in the meantime, the receiver is closed.
        drop(tell.send(result));
        if let Some(built) = built {
            run(built);
        }
    })?;
    Ok(Spawned { thread, outcome })
}

#[cfg(test)]
mod tests {
    use linux_net::allowed_cores;

    use super::*;

    fn here() -> (Option<String>, Vec<usize>) {
        (thread::current().name().map(str::to_owned), allowed_cores().unwrap())
    }

    #[test]
    fn a_worker_is_built_where_it_runs() {
        let core = allowed_cores().unwrap()[0];
        let (tell, told) = sync_channel(2);
        let tell_again = tell.clone();
        let build = move || {
            tell.send(here()).unwrap();
            Ok(((), 3))
        };
        let run = move |()| tell_again.send(here()).unwrap();
        let spawned = start(WorkerId(7), Some(core), build, run).unwrap();
        let (thread, allocations) = spawned.built().unwrap();
        thread.join().unwrap();
        assert_eq!(allocations, 3);
        let there = (Some("worker-7".to_owned()), vec![core]);
        assert_eq!([told.recv().unwrap(), told.recv().unwrap()], [there.clone(), there]);
    }

    #[test]
    fn a_worker_that_cannot_be_built_does_not_run() {
        let build = || Err::<((), usize), _>(io::ErrorKind::OutOfMemory.into());
        let spawned = start(WorkerId(7), None, build, |()| panic!("it ran")).unwrap();
        assert_eq!(spawned.built().unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    }
}
