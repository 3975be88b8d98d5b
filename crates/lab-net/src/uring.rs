//! Relaying by io_uring: one multishot receive, buffers that the kernel takes from a ring, and
//! sends that are submitted together with the wait for the next datagrams.
//!
//! The server does not use it; the benchmark's lab shows the reason. The cost of a packet is its
//! way through the UDP and IP layers, which is the same here, and not the system calls saved.
//!
//! ```text
//! turn:  enter (submits the sends of the last turn, waits) ─▶ completions
//!          of the receive: a buffer with a datagram ─▶ decide ─▶ send it, or return it to the ring
//!          of a send:      return its buffer to the ring
//! ```

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::types::{BufRingEntry, Fixed, RecvMsgOut, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use libc::c_int;
use socket2::SockAddr;

/// Bytes of one buffer: the kernel's header (16) and the datagram.
const BUFFER_BYTES: usize = 2048;

/// The ring of buffers is one block of at most this many entries, aligned to the largest page.
const RING_BYTES: usize = 65_536;
const MAX_BUFFERS: usize = RING_BYTES / size_of::<BufRingEntry>();

/// There is one group of buffers, and one socket.
const GROUP: u16 = 0;
const SOCKET: Fixed = Fixed(0);

/// User data of completions: the number of the buffer for a send, and these for the others.
const RECEIVE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// Waits for pending requests at the end: number and length. No request depends on a remote host,
/// so the first wait is enough.
const LAST_WAITS: usize = 100;
const LAST_WAIT: Duration = Duration::from_millis(50);

/// A UDP socket that relays through an io_uring of its own (Linux 6.1).
///
/// It stays in the thread that made it: the kernel takes requests from no other.
pub struct UringUdp {
    ring: IoUring,
    /// Memory of pending requests, freed only after the last of them.
    memory: ManuallyDrop<Memory>,
    /// Requests in `ring` whose last completion is still to come.
    pending: usize,
    /// True if one of them is the receive.
    armed: bool,
    stats: UringStats,
    /// Keeps the socket open.
    _socket: UdpSocket,
    _one_thread: PhantomData<*mut ()>,
}

/// Counters of datagrams of a [`UringUdp`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UringStats {
    /// Received.
    pub received: u64,
    /// Sent on.
    pub sent: u64,
    /// Refused by the kernel when they were to be sent on.
    pub failed: u64,
    /// Longer than a buffer, and dropped.
    pub truncated: u64,
    /// Times that receiving stopped because all buffers waited to be sent.
    pub starved: u64,
}

struct Memory {
    /// Entries of free buffers, which the kernel reads, and in the first of them the tail.
    ring: Block,
    /// Number of buffers ever given to the kernel; wraps.
    tail: u16,
    /// Number of buffers, a power of two.
    count: usize,
    buffers: Block,
    /// For each buffer, the address it is being sent to.
    names: Vec<SockAddr>,
    /// Header of the receive: no address is asked for.
    header: Box<libc::msghdr>,
}

/// Zeroed memory at a fixed place.
struct Block(NonNull<u8>, Layout);

impl Block {
    /// `bytes` is not 0; `align` is a power of two.
    fn new(bytes: usize, align: usize) -> Self {
        let layout = Layout::from_size_align(bytes, align).expect("a small block");
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc_zeroed(layout) };
        Self(NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout)), layout)
    }

    /// The address of a byte of it.
    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.1.size(), "{offset} is outside");
        // SAFETY: the offset is inside the block.
        unsafe { self.0.as_ptr().add(offset) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout, and freed here alone.
        unsafe { dealloc(self.0.as_ptr(), self.1) }
    }
}

