//! Keeper process: retains copies of a server's calls, and passes these copies to the successor
//! after a crash.
//!
//! ```text
//! a server                                   the keeper
//! Hello (feeds), Offer, listeners       -->
//!                                       <--  Copy
//! News, repeatedly                      -->
//! (dies)                                     retains everything for 60 s
//!
//! the successor
//! Hello                                 -->
//!                                       <--  Origin, Offer, listeners
//! Copy                                  -->
//!                                       <--  the last snapshot of each worker
//! Ready: serves                         -->  waits for the copies of this server
//! ```
//!
//! A server that cannot serve these calls, because its listeners differ, sends Discard instead of
//! Copy. The server then waits for Released, after which the ports are free.
//!
//! The keeper does not relay. While no server runs, packets wait in the receive buffers of the
//! sockets.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::Duration;

use dataplane::KeptWorker;
use linux_net::{Clock, force_receive_buffer};
use turn_types::{Instant, WorkerId};

use super::messages::{
    Hello, ListenerKind, News, Offer, Orders, Origin, Step, out_of_turn, receive_export,
    send_descriptors, send_export, send_kernel_path,
};
use super::passing::{Inlet as _, Outlet as _};
use super::wire::{Wire, unexpected};
use super::{PAUSE_ROOM, PREPARATION_MAX};

/// Maximum time for which calls wait for a successor. After so long without data, users have hung
/// up.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Maximum number of servers that get the same calls. If the second server dies as well, the calls
/// may be the cause.
const TRIES_MAX: u32 = 2;

/// Time after taking over calls within which a server's death may be due to these calls. Nearly all
/// clients send packets, or request permissions and channels, within this time.
const EARLY_DEATH: Duration = Duration::from_secs(10);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Copies of a server's calls.
struct Holding {
    from: Origin,
    offer: Offer,
    listeners: Vec<OwnedFd>,
    workers: BTreeMap<WorkerId, KeptWorker<OwnedFd>>,
    /// Descriptors of a kernel path that continues without the server.
    kernel_path: Vec<OwnedFd>,
    /// Number of servers that got these calls and failed to serve, or died early.
    tries: u32,
}

/// State of the keeper: the calls of a dead server, and the last server that got calls.
#[derive(Default)]
struct Kept {
    holding: Option<Holding>,
    taker: Option<Taker>,
}

/// Server that has received calls from the keeper.
struct Taker {
    process: u32,
    at: Instant,
    /// Number of servers that got the same calls, including this server.
    tries: u32,
    /// The passed calls, until the server sends its copies.
    given: Option<Holding>,
}

impl Kept {
    /// Returns the number of servers that have died with the calls of `process`, which dies now.
    /// Returns 0 if the process has served for longer than [`EARLY_DEATH`].
    fn tries(&self, process: u32, now: Instant) -> u32 {
        let taker = self.taker.as_ref().filter(|taker| {
            taker.process == process && now.saturating_since(taker.at) < EARLY_DEATH
        });
        taker.map_or(0, |taker| taker.tries)
    }

    /// Removes and returns the calls that were passed to the server `process`.
    fn given_to(&mut self, process: u32) -> Option<Holding> {
        self.taker.as_mut().filter(|taker| taker.process == process)?.given.take()
    }
}

type Orphans = Arc<Mutex<Kept>>;

/// Serves each connecting server on a separate thread, because a successor can connect while the
/// predecessor is still connected.
pub(crate) fn keep(listener: &UnixListener) {
    let orphans = Orphans::default();
    for stream in listener.incoming() {
        let served = stream.and_then(|stream| {
            let orphans = Arc::clone(&orphans);
            let serve = move || {
                if let Err(error) = serve(stream, &orphans) {
                    tracing::warn!("a server's copies are not kept: {error}");
                }
            };
            thread::Builder::new().name("server".to_owned()).spawn(serve)
        });
        if served.is_err() {
            // No descriptors or threads are left: another attempt would fail immediately.
            sleep(ACCEPT_PAUSE);
        }
    }
}

fn lock(orphans: &Orphans) -> MutexGuard<'_, Kept> {
    orphans.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: UnixStream, orphans: &Orphans) -> io::Result<()> {
    let mut wire = Wire::new(stream)?;
    let Hello { version, process, feeds } = wire.receive()?;
    if feeds {
        let since = Clock::instant();
        let orders = Orders::default();
        follow(wire, Origin { version, process, since, kernel_path: false, orders }, orphans)
    } else {
        give(wire, process, orphans)
    }
}

