//! A keeper, as `turnpike keep` is one: it has the last copies of a process, and gives them to the
//! next one.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use dataplane::limits::COPIES_WAITING;
use dataplane::{Export, KeptWorker};
use netsim::Rng;
use turn_types::{Instant, WorkerId};

use super::process::{Listeners, Process, SimExport};
use crate::net::SimDescriptor;

/// Longest time between two looks at what has come.
const SLOWEST: Duration = Duration::from_secs(2);

/// Processes that get the same copies and do not serve.
const TRIES_MAX: u32 = 2;

/// Copies of one process.
pub(super) struct Keeper {
    received: Receiver<SimExport>,
    workers: Vec<KeptWorker<SimDescriptor>>,
    listeners: Vec<Listeners>,
    reads_at: Instant,
    /// The process has run since it has read.
    is_behind: bool,
    /// Processes that have got them.
    tries: u32,
}

impl Keeper {
    /// Follows a process.
    pub(super) fn follow(process: &Process) -> Self {
        let (send, received) = sync_channel(COPIES_WAITING);
        process.channels().copy_to_keeper(&send);
        let ids = (0..process.workers.len()).map(|id| WorkerId(id as u16));
        Self {
            received,
            workers: ids.map(KeptWorker::new).collect(),
            listeners: process.listeners(),
            reads_at: Instant::ZERO,
            is_behind: true,
            tries: 0,
        }
    }

    /// Keeps the copies that the process has got, until its own are complete.
    pub(super) fn with_earlier(mut self, earlier: Self) -> Self {
        self.workers = earlier.workers.into_iter().map(KeptWorker::for_successor).collect();
        self
    }

    /// The process is about to run.
    pub(super) const fn fall_behind(&mut self) {
        self.is_behind = true;
    }

    /// Time at which it reads.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.is_behind.then_some(self.reads_at)
    }

    /// Reads when it is time, sometimes late.
    pub(super) fn run(&mut self, now: Instant, rng: &mut Rng) {
        if self.reads_at <= now {
            self.read_all();
            self.is_behind = false;
            let slow = rng.below(8) == 0;
            self.reads_at =
                now + if slow { rng.duration_below(SLOWEST) } else { Duration::from_millis(1) };
        }
    }

    fn read(&mut self, most: usize) {
        for export in self.received.try_iter().take(most) {
            self.workers[usize::from(export.snapshot.worker.0)].change(export);
        }
    }

    /// Reads some of what has come: the process is gone, with the rest of it.
    pub(super) fn read_some(&mut self, rng: &mut Rng) {
        self.read(rng.index(COPIES_WAITING + 1));
    }

    /// Reads everything that has come.
    pub(super) fn read_all(&mut self) {
        self.read(usize::MAX);
    }

    /// Everything for the next process; `None`: too many have failed with it.
    pub(super) fn give(&mut self) -> Option<(Vec<Listeners>, Vec<SimExport>)> {
        self.tries += 1;
        if self.tries > TRIES_MAX {
            return None;
        }
        let listeners = self.listeners.iter().map(Listeners::copy).collect();
        let export = |kept: &mut KeptWorker<SimDescriptor>| {
            let Export { snapshot, descriptors } = kept.export();
            let descriptors = descriptors.into_iter().map(SimDescriptor::twin).collect();
            Export { snapshot, descriptors }
        };
        Some((listeners, self.workers.iter_mut().map(export).collect()))
    }
}