impl UringUdp {
    /// A ring for `socket` with `buffers` of 2 KiB, rounded up to a power of two, at most 4096.
    /// Datagrams longer than about 2000 bytes are dropped.
    ///
    /// # Errors
    /// `ENOSYS`: the kernel has no io_uring. `EPERM`, `EACCES`: it is forbidden to this process.
    /// `EINVAL`: Linux before 6.1. Others: no descriptors or memory left.
    pub fn new(socket: UdpSocket, buffers: usize) -> io::Result<Self> {
        let count = buffers.clamp(1, MAX_BUFFERS).next_power_of_two();
        // Each buffer is in at most one request; beside those are a receive and its cancellation.
        let requests = (count as u32 + 2).next_power_of_two();
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(2 * requests)
            .build(requests)?;
        ring.submitter().register_files(&[socket.as_raw_fd()])?;
        let memory = ManuallyDrop::new(Memory::new(count));
        let stats = UringStats::default();
        let (pending, armed) = (0, false);
        let mut uring =
            Self { ring, memory, pending, armed, stats, _socket: socket, _one_thread: PhantomData };
        let entries = uring.memory.ring.at(0) as u64;
        // SAFETY: `entries` is aligned to any page and has room for `count` entries. It is freed
        // by `drop` alone, after it was unregistered.
        unsafe {
            uring.ring.submitter().register_buf_ring_with_flags(entries, count as u16, GROUP, 0)?;
        }
        for buffer in 0..count {
            uring.memory.give_back(buffer as u16);
        }
        Ok(uring)
    }

    /// Submits the sends of the last turn and waits for completions, for at most `timeout`.
    /// `decide` gets each received datagram and returns the address it is sent on to, or `None` to
    /// drop it.
    ///
    /// # Errors
    /// Faults of the program, or a lack of memory.
    pub fn turn(
        &mut self,
        timeout: Duration,
        decide: impl FnMut(&[u8]) -> Option<SocketAddr>,
    ) -> io::Result<()> {
        if !self.armed {
            self.arm()?;
        }
        self.enter(timeout)?;
        self.complete(decide)
    }

    /// Counters so far. Datagrams of the last turn count as sent only after the next.
    #[must_use]
    pub const fn stats(&self) -> UringStats {
        self.stats
    }

    /// Sends the rest and returns the counters.
    #[must_use]
    pub fn close(mut self) -> UringStats {
        self.finish();
        self.stats
    }

    /// Starts the receive, which goes on until it finds no buffer.
    fn arm(&mut self) -> io::Result<()> {
        let header = &raw const *self.memory.header;
        let request = opcode::RecvMsgMulti::new(SOCKET, header, GROUP).build().user_data(RECEIVE);
        self.push(&request)?;
        self.armed = true;
        Ok(())
    }

