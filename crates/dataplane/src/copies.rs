//! Copies of a worker's allocations for another process: for the next one, which takes over when it has all; or for a keeper, from which
//! the next one gets them when this one has failed.
//!
//! The worker sends the changes, to a keeper a few times a second. The sockets go with the first copy of an allocation; what a keeper
//! has of it is as old as the last copy, so that the newest permissions and channels may be missing. Clients with connections are not copied.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use state_format::Writer;
use turn_proto::{AllocationCopy, Server};
use turn_types::{AllocationId, Instant, RelayId, RelayProtocol, Transport, WorkerId};

use crate::io::{Net, UdpIo as _};
use crate::limits::{COPIES_AGAIN_AFTER, COPIES_EVERY, COPIES_PER_TURN, COPIES_TO_NEXT_EVERY};
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

/// The relays of an allocation, of which the other process has the sockets.
type Known = [Option<RelayId>; 2];

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

    /// Returns true if the other process has this allocation.
    pub(crate) fn has(&self, id: AllocationId) -> bool {
        self.known.contains_key(&id)
    }

    /// Copies these allocations, which have changed, as far as they `may_go`.
    ///
    /// # Errors
    /// No descriptors left for the sockets.
    pub(crate) fn copy<N: Net>(
        &mut self,
        (worker, server, sockets): (WorkerId, &mut Server, &Sockets<N>),
        ids: impl IntoIterator<Item = AllocationId>,
        may_go: impl Fn(&AllocationCopy) -> bool,
    ) -> io::Result<Copies<N::Udp>> {
        let is_first = !std::mem::replace(&mut self.has_shared, true);
        let shared = if is_first { sockets.copy_shared()? } else { Vec::new() };
        let (mut changed, mut ended) = (Vec::new(), Vec::new());
        let mut out = Writer::new();
        for id in ids {
            match server.copy(id).filter(&may_go) {
                Some(copy) => {
                    let relays = self.relays(id, &copy, sockets)?;
                    copy.write(&mut out);
                    changed.push(CopiedAllocation { id, state: out.take_bytes(), relays });
                }
                None if self.known.remove(&id).is_some() => ended.push(id),
                None => {}
            }
        }
        let complete = !server.has_changes();
        Ok(Copies { worker, last_id: server.last_id(), shared, changed, ended, complete })
    }

    /// The relays of an allocation, with the sockets that the other process does not have.
    fn relays<N: Net>(
        &mut self,
        id: AllocationId,
        copy: &AllocationCopy,
        sockets: &Sockets<N>,
    ) -> io::Result<Vec<CopiedRelay<N::Udp>>> {
        let known = self.known.entry(id).or_default();
        let before = std::mem::take(known);
        let mut relays = Vec::new();
        for (relay, known) in copy.relays().zip(known) {
            *known = Some(relay);
            let Some((at, socket)) = sockets.at(relay) else { continue };
            let is_known = before.contains(&Some(relay));
            let new = socket.filter(|_| !is_known).map(|socket| socket.copy()).transpose()?;
            relays.push(CopiedRelay { relay, at, own: socket.is_some(), socket: new });
        }
        Ok(relays)
    }
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
}

/// Why no copies are sent any more.
#[derive(Debug)]
pub(crate) enum Over {
    /// The other process is gone.
    Gone,
    /// No descriptors are left for it.
    Exhausted(io::Error),
}

impl<N: Net> Copying<N> {
    /// Copies everything to `to`, and then each change.
    pub(crate) fn begin(
        server: &mut Server,
        to: SyncSender<Copies<N::Udp>>,
        whom: CopiesFor,
    ) -> Self {
        server.keep_changes(true);
        Self { to, whom, copied: Copied::default(), unsent: None, due: Instant::ZERO }
    }

    /// Returns true if its copies go there.
    pub(crate) fn is_for(&self, whom: CopiesFor) -> bool {
        self.whom == whom
    }

    /// Begins again, with everything: others have taken the changes meanwhile.
    pub(crate) fn begin_again(self, server: &mut Server) -> Self {
        Self::begin(server, self.to, self.whom)
    }

    /// The allocations that the other process has when it has received all that was sent, and the ones that it has to get beside all changes.
    pub(crate) fn into_copied(self) -> (Copied, Missing) {
        let Self { mut copied, unsent, .. } = self;
        let Some(Copies { shared, changed, ended, .. }) = unsent else {
            return (copied, Missing::default());
        };
        copied.has_shared &= shared.is_empty();
        let mut missing = Missing { changed: Vec::new(), ended };
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
        let has_more = self.unsent.is_some() || !self.copied.has_shared || server.has_changes();
        has_more.then_some(self.due)
    }

    /// Sends copies when it is time.
    pub(crate) fn serve(
        &mut self,
        (worker, now): (WorkerId, Instant),
        server: &mut Server,
        sockets: &Sockets<N>,
    ) -> Result<(), Over> {
        if self.due(server).is_none_or(|due| now < due) {
            return Ok(());
        }
        let copies = match self.unsent.take() {
            Some(copies) => copies,
            None => {
                let ids: Vec<AllocationId> = server.take_changed(COPIES_PER_TURN).collect();
                let copies = self.copied.copy((worker, server, sockets), ids, is_of_udp);
                copies.map_err(Over::Exhausted)?
            }
        };
        self.due = match self.to.try_send(copies) {
            // One after another, with a turn of packets between.
            Ok(()) if server.has_changes() => now,
            Ok(()) => now + self.whom.interval(),
            Err(TrySendError::Full(copies)) => {
                self.unsent = Some(copies);
                now + COPIES_AGAIN_AFTER
            }
            Err(TrySendError::Disconnected(_)) => return Err(Over::Gone),
        };
        Ok(())
    }
}

/// Returns true for allocations whose clients and peers have no connections: their sockets are all that is to be copied.
fn is_of_udp(copy: &AllocationCopy) -> bool {
    copy.client().transport == Transport::Udp && copy.protocol() == RelayProtocol::Udp
}
