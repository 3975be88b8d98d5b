//! The next process: takes over, or ends without a trace.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::anyhow;
use dataplane::io::Conduit;
use dataplane::{
    InheritedAllocation, InheritedRelay, InheritedSocket, NetOptions, RelaySettings,
    StayingSession, StayingSessions,
};
use linux_net::UdpSocket;
use turn_types::{AllocationId, Secret, SocketId};

use super::PATIENCE;
use super::messages::{AllocationPart, Hello, Listening, Offer, SessionPart, Step, WorkerPart};
use super::room::make_room;
use super::wire::Wire;
use crate::failure::{Failure, Result};

/// The server whose place this process takes.
pub(crate) struct Predecessor {
    wire: Wire,
    nonce_key: Secret<[u8; 32]>,
    workers: Vec<Listeners>,
    services: Vec<(SocketAddr, OwnedFd)>,
    /// Settings of its relay sockets.
    relay_sockets: RelaySettings,
    /// Its standard error.
    errors: OwnedFd,
}

/// Listeners of one worker, by their addresses.
#[derive(Debug)]
struct Listeners {
    udp: Vec<(SocketAddr, OwnedFd)>,
    tcp: Vec<(SocketAddr, OwnedFd)>,
}

/// State that a worker of this process begins with.
#[derive(Debug)]
pub(crate) struct InheritedWorker {
    /// The last id of an allocation that was given.
    pub(crate) last_id: AllocationId,
    /// Sockets that relays of prefixes share.
    pub(crate) shared: Vec<UdpSocket>,
    pub(crate) allocations: Vec<InheritedAllocation<InheritedSocket>>,
    /// Settings of their sockets.
    pub(crate) settings: RelaySettings,
    /// Sessions of DTLS that stay with earlier processes.
    pub(crate) staying: Vec<StayingSessions<Conduit>>,
}

/// A predecessor that serves no more, and still has the kernel path.
#[derive(Debug)]
pub(crate) struct Retiring(Wire);

impl Predecessor {
    /// Meets the server that listens at this socket.
    ///
    /// # Errors
    /// There is none, or it has another form of this talk.
    pub(crate) fn meet(socket: &Path) -> Result<Self> {
        let met = UnixStream::connect(socket).and_then(Wire::new).and_then(Self::introduce);
        met.map_err(|error| {
            let is_there =
                ![ErrorKind::NotFound, ErrorKind::ConnectionRefused].contains(&error.kind());
            let hint = if is_there {
                "it goes on as before: its log says more"
            } else {
                "is the server running, with these --config and --data?"
            };
            Failure::failed(anyhow!("the running server hands nothing over: {error}")).hint(hint)
        })
    }

