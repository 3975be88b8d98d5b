//! Export of a worker to the successor.
//!
//! ```text
//! predecessor                                successor
//! snapshots while serving                --> import
//! pause: receives nothing from now on
//! export: remaining state                --> import
//! last_progress: of the kernel path      --> set_progress
//!                                        <-- ready
//! commit                                     commit_import
//! ```
//!
//! During the pause, datagrams and bytes are queued in the sockets, which both processes share. All
//! clients are exported. A waiting request is exported with the client's connection, or this
//! process refuses the request. Connections in a TLS handshake are closed at the commit.

use std::io;
use std::mem::{replace, take};

use turn_proto::{EndedWait, Progress, QueuedPacket};
use turn_types::{AllocationId, Transport, WorkerId};

use super::handover::Phase;
use super::pause::Pause;
use super::{Clients, Worker};
use crate::copying::CopyIndex;
use crate::io::Net;
use crate::limits::RING_ROUNDS_PER_TURN;
use crate::report::Sent;
use crate::snapshot::Export;

impl<N: Net> Worker<N> {
    /// Pauses the worker until the [commit](Self::commit) or [rollback](Self::roll_back). A paused
    /// worker serves only messages of other workers. When all workers are paused and have served
    /// these messages, each worker can [export](Self::export).
    pub fn pause(&mut self) {
        let (index, unsent) = match replace(&mut self.handover.phase, Phase::Serving) {
            Phase::Copying(copying) => copying.into_index(),
            Phase::Serving => {
                self.cx.server.keep_changes(true);
                (CopyIndex::default(), None)
            }
            other @ (Phase::Importing(_)
            | Phase::CopyFailed
            | Phase::Paused(_)
            | Phase::Retired) => {
                self.handover.phase = other;
                return;
            }
        };
        self.withdraw_routes_of_connections();
        self.cx.sockets.allow_fragments();
        let (streams, queued) = (Vec::new(), Vec::new());
        self.handover.phase = Phase::Paused(Pause { index, unsent, streams, queued });
    }

    /// Exports all connections and sessions, the allocations without an earlier snapshot at the
    /// successor, and all changes. The worker must be [paused](Self::pause).
    ///
    /// # Errors
    /// The process has no descriptors left now, or had none for an earlier snapshot. The worker
    /// serves again.
    pub fn export(&mut self) -> io::Result<Export<N::Descriptor>> {
        if !self.handover.is_paused() {
            return Err(io::Error::other("a worker could not send its snapshots"));
        }
        let queued = self.end_waits();
        let streams = self.streams.export(&mut self.cx);
        self.settle();
        let sessions = self.dtls.export();
        let (handover, parts) = self.split_for_export();
        let Phase::Paused(pause) = &mut handover.phase else { unreachable!("it is paused") };
        pause.streams.extend(streams);
        pause.queued.extend(queued);
        let mut export = pause.export(parts).inspect_err(|_| self.roll_back())?;
        export.snapshot.sessions = sessions;
        export.snapshot.losses = self.cx.sockets.losses();
        if self.cx.worker == WorkerId(0) {
            export.snapshot.reserved = self.cx.server.reserved_ports();
        }
        Ok(export)
    }

    /// Completes all waiting requests: each request is refused, dropped, or stored in the client's
    /// connection. Returns the packets of moving clients, oldest first.
    fn end_waits(&mut self) -> Vec<QueuedPacket> {
        let mut queued = Vec::new();
        loop {
            let Self { cx, streams, dtls, .. } = self;
            let Some(ended) = cx.server.end_wait(&mut cx.reply) else { break };
            match ended {
                EndedWait::Queued(packet) => queued.push(packet),
                EndedWait::Unserved { path, request } => streams.unserve(path.socket, request),
                EndedWait::Refused(answer) => {
                    streams.answered(answer.to.socket);
                    cx.answer(&mut Clients { streams, dtls }, answer, Sent::LateError);
                }
                EndedWait::Dropped => {}
            }
            self.settle();
        }
        // The newest packet was the first.
        queued.reverse();
        queued
    }

