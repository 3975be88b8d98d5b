//! State of one TCP connection of a client. Received bytes become messages for the server, and
//! queued messages are written.

mod handover;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::io;

use control::StreamEnd;
use linux_net::{Interest, ReadOutcome, RxBatch};
use turn_session::{AddressPair, OutQueue, Outgoing, QueueFull, Tls, TlsConfig, TlsError};
use turn_types::{ClientAddr, ClientPath, ConnectionId, FiveTuple, Instant, ServerAddr, Transport};

use crate::admission::{Admitted, Candidate, LimitReached};
use crate::input_queue::Postponement;
use crate::io::{Net, StreamIo, Writer};
use crate::limits::{ANSWERS_UNREAD, STREAM_BACKLOG_BYTES};

pub use handover::StreamImportError;
pub(crate) use handover::{ExportedStream, StreamState};

/// A partial message never fills the buffer, so an empty read means that no bytes wait.
const _: () = assert!(linux_net::FILL_BYTES > stun_wire::MESSAGE_LEN_MAX);

/// TCP connection of a client.
pub(crate) struct Stream<N: Net> {
    pub(crate) socket: N::Stream,
    pub(crate) path: ClientPath,
    tls: Option<Tls>,
    /// Requests without an answer, which are handled again before all later input.
    unserved: VecDeque<Box<[u8]>>,
    /// First part of an incomplete message. With `is_cut_off`, complete messages precede this part.
    partial: Vec<u8>,
    /// True if the last read had more than [`MESSAGES_PER_READ`](crate::limits::MESSAGES_PER_READ)
    /// messages.
    is_cut_off: bool,
    pub(super) postponement: Postponement,
    out: OutQueue,
    pub(crate) state: State,
    pub(crate) opened: Instant,
    /// Time of the last complete message, or of the opening.
    pub(crate) last_message: Instant,
    /// Number of requests with a pending answer.
    pub(crate) waiting: u32,
    /// Time since which the kernel accepts no output.
    pub(crate) blocked: Option<Instant>,
    /// True if the connection of a pipe is read.
    pub(crate) is_read: bool,
    /// True while the TLS handshake waits for the customer's share of the time. A paused connection
    /// is not read.
    pub(crate) is_paused: bool,
    permit: Admitted,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The PROXY header of a load balancer is expected.
    Proxied,
    /// No complete message has been received.
    New,
    /// Messages are exchanged.
    Open,
    /// The client has ended its direction, and answers are pending (RFC 8489 §6.2.2).
    Answering,
    /// A ConnectionBind is pending. The following bytes may be data, and are not read.
    Held,
    /// The connection is bound to a peer's connection, and bytes are passed unchanged (RFC 6062
    /// §5.4).
    Data(ConnectionId),
    /// A final response was sent. Further input is discarded, because closing with unread input
    /// would lose the response.
    Ending,
}

impl State {
    /// Returns the peer's connection of a pipe.
    pub(crate) const fn pipe(self) -> Option<ConnectionId> {
        match self {
            Self::Data(connection) => Some(connection),
            Self::Proxied
            | Self::New
            | Self::Open
            | Self::Answering
            | Self::Held
            | Self::Ending => None,
        }
    }
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Bytes were read. The message of the batch with this index contains the partial message,
    /// followed by the new bytes.
    Bytes(usize),
    /// No bytes wait.
    Nothing,
    /// The client has ended its direction.
    Ended,
}

impl<N: Net> fmt::Debug for Stream<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, state, opened, .. } = self;
        f.debug_struct("Stream")
            .field("path", path)
            .field("state", state)
            .field("opened", opened)
            .finish_non_exhaustive()
    }
}

impl<N: Net> Stream<N> {
    pub(crate) fn new(socket: N::Stream, path: ClientPath, now: Instant, permit: Admitted) -> Self {
        Self {
            socket,
            path,
            tls: None,
            unserved: VecDeque::new(),
            partial: Vec::new(),
            is_cut_off: false,
            postponement: Postponement::default(),
            out: OutQueue::default(),
            state: State::New,
            opened: now,
            last_message: now,
            waiting: 0,
            blocked: None,
            is_read: true,
            is_paused: false,
            permit,
        }
    }