    fn introduce(mut wire: Wire) -> io::Result<Self> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        wire.send(&Hello { version, process: std::process::id() })?;
        let offer = wire.receive()?;
        let Offer { nonce_key, workers, services, relay_sockets, descriptors: coming } = offer;
        make_room(coming);
        let of_workers: usize = workers.iter().map(|one| one.udp.len() + one.tcp.len()).sum();
        let count = of_workers + services.len() + 1;
        let mut descriptors = wire.receive_descriptors(count)?.into_iter();
        let mut take = |addresses: Vec<SocketAddr>| -> Vec<_> {
            addresses.into_iter().zip(descriptors.by_ref()).collect()
        };
        let workers = workers
            .into_iter()
            .map(|Listening { udp, tcp }| Listeners { udp: take(udp), tcp: take(tcp) })
            .collect();
        let services = take(services);
        let Some(errors) = descriptors.next() else {
            return Err(ErrorKind::InvalidData.into());
        };
        Ok(Self { wire, nonce_key, workers, services, relay_sockets: relay_sockets.into(), errors })
    }

    /// Its process id.
    pub(crate) const fn process(&self) -> u32 {
        self.wire.process()
    }

    /// The number of its workers: as many as this process has, since the kernel spreads clients over their sockets.
    pub(crate) const fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Key of the nonces that clients have.
    pub(crate) fn nonce_key(&self) -> Secret<[u8; 32]> {
        self.nonce_key
    }

    /// Returns whether it listens at an address: over UDP, and over TCP.
    pub(crate) fn listens(&self, at: SocketAddr) -> (bool, bool) {
        let is_there = |some: &[(SocketAddr, OwnedFd)]| some.iter().any(|one| one.0 == at);
        let first = self.workers.first();
        first.map(|one| (is_there(&one.udp), is_there(&one.tcp))).unwrap_or_default()
    }

    /// The listener of a worker for UDP at an address, if it had one.
    pub(crate) fn take_udp(&mut self, worker: usize, at: SocketAddr) -> Option<OwnedFd> {
        take_out(&mut self.workers.get_mut(worker)?.udp, at)
    }

    /// The same for TCP.
    pub(crate) fn take_tcp(&mut self, worker: usize, at: SocketAddr) -> Option<OwnedFd> {
        take_out(&mut self.workers.get_mut(worker)?.tcp, at)
    }

    /// The listener for HTTP at an address.
    pub(crate) fn take_service(&mut self, at: SocketAddr) -> Option<OwnedFd> {
        take_out(&mut self.services, at)
    }

    /// Asks for the allocations. From here on nobody serves, until [`Self::enter`].
    ///
    /// # Errors
    /// It has failed, and goes on.
    pub(crate) fn leave(&mut self, net: &NetOptions) -> io::Result<Vec<InheritedWorker>> {
        self.wire.send(&Step::Leave)?;
        let workers = 0..self.workers.len();
        workers.map(|_| self.receive_worker(net)).collect()
    }

    fn receive_worker(&mut self, net: &NetOptions) -> io::Result<InheritedWorker> {
        let WorkerPart { last_id, shared, allocations, staying } = self.wire.receive()?;
        let own = |part: &AllocationPart| part.relays.iter().filter(|relay| relay.own).count();
        let of_relays = shared as usize + allocations.iter().map(own).sum::<usize>();
        let mut descriptors = self.wire.receive_descriptors(of_relays + staying.len())?;
        let conduits = descriptors.split_off(of_relays);
        let mut sockets = descriptors.into_iter().map(InheritedSocket);
        let shared = sockets.by_ref().take(shared as usize);
        let shared = shared.map(|one| one.of_shared_relays(net)).collect::<io::Result<_>>()?;
        let allocation = |AllocationPart { state, relays }: AllocationPart| {
            let relays = relays.into_iter().map(|relay| {
                let socket = if relay.own { sockets.next() } else { None };
                InheritedRelay { relay: relay.relay, at: relay.at, socket }
            });
            InheritedAllocation { relays: relays.collect(), state: state.0 }
        };
        let allocations = allocations.into_iter().map(allocation).collect();
        let staying = staying.into_iter().zip(conduits).map(|(part, fd)| {
            let session = |SessionPart { client, server, number }| StayingSession {
                client,
                server,
                number: SocketId(number),
            };
            let sessions = part.sessions.into_iter().map(session).collect();
            Ok(StayingSessions { sessions, conduit: Conduit::from_fd(fd)? })
        });
        let staying = staying.collect::<io::Result<_>>()?;
        let settings = self.relay_sockets;
        Ok(InheritedWorker { last_id, shared, allocations, settings, staying })
    }

    /// Tells it that this process is ready to serve; behind that, this process serves alone, and has its standard
    /// error.
    ///
    /// # Errors
    /// It has taken everything back, and this process may not serve.
    pub(crate) fn enter(mut self) -> io::Result<Retiring> {
        self.wire.send(&Step::Prepared)?;
        self.wire.expect(Step::Go)?;
        // The log goes on where it was.
        rustix::stdio::dup2_stderr(&self.errors)?;
        Ok(Retiring(self.wire))
    }
}

impl Retiring {
    /// Waits until it has let go of the kernel path, or for some seconds.
    pub(crate) fn wait(mut self) {
        // A process that is gone has let go of it as well.
        let _ = self.0.set_patience(PATIENCE);
        let _ = self.0.expect(Step::Gone);
    }
}

fn take_out(from: &mut Vec<(SocketAddr, OwnedFd)>, at: SocketAddr) -> Option<OwnedFd> {
    let index = from.iter().position(|(address, _)| *address == at)?;
    Some(from.swap_remove(index).1)
}
