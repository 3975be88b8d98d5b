//! Readiness of simulated sockets: level-triggered, as with epoll.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Weak;

use linux_net::{Event, Interest};
use turn_types::Instant;

use crate::routes::RingState;
use crate::tcp::{Backlog, End};
use crate::udp::UdpState;

/// A watched socket.
#[derive(Debug)]
pub(crate) enum Watched {
    Udp(Weak<RefCell<UdpState>>),
    Stream(Weak<End>),
    Acceptor(Weak<RefCell<Backlog>>),
    Ring(Weak<RefCell<RingState>>),
}

#[derive(Debug)]
struct Entry {
    socket: Watched,
    interest: Interest,
    /// The error of a socket with [`Interest::ErrorsOnce`] was reported.
    reported: bool,
}

/// The watched sockets of one worker.
#[derive(Debug, Default)]
pub(crate) struct WatchList {
    entries: BTreeMap<u64, Entry>,
    /// Token of the last report: the next one begins behind it.
    last: u64,
}

impl WatchList {
    pub(crate) fn set(&mut self, token: u64, socket: Watched, interest: Interest) {
        self.entries.insert(token, Entry { socket, interest, reported: false });
    }

    pub(crate) fn remove(&mut self, is_it: impl Fn(&Watched) -> bool) {
        self.entries.retain(|_, entry| !is_it(&entry.socket));
    }

    /// Returns at most `most` ready sockets.
    pub(crate) fn ready(&mut self, now: Instant, most: usize) -> Vec<Event> {
        self.entries.retain(|_, entry| entry.socket.is_open());
        let tokens: Vec<u64> = self.entries.keys().copied().collect();
        let begin = tokens.partition_point(|token| *token <= self.last);
        let mut events = Vec::new();
        for token in tokens[begin..].iter().chain(&tokens[..begin]) {
            let Some(entry) = self.entries.get_mut(token) else { continue };
            if let Some(event) = entry.event(*token, now) {
                events.push(event);
                self.last = *token;
            }
            if events.len() == most {
                break;
            }
        }
        events
    }
}

impl Watched {
    fn is_open(&self) -> bool {
        match self {
            Self::Udp(socket) => socket.strong_count() > 0,
            Self::Stream(end) => end.strong_count() > 0,
            Self::Acceptor(backlog) => backlog.strong_count() > 0,
            Self::Ring(ring) => ring.strong_count() > 0,
        }
    }
}

impl Entry {
    fn event(&mut self, token: u64, now: Instant) -> Option<Event> {
        let quiet = Event { token, readable: false, writable: false, error: false, hangup: false };
        let mut event = match &self.socket {
            Watched::Udp(socket) => {
                let socket = socket.upgrade()?;
                let socket = socket.borrow();
                Event { readable: socket.is_readable(), error: socket.has_errors(), ..quiet }
            }
            Watched::Acceptor(backlog) => {
                let backlog = backlog.upgrade()?;
                let readable = backlog.borrow().front().is_some_and(|(at, _)| *at <= now);
                Event { readable, ..quiet }
            }
            Watched::Ring(ring) => {
                Event { readable: ring.upgrade()?.borrow().is_readable(), ..quiet }
            }
            Watched::Stream(end) => {
                let end = end.upgrade()?;
                let (readable, writable) = (end.is_readable(), end.is_writable());
                let error = end.is_reset();
                Event { readable, writable, error, hangup: end.has_ended(), ..quiet }
            }
        };
        let (reads, writes) = match self.interest {
            Interest::Read => (true, false),
            Interest::Write => (false, true),
            Interest::ReadWrite | Interest::Changes => (true, true),
            Interest::ErrorsOnly | Interest::ErrorsOnce => (false, false),
        };
        event.readable &= reads;
        event.hangup &= reads;
        event.writable &= writes;
        let once = self.interest == Interest::ErrorsOnce;
        event.error &= !(once && self.reported);
        self.reported |= event.error;
        (event.readable || event.writable || event.error || event.hangup).then_some(event)
    }
}