    /// Reads at most `most` waiting bytes after the partial message, as one message of the batch.
    /// `scratch` is a buffer for encrypted bytes.
    ///
    /// # Errors
    /// The connection is broken, or TLS has failed.
    pub(crate) fn read(
        &mut self,
        rx: &mut RxBatch,
        scratch: &mut [u8],
        most: usize,
    ) -> Result<Input, ReadError> {
        let Self { socket, partial, path, tls, .. } = self;
        let mut outcome = ReadOutcome::WouldBlock;
        let filled = rx.fill(path.five_tuple.client.0, |room| {
            let Some((front, rest)) = room.split_at_mut_checked(partial.len()) else {
                return Ok(0);
            };
            front.copy_from_slice(partial);
            let most = most.min(rest.len());
            let rest = &mut rest[..most];
            let len = match tls {
                None => {
                    outcome = socket.read(rest)?;
                    read_bytes(outcome)
                }
                Some(tls) => match tls.read(rest) {
                    0 if tls.has_records() => tls.take(&[], rest)?,
                    0 => {
                        let most = Tls::most(rest.len()).min(scratch.len());
                        outcome = socket.read(&mut scratch[..most])?;
                        tls.take(&scratch[..read_bytes(outcome)], rest)?
                    }
                    // Bytes that did not fit before.
                    len => len,
                },
            };
            Ok::<_, ReadError>(if len == 0 { 0 } else { front.len() + len })
        })?;
        if let Some(index) = filled {
            self.partial.clear();
            return Ok(Input::Bytes(index));
        }
        let has_ended = outcome == ReadOutcome::Ended || tls.as_ref().is_some_and(Tls::has_ended);
        Ok(if has_ended { Input::Ended } else { Input::Nothing })
    }

    /// Takes the addresses of a PROXY header. With `None` the load balancer is the client.
    ///
    /// # Errors
    /// The connection limit of the client or the client's network is reached.
    pub(crate) fn proxied(&mut self, ends: Option<AddressPair>) -> Result<(), LimitReached> {
        let five_tuple = &mut self.path.five_tuple;
        if let Some(AddressPair { client, server }) = ends {
            five_tuple.client = ClientAddr(client);
            five_tuple.server = ServerAddr(server);
        }
        self.state = State::New;
        self.permit.assign(five_tuple.client.0.ip())
    }

    /// Returns both addresses from the client's view.
    pub(crate) const fn addresses(&self) -> (ClientAddr, ServerAddr) {
        (self.path.five_tuple.client, self.path.five_tuple.server)
    }

    /// Starts TLS with the first bytes of the connection.
    ///
    /// # Errors
    /// The bytes are not TLS, or client and server have no common parameters.
    pub(crate) fn begin_tls(&mut self, config: &TlsConfig, hello: &[u8]) -> Result<(), TlsError> {
        let tls = self.tls.insert(Tls::new(config)?);
        self.path.five_tuple.transport = Transport::Tls;
        // The first bytes contain no data, because data follows the handshake.
        tls.take(hello, &mut []).map(drop)
    }

