//! Snapshots of allocations, sent while the worker serves. A successor needs the snapshots for a
//! short pause. A keeper stores the snapshots in case this process crashes.
//!
//! The worker sends changes, to a keeper a few times per second. The first snapshot of an
//! allocation contains the allocation's sockets. A keeper may lack the newest permissions and
//! channels. Allocations with TCP connections are exported only in the pause.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::sleep;
use std::time::Duration;

use state_format::{Bytes, Writer};
use turn_proto::{AllocationCopy, Server};
use turn_types::{AllocationId, Instant, RelayId, RelayProtocol, Transport, WorkerId};

use crate::dtls::Dtls;
use crate::io::{AcceptIo as _, Net, Source};
use crate::limits::{
    COPIES_AGAIN_AFTER, COPIES_EVERY, COPIES_PER_TURN, COPIES_TO_NEXT_EVERY, LAST_COPIES_PAUSES,
    SOCKETS_AGAIN_AFTER,
};
use crate::snapshot::{AllocationSnapshot, Export, RelaySnapshot};
use crate::sockets::Sockets;
use crate::tcp_relay::TcpRelay;

/// Parts of a worker with state of allocations.
pub(crate) struct Parts<'a, N: Net> {
    pub(crate) worker: WorkerId,
    pub(crate) net: &'a N,
    pub(crate) server: &'a mut Server,
    pub(crate) sockets: &'a Sockets<N>,
    pub(crate) tcp_relay: &'a TcpRelay<N>,
    pub(crate) dtls: &'a Dtls,
}

/// Relays of an allocation whose sockets the other process has.
type RelayNames = [Option<RelayId>; 2];

/// State of an allocation in the other process.
#[derive(Clone, Copy, Debug, Default)]
struct CopyState {
    relays: RelayNames,
    /// Progress count in the last snapshot.
    progress: u64,
}

/// Index of the allocations that the other process has.
#[derive(Debug, Default)]
pub(crate) struct CopyIndex(BTreeMap<AllocationId, CopyState>);

