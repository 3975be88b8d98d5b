//! The workers' part of a hand-over between processes, as the control plane asks for it. Its thread
//! may wait.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use control::Reply;
use linux_net::{TcpListener, TcpStream, UdpSocket};
use turn_proto::Progress;
use turn_types::{AllocationId, WorkerId};

use crate::copies::{CopiedAllocation, CopiedRelay, Copies, CopiesFor};
use crate::inheritance::Inheritance;
use crate::io::{Kernel, Net};
use crate::limits::LEAVE_DEADLINE;
use crate::sockets::{NetOptions, RelaySettings};
use crate::workers::{WorkerChannels, WorkerMessage};

/// Pause between two tries at a full queue.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// Part of one worker.
type WorkerExport = Inheritance<UdpSocket, TcpStream, TcpListener>;

/// Parts of a worker of another process, for one that does not serve yet.
#[derive(Debug)]
pub struct Entrance {
    /// Settings of the relay sockets there.
    pub settings: RelaySettings,
    /// It serves when it is told to; when the sender is gone before it ends, and nothing has
    /// happened.
    pub updates: Receiver<Update>,
}

/// News of the process before, with relay sockets of type `S`.
#[derive(Debug)]
pub enum Update<S = InheritedSocket> {
    /// Copies of allocations, while that process serves.
    Copies(Copies<S>),
    /// All copies so far are to be taken, and then this is answered.
    Reached(SyncSender<()>),
    /// The rest: it serves no more. One worker gets one of these.
    Last(Box<Inheritance<S, TcpStream, TcpListener>>),
    /// Progress of allocations since, by the kernel path there.
    Progress(Vec<(AllocationId, Progress)>),
    /// This process serves.
    Serve {
        /// Refuses new allocations: the predecessor drained.
        drains: bool,
    },
}

impl Update {
    /// With sockets, which got these `settings`.
    ///
    /// # Errors
    /// One is none that Turnpike could have opened.
    pub(crate) fn open(
        self,
        settings: RelaySettings,
        net: &NetOptions,
    ) -> io::Result<Update<UdpSocket>> {
        Ok(match self {
            Self::Copies(copies) => Update::Copies(copies.open(settings, net)?),
            Self::Last(inheritance) => {
                let Inheritance { copies, .. } = *inheritance;
                let Inheritance {
                    progress,
                    streams,
                    sessions,
                    tcp_relays,
                    peers,
                    losses,
                    reserved,
                    allocations,
                    ..
                } = *inheritance;
                Update::Last(Box::new(Inheritance {
                    listeners: Vec::new(),
                    copies: copies.open(settings, net)?,
                    progress,
                    streams,
                    sessions,
                    tcp_relays,
                    peers,
                    losses,
                    reserved,
                    allocations,
                }))
            }
            Self::Reached(answer) => Update::Reached(answer),
            Self::Progress(progress) => Update::Progress(progress),
            Self::Serve { drains } => Update::Serve { drains },
        })
    }
}

impl<S> Update<S> {
    /// Takes the sockets out that relays share; they come with the first.
    pub(crate) fn take_shared(&mut self) -> Vec<S> {
        match self {
            Self::Copies(copies) => std::mem::take(&mut copies.shared),
            Self::Last(inheritance) => std::mem::take(&mut inheritance.copies.shared),
            Self::Reached(_) | Self::Progress(_) | Self::Serve { .. } => Vec::new(),
        }
    }
}

/// A descriptor of another process, for a socket of relays.
#[derive(Debug)]
pub struct InheritedSocket(pub OwnedFd);

impl AsFd for InheritedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

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
    fn of_shared_relays(self, net: &NetOptions) -> io::Result<UdpSocket> {
        UdpSocket::from_fd(self.0, &net.of_shared_relays())
    }
}

impl Copies<InheritedSocket> {
    /// With sockets, which got these `settings`.
    ///
    /// # Errors
    /// One is none that Turnpike could have opened.
    pub(crate) fn open(
        self,
        settings: RelaySettings,
        net: &NetOptions,
    ) -> io::Result<Copies<UdpSocket>> {
        let Self { worker, last_id, shared, changed, ended, complete } = self;
        let relay = |CopiedRelay { relay, at, own, socket }: CopiedRelay<InheritedSocket>| {
            let socket = socket.map(|socket| socket.of_relay(at, settings, net)).transpose()?;
            Ok(CopiedRelay { relay, at, own, socket })
        };
        let allocation = |CopiedAllocation { id, state, relays, session }| {
            let relays = relays.into_iter().map(relay).collect::<io::Result<_>>()?;
            Ok::<_, io::Error>(CopiedAllocation { id, state, relays, session })
        };
        let opened = |one: CopiedAllocation<InheritedSocket>| match allocation(one) {
            Ok(allocation) => Some(allocation),
            Err(error) => {
                tracing::warn!(worker = worker.0, %error, "a call of the process before has ended");
                None
            }
        };
        let changed = changed.into_iter().filter_map(opened).collect();
        let shared = shared.into_iter().map(|one| one.of_shared_relays(net));
        let shared = shared.collect::<io::Result<_>>()?;
        Ok(Copies { worker, last_id, shared, changed, ended, complete })
    }
}

