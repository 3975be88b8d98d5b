//! A keeper, as `turnpike keep` is one: it has the last copies of a process, and gives them to the
//! next one.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use dataplane::limits::COPIES_WAITING;
use dataplane::{CopiedAllocation, CopiedRelay, Copies, KeptWorker};
use netsim::Rng;
use turn_types::{Instant, WorkerId};

use super::process::{Listeners, Part, Process};
use crate::socket::SimUdp;

/// Longest time between two looks at what has come.
const SLOWEST: Duration = Duration::from_secs(2);

/// Processes that get the same copies and do not serve.
const TRIES_MAX: u32 = 2;

/// Copies of one process.
pub(super) struct Keeper {
    received: Receiver<Copies<SimUdp>>,
    workers: Vec<KeptWorker<SimUdp>>,
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
        process.channels().copy_to(&send);
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
        for copies in self.received.try_iter().take(most) {
            self.workers[usize::from(copies.worker.0)].change(copies);
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
    pub(super) fn give(&mut self) -> Option<(Vec<Listeners>, Vec<Part>)> {
        self.tries += 1;
        if self.tries > TRIES_MAX {
            return None;
        }
        let listeners = self.listeners.iter().map(Listeners::copy).collect();
        let parts = self.workers.iter().map(|kept| part(kept.copies()));
        Some((listeners, parts.collect()))
    }
}

/// The rest of a worker of which there is nothing but copies.
fn part(copies: Copies<&SimUdp>) -> Part {
    let Copies { worker, last_id, shared, changed, ended, complete } = copies;
    let relay = |CopiedRelay { relay, at, own, socket }: CopiedRelay<&SimUdp>| CopiedRelay {
        relay,
        at,
        own,
        socket: socket.map(SimUdp::twin),
    };
    let allocation = |CopiedAllocation { id, state, relays, session }| CopiedAllocation {
        id,
        state,
        relays: Vec::into_iter(relays).map(relay).collect(),
        session,
    };
    let shared = shared.into_iter().map(SimUdp::twin).collect();
    let changed = changed.into_iter().map(allocation).collect();
    Part::of_copies(Copies { worker, last_id, shared, changed, ended, complete })
}
