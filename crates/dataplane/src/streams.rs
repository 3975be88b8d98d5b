//! The connections of one worker's clients.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use linux_net::{Interest, ReadOutcome, RxBatch, TcpStream};
use turn_session::{AddressPair, OutQueue, Outgoing, QueueFull, Tls, TlsConfig, TlsError};
use turn_types::{ClientAddr, ClientPath, ConnectionId, Instant, ServerAddr, SocketId, Transport};

use crate::admission::{Admitted, NoPlace};
use crate::limits::STREAM_BACKLOG_BYTES;
use crate::places::Places;

/// Set in the numbers of streams; those of listeners are small.
const STREAM: u32 = 1 << 31;

/// What was left over is never all that there is room for: nothing read means that nothing came.
const _: () = assert!(linux_net::FILL_BYTES > stun_wire::MESSAGE_LEN_MAX);

/// Whether a number is a stream's.
pub(crate) const fn is_stream(id: SocketId) -> bool {
    id.0 & STREAM != 0
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    pub(crate) path: ClientPath,
    /// What lies between its bytes and messages; `None`: nothing.
    tls: Option<Tls>,
    /// The beginning of a message of which the rest is to come.
    partial: Vec<u8>,
    out: OutQueue,
    pub(crate) state: State,
    pub(crate) opened: Instant,
    /// When it was opened, or the last whole message came.
    pub(crate) heard: Instant,
    /// Requests that wait for something outside.
    pub(crate) waiting: u32,
    /// Since when it takes nothing of what there is to be sent; the kernel tells when it does again.
    pub(crate) blocked: Option<Instant>,
    /// Where it is one with a peer's: whether it is to be read.
    pub(crate) is_read: bool,
    /// Its TLS handshake waits for its customer's share of the time, and is not read.
    pub(crate) is_paused: bool,
    place: Admitted,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// A load balancer is to say first who is behind it.
    Proxied,
    /// No whole message came yet.
    New,
    /// Messages come and go.
    Open,
    /// The other end sends nothing more, and is still to have answers (RFC 8489 §6.2.2).
    Answering,
    /// A ConnectionBind waits for its answer: what follows it may be no messages, and is not read.
    Held,
    /// It is one with this connection of a peer: what it says goes there, as it is.
    Data(ConnectionId),
    /// It was told why it is of no use. What it still says is read and forgotten: a connection closed over
    /// unread bytes loses what was written last.
    Ending,
}

/// What reading gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// This message of the batch: what was left over before, and what is new.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// Nothing any more.
    Ended,
}

impl Stream {
    pub(crate) fn new(socket: TcpStream, path: ClientPath, now: Instant, place: Admitted) -> Self {
        Self {
            socket,
            path,
            tls: None,
            partial: Vec::new(),
            out: OutQueue::default(),
            state: State::New,
            opened: now,
            heard: now,
            waiting: 0,
            blocked: None,
            is_read: true,
            is_paused: false,
            place,
        }
    }

    /// Reads what is there behind what was left over, as one message of the batch. `scratch` is for what is
    /// encrypted.
    ///
    /// # Errors
    /// The connection is broken, or of no use.
    pub(crate) fn read(
        &mut self,
        rx: &mut RxBatch,
        scratch: &mut [u8],
    ) -> Result<Heard, ReadError> {
        let Self { socket, partial, path, tls, .. } = self;
        let mut outcome = ReadOutcome::WouldBlock;
        let filled = rx.fill(path.five_tuple.client.0, |room| {
            let Some((front, rest)) = room.split_at_mut_checked(partial.len()) else {
                return Ok(0);
            };
            front.copy_from_slice(partial);
            let len = match tls {
                None => {
                    outcome = socket.read(rest)?;
                    read_bytes(outcome)
                }
                Some(tls) => match tls.read(rest) {
                    0 => {
                        let most = Tls::most(rest.len()).min(scratch.len());
                        outcome = socket.read(&mut scratch[..most])?;
                        tls.take(&scratch[..read_bytes(outcome)], rest)?
                    }
                    // What did not fit before.
                    len => len,
                },
            };
            Ok::<_, ReadError>(if len == 0 { 0 } else { front.len() + len })
        })?;
        if let Some(index) = filled {
            self.partial.clear();
            return Ok(Heard::Bytes(index));
        }
        let has_ended = outcome == ReadOutcome::Ended || tls.as_ref().is_some_and(Tls::has_ended);
        Ok(if has_ended { Heard::Ended } else { Heard::Nothing })
    }

    /// A load balancer has said who is behind it and which of its addresses that one connected to, or that it
    /// is itself.
    ///
    /// # Errors
    /// The client has as many connections as it may have.
    pub(crate) fn introduced(&mut self, ends: Option<AddressPair>) -> Result<(), NoPlace> {
        let five_tuple = &mut self.path.five_tuple;
        if let Some(AddressPair { client, server }) = ends {
            five_tuple.client = ClientAddr(client);
            five_tuple.server = ServerAddr(server);
        }
        self.state = State::New;
        self.place.belongs_to(five_tuple.client.0.ip())
    }

