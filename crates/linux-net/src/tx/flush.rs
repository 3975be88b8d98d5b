//! Sending of a batch: calls with all messages of one socket, and reactions to the kernel's errors.

use std::os::fd::AsFd;

use libc::c_int;

use super::headers::{Headers, Loaded, MAX_PER_CALL};
use super::segmentation::Segmentation;
use super::types::{Group, Message, Part, Segment, SendSocket};
use super::warning::{Warning, Warnings};
use super::wire::{Kernel, Wire};
use crate::abi::errno::{left_by_icmp, refuses_run};
use crate::udp::Unsaid;
use crate::{Occupancy, RxBatch, SendError, UdpSocket};

/// Table that finds sockets by the numbers with which datagrams were pushed. The lookup happens at
/// the flush, so a socket may have been closed since the push. Datagrams of a closed socket fail
/// with [`SendError::Closed`]. The borrow keeps the socket open while it is used.
pub trait SocketTable {
    /// Returns the socket with this number, or `None` if the socket was closed.
    fn socket(&self, socket: SendSocket) -> Option<&UdpSocket>;
}

/// Table with a single socket, which every number selects.
impl SocketTable for UdpSocket {
    fn socket(&self, _: SendSocket) -> Option<&UdpSocket> {
        Some(self)
    }
}

/// Table whose numbers are indices.
impl SocketTable for Vec<UdpSocket> {
    fn socket(&self, socket: SendSocket) -> Option<&UdpSocket> {
        self.get(usize::try_from(socket.0).ok()?)
    }
}

/// Counters of sending, owned by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendStats {
    /// Number of system calls for sending.
    pub calls: u64,
    /// Number of datagrams that the kernel accepted.
    pub datagrams: u64,
    /// Number of payload bytes of the accepted datagrams.
    pub bytes: u64,
    /// Number of datagrams that were not sent. `on_fail` received the reasons.
    pub failed: u64,
    /// Number of messages tried again because of an error that ICMP may have left on the socket.
    pub retried: u64,
    /// Number of runs that the kernel refused. Their datagrams were sent singly.
    pub refused_runs: u64,
    /// Histogram of datagrams per message that the kernel accepted.
    pub segments_per_send: Occupancy,
}

/// Pushed datagrams of a batch, and the buffers that the parts refer to.
#[derive(Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) groups: &'a [Group],
    pub(crate) messages: &'a [Message],
    pub(crate) segments: &'a [Segment],
    pub(crate) parts: &'a [Part],
    pub(crate) arena: &'a [u8],
    pub(crate) rx: &'a RxBatch,
}

/// Sender of batches. Reuses memory, and stores restrictions learnt from the kernel's errors.
pub(crate) struct Sender<W = Kernel> {
    headers: Headers,
    units: Vec<Unit>,
    segmentation: Segmentation,
    warnings: Warnings,
    wire: W,
}

impl Sender {
    /// Creates a sender for batches of up to `parts` parts. The sender uses runs if the kernel
    /// supports runs and the caller enables them.
    pub(crate) fn new(parts: usize, runs: bool) -> Self {
        // A kernel without `UDP_SEGMENT` would send a run as one datagram instead of refusing the
        // run. The support is therefore tested in advance.
        let runs = runs && crate::capabilities().gso;
        Self::over(Kernel { sendmmsg: true }, Segmentation::new(runs), parts)
    }

    /// Returns the next pending warning.
    pub(crate) fn take_warning(&mut self) -> Option<Warning> {
        if !self.wire.sendmmsg {
            self.warnings.add(Warning::NoSendmmsg);
        }
        self.warnings.take()
    }
}

impl<W: Wire> Sender<W> {
    fn over(wire: W, segmentation: Segmentation, parts: usize) -> Self {
        Self {
            headers: Headers::new(parts),
            units: Vec::with_capacity(MAX_PER_CALL),
            segmentation,
            warnings: Warnings::default(),
            wire,
        }
    }

