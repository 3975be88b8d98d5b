//! Deadlines of connections, and eviction of idle connections when a limit is reached.

use std::collections::VecDeque;
use std::net::IpAddr;

use control::StreamEnd;
use turn_types::{Instant, Prefix, SocketId};

use super::{State, Stream, Streams};
use crate::admission::{Admitted, LimitReached};
use crate::context::Context;
use crate::io::Net;
use crate::limits::{
    ENDING_FOR, EVICTABLE_AFTER, EVICTED_PER_SWEEP, FIRST_MESSAGE_WITHIN, HELD_FOR, IDLE_FOR,
    MESSAGE_WITHIN, PIPE_STUCK_FOR, STUCK_FOR, SWEEP_STREAMS_EVERY,
};

impl<N: Net> Stream<N> {
    /// Returns the reason to close a connection now.
    fn overdue(&self, now: Instant, has_allocation: impl FnOnce() -> bool) -> Option<StreamEnd> {
        let since = |moment| now.saturating_since(moment);
        let silent = since(self.last_message);
        let blocked_for = |most| self.blocked.is_some_and(|moment| since(moment) >= most);
        match self.state {
            State::Proxied | State::New => {
                (silent >= FIRST_MESSAGE_WITHIN).then_some(StreamEnd::NoMessage)
            }
            State::Answering => (silent >= ENDING_FOR).then_some(StreamEnd::ByClient),
            State::Ending => (silent >= ENDING_FOR).then_some(StreamEnd::ByUs),
            State::Held => (silent >= HELD_FOR).then_some(StreamEnd::Broken),
            State::Data(_) => blocked_for(PIPE_STUCK_FOR).then_some(StreamEnd::Stuck),
            State::Open if blocked_for(STUCK_FOR) => Some(StreamEnd::Stuck),
            State::Open if self.is_within_message() && silent >= MESSAGE_WITHIN => {
                Some(StreamEnd::TooSlow)
            }
            State::Open => (silent >= IDLE_FOR && !has_allocation()).then_some(StreamEnd::Idle),
        }
    }

    /// Returns true for a connection without pending requests or unsent answers. The client may
    /// have an allocation.
    fn is_unused(&self) -> bool {
        matches!(self.state, State::Proxied | State::New | State::Open) && !self.owes_answers()
    }

    /// Returns true for an idle connection, which may be evicted if the client has no allocation.
    fn is_evictable(&self, now: Instant) -> bool {
        let silent = now.saturating_since(self.last_message);
        self.state == State::Open && !self.owes_answers() && silent >= EVICTABLE_AFTER
    }
}

/// Idle connections without an allocation, gathered while a limit is reached.
#[derive(Debug, Default)]
pub(super) struct Evictable {
    are_wanted: bool,
    /// Connections sorted by idle time, the longest first.
    idlest: VecDeque<(SocketId, Prefix)>,
}

impl Evictable {
    /// Stores the connections with the longest idle times. Each entry contains the time of the last
    /// message.
    fn gather(&mut self, mut idle: Vec<(Instant, SocketId, Prefix)>) {
        idle.sort_unstable_by_key(|(last_message, ..)| *last_message);
        idle.truncate(EVICTED_PER_SWEEP);
        self.idlest = idle.into_iter().map(|(_, id, customer)| (id, customer)).collect();
        self.are_wanted = false;
    }

    /// Takes the connection to evict for a limit.
    fn pop(&mut self, limit: LimitReached, customer: Option<Prefix>) -> Option<SocketId> {
        self.are_wanted = true;
        let index = match limit {
            LimitReached::Total => 0,
            // No other customer pays for the limit of a customer or network.
            LimitReached::Address | LimitReached::Network => {
                self.idlest.iter().position(|(_, other)| Some(*other) == customer)?
            }
        };
        self.idlest.remove(index).map(|(id, _)| id)
    }
}