    /// Withdraws the routes of clients with connections, and relays the packets that these routes
    /// have delivered.
    fn withdraw_routes_of_connections(&mut self) {
        self.cx.server.withdraw_all(|transport| transport != Transport::Udp);
        self.settle();
        for _ in 0..RING_ROUNDS_PER_TURN {
            if !self.receive_from_ring() {
                break;
            }
        }
        self.send_gathered();
    }

    /// Returns the progress of the allocations whose data the kernel has relayed since the
    /// [export](Self::export). If `ends` is true, the routes are withdrawn, because the successor
    /// is about to serve. Otherwise the kernel path continues without this process.
    pub fn last_progress(&mut self, ends: bool) -> Vec<(AllocationId, Progress)> {
        let Phase::Paused(Pause { index, .. }) = &self.handover.phase else { return Vec::new() };
        let by_kernel: Vec<_> = index.ids().filter(|id| self.offload.relays(*id)).collect();
        if ends {
            self.cx.server.withdraw_all(|_| true);
            self.settle();
        } else {
            let Self { cx, offload, .. } = self;
            for id in &by_kernel {
                offload.sweep_allocation(*id, &mut cx.server, cx.observer.counters());
            }
        }
        self.count_traffic();
        let progress = |id| Some((id, self.cx.server.progress(id)?));
        by_kernel.into_iter().filter_map(progress).collect()
    }

    /// Updates the counters of relayed data. The successor continues these counters.
    pub(super) fn count_traffic(&self) {
        self.cx.observer.publish_traffic(&self.cx.server.carried_traffic());
    }

    /// Runs one iteration of a paused worker.
    pub(super) fn rest(&mut self) {
        self.cx.net.rest();
        self.cx.now = self.cx.net.now();
        self.cx.observer.counters().count_turn();
        self.is_busy = false;
        self.serve_messages();
        self.send_gathered();
        self.publish();
    }

    /// Resumes after a failure of the successor, with the state from before the
    /// [pause](Self::pause).
    pub fn roll_back(&mut self) {
        let (streams, queued) = match &mut self.handover.phase {
            Phase::Copying(_) => return self.handover.serve(&mut self.cx.server),
            Phase::CopyFailed => {
                self.handover.phase = Phase::Serving;
                return;
            }
            Phase::Paused(pause) => (take(&mut pause.streams), take(&mut pause.queued)),
            Phase::Importing(_) | Phase::Serving | Phase::Retired => return,
        };
        let Self { cx, streams: all, dtls, tcp_relay, handover, .. } = self;
        dtls.roll_back();
        all.roll_back(cx, streams);
        tcp_relay.resume_all(cx, all);
        cx.server.set_all_routes(cx.now);
        handover.serve(&mut cx.server);
        self.settle();
        queued.iter().for_each(|packet| self.serve_queued_packet(packet));
        self.settle();
        self.is_busy = true;
    }

    /// Closes everything that was exported: the successor serves.
    pub fn commit(&mut self) {
        let Phase::Paused(pause) = &mut self.handover.phase else { return };
        let (streams, index) = (take(&mut pause.streams), take(&mut pause.index));
        self.handover.retire(&mut self.cx.server);
        self.release(&index);
        let Self { cx, streams: all, dtls, .. } = self;
        cx.sockets.unwatch_listeners(&cx.net);
        all.set_accepting(&cx.net, false);
        all.commit(cx, streams);
        cx.sockets.remove_shared(&cx.net);
        dtls.commit(cx);
        self.settle();
        self.send_gathered();
        self.is_busy = true;
    }

    /// Removes allocations that another process has, and closes the allocations' sockets.
    pub(super) fn release(&mut self, index: &CopyIndex) {
        let Self { cx, tcp_relay, .. } = self;
        for id in index.ids() {
            let Some(departure) = cx.server.remove(id) else { continue };
            for relay in departure.relays() {
                cx.sockets.remove_relay(&cx.net, relay);
            }
            tcp_relay.remove(&cx.net, departure.relays(), departure.connections());
        }
    }
}
