//! The keeper: a small process that has copies of a server's calls, and gives them to the next
//! server when that one has died.
//!
//! ```text
//! a server                                  the keeper
//! Hello (feeds), Offer, listeners -->
//!                                       <-- Copy
//! News; again and again                 -->
//! (dies)                                    keeps everything for a while
//!
//! the successor                         <--
//! Hello                           -->
//!                                       <-- Origin, Offer, listeners
//! Copy                                  -->
//!                                       <-- the last snapshot of each worker
//! Ready: serves                         --> waits for the copies of this server
//! ```
//!
//! A server that cannot serve these calls, since its listeners are others, sends Discard instead of
//! Copy, and waits for Released: the ports are free then.
//!
//! It takes no part in what is relayed: packets wait in the sockets while no server is there.

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

/// Deadline for the next server. Calls without data for so long have ended for their users.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Servers that get the same calls. If the second dies as well, the calls may be the cause.
const TRIES_MAX: u32 = 2;

/// A server that dies within this time of taking calls over may have died of them: nearly all send
/// packets within it, and clients ask for permissions and channels.
const EARLY_DEATH: Duration = Duration::from_secs(10);

/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Copies of a server's calls.
struct Holding {
    from: Origin,
    offer: Offer,
    listeners: Vec<OwnedFd>,
    workers: BTreeMap<WorkerId, KeptWorker<OwnedFd>>,
    /// Descriptors by which its kernel path goes on without it.
    kernel_path: Vec<OwnedFd>,
    /// Servers that have got it and have not served.
    tries: u32,
}

/// Calls of a server that has died, and the server that has taken some over.
#[derive(Default)]
struct Kept {
    holding: Option<Holding>,
    taker: Option<Taker>,
}

/// A server that has taken calls over.
struct Taker {
    process: u32,
    at: Instant,
    /// Servers that have got the same calls, with this one.
    tries: u32,
    /// The calls, until its own copies come.
    given: Option<Holding>,
}

impl Kept {
    /// Servers that have died with the calls of this process, which dies now.
    fn tries(&self, process: u32, now: Instant) -> u32 {
        let taker = self.taker.as_ref().filter(|taker| {
            taker.process == process && now.saturating_since(taker.at) < EARLY_DEATH
        });
        taker.map_or(0, |taker| taker.tries)
    }

    /// Takes the calls that a server has got.
    fn given_to(&mut self, process: u32) -> Option<Holding> {
        self.taker.as_mut().filter(|taker| taker.process == process)?.given.take()
    }
}

type Orphans = Arc<Mutex<Kept>>;

/// Serves one server after another, and the next one while the last is there.
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
            // No descriptors or threads left: it would be so again at once.
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

/// Keeps the copies of a server, and its calls when it dies.
fn follow(mut wire: Wire, from: Origin, orphans: &Orphans) -> io::Result<()> {
    let process = from.process;
    let mut holding = Holding::receive(&mut wire, from)?;
    // Before the server closes the connection by which it has received them.
    if let Some(given) = lock(orphans).given_to(process) {
        let earlier = given.workers.into_iter();
        holding.workers = earlier.map(|(id, worker)| (id, worker.for_successor())).collect();
    }
    // The exit of a server is noticed below.
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

/// Gives the calls of a server that has died to the next one.
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

/// Waits for the copies of the server that has received the calls, or for its death.
fn attend(mut wire: Wire, process: u32, orphans: &Orphans) {
    let serves = wire.expect(Step::Ready);
    if serves.is_ok() {
        tracing::info!(process, "this server serves the calls of the one before");
    }
    let said = match &serves {
        Ok(()) => wire.set_patience(KEPT_FOR).and_then(|()| wire.receive::<Step>()),
        Err(_) => Ok(Step::Copy),
    };
    // Already replaced by its own copies.
    let Some(mut given) = lock(orphans).given_to(process) else { return };
    match (serves, said) {
        (Err(error), _) => {
            tracing::warn!(process, "this server has not taken the calls over: {error}");
            keep_again(given, orphans);
        }
        (Ok(()), Err(error)) if is_end(&error) => {
            given.from.since = Clock::instant();
            // The server has ended it.
            given.kernel_path.clear();
            given.make_room();
            keep_again(given, orphans);
        }
        (Ok(()), Ok(_) | Err(_)) => tracing::info!(process, "this server sends no copies"),
    }
}

/// Keeps the calls for another server, unless too many have died with them.
fn keep_again(holding: Holding, orphans: &Orphans) {
    if holding.tries < TRIES_MAX {
        return keep_orphan(holding, orphans);
    }
    tracing::warn!("the calls have ended: servers that take them over die");
}

/// Keeps the calls of a server that has died until the next one comes, or for a while.
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

/// The other end is gone.
fn is_end(error: &io::Error) -> bool {
    [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset].contains(&error.kind())
}

/// How a server's copies end.
enum Followed {
    /// Another process has them.
    HandedOver,
    /// The server was told to end.
    Stopped,
    /// The server is gone.
    Died,
}

/// Answer of the next server to the offer.
enum Given {
    /// The server has everything, and prepares itself.
    Sent,
    /// It cannot go on with them.
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

    /// Enlarges the UDP listeners' receive buffers until the next server restores them.
    fn make_room(&self) {
        for ((kind, _), listener) in self.offer.workers.iter().flatten().zip(&self.listeners) {
            if *kind == ListenerKind::Udp {
                // Without the capability they have the room that they had.
                let _ = force_receive_buffer(listener.as_fd(), PAUSE_ROOM);
            }
        }
    }

    fn allocations(&self) -> usize {
        self.workers.values().map(|worker| worker.allocations()).sum()
    }

    /// Takes copies as long as they come. What came in part when the server died is not taken.
    ///
    /// # Errors
    /// The server lives, and its copies are of no use: it sends them anew.
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

    /// Receives news of the server. Incomplete news have no effects.
    fn receive_news(&mut self, wire: &mut Wire) -> io::Result<Option<Followed>> {
        wire.wait_for_ever()?;
        let news: News = wire.receive()?;
        wire.set_patience(super::PATIENCE)?;
        match news {
            News::Snapshot(snapshot, count) => {
                let export = receive_export(wire, (snapshot, count))?;
                let worker = export.snapshot.worker;
                // After a move between workers the removal at the first worker may arrive later.
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
                // The server has ended it, and nothing is drained after a stop.
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
