//! The seam of `dataplane`, simulated: one for each worker of a host.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use control::Wake;
use dataplane::io::{AcceptIo, Net, Source, StreamIo, UdpTable};
use dataplane::limits::SOCKETS_PER_TURN;
use linux_net::{
    Event, Interest, ReadOutcome, RxBatch, SendError, SendStats, TcpOptions, TxBatch, UdpOptions,
};
use netsim::{Body, Packet};
use turn_types::Now;

use crate::host::{SimHost, State};
use crate::routes::SimRoutes;
use crate::socket::SimUdp;
use crate::tcp::{Backlog, TcpEnd};
use crate::watch::{WatchList, Watched};

/// Time, readiness and sockets of one simulated worker.
#[derive(Debug)]
pub struct SimNet {
    host: SimHost,
    watched: RefCell<WatchList>,
    pub(crate) wait: Rc<LastWait>,
    woken: Arc<SimWake>,
}

/// The last wait of a worker.
#[derive(Debug, Default)]
pub(crate) struct LastWait {
    /// Longest time to wait; `None`: any.
    pub(crate) timeout: Cell<Option<Duration>>,
    /// Number of reported events and wake-ups.
    pub(crate) events: Cell<usize>,
}

impl LastWait {
    /// Returns true if the worker had nothing to do, and would have waited.
    pub(crate) fn is_idle(&self) -> bool {
        self.events.get() == 0 && self.timeout.get() != Some(Duration::ZERO)
    }
}

/// Wake-up of a simulated worker.
#[derive(Debug, Default)]
pub(crate) struct SimWake(AtomicBool);