impl<N: Net> Streams<N> {
    /// Admits a connection, if necessary by evicting an idle connection without an allocation.
    /// `client` is `None` until a PROXY header names the client.
    pub(super) fn admit(
        &mut self,
        cx: &mut Context<N>,
        client: Option<IpAddr>,
    ) -> Result<Admitted, LimitReached> {
        loop {
            let admitted = match client {
                Some(client) => self.settings.admission.admit(client),
                None => self.settings.admission.admit_unknown(),
            };
            let Err(limit) = admitted else { return admitted };
            let rival = if limit.is_shared() { self.rival(cx, client) } else { None };
            if let Some(rival) = rival {
                // Counted before the eviction, because another worker could take the free slot.
                let permit = self.settings.admission.keep(client);
                self.close(cx, rival, StreamEnd::CrowdedOut);
                return Ok(permit);
            }
            let Some(id) = self.evictable.pop(limit, client.map(Prefix::customer)) else {
                return admitted;
            };
            let Some(stream) = self.table.get_mut(id) else { continue };
            // The connection may have received a message after it was gathered.
            if stream.is_evictable(cx.now.instant) && !cx.server.carries(&stream.path.five_tuple) {
                self.close(cx, id, StreamEnd::CrowdedOut);
            }
        }
    }

    /// Returns the connection without an allocation to evict for a connection of this client.
    fn rival(&mut self, cx: &mut Context<N>, client: Option<IpAddr>) -> Option<SocketId> {
        let now = cx.now.instant;
        let others = self.table.sample().filter(|stream| stream.is_unused());
        let unused = others.filter(|stream| !cx.server.carries(&stream.path.five_tuple));
        let candidates = unused.map(|stream| stream.candidate(now));
        self.settings.admission.rival(client, candidates)
    }

    /// Returns the time of the next sweep, or `None` without connections.
    pub(crate) const fn next_sweep(&self) -> Option<Instant> {
        self.sweep_at
    }

    /// Schedules the next sweep, and returns true if a sweep is due.
    pub(crate) fn is_sweep_due(&mut self, now: Instant) -> bool {
        let is_due = self.sweep_at.is_some_and(|at| at <= now);
        if is_due || self.sweep_at.is_none() {
            self.sweep_at = (self.len() > 0).then(|| now + SWEEP_STREAMS_EVERY);
        }
        is_due
    }