    fn push(&mut self, request: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the requests of this module refer to `memory` alone, which stays in place until
        // `drop` has seen the last completion of each. The header never changes, and a buffer or
        // its name only after the completion of its send.
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
        // Over time, interrupted, or completions have to be taken first.
        let harmless = [libc::ETIME, libc::EINTR, libc::EBUSY, libc::EAGAIN];
        match waited {
            Err(error) if error.raw_os_error().is_none_or(|errno| !harmless.contains(&errno)) => {
                Err(error)
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Takes all completions.
    fn complete(&mut self, mut decide: impl FnMut(&[u8]) -> Option<SocketAddr>) -> io::Result<()> {
        loop {
            // One by one: handling a completion may add to the other queue.
            let Some(completion) = self.ring.completion().next() else { return Ok(()) };
            match completion.user_data() {
                RECEIVE => self.received(&completion, &mut decide)?,
                CANCEL => self.pending -= 1,
                buffer => {
                    self.pending -= 1;
                    let sent = completion.result() >= 0;
                    self.stats.sent += u64::from(sent);
                    self.stats.failed += u64::from(!sent);
                    self.memory.give_back(buffer as u16);
                }
            }
        }
    }

    fn received(
        &mut self,
        completion: &cqueue::Entry,
        decide: &mut impl FnMut(&[u8]) -> Option<SocketAddr>,
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

    /// The receive ended with an error: most of them only until the next turn.
    fn interrupted(&mut self, errno: c_int) -> io::Result<()> {
        match errno {
            libc::ENOBUFS => {
                self.stats.starved += 1;
                Ok(())
            }
            // The last is ICMP about an earlier datagram.
            libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::ECONNREFUSED => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Ends the receive and waits until no request is pending; whether that was reached.
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
            // Datagrams that still arrive are too late.
            if self.enter(LAST_WAIT).and_then(|()| self.complete(|_| None)).is_err() {
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
        // Without it the kernel closes the socket only when it cleans the ring up.
        let _ = submitter.unregister_files();
        if over && submitter.unregister_buf_ring(GROUP).is_ok() {
            // SAFETY: dropped here only, and not used below. No request is pending and the ring of
            // buffers is unregistered, so the kernel refers to it no more.
            unsafe { ManuallyDrop::drop(&mut self.memory) }
        }
        // Otherwise the memory is leaked: the kernel may still use it.
    }
}

impl std::fmt::Debug for UringUdp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringUdp").field("stats", &self.stats).finish_non_exhaustive()
    }
}

/// Fate of a datagram.
enum Forward {
    To(squeue::Entry),
    Drop,
    Truncated,
}

impl Memory {
    fn new(count: usize) -> Self {
        let unspecified = SockAddr::from(SocketAddr::from(([0, 0, 0, 0], 0)));
        // SAFETY: a `msghdr` is integers and pointers, for which zero is a value.
        let header = Box::new(unsafe { std::mem::zeroed() });
        Self {
            ring: Block::new(RING_BYTES, RING_BYTES),
            tail: 0,
            count,
            buffers: Block::new(count * BUFFER_BYTES, 64),
            names: vec![unspecified; count],
            header,
        }
    }

    /// Lets the kernel fill a buffer that it does not have: called once for each at first, and then
    /// once after each completion that returned it.
    fn give_back(&mut self, buffer: u16) {
        let address = self.buffers.at(usize::from(buffer) * BUFFER_BYTES) as u64;
        let entries = self.ring.at(0).cast::<BufRingEntry>();
        let place = usize::from(self.tail) & (self.count - 1);
        // SAFETY: `place` is below `count`, for which there is room. The kernel reads entries only
        // up to the tail, which this one is beyond: there are never more than `count` out.
        let entry = unsafe { &mut *entries.add(place) };
        entry.set_addr(address);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `entries` points at the first entry, which is initialised (zeroed at birth). Its
        // tail is two bytes aligned to two, which both sides access as a whole.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(entries).cast_mut()) };
        // A kernel that sees the tail sees the entry too.
        tail.store(self.tail, Ordering::Release);
    }

    /// Makes the request that sends a received datagram on.
    fn forward(
        &mut self,
        buffer: u16,
        len: usize,
        decide: &mut impl FnMut(&[u8]) -> Option<SocketAddr>,
    ) -> Forward {
        let index = usize::from(buffer);
        let first = self.buffers.at(index * BUFFER_BYTES);
        // SAFETY: the buffer is inside the block and initialised (zeroed at birth). By this
        // completion the kernel has handed it over, and writes to it no more until it is given
        // back, which is after the last use of `received`.
        let received = unsafe { std::slice::from_raw_parts(first, len.min(BUFFER_BYTES)) };
        let Ok(message) = RecvMsgOut::parse(received, &self.header) else {
            return Forward::Truncated;
        };
        if message.is_payload_truncated() {
            return Forward::Truncated;
        }
        let payload = message.payload_data();
        let Some(to) = decide(payload) else { return Forward::Drop };
        let name = &mut self.names[index];
        *name = to.into();
        let send = opcode::Send::new(SOCKET, payload.as_ptr(), payload.len() as u32)
            .dest_addr(name.as_ptr().cast())
            .dest_addr_len(name.len())
            .flags(libc::MSG_DONTWAIT)
            .build()
            .user_data(u64::from(buffer));
        Forward::To(send)
    }
}
