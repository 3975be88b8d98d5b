//! Copies of a worker's allocations for another process: for the next one, which takes over when it
//! has all; or for a keeper, from which the next one gets them when this one has failed.
//!
//! The worker sends the changes, to a keeper a few times a second. The sockets go with the first
//! copy of an allocation; what a keeper has of it is as old as the last copy, so that the newest
//! permissions and channels may be missing. Clients over TCP and TLS are not copied.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::sleep;
use std::time::Duration;

use state_format::Writer;
use turn_proto::{AllocationCopy, Server};
use turn_types::{AllocationId, FiveTuple, Instant, RelayId, RelayProtocol, Transport, WorkerId};

use crate::dtls::Dtls;
use crate::io::{Net, UdpIo as _};
use crate::limits::{
    COPIES_AGAIN_AFTER, COPIES_EVERY, COPIES_PER_TURN, COPIES_TO_NEXT_EVERY, LAST_COPIES_PAUSES,
    SOCKETS_AGAIN_AFTER,
};
use crate::sockets::Sockets;

/// Changes at a worker since its last copies, with sockets of type `S`.
#[derive(Debug)]
pub struct Copies<S> {
    /// The worker.
    pub worker: WorkerId,
    /// The last id that it has given.
    pub last_id: AllocationId,
    /// The sockets of relays that share one: in its first copies.
    pub shared: Vec<S>,
    /// Allocations that are new or have changed.
    pub changed: Vec<CopiedAllocation<S>>,
    /// Allocations that have ended, or have left for another worker.
    pub ended: Vec<AllocationId>,
    /// Nothing else had changed when they were made.
    pub complete: bool,
}

/// A copy of an allocation.
pub struct CopiedAllocation<S> {
    /// Its id.
    pub id: AllocationId,
    /// Its state: keys among it.
    pub state: Vec<u8>,
    /// Its relays.
    pub relays: Vec<CopiedRelay<S>>,
    /// DTLS session of the client, with keys; only in copies for a keeper. An import
    /// [skips](crate::limits::RECORDS_SKIPPED) record numbers.
    pub session: Option<Vec<u8>>,
}

impl<S> std::fmt::Debug for CopiedAllocation<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopiedAllocation").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A relay of an allocation that is copied.
#[derive(Debug)]
pub struct CopiedRelay<S> {
    /// Its name in this process.
    pub relay: RelayId,
    /// Its address.
    pub at: SocketAddr,
    /// True if it has a socket of its own.
    pub own: bool,
    /// Its own socket, if this is the first copy.
    pub socket: Option<S>,
}

/// Relays of which another process has the sockets.
type KnownRelays = [Option<RelayId>; 2];

/// The part of an allocation that another process has.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    relays: KnownRelays,
    /// The count of its progress at the last copy.
    progress: u64,
}

/// The allocations of a worker that another process has, for what is to be copied next.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    known: BTreeMap<AllocationId, Known>,
    /// The shared sockets have gone with the first copies.
    has_shared: bool,
}

impl Copied {
    /// The allocations.
    pub(crate) fn ids(&self) -> impl Iterator<Item = AllocationId> {
        self.known.keys().copied()
    }

    /// The number of the allocations.
    pub(crate) fn count(&self) -> usize {
        self.known.len()
    }

    /// The allocations that have made progress since their last copies.
    pub(crate) fn progressed(&self, server: &Server) -> impl Iterator<Item = AllocationId> {
        let progressed = |(id, known): (&AllocationId, &Known)| {
            let count = server.progress_count(*id)?;
            (count != known.progress).then_some(*id)
        };
        self.known.iter().filter_map(progressed)
    }

    /// Returns true if the other process has this allocation.
    pub(crate) fn has(&self, id: AllocationId) -> bool {
        self.known.contains_key(&id)
    }

    /// Copies these allocations, which have changed.
    ///
    /// # Errors
    /// No descriptors left for the sockets.
    pub(crate) fn copy<N: Net>(
        &mut self,
        of: (WorkerId, &mut Server, &Sockets<N>),
        ids: impl IntoIterator<Item = AllocationId>,
    ) -> io::Result<Copies<N::Udp>> {
        match self.copy_possible(of, ids.into_iter().collect(), |_| true, |_| None) {
            (copies, None) => Ok(copies),
            (_, Some(uncopied)) => Err(uncopied.why),
        }
    }