    /// Closes the connections that are past their deadlines. Called each second.
    pub(crate) fn sweep(&mut self, cx: &mut Context<N>) {
        self.resume_acceptors(&cx.net);
        self.resume_paused(&cx.net);
        let now = cx.now.instant;
        let (mut ended, mut idle) = (Vec::new(), Vec::new());
        for stream in self.table.iter_mut() {
            stream.shrink();
            let (id, five_tuple) = (stream.path.socket, stream.path.five_tuple);
            if let Some(end) = stream.overdue(now, || cx.server.serves(&five_tuple)) {
                ended.push((id, end));
            } else if self.evictable.are_wanted
                && stream.is_evictable(now)
                && !cx.server.carries(&five_tuple)
            {
                idle.push((stream.last_message, id, Prefix::customer(five_tuple.client.0.ip())));
            }
        }
        self.evictable.gather(idle);
        for (id, end) in ended {
            self.close(cx, id, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::sync::Arc;
    use std::time::Duration;

    use linux_net::{ConnectOptions, TcpStream};
    use turn_types::{ClientAddr, ClientPath, ConnectionId, FiveTuple, ServerAddr, Transport};

    use super::*;
    use crate::admission::{Admission, ConnectionLimits};
    use crate::io::Kernel;

    type Stream = super::Stream<Kernel>;

    const MOMENT: Duration = Duration::from_millis(1);

    fn at(after: Duration) -> Instant {
        Instant::ZERO + Duration::from_secs(1000) + after
    }

    /// Returns a connection in this state, with the last message at [`at`] zero.
    fn stream(state: State) -> Stream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let socket = TcpStream::connect_to(to, &ConnectOptions::default()).unwrap();
        let client: SocketAddr = "192.0.2.7:5000".parse().unwrap();
        let five_tuple = FiveTuple {
            transport: Transport::Tcp,
            client: ClientAddr(client),
            server: ServerAddr(to),
        };
        let path = ClientPath { five_tuple, socket: SocketId(1 << 31) };
        let admission = Admission::new(ConnectionLimits { total: 0, per_address: 0 });
        let place = Arc::new(admission).admit(client.ip()).unwrap();
        let mut stream = Stream::new(socket, path, at(Duration::ZERO), place);
        stream.state = state;
        stream
    }

    /// Asserts that a connection is overdue at this time, and not before.
    fn assert_ends(stream: &Stream, has_allocation: bool, after: Duration, how: StreamEnd) {
        assert_eq!(stream.overdue(at(after - MOMENT), || has_allocation), None, "{how:?}");
        assert_eq!(stream.overdue(at(after), || has_allocation), Some(how));
    }

    #[test]
    fn a_connection_without_an_allocation_is_kept_for_a_minute() {
        assert_ends(&stream(State::Open), false, Duration::from_secs(60), StreamEnd::Idle);
        let day = at(Duration::from_hours(24));
        assert_eq!(stream(State::Open).overdue(day, || true), None, "with one it is kept");
    }

    #[test]
    fn each_state_has_its_deadline() {
        for (state, after, how) in [
            (State::Proxied, FIRST_MESSAGE_WITHIN, StreamEnd::NoMessage),
            (State::New, FIRST_MESSAGE_WITHIN, StreamEnd::NoMessage),
            (State::Answering, ENDING_FOR, StreamEnd::ByClient),
            (State::Ending, ENDING_FOR, StreamEnd::ByUs),
            (State::Held, HELD_FOR, StreamEnd::Broken),
        ] {
            assert_ends(&stream(state), true, after, how);
        }
        let mut slow = stream(State::Open);
        slow.keep(&[0, 1, 0, 0]);
        assert_ends(&slow, true, MESSAGE_WITHIN, StreamEnd::TooSlow);
        for (state, after) in
            [(State::Open, STUCK_FOR), (State::Data(ConnectionId(1)), PIPE_STUCK_FOR)]
        {
            let mut stuck = stream(state);
            stuck.blocked = Some(at(Duration::ZERO));
            assert_ends(&stuck, true, after, StreamEnd::Stuck);
        }
        let silent = stream(State::Data(ConnectionId(1)));
        assert_eq!(silent.overdue(at(Duration::from_hours(24)), || false), None);
    }

    #[test]
    fn only_idle_connections_make_place() {
        let idle = stream(State::Open);
        assert!(!idle.is_evictable(at(EVICTABLE_AFTER - MOMENT)));
        assert!(idle.is_evictable(at(EVICTABLE_AFTER)));
        let mut waits = stream(State::Open);
        waits.waiting = 1;
        for other in [waits, stream(State::New), stream(State::Data(ConnectionId(1)))] {
            assert!(!other.is_evictable(at(Duration::from_hours(1))), "{:?}", other.state);
        }
    }

    #[test]
    fn the_idlest_makes_place_for_anybody_and_for_an_address_its_own() {
        let customer = |number| Some(Prefix::customer([192, 0, 2, number].into()));
        let mut evictable = Evictable::default();
        assert_eq!(evictable.pop(LimitReached::Total, customer(9)), None);
        assert!(evictable.are_wanted);
        let heard = [5, 1, 3, 2].map(Duration::from_secs).map(at);
        let idle = heard
            .into_iter()
            .zip(0..)
            .map(|(heard, number)| (heard, SocketId(number.into()), customer(number % 2).unwrap()));
        evictable.gather(idle.collect());
        assert!(!evictable.are_wanted);
        assert_eq!(evictable.pop(LimitReached::Address, customer(9)), None);
        assert_eq!(evictable.pop(LimitReached::Address, customer(0)), Some(SocketId(2)));
        assert_eq!(evictable.pop(LimitReached::Total, None), Some(SocketId(1)));
        assert_eq!(evictable.pop(LimitReached::Total, customer(9)), Some(SocketId(3)));
        assert_eq!(evictable.pop(LimitReached::Address, customer(1)), None);
        assert_eq!(evictable.pop(LimitReached::Total, customer(9)), Some(SocketId(0)));
        assert!(evictable.are_wanted, "and are looked for again");
    }
}
