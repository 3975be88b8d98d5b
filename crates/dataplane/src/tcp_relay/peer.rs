//! TCP connections with peers (RFC 6062), and the state of each connection in a pipe.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::io;

use linux_net::Interest;
use turn_types::{ConnectionId, Instant, PendingId, SocketId};

use crate::input_queue::Postponement;
use crate::io::{Net, StreamIo as _};
use crate::limits::{HALF_CLOSED_FOR, PIPE_STUCK_FOR};

/// Readiness of a connection with a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    /// True if the connection has input, an end of input, or an error.
    pub(crate) readable: bool,
    /// True if the connection accepts output.
    pub(crate) writable: bool,
}

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The connection is in progress, and a Connect request waits for the outcome.
    Connecting(PendingId),
    /// The connection waits for the client's connection, and is not read. The peer's bytes remain
    /// in the kernel, within the kernel's receive window.
    Unbound,
    /// The connection is piped to this connection of a client.
    Bound(SocketId),
}

/// Direction of a pipe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PipeDirection {
    /// True if the source has ended this direction.
    pub(super) ended: bool,
    /// True if the end was forwarded, after all bytes.
    pub(super) forwarded: bool,
    /// Time until which this direction is not read, because the allocation exceeds its bandwidth.
    pub(super) paused_until: Option<Instant>,
}

/// TCP connection with a peer.
pub(super) struct Peer<N: Net> {
    pub(super) socket: N::Stream,
    pub(super) phase: Phase,
    /// Bytes of the client that the peer has not accepted: the remainder of one read.
    pub(super) unsent: VecDeque<u8>,
    pub(super) from_client: PipeDirection,
    pub(super) from_peer: PipeDirection,
    /// Interest that is registered with epoll.
    pub(super) interest: Interest,
    /// State in the input queue. A waiting connection is not read.
    pub(super) postponement: Postponement,
    /// Time of the last byte in either direction.
    pub(super) last_byte: Instant,
    /// Time since which the peer accepts none of the unsent bytes.
    pub(super) blocked: Option<Instant>,
}

impl<N: Net> fmt::Debug for Peer<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { socket, phase, .. } = self;
        f.debug_struct("Peer").field("socket", socket).field("phase", phase).finish_non_exhaustive()
    }
}

impl<N: Net> Peer<N> {
    pub(super) fn new(socket: N::Stream, phase: Phase, interest: Interest, now: Instant) -> Self {
        Self {
            socket,
            phase,
            unsent: VecDeque::new(),
            from_client: PipeDirection::default(),
            from_peer: PipeDirection::default(),
            interest,
            postponement: Postponement::default(),
            last_byte: now,
            blocked: None,
        }
    }

    /// Writes bytes of the client, stores the bytes that the peer does not accept, and returns the
    /// number of bytes written.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn write(&mut self, bytes: &[u8], now: Instant) -> io::Result<usize> {
        let mut written = 0;
        if self.unsent.is_empty() {
            written = self.socket.write([bytes, &[]])?;
        }
        self.unsent.extend(&bytes[written..]);
        self.note_written(written, now);
        Ok(written)
    }

    /// Writes unsent bytes, and returns the number of bytes written.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn write_unsent(&mut self, now: Instant) -> io::Result<usize> {
        let mut written = 0;
        while !self.unsent.is_empty() {
            let (one, two) = self.unsent.as_slices();
            let some = self.socket.write([one, two])?;
            if some == 0 {
                break;
            }
            self.unsent.drain(..some);
            written += some;
        }
        self.note_written(written, now);
        Ok(written)
    }

    fn note_written(&mut self, written: usize, now: Instant) {
        if written > 0 {
            self.last_byte = now;
        }
        self.blocked = match self.blocked {
            _ if self.unsent.is_empty() => None,
            Some(since) if written == 0 => Some(since),
            Some(_) | None => Some(now),
        };
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns true if the client may be read, because the peer has accepted everything.
    pub(super) fn takes_more(&self) -> bool {
        !self.from_client.ended && self.from_client.paused_until.is_none() && !self.has_unsent()
    }

    /// Returns true if the peer may be read. The caller checks that the client accepts bytes.
    pub(super) fn may_be_read(&self) -> bool {
        !self.from_peer.ended && self.from_peer.paused_until.is_none()
    }

    /// Returns the readiness to wait for. `reads` is true if the peer may be read.
    pub(super) fn wanted_interest(&self, reads: bool) -> Interest {
        match (reads && !self.postponement.waits(), self.has_unsent()) {
            (true, true) => Interest::ReadWrite,
            (true, false) => Interest::Read,
            (false, true) => Interest::Write,
            (false, false) => Interest::ErrorsOnce,
        }
    }

    /// Returns true if all bytes and the ends of both directions were forwarded.
    pub(super) const fn is_done(&self) -> bool {
        self.from_client.forwarded && self.from_peer.forwarded
    }

    /// Returns true for a connection that is half closed and silent, or stuck, for too long.
    fn is_overdue(&self, now: Instant) -> bool {
        let half_closed = self.from_client.ended || self.from_peer.ended;
        let silent = now.saturating_since(self.last_byte) >= HALF_CLOSED_FOR;
        let stuck = self.blocked.is_some_and(|since| now.saturating_since(since) >= PIPE_STUCK_FOR);
        half_closed && silent || stuck
    }
}

