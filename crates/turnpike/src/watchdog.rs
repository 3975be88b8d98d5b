//! Watches the workers: each has a turn of its loop soon after it is woken, unless it hangs. A hung
//! one serves no client, and the kernel goes on assigning its share of the clients to it: a restart
//! is better.

use std::time::Duration;

use anyhow::anyhow;
use control::Workers;
use turn_types::WorkerId;

use crate::failure::{Failure, Result};

/// Interval of checks of the workers.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks without a turn of a worker until that is logged: a turn takes milliseconds, also under
/// full load.
pub(crate) const REPORTED_AFTER: u32 = 5;

/// The same until the process ends, so that a supervisor starts it again: as long as it takes a
/// client to give up, and a host that swaps to come back.
const ENDED_AFTER: u32 = 15;

/// Known turns of the workers.
///
/// Looks are counted, not seconds: while a virtual machine is paused, or a debugger has stopped the
/// process, there are none.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    /// In the order of the workers' ids.
    workers: Vec<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    turns: u64,
    /// Looks since then.
    looks: u32,
}

/// State of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// Nothing that is worth a word.
    Alive,
    /// It has had no turn for [`REPORTED_AFTER`] looks.
    Hangs,
    /// It had been reported, and goes on.
    GoesOn,
    /// It has had none for [`ENDED_AFTER`] looks.
    Lost,
}

impl Watchdog {
    /// Checks all workers, and wakes idle ones, so that each has had a turn by the next check. To
    /// be called every [`LOOK_EVERY`].
    ///
    /// # Errors
    /// A worker hangs: the process is to end.
    pub(crate) fn look(&mut self, workers: &Workers) -> Result<()> {
        self.workers.resize(workers.count(), Seen::default());
        for ((id, turns), seen) in (0..).map(WorkerId).zip(workers.turns()).zip(&mut self.workers) {
            let worker = id.0;
            match seen.look(turns) {
                Finding::Alive => {}
                Finding::Hangs => tracing::error!(
                    worker,
                    "worker {worker} has done nothing for {REPORTED_AFTER} s: its clients are not served; the \
                     process ends if it does nothing for {ENDED_AFTER} s"
                ),
                Finding::GoesOn => tracing::warn!(worker, "worker {worker} goes on"),
                Finding::Lost => {
                    return Err(Failure::failed(anyhow!(
                        "worker {worker} has done nothing for {ENDED_AFTER} s"
                    ))
                    .hint(
                        "a supervisor should start the server again; this is a fault of the program or \
                         of the host: report it with the log",
                    ));
                }
            }
            if seen.looks > 0 {
                workers.wake(id);
            }
        }
        Ok(())
    }

    /// Returns true unless a worker hangs.
    pub(crate) fn all_alive(&self) -> bool {
        self.workers.iter().all(|seen| seen.looks < REPORTED_AFTER)
    }
}

impl Seen {
    fn look(&mut self, turns: u64) -> Finding {
        if turns != self.turns {
            let was_reported = self.looks >= REPORTED_AFTER;
            *self = Self { turns, looks: 0 };
            return if was_reported { Finding::GoesOn } else { Finding::Alive };
        }
        self.looks += 1;
        match self.looks {
            REPORTED_AFTER => Finding::Hangs,
            ENDED_AFTER.. => Finding::Lost,
            _ => Finding::Alive,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use control::{Wake, WorkerCounters, mailbox};

    use super::*;

    /// A worker that has a turn when it is woken, or one that never returns from the one it has.
    struct Worker {
        counters: Arc<WorkerCounters>,
        hangs: bool,
    }

    impl Wake for Worker {
        fn wake(&self) {
            if !self.hangs {
                self.counters.count_turn();
            }
        }
    }

    fn workers(hang: [bool; 2]) -> Workers {
        let worker = |hangs| {
            let counters = Arc::new(WorkerCounters::new());
            counters.count_turn();
            let worker = Worker { counters: Arc::clone(&counters), hangs };
            (mailbox(1, Arc::new(worker)).0, counters)
        };
        Workers::new(hang.map(worker).into())
    }

    #[test]
    fn workers_that_wait_are_alive_for_ever() {
        let (mut watchdog, workers) = (Watchdog::default(), workers([false, false]));
        for _ in 0..1000 {
            watchdog.look(&workers).unwrap();
        }
    }

    #[test]
    fn a_worker_that_never_returns_ends_the_process() {
        let (mut watchdog, workers) = (Watchdog::default(), workers([false, true]));
        // The first look knows nothing yet.
        for look in 0..ENDED_AFTER {
            watchdog.look(&workers).unwrap();
            assert_eq!(watchdog.all_alive(), look < REPORTED_AFTER);
        }
        let failure = watchdog.look(&workers).unwrap_err();
        assert!(failure.to_string().contains("worker 1 has done nothing for 15 s"), "{failure}");
    }

    #[test]
    fn a_worker_that_hangs_is_reported_once_and_may_go_on() {
        let mut seen = Seen::default();
        assert_eq!(seen.look(7), Finding::Alive);
        let findings: Vec<_> = (1..ENDED_AFTER).map(|_| seen.look(7)).collect();
        let reported = |finding: &&Finding| **finding == Finding::Hangs;
        assert_eq!(findings.iter().filter(reported).count(), 1);
        assert_eq!(findings[REPORTED_AFTER as usize - 1], Finding::Hangs);
        assert_eq!(seen.look(8), Finding::GoesOn);
        assert_eq!(seen.look(9), Finding::Alive);
        assert_eq!((0..ENDED_AFTER).map(|_| seen.look(9)).last(), Some(Finding::Lost));
    }
}
