//! The end of a server's process, and the next one, which goes on with its allocations: beside the
//! running one, behind it, or after its death, from a keeper.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use dataplane::ImportError;
use dataplane::limits::COPIES_WAITING;
use netsim::{Chance, Outbox};
use turn_proto::{AllocationImportError, Progress};
use turn_types::{AllocationId, Instant, WorkerId};

use super::ServerHost;
use super::keeper::Keeper;
use super::process::{Listeners, NextProcess, Process, SimExport};
use crate::host::{Faults, SimHost};

/// Time in which all copies have come.
const COPYING_MAX: Duration = Duration::from_secs(10);

/// Longest time of copying beyond that, the pause in which no process serves, and the time without
/// any process.
const COPYING_BEYOND: Duration = Duration::from_secs(3);
const PAUSE_MAX: Duration = Duration::from_millis(300);
const ABSENCE_MAX: Duration = Duration::from_secs(4);

/// The point at which a next process dies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dies {
    /// Behind so many copies.
    Copying(u32),
    /// In the pause.
    Pausing,
    /// At the last moment.
    Withdrawn,
    /// Just after the commit.
    Serving,
    Never,
}

/// A hand-over to a process beside the running one.
pub(super) struct Handover {
    next: NextProcess,
    received: Receiver<SimExport>,
    /// Workers of which not all has come yet.
    incomplete: BTreeSet<WorkerId>,
    copies: u32,
    dies: Dies,
    /// The sockets of some allocations fail in the next process.
    is_faulty: bool,
    begun: Instant,
    /// Time of the next step.
    due: Instant,
    /// The running process has left.
    has_left: bool,
}

/// Everything of a process that is gone, until the next one begins.
pub(super) struct Absence {
    from: Legacy,
    until: Instant,
}

enum Legacy {
    Nothing,
    /// It has left everything to the service manager.
    Parked(Vec<Listeners>, Vec<SimExport>, Vec<Vec<(AllocationId, Progress)>>),
    Kept(Box<Keeper>),
}

impl Absence {
    pub(super) const fn next_wake(&self) -> Instant {
        self.until
    }
}

impl Handover {
    /// Time of its next step. Copies come with turns of the workers.
    pub(super) const fn next_wake(&self) -> Instant {
        self.due
    }

    /// Returns true if the running process serves no more.
    pub(super) const fn has_left(&self) -> bool {
        self.has_left
    }

    /// Takes the copies that have come. False if it dies of them.
    fn take_copies(&mut self) -> bool {
        while let Ok(export) = self.received.try_recv() {
            if self.dies == Dies::Copying(self.copies) {
                return false;
            }
            self.copies += 1;
            if export.snapshot.complete {
                self.incomplete.remove(&export.snapshot.worker);
            }
            self.next.import(export);
        }
        true
    }
}

impl ServerHost {
    /// Begins to hand everything over to another process, which may fail.
    pub fn upgrade(&mut self) {
        let Some(process) = self.serving.as_ref().filter(|_| self.handover.is_none()) else {
            return;
        };
        let listeners = process.listeners();
        let workers = (0..self.plan.workers).map(WorkerId).collect();
        let (send, received) = sync_channel(COPIES_WAITING);
        process.channels().copy_to_successor(&send);
        let mut next = self.prepare(listeners);
        next.begin_import();
        let dies = match self.rng.below(8) {
            0 => Dies::Copying(self.rng.below(4) as u32),
            1 => Dies::Pausing,
            2 => Dies::Withdrawn,
            3 => Dies::Serving,
            _ => Dies::Never,
        };
        let beyond = if self.rng.below(2) == 0 { Duration::ZERO } else { COPYING_BEYOND };
        self.handover = Some(Handover {
            next,
            received,
            incomplete: workers,
            copies: 0,
            dies,
            is_faulty: self.rng.below(8) == 0,
            begun: self.ran_at,
            due: self.ran_at + self.rng.duration_below(beyond),
            has_left: false,
        });
        self.has_work_left = true;
    }

    /// Ends the process, which leaves everything for the next one.
    pub fn restart(&mut self, out: &mut Outbox) {
        if self.handover.is_some() {
            return;
        }
        let Some(mut process) = self.serving.take() else { return };
        let listeners = process.listeners();
        let left = self.without_faults(|_| export(&mut process));
        let parts = left.expect("copies of simulated sockets");
        let workers = process.workers.iter_mut();
        let progress = if self.rng.below(2) == 0 {
            workers.map(|worker| worker.worker.last_progress(true)).collect()
        } else {
            workers.map(|worker| worker.worker.last_progress(false)).collect()
        };
        self.keeper = None;
        self.end(process, out);
        self.wait_for_next(Legacy::Parked(listeners, parts, progress));
    }