    /// Returns true if TLS may have decrypted bytes, which epoll does not report.
    pub(crate) const fn may_hold_more(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns true during the TLS handshake.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.is_agreed())
    }

    /// Returns the server name that the client requested in the TLS handshake.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.tls.as_ref()?.server_name()
    }

    /// Returns true if TLS records of the handshake, or an alert, must be written.
    pub(crate) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(Tls::wants_write)
    }

    /// Sends the TLS close_notify, if the connection accepts output now.
    fn send_close_notify(&mut self) {
        let Self { socket, tls, .. } = self;
        if let Some(tls) = tls {
            tls.end();
            drop(tls.write_to(&mut Writer(socket)));
        }
    }

    /// Returns the connection as a candidate for eviction.
    pub(super) fn candidate(&self, now: Instant) -> Candidate<'_> {
        let silence = now.saturating_since(self.last_message);
        let FiveTuple { client, server, .. } = &self.path.five_tuple;
        let own = (client.ip() == server.ip()).then(|| client.ip());
        Candidate { id: self.path.socket, permit: &self.permit, silence, own }
    }

    /// Returns true if answers are pending or unsent.
    pub(crate) fn owes_answers(&self) -> bool {
        self.waiting > 0 || !self.is_flushed()
    }

    /// Returns true if the kernel has accepted all output.
    pub(crate) fn is_flushed(&self) -> bool {
        self.out.is_empty() && !self.wants_write()
    }

    /// Returns true if messages are accepted. The queue retains a limited number of answers that
    /// the client does not read, and drops data.
    pub(crate) const fn takes_messages(&self) -> bool {
        self.blocked.is_none() || self.out.answers() <= ANSWERS_UNREAD
    }

    /// Returns the readiness to wait for.
    pub(crate) const fn interest(&self) -> Interest {
        match (self.state, self.blocked.is_some()) {
            _ if self.is_paused => Interest::ErrorsOnce,
            (_, true) if self.postponement.is_unreported() => Interest::Write,
            (_, false) if self.postponement.is_unreported() => Interest::ErrorsOnce,
            (State::Open, true) if !self.takes_messages() => Interest::Write,
            (State::Data(_), true) if self.is_read => Interest::ReadWrite,
            (State::Data(_), false) if self.is_read => Interest::Read,
            (State::Data(_) | State::Held, true) => Interest::Write,
            (State::Data(_) | State::Held, false) => Interest::ErrorsOnce,
            // The end of input would be reported in each iteration.
            (State::Answering, true) => Interest::Write,
            (State::Answering, false) => Interest::ErrorsOnly,
            (_, true) => Interest::ReadWrite,
            (_, false) => Interest::Read,
        }
    }

    /// Adds the next unserved request, or the partial message, to the batch as a message. Returns
    /// the message's index, or `None` if neither exists.
    pub(crate) fn reread(&mut self, rx: &mut RxBatch) -> Option<usize> {
        let Self { unserved, partial, is_cut_off, path, .. } = self;
        let bytes = unserved.front().map_or(&partial[..], |request| request);
        let filled = rx.fill(path.five_tuple.client.0, |room| {
            let Some(room) = room.get_mut(..bytes.len()) else { return Ok(0) };
            room.copy_from_slice(bytes);
            Ok::<_, Infallible>(bytes.len())
        });
        let Ok(message) = filled;
        if message.is_some() && unserved.pop_front().is_none() {
            partial.clear();
            *is_cut_off = false;
        }
        message
    }

    /// Returns true if stored messages precede further input.
    pub(crate) fn has_unserved(&self) -> bool {
        self.is_cut_off || !self.unserved.is_empty()
    }

    /// Returns true if the connection has input that epoll does not report and that the current
    /// state permits to serve.
    pub(super) fn has_input(&self) -> bool {
        let has_records = self.tls.as_ref().is_some_and(Tls::has_records);
        match self.state {
            State::Proxied | State::New | State::Open => {
                self.takes_messages() && (has_records || self.has_unserved())
            }
            State::Data(_) => self.is_read && has_records,
            State::Answering | State::Held | State::Ending => false,
        }
    }

    /// Returns the number of TLS records that were read since the last call.
    pub(super) fn records_read(&mut self) -> usize {
        self.tls.as_mut().map_or(0, Tls::records_taken)
    }

    /// Takes the partial message.
    pub(crate) fn take_partial(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }

    /// Returns the number of queued bytes.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.out.len()
    }

    /// Closes the sending direction after all written bytes.
    pub(crate) fn end_sending(&mut self) {
        self.send_close_notify();
        self.socket.end_sending();
    }

    /// Closes the connection. A reset is sent if bytes of a peer are missing.
    pub(crate) fn close(mut self, end: StreamEnd) {
        if end == StreamEnd::PeerBroken {
            self.socket.reset();
        } else {
            self.send_close_notify();
        }
    }

    /// Appends bytes to the partial message.
    pub(crate) fn keep(&mut self, rest: &[u8]) {
        self.partial.extend_from_slice(rest);
    }

    /// Stores the unserved messages of a read, followed by the partial message.
    pub(crate) fn cut_off(&mut self, rest: &[u8]) {
        self.is_cut_off = true;
        self.keep(rest);
    }

    /// Returns true if further bytes of a message are expected.
    pub(crate) const fn is_within_message(&self) -> bool {
        !self.partial.is_empty() && !self.is_cut_off
    }

    /// Writes the bytes that the connection accepts. `on_sent` receives the tag of each completely
    /// written message.
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

    /// Frees memory that a burst has used.
    pub(crate) fn shrink(&mut self) {
        self.out.shrink();
        self.permit.note_backlog(self.out.capacity());
        if self.partial.is_empty() {
            self.partial = Vec::new();
        }
    }

    /// Queues a message. `on_drop` receives the tags of data dropped to make space. Returns true if
    /// the caller must write the message without waiting for epoll.
    ///
    /// # Errors
    /// The queue is full of answers.
    pub(crate) fn queue(
        &mut self,
        message: Outgoing<'_>,
        on_drop: impl FnMut(u32),
    ) -> Result<bool, QueueFull> {
        // epoll reports a blocked connection when the connection accepts output again.
        let is_first = self.blocked.is_none() && self.out.is_empty();
        // Answers and the bytes of a pipe are bounded by reading the other direction.
        let most = if message.droppable { self.permit.backlog_max() } else { STREAM_BACKLOG_BYTES };
        self.out.push(message, most, on_drop)?;
        self.permit.note_backlog(self.out.capacity());
        Ok(is_first)
    }

    /// Drops the output queue, and returns the tags of the messages.
    pub(crate) fn give_up(&mut self) -> impl Iterator<Item = u32> {
        self.out.give_up()
    }
}

/// Writes until the queue is empty, or the connection accepts no more bytes. Returns true if the
/// queue is empty.
fn write_plain(
    socket: &impl StreamIo,
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

/// Writes the queue in TLS records, each with all messages that fit. Returns true if nothing can be
/// written before new output or input.
fn write_tls(
    (socket, tls): (&impl StreamIo, &mut Tls),
    out: &mut OutQueue,
    moved: &mut bool,
    on_sent: &mut impl FnMut(u32),
) -> io::Result<bool> {
    loop {
        while tls.wants_write() {
            match tls.write_to(&mut Writer(socket)) {
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
            // The handshake waits for the client, and writing continues after the client's next
            // flight.
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

/// Reason why a connection cannot be read any more.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The connection is broken.
    Broken,
    /// TLS has failed.
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
