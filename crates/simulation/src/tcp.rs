//! TCP between the hosts of a world: connections as pairs of bounded, delayed byte queues. Segments
//! are not lost; a loss of the network would show as a longer delay.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::time::Duration;

use linux_net::ReadOutcome;
use netsim::Rng;
use turn_types::Instant;

/// Bytes of one direction that the sender's and the receiver's kernel hold together.
const WINDOW: usize = 64 << 10;

/// Connections that wait to be accepted at one socket.
const BACKLOG: usize = 64;

/// Shortest time from one end to the other.
const DELAY: Duration = Duration::from_millis(2);

/// Random time on top, below this.
const JITTER: Duration = Duration::from_millis(60);

/// All TCP connections of one world.
#[derive(Clone, Debug)]
pub struct TcpNet(Rc<RefCell<Network>>);

#[derive(Debug)]
struct Network {
    now: Instant,
    rng: Rng,
    listening: BTreeMap<SocketAddr, Vec<Weak<RefCell<Backlog>>>>,
    next_port: u16,
    /// Times at which something becomes visible at an end.
    events: BTreeSet<Instant>,
    is_frozen: bool,
}

/// Connections that wait at one listening socket.
pub(crate) type Backlog = VecDeque<(Instant, TcpEnd)>;

/// One direction of a connection.
#[derive(Debug, Default)]
struct Direction {
    chunks: VecDeque<(Instant, Vec<u8>)>,
    buffered: usize,
    last_arrival: Instant,
    ended_at: Option<Instant>,
    reset_at: Option<Instant>,
}

#[derive(Debug)]
struct Connection {
    addresses: [SocketAddr; 2],
    /// Time from which an end may write; `None`: never, it was refused.
    open_at: [Option<Instant>; 2],
    /// From end 0 to end 1, and back.
    directions: [Direction; 2],
}

/// A descriptor of one end of a connection. Dropping the last one closes the connection: with a
/// reset over unread bytes.
#[derive(Debug)]
pub struct TcpEnd(Rc<End>);

/// State of an end: readiness is known without owning it.
#[derive(Debug)]
pub struct End {
    connection: Rc<RefCell<Connection>>,
    side: usize,
    net: TcpNet,
}

impl Deref for TcpEnd {
    type Target = End;

    fn deref(&self) -> &End {
        &self.0
    }
}

impl TcpNet {
    /// A network without connections.
    #[must_use]
    pub fn new(rng: Rng) -> Self {
        Self(Rc::new(RefCell::new(Network {
            now: Instant::ZERO,
            rng,
            listening: BTreeMap::new(),
            next_port: 20_000,
            events: BTreeSet::new(),
            is_frozen: false,
        })))
    }

    /// Runs `act`, which must not read, write or close a connection.
    pub(crate) fn untouched<T>(&self, act: impl FnOnce() -> T) -> T {
        self.0.borrow_mut().is_frozen = true;
        let done = act();
        self.0.borrow_mut().is_frozen = false;
        done
    }

    fn touch(&self) {
        assert!(!self.0.borrow().is_frozen, "a process uses a connection before it serves");
    }

    /// Sets the time.
    pub fn advance(&self, now: Instant) {
        self.0.borrow_mut().now = now;
    }

    pub(crate) fn now(&self) -> Instant {
        self.0.borrow().now
    }

    /// Time of the next event after now.
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        let mut network = self.0.borrow_mut();
        let now = network.now;
        network.events = network.events.split_off(&(now + Duration::from_nanos(1)));
        network.events.first().copied()
    }

    fn arrival(&self, after: Instant) -> Instant {
        let mut network = self.0.borrow_mut();
        let at = (network.now + DELAY + network.rng.duration_below(JITTER)).max(after);
        network.events.insert(at);
        at
    }

    /// Listens at an address, beside others that share it. Port 0 is any.
    ///
    /// # Errors
    /// The address is in use by another socket and not to be shared.
    pub(crate) fn listen(
        &self,
        at: SocketAddr,
        shared: bool,
    ) -> io::Result<(SocketAddr, Rc<RefCell<Backlog>>)> {
        let mut network = self.0.borrow_mut();
        let listeners = network.listening.entry(at).or_default();
        listeners.retain(|backlog| backlog.strong_count() > 0);
        if !listeners.is_empty() && !shared {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let backlog = Rc::new(RefCell::new(Backlog::new()));
        listeners.push(Rc::downgrade(&backlog));
        Ok((at, backlog))
    }

    /// Begins a connection. It is established, or refused, after a while.
    pub fn connect(&self, from: SocketAddr, to: SocketAddr) -> TcpEnd {
        let backlog = {
            let mut network = self.0.borrow_mut();
            let listeners: Vec<_> = network
                .listening
                .get(&to)
                .map(|all| all.iter().filter_map(Weak::upgrade).collect())
                .unwrap_or_default();
            let index = network.rng.index(listeners.len());
            listeners.get(index).cloned()
        };
        let there = self.arrival(Instant::ZERO);
        let back = self.arrival(there);
        let backlog = backlog.filter(|backlog| backlog.borrow().len() < BACKLOG);
        let open_at = [backlog.as_ref().map(|_| back), Some(there)];
        let mut directions = [Direction::default(), Direction::default()];
        if backlog.is_none() {
            directions[1].reset_at = Some(back);
        }
        let connection = Connection { addresses: [from, to], open_at, directions };
        let connection = Rc::new(RefCell::new(connection));
        let end = |side| {
            let connection = Rc::clone(&connection);
            TcpEnd(Rc::new(End { connection, side, net: self.clone() }))
        };
        if let Some(backlog) = backlog {
            backlog.borrow_mut().push_back((there, end(1)));
        }
        end(0)
    }

    /// A port for a client of this world that no other connection had.
    pub fn next_port(&self) -> u16 {
        let mut network = self.0.borrow_mut();
        network.next_port = network.next_port.checked_add(1).unwrap_or(20_000);
        network.next_port
    }
}

