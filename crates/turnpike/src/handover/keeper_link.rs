//! Server's connection with a keeper: a thread sends copies of all calls while a keeper is
//! connected.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::Duration;

use control::{Handle, KeeperState};
use dataplane::limits::COPIES_WAITING;
use dataplane::{Export, WorkerChannels};
use xdp_relay::ParkedPath;

use super::export::{Handovers, ListenerOffer};
use super::import::is_absent;
use super::messages::{Hello, News, Orders, Step, send_export, send_kernel_path};
use super::passing::Outlet as _;
use super::wire::Wire;
use crate::offload::WeakKernelPath;
use crate::tables::LastRead;

/// Interval of attempts to connect to a keeper.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Interval of checks for new orders of operators and for a closed connection. The interval is
/// short, because the keeper needs new orders before a crash.
const ORDERS_EVERY: Duration = Duration::from_millis(50);

/// Maximum time for the last copies of workers that have exited.
const LAST_COPIES_WITHIN: Duration = Duration::from_secs(2);

/// State of the connection with the keeper.
#[derive(Debug)]
enum Keeper {
    /// No keeper has copies. The connection, if any, is with the keeper from which this process
    /// imported its calls.
    Absent(Option<Wire>),
    Connected(Wire),
    /// The keeper has the last copies of all workers, which have exited.
    Complete(Wire),
    /// Copying has stopped because of a hand-over or shutdown.
    Left,
}

impl Keeper {
    /// Instructs the keeper to discard the calls.
    fn forget(&mut self) {
        // A keeper without a connection has already discarded everything.
        let _ = match self {
            Self::Connected(wire) | Self::Complete(wire) => wire.send(&News::HandedOver),
            Self::Absent(Some(given)) => given.send(&Step::Discard),
            Self::Absent(None) | Self::Left => Ok(()),
        };
    }
}

/// State that is copied in addition to the workers' state.
#[derive(Debug)]
pub(crate) struct CopiedBeside {
    pub(crate) kernel_path: WeakKernelPath,
    /// Source of the orders of operators.
    pub(crate) handle: Handle,
    /// Rules of the user database.
    pub(crate) tables: LastRead,
}

/// Shared handle of the thread that sends copies to a keeper.
#[derive(Clone, Debug)]
pub(crate) struct KeeperLink(Arc<(Mutex<Keeper>, Condvar)>);

impl KeeperLink {
    /// Starts a thread that connects to a keeper at `socket` whenever none is connected, and sends
    /// copies.
    ///
    /// # Errors
    /// The process has no thread left.
    pub(crate) fn start(
        (socket, given): (PathBuf, Option<Wire>),
        handovers: &Handovers,
        channels: WorkerChannels,
        others: CopiedBeside,
    ) -> io::Result<Self> {
        let link = Self(Arc::new((Mutex::new(Keeper::Absent(given)), Condvar::new())));
        let (own, offer) = (link.clone(), handovers.listener_offer());
        let feed = move || {
            while own.is_wanted() {
                match meet(&socket, &offer) {
                    Ok(None) => others.handle.set_keeper(KeeperState::Absent),
                    Ok(Some(wire)) => {
                        let process = wire.process();
                        let tell = || others.handle.set_keeper(KeeperState::Connected(process));
                        if let Err(error) = own.feed(wire, &channels, &others, tell) {
                            tracing::warn!(process, "the keeper has no copies any more: {error}");
                        }
                        others.handle.set_keeper(KeeperState::Absent);
                    }
                    Err(error) => tell_unusable(&others.handle, &socket, &error),
                }
                sleep(LOOK_EVERY);
            }
        };
        thread::Builder::new().name("keeping".to_owned()).spawn(feed)?;
        Ok(link)
    }

    /// Notifies the keeper that another process has taken over all calls, and stops copying.
    pub(crate) fn leave(&self) {
        let mut keeper = self.lock();
        keeper.forget();
        *keeper = Keeper::Left;
    }

