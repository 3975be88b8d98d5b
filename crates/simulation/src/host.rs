//! The kernel of a simulated host: clock, sockets and faults, shared by its workers.

use std::cell::{RefCell, RefMut};
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

use linux_net::{IcmpReport, SendError, SocketError};
use netsim::{Body, Chance, Icmp, Packet, Rng};
use turn_types::{Instant, IpFamily, Now, UnixSeconds};

use crate::routes::RingState;
use crate::tcp::{Backlog, TcpNet};
use crate::udp::UdpState;

/// Processor time that passes between two looks at its clock, below this.
const CPU_STEP: Duration = Duration::from_micros(400);

/// Failures of system calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A relay port belongs to another program.
    pub port_taken: Chance,
    /// No socket can be opened.
    pub exhausted: Chance,
    /// A datagram is not sent: a full buffer, a small link, a firewall.
    pub send: Chance,
    /// A received datagram does not fit its buffer.
    pub truncated: Chance,
    /// No memory is left for another watched socket.
    pub watch: Chance,
    /// A kernel route is refused.
    pub route_refused: Chance,
}

/// A simulated host.
#[derive(Clone, Debug)]
pub struct SimHost(Rc<RefCell<State>>);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) now: Now,
    cpu: Duration,
    pub(crate) rng: Rng,
    pub(crate) faults: Faults,
    sockets: Vec<Weak<RefCell<UdpState>>>,
    /// Rings of the kernel path, one for each worker.
    rings: Vec<Weak<RefCell<RingState>>>,
    /// Connections that wait at each listening TCP socket.
    pub(crate) backlogs: Vec<Weak<RefCell<Backlog>>>,
    sent: Vec<Packet>,
    pub(crate) tcp: TcpNet,
}

impl SimHost {
    /// A host without sockets and faults.
    #[must_use]
    pub fn new(rng: Rng, tcp: TcpNet) -> Self {
        let faults = Faults::default();
        let now = Now { instant: Instant::ZERO, unix: UnixSeconds(0) };
        let (cpu, sockets, rings) = (Duration::ZERO, Vec::new(), Vec::new());
        let (backlogs, sent) = (Vec::new(), Vec::new());
        let state = State { now, cpu, rng, faults, sockets, rings, backlogs, sent, tcp };
        Self(Rc::new(RefCell::new(state)))
    }

