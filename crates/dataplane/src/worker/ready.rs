//! Ready sockets of one wait, sorted by kind.

use linux_net::Event;
use turn_types::{ConnectionId, RelayId, SocketId};

use crate::limits::SOCKETS_PER_TURN;
use crate::tcp_relay::Readiness;
use crate::token::Token;

/// Ready sockets of one iteration.
#[derive(Debug)]
pub(super) struct Ready {
    /// Listeners with datagrams. The flag is true until the listener is empty.
    listeners: Vec<(SocketId, bool)>,
    /// Relay sockets with datagrams. The flag is true until the socket is empty.
    relays: Vec<(RelayId, bool)>,
    /// Crowded relay sockets with datagrams.
    crowded: Vec<RelayId>,
    /// Relay sockets with a nonempty error queue.
    failed: Vec<RelayId>,
    /// Clients' connections with input, end of input or an error.
    readable: Vec<SocketId>,
    /// Clients' connections that accept output.
    writable: Vec<SocketId>,
    /// Acceptors with waiting connections.
    acceptors: Vec<u32>,
    /// Connections with peers.
    peers: Vec<(ConnectionId, Readiness)>,
    /// Number of events in the last report.
    reported: usize,
    /// Number of events in all reports, except input that the fair queue schedules.
    others: usize,
    /// Token of the first event. The kernel reports the same socket again after all others.
    first: Option<u64>,
    /// True if a report was full.
    is_full: bool,
    /// True if the reports contain all ready sockets.
    is_complete: bool,
}

impl Ready {
    pub(super) fn new() -> Self {
        let capacity = SOCKETS_PER_TURN;
        Self {
            listeners: Vec::with_capacity(capacity),
            relays: Vec::with_capacity(capacity),
            crowded: Vec::new(),
            failed: Vec::with_capacity(capacity),
            readable: Vec::with_capacity(capacity),
            writable: Vec::with_capacity(capacity),
            acceptors: Vec::with_capacity(capacity),
            peers: Vec::with_capacity(capacity),
            reported: 0,
            others: 0,
            first: None,
            is_full: false,
            is_complete: false,
        }
    }

    /// Clears everything for the next iteration.
    pub(super) fn clear(&mut self) {
        (self.reported, self.others, self.first) = (0, 0, None);
        (self.is_full, self.is_complete) = (false, false);
        self.listeners.clear();
        self.relays.clear();
        self.crowded.clear();
        self.failed.clear();
        self.readable.clear();
        self.writable.clear();
        self.acceptors.clear();
        self.peers.clear();
    }

    /// Adds an event. Events must be added in report order.
    pub(super) fn add(&mut self, event: Event, is_crowded: impl FnOnce(RelayId) -> bool) {
        self.reported += 1;
        self.is_full |= self.reported >= SOCKETS_PER_TURN;
        self.is_complete |= self.first == Some(event.token);
        if self.is_complete {
            return;
        }
        self.first.get_or_insert(event.token);
        // Reading returns errors and ends of input as well.
        let has_input = event.readable || event.error || event.hangup;
        match Token::of(event.token) {
            // The ring is served in every iteration.
            Token::Ring => self.others += 1,
            // A receive call also clears a pending error of the socket.
            Token::Listener(id) => {
                self.listeners.push((id, true));
                self.others += 1;
            }
            Token::Acceptor(index) => {
                self.acceptors.push(index);
                self.others += 1;
            }
            Token::Stream(id) => {
                if event.writable {
                    self.writable.push(id);
                    self.others += 1;
                }
                if has_input {
                    self.readable.push(id);
                }
            }
            Token::Peer(id) => {
                let readiness = Readiness { readable: has_input, writable: event.writable };
                self.peers.push((id, readiness));
                self.others += usize::from(event.writable);
            }
            Token::Relay(relay) => {
                let is_crowded = event.readable && is_crowded(relay);
                if is_crowded {
                    self.crowded.push(relay);
                } else if event.readable {
                    self.relays.push((relay, true));
                }
                if event.error {
                    self.failed.push(relay);
                }
                self.others += usize::from(!is_crowded || event.error);
            }
        }
    }

