//! The end of a server's process, and the next one, which goes on with its allocations.

use std::sync::Arc;

use control::{CounterTotals, LockedRegistry};
use netsim::Outbox;
use turn_proto::{Policy, RelayAddress, RelayPorts, RelayPrefix};

use super::{ServerHost, SimWorker};

impl ServerHost {
    /// Ends the process; the next one goes on with the allocations of clients over UDP.
    pub fn restart(&mut self, out: &mut Outbox) {
        if self.workers.is_empty() {
            return;
        }
        // A worker that cannot hear its listeners any more stops, which is another matter.
        let faults = std::mem::take(&mut self.host.state().faults);
        let left: Result<Vec<_>, _> =
            self.workers.iter_mut().map(|worker| worker.worker.leave()).collect();
        let left = left.expect("copies of simulated sockets");
        // A failure of the next process in the middle, or at the last moment: the old one takes everything back.
        let fails = self.rng.below(8);
        let progress: Vec<_> = if fails == 0 {
            Vec::new()
        } else {
            self.workers.iter_mut().map(|worker| worker.worker.withdraw()).collect()
        };
        if fails < 2 {
            self.workers.iter_mut().for_each(|worker| worker.worker.take_back());
            self.host.state().faults = faults;
            self.has_work_left = true;
            return;
        }
        let mut inherited = left.into_iter();
        let before = std::mem::take(&mut self.workers);
        self.earlier.extend(before.iter().map(|worker| Arc::clone(&worker.counters)));
        self.answers.clear();
        self.registry = Arc::new(LockedRegistry::new());
        let policy = self.plan.policy.clone();
        let policy = Policy {
            relay: policy.relay.into_iter().map(renewed_address).collect(),
            prefixes: policy.prefixes.iter().map(|it| self.renewed_prefix(it)).collect(),
            ..policy
        };
        self.plan.policy = policy.clone();
        self.start(&policy, |_| inherited.next());
        for (worker, progress) in self.workers.iter_mut().zip(progress) {
            worker.worker.set_progress(progress);
        }
        self.host.state().faults = faults;
        before.into_iter().for_each(|SimWorker { worker, .. }| worker.finish());
        self.host.take_sent().into_iter().for_each(|packet| out.send(packet));
        self.has_work_left = true;
    }

    /// A prefix of which no address is in use.
    fn renewed_prefix(&self, prefix: &RelayPrefix) -> RelayPrefix {
        let first_port = prefix.ports().next().expect("a port of the first worker");
        let workers = prefix.ports().count() as u16;
        RelayPrefix::new(prefix.network(), first_port, workers).expect("as it was")
    }

    /// These rules with the tables of this process.
    pub(super) fn with_own_tables(&self, policy: Policy) -> Policy {
        let own = &self.plan.policy;
        let relay = policy.relay.into_iter().map(|relay| {
            let known = own.relay.iter().find(|own| own.local == relay.local);
            known.cloned().unwrap_or(relay)
        });
        Policy { relay: relay.collect(), prefixes: own.prefixes.clone(), ..policy }
    }

    /// The counters of all workers.
    #[must_use]
    pub fn totals(&self) -> CounterTotals {
        match &self.stopped {
            Some(totals) => totals.clone(),
            None => {
                let earlier = self.earlier.iter().map(|counters| &**counters);
                CounterTotals::of(
                    earlier.chain(self.workers.iter().map(|worker| &*worker.counters)),
                )
            }
        }
    }

    /// Listening sockets, UDP and TCP.
    pub(super) fn listening(&self) -> usize {
        2 * self.plan.listeners.len() * self.workers.len()
    }
}

/// An address of which no port is in use.
fn renewed_address(relay: RelayAddress) -> RelayAddress {
    RelayAddress { ports: RelayPorts::new(), ..relay }
}