    /// Both ends, as the client sees them.
    const fn addresses(&self) -> Addresses {
        (self.path.five_tuple.client.0, self.path.five_tuple.server.0)
    }

    /// Begins TLS with what came first.
    ///
    /// # Errors
    /// It is no TLS, or wants what is not offered.
    pub(crate) fn begin_tls(&mut self, config: &TlsConfig, hello: &[u8]) -> Result<(), TlsError> {
        let tls = self.tls.insert(Tls::new(config)?);
        self.path.five_tuple.transport = Transport::Tls;
        // Nothing is meant by it yet: data comes behind the handshake.
        tls.take(hello, &mut []).map(drop)
    }

    /// Whether more may have been heard than was read, of which the kernel does not tell.
    pub(crate) const fn may_hold_more(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the two ends have yet to agree on TLS.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.is_agreed())
    }

    /// Whether the handshake, or an alert, is to be written.
    pub(crate) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(Tls::wants_write)
    }

    /// Says farewell, as far as the connection takes it.
    pub(crate) fn part(&mut self) {
        let Self { socket, tls, .. } = self;
        if let Some(tls) = tls {
            tls.end();
            drop(tls.write_to(&mut &*socket));
        }
    }

    /// Whether there are answers that it is still to have.
    pub(crate) fn owes_answers(&self) -> bool {
        self.waiting > 0 || !self.is_flushed()
    }

    /// Whether the kernel has all that was to be written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.out.is_empty() && !self.wants_write()
    }

    /// What is to be waited for.
    pub(crate) const fn interest(&self) -> Interest {
        match (self.state, self.blocked.is_some()) {
            _ if self.is_paused => Interest::ErrorsOnce,
            (State::Data(_), true) if self.is_read => Interest::ReadWrite,
            (State::Data(_), false) if self.is_read => Interest::Read,
            (State::Data(_) | State::Held, true) => Interest::Write,
            (State::Data(_) | State::Held, false) => Interest::ErrorsOnce,
            // That nothing more comes would be told again and again.
            (State::Answering, true) => Interest::Write,
            (State::Answering, false) => Interest::ErrorsOnly,
            (_, true) => Interest::ReadWrite,
            (_, false) => Interest::Read,
        }
    }

    /// What was left over, as a message of the batch; `None`: nothing was.
    pub(crate) fn reread(&mut self, rx: &mut RxBatch) -> Option<usize> {
        let Self { partial, path, .. } = self;
        let filled = rx.fill(path.five_tuple.client.0, |room| {
            let Some(room) = room.get_mut(..partial.len()) else { return Ok(0) };
            room.copy_from_slice(partial);
            Ok::<_, Infallible>(partial.len())
        });
        let Ok(message) = filled;
        if message.is_some() {
            partial.clear();
        }
        message
    }

    /// What was left over, for good.
    pub(crate) fn take_partial(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }

    /// How many bytes it has not taken.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.out.len()
    }

    /// Tells the other end that nothing more comes, behind all that was written.
    pub(crate) fn end_sending(&mut self) {
        self.part();
        self.socket.end_sending();
    }

    /// Closes it so that the other end hears of a break.
    pub(crate) fn reset(self) {
        self.socket.reset();
    }

    /// Keeps the beginning of a message.
    pub(crate) fn keep(&mut self, rest: &[u8]) {
        self.partial.extend_from_slice(rest);
    }

    /// Whether a message has begun and not ended.
    pub(crate) const fn is_within_message(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Writes what the connection takes; `on_sent` is told the tag of each message that has gone whole.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn write(&mut self, now: Instant, mut on_sent: impl FnMut(u32)) -> io::Result<()> {
        let Self { socket, tls, out, .. } = self;
        let mut moved = false;
        let done = match tls {
            None => write_plain(socket, out, &mut moved, &mut on_sent)?,
            Some(tls) => write_tls((socket, tls), out, &mut moved, &mut on_sent)?,
        };
        self.blocked = match self.blocked {
            _ if done => None,
            Some(since) if !moved => Some(since),
            Some(_) | None => Some(now),
        };
        Ok(())
    }

    /// Gives back memory that a burst took.
    pub(crate) fn shrink(&mut self) {
        self.out.shrink();
        if self.partial.is_empty() {
            self.partial = Vec::new();
        }
    }

    /// The tags of what was not sent.
    pub(crate) fn give_up(&mut self) -> impl Iterator<Item = u32> {
        self.out.give_up()
    }
}

/// Writes until all is written, which is told, or nothing more is taken.
fn write_plain(
    socket: &TcpStream,
    out: &mut OutQueue,
    moved: &mut bool,
    on_sent: &mut impl FnMut(u32),
) -> io::Result<bool> {
    while !out.is_empty() {
        let (one, two) = out.next();
        let written = socket.write([one, two])?;
        if written == 0 {
            return Ok(false);
        }
        *moved = true;
        out.sent(written, &mut *on_sent);
    }
    Ok(true)
}

