//! Putting a worker together and starting its thread.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};

use control::limits::MAILBOX_CAPACITY;
use control::{Inbox, Mailbox, UserDirectory, Wake, WorkerCounters};
use linux_net::{TcpListener, WakeReceiver, Waker, pin_current_thread};
use turn_proto::{Policy, SharedRegistry};
use turn_session::TlsConfig;
use turn_session::dtls::DtlsConfig;
use turn_types::{Prefix, WorkerId};
use xdp_relay::Routes;

use crate::admission::Admission;
use crate::doors::{self, Arrivals, Door, Doors};
use crate::listener::Listener;
use crate::worker::Worker;

/// What a worker is made of.
pub struct WorkerSpec {
    /// Its number: unique in the process, and its position among [`control::Workers`].
    pub id: WorkerId,
    /// The core to run on; `None` leaves it to the scheduler.
    pub core: Option<usize>,
    /// Its own listening sockets.
    pub listeners: Vec<Listener>,
    /// Its own sockets that connections come to.
    pub acceptors: Vec<TcpListener>,
    /// Load balancers: connections from there begin with a header of the PROXY protocol.
    pub proxies: Vec<Prefix>,
    /// How TLS is spoken on connections; `None`: not at all.
    pub tls: Option<TlsConfig>,
    /// Where certificate authorities are sent that ask for a token, which is appended (RFC 8555 §8.3).
    pub acme_redirect: Option<String>,
    /// How DTLS is spoken at the listening sockets; `None`: not at all.
    pub dtls: Option<DtlsConfig>,
    /// How many associations there may be, of all workers together.
    pub dtls_admission: Arc<Admission>,
    /// How many connections there may be, of all workers together.
    pub admission: Arc<Admission>,
    /// The rules to begin with.
    pub policy: Arc<Policy>,
    /// Quotas and reservations of all workers.
    pub registry: Arc<dyn SharedRegistry>,
    /// Randomness from the operating system, for this worker alone.
    pub seed: [u8; 32],
    /// Where users are looked up.
    pub directory: Arc<dyn UserDirectory>,
    /// What it counts, and others read.
    pub counters: Arc<WorkerCounters>,
    /// Its end of the mailbox.
    pub inlet: Inlet,
    /// The ways to all workers, its own among them.
    pub doors: Doors,
    /// Its routes in the kernel; `None` leaves all to the sockets.
    pub routes: Option<Routes>,
    /// How its sockets are to be.
    pub net: NetOptions,
}

/// Options of all sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetOptions {
    /// Ask the kernel to hand over equal datagrams of one sender as one.
    pub gro: bool,
    /// Have the kernel take equal datagrams to one destination as one.
    pub gso: bool,
    /// Receive buffer of each socket in bytes; 0 leaves the system's default.
    pub recv_buffer: usize,
    /// Send buffer of each socket in bytes; 0 leaves the system's default.
    pub send_buffer: usize,
}

impl Default for NetOptions {
    /// Everything that makes it fast, with the system's buffers.
    fn default() -> Self {
        Self { gro: true, gso: true, recv_buffer: 0, send_buffer: 0 }
    }
}

/// The worker's end of its mailbox: what is in it, and what wakes it.
#[derive(Debug)]
pub struct Inlet {
    pub(crate) inbox: Inbox,
    pub(crate) wake: WakeReceiver,
    pub(crate) door: Door,
    pub(crate) arrivals: Arrivals,
}

impl Doors {
    /// The ways to the workers of these mailboxes, in the order of their ids.
    pub fn of<'a>(inlets: impl IntoIterator<Item = &'a Inlet>) -> Self {
        Self::new(inlets.into_iter().map(|inlet| inlet.door.clone()).collect())
    }
}

/// A mailbox for one worker.
///
/// # Errors
/// No descriptors left.
pub fn mailbox() -> io::Result<(Mailbox, Inlet)> {
    struct Knock(Waker);

    impl Wake for Knock {
        fn wake(&self) {
            self.0.wake();
        }
    }

    let (waker, wake) = Waker::new()?;
    let knock = Arc::new(Knock(waker));
    let (mailbox, inbox) = control::mailbox(MAILBOX_CAPACITY, Arc::clone(&knock) as _);
    let (door, arrivals) = doors::door(knock);
    Ok((mailbox, Inlet { inbox, wake, door, arrivals }))
}

/// Starts a worker. It runs until [`Request::Stop`](control::Request::Stop); that its thread ended
/// otherwise, by a panic, is told by the handle.
///
/// # Errors
/// No descriptors, memory or threads left.
pub fn spawn(spec: WorkerSpec) -> io::Result<JoinHandle<()>> {
    start(spec.id, spec.core, || Worker::new(spec), Worker::run)
}

/// Builds something on a thread and core of its own and runs it there: its memory comes from the core's own
/// NUMA node. Returns when it is built.
fn start<T>(
    id: WorkerId,
    core: Option<usize>,
    build: impl FnOnce() -> io::Result<T> + Send + 'static,
    run: impl FnOnce(T) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (tell, told) = sync_channel(1);
    let thread = thread::Builder::new().name(format!("worker-{}", id.0)).spawn(move || {
        if let Some(core) = core
            && let Err(error) = pin_current_thread(core)
        {
            tracing::warn!(worker = id.0, core, %error, "cannot keep the worker on its core");
        }
        let (built, outcome) = match build() {
            Ok(built) => (Some(built), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // Whoever started it waits for that.
        drop(tell.send(outcome));
        if let Some(built) = built {
            run(built);
        }
    })?;
    match told.recv() {
        Ok(outcome) => outcome.map(|()| thread),
        // It panicked, which it has said on standard error.
        Err(_) => Err(io::Error::other("the worker's thread ended while it was built")),
    }
}

#[cfg(test)]
mod tests {
    use linux_net::allowed_cores;

    use super::*;

    fn here() -> (Option<String>, Vec<usize>) {
        (thread::current().name().map(str::to_owned), allowed_cores().unwrap())
    }

    #[test]
    fn a_worker_is_built_where_it_runs() {
        let core = allowed_cores().unwrap()[0];
        let (tell, told) = sync_channel(2);
        let tell_again = tell.clone();
        let build = move || {
            tell.send(here()).unwrap();
            Ok(())
        };
        let run = move |()| tell_again.send(here()).unwrap();
        start(WorkerId(7), Some(core), build, run).unwrap().join().unwrap();
        let there = (Some("worker-7".to_owned()), vec![core]);
        assert_eq!([told.recv().unwrap(), told.recv().unwrap()], [there.clone(), there]);
    }

    #[test]
    fn a_worker_that_cannot_be_built_does_not_run() {
        let build = || Err::<(), _>(io::ErrorKind::OutOfMemory.into());
        let started = start(WorkerId(7), None, build, |()| panic!("it ran"));
        assert_eq!(started.unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    }
}
