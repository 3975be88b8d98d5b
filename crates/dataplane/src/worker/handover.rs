//! Hand-over of a worker: the phase, and the recipients of snapshots.

use std::sync::mpsc::SyncSender;

use turn_proto::Server;
use turn_types::{AllocationId, Instant};

use super::Worker;
use super::imported::Import;
use super::pause::Pause;
use crate::copying::{CopyError, CopyIndex, Copying, Parts, Recipient};
use crate::io::Net;
use crate::report::Condition;
use crate::snapshot::Export;

/// State of a worker's hand-over.
#[derive(Debug)]
pub(super) struct Handover<N: Net> {
    pub(super) phase: Phase<N>,
    /// Snapshots for a keeper. Snapshots are sent only in [`Phase::Serving`] and
    /// [`Phase::CopyFailed`].
    keeper: Option<Copying<N>>,
    /// Removed allocations that the keeper may still have.
    removed: Vec<AllocationId>,
}

/// Phase of a worker's hand-over.
#[derive(Debug)]
pub(super) enum Phase<N: Net> {
    /// Successor before the commit.
    Importing(Import<N>),
    /// No other process is involved, except possibly a keeper.
    Serving,
    /// Predecessor that serves and sends snapshots to the successor.
    Copying(Copying<N>),
    /// Predecessor that serves after a failure of the snapshots for the successor. An export is not
    /// possible, because later ends of allocations would be missing.
    CopyFailed,
    /// Predecessor that does not serve, before the commit.
    Paused(Pause<N>),
    /// Predecessor after the commit.
    Retired,
}

impl<N: Net> Handover<N> {
    pub(super) const fn new() -> Self {
        Self { phase: Phase::Serving, keeper: None, removed: Vec::new() }
    }

    pub(super) const fn is_paused(&self) -> bool {
        matches!(self.phase, Phase::Paused(_))
    }

    pub(super) const fn is_retired(&self) -> bool {
        matches!(self.phase, Phase::Retired)
    }

    /// Returns the snapshots for the active recipient.
    fn copying(&mut self) -> Option<&mut Copying<N>> {
        match &mut self.phase {
            Phase::Serving | Phase::CopyFailed => self.keeper.as_mut(),
            Phase::Copying(copying) => Some(copying),
            Phase::Importing(_) | Phase::Paused(_) | Phase::Retired => None,
        }
    }

    /// Returns the import of a successor. The first call starts the import.
    pub(super) fn import(&mut self) -> &mut Import<N> {
        if !matches!(self.phase, Phase::Importing(_)) {
            self.phase = Phase::Importing(Import::default());
        }
        let Phase::Importing(import) = &mut self.phase else { unreachable!("set above") };
        import
    }

    /// Records removals by operators or by an import. A keeper must not return these allocations.
    pub(super) fn note_removed(&mut self, ids: impl IntoIterator<Item = AllocationId>) {
        // A keeper connects some time after an import.
        if self.keeper.is_some() || matches!(self.phase, Phase::Importing(_)) {
            self.removed.extend(ids);
        }
    }

    /// Changes to [`Phase::Serving`], and resumes the snapshots for a keeper.
    pub(super) fn serve(&mut self, server: &mut Server) {
        self.phase = Phase::Serving;
        match &mut self.keeper {
            Some(keeper) => keeper.resume(server),
            None => server.keep_changes(false),
        }
    }

    /// Changes to [`Phase::Retired`]. The keeper now receives the snapshots of the successor.
    pub(super) fn retire(&mut self, server: &mut Server) {
        (self.phase, self.keeper) = (Phase::Retired, None);
        server.keep_changes(false);
    }

    /// Starts snapshots for a recipient.
    fn copy_to(
        &mut self,
        to: SyncSender<Export<N::Descriptor>>,
        recipient: Recipient,
        server: &mut Server,
    ) {
        let copying = Copying::new(to, recipient);
        let is_serving = matches!(self.phase, Phase::Serving | Phase::CopyFailed);
        match recipient {
            Recipient::Keeper => self.keeper = Some(copying),
            Recipient::Successor if is_serving || matches!(self.phase, Phase::Copying(_)) => {
                self.phase = Phase::Copying(copying);
            }
            // The channel is dropped, which the successor detects.
            Recipient::Successor => return,
        }
        if is_serving || recipient == Recipient::Successor {
            server.keep_changes(true);
        }
    }
}

impl<N: Net> Worker<N> {
    pub(super) fn copy_to(&mut self, to: SyncSender<Export<N::Descriptor>>, recipient: Recipient) {
        self.handover.copy_to(to, recipient, &mut self.cx.server);
    }

    /// Returns the time of the next snapshot.
    pub(super) fn next_copies(&mut self) -> Option<Instant> {
        self.handover.copying()?.due(&self.cx.server)
    }

    /// Sends snapshots when due.
    pub(super) fn serve_copies(&mut self) {
        self.send_removed();
        if self.next_copies().is_none() {
            return;
        }
        let now = self.cx.now.instant;
        let (handover, mut parts) = self.split_for_export();
        let Some(copying) = handover.copying() else { return };
        let served = copying.serve(now, &mut parts);
        let Err(error) = served else { return };
        if let CopyError::Late(why) | CopyError::Exhausted(why) = &error {
            self.cx.observer.warn(now, Condition::Copies, why);
        }
        if !matches!(error, CopyError::Late(_)) {
            self.end_copies();
        }
    }

    /// Sends removals by operators to the keeper immediately, so removed allocations do not return
    /// after a crash.
    pub(super) fn send_removed(&mut self) {
        let Handover { keeper: Some(keeper), removed, .. } = &mut self.handover else { return };
        keeper.send_removed(self.cx.worker, removed);
    }

    /// Stops the snapshots for the active recipient.
    fn end_copies(&mut self) {
        let Self { cx, handover, .. } = self;
        if matches!(handover.phase, Phase::Copying(_)) {
            handover.serve(&mut cx.server);
            handover.phase = Phase::CopyFailed;
        } else {
            handover.keeper = None;
            cx.server.keep_changes(false);
        }
    }

    /// Sends all changes to the keeper, and returns the allocations that the keeper has. Returns
    /// `None` if no keeper is connected, or if the keeper lacks some changes.
    pub(super) fn send_last_copies(&mut self) -> Option<CopyIndex> {
        if matches!(self.handover.phase, Phase::Copying(_)) {
            self.end_copies();
        }
        let keeper = self.handover.keeper.take()?;
        self.cx.server.withdraw_all(|_| true);
        self.settle();
        let (_, mut parts) = self.split_for_export();
        let index = keeper.send_last(&mut parts);
        self.cx.server.keep_changes(false);
        index
    }

    /// Returns the hand-over, and the parts with state of allocations.
    pub(super) fn split_for_export(&mut self) -> (&mut Handover<N>, Parts<'_, N>) {
        let Self { cx, dtls, tcp_relay, handover, .. } = self;
        let (worker, net, server, sockets) = (cx.worker, &cx.net, &mut cx.server, &cx.sockets);
        (handover, Parts { worker, net, server, sockets, tcp_relay, dtls })
    }
}