    /// Sends all datagrams in `load`. See [`TxBatch::flush`](crate::TxBatch::flush).
    pub(crate) fn send(
        &mut self,
        load: Load<'_>,
        sockets: &impl SocketTable,
        stats: &mut SendStats,
        on_fail: impl FnMut(u32, SendError),
    ) {
        let loaded = self.headers.load(load.rx, load.arena);
        let Self { units, segmentation, warnings, wire, .. } = self;
        Flush { load, loaded, units, segmentation, warnings, wire, stats, on_fail }.run(sockets);
    }
}

/// Content of one header: a complete message as a run, or one datagram of a message.
#[derive(Clone, Copy)]
struct Unit {
    at: Cursor,
    segments: usize,
    bytes: usize,
}

/// Position of a datagram in the messages of a socket.
#[derive(Clone, Copy)]
struct Cursor {
    message: usize,
    /// Index of the datagram.
    segment: usize,
    /// Number of preceding datagrams in the message.
    before: usize,
}

/// Outcome of the send calls for the gathered units.
enum Outcome {
    /// Each unit was sent or failed individually.
    Done,
    /// A run was refused. Sending continues at the cursor, and the run's datagrams are sent singly.
    Again(Cursor),
    /// The send buffer is full. All units starting at the cursor are dropped.
    Blocked(Cursor),
}

/// State of one flush, with all borrows.
struct Flush<'a, W, F> {
    load: Load<'a>,
    loaded: Loaded<'a>,
    units: &'a mut Vec<Unit>,
    segmentation: &'a mut Segmentation,
    warnings: &'a mut Warnings,
    wire: &'a mut W,
    stats: &'a mut SendStats,
    on_fail: F,
}