/// Stores the copies that a server sends, and retains its calls when the server dies.
fn follow(mut wire: Wire, from: Origin, orphans: &Orphans) -> io::Result<()> {
    let process = from.process;
    let mut holding = Holding::receive(&mut wire, from)?;
    // The passed calls are the base of the server's copies. They are removed before the server
    // closes the connection over which it received them: see `attend`.
    if let Some(given) = lock(orphans).given_to(process) {
        let earlier = given.workers.into_iter();
        holding.workers = earlier.map(|(id, worker)| (id, worker.for_successor())).collect();
    }
    // A server that has exited is detected below.
    let _ = wire.send(&Step::Copy);
    if lock(orphans).holding.take().is_some() {
        tracing::warn!(
            process,
            "this server serves without the calls of the one before: they have ended"
        );
    }
    tracing::info!(process, "copies of this server's calls are kept");
    let followed = holding.follow(&mut wire)?;
    let now = Clock::instant();
    holding.from.since = now;
    holding.tries = match followed {
        Followed::HandedOver => {
            tracing::info!(process, "the calls are another process's now");
            return Ok(());
        }
        Followed::Stopped => 0,
        Followed::Died => lock(orphans).tries(process, now),
    };
    if holding.tries >= TRIES_MAX {
        tracing::warn!(
            process,
            "the calls have ended: servers that take them over die, this one within {} s",
            EARLY_DEATH.as_secs()
        );
        return Ok(());
    }
    holding.make_room();
    keep_orphan(holding, orphans);
    Ok(())
}

/// Passes the calls of a dead server to a successor.
fn give(mut wire: Wire, process: u32, orphans: &Orphans) -> io::Result<()> {
    let found = lock(orphans).holding.take();
    let Some(mut holding) = found else { return wire.send(&None::<Origin>) };
    match holding.give(&mut wire) {
        Ok(Given::Sent) => {
            let (at, tries) = (Clock::instant(), holding.tries);
            lock(orphans).taker = Some(Taker { process, at, tries, given: Some(holding) });
            attend(wire, process, orphans);
        }
        Ok(Given::Refused) => {
            drop(holding);
            tracing::warn!(process, "this server cannot go on with the calls: they have ended");
            return wire.send(&Step::Released);
        }
        Err(error) => {
            tracing::warn!(process, "this server has not got the calls: {error}");
            keep_again(holding, orphans);
        }
    }
    Ok(())
}

/// Waits until the server that received the calls sends copies, or dies, at most [`KEPT_FOR`] after
/// the server has reported that it serves.
fn attend(mut wire: Wire, process: u32, orphans: &Orphans) {
    let serves = wire.expect(Step::Ready);
    if serves.is_ok() {
        tracing::info!(process, "this server serves the calls of the one before");
    }
    let said = match &serves {
        Ok(()) => wire.set_patience(KEPT_FOR).and_then(|()| wire.receive::<Step>()),
        Err(_) => Ok(Step::Copy),
    };
    // The server's copies have already replaced the calls.
    let Some(mut given) = lock(orphans).given_to(process) else { return };
    match (serves, said) {
        (Err(error), _) => {
            tracing::warn!(process, "this server has not taken the calls over: {error}");
            keep_again(given, orphans);
        }
        (Ok(()), Err(error)) if is_end(&error) => {
            given.from.since = Clock::instant();
            // The server has already stopped the kernel path.
            given.kernel_path.clear();
            given.make_room();
            keep_again(given, orphans);
        }
        (Ok(()), Ok(_) | Err(_)) => tracing::info!(process, "this server sends no copies"),
    }
}

/// Retains the calls for another server, unless [`TRIES_MAX`] servers have died with these calls.
fn keep_again(holding: Holding, orphans: &Orphans) {
    if holding.tries < TRIES_MAX {
        return keep_orphan(holding, orphans);
    }
    tracing::warn!("the calls have ended: servers that take them over die");
}

/// Retains the calls of a dead server until a successor connects, at most for [`KEPT_FOR`].
fn keep_orphan(holding: Holding, orphans: &Orphans) {
    let (process, since) = (holding.from.process, holding.from.since);
    let allocations = holding.allocations();
    tracing::warn!(process, allocations, "the server has ended: its calls wait for the next one");
    lock(orphans).holding = Some(holding);
    sleep(KEPT_FOR.saturating_sub(Clock::instant().saturating_since(since)));
    let mut orphans = lock(orphans);
    if orphans.holding.as_ref().is_some_and(|holding| holding.from.since == since) {
        orphans.holding = None;
        drop(orphans);
        tracing::warn!(process, "no server came: the calls have ended");
    }
}

/// Returns true if the other process has closed the connection.
fn is_end(error: &io::Error) -> bool {
    [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset].contains(&error.kind())
}