impl WorkerChannels {
    /// Lets all workers leave their listeners, and the connections and allocations that can leave.
    ///
    /// # Errors
    /// One does not answer in time, or has no descriptors left: all have taken everything back.
    pub fn leave(&self) -> io::Result<Vec<WorkerExport>> {
        let left = self.ask_to_leave().and_then(|mut all| {
            // Messages between two workers have arrived by now.
            for (all, late) in all.iter_mut().zip(self.ask_to_leave()?) {
                all.add(late);
            }
            Ok(all)
        });
        if left.is_err() {
            self.take_back();
        }
        left
    }

    fn ask_to_leave(&self) -> io::Result<Vec<WorkerExport>> {
        self.ask_all(WorkerMessage::Leave)?.into_iter().collect()
    }

    /// Lets all workers that have [left](Self::leave) withdraw the routes by which the kernel goes
    /// on to relay: the next process is about to serve. Returns the progress of the allocations
    /// that had them, of each worker.
    ///
    /// # Errors
    /// One does not answer in time.
    pub fn withdraw(&self) -> io::Result<Vec<Vec<(AllocationId, Progress)>>> {
        self.ask_all(WorkerMessage::Withdraw)
    }

    /// Asks all workers that have [left](Self::leave) for the progress of the allocations that the
    /// kernel goes on to relay for, without this process.
    ///
    /// # Errors
    /// One does not answer in time.
    pub fn progress_by_kernel(&self) -> io::Result<Vec<Vec<(AllocationId, Progress)>>> {
        self.ask_all(WorkerMessage::Progress)
    }

    /// Asks all workers at once: with one behind the other each second one would be silent longer.
    fn ask_all<T: Send + 'static>(
        &self,
        message: impl Fn(Reply<T>) -> WorkerMessage<Kernel>,
    ) -> io::Result<Vec<T>> {
        let no_answer = || io::Error::new(io::ErrorKind::TimedOut, "a worker does not answer");
        let mut answers = Vec::new();
        for worker in self.ids() {
            let (tell, told) = channel();
            let reply = Box::new(move |answer| drop(tell.send(answer)));
            self.send(worker, message(reply)).map_err(|_| no_answer())?;
            answers.push(told);
        }
        let wait = |told: Receiver<T>| told.recv_timeout(LEAVE_DEADLINE).map_err(|_| no_answer());
        answers.into_iter().map(wait).collect()
    }
}

impl<N: Net> WorkerChannels<N> {
    /// Lets all workers send copies of their allocations here, for a keeper, and from then on of
    /// each change, until the receiving end is dropped. It is to have room for
    /// [`COPIES_WAITING`](crate::limits::COPIES_WAITING).
    pub fn copy_to(&self, receiver: &SyncSender<Copies<N::Udp>>) {
        self.copy_for(receiver, CopiesFor::Keeper);
    }

    /// The same for the next process. Those for a keeper wait meanwhile. When the workers
    /// [leave](Self::leave), what was sent here until then is missing in what they return.
    pub fn copy_to_next(&self, receiver: &SyncSender<Copies<N::Udp>>) {
        self.copy_for(receiver, CopiesFor::Next);
    }

    fn copy_for(&self, receiver: &SyncSender<Copies<N::Udp>>, whom: CopiesFor) {
        self.ids().for_each(|worker| {
            self.insist(worker, || WorkerMessage::Copy(receiver.clone(), whom));
        });
    }

    /// Lets all workers take everything back: the next process has failed.
    pub fn take_back(&self) {
        self.ids().for_each(|worker| self.insist(worker, || WorkerMessage::TakeBack));
    }

    /// Lets all workers close all that they have left: the next process serves.
    pub fn forget(&self) {
        self.ids().for_each(|worker| self.insist(worker, || WorkerMessage::Forget));
    }

    /// Sends a message until its queue has room. One that has none for so long hangs: the watchdog
    /// ends the process.
    fn insist(&self, worker: WorkerId, message: impl Fn() -> WorkerMessage<N>) {
        let until = Instant::now() + LEAVE_DEADLINE;
        while self.send(worker, message()).is_err() && Instant::now() < until {
            sleep(FULL_PAUSE);
        }
    }

    fn ids(&self) -> impl Iterator<Item = WorkerId> + use<N> {
        (0..).map(WorkerId).take(self.count())
    }
}
