//! Input that waits for a later iteration of the loop, in a fair order.
//!
//! The input of clients' connections, peers' connections and crowded relays has a bounded part of
//! an iteration, because datagrams wait for this input. Further sources wait in this queue, sorted
//! by the recent processor time of their clients. A client that sends little waits for one
//! iteration. This holds for any number of connections or relays of another client, and for any
//! number of clients that send much.
//!
//! If many customers share an address, each connection is treated as a client. The kernel reports
//! no input of most waiting sources, so the reports have capacity for other sources.

use std::mem;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ahash::RandomState;
use fair_share::{CLIENTS, Claimant, FairQueue};
use turn_types::{ConnectionId, Instant, RelayId, SocketId};

use crate::io::Net;
use crate::limits::{
    INPUT_DELAY_MAX, INPUT_DELAY_MIN, INPUT_ENTRIES_MIN, INPUT_PER_TURN, INPUT_TIME_PER_TURN,
    INPUT_UNIT_BYTES,
};

/// Source of input that may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InputSource {
    /// Client's connection.
    Stream(SocketId),
    /// Peer's connection.
    Peer(ConnectionId),
    /// Crowded relay.
    Relay(RelayId),
}

impl InputSource {
    /// Returns an address in a separate `/32` for each source, so sources share no network.
    fn network(self) -> IpAddr {
        let number = match self {
            Self::Stream(SocketId(number)) | Self::Peer(ConnectionId(number)) => number,
            Self::Relay(RelayId(number)) => number as u32,
        };
        Ipv6Addr::from(u128::from(number) << 96).into()
    }
}

/// State of a source that may wait in the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Postponement {
    waits: bool,
    /// True if the kernel reports no input of the source.
    is_unreported: bool,
}

impl Postponement {
    /// Returns true if the source is in the queue.
    pub(crate) const fn waits(self) -> bool {
        self.waits
    }

    /// Returns true if the kernel reports no input of the source.
    pub(crate) const fn is_unreported(self) -> bool {
        self.is_unreported
    }

    /// Marks a source as waiting. Returns false if the source waits already.
    pub(crate) const fn begin(&mut self) -> bool {
        !mem::replace(&mut self.waits, true)
    }

    /// Marks a source as served. Returns true if the source waited.
    pub(crate) const fn end(&mut self) -> bool {
        mem::replace(&mut self.waits, false)
    }

    /// Returns true if the source waits and the kernel must stop reporting the source's input. The
    /// source is marked as unreported.
    pub(crate) const fn ignore(&mut self) -> bool {
        self.waits && !mem::replace(&mut self.is_unreported, true)
    }

    /// Returns true if the source does not wait and the kernel must report the source's input
    /// again. The source is marked as reported.
    pub(crate) const fn watch_again(&mut self) -> bool {
        !self.waits && mem::replace(&mut self.is_unreported, false)
    }
}

/// Input queue of one worker, and the work of the current iteration.
#[derive(Debug)]
pub(crate) struct InputQueue {
    /// Waiting sources with their clients. Closed sources remain until they are served or removed.
    sources: FairQueue<(InputSource, IpAddr)>,
    /// Number of entries at which closed sources are removed: twice the number that remained.
    removal_at: usize,
    /// True if each address belongs to one customer.
    is_by_customer: bool,
    /// Sources added in this iteration, whose input the kernel still reports.
    added: Vec<InputSource>,
    /// Work of this iteration, in units of [`INPUT_PER_TURN`].
    spent: usize,
    /// End of the time for input. `None` before the first read of the iteration.
    until: Option<Instant>,
}

impl InputQueue {
    /// Creates an empty queue.
    pub(crate) fn new(is_by_customer: bool, hasher: RandomState) -> Self {
        let sources = FairQueue::new(&CLIENTS, usize::MAX, INPUT_DELAY_MIN, hasher)
            .with_grace(INPUT_DELAY_MAX);
        let removal_at = INPUT_ENTRIES_MIN;
        Self { sources, removal_at, is_by_customer, added: Vec::new(), spent: 0, until: None }
    }

    /// Returns true if each address belongs to one customer.
    pub(crate) const fn is_by_customer(&self) -> bool {
        self.is_by_customer
    }

    /// Starts another iteration of the loop.
    pub(crate) const fn begin_turn(&mut self) {
        (self.spent, self.until) = (0, None);
    }

    /// Returns the work of this iteration, in units of [`INPUT_PER_TURN`].
    pub(crate) const fn spent(&self) -> usize {
        self.spent
    }

    /// Returns true if this iteration has time for further input.
    pub(crate) fn has_time(&self, net: &impl Net) -> bool {
        self.spent < INPUT_PER_TURN && self.until.is_none_or(|until| net.instant() < until)
    }

