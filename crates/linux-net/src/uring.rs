//! Relaying by io_uring: one multishot receive, buffers that the kernel takes by itself, and sends
//! that are submitted together with the wait for what comes next.
//!
//! The server does not use it; the benchmark's lab shows why. What makes a packet dear is its way
//! through the UDP and IP layers, which is the same one here, and not the system calls saved.
//!
//! ```text
//! turn:  enter (submits the sends of the last turn, waits) ─▶ completions
//!          of the receive: a buffer with a datagram ─▶ decide ─▶ send it, or give it back
//!          of a send:      give its buffer back
//! ```

use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::types::{BufRingEntry, Fixed, RecvMsgOut, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use libc::c_int;

use crate::UdpSocket;
use crate::abi::address::{self, ADDRESS_BYTES, RawAddress};
use crate::abi::errno::left_by_icmp;
use crate::abi::heap::{HeapArray, Zeroed};

/// Bytes of one buffer: the kernel's header (16), the sender's address, and the datagram.
const BUFFER_BYTES: usize = 2048;

/// The largest datagram that fits; a longer one is dropped.
const DATAGRAM_MAX: usize = BUFFER_BYTES - 16 - ADDRESS_BYTES;

/// The ring of buffers is one block of this many entries at most, aligned to the largest page.
const MAX_BUFFERS: usize = RING_BYTES / size_of::<BufRingEntry>();
const RING_BYTES: usize = 65_536;

/// There is one group of buffers, and one socket.
const GROUP: u16 = 0;
const SOCKET: Fixed = Fixed(0);

/// What completions carry: the number of the buffer for a send, and these for the others.
const RECEIVE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// How often, and how long each time, the end waits for requests to be over. Nothing here can wait
/// for a remote host, so the first time is enough.
const LAST_WAITS: usize = 100;
const LAST_WAIT: Duration = Duration::from_millis(50);

/// A UDP socket that relays through an io_uring of its own (Linux 6.1).
///
/// It stays in the thread that made it, the only one from which the kernel takes requests.
pub struct UringUdp {
    ring: IoUring,
    /// What the kernel reads and writes. Not dropped with the rest, but only once no request can
    /// use it any more.
    memory: ManuallyDrop<Memory>,
    /// Requests handed to `ring` whose last completion has not been seen.
    pending: usize,
    /// Whether one of them is the receive.
    armed: bool,
    stats: UringStats,
    /// Keeps the socket open.
    _socket: UdpSocket,
    _one_thread: PhantomData<*mut ()>,
}

/// What became of the datagrams of a [`UringUdp`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UringStats {
    /// Received.
    pub received: u64,
    /// Sent on.
    pub sent: u64,
    /// To be sent on, and not taken by the kernel.
    pub failed: u64,
    /// Received and longer than a buffer takes: dropped.
    pub truncated: u64,
    /// Times that receiving stopped because all buffers waited to be sent.
    pub starved: u64,
}

struct Memory {
    /// Entries of free buffers, which the kernel reads, and in the first of them how far they go.
    ring: HeapArray<Page>,
    /// How far: the number of buffers ever given to the kernel; wraps.
    tail: u16,
    /// How many buffers there are; a power of two.
    count: usize,
    /// `count` buffers.
    buffers: HeapArray<u8>,
    /// For each buffer, where it is being sent.
    names: HeapArray<Name>,
    /// What the receive asks for beside the payload: the sender's address. One header.
    header: HeapArray<libc::mmsghdr>,
}

#[derive(Clone, Copy)]
#[repr(C, align(65536))]
struct Page([u8; RING_BYTES]);

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Name(RawAddress);

// SAFETY: an array of bytes.
unsafe impl Zeroed for Page {}
// SAFETY: an array of bytes.
unsafe impl Zeroed for Name {}

impl UringUdp {
    /// A ring for `socket`, with so many buffers of 2 KiB: a power of two up to 4096 (others are
    /// rounded up, or clamped). Datagrams longer than about 2000 bytes are dropped.
    ///
    /// # Errors
    /// `ENOSYS`: the kernel has no io_uring. `EPERM`, `EACCES`: it is forbidden to this process.
    /// `EINVAL`: Linux before 6.1. Others: no descriptors or memory left.
    pub fn new(socket: UdpSocket, buffers: usize) -> io::Result<Self> {
        let count = buffers.clamp(1, MAX_BUFFERS).next_power_of_two();
        // Each buffer is in one request at most, beside which there are a receive and its end.
        let requests = (count as u32 + 2).next_power_of_two();
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(2 * requests)
            .build(requests)?;
        ring.submitter().register_files(&[socket.as_raw_fd()])?;
        let memory = ManuallyDrop::new(Memory::new(count));
        let mut uring = Self {
            ring,
            memory,
            pending: 0,
            armed: false,
            stats: UringStats::default(),
            _socket: socket,
            _one_thread: PhantomData,
        };
        let entries = uring.memory.ring.pointer(0) as u64;
        // SAFETY: `entries` is aligned to any page and has room for `count` entries. It is freed
        // by `drop` alone, and there not before it was unregistered.
        unsafe {
            uring.ring.submitter().register_buf_ring_with_flags(entries, count as u16, GROUP, 0)?;
        }
        for buffer in 0..count {
            uring.memory.give_back(buffer as u16);
        }
        Ok(uring)
    }