    /// The process dies, or ends with its last copies at the keeper. The next one has the keeper's
    /// copies, if there is a keeper.
    pub fn die(&mut self, gracefully: bool, out: &mut Outbox) {
        let Some(process) = self.serving.take() else { return };
        self.handover = None;
        let mut keeper = self.keeper.take();
        if gracefully {
            // There is room for the last copies.
            keeper.iter_mut().for_each(Keeper::read_all);
            self.end(process, out);
            keeper.iter_mut().for_each(Keeper::read_all);
        } else {
            self.add_earlier(process.counters().cloned().collect());
            drop(process);
            // The keeper may lack recent changes.
            self.ended.forget_since(self.ran_at);
            keeper.iter_mut().for_each(|keeper| keeper.read_some(&mut self.rng));
        }
        self.has_died = true;
        self.wait_for_next(keeper.map_or(Legacy::Nothing, |keeper| Legacy::Kept(Box::new(keeper))));
    }

    /// Another keeper takes the place of the one that was there, if any.
    pub fn keep(&mut self) {
        self.keeper = self.serving.as_ref().map(Keeper::follow);
        self.has_work_left = true;
    }

    /// Goes on with everything that is under way.
    pub(super) fn pass_on(&mut self, now: Instant, out: &mut Outbox) {
        if let Some(keeper) = &mut self.keeper {
            keeper.run(now, &mut self.rng);
        }
        if let Some(handover) = self.handover.take() {
            self.hand_over(handover, now, out);
        }
        if self.absence.as_ref().is_some_and(|absence| absence.until <= now)
            && let Some(absence) = self.absence.take()
        {
            self.begin_again(absence.from);
        }
    }

    fn wait_for_next(&mut self, from: Legacy) {
        // A new process does not drain.
        self.drains = false;
        let until = self.ran_at + self.rng.duration_below(ABSENCE_MAX);
        self.absence = Some(Absence { from, until });
    }

    /// Ends a process, which has stopped serving.
    pub(super) fn end(&mut self, process: Process, out: &mut Outbox) {
        self.add_earlier(process.finish());
        self.host.take_sent().into_iter().for_each(|packet| out.send(packet));
    }

    /// The next step of a hand-over.
    fn hand_over(&mut self, mut handover: Handover, now: Instant, out: &mut Outbox) {
        let Some(mut process) = self.serving.take() else { return };
        let goes_on = if handover.has_left && handover.due <= now {
            if self.let_serve(&mut process, &mut handover) {
                self.end(process, out);
                self.handovers += 1;
                let refused = self.begin(handover.next);
                if !handover.is_faulty {
                    self.check_refused(refused);
                }
                if handover.dies == Dies::Serving {
                    self.die(false, out);
                }
                return;
            }
            false
        } else {
            handover.has_left || self.copy(&mut process, &mut handover, now)
        };
        if goes_on {
            self.handover = Some(handover);
        } else {
            // The next process is gone, with its end of the copies.
            drop(handover);
            self.without_faults(|_| take_back(&mut process));
            self.has_work_left = true;
        }
        self.serving = Some(process);
    }

    /// Copies, and lets the process leave when all has come. False if the hand-over has failed.
    fn copy(&mut self, process: &mut Process, handover: &mut Handover, now: Instant) -> bool {
        let faults = self.faults_of(handover);
        if !self.untouched(|host| host.with_faults(faults, || handover.take_copies())) {
            return false;
        }
        if !handover.incomplete.is_empty() {
            handover.due = handover.due.max(now + super::MOMENT);
            return now < handover.begun + COPYING_MAX;
        }
        now < handover.due || self.leave_to(process, handover, now)
    }

    /// Lets the process leave, and the next one take the rest. False if the hand-over has failed.
    fn leave_to(&mut self, process: &mut Process, handover: &mut Handover, now: Instant) -> bool {
        let faults = self.faults_of(handover);
        let exhausted = if handover.is_faulty { self.plan.faults.exhausted } else { Chance::NEVER };
        let left = self
            .host
            .with_faults(Faults { exhausted, ..Faults::default() }, || export(process))
            .ok()
            .filter(|_| self.untouched(|host| host.with_faults(faults, || handover.take_copies())));
        let Some(mut parts) = left else { return false };
        if self.rng.below(2) == 0 {
            parts.reverse();
        }
        self.untouched(|host| host.with_faults(faults, || handover.next.import_last(parts)));
        handover.has_left = true;
        handover.due = now + self.rng.duration_below(PAUSE_MAX);
        true
    }

