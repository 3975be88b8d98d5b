//! Invariants of a server.

use std::collections::BTreeSet;
use std::sync::Arc;

use control::{CounterTotals, Fate, Histogram, Kind, Leg, Series, WorkerCounters};
use turn_proto::DropReason;
use turn_types::{RelayProtocol, WorkerId};

use super::ServerHost;
use super::process::Process;

impl ServerHost {
    /// The value of one counter in the running process.
    fn sum(&self, series: Series) -> u64 {
        self.serving.as_ref().map_or(0, |process| process.sum(series))
    }

    /// Returns the sum of one counter over all processes.
    fn sum_of_all(&self, series: Series) -> u64 {
        self.earlier_totals.value(series) + self.sum(series)
    }

    /// Adds the counters of an ended process. The totals are for the audits, which run at each
    /// step.
    pub(super) fn add_earlier(&mut self, counters: Vec<Arc<WorkerCounters>>) {
        self.earlier.extend(counters);
        self.earlier_totals = CounterTotals::of(self.earlier.iter().map(|counters| &**counters));
    }

    /// Live allocations, as counted.
    fn live(&self) -> usize {
        self.serving.as_ref().map_or(0, Process::live)
    }

    /// Listening sockets, UDP and TCP.
    fn listening(&self) -> usize {
        let workers = self.serving.as_ref().map_or(0, |process| process.workers.len());
        2 * self.plan.listeners.len() * workers
    }

    /// Addresses of prefixes that are in use or reserved.
    fn addresses_in_use(&self) -> usize {
        self.prefixes.iter().map(|prefix| prefix.used() as usize).sum()
    }

    /// Checks what must hold after each step.
    pub(super) fn audit(&self) -> Result<(), String> {
        // A few counters only: this runs at each step. The predecessor may have received a message
        // that the successor sends.
        let received = received(|series| self.sum_of_all(series));
        let fates = fates(|series| self.sum_of_all(series));
        if fates > received {
            return Err(format!("{received} packets have {fates} fates"));
        }
        for (from, to) in [(Leg::FromClients, Leg::ToPeers), (Leg::FromPeers, Leg::ToClients)] {
            let (from, to) = (Series::PipedBytes(from), Series::PipedBytes(to));
            // Bytes may be read by one process, and taken by their end in the next.
            if self.sum_of_all(to) > self.sum_of_all(from) {
                return Err(format!("{to:?}: more bytes than were read"));
            }
        }
        if let Some(process) = &self.serving {
            let (live, (taken, _)) = (process.live(), process.registered());
            if taken < live {
                return Err(format!("{live} allocations, and {taken} in the quotas"));
            }
        }
        let (live, open) = (self.live(), self.host.open_sockets());
        // Counting addresses takes long.
        if open < self.listening() + live
            && open + self.addresses_in_use() < self.listening() + live
        {
            return Err(format!("{live} allocations, and {open} sockets"));
        }
        Ok(())
    }

    /// Checks that each allocation is at one worker, with the relayed addresses to itself. Nothing
    /// is to be on its way between workers or processes.
    pub(super) fn audit_places(&mut self) -> Result<(), String> {
        let Some(process) = &mut self.serving else { return Ok(()) };
        let (mut ids, mut relayed) = (BTreeSet::new(), BTreeSet::new());
        let mut listed = 0;
        for worker in 0..process.workers.len() as u16 {
            for record in process.allocations(WorkerId(worker), usize::MAX) {
                listed += 1;
                if !ids.insert(record.id) {
                    return Err(format!("{} is at two workers", record.id));
                }
                if self.ended.has(record.id) {
                    return Err(format!("{} lives, and an operator has ended it", record.id));
                }
                if *self.given.entry(record.id).or_insert(record.created) != record.created {
                    return Err(format!("{} was given twice", record.id));
                }
                // Of two addresses one may be gone, and in use by another.
                let addresses: Vec<_> =
                    record.relayed.into_iter().flatten().map(|relayed| relayed.0).collect();
                let is_tcp = record.attributes.protocol == RelayProtocol::Tcp;
                if let [address] = addresses[..]
                    && !relayed.insert((is_tcp, address))
                {
                    return Err(format!("two allocations have {address}"));
                }
                if !is_tcp && !addresses.iter().any(|address| self.host.is_bound(*address)) {
                    return Err(format!("{addresses:?} have no socket"));
                }
            }
        }
        let live = process.live();
        if listed != live {
            return Err(format!("{live} live, {listed} listed"));
        }
        Ok(())
    }