    /// The same, without those of which the sockets cannot be copied.
    fn copy_possible<N: Net>(
        &mut self,
        (worker, server, sockets): (WorkerId, &mut Server, &Sockets<N>),
        ids: Vec<AllocationId>,
        may_go: impl Fn(&AllocationCopy) -> bool,
        session_of: impl Fn(&FiveTuple) -> Option<Vec<u8>>,
    ) -> (Copies<N::Udp>, Option<Uncopied>) {
        let (last_id, complete) = (server.last_id(), !server.has_changes());
        let (changed, ended) = (Vec::new(), Vec::new());
        let mut copies = Copies { worker, last_id, shared: Vec::new(), changed, ended, complete };
        match self.shared(sockets) {
            Ok(shared) => copies.shared = shared,
            Err(why) => return (copies, Some(Uncopied { ids, why })),
        }
        let mut uncopied: Option<Uncopied> = None;
        let mut out = Writer::new();
        for id in ids {
            match server.copy(id).filter(&may_go) {
                Some(copy) => match self.relays(id, &copy, sockets) {
                    Ok((relays, known)) => {
                        let progress = server.progress_count(id).unwrap_or_default();
                        self.known.insert(id, Known { relays: known, progress });
                        copy.write(&mut out);
                        let state = out.take_bytes();
                        let session = session_of(&copy.client());
                        copies.changed.push(CopiedAllocation { id, state, relays, session });
                    }
                    Err(why) => {
                        let first = || Uncopied { ids: Vec::new(), why };
                        uncopied.get_or_insert_with(first).ids.push(id);
                    }
                },
                None if self.known.remove(&id).is_some() => copies.ended.push(id),
                None => {}
            }
        }
        (copies, uncopied)
    }

    /// The sockets that relays share, if the other process does not have them.
    fn shared<N: Net>(&mut self, sockets: &Sockets<N>) -> io::Result<Vec<N::Udp>> {
        if self.has_shared {
            return Ok(Vec::new());
        }
        let shared = sockets.copy_shared()?;
        self.has_shared = true;
        Ok(shared)
    }

    /// The relays of an allocation, with the sockets that the other process does not have, and
    /// those of which it has them then.
    fn relays<N: Net>(
        &self,
        id: AllocationId,
        copy: &AllocationCopy,
        sockets: &Sockets<N>,
    ) -> io::Result<(Vec<CopiedRelay<N::Udp>>, KnownRelays)> {
        let before = self.known.get(&id).map(|known| known.relays).unwrap_or_default();
        let mut after = KnownRelays::default();
        let mut relays = Vec::new();
        for (relay, known) in copy.relays().zip(&mut after) {
            *known = Some(relay);
            let Some((at, socket)) = sockets.at(relay) else { continue };
            let is_known = before.contains(&Some(relay));
            let new = socket.filter(|_| !is_known).map(|socket| socket.copy()).transpose()?;
            relays.push(CopiedRelay { relay, at, own: socket.is_some(), socket: new });
        }
        Ok((relays, after))
    }
}

/// Allocations that could not be copied: no descriptors are left for their sockets.
struct Uncopied {
    ids: Vec<AllocationId>,
    why: io::Error,
}

/// Allocations of copies that found no room.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    pub(crate) changed: Vec<AllocationId>,
    pub(crate) ended: Vec<AllocationId>,
}

/// Recipient of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopiesFor {
    /// A keeper, as long as this process lives.
    Keeper,
    /// The next process, until it takes over.
    Next,
}

impl CopiesFor {
    /// The time between two copies of changes.
    const fn interval(self) -> Duration {
        match self {
            Self::Keeper => COPIES_EVERY,
            Self::Next => COPIES_TO_NEXT_EVERY,
        }
    }
}

/// The copying of a worker's allocations.
#[derive(Debug)]
pub(crate) struct Copying<N: Net> {
    to: SyncSender<Copies<N::Udp>>,
    whom: CopiesFor,
    copied: Copied,
    /// Copies that found no room.
    unsent: Option<Copies<N::Udp>>,
    due: Instant,
    /// Allocations that wait for descriptors, or of which the other process may have an old state.
    late: BTreeSet<AllocationId>,
    late_due: Instant,
}

/// Why copies are not sent.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// The other process is gone.
    Gone,
    /// No descriptors are left, and the next process needs all.
    Exhausted(io::Error),
    /// No descriptors are left for some. A keeper gets them when there are.
    Late(io::Error),
}

impl<N: Net> Copying<N> {
    /// Copies to `to` from now on.
    pub(crate) fn new(to: SyncSender<Copies<N::Udp>>, whom: CopiesFor) -> Self {
        Self {
            to,
            whom,
            copied: Copied::default(),
            unsent: None,
            due: Instant::ZERO,
            late: BTreeSet::new(),
            late_due: Instant::ZERO,
        }
    }

    /// Returns true if its copies go there.
    pub(crate) fn is_for(&self, whom: CopiesFor) -> bool {
        self.whom == whom
    }

    /// Goes on with the states of all: others have taken the changes meanwhile. The other process
    /// has the sockets.
    pub(crate) fn go_on(mut self, server: &mut Server) -> Self {
        server.keep_changes(true);
        // Ended allocations are no changes any more.
        self.late.extend(self.copied.ids());
        self.late_due = Instant::ZERO;
        self
    }

