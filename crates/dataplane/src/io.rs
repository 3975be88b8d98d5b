//! The seam between a worker and the outside world: time, readiness, sockets, randomness and kernel
//! routes.
//!
//! [`Kernel`] is Linux; simulations put another implementation of [`Net`] in its place. A worker is
//! compiled for each of them, so the packet path has no indirect call.

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
    /// A UDP socket.
    type Udp: UdpIo;
    /// A TCP connection.
    type Stream: StreamIo;
    /// A listening TCP socket.
    type Acceptor: AcceptIo<Stream = Self::Stream>;
    /// Routes of the kernel path.
    type Routes: RouteTable;
    /// Descriptor of a socket, for another process.
    type Descriptor: fmt::Debug;

    /// The time, monotonic and of the wall.
    fn now(&self) -> Now;

    /// The monotonic time alone.
    fn instant(&self) -> Instant {
        self.now().instant
    }

    /// Processor time of this worker.
    fn cpu_time(&self) -> Duration;

    /// Unpredictable bits: seeds of hash tables with keys that clients choose.
    fn random(&self) -> u64;

    /// Waits until a watched source is ready, the worker is woken, or `timeout` is over (`None`:
    /// any time), and reports the ready sources by their tokens. Wake-ups are not reported.
    fn wait(&mut self, timeout: Option<Duration>, report: impl FnMut(Event));

    /// Waits until the worker is woken, or for a moment, whatever is ready.
    fn rest(&mut self);

    /// Reports `source` under `token` from now on.
    ///
    /// # Errors
    /// No memory left.
    fn watch(&self, source: Source<'_, Self>, token: u64, interest: Interest) -> io::Result<()>;

    /// Changes the interest in a source.
    ///
    /// # Errors
    /// It is not watched.
    fn rewatch(&self, source: Source<'_, Self>, token: u64, interest: Interest) -> io::Result<()>;

    /// Reports `source` no more; another worker may watch it then. Closed sockets are forgotten
    /// without it.
    fn unwatch(&self, source: Source<'_, Self>);

    /// Opens a UDP socket.
    ///
    /// # Errors
    /// Address in use or not available, no descriptors left.
    fn bind_udp(&self, at: SocketAddr, options: &UdpOptions) -> io::Result<Self::Udp>;

    /// Opens a listening TCP socket.
    ///
    /// # Errors
    /// Address in use or not available, no descriptors left.
    fn listen(&self, at: SocketAddr, options: &TcpOptions) -> io::Result<Self::Acceptor>;

    /// Duplicates the descriptor of a socket, for another process.
    ///
    /// # Errors
    /// No descriptors left.
    fn duplicate(&self, source: Source<'_, Self>) -> io::Result<Self::Descriptor>;

    /// Opens a UDP socket of another process. `is_set_up`: the socket has these options.
    ///
    /// # Errors
    /// The descriptor is none of a bound UDP socket.
    fn open_udp(
        &self,
        descriptor: Self::Descriptor,
        options: &UdpOptions,
        is_set_up: bool,
    ) -> io::Result<Self::Udp>;

    /// Opens a connection of another process.
    ///
    /// # Errors
    /// The descriptor is none of a TCP connection, or the connection is broken.
    fn open_stream(&self, descriptor: Self::Descriptor) -> io::Result<Self::Stream>;

    /// Opens a listening TCP socket of another process.
    ///
    /// # Errors
    /// The descriptor is none of a listening TCP socket.
    fn open_acceptor(
        &self,
        descriptor: Self::Descriptor,
        options: &TcpOptions,
    ) -> io::Result<Self::Acceptor>;

    /// Sends all datagrams of `tx`, which is empty afterwards. `on_fail` gets the tag of each one
    /// that was not sent.
    fn send(
        tx: &mut TxBatch,
        rx: &RxBatch,
        sockets: &impl UdpTable<Self>,
        stats: &mut SendStats,
        on_fail: impl FnMut(u32, SendError),
    );
}

/// A source of readiness.
#[derive(Debug)]
pub enum Source<'a, N: Net> {
    /// A UDP socket.
    Udp(&'a N::Udp),
    /// A TCP connection.
    Stream(&'a N::Stream),
    /// A listening TCP socket.
    Acceptor(&'a N::Acceptor),
    /// The ring of the kernel path.
    Ring(&'a <N::Routes as RouteTable>::Ring),
}

/// UDP sockets by the numbers that datagrams are sent by.
pub trait UdpTable<N: Net> {
    /// The socket, unless it is closed.
    fn udp(&self, socket: SendSocket) -> Option<&N::Udp>;
}

/// A UDP socket.
pub trait UdpIo: fmt::Debug {
    /// The local address, with the port that was given for port 0.
    fn local_addr(&self) -> SocketAddr;

    /// Receives at most `most` waiting messages behind those of `rx`, and returns their indices.
    ///
    /// # Errors
    /// A fault of the program or a lack of memory.
    fn receive(&self, rx: &mut RxBatch, most: usize) -> io::Result<Range<usize>>;

    /// Reports and removes the errors that the network returned for sent datagrams.
    ///
    /// # Errors
    /// A fault of the program or a lack of memory.
    fn take_errors(&self, report: impl FnMut(SocketError)) -> io::Result<()>;

    /// Allows fragmentation of later datagrams, until one forbids it: another process is to use the
    /// socket.
    fn allow_fragments(&self);

    /// Turns receive coalescing (UDP GRO) on or off.
    fn coalesce(&self, on: bool);

    /// Turns receive coalescing off unless a coalesced message may wait. Returns true if it is off.
    fn stop_coalescing(&self) -> bool;
}

/// A TCP connection. Nothing waits.
pub trait StreamIo: fmt::Debug {
    /// The local address.
    ///
    /// # Errors
    /// The connection is broken.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The address of the other end.
    ///
    /// # Errors
    /// The connection is broken.
    fn remote_addr(&self) -> io::Result<SocketAddr>;

    /// Reads waiting bytes.
    ///
    /// # Errors
    /// The connection is broken.
    fn read(&self, room: &mut [u8]) -> io::Result<ReadOutcome>;

    /// Writes two pieces, one behind the other, and returns the number of bytes that were taken.
    ///
    /// # Errors
    /// The connection is broken.
    fn write(&self, pieces: [&[u8]; 2]) -> io::Result<usize>;

    /// The pending error of the connection.
    fn take_error(&self) -> Option<io::Error>;

    /// Ends this direction of the connection (FIN).
    fn end_sending(&self);

    /// Closes the connection with a reset (RST).
    fn reset(self);
}

/// A listening TCP socket.
pub trait AcceptIo: fmt::Debug {
    /// Its connections.
    type Stream;

    /// The local address, with the port that was given for port 0.
    fn local_addr(&self) -> SocketAddr;

    /// Accepts a waiting connection and returns it with the address of the other end.
    ///
    /// # Errors
    /// No descriptors or memory left.
    fn accept(&self) -> io::Result<Option<(Self::Stream, SocketAddr)>>;

    /// Begins a connection from the local address to `to`; it is established when it is writable.
    ///
    /// # Errors
    /// No descriptors left, no route, or the two addresses are connected already.
    fn connect(&self, to: SocketAddr, options: &TcpOptions) -> io::Result<Self::Stream>;
}

/// Ring by which the kernel path delivers datagrams of peers.
pub trait RingIo: fmt::Debug {
    /// Bytes of one datagram.
    type Entry<'a>: Deref<Target = [u8]>
    where
        Self: 'a;

    /// The next datagram; `None`: there is none now.
    fn next(&mut self) -> Option<RingDatagram<Self::Entry<'_>>>;
}

/// A worker's routes in the kernel; [`xdp_relay::Routes`] documents each method.
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

/// Writes to a connection through [`io::Write`]: `WouldBlock` where it takes nothing now.
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