    /// Transfers all calls to the keeper, after all workers have exited in an orderly shutdown.
    pub(crate) fn end(&self) {
        let (keeper, changed) = &*self.0;
        let is_behind = |keeper: &mut Keeper| matches!(keeper, Keeper::Connected(_));
        let keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(keeper, LAST_COPIES_WITHIN, is_behind);
        let (mut keeper, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Keeper::Complete(wire) = &mut *keeper
            && wire.send(&News::Stopped).is_ok()
        {
            let process = wire.process();
            tracing::info!(
                process,
                "the keeper has the calls over UDP and DTLS, for the next server"
            );
        } else {
            keeper.forget();
        }
        *keeper = Keeper::Left;
    }

    /// Sends all copies, and then each change, until the keeper disconnects or copying stops.
    fn feed(
        &self,
        mut wire: Wire,
        channels: &WorkerChannels,
        others: &CopiedBeside,
        tell: impl FnOnce(),
    ) -> io::Result<()> {
        let (copies, received) = sync_channel(COPIES_WAITING);
        {
            let mut keeper = self.lock();
            if matches!(*keeper, Keeper::Left) {
                return wire.send(&News::HandedOver);
            }
            tracing::info!(
                process = wire.process(),
                "a keeper has copies of all calls over UDP and DTLS"
            );
            *keeper = Keeper::Connected(wire);
        }
        tell();
        channels.copy_to_keeper(&copies);
        drop(copies);
        self.pass_on(&received, others)
    }

    fn pass_on(
        &self,
        received: &Receiver<Export<OwnedFd>>,
        CopiedBeside { kernel_path, handle, tables }: &CopiedBeside,
    ) -> io::Result<()> {
        let (mut known, mut known_orders) = (None, Orders::default());
        loop {
            let copies = received.recv_timeout(ORDERS_EVERY);
            let mut keeper = self.lock();
            let Keeper::Connected(wire) = &mut *keeper else { return Ok(()) };
            let sent = match copies {
                Ok(export) => send_export(wire, export, News::Snapshot).map(drop),
                Err(RecvTimeoutError::Timeout) if wire.is_gone() => {
                    Err(io::Error::other("it has ended"))
                }
                Err(RecvTimeoutError::Timeout) => Ok(()),
                // The last worker has exited.
                Err(RecvTimeoutError::Disconnected) => {
                    if let Keeper::Connected(wire) = std::mem::replace(&mut *keeper, Keeper::Left) {
                        *keeper = Keeper::Complete(wire);
                    }
                    self.0.1.notify_all();
                    return Ok(());
                }
            };
            let sent = sent.and_then(|()| match kernel_path.changed_copy(&mut known) {
                Some(path) => {
                    let path = path.iter().flat_map(ParkedPath::descriptors);
                    send_kernel_path(wire, &path.collect::<Vec<_>>())
                }
                None => Ok(()),
            });
            let orders = Orders::of(handle, tables);
            let sent = sent.and_then(|()| {
                if orders == known_orders {
                    Ok(())
                } else {
                    wire.send(&News::Orders(orders.clone()))
                }
            });
            known_orders = orders;
            if let Err(error) = sent {
                *keeper = Keeper::Absent(None);
                self.0.1.notify_all();
                return Err(error);
            }
        }
    }

    /// Returns false if the keeper has the last copies, or copying has stopped.
    fn is_wanted(&self) -> bool {
        !matches!(*self.lock(), Keeper::Complete(_) | Keeper::Left)
    }

    fn lock(&self) -> MutexGuard<'_, Keeper> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Introduces this process to the keeper at `socket`, and passes the listeners. Returns `None` if
/// no keeper listens, or if this process has no listeners to pass.
///
/// # Errors
/// The keeper runs as another user, or uses another version of the protocol.
fn meet(socket: &Path, offer: &ListenerOffer) -> io::Result<Option<Wire>> {
    let mut wire = match UnixStream::connect(socket) {
        Ok(stream) => Wire::new(stream)?,
        // Most servers have no keeper.
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    wire.send(&Hello::new(true))?;
    if !offer.offer(&mut wire)? {
        return Ok(None);
    }
    wire.expect(Step::Copy)?;
    Ok(Some(wire))
}

/// Reports an unusable keeper in the status, and in the log if the reason is new.
fn tell_unusable(handle: &Handle, socket: &Path, error: &io::Error) {
    let is_refusal = [ErrorKind::UnexpectedEof, ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    let why = if is_refusal.contains(&error.kind()) {
        "it refuses this server, as one of another user or version: its log has the reason"
            .to_owned()
    } else {
        error.to_string()
    };
    let state = KeeperState::Unusable(why);
    if handle.keeper() == state {
        return;
    }
    if let KeeperState::Unusable(why) = &state {
        tracing::warn!("the keeper at {} cannot be used: {why}", socket.display());
    }
    handle.set_keeper(state);
}