    /// Completes the reports of this iteration. After a full report, all `listeners` are added. The
    /// kernel reports ready sockets one after the other, so a listener would otherwise wait for
    /// hundreds of busy relays.
    pub(super) fn complete(&mut self, listeners: usize) {
        if self.is_full() {
            self.add_listeners(u32::try_from(listeners).unwrap_or(u32::MAX));
        }
    }

    /// Returns true if more sockets may be ready than one report contains.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Starts another report after a full report. Returns false if no further report is needed.
    /// Only sources of the fair queue get further reports. Other sockets get one report per
    /// iteration, because they are served in report order.
    pub(super) fn begin_report(&mut self) -> bool {
        let is_full = self.reported >= SOCKETS_PER_TURN;
        self.reported = 0;
        is_full && !self.is_complete && self.others < SOCKETS_PER_TURN
    }

    fn add_listeners(&mut self, count: u32) {
        for id in (0..count).map(SocketId) {
            if self.listeners.iter().all(|(there, _)| *there != id) {
                self.listeners.push((id, true));
            }
        }
    }

    /// Returns the number of rounds after which every socket was served.
    pub(super) fn rounds(&self) -> usize {
        self.listeners.len().max(self.relays.len())
    }

    /// Returns the listener to serve in this round. Listeners alternate until they are empty.
    pub(super) fn listener(&self, round: usize) -> Option<SocketId> {
        let index = round.checked_rem(self.listeners.len())?;
        let (id, more) = self.listeners[index];
        more.then_some(id)
    }

    /// Notes that the listener of this round is empty.
    pub(super) fn listener_is_empty(&mut self, round: usize) {
        if let Some(index) = round.checked_rem(self.listeners.len()) {
            self.listeners[index].1 = false;
        }
    }

    /// Returns the relay to serve in this round.
    pub(super) fn relay(&self, round: usize) -> Option<RelayId> {
        self.relays.get(round).map(|(relay, _)| *relay)
    }

    /// Notes that the relay of this round is empty.
    pub(super) fn relay_is_empty(&mut self, round: usize) {
        if let Some((_, more)) = self.relays.get_mut(round) {
            *more = false;
        }
    }

    /// Removes empty sockets. Returns false if no sockets remain.
    pub(super) fn keep_unfinished(&mut self) -> bool {
        self.listeners.retain(|(_, more)| *more);
        self.relays.retain(|(_, more)| *more);
        self.rounds() > 0
    }

    /// Returns the `index`-th relay with a nonempty error queue.
    pub(super) fn failed(&self, index: usize) -> Option<RelayId> {
        self.failed.get(index).copied()
    }

    /// Returns the `index`-th client's connection with input.
    pub(super) fn readable(&self, index: usize) -> Option<SocketId> {
        self.readable.get(index).copied()
    }

    /// Returns the `index`-th client's connection that accepts output.
    pub(super) fn writable(&self, index: usize) -> Option<SocketId> {
        self.writable.get(index).copied()
    }

    /// Returns the `index`-th crowded relay with datagrams.
    pub(super) fn crowded(&self, index: usize) -> Option<RelayId> {
        self.crowded.get(index).copied()
    }

    /// Returns the `index`-th connection with a peer, and the readiness of the connection.
    pub(super) fn peer(&self, index: usize) -> Option<(ConnectionId, Readiness)> {
        self.peers.get(index).copied()
    }