    /// The allocations that the other process has when it has received all that was sent, and the
    /// ones that it has to get beside all changes.
    pub(crate) fn into_copied(self) -> (Copied, Missing) {
        let Self { mut copied, unsent, late, .. } = self;
        let late = late.into_iter().collect();
        let Some(Copies { shared, changed, ended, .. }) = unsent else {
            return (copied, Missing { changed: late, ended: Vec::new() });
        };
        copied.has_shared &= shared.is_empty();
        let mut missing = Missing { changed: late, ended };
        for CopiedAllocation { id, relays, .. } in changed {
            if relays.iter().any(|relay| relay.socket.is_some()) {
                copied.known.remove(&id);
            }
            missing.changed.push(id);
        }
        (copied, missing)
    }

    /// The time of the next copies, if there is something to copy.
    pub(crate) fn due(&self, server: &Server) -> Option<Instant> {
        let has_changes = self.unsent.is_some() || server.has_changes();
        let has_late = !self.late.is_empty() || !self.copied.has_shared;
        let changes = has_changes.then_some(self.due);
        changes.into_iter().chain(has_late.then_some(self.due.max(self.late_due))).min()
    }

    /// Sends copies when it is time.
    pub(crate) fn serve(
        &mut self,
        (worker, now): (WorkerId, Instant),
        server: &mut Server,
        (sockets, dtls): (&Sockets<N>, &Dtls),
    ) -> Result<(), Unsent> {
        if self.due(server).is_none_or(|due| now < due) {
            return Ok(());
        }
        let (copies, late) = match self.unsent.take() {
            Some(copies) => (copies, None),
            None => self.copy((worker, now), server, (sockets, dtls))?,
        };
        self.due = match self.to.try_send(copies) {
            // One after another, with a turn of packets between.
            Ok(()) if server.has_changes() => now,
            Ok(()) => now + self.whom.interval(),
            Err(TrySendError::Full(copies)) => {
                self.unsent = Some(copies);
                now + COPIES_AGAIN_AFTER
            }
            Err(TrySendError::Disconnected(_)) => return Err(Unsent::Gone),
        };
        late.map_or(Ok(()), |why| Err(Unsent::Late(why)))
    }

    /// Copies of what has changed, and why some of it has to wait.
    fn copy(
        &mut self,
        (worker, now): (WorkerId, Instant),
        server: &mut Server,
        (sockets, dtls): (&Sockets<N>, &Dtls),
    ) -> Result<(Copies<N::Udp>, Option<io::Error>), Unsent> {
        let mut ids: Vec<AllocationId> = Vec::new();
        if self.late_due <= now {
            ids.extend(std::iter::from_fn(|| self.late.pop_first()).take(COPIES_PER_TURN));
        }
        ids.extend(server.take_changed(COPIES_PER_TURN - ids.len()));
        let whom = self.whom;
        let (copies, uncopied) = self.copied.copy_possible(
            (worker, server, sockets),
            ids,
            |copy| is_copied(copy, whom),
            |client| dtls.copy_of(client),
        );
        match uncopied {
            None => Ok((copies, None)),
            Some(Uncopied { why, .. }) if self.whom == CopiesFor::Next => {
                Err(Unsent::Exhausted(why))
            }
            Some(Uncopied { ids, why }) => {
                self.late.extend(ids);
                self.late_due = now + SOCKETS_AGAIN_AFTER;
                Ok((copies, Some(why)))
            }
        }
    }

    /// Sends all changes at the exit of the worker, with a short timeout for a slow receiver.
    /// Returns false if changes are missing there.
    pub(crate) fn send_last(
        mut self,
        worker: WorkerId,
        server: &mut Server,
        (sockets, dtls): (&Sockets<N>, &Dtls),
    ) -> bool {
        self.late_due = Instant::ZERO;
        let mut pauses = 0..LAST_COPIES_PAUSES;
        // Nothing changes any more.
        while let Some(due) = self.due(server) {
            // What finds no descriptors now would find none later.
            if self.serve((worker, due), server, (sockets, dtls)).is_err() {
                return false;
            }
            if self.unsent.is_some() {
                if pauses.next().is_none() {
                    return false;
                }
                sleep(COPIES_AGAIN_AFTER);
            }
        }
        true
    }
}

/// Returns true for allocations without TCP connections: a copy of a connection would lack later
/// bytes. A keeper gets DTLS sessions with the allocations, a successor gets them in the pause.
fn is_copied(copy: &AllocationCopy, whom: CopiesFor) -> bool {
    copy.protocol() == RelayProtocol::Udp
        && match copy.client().transport {
            Transport::Udp => true,
            Transport::Dtls => whom == CopiesFor::Keeper,
            Transport::Tcp | Transport::Tls => false,
        }
}