/// The same, encrypted: as many messages to a record as there are.
fn write_tls(
    (socket, tls): (&TcpStream, &mut Tls),
    out: &mut OutQueue,
    moved: &mut bool,
    on_sent: &mut impl FnMut(u32),
) -> io::Result<bool> {
    loop {
        while tls.wants_write() {
            match tls.write_to(&mut &*socket) {
                Ok(written) => *moved |= written > 0,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        if out.is_empty() {
            return Ok(true);
        }
        let (one, two) = out.next();
        let taken = tls.write([one, two]);
        out.sent(taken, &mut *on_sent);
        if taken == 0 && !tls.wants_write() {
            // A handshake that waits for the other end: it is written on when that has been heard.
            return Ok(true);
        }
    }
}

const fn read_bytes(outcome: ReadOutcome) -> usize {
    match outcome {
        ReadOutcome::Read(len) => len,
        ReadOutcome::WouldBlock | ReadOutcome::Ended => 0,
    }
}

/// Why nothing more can be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The connection is broken.
    Broken,
    /// The two ends cannot agree, or what comes is no TLS.
    Tls(TlsError),
}

impl From<io::Error> for ReadError {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

impl From<TlsError> for ReadError {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

/// The client's address and ours.
type Addresses = (SocketAddr, SocketAddr);

/// Streams by their numbers.
#[derive(Debug)]
pub(crate) struct Streams {
    places: Places<Stream>,
    /// The one stream that has these addresses. Those that a load balancer has not introduced have none.
    by_addresses: HashMap<Addresses, SocketId>,
    /// Those that were given something to send.
    unsent: Vec<SocketId>,
    /// Those that take no answers.
    stuck: Vec<SocketId>,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            places: Places::new(STREAM),
            by_addresses: HashMap::new(),
            unsent: Vec::new(),
            stuck: Vec::new(),
        }
    }
}

impl Streams {
    /// The number that the next stream will have; `None` when there is no place.
    pub(crate) fn next_id(&mut self) -> Option<SocketId> {
        self.places.next_id()
    }

    /// Adds a stream under the number that [`next_id`](Self::next_id) gave.
    pub(crate) fn insert(&mut self, stream: Box<Stream>) {
        let id = stream.path.socket;
        if !stream.is_flushed() {
            // It comes from another worker, which has not written all.
            self.unsent.push(id);
        }
        self.places.insert(id, stream);
    }

    pub(crate) fn get_mut(&mut self, id: SocketId) -> Option<&mut Stream> {
        self.places.get_mut(id)
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<Box<Stream>> {
        let has_addresses = self.has_addresses(id);
        let stream = self.places.remove(id)?;
        if has_addresses {
            self.by_addresses.remove(&stream.addresses());
        }
        Some(stream)
    }

    /// The other stream that has the addresses that this one is to have.
    pub(crate) fn with_addresses_of(&mut self, id: SocketId) -> Option<SocketId> {
        let addresses = self.places.get_mut(id)?.addresses();
        self.by_addresses.get(&addresses).copied().filter(|holder| *holder != id)
    }

    /// Gives a stream its addresses.
    pub(crate) fn take_addresses(&mut self, id: SocketId) {
        if let Some(stream) = self.places.get_mut(id) {
            self.by_addresses.insert(stream.addresses(), id);
        }
    }

    /// Whether a stream has its addresses: the allocation of their 5-tuple is its own then.
    pub(crate) fn has_addresses(&mut self, id: SocketId) -> bool {
        let Some(stream) = self.places.get_mut(id) else { return false };
        self.by_addresses.get(&stream.addresses()) == Some(&id)
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.places.len()
    }

    /// All of them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.places.iter_mut()
    }

    /// Has a message sent. `on_drop` is told the tag of data that is dropped for it.
    ///
    /// # Errors
    /// The stream is gone, or takes nothing and is full of answers; then it is among the
    /// [stuck](Self::pop_stuck).
    pub(crate) fn send(
        &mut self,
        id: SocketId,
        message: Outgoing<'_>,
        on_drop: impl FnMut(u32),
    ) -> Result<(), NotTaken> {
        let Some(stream) = self.get_mut(id) else { return Err(NotTaken::Gone) };
        // One that is blocked will be heard of by the kernel.
        let is_told = stream.blocked.is_some() || !stream.out.is_empty();
        let pushed = stream.out.push(message, STREAM_BACKLOG_BYTES, on_drop);
        match pushed {
            Ok(()) if is_told => Ok(()),
            Ok(()) => {
                self.unsent.push(id);
                Ok(())
            }
            Err(QueueFull) => {
                self.stuck.push(id);
                Err(NotTaken::Stuck)
            }
        }
    }

    /// One that was given something to send.
    pub(crate) fn pop_unsent(&mut self) -> Option<SocketId> {
        self.unsent.pop()
    }

    /// One that takes no answers.
    pub(crate) fn pop_stuck(&mut self) -> Option<SocketId> {
        self.stuck.pop()
    }
}

/// Why a message is not in a stream's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    Gone,
    Stuck,
}
