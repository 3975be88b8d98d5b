//! Sending a batch: all messages of one socket per call, and what to do when the kernel will not.

use std::os::fd::AsFd;

use libc::c_int;

use crate::errno::{left_by_icmp, refuses_run};
use crate::headers::{Headers, Loaded, MAX_PER_CALL};
use crate::segmentation::Segmentation;
use crate::tx::{Message, Part, Segment, SendSocket};
use crate::warning::{Warning, Warnings};
use crate::wire::{Kernel, Wire};
use crate::{Occupancy, RxBatch, SendError, UdpSocket};

/// Finds sockets by the numbers that datagrams were pushed with.
///
/// Looked up at the flush, so a socket may be closed in between: its datagrams then fail with
/// [`SendError::Closed`]. The borrow keeps it open while it is used.
pub trait SocketTable {
    /// The socket, unless it is gone.
    fn socket(&self, socket: SendSocket) -> Option<&UdpSocket>;
}

/// A table of one, whatever the number.
impl SocketTable for UdpSocket {
    fn socket(&self, _: SendSocket) -> Option<&UdpSocket> {
        Some(self)
    }
}

/// Numbers are indices.
impl SocketTable for Vec<UdpSocket> {
    fn socket(&self, socket: SendSocket) -> Option<&UdpSocket> {
        self.get(usize::try_from(socket.0).ok()?)
    }
}

/// Counters of sending; the caller keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendStats {
    /// System calls that send.
    pub calls: u64,
    /// Datagrams that the kernel took.
    pub datagrams: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Datagrams that were not sent; `on_fail` was told why.
    pub failed: u64,
    /// Messages tried again because of an error that ICMP may have left on the socket.
    pub retried: u64,
    /// Runs that the kernel refused and that went out one by one.
    pub refused_runs: u64,
    /// Datagrams per message that the kernel took.
    pub segments_per_send: Occupancy,
}

/// A batch as it was pushed, and what its parts refer to.
#[derive(Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) messages: &'a [Message],
    pub(crate) segments: &'a [Segment],
    pub(crate) parts: &'a [Part],
    pub(crate) arena: &'a [u8],
    pub(crate) rx: &'a RxBatch,
}

/// Sends batches: reused memory, and what was learnt from the kernel's answers.
pub(crate) struct Sender<W = Kernel> {
    headers: Headers,
    units: Vec<Unit>,
    segmentation: Segmentation,
    warnings: Warnings,
    wire: W,
}

impl Sender {
    /// For batches of up to `parts` parts, to the kernel; with runs if it knows them and the
    /// caller wants them.
    pub(crate) fn new(parts: usize, runs: bool) -> Self {
        // A kernel that does not know runs would not refuse one but send it as one datagram, so
        // it was asked beforehand.
        let runs = runs && crate::capabilities().gso;
        Self::over(Kernel { sendmmsg: true }, Segmentation::new(runs), parts)
    }

    /// The next warning that is due.
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

    /// Sends everything in `load`; see [`TxBatch::flush`](crate::TxBatch::flush).
    pub(crate) fn send(
        &mut self,
        load: Load<'_>,
        sockets: &impl SocketTable,
        stats: &mut SendStats,
        on_fail: impl FnMut(u32, SendError),
    ) {
        let loaded = self.headers.load(load.parts, load.rx, load.arena);
        let Self { units, segmentation, warnings, wire, .. } = self;
        Flush { load, loaded, units, segmentation, warnings, wire, stats, on_fail }.run(sockets);
    }
}

/// What one header sends: a whole message as a run, or one datagram of it.
#[derive(Clone, Copy)]
struct Unit {
    at: Cursor,
    segments: usize,
}

/// A place among the datagrams of a batch.
#[derive(Clone, Copy)]
struct Cursor {
    message: usize,
    /// Which datagram of the message.
    segment: usize,
}

/// How the calls for some units ended.
enum Outcome {
    /// Each was sent, or failed for a reason of its own.
    Done,
    /// A run was refused: go on from there, where it is now single datagrams.
    Again(Cursor),
    /// The socket's buffer is full: what is left, from there on, is dropped.
    Blocked(Cursor),
}