    /// Submits what the last turn left to be sent, and waits until there is something to do, for
    /// `timeout` at most. Then `decide` gets each datagram received and its sender: it is sent on
    /// to the address that it returns, or dropped.
    ///
    /// # Errors
    /// Faults of the program, or a lack of memory.
    pub fn turn(
        &mut self,
        timeout: Duration,
        decide: impl FnMut(&[u8], SocketAddr) -> Option<SocketAddr>,
    ) -> io::Result<()> {
        if !self.armed {
            self.arm()?;
        }
        self.enter(timeout)?;
        self.complete(decide)
    }

    /// What became of the datagrams so far. Those of the last turn are not counted as sent before
    /// the next.
    #[must_use]
    pub const fn stats(&self) -> UringStats {
        self.stats
    }

    /// Sends what is left, and says what became of all.
    #[must_use]
    pub fn close(mut self) -> UringStats {
        self.finish();
        self.stats
    }

    /// Starts the receive, which goes on until it finds no buffer.
    fn arm(&mut self) -> io::Result<()> {
        let header = self.memory.header.pointer(0);
        // SAFETY: `header` points at an element of the array; only the address of a field is taken.
        let header = unsafe { &raw const (*header).msg_hdr };
        let request = opcode::RecvMsgMulti::new(SOCKET, header, GROUP).build().user_data(RECEIVE);
        self.push(&request)?;
        self.armed = true;
        Ok(())
    }

    fn push(&mut self, request: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the requests of this module refer to `memory` alone, which stays where it is
        // until `drop` has seen the last completion of each. Nothing is written to what a request
        // reads before that: the header never changes, and a buffer or its name only after the
        // completion of its send.
        let pushed = unsafe { self.ring.submission().push(request) };
        // It was made for all that there can be.
        pushed.map_err(|_| io::Error::other("the submission queue is full"))?;
        self.pending += 1;
        Ok(())
    }