impl CopyIndex {
    pub(crate) fn ids(&self) -> impl Iterator<Item = AllocationId> {
        self.0.keys().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn contains(&self, id: AllocationId) -> bool {
        self.0.contains_key(&id)
    }

    /// Returns the allocations with progress since the last snapshot.
    pub(crate) fn progressed(&self, server: &Server) -> impl Iterator<Item = AllocationId> {
        let progressed = |(id, known): (&AllocationId, &CopyState)| {
            let count = server.progress_count(*id)?;
            (count != known.progress).then_some(*id)
        };
        self.0.iter().filter_map(progressed)
    }

    /// Adds the state of allocations, or their end, to an export. During the pause `recipient` is
    /// `None`, and allocations of all kinds are included. Returns the allocations whose sockets
    /// could not be duplicated.
    pub(crate) fn export<N: Net>(
        &mut self,
        export: &mut Export<N::Descriptor>,
        parts: &Parts<'_, N>,
        ids: impl IntoIterator<Item = AllocationId>,
        recipient: Option<Recipient>,
    ) -> Option<Shortage> {
        export.snapshot.last_id = parts.server.last_id();
        export.snapshot.complete = !parts.server.has_changes();
        let is_included = |copy: &AllocationCopy| recipient.is_none_or(|one| is_copied(copy, one));
        let dtls = Some(parts.dtls).filter(|_| recipient == Some(Recipient::Keeper));
        let (earlier, ended) = (export.snapshot.allocations.len(), export.snapshot.ended.len());
        let mut shortage: Option<Shortage> = None;
        let mut out = Writer::new();
        for id in ids {
            let before = export.descriptors.len();
            match parts.server.copy(id) {
                Some(copy) if is_included(&copy) => match self.relays(id, &copy, (parts, export)) {
                    Ok((relays, known)) => {
                        let progress = parts.server.progress_count(id).unwrap_or_default();
                        self.0.insert(id, CopyState { relays: known, progress });
                        copy.write(&mut out);
                        let state = Bytes(out.take_bytes());
                        let session = dtls.and_then(|dtls| dtls.copy_of(&copy.client()));
                        let all = &mut export.snapshot.allocations;
                        all.push(AllocationSnapshot { id, state, relays, session, given: 0 });
                    }
                    Err(why) => {
                        export.descriptors.truncate(before);
                        let first = || Shortage { ids: Vec::new(), why };
                        shortage.get_or_insert_with(first).ids.push(id);
                    }
                },
                Some(_) | None if self.0.remove(&id).is_some() => export.snapshot.ended.push(id),
                Some(_) | None => {}
            }
        }
        if earlier > 0 {
            // An import reads the ends first.
            let ended: BTreeSet<_> = export.snapshot.ended[ended..].iter().collect();
            export.snapshot.allocations.retain(|one| !ended.contains(&one.id));
        }
        shortage
    }

    /// Returns the relays of an allocation, and adds missing descriptors to the export. The second
    /// result is the relays whose sockets the other process has after this export.
    fn relays<N: Net>(
        &self,
        id: AllocationId,
        copy: &AllocationCopy,
        (parts, export): (&Parts<'_, N>, &mut Export<N::Descriptor>),
    ) -> io::Result<(Vec<RelaySnapshot>, RelayNames)> {
        let before = self.0.get(&id).map(|known| known.relays).unwrap_or_default();
        let mut after = RelayNames::default();
        let mut relays = Vec::new();
        for (relay, known) in copy.relays().zip(&mut after) {
            *known = Some(relay);
            let listener = parts.tcp_relay.listener(relay);
            let listener = listener.map(|one| (one.local_addr(), Some(Source::Acceptor(one))));
            let udp = || parts.sockets.at(relay).map(|(at, udp)| (at, udp.map(Source::Udp)));
            let Some((at, source)) = listener.or_else(udp) else { continue };
            let own = source.is_some();
            let new = source.filter(|_| !before.contains(&Some(relay)));
            let new = new.map(|source| parts.net.duplicate(source)).transpose()?;
            let socket = new.map(|descriptor| export.add(descriptor));
            relays.push(RelaySnapshot { relay, at, own, socket });
        }
        Ok((relays, after))
    }
}

/// Allocations whose sockets could not be duplicated.
pub(crate) struct Shortage {
    ids: Vec<AllocationId>,
    pub(crate) why: io::Error,
}

/// Recipient of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipient {
    /// Keeper, which receives snapshots during the lifetime of this process.
    Keeper,
    /// Successor, which receives snapshots until the commit.
    Successor,
}

impl Recipient {
    /// Returns the time between two snapshots.
    const fn interval(self) -> Duration {
        match self {
            Self::Keeper => COPIES_EVERY,
            Self::Successor => COPIES_TO_NEXT_EVERY,
        }
    }
}

/// Snapshots of a worker for one recipient.
#[derive(Debug)]
pub(crate) struct Copying<N: Net> {
    to: SyncSender<Export<N::Descriptor>>,
    recipient: Recipient,
    index: CopyIndex,
    /// True after the first snapshot was sent. A worker without allocations sends a first snapshot
    /// as well.
    has_begun: bool,
    /// Snapshot that the full channel has refused.
    unsent: Option<Export<N::Descriptor>>,
    due: Instant,
    /// Allocations that wait for descriptors, or whose state in the other process is old.
    late: BTreeSet<AllocationId>,
    late_due: Instant,
}

/// Error of sending a snapshot.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// The receiver is closed.
    Gone,
    /// No descriptors are left, and the successor needs all allocations.
    Exhausted(io::Error),
    /// No descriptors are left for some allocations. A keeper receives these allocations later.
    Late(io::Error),
}

impl<N: Net> Copying<N> {
    pub(crate) fn new(to: SyncSender<Export<N::Descriptor>>, recipient: Recipient) -> Self {
        Self {
            to,
            recipient,
            index: CopyIndex::default(),
            has_begun: false,
            unsent: None,
            due: Instant::ZERO,
            late: BTreeSet::new(),
            late_due: Instant::ZERO,
        }
    }

    /// Resumes with the states of all allocations, because another recipient has received the
    /// changes.
    pub(crate) fn resume(&mut self, server: &mut Server) {
        server.keep_changes(true);
        // Allocations that have already ended are not reported as changes.
        self.late.extend(self.index.ids());
        self.late_due = Instant::ZERO;
    }

    /// Returns the index that the other process will have after receiving everything, and the
    /// snapshot that is not sent yet.
    pub(crate) fn into_index(self) -> (CopyIndex, Option<Export<N::Descriptor>>) {
        (self.index, self.unsent)
    }

    /// Returns the time of the next snapshot, or `None` without changes.
    pub(crate) fn due(&self, server: &Server) -> Option<Instant> {
        let has_changes = !self.has_begun || self.unsent.is_some() || server.has_changes();
        let changes = has_changes.then_some(self.due);
        let late = (!self.late.is_empty()).then_some(self.due.max(self.late_due));
        changes.into_iter().chain(late).min()
    }

