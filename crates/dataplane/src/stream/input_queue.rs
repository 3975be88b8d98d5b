//! Connections whose input waits for a later iteration of the loop, in a fair order.
//!
//! The input of all connections together has a bounded part of an iteration, as datagrams wait for
//! it. Further connections wait here, sorted by the recent use of their clients: a client that
//! sends little waits for one iteration, however many connections another client has. The kernel
//! reports no input of waiting connections: its reports reach the others.

use std::mem;
use std::net::{IpAddr, Ipv6Addr};

use ahash::RandomState;
use control::StreamEnd;
use fair_share::{CLIENTS, Claimant, FairQueue};
use turn_types::{Instant, SocketId};

use super::Streams;
use crate::context::Context;
use crate::io::Net;
use crate::limits::{INPUT_DELAY, INPUT_PER_TURN, INPUT_TIME_PER_TURN, INPUT_UNIT_BYTES};

/// Queue of one worker, and the work of this iteration.
#[derive(Debug)]
pub(super) struct InputQueue {
    /// Waiting connections, and closed ones until the next iteration.
    connections: FairQueue<SocketId>,
    /// True where each address is one customer's.
    is_by_customer: bool,
    /// Connections added in this iteration, of which the kernel still reports input.
    added: Vec<SocketId>,
    /// Work of this iteration, in units of [`INPUT_PER_TURN`].
    spent: usize,
    /// End of the time for input; `None` before the first read.
    until: Option<Instant>,
}

impl InputQueue {
    /// An empty queue. Where many customers share an address, connections are sorted by arrival.
    pub(super) fn new(is_by_customer: bool, hasher: RandomState) -> Self {
        let connections = FairQueue::new(&CLIENTS, usize::MAX, INPUT_DELAY, hasher);
        Self { connections, is_by_customer, added: Vec::new(), spent: 0, until: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Adds a connection that is not in it.
    fn push(&mut self, now: Instant, client: IpAddr, id: SocketId) {
        let claimant = if self.is_by_customer { client } else { Ipv6Addr::UNSPECIFIED.into() };
        // The queue has no capacity to exceed.
        let _: Option<SocketId> = self.connections.push(now, &Claimant::at(claimant), id);
        self.added.push(id);
    }
}

impl<N: Net> Streams<N> {
    /// Starts another iteration of the loop.
    pub(crate) const fn begin_turn(&mut self) {
        (self.input.spent, self.input.until) = (0, None);
    }

    /// Work of this iteration, in units of [`INPUT_PER_TURN`].
    pub(crate) const fn spent(&self) -> usize {
        self.input.spent
    }

    /// Returns true if this iteration has time for further input.
    pub(crate) fn has_time(&self, net: &N) -> bool {
        if self.input.spent >= INPUT_PER_TURN {
            return false;
        }
        self.input.until.is_none_or(|until| net.instant() < until)
    }

    /// Charges this iteration for messages.
    pub(super) const fn spend_messages(&mut self, number: usize) {
        self.input.spent += number;
    }

    /// Charges this iteration for a read of so many bytes.
    pub(crate) fn spend_read(&mut self, net: &N, id: SocketId, bytes: usize) {
        self.input.until.get_or_insert_with(|| net.instant() + INPUT_TIME_PER_TURN);
        let records = self.table.get_mut(id).map_or(0, |stream| stream.records_read());
        self.input.spent += 1 + records + bytes / INPUT_UNIT_BYTES;
    }

    /// Returns the number of connections that wait, at most.
    pub(crate) fn postponed(&self) -> usize {
        self.input.connections.len()
    }

    /// Serves the input of a connection in a later iteration.
    pub(crate) fn postpone(&mut self, now: Instant, id: SocketId) {
        if let Some(stream) = self.table.get_mut(id)
            && !mem::replace(&mut stream.is_postponed, true)
        {
            self.input.push(now, stream.path.five_tuple.client.0.ip(), id);
        }
    }

    /// Takes the connection to serve next.
    pub(crate) fn next_postponed(&mut self) -> Option<SocketId> {
        while let Some(id) = self.input.connections.pop() {
            // It may have been closed, and another one have its number.
            if let Some(stream) = self.table.get_mut(id)
                && mem::take(&mut stream.is_postponed)
            {
                return Some(id);
            }
        }
        None
    }

    /// Postpones a connection that was served and has more, or waits for its input.
    pub(crate) fn served(&mut self, cx: &mut Context<N>, id: SocketId) {
        let Some(stream) = self.table.get_mut(id) else { return };
        if stream.has_input() {
            self.postpone(cx.now.instant, id);
        } else if !stream.is_postponed && mem::take(&mut stream.is_unreported) {
            self.rewatch_or_close(cx, id);
        }
    }

    /// Ignores the kernel's reports of the connections added in this iteration.
    pub(crate) fn ignore_postponed(&mut self, cx: &mut Context<N>) {
        while let Some(id) = self.input.added.pop() {
            if let Some(stream) = self.table.get_mut(id)
                && stream.is_postponed
                && !mem::replace(&mut stream.is_unreported, true)
            {
                self.rewatch_or_close(cx, id);
            }
        }
    }

    fn rewatch_or_close(&mut self, cx: &mut Context<N>, id: SocketId) {
        if !self.rewatch(cx, id) {
            self.close(cx, id, StreamEnd::Broken);
        }
    }
}
