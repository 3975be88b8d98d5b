//! Implementation of the environment for Linux: epoll, sockets, clocks and routes of the kernel.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use fair_share::Claimant;
use linux_net::{
    Clock, Epoll, Event, Events, Interest, ReadOutcome, RxBatch, SendError, SendSocket, SendStats,
    SocketError, SocketTable, TcpListener, TcpOptions, TcpStream, TxBatch, UdpOptions, UdpSocket,
    WakeReceiver, random_bytes, thread_cpu_time,
};
use turn_types::{AllocationId, Instant, Now};
use xdp_relay::{
    AllocationCounters, Flow, FlowCookie, FlowCounters, FlowId, KernelPathError, Ring,
    RingDatagram, RingEntry, Routes,
};

use super::{AcceptIo, Net, RingIo, RouteTable, Source, StreamIo, UdpIo, UdpTable};
use crate::limits::{REST_MAX, SOCKETS_PER_TURN};

/// Token of the wake-up. No other token has this value.
const WAKE: u64 = u64::MAX;

/// epoll set of one worker, with the worker's wake-up.
#[derive(Debug)]
pub struct Kernel {
    epoll: Epoll,
    /// epoll set with only the wake-up.
    rest: Epoll,
    events: Events,
    wake: WakeReceiver,
}

impl Kernel {
    /// Creates an epoll set that watches only the wake-up.
    ///
    /// # Errors
    /// No descriptors or no memory are left for epoll.
    pub fn new(wake: WakeReceiver) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let rest = Epoll::new()?;
        epoll.add(&wake, WAKE, Interest::Read)?;
        rest.add(&wake, WAKE, Interest::Read)?;
        Ok(Self { epoll, rest, events: Events::new(SOCKETS_PER_TURN), wake })
    }
}

/// Socket table of a worker, in the form that `linux-net` requires.
struct Table<'a, T>(&'a T);

impl<T: UdpTable<Kernel>> SocketTable for Table<'_, T> {
    fn socket(&self, socket: SendSocket) -> Option<&UdpSocket> {
        self.0.udp(socket)
    }
}

impl Net for Kernel {
    type Udp = UdpSocket;
    type Stream = TcpStream;
    type Acceptor = TcpListener;
    type Routes = Routes;
    type Descriptor = OwnedFd;

    fn now(&self) -> Now {
        Clock::now()
    }

    fn instant(&self) -> Instant {
        Clock::instant()
    }

    fn cpu_time(&self) -> Duration {
        thread_cpu_time()
    }

    fn random(&self) -> u64 {
        u64::from_ne_bytes(random_bytes())
    }

    fn wait(&mut self, timeout: Option<Duration>, mut report: impl FnMut(Event)) {
        let Self { epoll, events, wake, .. } = self;
        // The call fails only for a descriptor that is not an epoll set, or for an invalid list.
        epoll.wait(events, timeout).expect("a set and a list that are ours");
        for event in events.iter() {
            if event.token == WAKE {
                wake.drain();
            } else {
                report(event);
            }
        }
    }

    fn rest(&mut self) {
        let Self { rest, events, wake, .. } = self;
        rest.wait(events, Some(REST_MAX)).expect("a set and a list that are ours");
        if events.iter().next().is_some() {
            wake.drain();
        }
    }

    fn watch(&self, source: Source<'_, Self>, token: u64, interest: Interest) -> io::Result<()> {
        match source {
            Source::Udp(socket) => self.epoll.add(socket, token, interest),
            Source::Stream(stream) => self.epoll.add(stream, token, interest),
            Source::Acceptor(acceptor) => self.epoll.add(acceptor, token, interest),
            Source::Ring(ring) => self.epoll.add(ring, token, interest),
        }
    }

    fn rewatch(&self, source: Source<'_, Self>, token: u64, interest: Interest) -> io::Result<()> {
        match source {
            Source::Udp(socket) => self.epoll.modify(socket, token, interest),
            Source::Stream(stream) => self.epoll.modify(stream, token, interest),
            Source::Acceptor(acceptor) => self.epoll.modify(acceptor, token, interest),
            Source::Ring(ring) => self.epoll.modify(ring, token, interest),
        }
    }

    fn unwatch(&self, source: Source<'_, Self>) {
        // The call fails only for descriptors that are not in the set.
        drop(match source {
            Source::Udp(socket) => self.epoll.delete(socket),
            Source::Stream(stream) => self.epoll.delete(stream),
            Source::Acceptor(acceptor) => self.epoll.delete(acceptor),
            Source::Ring(ring) => self.epoll.delete(ring),
        });
    }

    fn bind_udp(&self, at: SocketAddr, options: &UdpOptions) -> io::Result<UdpSocket> {
        UdpSocket::bind_unasked(at, options)
    }

    fn listen(&self, at: SocketAddr, options: &TcpOptions) -> io::Result<TcpListener> {
        TcpListener::bind(at, options)
    }

    fn duplicate(&self, source: Source<'_, Self>) -> io::Result<OwnedFd> {
        match source {
            Source::Udp(socket) => socket.duplicate(),
            Source::Stream(stream) => stream.as_fd().try_clone_to_owned(),
            Source::Acceptor(acceptor) => acceptor.as_fd().try_clone_to_owned(),
            Source::Ring(ring) => ring.as_fd().try_clone_to_owned(),
        }
    }

