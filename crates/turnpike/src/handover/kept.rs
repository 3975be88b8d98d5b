//! A keeper's copies of one worker's calls.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use turn_types::{AllocationId, WorkerId};

use super::messages::{Bytes, ChangedPart, ChangedRelayPart, CopyPart, LastPart, News, RelayPart};
use super::passing::Outlet as _;
use super::wire::Wire;

/// Copies of one worker's calls.
pub(super) struct KeptWorker {
    last_id: AllocationId,
    shared: Vec<OwnedFd>,
    allocations: HashMap<AllocationId, KeptAllocation>,
}

struct KeptAllocation {
    state: Bytes,
    relays: Vec<(RelayPart, Option<OwnedFd>)>,
}

impl KeptWorker {
    /// Of a worker that has no calls.
    pub(super) fn new(worker: WorkerId) -> Self {
        let last_id = AllocationId::new(worker, 0);
        Self { last_id, shared: Vec::new(), allocations: HashMap::new() }
    }

    /// Allocations that it has.
    pub(super) fn allocations(&self) -> usize {
        self.allocations.len()
    }

    /// Takes copies of what has changed, with the sockets that came with them.
    pub(super) fn change(&mut self, part: CopyPart, sockets: Vec<OwnedFd>) {
        let CopyPart { worker: _, last_id, shared, changed, ended, .. } = part;
        self.last_id = last_id;
        let mut sockets = sockets.into_iter();
        self.shared.extend(sockets.by_ref().take(shared as usize));
        for ChangedPart { id, state, relays } in changed {
            let before = self.allocations.remove(&id).map(|before| before.relays);
            let mut before = before.unwrap_or_default();
            let relays = relays.into_iter().map(|ChangedRelayPart { part, comes }| {
                let known = before.iter_mut().find(|(known, _)| known.relay == part.relay);
                let known = known.and_then(|(_, socket)| socket.take());
                (part, if comes { sockets.next() } else { known })
            });
            let relays = relays.collect();
            self.allocations.insert(id, KeptAllocation { state, relays });
        }
        for id in ended {
            self.allocations.remove(&id);
        }
    }

    /// Gives everything to the next server, as the rest of this worker.
    pub(super) fn give(&self, worker: WorkerId, wire: &mut Wire) -> io::Result<()> {
        let whole = self.allocations.iter().filter(|(_, one)| one.is_whole());
        let whole: Vec<(&AllocationId, &KeptAllocation)> = whole.collect();
        let part = |(id, one): &(&AllocationId, &KeptAllocation)| ChangedPart {
            id: **id,
            state: Bytes(one.state.0.clone()),
            relays: one.relays.iter().map(|(part, _)| of_own(*part)).collect(),
        };
        let copies = CopyPart {
            shared: u32::try_from(self.shared.len()).unwrap_or(u32::MAX),
            changed: whole.iter().map(part).collect(),
            complete: true,
            ..CopyPart::nothing(worker, self.last_id)
        };
        // What has been read from connections since the last copies would be missing.
        let (progress, staying, streams) = (Vec::new(), Vec::new(), Vec::new());
        let (tcp_relays, peers, losses) = (Vec::new(), Vec::new(), Vec::new());
        let last = LastPart { copies, progress, staying, streams, tcp_relays, peers, losses };
        wire.send(&News::Last(last))?;
        let own =
            whole.iter().flat_map(|(_, one)| one.relays.iter().filter_map(|(_, own)| own.as_ref()));
        let all = self.shared.iter().chain(own);
        wire.send_descriptors(&all.map(|socket| socket.as_fd()).collect::<Vec<_>>())
    }
}

/// A relay that comes with its socket, if it has one.
const fn of_own(part: RelayPart) -> ChangedRelayPart {
    ChangedRelayPart { part, comes: part.own }
}

impl KeptAllocation {
    /// Each relay that has a socket of its own came with it.
    fn is_whole(&self) -> bool {
        self.relays.iter().all(|(part, socket)| part.own == socket.is_some())
    }
}