/// Connections with peers, by number.
#[derive(Debug)]
pub(super) struct Peers<N: Net> {
    all: BTreeMap<ConnectionId, Box<Peer<N>>>,
    /// Paused connections, with the time at which the first direction resumes.
    paused: BinaryHeap<Reverse<(Instant, ConnectionId)>>,
}

impl<N: Net> Default for Peers<N> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), paused: BinaryHeap::new() }
    }
}

impl<N: Net> Peers<N> {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn insert(&mut self, id: ConnectionId, peer: Peer<N>) {
        self.all.insert(id, Box::new(peer));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Peer<N>)> {
        self.all.iter().map(|(id, peer)| (*id, &**peer))
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&Peer<N>> {
        self.all.get(&id).map(|peer| &**peer)
    }

    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Peer<N>> {
        self.all.get_mut(&id).map(|peer| &mut **peer)
    }

    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Box<Peer<N>>> {
        self.all.remove(&id)
    }

    /// Schedules the end of a pause at this time.
    pub(super) fn pause(&mut self, id: ConnectionId, until: Instant) {
        self.paused.push(Reverse((until, id)));
    }

    /// Returns the time at which the next connection resumes.
    pub(super) fn next_resume(&self) -> Option<Instant> {
        self.paused.peek().map(|Reverse((until, _))| *until)
    }

    /// Resumes the directions of one connection whose pause is over, and returns the connection's
    /// number.
    pub(super) fn pop_paused(&mut self, now: Instant) -> Option<ConnectionId> {
        self.paused.peek().filter(|Reverse((until, _))| *until <= now)?;
        let Reverse((_, id)) = self.paused.pop()?;
        if let Some(peer) = self.get_mut(id) {
            for direction in [&mut peer.from_client, &mut peer.from_peer] {
                direction.paused_until = direction.paused_until.filter(|until| now < *until);
            }
        }
        Some(id)
    }

    /// Returns the clients' connections of overdue pipes.
    pub(super) fn overdue(&self, now: Instant) -> Vec<SocketId> {
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

    use linux_net::{ConnectOptions, TcpStream};

    use super::*;
    use crate::io::Kernel;

    type Peer = super::Peer<Kernel>;
    type Peers = super::Peers<Kernel>;

    const MOMENT: Duration = Duration::from_millis(1);
    const STREAM: SocketId = SocketId(7);

    /// Returns a bound connection, and the peer's socket.
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
    fn a_half_closed_pipe_may_be_silent_for_a_while() {
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
            // A byte extends the time.
            let (mut peer, _far) = bound(now);
            close(&mut peer);
            assert_eq!(peer.write(b"more", now + HALF_CLOSED_FOR).unwrap(), 4);
            assert!(!overdue(peer, now + (2 * HALF_CLOSED_FOR - MOMENT)));
        }
    }

    #[test]
    fn an_open_pipe_may_be_silent_for_ever() {
        let now = Instant::ZERO + Duration::from_secs(100);
        let (peer, _far) = bound(now);
        assert!(!overdue(peer, now + 1000 * HALF_CLOSED_FOR));
    }

    #[test]
    fn a_peer_that_takes_nothing_is_given_up() {
        let now = Instant::ZERO + Duration::from_secs(100);
        let stuck = || {
            let (mut peer, far) = bound(now);
            let much = vec![0; 1 << 20];
            // Bytes that the kernel accepts are not included.
            while !peer.has_unsent() {
                peer.write(&much, now).unwrap();
            }
            // Time passes without accepted bytes.
            assert_eq!(peer.write_unsent(now + PIPE_STUCK_FOR / 2).unwrap(), 0);
            (peer, far)
        };
        let (peer, _far) = stuck();
        assert!(!overdue(peer, now + (PIPE_STUCK_FOR - MOMENT)));
        let (peer, _far) = stuck();
        assert!(overdue(peer, now + PIPE_STUCK_FOR));
        // Accepting some bytes renews the time.
        let (mut peer, mut far) = stuck();
        let later = now + PIPE_STUCK_FOR;
        let mut room = vec![0; 1 << 20];
        while peer.write_unsent(later).unwrap() == 0 {
            far.read_exact(&mut room[..1]).unwrap();
            let _ = far.read(&mut room).unwrap();
        }
        assert!(!overdue(peer, later + (PIPE_STUCK_FOR - MOMENT)));
    }
}