    /// Returns the `index`-th acceptor with waiting connections.
    pub(super) fn acceptor(&self, index: usize) -> Option<u32> {
        self.acceptors.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::REPORTS_PER_TURN;
    use crate::token::STREAM;

    fn ready(listeners: u32, relays: u64) -> Ready {
        Ready {
            listeners: (0..listeners).map(|id| (SocketId(id), true)).collect(),
            relays: (0..relays).map(|id| (RelayId(id), true)).collect(),
            ..Ready::new()
        }
    }

    #[test]
    fn a_busy_listener_is_served_as_often_as_the_relays_together() {
        let ready = ready(1, 5);
        let served = (0..ready.rounds()).filter_map(|round| ready.listener(round));
        assert_eq!(served.count(), 5);
    }

    #[test]
    fn listeners_take_turns_and_an_empty_one_is_left_out() {
        let mut ready = ready(2, 5);
        ready.listener_is_empty(0);
        let served: Vec<_> = (0..ready.rounds()).map(|round| ready.listener(round)).collect();
        assert_eq!(served, [None, Some(SocketId(1)), None, Some(SocketId(1)), None]);
    }

    #[test]
    fn listeners_have_their_turn_when_relays_fill_the_report() {
        let mut ready = ready(1, 5);
        ready.add_listeners(3);
        let served = (0..ready.rounds()).filter_map(|round| ready.listener(round));
        let mut served: Vec<_> = served.map(|id| id.0).collect();
        served.sort_unstable();
        assert_eq!(served, [0, 0, 1, 1, 2]);
    }

    /// First relay of a client with many relays.
    const CROWDED: u64 = 1000;

    /// Simulates all reports of one iteration, for a kernel that reports these sockets cyclically.
    fn gathered(ring: &[Token], writable: bool) -> (Ready, usize) {
        let (mut ready, mut reports, mut next) = (Ready::new(), 0, 0);
        loop {
            for _ in 0..ring.len().min(SOCKETS_PER_TURN) {
                let token = ring[next % ring.len()].number();
                let event = Event { token, readable: true, writable, error: false, hangup: false };
                ready.add(event, |relay| relay.0 >= CROWDED);
                next += 1;
            }
            reports += 1;
            if reports == REPORTS_PER_TURN || !ready.begin_report() {
                return (ready, reports);
            }
        }
    }

    #[test]
    fn all_that_the_fair_queue_sorts_is_gathered_once() {
        let streams = |count: usize| -> Vec<_> {
            (0..count).map(|id| Token::Stream(SocketId(STREAM + id as u32))).collect()
        };
        for (count, expected) in [(1, 1), (31, 1), (32, 2), (33, 2), (64, 3), (900, 29)] {
            let (ready, reports) = gathered(&streams(count), false);
            assert_eq!((ready.readable.len(), reports), (count, expected));
        }
        let (ready, reports) = gathered(&streams(5000), false);
        let all = REPORTS_PER_TURN * SOCKETS_PER_TURN;
        assert_eq!((ready.readable.len(), reports), (all, REPORTS_PER_TURN));
        let peers: Vec<_> = (0..900).map(|id| Token::Peer(ConnectionId(id))).collect();
        assert_eq!(gathered(&peers, false).0.peers.len(), 900);
        let relays: Vec<_> = (0..900).map(|id| Token::Relay(RelayId(CROWDED + id))).collect();
        let (ready, _) = gathered(&relays, false);
        assert_eq!((ready.crowded.len(), ready.relays.len()), (900, 0));
        // Other sockets are served in the order of one report.
        assert_eq!(gathered(&streams(900), true).1, 1);
        assert_eq!(gathered(&peers, true).1, 1);
        let relays: Vec<_> = (0..900).map(|id| Token::Relay(RelayId(id))).collect();
        let (ready, reports) = gathered(&relays, false);
        assert_eq!((ready.relays.len(), reports), (SOCKETS_PER_TURN, 1));
    }

    #[test]
    fn only_those_with_more_are_served_again() {
        let mut ready = ready(2, 3);
        ready.listener_is_empty(0);
        ready.relay_is_empty(0);
        ready.relay_is_empty(2);
        assert!(ready.keep_unfinished());
        assert_eq!((ready.rounds(), ready.listener(0)), (1, Some(SocketId(1))));
        assert_eq!(ready.relay(0), Some(RelayId(1)));
        ready.listener_is_empty(0);
        ready.relay_is_empty(0);
        assert!(!ready.keep_unfinished());
    }

    #[test]
    fn every_socket_is_served_whatever_there_is_more_of() {
        for (listeners, relays) in [(0, 0), (0, 3), (3, 0), (2, 7), (7, 2)] {
            let ready = ready(listeners, relays);
            let rounds = 0..ready.rounds();
            let mut served: Vec<_> = rounds.clone().filter_map(|r| ready.listener(r)).collect();
            served.sort();
            served.dedup();
            assert_eq!(served.len(), listeners as usize);
            assert_eq!(rounds.filter_map(|r| ready.relay(r)).count(), relays as usize);
        }
    }
}