    /// Sends removed allocations, unless an older snapshot waits or the channel is full.
    pub(crate) fn send_removed(&mut self, worker: WorkerId, removed: &mut Vec<AllocationId>) {
        if removed.is_empty() || self.unsent.is_some() {
            return;
        }
        let mut export = Export::new(worker);
        export.snapshot.ended = std::mem::take(removed);
        export.snapshot.complete = false;
        if let Err(TrySendError::Full(export)) = self.to.try_send(export) {
            *removed = export.snapshot.ended;
        }
    }

    /// Sends a snapshot when due.
    pub(crate) fn serve(
        &mut self,
        now: Instant,
        parts: &mut Parts<'_, N>,
    ) -> Result<(), CopyError> {
        if self.due(parts.server).is_none_or(|due| now < due) {
            return Ok(());
        }
        let (export, late) = match self.unsent.take() {
            Some(export) => (export, None),
            None => self.changes(now, parts)?,
        };
        self.has_begun = true;
        self.due = match self.to.try_send(export) {
            // The next snapshot follows in the next iteration, after that iteration's packets.
            Ok(()) if parts.server.has_changes() => now,
            Ok(()) => now + self.recipient.interval(),
            Err(TrySendError::Full(export)) => {
                self.unsent = Some(export);
                now + COPIES_AGAIN_AFTER
            }
            Err(TrySendError::Disconnected(_)) => return Err(CopyError::Gone),
        };
        late.map_or(Ok(()), |why| Err(CopyError::Late(why)))
    }

    /// Returns a snapshot of changes, and the error if some allocations must wait.
    fn changes(
        &mut self,
        now: Instant,
        parts: &mut Parts<'_, N>,
    ) -> Result<(Export<N::Descriptor>, Option<io::Error>), CopyError> {
        let mut ids: Vec<AllocationId> = Vec::new();
        if self.late_due <= now {
            ids.extend(std::iter::from_fn(|| self.late.pop_first()).take(COPIES_PER_TURN));
        }
        ids.extend(parts.server.take_changed(COPIES_PER_TURN - ids.len()));
        let recipient = self.recipient;
        let mut export = Export::new(parts.worker);
        let shortage = self.index.export(&mut export, parts, ids, Some(recipient));
        export.snapshot.complete &= self.late.is_empty() && shortage.is_none();
        match (shortage, recipient) {
            (None, _) => Ok((export, None)),
            (Some(Shortage { why, .. }), Recipient::Successor) => Err(CopyError::Exhausted(why)),
            (Some(Shortage { ids, why }), Recipient::Keeper) => {
                self.late.extend(ids);
                self.late_due = now + SOCKETS_AGAIN_AFTER;
                Ok((export, Some(why)))
            }
        }
    }

    /// Sends all changes before the worker exits, with a short timeout for a slow receiver. Returns
    /// the allocations that the receiver has, or `None` if the receiver lacks some changes.
    pub(crate) fn send_last(mut self, parts: &mut Parts<'_, N>) -> Option<CopyIndex> {
        self.late.extend(self.index.progressed(parts.server));
        // At least one snapshot is sent in any case, because the receiver may be closed.
        (self.has_begun, self.late_due) = (false, Instant::ZERO);
        let mut pauses = 0..LAST_COPIES_PAUSES;
        // Nothing changes during the exit.
        while let Some(due) = self.due(parts.server) {
            // Without descriptors now, later attempts fail as well.
            self.serve(due, parts).ok()?;
            if self.unsent.is_some() {
                pauses.next()?;
                sleep(COPIES_AGAIN_AFTER);
            }
        }
        Some(self.index)
    }
}

/// Returns true if an allocation is copied before the pause. Allocations with TCP connections are
/// not copied, because a copy of a connection would lack later bytes.
///
/// A keeper receives DTLS sessions with the allocations. A successor receives DTLS sessions in the
/// pause, together with the allocations whose clients are expected to move to such a session.
fn is_copied(copy: &AllocationCopy, recipient: Recipient) -> bool {
    let is_free = |transport| match transport {
        Transport::Udp => true,
        Transport::Dtls => recipient == Recipient::Keeper,
        Transport::Tcp | Transport::Tls => false,
    };
    let expected = copy.expected_client().filter(|_| recipient == Recipient::Successor);
    copy.protocol() == RelayProtocol::Udp
        && is_free(copy.client().transport)
        && expected.is_none_or(|expected| is_free(expected.transport))
}
