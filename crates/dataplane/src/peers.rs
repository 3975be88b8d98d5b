//! Connections with peers (RFC 6062), and what each knows of the client's connection that it is one with.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;

use linux_net::{Interest, TcpStream};
use turn_types::{ConnectionId, Instant, PendingId, SocketId};

use crate::limits::{HALF_CLOSED_FOR, PIPE_STUCK_FOR};

/// How far a connection with a peer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is being made, and a request waits for it.
    Connecting(PendingId),
    /// It waits for the client's. It is not read: what the peer says stays in the kernel, which lets it say
    /// no more than there is room for.
    Unbound,
    /// It is one with this stream.
    Bound(SocketId),
}

/// One direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    /// Its source has said all.
    pub(crate) ended: bool,
    /// And its destination has been told, behind all that was said.
    pub(crate) told: bool,
    /// Until when nothing is read, for the allocation has had more than its rate.
    pub(crate) rests_until: Option<Instant>,
}

/// A connection with a peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) socket: TcpStream,
    pub(crate) phase: Phase,
    /// What the client said and the peer has not taken: the rest of one read.
    unsent: VecDeque<u8>,
    pub(crate) from_client: Way,
    pub(crate) from_peer: Way,
    /// What epoll was asked.
    pub(crate) asked: Interest,
    /// When a byte went either way.
    pub(crate) moved: Instant,
    /// Since when the peer takes nothing of what there is for it.
    blocked: Option<Instant>,
}

impl Peer {
    pub(crate) fn new(socket: TcpStream, phase: Phase, asked: Interest, now: Instant) -> Self {
        Self {
            socket,
            phase,
            unsent: VecDeque::new(),
            from_client: Way::default(),
            from_peer: Way::default(),
            asked,
            moved: now,
            blocked: None,
        }
    }

    /// Says to the peer what its client said, and keeps what it does not take now. Returns how many bytes
    /// it took.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn say(&mut self, bytes: &[u8], now: Instant) -> io::Result<usize> {
        let mut taken = 0;
        if self.unsent.is_empty() {
            taken = self.socket.write([bytes, &[]])?;
        }
        self.unsent.extend(&bytes[taken..]);
        self.note(taken, now);
        Ok(taken)
    }

    /// Says what was kept, as far as the peer takes it, and returns how many bytes that is.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn say_on(&mut self, now: Instant) -> io::Result<usize> {
        let mut taken = 0;
        while !self.unsent.is_empty() {
            let (one, two) = self.unsent.as_slices();
            let some = self.socket.write([one, two])?;
            if some == 0 {
                break;
            }
            self.unsent.drain(..some);
            taken += some;
        }
        self.note(taken, now);
        Ok(taken)
    }

    fn note(&mut self, taken: usize, now: Instant) {
        if taken > 0 {
            self.moved = now;
        }
        self.blocked = match self.blocked {
            _ if self.unsent.is_empty() => None,
            Some(since) if taken == 0 => Some(since),
            Some(_) | None => Some(now),
        };
    }

    /// Whether there is something that the peer has not taken.
    pub(crate) fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Whether its client is to be read: never more than the peer takes.
    pub(crate) fn hears_client(&self) -> bool {
        !self.from_client.ended && self.from_client.rests_until.is_none() && !self.is_behind()
    }

    /// Whether it may be read, where its client takes what it says.
    pub(crate) fn may_speak(&self) -> bool {
        !self.from_peer.ended && self.from_peer.rests_until.is_none()
    }

    /// What is to be waited for; `reads`: whether it is to be read.
    pub(crate) fn interest(&self, reads: bool) -> Interest {
        match (reads, self.is_behind()) {
            (true, true) => Interest::ReadWrite,
            (true, false) => Interest::Read,
            (false, true) => Interest::Write,
            (false, false) => Interest::ErrorsOnce,
        }
    }

    /// Whether all that was said either way, its end included, has been passed on.
    pub(crate) const fn is_done(&self) -> bool {
        self.from_client.told && self.from_peer.told
    }

    /// Whether it has had its time: half closed and silent, or stuck.
    fn is_overdue(&self, now: Instant) -> bool {
        let half_closed = self.from_client.ended || self.from_peer.ended;
        let silent = now.saturating_since(self.moved) >= HALF_CLOSED_FOR;
        let stuck = self.blocked.is_some_and(|since| now.saturating_since(since) >= PIPE_STUCK_FOR);
        half_closed && silent || stuck
    }
}

/// Connections with peers, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    all: HashMap<ConnectionId, Box<Peer>>,
    /// Those that rest, with the moment when the first direction goes on.
    resting: BinaryHeap<Reverse<(Instant, ConnectionId)>>,
}