    /// Submits, and waits for a completion.
    fn enter(&self, timeout: Duration) -> io::Result<()> {
        let time = Timespec::from(timeout);
        let waited = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time));
        match waited {
            Ok(_) => Ok(()),
            // The time is over, there was a signal, or completions have to be taken first.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes all completions that are there.
    fn complete(
        &mut self,
        mut decide: impl FnMut(&[u8], SocketAddr) -> Option<SocketAddr>,
    ) -> io::Result<()> {
        loop {
            // Taken off the queue one by one: what follows may add to the other queue.
            let Some(completion) = self.ring.completion().next() else { return Ok(()) };
            match completion.user_data() {
                RECEIVE => self.received(&completion, &mut decide)?,
                CANCEL => self.pending -= 1,
                buffer => self.sent(buffer as u16, completion.result()),
            }
        }
    }

    fn sent(&mut self, buffer: u16, result: c_int) {
        self.pending -= 1;
        if result < 0 {
            self.stats.failed += 1;
        } else {
            self.stats.sent += 1;
        }
        self.memory.give_back(buffer);
    }

    fn received(
        &mut self,
        completion: &cqueue::Entry,
        decide: &mut impl FnMut(&[u8], SocketAddr) -> Option<SocketAddr>,
    ) -> io::Result<()> {
        if !cqueue::more(completion.flags()) {
            self.pending -= 1;
            self.armed = false;
        }
        let Ok(len) = usize::try_from(completion.result()) else {
            return self.interrupted(-completion.result());
        };
        let Some(buffer) = cqueue::buffer_select(completion.flags()) else { return Ok(()) };
        self.stats.received += 1;
        match self.memory.forward(buffer, len, decide) {
            Forward::To(request) => match self.push(&request) {
                Ok(()) => return Ok(()),
                Err(_) => self.stats.failed += 1,
            },
            Forward::Truncated => self.stats.truncated += 1,
            Forward::Drop => {}
        }
        self.memory.give_back(buffer);
        Ok(())
    }

    /// The receive has ended with an error: most of them only until the next turn.
    fn interrupted(&mut self, errno: c_int) -> io::Result<()> {
        match errno {
            libc::ENOBUFS => {
                self.stats.starved += 1;
                Ok(())
            }
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => Ok(()),
            errno if left_by_icmp(errno) => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Ends the receive and waits until every request is over; whether that was seen.
    fn finish(&mut self) -> bool {
        if self.armed {
            let cancel = opcode::AsyncCancel::new(RECEIVE).build().user_data(CANCEL);
            if self.push(&cancel).is_err() {
                return false;
            }
        }
        for _ in 0..LAST_WAITS {
            if self.pending == 0 {
                return true;
            }
            // What still arrives has come too late.
            if self.enter(LAST_WAIT).and_then(|()| self.complete(|_, _| None)).is_err() {
                return false;
            }
        }
        self.pending == 0
    }
}

impl Drop for UringUdp {
    fn drop(&mut self) {
        let over = self.finish();
        let submitter = self.ring.submitter();
        // Without it the socket would be closed when the kernel gets round to the ring.
        let _ = submitter.unregister_files();
        if over && submitter.unregister_buf_ring(GROUP).is_ok() {
            // SAFETY: dropped here only, and not used below. No request is pending and the ring
            // of buffers is no longer registered, so the kernel does not know of it any more.
            unsafe { ManuallyDrop::drop(&mut self.memory) }
        }
        // Otherwise it is left to the kernel for good.
    }
}

impl std::fmt::Debug for UringUdp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringUdp")
            .field("buffers", &self.memory.count)
            .field("pending", &self.pending)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// What to do with a datagram.
enum Forward {
    To(squeue::Entry),
    Drop,
    Truncated,
}

impl Memory {
    fn new(count: usize) -> Self {
        let mut header = HeapArray::<libc::mmsghdr>::new(1);
        header.get_mut(0).msg_hdr.msg_namelen = ADDRESS_BYTES as _;
        Self {
            ring: HeapArray::new(1),
            tail: 0,
            count,
            buffers: HeapArray::new(count * BUFFER_BYTES),
            names: HeapArray::new(count),
            header,
        }
    }

    /// Lets the kernel fill a buffer. It must be one that the kernel does not have: this is called
    /// for each at first, and then once after each completion that brought it back.
    fn give_back(&mut self, buffer: u16) {
        let address = self.buffers.pointer(usize::from(buffer) * BUFFER_BYTES) as u64;
        let entries = self.ring.pointer(0).cast::<BufRingEntry>();
        let place = usize::from(self.tail) & (self.count - 1);
        // SAFETY: `place` is below `count`, for which there is room. The kernel reads entries only
        // up to the tail, which this one is not in yet: there are never more than `count` out.
        let entry = unsafe { &mut *entries.add(place) };
        entry.set_addr(address);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `entries` points at the first entry, which is initialised (zeroed at birth). Its
        // tail is two bytes aligned to two, which both sides access as a whole.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(entries).cast_mut()) };
        // The kernel that sees the tail sees the entry too.
        tail.store(self.tail, Ordering::Release);
    }

    /// Asks where a received datagram shall go, and makes the request that sends it there.
    fn forward(
        &mut self,
        buffer: u16,
        len: usize,
        decide: &mut impl FnMut(&[u8], SocketAddr) -> Option<SocketAddr>,
    ) -> Forward {
        let index = usize::from(buffer);
        assert!(index < self.count, "buffer {index} of {}", self.count);
        let first = self.buffers.pointer(index * BUFFER_BYTES);
        // SAFETY: the buffer is inside the array and initialised (zeroed at birth). The kernel has
        // handed it over by this completion and writes to it no more until it is given back,
        // which is after the last use of `received`.
        let received = unsafe { std::slice::from_raw_parts(first, len.min(BUFFER_BYTES)) };
        let Ok(message) = RecvMsgOut::parse(received, &self.header.get(0).msg_hdr) else {
            return Forward::Truncated;
        };
        let payload = message.payload_data();
        let Some(from) = address::decode(message.name_data()) else { return Forward::Drop };
        if message.is_payload_truncated() || payload.len() > DATAGRAM_MAX {
            return Forward::Truncated;
        }
        let Some(to) = decide(payload, from) else { return Forward::Drop };
        let name_len = address::encode(to, &mut self.names.get_mut(index).0);
        let send = opcode::Send::new(SOCKET, payload.as_ptr(), payload.len() as u32)
            .dest_addr(self.names.pointer(index).cast_const().cast())
            .dest_addr_len(name_len as libc::socklen_t)
            .flags(libc::MSG_DONTWAIT)
            .build()
            .user_data(u64::from(buffer));
        Forward::To(send)
    }
}