    /// Checks what must hold when all clients are gone.
    ///
    /// # Errors
    /// Something of them is left.
    pub fn is_clean(&self) -> Result<(), String> {
        let totals = self.totals();
        let gauges = Series::all().filter(|series| series.family().kind == Kind::Gauge);
        for gauge in gauges {
            // Connections close with their workers, without another look at the gauge.
            if self.sum(gauge) != 0 {
                return Err(format!("left over: {} of {gauge:?}", self.sum(gauge)));
            }
        }
        let (allocations, reservations) = self.serving.as_ref().map_or((0, 0), Process::registered);
        let ports: u32 = self.ports.iter().map(|ports| ports.used()).sum();
        let ports = ports as usize + self.addresses_in_use();
        let listeners = self.listening();
        // Those that relays share stay for the next ones.
        let shared = self.host.sockets_at_all_addresses();
        let sockets = self.host.open_sockets() - listeners - shared;
        if (allocations, reservations, ports, sockets) != (0, 0, 0, 0) {
            return Err(format!(
                "left over: {allocations} in the quotas, {reservations} reserved, {ports} ports, {sockets} sockets"
            ));
        }
        let value = |series| totals.value(series);
        let (received, fates) = (received(value), fates(value));
        // Packets that waited for a client's allocation end with their process.
        let was_restarted = !self.earlier.is_empty();
        if fates != received && self.stopped.is_none() && !(was_restarted && fates < received) {
            return Err(format!("{received} packets have {fates} fates"));
        }
        self.histograms_agree(&totals)
    }

    /// Checks that the histograms have all allocations, and the sums by kind of client their
    /// traffic.
    fn histograms_agree(&self, totals: &CounterTotals) -> Result<(), String> {
        if totals.value(Series::NoticesLost) > 0 {
            return Ok(());
        }
        let count = |histogram| totals.buckets(histogram).map(|(_, count)| count).sum::<u64>();
        let ended: u64 = totals.ended().map(|(_, count)| count).sum();
        let lives = (count(Histogram::SessionDuration), count(Histogram::SessionBytes));
        if lives != (ended, ended) || count(Histogram::Allocate) != totals.allocations_created() {
            return Err(format!("{lives:?} of {ended} ended allocations are in the histograms"));
        }
        // The workers bring these up to date when they end.
        let relayed: u64 = totals
            .iter()
            .filter(|(series, _)| matches!(series, Series::RelayedBytes(..)))
            .fold(0, |sum, (_, bytes)| sum.wrapping_add(bytes));
        let ended = totals.value(Series::Sum(Histogram::SessionBytes));
        // A process that dies counts no more, and its allocations begin again from their last
        // copies.
        if self.stopped.is_some() && !self.has_died && relayed != ended {
            return Err(format!("{relayed} bytes by kind of client, {ended} of all allocations"));
        }
        Ok(())
    }

    /// The counters of all processes.
    #[must_use]
    pub fn totals(&self) -> CounterTotals {
        match &self.stopped {
            Some(totals) => totals.clone(),
            None => {
                let running = self.serving.iter().flat_map(Process::counters);
                CounterTotals::of(self.earlier.iter().chain(running).map(|counters| &**counters))
            }
        }
    }
}

/// Packets and ICMP errors that the workers received.
fn received(value: impl Fn(Series) -> u64) -> u64 {
    let packets = [Leg::FromClients, Leg::FromPeers].map(Series::Packets);
    let others = [Series::Offloaded(Leg::FromPeers), Series::IcmpErrors];
    packets.into_iter().chain(others).map(value).sum()
}

fn fates(value: impl Fn(Series) -> u64) -> u64 {
    let fates = Fate::ALL.iter().copied().map(Series::Fate);
    let drops = DropReason::ALL.iter().copied().map(Series::Drop);
    fates.chain(drops).map(value).sum()
}
