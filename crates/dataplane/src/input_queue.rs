//! Input that waits for a later iteration of the loop, in a fair order.
//!
//! The input of clients' connections, of peers' connections and of crowded relays has a bounded
//! part of an iteration, as datagrams wait for it. Further sources wait here, sorted by the recent
//! use of their clients: a client that sends little waits for one iteration, however many
//! connections or relays another client has. Where many customers share an address, each connection
//! is a client. Of most waiting sources the kernel reports no input: its reports reach the others.

use std::net::{IpAddr, Ipv6Addr};

use ahash::RandomState;
use fair_share::{CLIENTS, Claimant, FairQueue};
use turn_types::{ConnectionId, Instant, RelayId, SocketId};

use crate::io::Net;
use crate::limits::{INPUT_DELAY, INPUT_PER_TURN, INPUT_TIME_PER_TURN, INPUT_UNIT_BYTES};

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
    /// An address in a separate `/32`: sources share no network.
    fn network(self) -> IpAddr {
        let number = match self {
            Self::Stream(SocketId(number)) | Self::Peer(ConnectionId(number)) => number,
            Self::Relay(RelayId(number)) => number as u32,
        };
        Ipv6Addr::from(u128::from(number) << 96).into()
    }
}

/// Queue of one worker, and the work of this iteration.
#[derive(Debug)]
pub(crate) struct InputQueue {
    /// Waiting sources, and closed ones until the next iteration.
    sources: FairQueue<InputSource>,
    /// True where each address is one customer's.
    is_by_customer: bool,
    /// Sources added in this iteration, of which the kernel still reports input.
    added: Vec<InputSource>,
    /// Work of this iteration, in units of [`INPUT_PER_TURN`].
    spent: usize,
    /// End of the time for input; `None` before the first read.
    until: Option<Instant>,
}

impl InputQueue {
    /// An empty queue.
    pub(crate) fn new(is_by_customer: bool, hasher: RandomState) -> Self {
        let sources = FairQueue::new(&CLIENTS, usize::MAX, INPUT_DELAY, hasher);
        Self { sources, is_by_customer, added: Vec::new(), spent: 0, until: None }
    }

    /// Returns true where each address is one customer's.
    pub(crate) const fn is_by_customer(&self) -> bool {
        self.is_by_customer
    }

    /// Starts another iteration of the loop.
    pub(crate) const fn begin_turn(&mut self) {
        (self.spent, self.until) = (0, None);
    }

    /// Work of this iteration, in units of [`INPUT_PER_TURN`].
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

    /// Charges this iteration for a read of so many bytes, with the TLS records in them.
    pub(crate) fn spend_read(&mut self, net: &impl Net, records: usize, bytes: usize) {
        self.until.get_or_insert_with(|| net.instant() + INPUT_TIME_PER_TURN);
        self.spent += 1 + records + bytes / INPUT_UNIT_BYTES;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Number of waiting sources, at most.
    pub(crate) fn len(&self) -> usize {
        self.sources.len()
    }

    /// Adds a source that is not in the queue.
    pub(crate) fn push(&mut self, now: Instant, client: IpAddr, source: InputSource) {
        let client = if self.is_by_customer { client } else { source.network() };
        // The queue has no capacity to exceed.
        let _: Option<InputSource> = self.sources.push(now, &Claimant::at(client), source);
        self.added.push(source);
    }

    /// Removes the source to serve next, which may be closed.
    pub(crate) fn pop(&mut self) -> Option<InputSource> {
        self.sources.pop()
    }

    /// Removes a source from the list of those added in this iteration.
    pub(crate) fn pop_added(&mut self) -> Option<InputSource> {
        self.added.pop()
    }
}