impl Connection {
    const fn incoming(&mut self, side: usize) -> &mut Direction {
        &mut self.directions[1 - side]
    }

    const fn outgoing(&mut self, side: usize) -> &mut Direction {
        &mut self.directions[side]
    }
}

fn is_past(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| at <= now)
}

impl TcpEnd {
    /// Closes the connection with a reset.
    pub fn reset(self) {
        self.net.touch();
        self.send_reset();
    }

    /// Another descriptor of the same end.
    pub(crate) fn other_descriptor(&self) -> Self {
        Self(Rc::clone(&self.0))
    }

    pub(crate) fn watched(&self) -> Weak<End> {
        Rc::downgrade(&self.0)
    }
}

impl End {
    /// The address of this end.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.connection.borrow().addresses[self.side]
    }

    pub(crate) fn remote_addr(&self) -> SocketAddr {
        self.connection.borrow().addresses[1 - self.side]
    }

    /// Reads bytes that have arrived.
    ///
    /// # Errors
    /// The connection was reset or refused.
    pub fn read(&self, room: &mut [u8]) -> io::Result<ReadOutcome> {
        self.net.touch();
        let now = self.net.now();
        let mut connection = self.connection.borrow_mut();
        let incoming = connection.incoming(self.side);
        if is_past(incoming.reset_at, now) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let mut read = 0;
        while read < room.len()
            && let Some((at, chunk)) = incoming.chunks.front_mut()
            && *at <= now
        {
            let len = chunk.len().min(room.len() - read);
            room[read..read + len].copy_from_slice(&chunk[..len]);
            chunk.drain(..len);
            read += len;
            if chunk.is_empty() {
                incoming.chunks.pop_front();
            }
        }
        if read > 0 {
            incoming.buffered -= read;
            // The other end hears of the room.
            drop(connection);
            self.net.arrival(Instant::ZERO);
            return Ok(ReadOutcome::Read(read));
        }
        let ended = is_past(incoming.ended_at, now) && incoming.chunks.is_empty();
        Ok(if ended { ReadOutcome::Ended } else { ReadOutcome::WouldBlock })
    }

    /// Writes as many bytes as the window has room for.
    ///
    /// # Errors
    /// The connection was reset, refused, or ended by this end.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.net.touch();
        let now = self.net.now();
        let mut connection = self.connection.borrow_mut();
        if is_past(connection.incoming(self.side).reset_at, now) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if !is_past(connection.open_at[self.side], now) {
            return Ok(0);
        }
        let outgoing = connection.outgoing(self.side);
        if outgoing.ended_at.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let len = bytes.len().min(WINDOW - outgoing.buffered);
        if len > 0 {
            let at = self.net.arrival(outgoing.last_arrival);
            outgoing.last_arrival = at;
            outgoing.buffered += len;
            outgoing.chunks.push_back((at, bytes[..len].to_vec()));
        }
        Ok(len)
    }

    /// Ends this direction.
    pub fn end_sending(&self) {
        self.net.touch();
        self.end();
    }

    fn end(&self) {
        let mut connection = self.connection.borrow_mut();
        let outgoing = connection.outgoing(self.side);
        if outgoing.ended_at.is_none() {
            let at = self.net.arrival(outgoing.last_arrival);
            outgoing.ended_at = Some(at);
        }
    }

    fn send_reset(&self) {
        let at = self.net.arrival(Instant::ZERO);
        let mut connection = self.connection.borrow_mut();
        connection.outgoing(self.side).reset_at.get_or_insert(at);
    }

    /// The pending error: a reset, or a refused connection.
    #[must_use]
    pub fn take_error(&self) -> Option<io::Error> {
        self.is_reset().then(|| io::ErrorKind::ConnectionReset.into())
    }

    pub(crate) fn is_reset(&self) -> bool {
        let now = self.net.now();
        is_past(self.connection.borrow_mut().incoming(self.side).reset_at, now)
    }

    pub(crate) fn is_readable(&self) -> bool {
        let now = self.net.now();
        let mut connection = self.connection.borrow_mut();
        let incoming = connection.incoming(self.side);
        let arrived = incoming.chunks.front().is_some_and(|(at, _)| *at <= now);
        arrived || is_past(incoming.ended_at, now) || is_past(incoming.reset_at, now)
    }

    pub(crate) fn has_ended(&self) -> bool {
        let now = self.net.now();
        is_past(self.connection.borrow_mut().incoming(self.side).ended_at, now)
    }

    /// Returns true when the connection is established and takes bytes.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        let now = self.net.now();
        let mut connection = self.connection.borrow_mut();
        is_past(connection.open_at[self.side], now)
            && connection.outgoing(self.side).buffered < WINDOW
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let unread = !self.connection.borrow_mut().incoming(self.side).chunks.is_empty();
        if unread {
            self.send_reset();
        } else {
            self.end();
        }
    }
}