    /// Charges this iteration for messages.
    pub(crate) const fn spend_messages(&mut self, number: usize) {
        self.spent += number;
    }

    /// Charges this iteration for a read of `bytes` bytes that contain `records` TLS records.
    pub(crate) fn spend_read(&mut self, net: &impl Net, records: usize, bytes: usize) {
        self.until.get_or_insert_with(|| net.instant() + INPUT_TIME_PER_TURN);
        self.spent += 1 + records + bytes / INPUT_UNIT_BYTES;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Returns the number of entries: waiting sources, and some closed sources.
    pub(crate) fn len(&self) -> usize {
        self.sources.len()
    }

    /// Adds a source that is not in the queue.
    pub(crate) fn push(&mut self, now: Instant, client: IpAddr, source: InputSource) {
        let client = if self.is_by_customer { client } else { source.network() };
        // The queue is unbounded, so no source is dropped.
        let _: Option<_> = self.sources.push(now, &Claimant::at(client), (source, client));
        self.added.push(source);
    }

    /// Removes the source to serve next, which may be closed, and returns the source's client as
    /// well.
    pub(crate) fn pop(&mut self) -> Option<(InputSource, IpAddr)> {
        self.sources.pop()
    }

    /// Charges the client of a source for the time of serving the source.
    pub(crate) fn served(&mut self, now: Instant, client: IpAddr, time: Duration) {
        let delay = time.min(INPUT_DELAY_MAX).saturating_sub(INPUT_DELAY_MIN);
        self.sources.charge(now, &Claimant::at(client), delay);
    }

    /// Removes closed sources, for which `waits` returns false, from a queue that has doubled.
    pub(crate) fn remove_closed(&mut self, mut waits: impl FnMut(&InputSource) -> bool) {
        if self.sources.len() >= self.removal_at {
            self.sources.retain(|(source, _)| waits(source));
            self.removal_at = INPUT_ENTRIES_MIN.max(2 * self.sources.len());
        }
    }

    /// Removes a source from the list of sources added in this iteration.
    pub(crate) fn pop_added(&mut self) -> Option<InputSource> {
        self.added.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn closed_sources_do_not_pile_up() {
        let mut queue = InputQueue::new(true, RandomState::with_seeds(1, 2, 3, 4));
        let now = Instant::ZERO;
        queue.push(now, CLIENT, InputSource::Stream(SocketId(0)));
        for number in 1..100_000 {
            queue.push(now, CLIENT, InputSource::Stream(SocketId(number)));
            while queue.pop_added().is_some() {}
            queue.remove_closed(|source| matches!(source, InputSource::Stream(SocketId(0))));
            assert!(queue.len() <= INPUT_ENTRIES_MIN);
        }
        assert!(matches!(queue.pop(), Some((InputSource::Stream(SocketId(0)), CLIENT))));
    }

    /// Nine hundred clients use all of their shares. Another client sends few messages.
    #[test]
    fn whoever_sends_little_is_served_before_many_that_send_much() {
        for is_by_customer in [true, false] {
            let mut queue = InputQueue::new(is_by_customer, RandomState::with_seeds(1, 2, 3, 4));
            let attacker =
                |number: u32| IpAddr::from([198, 18 + (number >> 8) as u8, number as u8, 1]);
            let (honest, now) = (SocketId(u32::MAX), Instant::ZERO);
            for number in 0..900 {
                queue.push(now, attacker(number), InputSource::Stream(SocketId(number)));
            }
            for round in 0..5000 {
                // A message in about five milliseconds: less than a nine hundredth of the time.
                let sends = round % 10 == 0;
                if sends {
                    queue.push(now, CLIENT, InputSource::Stream(honest));
                }
                for place in 0..8 {
                    let (source, client) = queue.pop().unwrap();
                    let InputSource::Stream(id) = source else { panic!("{source:?}") };
                    if id == honest {
                        queue.served(now, client, INPUT_DELAY_MIN);
                        break;
                    }
                    queue.served(now, client, INPUT_DELAY_MAX);
                    queue.push(now, attacker(id.0), source);
                    // The use of clients before the first charge is unknown.
                    assert!(!sends || place < 7 || round < 200, "it waits in round {round}");
                }
            }
        }
    }

    #[test]
    fn open_sources_remain() {
        let mut queue = InputQueue::new(true, RandomState::with_seeds(1, 2, 3, 4));
        for number in 0..2000 {
            queue.push(Instant::ZERO, CLIENT, InputSource::Stream(SocketId(number)));
            queue.remove_closed(|_| true);
        }
        assert_eq!(queue.len(), 2000);
    }
}