    /// The process lets the next one serve. False if that one is gone.
    fn let_serve(&mut self, process: &mut Process, handover: &mut Handover) -> bool {
        if handover.dies == Dies::Pausing {
            return false;
        }
        self.without_faults(|_| {
            let workers = process.workers.iter_mut();
            let progress: Vec<_> =
                workers.map(|worker| worker.worker.last_progress(true)).collect();
            if handover.dies == Dies::Withdrawn {
                return false;
            }
            handover.next.set_progress(progress);
            process.workers.iter_mut().for_each(|worker| worker.worker.commit());
            true
        })
    }

    /// Commits the successor, and returns the errors of its import.
    fn begin(&mut self, next: NextProcess) -> Vec<ImportError> {
        let (process, refused) = next.serve(&self.host, self.drains);
        self.keeper = (self.rng.below(3) > 0).then(|| Keeper::follow(&process));
        self.serving = Some(process);
        self.has_work_left = true;
        refused
    }

    /// A process begins where there is none.
    fn begin_again(&mut self, from: Legacy) {
        match from {
            Legacy::Nothing => self.without_faults(Self::begin_anew),
            Legacy::Parked(listeners, parts, progress) => {
                let mut next = self.prepare(listeners);
                next.begin_import();
                self.take_over(&mut next, parts);
                next.set_progress(progress);
                self.handovers += 1;
                let refused = self.begin(next);
                self.check_refused(refused);
            }
            Legacy::Kept(mut keeper) => {
                let Some((listeners, parts)) = keeper.give() else {
                    return self.wait_for_next(Legacy::Nothing);
                };
                let mut next = self.prepare(listeners);
                next.begin_import();
                self.take_over(&mut next, parts);
                if self.rng.below(4) == 0 {
                    drop(next);
                    return self.wait_for_next(Legacy::Kept(keeper));
                }
                self.resumptions += 1;
                // Without the newest states two allocations may claim one port.
                let _refused = self.begin(next);
                self.keeper = self.keeper.take().map(|own| own.with_earlier(*keeper));
            }
        }
    }

    /// A process begins with nothing.
    pub(super) fn begin_anew(&mut self) {
        if self.wall_error < 0 {
            // A process without a predecessor and with a clock in the past may repeat ids.
            self.given.clear();
        }
        let listeners =
            |id| Listeners::open(&self.host, &self.plan.listeners, &self.plan.policy, id);
        let listeners = (0..self.plan.workers).map(WorkerId).map(listeners).collect();
        let next = self.prepare(listeners);
        drop(self.begin(next));
    }

    /// Prepares a process with these listeners.
    fn prepare(&mut self, listeners: Vec<Listeners>) -> NextProcess {
        let plan = (&self.plan, self.users);
        let next = NextProcess::new(plan, &self.host, &mut self.rng, listeners);
        self.note_tables(next.policy());
        next
    }

    /// Time has passed, nothing else: all but expired allocations are taken.
    fn check_refused(&mut self, refused: Vec<ImportError>) {
        for refused in refused {
            if refused != ImportError::Allocation(AllocationImportError::Expired) {
                self.violation.get_or_insert_with(|| format!("not taken over: {refused}"));
            }
        }
    }

    /// Faults in the next process that an allocation may end of.
    fn faults_of(&self, handover: &Handover) -> Faults {
        let Faults { watch, route_refused, .. } = self.plan.faults;
        let some = Faults { watch, route_refused, ..Faults::default() };
        if handover.is_faulty { some } else { Faults::default() }
    }

    fn take_over(&mut self, next: &mut NextProcess, parts: Vec<SimExport>) {
        let none = Faults::default();
        self.untouched(|host| host.with_faults(none, || next.import_last(parts)));
    }

    /// Runs a process before the commit: it must send nothing and use no connection.
    fn untouched<T>(&mut self, act: impl FnOnce(&SimHost) -> T) -> T {
        let (host, before) = (self.host.clone(), self.host.sent());
        let done = self.tcp.untouched(|| act(&host));
        if self.host.sent() != before {
            let why = "a process has sent something before it served";
            self.violation.get_or_insert_with(|| why.to_owned());
        }
        done
    }

    /// A worker that cannot hear its listeners any more stops, which is another matter.
    fn without_faults<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let host = self.host.clone();
        host.with_faults(Faults::default(), || act(self))
    }
}

/// Pauses all workers of a process, and exports them after the messages between them.
fn export(process: &mut Process) -> std::io::Result<Vec<SimExport>> {
    process.workers.iter_mut().for_each(|worker| worker.worker.pause());
    for worker in &mut process.workers {
        worker.worker.turn();
    }
    process.workers.iter_mut().map(|worker| worker.worker.export()).collect()
}

/// Lets all workers of a process take everything back.
fn take_back(process: &mut Process) {
    process.workers.iter_mut().for_each(|worker| worker.worker.roll_back());
}