impl Wake for SimWake {
    fn wake(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SimNet {
    /// The net of one worker of `host`, and its wake-up.
    pub(crate) fn new(host: SimHost) -> (Self, Arc<SimWake>) {
        let woken = Arc::new(SimWake::default());
        let (watched, wait) = (RefCell::default(), Rc::default());
        (Self { host, watched, wait, woken: Arc::clone(&woken) }, woken)
    }
}

/// A listening TCP socket.
#[derive(Debug)]
pub struct SimAcceptor {
    local: SocketAddr,
    backlog: Rc<RefCell<Backlog>>,
    host: SimHost,
}

impl SimAcceptor {
    /// Listens, beside others at the same address if `shared`.
    ///
    /// # Errors
    /// The address is in use.
    pub(crate) fn listen(host: &SimHost, at: SocketAddr, shared: bool) -> io::Result<Self> {
        let mut state = host.state();
        let State { rng, faults, tcp, backlogs, .. } = &mut *state;
        if !shared && rng.happens(faults.exhausted) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if !shared && rng.happens(faults.port_taken) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let (local, backlog) = tcp.listen(at, shared)?;
        backlogs.push(Rc::downgrade(&backlog));
        Ok(Self { local, backlog, host: host.clone() })
    }

    /// Another descriptor of the same socket.
    pub(crate) fn twin(&self) -> Self {
        let Self { local, backlog, host } = self;
        Self { local: *local, backlog: Rc::clone(backlog), host: host.clone() }
    }
}

/// Descriptor of a simulated socket.
#[derive(Debug)]
pub enum SimDescriptor {
    /// UDP socket.
    Udp(SimUdp),
    /// TCP connection.
    Stream(TcpEnd),
    /// Listening TCP socket.
    Acceptor(SimAcceptor),
}

impl SimDescriptor {
    /// Another descriptor of the same socket.
    pub(crate) fn twin(&self) -> Self {
        match self {
            Self::Udp(socket) => Self::Udp(socket.twin()),
            Self::Stream(end) => Self::Stream(end.other_descriptor()),
            Self::Acceptor(acceptor) => Self::Acceptor(acceptor.twin()),
        }
    }
}

fn another_kind() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl Net for SimNet {
    type Udp = SimUdp;
    type Stream = TcpEnd;
    type Acceptor = SimAcceptor;
    type Routes = SimRoutes;
    type Descriptor = SimDescriptor;

    fn now(&self) -> Now {
        self.host.state().now
    }

    fn cpu_time(&self) -> Duration {
        self.host.cpu_time()
    }

    fn random(&self) -> u64 {
        self.host.state().rng.next_u64()
    }

    fn wait(&mut self, timeout: Option<Duration>, report: impl FnMut(Event)) {
        let now = self.host.state().now.instant;
        let events = self.watched.borrow_mut().ready(now, SOCKETS_PER_TURN);
        let woken = self.woken.0.swap(false, Ordering::Relaxed);
        self.wait.timeout.set(timeout);
        self.wait.events.set(events.len() + usize::from(woken));
        events.into_iter().for_each(report);
    }

    fn rest(&mut self) {
        let woken = self.woken.0.swap(false, Ordering::Relaxed);
        self.wait.timeout.set(None);
        self.wait.events.set(usize::from(woken));
    }

    fn watch(&self, source: Source<'_, Self>, token: u64, interest: Interest) -> io::Result<()> {
        if !self.host.can_watch() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.rewatch(source, token, interest)
    }

    fn rewatch(&self, source: Source<'_, Self>, token: u64, interest: Interest) -> io::Result<()> {
        let socket = match source {
            Source::Udp(socket) => Watched::Udp(Rc::downgrade(&socket.state)),
            Source::Stream(end) => Watched::Stream(end.watched()),
            Source::Acceptor(acceptor) => Watched::Acceptor(Rc::downgrade(&acceptor.backlog)),
            Source::Ring(ring) => Watched::Ring(Rc::downgrade(&ring.0)),
        };
        self.watched.borrow_mut().set(token, socket, interest);
        Ok(())
    }

    fn unwatch(&self, source: Source<'_, Self>) {
        self.watched.borrow_mut().remove(|watched| match (&source, watched) {
            (Source::Udp(socket), Watched::Udp(other)) => {
                std::ptr::eq(Rc::as_ptr(&socket.state), other.as_ptr())
            }
            (Source::Stream(end), Watched::Stream(other)) => end.watched().ptr_eq(other),
            (Source::Acceptor(acceptor), Watched::Acceptor(other)) => {
                std::ptr::eq(Rc::as_ptr(&acceptor.backlog), other.as_ptr())
            }
            _ => false,
        });
    }

    fn bind_udp(&self, at: SocketAddr, options: &UdpOptions) -> io::Result<SimUdp> {
        SimUdp::bind(&self.host, at, options.reuse_port, options.gro)
    }

    fn listen(&self, at: SocketAddr, options: &TcpOptions) -> io::Result<SimAcceptor> {
        SimAcceptor::listen(&self.host, at, options.reuse_port)
    }

    fn duplicate(&self, source: Source<'_, Self>) -> io::Result<SimDescriptor> {
        let is_exhausted = !matches!(source, Source::Stream(_)) && self.host.is_exhausted();
        match source {
            _ if is_exhausted => Err(io::ErrorKind::OutOfMemory.into()),
            Source::Udp(socket) => Ok(SimDescriptor::Udp(socket.twin())),
            Source::Stream(end) => Ok(SimDescriptor::Stream(end.other_descriptor())),
            Source::Acceptor(acceptor) => Ok(SimDescriptor::Acceptor(acceptor.twin())),
            Source::Ring(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn open_udp(
        &self,
        descriptor: SimDescriptor,
        _options: &UdpOptions,
        _is_set_up: bool,
    ) -> io::Result<SimUdp> {
        let SimDescriptor::Udp(socket) = descriptor else { return Err(another_kind()) };
        Ok(socket)
    }

    fn open_stream(&self, descriptor: SimDescriptor) -> io::Result<TcpEnd> {
        let SimDescriptor::Stream(end) = descriptor else { return Err(another_kind()) };
        Ok(end)
    }

    fn open_acceptor(
        &self,
        descriptor: SimDescriptor,
        _options: &TcpOptions,
    ) -> io::Result<SimAcceptor> {
        let SimDescriptor::Acceptor(acceptor) = descriptor else { return Err(another_kind()) };
        Ok(acceptor)
    }

    fn send(
        tx: &mut TxBatch,
        rx: &RxBatch,
        sockets: &impl UdpTable<Self>,
        _stats: &mut SendStats,
        mut on_fail: impl FnMut(u32, SendError),
    ) {
        tx.drain(rx, |flow, bytes, tag| {
            let sent = sockets.udp(flow.socket).ok_or(SendError::Closed).and_then(|socket| {
                let mut src = socket.state.borrow().local;
                if let Some(from) = flow.from {
                    src.set_ip(from);
                }
                let body = Body::Udp(bytes.to_vec());
                let dont_fragment = flow.meta.dont_fragment;
                socket.host.send(Packet { src, dst: flow.to, body, dont_fragment })
            });
            if let Err(error) = sent {
                on_fail(tag, error);
            }
        });
    }
}

impl StreamIo for TcpEnd {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok((**self).local_addr())
    }

    fn remote_addr(&self) -> io::Result<SocketAddr> {
        Ok((**self).remote_addr())
    }

    fn read(&self, room: &mut [u8]) -> io::Result<ReadOutcome> {
        (**self).read(room)
    }

    fn write(&self, pieces: [&[u8]; 2]) -> io::Result<usize> {
        let mut written = 0;
        for piece in pieces {
            let some = (**self).write(piece)?;
            written += some;
            if some < piece.len() {
                break;
            }
        }
        Ok(written)
    }

    fn take_error(&self) -> Option<io::Error> {
        (**self).take_error()
    }

    fn end_sending(&self) {
        (**self).end_sending();
    }

    fn reset(self) {
        Self::reset(self);
    }
}

impl AcceptIo for SimAcceptor {
    type Stream = TcpEnd;

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn accept(&self) -> io::Result<Option<(TcpEnd, SocketAddr)>> {
        let now = self.host.state().now.instant;
        let mut backlog = self.backlog.borrow_mut();
        let has_arrived = backlog.front().is_some_and(|(at, _)| *at <= now);
        let accepted = if has_arrived { backlog.pop_front() } else { None };
        Ok(accepted.map(|(_, end)| {
            let from = (*end).remote_addr();
            (end, from)
        }))
    }

    fn connect(&self, to: SocketAddr, _: &TcpOptions) -> io::Result<TcpEnd> {
        Ok(self.host.state().tcp.connect(self.local, to))
    }
}