    pub(crate) fn state(&self) -> RefMut<'_, State> {
        self.0.borrow_mut()
    }

    /// Does something while these faults happen, in the place of others.
    pub(crate) fn with_faults<T>(&self, faults: Faults, act: impl FnOnce() -> T) -> T {
        let before = std::mem::replace(&mut self.state().faults, faults);
        let done = act();
        self.state().faults = before;
        done
    }

    /// Sets both clocks.
    pub(crate) fn advance(&self, now: Now) {
        let mut state = self.state();
        state.now = now;
        state.tcp.advance(now.instant);
    }

    pub(crate) fn cpu_time(&self) -> Duration {
        let mut state = self.state();
        let step = state.rng.duration_below(CPU_STEP);
        state.cpu += step;
        state.cpu
    }

    /// Opens a UDP socket, which shares its address with others if `shared`.
    ///
    /// # Errors
    /// The address is in use, or a fault.
    pub(crate) fn bind(
        &self,
        at: SocketAddr,
        shared: bool,
        coalesce: bool,
    ) -> io::Result<Rc<RefCell<UdpState>>> {
        let mut state = self.state();
        let State { rng, faults, sockets, .. } = &mut *state;
        sockets.retain(|socket| socket.strong_count() > 0);
        if !shared && rng.happens(faults.exhausted) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let others = sockets.iter().filter_map(Weak::upgrade);
        let in_use = others.filter(|other| other.borrow().local == at);
        let is_taken = !shared && rng.happens(faults.port_taken);
        if is_taken || in_use.into_iter().any(|other| !(shared && other.borrow().shared)) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let socket = Rc::new(RefCell::new(UdpState::new(at, shared, coalesce)));
        sockets.push(Rc::downgrade(&socket));
        Ok(socket)
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// One of the faults.
    pub(crate) fn send(&self, packet: Packet) -> Result<(), SendError> {
        let mut state = self.state();
        let State { rng, faults, sent, .. } = &mut *state;
        if rng.happens(faults.send) {
            let all = [SendError::WouldBlock, SendError::TooBig, SendError::Denied];
            return Err(*rng.pick(&all));
        }
        sent.push(packet);
        Ok(())
    }

    /// Returns true if the next message is truncated.
    pub(crate) fn truncates(&self) -> bool {
        let mut state = self.state();
        let State { rng, faults, .. } = &mut *state;
        rng.happens(faults.truncated)
    }

    /// Returns true if another socket can be watched.
    pub(crate) fn can_watch(&self) -> bool {
        let mut state = self.state();
        let State { rng, faults, .. } = &mut *state;
        !rng.happens(faults.watch)
    }

    /// Returns true if no descriptor is left.
    pub(crate) fn is_exhausted(&self) -> bool {
        let mut state = self.state();
        let State { rng, faults, .. } = &mut *state;
        rng.happens(faults.exhausted)
    }

    /// Adds the ring of a worker.
    pub(crate) fn add_ring(&self, ring: &Rc<RefCell<RingState>>) {
        self.state().rings.push(Rc::downgrade(ring));
    }

    /// The number of packets that were sent and not taken.
    pub(crate) fn sent(&self) -> usize {
        self.state().sent.len()
    }

    /// Takes the packets that were sent.
    pub(crate) fn take_sent(&self) -> Vec<Packet> {
        std::mem::take(&mut self.state().sent)
    }

    /// Delivers a packet to a ring, or to the socket of its destination; of several, the kernel
    /// chooses by the addresses.
    pub(crate) fn deliver(&self, packet: Packet) {
        let mut state = self.state();
        let sockets: Vec<_> = state.sockets.iter().filter_map(Weak::upgrade).collect();
        match packet.body {
            Body::Udp(bytes) => {
                let mut rings = state.rings.iter().filter_map(Weak::upgrade);
                let (from, to) = (packet.src, packet.dst);
                if rings.any(|ring| ring.borrow_mut().deliver(from, to, &bytes)) {
                    return;
                }
                let fitting = at(&sockets, packet.dst);
                let hash = usize::from(packet.src.port());
                match hash.checked_rem(fitting.len()) {
                    Some(index) => {
                        let to = packet.dst.ip();
                        fitting[index].borrow_mut().deliver(packet.src, to, bytes);
                    }
                    None => {
                        let closed = Packet::udp(packet.src, packet.dst, bytes);
                        state.sent.extend(closed.port_unreachable());
                    }
                }
            }
            Body::Icmp(Icmp { kind, code, data, about_src, about_dst }) => {
                let from = at(&sockets, about_src).first().copied();
                let family = IpFamily::of(about_dst.ip());
                let icmp = Some(IcmpReport { family, kind, code, mtu_or_zero: data });
                let local = Some(about_src.ip());
                let error = SocketError { peer: about_dst, local, errno: 111, icmp };
                from.into_iter().for_each(|socket| socket.borrow_mut().deliver_error(error));
            }
        }
    }

    /// Returns true if a UDP socket receives at an address.
    pub(crate) fn is_bound(&self, address: SocketAddr) -> bool {
        let sockets: Vec<_> = self.state().sockets.iter().filter_map(Weak::upgrade).collect();
        !at(&sockets, address).is_empty()
    }

    /// Number of open UDP sockets that receive at all addresses.
    #[must_use]
    pub fn sockets_at_all_addresses(&self) -> usize {
        let state = self.state();
        let open = state.sockets.iter().filter_map(Weak::upgrade);
        open.filter(|socket| socket.borrow().local.ip().is_unspecified()).count()
    }

    /// Number of open UDP sockets, and of listening TCP sockets.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        let mut state = self.state();
        state.backlogs.retain(|backlog| backlog.strong_count() > 0);
        let udp = state.sockets.iter().filter(|socket| socket.strong_count() > 0).count();
        state.backlogs.len() + udp
    }
}

/// The sockets at an address; without one, those at its port of all addresses.
fn at(sockets: &[Rc<RefCell<UdpState>>], address: SocketAddr) -> Vec<&Rc<RefCell<UdpState>>> {
    let bound = |to: &dyn Fn(SocketAddr) -> bool| -> Vec<_> {
        sockets.iter().filter(|socket| to(socket.borrow().local)).collect()
    };
    let exact = bound(&|local| local == address);
    if !exact.is_empty() {
        return exact;
    }
    bound(&|local| {
        local.ip().is_unspecified()
            && local.port() == address.port()
            && local.is_ipv4() == address.is_ipv4()
    })
}
