//! Interface between a worker and the environment: time, readiness, sockets, randomness and kernel
//! routes.
//!
//! [`Kernel`] is the implementation for Linux, and simulations provide another implementation of
//! [`Net`]. A worker is compiled for each implementation, so the packet path has no indirect call.

mod kernel;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, Range};
use std::time::Duration;

use fair_share::Claimant;
use linux_net::{
    Event, Interest, ReadOutcome, RxBatch, SendError, SendSocket, SendStats, SocketError,
    TcpOptions, TxBatch, UdpOptions,
};
use turn_types::{AllocationId, Instant, Now};
use xdp_relay::{
    AllocationCounters, Flow, FlowCookie, FlowCounters, FlowId, KernelPathError, RingDatagram,
};

pub use kernel::Kernel;

/// Time, readiness and sockets of one worker.
pub trait Net: fmt::Debug + Sized + 'static {
    /// UDP socket.
    type Udp: UdpIo;
    /// TCP connection.
    type Stream: StreamIo;
    /// Listening TCP socket.
    type Acceptor: AcceptIo<Stream = Self::Stream>;
    /// Routes of the kernel path.
    type Routes: RouteTable;
    /// Descriptor of a socket, for another process.
    type Descriptor: fmt::Debug;

    /// Returns the monotonic time and the wall clock time.
    fn now(&self) -> Now;

    /// Returns only the monotonic time.
    fn instant(&self) -> Instant {
        self.now().instant
    }

    /// Returns the processor time of this worker.
    fn cpu_time(&self) -> Duration;

    /// Returns unpredictable bits, for seeds of hash tables with keys that clients choose.
    fn random(&self) -> u64;

    /// Waits until a watched source is ready, the worker is woken, or `timeout` expires. With
    /// `None` the wait has no timeout. Reports the ready sources by token. Wake-ups are not
    /// reported.
    fn wait(&mut self, timeout: Option<Duration>, report: impl FnMut(Event));

    /// Waits until the worker is woken, or for a short time. Ready sources are ignored.
    fn rest(&mut self);

    /// Starts reporting `source` under `token`.
    ///
    /// # Errors
    /// No memory is left.
    fn watch(&self, source: Source<'_, Self>, token: u64, interest: Interest) -> io::Result<()>;

    /// Changes the interest in a source.
    ///
    /// # Errors
    /// The source is not watched.
    fn rewatch(&self, source: Source<'_, Self>, token: u64, interest: Interest) -> io::Result<()>;

    /// Stops reporting `source`. Another worker may watch the source afterwards. Closed sockets
    /// need no call.
    fn unwatch(&self, source: Source<'_, Self>);

    /// Opens a UDP socket.
    ///
    /// # Errors
    /// The address is in use or not available, or no descriptors are left.
    fn bind_udp(&self, at: SocketAddr, options: &UdpOptions) -> io::Result<Self::Udp>;

    /// Opens a listening TCP socket.
    ///
    /// # Errors
    /// The address is in use or not available, or no descriptors are left.
    fn listen(&self, at: SocketAddr, options: &TcpOptions) -> io::Result<Self::Acceptor>;

    /// Duplicates the descriptor of a socket, for another process.
    ///
    /// # Errors
    /// No descriptors are left.
    fn duplicate(&self, source: Source<'_, Self>) -> io::Result<Self::Descriptor>;

    /// Opens a UDP socket of another process. If `is_set_up` is true, the socket already has these
    /// options.
    ///
    /// # Errors
    /// The descriptor does not belong to a bound UDP socket.
    fn open_udp(
        &self,
        descriptor: Self::Descriptor,
        options: &UdpOptions,
        is_set_up: bool,
    ) -> io::Result<Self::Udp>;

    /// Opens a connection of another process.
    ///
    /// # Errors
    /// The descriptor does not belong to a TCP connection, or the connection is broken.
    fn open_stream(&self, descriptor: Self::Descriptor) -> io::Result<Self::Stream>;

    /// Opens a listening TCP socket of another process.
    ///
    /// # Errors
    /// The descriptor does not belong to a listening TCP socket.
    fn open_acceptor(
        &self,
        descriptor: Self::Descriptor,
        options: &TcpOptions,
    ) -> io::Result<Self::Acceptor>;

    /// Sends all datagrams of `tx`, which is empty afterwards. `on_fail` receives the tag of each
    /// datagram that was not sent.
    fn send(
        tx: &mut TxBatch,
        rx: &RxBatch,
        sockets: &impl UdpTable<Self>,
        stats: &mut SendStats,
        on_fail: impl FnMut(u32, SendError),
    );
}

/// Source of readiness.
#[derive(Debug)]
pub enum Source<'a, N: Net> {
    /// UDP socket.
    Udp(&'a N::Udp),
    /// TCP connection.
    Stream(&'a N::Stream),
    /// Listening TCP socket.
    Acceptor(&'a N::Acceptor),
    /// Ring of the kernel path.
    Ring(&'a <N::Routes as RouteTable>::Ring),
}

/// UDP sockets by the numbers that senders use.
pub trait UdpTable<N: Net> {
    /// Returns the socket, or `None` if the socket is closed.
    fn udp(&self, socket: SendSocket) -> Option<&N::Udp>;
}

/// UDP socket.
pub trait UdpIo: fmt::Debug {
    /// Returns the local address, with the port that was assigned for port 0.
    fn local_addr(&self) -> SocketAddr;

    /// Receives at most `most` waiting messages, appends the messages to `rx`, and returns their
    /// indices.
    ///
    /// # Errors
    /// The cause is a bug in this program or a lack of memory.
    fn receive(&self, rx: &mut RxBatch, most: usize) -> io::Result<Range<usize>>;

    /// Reports and removes the errors that the network has returned for sent datagrams.
    ///
    /// # Errors
    /// The cause is a bug in this program or a lack of memory.
    fn take_errors(&self, report: impl FnMut(SocketError)) -> io::Result<()>;

    /// Allows fragmentation of later datagrams, until a datagram forbids fragmentation. Called
    /// before another process uses the socket.
    fn allow_fragments(&self);

    /// Enables or disables receive coalescing (UDP GRO).
    fn coalesce(&self, on: bool);

    /// Disables receive coalescing unless messages may wait. Returns true if coalescing is
    /// disabled.
    fn stop_coalescing(&self) -> bool;
}

/// TCP connection. All operations are nonblocking.
pub trait StreamIo: fmt::Debug {
    /// Returns the local address.
    ///
    /// # Errors
    /// The connection is broken.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Returns the remote address.
    ///
    /// # Errors
    /// The connection is broken.
    fn remote_addr(&self) -> io::Result<SocketAddr>;

    /// Reads waiting bytes.
    ///
    /// # Errors
    /// The connection is broken.
    fn read(&self, room: &mut [u8]) -> io::Result<ReadOutcome>;

    /// Writes two consecutive pieces, and returns the number of accepted bytes.
    ///
    /// # Errors
    /// The connection is broken.
    fn write(&self, pieces: [&[u8]; 2]) -> io::Result<usize>;

    /// Returns and clears the pending error of the connection.
    fn take_error(&self) -> Option<io::Error>;

    /// Closes the sending direction of the connection (FIN).
    fn end_sending(&self);

    /// Closes the connection with a reset (RST).
    fn reset(self);
}

/// Listening TCP socket.
pub trait AcceptIo: fmt::Debug {
    /// Accepted connection.
    type Stream;

    /// Returns the local address, with the port that was assigned for port 0.
    fn local_addr(&self) -> SocketAddr;

    /// Accepts a waiting connection, and returns the connection with the remote address.
    ///
    /// # Errors
    /// No descriptors or memory are left.
    fn accept(&self) -> io::Result<Option<(Self::Stream, SocketAddr)>>;

    /// Starts a connection from the local address to `to`. The connection is established when it
    /// becomes writable.
    ///
    /// # Errors
    /// No descriptors are left, no route exists, or the two addresses are connected already.
    fn connect(&self, to: SocketAddr, options: &TcpOptions) -> io::Result<Self::Stream>;
}

/// Ring through which the kernel path delivers datagrams of peers.
pub trait RingIo: fmt::Debug {
    /// Bytes of one datagram.
    type Entry<'a>: Deref<Target = [u8]>
    where
        Self: 'a;

    /// Returns the next datagram, or `None` if no datagram waits.
    fn next(&mut self) -> Option<RingDatagram<Self::Entry<'_>>>;
}

/// Kernel routes of a worker. [`xdp_relay::Routes`] documents each method.
#[expect(missing_docs, reason = "documented at xdp_relay::Routes")]
pub trait RouteTable: fmt::Debug {
    type Ring: RingIo;
    fn ring(&mut self) -> Option<&mut Self::Ring>;
    fn claim(
        &mut self,
        now: Instant,
        id: FlowId,
        claimant: &Claimant<'_>,
    ) -> Result<(), KernelPathError>;
    fn set(&mut self, now: Instant, id: FlowId, flow: &Flow) -> Result<(), KernelPathError>;
    fn remove(&mut self, id: FlowId) -> FlowCounters;
    fn deliver_to_ring(
        &mut self,
        id: FlowId,
        flow: &Flow,
    ) -> Result<Option<FlowCookie>, KernelPathError>;
    fn withdraw_from_ring(&mut self, id: FlowId) -> Option<FlowCookie>;
    fn flow_cookie(&self, id: FlowId) -> Option<FlowCookie>;
    fn prove(&self, id: FlowId, datagrams: u32);
    fn renew(&self, now: Instant);
    fn suspend(&self);
    fn sweep(
        &mut self,
        now: Instant,
        cells_max: usize,
        report: impl FnMut(FlowId, FlowCounters),
    ) -> bool;
    fn pop_silent(&mut self) -> Option<FlowId>;
    fn sweep_allocation(&mut self, id: AllocationId, report: impl FnMut(FlowId, FlowCounters));
    fn of_allocation(&self, id: AllocationId) -> Option<AllocationCounters>;
    fn has_allocation(&self, id: AllocationId) -> bool;
    fn is_by_tc(&self) -> bool;
    fn is_idle(&self) -> bool;
    fn flows(&self) -> usize;
}

/// Adapter that writes to a connection through [`io::Write`]. Returns `WouldBlock` if the
/// connection accepts no bytes now.
pub(crate) struct Writer<'a, S>(pub(crate) &'a S);

impl<S: StreamIo> io::Write for Writer<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write([bytes, &[]])? {
            0 if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            written => Ok(written),
        }
    }

    fn write_vectored(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let piece = |index: usize| pieces.get(index).map_or(&[][..], |piece| piece);
        match self.0.write([piece(0), piece(1)])? {
            0 if pieces.iter().any(|piece| !piece.is_empty()) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            written => Ok(written),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