impl Peers {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn insert(&mut self, id: ConnectionId, peer: Peer) {
        self.all.insert(id, Box::new(peer));
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Peer> {
        self.all.get_mut(&id).map(|peer| &mut **peer)
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Box<Peer>> {
        self.all.remove(&id)
    }

    /// Wakes a connection at this moment.
    pub(crate) fn rest(&mut self, id: ConnectionId, until: Instant) {
        self.resting.push(Reverse((until, id)));
    }

    /// When the next one goes on.
    pub(crate) fn next_waking(&self) -> Option<Instant> {
        self.resting.peek().map(|Reverse((until, _))| *until)
    }

    /// One that has rested, with what rested of it let go on.
    pub(crate) fn pop_rested(&mut self, now: Instant) -> Option<ConnectionId> {
        self.resting.peek().filter(|Reverse((until, _))| *until <= now)?;
        let Reverse((_, id)) = self.resting.pop()?;
        if let Some(peer) = self.get_mut(id) {
            for way in [&mut peer.from_client, &mut peer.from_peer] {
                way.rests_until = way.rests_until.filter(|until| now < *until);
            }
        }
        Some(id)
    }

    /// The streams of those that have had their time.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<SocketId> {
        let overdue = self.all.values().filter(|peer| peer.is_overdue(now));
        let streams = overdue.filter_map(|peer| match peer.phase {
            Phase::Bound(id) => Some(id),
            Phase::Connecting(_) | Phase::Unbound => None,
        });
        streams.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{Ipv4Addr, TcpListener};
    use std::time::Duration;

    use linux_net::ConnectOptions;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);
    const STREAM: SocketId = SocketId(7);

    /// A connection that is one with a client's, and its other end.
    fn bound(now: Instant) -> (Peer, std::net::TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let socket = TcpStream::connect_to(to, &ConnectOptions::default()).unwrap();
        let (far, _) = listener.accept().unwrap();
        (Peer::new(socket, Phase::Bound(STREAM), Interest::Read, now), far)
    }

    fn overdue(peer: Peer, now: Instant) -> bool {
        let mut peers = Peers::default();
        peers.insert(ConnectionId(1), peer);
        let overdue = peers.overdue(now);
        assert!(overdue.iter().all(|stream| *stream == STREAM));
        !overdue.is_empty()
    }

    #[test]
    fn who_is_half_closed_may_be_silent_for_a_while() {
        let now = Instant::ZERO + Duration::from_secs(100);
        let halves: [fn(&mut Peer); 2] =
            [|peer| peer.from_client.ended = true, |peer| peer.from_peer.ended = true];
        for close in halves {
            let (mut peer, _far) = bound(now);
            close(&mut peer);
            assert!(!overdue(peer, now + (HALF_CLOSED_FOR - MOMENT)));
            let (mut peer, _far) = bound(now);
            close(&mut peer);
            assert!(overdue(peer, now + HALF_CLOSED_FOR));
            // Whoever still says something has longer.
            let (mut peer, _far) = bound(now);
            close(&mut peer);
            assert_eq!(peer.say(b"more", now + HALF_CLOSED_FOR).unwrap(), 4);
            assert!(!overdue(peer, now + (2 * HALF_CLOSED_FOR - MOMENT)));
        }
    }

    #[test]
    fn one_whose_both_ways_are_open_may_be_silent_for_ever() {
        let now = Instant::ZERO + Duration::from_secs(100);
        let (peer, _far) = bound(now);
        assert!(!overdue(peer, now + 1000 * HALF_CLOSED_FOR));
    }

    #[test]
    fn who_takes_nothing_is_not_waited_for_for_ever() {
        let now = Instant::ZERO + Duration::from_secs(100);
        let stuck = || {
            let (mut peer, far) = bound(now);
            let much = vec![0; 1 << 20];
            // What the kernel takes is not in it.
            while !peer.is_behind() {
                peer.say(&much, now).unwrap();
            }
            // Nothing goes, and time does.
            assert_eq!(peer.say_on(now + PIPE_STUCK_FOR / 2).unwrap(), 0);
            (peer, far)
        };
        let (peer, _far) = stuck();
        assert!(!overdue(peer, now + (PIPE_STUCK_FOR - MOMENT)));
        let (peer, _far) = stuck();
        assert!(overdue(peer, now + PIPE_STUCK_FOR));
        // Who takes some has as long again.
        let (mut peer, mut far) = stuck();
        let later = now + PIPE_STUCK_FOR;
        let mut room = vec![0; 1 << 20];
        while peer.say_on(later).unwrap() == 0 {
            far.read_exact(&mut room[..1]).unwrap();
            let _ = far.read(&mut room).unwrap();
        }
        assert!(!overdue(peer, later + (PIPE_STUCK_FOR - MOMENT)));
    }
}