impl<W: Wire, F: FnMut(u32, SendError)> Flush<'_, W, F> {
    fn run(&mut self, sockets: &impl SocketTable) {
        for group in self.load.groups {
            let first = self.start_of(group.first);
            match sockets.socket(group.socket) {
                Some(socket) => self.send_group(socket, first),
                None => self.fail_rest(first, SendError::Closed),
            }
        }
    }

    /// Sends the messages of one socket, starting at `first`.
    fn send_group(&mut self, socket: &UdpSocket, first: Cursor) {
        let mut next = Some(first);
        while let Some(cursor) = next {
            next = self.gather(socket, cursor);
            let dont_fragment = self.load.messages[cursor.message].flow.meta.dont_fragment;
            // The state is not restored. The next datagram with another value changes it.
            if let Err(error) = socket.set_dont_fragment(dont_fragment) {
                let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
                self.fail_units(SendError::from_errno(errno));
                continue;
            }
            match self.send_units(socket) {
                Outcome::Done => {}
                Outcome::Again(at) => next = Some(at),
                Outcome::Blocked(at) => {
                    self.fail_rest(at, SendError::WouldBlock);
                    return;
                }
            }
        }
    }

    /// Writes headers for one call, starting at `cursor`, and returns the next position. The
    /// headers stop after the last message, at the maximum, or where the socket needs other
    /// options.
    fn gather(&mut self, socket: &UdpSocket, cursor: Cursor) -> Option<Cursor> {
        self.units.clear();
        self.loaded.clear();
        let first = self.load.messages[cursor.message].flow.meta;
        socket.settle_fields(first);
        let mut next = Some(cursor);
        while let Some(at) = next.filter(|_| self.units.len() < MAX_PER_CALL) {
            let message = &self.load.messages[at.message];
            let meta = message.flow.meta;
            let differs = meta.dont_fragment != first.dont_fragment || !socket.can_send(meta);
            if differs && !self.units.is_empty() {
                break;
            }
            let whole = at.before == 0
                && message.segments > 1
                && self.segmentation.allows(&message.flow, message.segment_size);
            let (segments, bytes) = if whole {
                (message.segments, message.bytes)
            } else {
                (1, self.load.segments[at.segment].bytes)
            };
            let unit = Unit { at, segments, bytes };
            self.write(message, unit, socket.unsaid(meta));
            next = self.behind(unit);
        }
        next
    }

    fn write(&mut self, message: &Message, unit: Unit, unsaid: Unsaid) {
        let parts = segments_of(self.load, unit)
            .flat_map(|segment| &self.load.parts[segment.first_part..][..segment.parts]);
        // The size fits: a run has more than one segment and at most 65,507 bytes.
        let size = (unit.segments > 1).then_some(message.segment_size as u16);
        self.loaded.push(&message.flow, parts.copied(), size, unsaid);
        self.units.push(unit);
    }

    /// Returns the position of the first datagram of a message.
    fn start_of(&self, message: usize) -> Cursor {
        Cursor { message, segment: self.load.messages[message].first, before: 0 }
    }

    /// Returns the position of the datagram after a unit, or `None` after the last datagram of the
    /// socket.
    fn behind(&self, unit: Unit) -> Option<Cursor> {
        let message = &self.load.messages[unit.at.message];
        let before = unit.at.before + unit.segments;
        if before < message.segments {
            // A unit that is not a complete message is a single datagram.
            let segment = self.load.segments[unit.at.segment].next;
            return Some(Cursor { segment, before, ..unit.at });
        }
        (message.next > 0).then(|| self.start_of(message.next))
    }

    fn send_units(&mut self, socket: &UdpSocket) -> Outcome {
        let mut next = 0;
        let mut retried = false;
        while next < self.units.len() {
            self.stats.calls += 1;
            let errno = match self.loaded.send(self.wire, socket.as_fd(), next) {
                Ok(count) => {
                    self.sent(next, count);
                    next += count;
                    retried = false;
                    continue;
                }
                Err(errno) => errno,
            };
            let unit = self.units[next];
            match errno {
                libc::EINTR => {}
                libc::EAGAIN => return Outcome::Blocked(unit.at),
                _ if !retried && left_by_icmp(errno) => {
                    self.stats.retried += 1;
                    retried = true;
                }
                _ if unit.segments > 1 && refuses_run(errno) => {
                    self.refused(unit, errno);
                    return Outcome::Again(unit.at);
                }
                _ => {
                    self.fail(unit, SendError::from_errno(errno));
                    next += 1;
                    retried = false;
                }
            }
        }
        Outcome::Done
    }

    fn sent(&mut self, first: usize, count: usize) {
        for unit in &self.units[first..first + count] {
            self.stats.datagrams += unit.segments as u64;
            self.stats.bytes += unit.bytes as u64;
            self.stats.segments_per_send.record(unit.segments);
        }
    }

    /// Handles a refused run. From now on [`Segmentation::allows`] is false for the run, so the
    /// next [`gather`](Self::gather) sends single datagrams.
    fn refused(&mut self, unit: Unit, errno: c_int) {
        let Message { flow, segment_size, .. } = self.load.messages[unit.at.message];
        self.stats.refused_runs += 1;
        self.warnings.add(Warning::RunRefused { segment_size, errno });
        if self.segmentation.refused(&flow, segment_size, errno) {
            self.warnings.add(Warning::RunsOff { errno });
        }
    }

    fn fail_units(&mut self, error: SendError) {
        for index in 0..self.units.len() {
            self.fail(self.units[index], error);
        }
    }

    /// Reports all datagrams of the socket as failed, starting at `at`.
    fn fail_rest(&mut self, at: Cursor, error: SendError) {
        let mut next = Some(at);
        while let Some(at) = next {
            let unit = Unit { at, segments: 1, bytes: self.load.segments[at.segment].bytes };
            self.fail(unit, error);
            next = self.behind(unit);
        }
    }

    fn fail(&mut self, unit: Unit, error: SendError) {
        for segment in segments_of(self.load, unit) {
            self.stats.failed += 1;
            (self.on_fail)(segment.tag, error);
        }
    }
}

fn segments_of(load: Load<'_>, unit: Unit) -> impl Iterator<Item = &Segment> {
    let first = load.segments.get(unit.at.segment);
    std::iter::successors(first, move |segment| load.segments.get(segment.next)).take(unit.segments)
}

#[cfg(test)]
mod tests;
