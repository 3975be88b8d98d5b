//! The workers' part of a hand-over between processes, as the control plane asks for it. Its thread may wait.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use linux_net::UdpSocket;
use turn_types::{AllocationId, WorkerId};

use crate::copies::Copies;
use crate::inheritance::{Inheritance, InheritedAllocation, InheritedRelay, StayingSessions};
use crate::io::{Conduit, Kernel};
use crate::limits::LEAVE_DEADLINE;
use crate::sockets::{NetOptions, RelaySettings};
use crate::workers::{WorkerChannels, WorkerMessage};

/// Pause between two tries at a full queue.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// Part of one worker.
type Left = Inheritance<UdpSocket, Conduit>;

/// State that a worker gets before it serves, from one of another process.
#[derive(Debug)]
pub struct Entrance {
    /// The last id of an allocation that was given.
    pub last_id: AllocationId,
    /// The allocations.
    pub allocations: Vec<InheritedAllocation<InheritedSocket>>,
    /// Settings of their sockets.
    pub settings: RelaySettings,
    /// Sessions of DTLS that stay with earlier processes.
    pub staying: Vec<StayingSessions<Conduit>>,
    /// The worker serves when a message comes; when the sender is gone without one it ends, and nothing has happened.
    pub gate: Receiver<()>,
}

/// A descriptor of another process, for a socket of relays.
#[derive(Debug)]
pub struct InheritedSocket(pub OwnedFd);

impl InheritedSocket {
    /// The socket of one relay, which got these `settings`.
    ///
    /// # Errors
    /// It is none that Turnpike could have opened.
    fn of_relay(
        self,
        at: SocketAddr,
        settings: RelaySettings,
        net: &NetOptions,
    ) -> io::Result<UdpSocket> {
        let options = net.of_relay();
        let socket = if settings == net.relay_settings() {
            UdpSocket::adopt(self.0, &options)?
        } else {
            UdpSocket::from_fd(self.0, &options)?
        };
        if socket.local_addr() == at { Ok(socket) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// A socket that relays share.
    ///
    /// # Errors
    /// It is none that Turnpike could have opened.
    pub fn of_shared_relays(self, net: &NetOptions) -> io::Result<UdpSocket> {
        UdpSocket::from_fd(self.0, &net.of_shared_relays())
    }
}

impl InheritedAllocation<InheritedSocket> {
    /// With its sockets, which got these `settings`.
    ///
    /// # Errors
    /// One is none that Turnpike could have opened.
    pub(crate) fn open(
        self,
        settings: RelaySettings,
        net: &NetOptions,
    ) -> io::Result<InheritedAllocation<UdpSocket>> {
        let relays = self.relays.into_iter().map(|InheritedRelay { relay, at, socket }| {
            let socket = socket.map(|socket| socket.of_relay(at, settings, net)).transpose()?;
            Ok(InheritedRelay { relay, at, socket })
        });
        let relays = relays.collect::<io::Result<_>>()?;
        Ok(InheritedAllocation { state: self.state, relays })
    }
}

impl WorkerChannels {
    /// Lets all workers leave their allocations of clients over UDP and their listeners.
    ///
    /// # Errors
    /// One does not answer in time, or has no descriptors left: all have taken everything back.
    pub fn leave(&self) -> io::Result<Vec<Left>> {
        let left = self.ask_to_leave().and_then(|mut all| {
            // What was between two workers has arrived by now.
            for (all, late) in all.iter_mut().zip(self.ask_to_leave()?) {
                all.last_id = late.last_id;
                all.allocations.extend(late.allocations);
            }
            Ok(all)
        });
        if left.is_err() {
            self.take_back();
        }
        left
    }

    fn ask_to_leave(&self) -> io::Result<Vec<Left>> {
        let no_answer = || io::Error::new(io::ErrorKind::TimedOut, "a worker does not answer");
        // All at once: each second worker would be silent longer.
        let mut answers = Vec::new();
        for worker in self.ids() {
            let (tell, told) = channel();
            let reply = Box::new(move |left| drop(tell.send(left)));
            self.send(worker, WorkerMessage::Leave(reply)).map_err(|_| no_answer())?;
            answers.push(told);
        }
        let wait =
            |told: Receiver<_>| told.recv_timeout(LEAVE_DEADLINE).map_err(|_| no_answer())?;
        answers.into_iter().map(wait).collect()
    }

    /// Lets all workers send copies of their allocations here, and from then on of what changes, until the receiving end is dropped. It is to
    /// have room for [`COPIES_WAITING`](crate::limits::COPIES_WAITING).
    pub fn copy_to(&self, receiver: &SyncSender<Copies<UdpSocket>>) {
        self.ids().for_each(|worker| {
            self.insist(worker, || WorkerMessage::Copy(receiver.clone()));
        });
    }

    /// Lets all workers take everything back: the next process has failed.
    pub fn take_back(&self) {
        self.ids().for_each(|worker| self.insist(worker, || WorkerMessage::TakeBack));
    }

    /// Lets all workers close what they have left: the next process serves.
    pub fn forget(&self) {
        self.ids().for_each(|worker| self.insist(worker, || WorkerMessage::Forget));
    }

    /// Sends a message until its queue has room. One that has none for so long hangs: the watchdog ends the process.
    fn insist(&self, worker: WorkerId, message: impl Fn() -> WorkerMessage<Kernel>) {
        let until = Instant::now() + LEAVE_DEADLINE;
        while self.send(worker, message()).is_err() && Instant::now() < until {
            sleep(FULL_PAUSE);
        }
    }

    fn ids(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..).map(WorkerId).take(self.count())
    }
}
