//! What one wait reported, sorted by what is to be done.

use linux_net::Events;
use turn_types::{ConnectionId, RelayId, SocketId};

use crate::limits::SOCKETS_PER_TURN;
use crate::token::Token;

/// Work of one turn.
#[derive(Debug)]
pub(crate) struct Ready {
    /// Listeners with datagrams; `true` until one has given all it had.
    listeners: Vec<(SocketId, bool)>,
    /// Relay sockets with datagrams, likewise.
    relays: Vec<(RelayId, bool)>,
    /// Relay sockets with something in their error queue.
    failed: Vec<RelayId>,
    /// Streams with something to read, or that have ended.
    readable: Vec<SocketId>,
    /// Streams that take more.
    writable: Vec<SocketId>,
    /// Where connections wait to be accepted.
    acceptors: Vec<u32>,
    /// Connections with peers: whether there is something to read (or they have ended), and whether they
    /// take more.
    peers: Vec<(ConnectionId, bool, bool)>,
}

impl Ready {
    pub(crate) fn new() -> Self {
        let capacity = SOCKETS_PER_TURN;
        Self {
            listeners: Vec::with_capacity(capacity),
            relays: Vec::with_capacity(capacity),
            failed: Vec::with_capacity(capacity),
            readable: Vec::with_capacity(capacity),
            writable: Vec::with_capacity(capacity),
            acceptors: Vec::with_capacity(capacity),
            peers: Vec::with_capacity(capacity),
        }
    }

    /// Takes what was reported, in the order of the report; true if the worker was woken. When more
    /// is ready than one report holds, the kernel reports one socket after the other: with many busy
    /// relays a listener would have its turn among hundreds, so all `listeners` have one now.
    pub(crate) fn sort(&mut self, events: &Events, listeners: u32) -> bool {
        self.listeners.clear();
        self.relays.clear();
        self.failed.clear();
        self.readable.clear();
        self.writable.clear();
        self.acceptors.clear();
        self.peers.clear();
        let (mut woken, mut reported) = (false, 0);
        for event in events.iter() {
            reported += 1;
            match Token::of(event.token) {
                Token::Wake => woken = true,
                // It is looked into in every turn.
                Token::Ring => {}
                // A receive call also clears an error that waits on the socket.
                Token::Listener(id) => self.listeners.push((id, true)),
                Token::Acceptor(place) => self.acceptors.push(place),
                Token::Stream(id) => {
                    if event.writable {
                        self.writable.push(id);
                    }
                    // Reading tells of errors and ends, too.
                    if event.readable || event.error || event.hangup {
                        self.readable.push(id);
                    }
                }
                // As with streams.
                Token::Peer(id) => {
                    let readable = event.readable || event.error || event.hangup;
                    self.peers.push((id, readable, event.writable));
                }
                Token::Relay(relay) => {
                    if event.readable {
                        self.relays.push((relay, true));
                    }
                    if event.error {
                        self.failed.push(relay);
                    }
                }
            }
        }
        if reported >= SOCKETS_PER_TURN {
            self.add_listeners(listeners);
        }
        woken
    }

    fn add_listeners(&mut self, count: u32) {
        for id in (0..count).map(SocketId) {
            if self.listeners.iter().all(|(there, _)| *there != id) {
                self.listeners.push((id, true));
            }
        }
    }

    /// In so many rounds every socket has its turn.
    pub(crate) fn rounds(&self) -> usize {
        self.listeners.len().max(self.relays.len())
    }

    /// The listener to serve in this round: one after the other, for as long as they have
    /// something.
    pub(crate) fn listener(&self, round: usize) -> Option<SocketId> {
        let place = round.checked_rem(self.listeners.len())?;
        let (id, more) = self.listeners[place];
        more.then_some(id)
    }

    /// The listener of this round has nothing more.
    pub(crate) fn listener_is_empty(&mut self, round: usize) {
        if let Some(place) = round.checked_rem(self.listeners.len()) {
            self.listeners[place].1 = false;
        }
    }

    /// The relay to serve in this round.
    pub(crate) fn relay(&self, round: usize) -> Option<RelayId> {
        self.relays.get(round).map(|(relay, _)| *relay)
    }

    /// The relay of this round has nothing more.
    pub(crate) fn relay_is_empty(&mut self, round: usize) {
        if let Some((_, more)) = self.relays.get_mut(round) {
            *more = false;
        }
    }

    /// Leaves out those that have nothing more; false if that leaves none.
    pub(crate) fn keep_unfinished(&mut self) -> bool {
        self.listeners.retain(|(_, more)| *more);
        self.relays.retain(|(_, more)| *more);
        self.rounds() > 0
    }

    /// The `index`-th relay with something in its error queue.
    pub(crate) fn failed(&self, index: usize) -> Option<RelayId> {
        self.failed.get(index).copied()
    }

    /// The `index`-th stream with something to read.
    pub(crate) fn readable(&self, index: usize) -> Option<SocketId> {
        self.readable.get(index).copied()
    }

    /// The `index`-th stream that takes more.
    pub(crate) fn writable(&self, index: usize) -> Option<SocketId> {
        self.writable.get(index).copied()
    }

    /// The `index`-th connection with a peer: whether it is to be read, whether it takes more.
    pub(crate) fn peer(&self, index: usize) -> Option<(ConnectionId, bool, bool)> {
        self.peers.get(index).copied()
    }

    /// The `index`-th place where connections wait.
    pub(crate) fn acceptor(&self, index: usize) -> Option<u32> {
        self.acceptors.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let heard = (0..ready.rounds()).filter_map(|round| ready.listener(round));
        let mut heard: Vec<_> = heard.map(|id| id.0).collect();
        heard.sort_unstable();
        assert_eq!(heard, [0, 0, 1, 1, 2]);
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
            let mut heard: Vec<_> = rounds.clone().filter_map(|r| ready.listener(r)).collect();
            heard.sort();
            heard.dedup();
            assert_eq!(heard.len(), listeners as usize);
            assert_eq!(rounds.filter_map(|r| ready.relay(r)).count(), relays as usize);
        }
    }
}
