//! Watchdog: checks that each worker completes a loop iteration soon after it is woken. A hung
//! worker serves no clients, and the kernel continues to assign a share of the clients to it. A
//! restart is better.

use std::time::Duration;

use anyhow::anyhow;
use control::Workers;
use turn_types::WorkerId;

use crate::failure::{Failure, Result};

/// Interval of checks of the workers.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Number of consecutive checks without an iteration of a worker before an error is logged. An
/// iteration takes milliseconds, also under full load.
pub(crate) const REPORTED_AFTER: u32 = 5;

/// Number of consecutive checks without an iteration of a worker before the process exits, for a
/// supervisor to start it again. Clients give up after about this time, and a host that swaps
/// recovers sooner.
const ENDED_AFTER: u32 = 15;

/// Last known iterations of the workers.
///
/// Checks are counted instead of seconds. While a virtual machine is paused, or a debugger has
/// stopped the process, no checks take place.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    /// Sorted by worker id.
    workers: Vec<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    turns: u64,
    /// Number of checks since the last iteration.
    looks: u32,
}

/// Result of a check of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// The worker makes progress, or its state was reported before.
    Alive,
    /// The worker has had no iteration for [`REPORTED_AFTER`] checks.
    Hangs,
    /// The worker was reported as hung, and makes progress again.
    GoesOn,
    /// The worker has had no iteration for [`ENDED_AFTER`] checks.
    Lost,
}

impl Watchdog {
    /// Checks all workers, and wakes workers without an iteration since the last check, so each can
    /// have one by the next check. Call every [`LOOK_EVERY`].
    ///
    /// # Errors
    /// A worker hangs: the process must exit.
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

    /// Worker that has an iteration when woken, or hangs in its current iteration.
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
        // The first check has nothing to compare with.
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