/// Reason why a server stopped sending copies.
enum Followed {
    /// The calls have been taken over by another process.
    HandedOver,
    /// The server has shut down in an orderly way.
    Stopped,
    /// The server has closed the connection without notice.
    Died,
}

/// Response of a successor to the offer.
enum Given {
    /// The server has received everything, and prepares to serve.
    Sent,
    /// The server cannot serve the calls.
    Refused,
}

impl Holding {
    fn receive(wire: &mut Wire, from: Origin) -> io::Result<Self> {
        let offer: Offer = wire.receive()?;
        let count = offer.workers.iter().map(Vec::len).sum::<usize>() + offer.services.len();
        let listeners = wire.receive_descriptors(count)?;
        let (workers, kernel_path) = (BTreeMap::new(), Vec::new());
        Ok(Self { from, offer, listeners, workers, kernel_path, tries: 0 })
    }

    /// Enlarges the receive buffers of the UDP listeners. The successor restores the sizes.
    fn make_room(&self) {
        for ((kind, _), listener) in self.offer.workers.iter().flatten().zip(&self.listeners) {
            if *kind == ListenerKind::Udp {
                // Without the capability the buffers keep their sizes.
                let _ = force_receive_buffer(listener.as_fd(), PAUSE_ROOM);
            }
        }
    }

    fn allocations(&self) -> usize {
        self.workers.values().map(|worker| worker.allocations()).sum()
    }

    /// Receives copies until the server stops sending. An incomplete message at the server's death
    /// has no effect.
    ///
    /// # Errors
    /// The server is alive, but sent invalid copies. The server connects again and sends all copies
    /// anew.
    fn follow(&mut self, wire: &mut Wire) -> io::Result<Followed> {
        loop {
            match self.receive_news(wire) {
                Ok(None) => {}
                Ok(Some(followed)) => return Ok(followed),
                Err(error) if is_end(&error) => return Ok(Followed::Died),
                Err(error) => return Err(error),
            }
        }
    }

    /// Receives one message of the server. An incomplete message has no effect.
    fn receive_news(&mut self, wire: &mut Wire) -> io::Result<Option<Followed>> {
        wire.wait_for_ever()?;
        let news: News = wire.receive()?;
        wire.set_patience(super::PATIENCE)?;
        match news {
            News::Snapshot(snapshot, count) => {
                let export = receive_export(wire, (snapshot, count))?;
                let worker = export.snapshot.worker;
                // When an allocation moves between workers, the first worker's removal may arrive
                // later than the second worker's snapshot.
                for (_, other) in self.workers.iter_mut().filter(|(id, _)| **id != worker) {
                    other.remove(export.snapshot.allocations.iter().map(|one| one.id));
                }
                let kept = self.workers.entry(worker).or_insert_with(|| KeptWorker::new(worker));
                kept.change(export);
            }
            News::KernelPath(count) => {
                self.kernel_path = wire.receive_descriptors(count as usize)?;
            }
            News::HandedOver => return Ok(Some(Followed::HandedOver)),
            News::Orders(orders) => self.from.orders = orders,
            News::Stopped => {
                // The server has stopped the kernel path, and no drain continues after a shutdown.
                self.kernel_path.clear();
                self.from.orders.drain_until = None;
                return Ok(Some(Followed::Stopped));
            }
            News::Last(..) | News::Progress(_) | News::Totals(_) => {
                return Err(out_of_turn());
            }
        }
        Ok(None)
    }

    /// Sends everything to the successor.
    fn give(&mut self, wire: &mut Wire) -> io::Result<Given> {
        self.tries += 1;
        self.from.kernel_path = !self.kernel_path.is_empty();
        wire.send(&Some(self.from.clone()))?;
        wire.send(&self.offer)?;
        send_descriptors(wire, &self.listeners)?;
        wire.set_patience(PREPARATION_MAX)?;
        match wire.receive()? {
            Step::Copy => {}
            Step::Discard => return Ok(Given::Refused),
            other @ (Step::Pause | Step::Ready | Step::Commit | Step::Released) => {
                return Err(unexpected(other, Step::Copy));
            }
        }
        for worker in (0..).map(WorkerId).take(self.offer.workers.len()) {
            let kept = self.workers.entry(worker).or_insert_with(|| KeptWorker::new(worker));
            send_export(wire, kept.export(), News::Last)?;
        }
        if !self.kernel_path.is_empty() {
            send_kernel_path(wire, &self.kernel_path)?;
        }
        Ok(Given::Sent)
    }
}

#[cfg(test)]
mod tests;