    fn open_udp(
        &self,
        fd: OwnedFd,
        options: &UdpOptions,
        is_set_up: bool,
    ) -> io::Result<UdpSocket> {
        if is_set_up { UdpSocket::adopt(fd, options) } else { UdpSocket::from_fd(fd, options) }
    }

    fn open_stream(&self, fd: OwnedFd) -> io::Result<TcpStream> {
        TcpStream::from_fd(fd)
    }

    fn open_acceptor(&self, fd: OwnedFd, options: &TcpOptions) -> io::Result<TcpListener> {
        TcpListener::from_fd(fd, options)
    }

    fn send(
        tx: &mut TxBatch,
        rx: &RxBatch,
        sockets: &impl UdpTable<Self>,
        stats: &mut SendStats,
        on_fail: impl FnMut(u32, SendError),
    ) {
        tx.flush(rx, &Table(sockets), stats, on_fail);
    }
}

impl UdpIo for UdpSocket {
    fn local_addr(&self) -> SocketAddr {
        self.local_addr()
    }

    fn receive(&self, rx: &mut RxBatch, most: usize) -> io::Result<Range<usize>> {
        rx.recv_more(self, most)
    }

    fn take_errors(&self, report: impl FnMut(SocketError)) -> io::Result<()> {
        self.recv_errors(report).map(drop)
    }

    fn allow_fragments(&self) {
        self.allow_fragments();
    }

    fn coalesce(&self, on: bool) {
        self.merge(on);
    }

    fn stop_coalescing(&self) -> bool {
        self.cease_merging()
    }
}

impl StreamIo for TcpStream {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn remote_addr(&self) -> io::Result<SocketAddr> {
        self.remote_addr()
    }

    fn read(&self, room: &mut [u8]) -> io::Result<ReadOutcome> {
        self.read(room)
    }

    fn write(&self, pieces: [&[u8]; 2]) -> io::Result<usize> {
        self.write(pieces)
    }

    fn take_error(&self) -> Option<io::Error> {
        self.take_error()
    }

    fn end_sending(&self) {
        self.end_sending();
    }

    fn reset(self) {
        self.reset();
    }
}

impl AcceptIo for TcpListener {
    type Stream = TcpStream;

    fn local_addr(&self) -> SocketAddr {
        self.local_addr()
    }

    fn accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        self.accept()
    }

    fn connect(&self, to: SocketAddr, options: &TcpOptions) -> io::Result<TcpStream> {
        self.connect(to, options)
    }
}

impl RingIo for Ring {
    type Entry<'a> = RingEntry<'a>;

    fn next(&mut self) -> Option<RingDatagram<RingEntry<'_>>> {
        self.next()
    }
}

impl RouteTable for Routes {
    type Ring = Ring;

    fn ring(&mut self) -> Option<&mut Ring> {
        self.ring()
    }

    fn claim(
        &mut self,
        now: Instant,
        id: FlowId,
        claimant: &Claimant<'_>,
    ) -> Result<(), KernelPathError> {
        self.claim(now, id, claimant)
    }

    fn set(&mut self, now: Instant, id: FlowId, flow: &Flow) -> Result<(), KernelPathError> {
        self.set(now, id, flow)
    }

    fn remove(&mut self, id: FlowId) -> FlowCounters {
        self.remove(id)
    }

    fn deliver_to_ring(
        &mut self,
        id: FlowId,
        flow: &Flow,
    ) -> Result<Option<FlowCookie>, KernelPathError> {
        self.deliver_to_ring(id, flow)
    }

    fn withdraw_from_ring(&mut self, id: FlowId) -> Option<FlowCookie> {
        self.withdraw_from_ring(id)
    }

    fn flow_cookie(&self, id: FlowId) -> Option<FlowCookie> {
        self.flow_cookie(id)
    }

    fn prove(&self, id: FlowId, datagrams: u32) {
        self.prove(id, datagrams);
    }

    fn renew(&self, now: Instant) {
        self.renew(now);
    }

    fn suspend(&self) {
        self.suspend();
    }

    fn sweep(
        &mut self,
        now: Instant,
        cells_max: usize,
        report: impl FnMut(FlowId, FlowCounters),
    ) -> bool {
        self.sweep(now, cells_max, report)
    }

    fn pop_silent(&mut self) -> Option<FlowId> {
        self.pop_silent()
    }

    fn sweep_allocation(&mut self, id: AllocationId, report: impl FnMut(FlowId, FlowCounters)) {
        self.sweep_allocation(id, report);
    }

    fn of_allocation(&self, id: AllocationId) -> Option<AllocationCounters> {
        self.of_allocation(id)
    }

    fn has_allocation(&self, id: AllocationId) -> bool {
        self.has_allocation(id)
    }

    fn is_by_tc(&self) -> bool {
        self.is_by_tc()
    }

    fn is_idle(&self) -> bool {
        self.is_idle()
    }

    fn flows(&self) -> usize {
        self.len()
    }
}