/// One flush: everything it needs, borrowed.
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
        let mut start = 0;
        for group in self.load.messages.chunk_by(|a, b| a.flow.socket == b.flow.socket) {
            let (first, end) = (Cursor { message: start, segment: 0 }, start + group.len());
            match sockets.socket(group[0].flow.socket) {
                Some(socket) => self.send_group(socket, first, end),
                None => self.fail_rest(first, end, SendError::Closed),
            }
            start = end;
        }
    }

    /// Sends the messages of one socket, from `cursor` up to but without message `end`.
    fn send_group(&mut self, socket: &UdpSocket, mut cursor: Cursor, end: usize) {
        while cursor.message < end {
            let next = self.gather(cursor, end);
            let dont_fragment = self.load.messages[cursor.message].flow.marks.dont_fragment;
            // Left as it is afterwards: the next datagram that wants it otherwise changes it.
            if let Err(error) = socket.set_dont_fragment(dont_fragment) {
                let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
                self.fail_units(SendError::from_errno(errno));
                cursor = next;
                continue;
            }
            cursor = match self.send_units(socket) {
                Outcome::Done => next,
                Outcome::Again(at) => at,
                Outcome::Blocked(at) => {
                    self.fail_rest(at, end, SendError::WouldBlock);
                    return;
                }
            };
        }
    }

    /// Writes headers for what one call can take, from `cursor` on, and returns where it ended:
    /// at `end`, where DF changes, or when there are enough.
    fn gather(&mut self, mut cursor: Cursor, end: usize) -> Cursor {
        self.units.clear();
        self.loaded.clear();
        let dont_fragment = self.load.messages[cursor.message].flow.marks.dont_fragment;
        while cursor.message < end && self.units.len() < MAX_PER_CALL {
            let message = &self.load.messages[cursor.message];
            if message.flow.marks.dont_fragment != dont_fragment {
                break;
            }
            let whole = cursor.segment == 0
                && message.segments > 1
                && self.segmentation.allows(&message.flow, message.segment_size);
            let unit = Unit { at: cursor, segments: if whole { message.segments } else { 1 } };
            self.write(message, unit);
            cursor.segment += unit.segments;
            if cursor.segment == message.segments {
                cursor = Cursor { message: cursor.message + 1, segment: 0 };
            }
        }
        cursor
    }

    fn write(&mut self, message: &Message, unit: Unit) {
        let first = message.first + unit.at.segment;
        let segments = &self.load.segments[first..first + unit.segments];
        let parts = segments.iter().map(|segment| segment.parts).sum();
        // Fits: a run has more than one segment and at most 65,507 bytes.
        let size = (unit.segments > 1).then_some(message.segment_size as u16);
        self.loaded.push(&message.flow, segments[0].first_part, parts, size);
        self.units.push(unit);
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
            let segments = segments_of(&self.load, *unit);
            self.stats.datagrams += segments.len() as u64;
            self.stats.bytes += segments.iter().map(|segment| segment.bytes as u64).sum::<u64>();
            self.stats.segments_per_send.record(segments.len());
        }
    }

    /// A run was refused. From now on [`Segmentation::allows`] says no to it, so that the next
    /// [`gather`](Self::gather) makes single datagrams of it.
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

    /// Everything from `at` on up to but without message `end`.
    fn fail_rest(&mut self, mut at: Cursor, end: usize, error: SendError) {
        while at.message < end {
            let segments = self.load.messages[at.message].segments - at.segment;
            self.fail(Unit { at, segments }, error);
            at = Cursor { message: at.message + 1, segment: 0 };
        }
    }

    fn fail(&mut self, unit: Unit, error: SendError) {
        for segment in segments_of(&self.load, unit) {
            self.stats.failed += 1;
            (self.on_fail)(segment.tag, error);
        }
    }
}

fn segments_of<'a>(load: &Load<'a>, unit: Unit) -> &'a [Segment] {
    let first = load.messages[unit.at.message].first + unit.at.segment;
    &load.segments[first..first + unit.segments]
}

#[cfg(test)]
mod tests;
