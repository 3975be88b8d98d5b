//! Copies of a worker's allocations for a keeper: another process, from which the next one gets them when this one has failed.
//!
//! The worker sends what has changed a few times a second. The sockets go with the first copy of an allocation; what the keeper has
//! of it is as old as the last copy, so that the newest permissions and channels may be missing. Clients with connections are not copied.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{SyncSender, TrySendError};

use state_format::Writer;
use turn_proto::{AllocationCopy, Server};
use turn_types::{AllocationId, Instant, RelayId, RelayProtocol, Transport, WorkerId};

use crate::io::{Net, UdpIo as _};
use crate::limits::{COPIES_AGAIN_AFTER, COPIES_EVERY, COPIES_PER_TURN};
use crate::sockets::Sockets;

/// What has changed at a worker since its last copies, with sockets of type `S`.
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

/// The relays of an allocation, of which the keeper has the sockets.
type Known = [Option<RelayId>; 2];

/// The copying of a worker's allocations.
#[derive(Debug)]
pub(crate) struct Copying<N: Net> {
    to: SyncSender<Copies<N::Udp>>,
    /// Allocations that the keeper has.
    known: HashMap<AllocationId, Known>,
    /// Copies that found no room.
    unsent: Option<Copies<N::Udp>>,
    is_first: bool,
    due: Instant,
}

/// Why no copies are sent any more.
#[derive(Debug)]
pub(crate) enum Over {
    /// The keeper is gone.
    Gone,
    /// No descriptors are left for it.
    Exhausted(io::Error),
}

impl<N: Net> Copying<N> {
    /// Copies everything to `to`, and then what changes.
    pub(crate) fn begin(server: &mut Server, to: SyncSender<Copies<N::Udp>>) -> Self {
        server.keep_changes(true);
        Self { to, known: HashMap::new(), unsent: None, is_first: true, due: Instant::ZERO }
    }

    /// The time of the next copies, if there is something to copy.
    pub(crate) fn due(&self, server: &Server) -> Option<Instant> {
        let has_more = self.unsent.is_some() || self.is_first || server.has_changes();
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
            None => self.gather(worker, server, sockets).map_err(Over::Exhausted)?,
        };
        self.due = match self.to.try_send(copies) {
            // One after another, with a turn of packets between.
            Ok(()) if server.has_changes() => now,
            Ok(()) => now + COPIES_EVERY,
            Err(TrySendError::Full(copies)) => {
                self.unsent = Some(copies);
                now + COPIES_AGAIN_AFTER
            }
            Err(TrySendError::Disconnected(_)) => return Err(Over::Gone),
        };
        Ok(())
    }

    fn gather(
        &mut self,
        worker: WorkerId,
        server: &mut Server,
        sockets: &Sockets<N>,
    ) -> io::Result<Copies<N::Udp>> {
        let shared =
            if std::mem::take(&mut self.is_first) { sockets.copy_shared() } else { Ok(Vec::new()) };
        let (mut changed, mut ended) = (Vec::new(), Vec::new());
        let mut out = Writer::new();
        let ids: Vec<AllocationId> = server.take_changed(COPIES_PER_TURN).collect();
        for id in ids {
            match server.copy(id).filter(is_of_udp) {
                Some(copy) => {
                    let relays = self.relays(id, &copy, sockets)?;
                    copy.write(&mut out);
                    changed.push(CopiedAllocation { id, state: out.take_bytes(), relays });
                }
                None if self.known.remove(&id).is_some() => ended.push(id),
                None => {}
            }
        }
        Ok(Copies { worker, last_id: server.last_id(), shared: shared?, changed, ended })
    }

    /// The relays of an allocation, with the sockets that the keeper does not have.
    fn relays(
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

/// Returns true for allocations that the next process can have: neither their clients nor their peers have connections.
fn is_of_udp(copy: &AllocationCopy) -> bool {
    copy.client().transport == Transport::Udp && copy.protocol() == RelayProtocol::Udp
}
