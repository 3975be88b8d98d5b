//! Import of the predecessor's state, before this process serves.

use std::io;

use state_format::Reader;
use turn_proto::{
    DropReason, EndReason, ExpectedMove, ImportedAllocation, Notice, Progress, Renamed,
};
use turn_types::{
    AllocationId, ClientPath, FiveTuple, RelayId, RelayProtocol, SocketId, Transport,
};

use super::Worker;
use super::imported::{Import, ImportError, ImportedRelay, ImportedSocket, RefusedAllocation};
use crate::dtls::Dtls;
use crate::io::{AcceptIo as _, Net, UdpIo as _};
use crate::limits::{IDS_SKIPPED, RECORDS_SKIPPED, RECORDS_SKIPPED_AGAIN, RECORDS_SKIPPED_SPREAD};
use crate::report::Condition;
use crate::snapshot::{
    AllocationSnapshot, Descriptors, Export, PacketSnapshot, RelaySnapshot, Snapshot,
};
use crate::sockets::{RelaySettings, Sockets};
use crate::stream::Streams;
use crate::tcp_relay::PEER_OPTIONS;
use crate::workers::WorkerMessage;

/// Returns the number of the socket for a client of the predecessor.
fn socket_of<N: Net>(
    sockets: &Sockets<N>,
    (streams, dtls): (&Streams<N>, &Dtls),
    five_tuple: &FiveTuple,
) -> Option<SocketId> {
    match five_tuple.transport {
        Transport::Udp => sockets.listener_at(five_tuple.server).map(|(id, _)| id),
        Transport::Tcp | Transport::Tls => streams.of_client(five_tuple),
        Transport::Dtls => dtls.of_client(five_tuple),
    }
}

impl<N: Net> Worker<N> {
    /// Starts an import. `settings` are the settings of the predecessor's relay sockets.
    pub fn begin_import(&mut self, settings: RelaySettings) {
        self.streams.wait_for_commit();
        self.handover.import().settings = settings;
    }

    /// Imports a snapshot. A later snapshot of an allocation replaces an earlier snapshot.
    pub fn import(&mut self, export: Export<N::Descriptor>) {
        self.cx.now = self.cx.net.now();
        let (snapshot, mut descriptors) = export.into_parts();
        let Snapshot { last_id, allocations, ended, progress, streams, .. } = snapshot;
        let Snapshot { sessions, peers, losses, reserved, queued, .. } = snapshot;
        // A crashed predecessor may have assigned later ids.
        let counter = last_id.counter() + IDS_SKIPPED;
        self.cx.server.skip_ids(AllocationId::new(last_id.worker(), counter));
        for stream in streams {
            let imported = self.streams.import(&mut self.cx, stream, &mut descriptors);
            self.note_error(imported.map_err(ImportError::Connection));
        }
        for session in sessions {
            let imported = self.dtls.import(&mut self.cx, &session, 0);
            self.note_error(imported.map_err(ImportError::Session));
        }
        for peer in peers {
            let (cx, streams) = (&self.cx, &mut self.streams);
            let imported = self.tcp_relay.import(cx, streams, peer, &mut descriptors);
            self.note_error(imported.map_err(ImportError::Peer));
        }
        for id in ended {
            drop(self.revert_import(id));
        }
        for allocation in allocations {
            self.import_allocation(allocation, &mut descriptors);
        }
        let import = self.handover.import();
        import.reserved.extend(reserved);
        import.queued.extend(queued);
        (import.progress, import.losses) = (progress, losses);
    }

    /// Finishes the import after the last snapshot.
    pub fn finish_import(&mut self) {
        let Import { progress, losses, .. } = self.handover.import();
        let (progress, losses) = (std::mem::take(progress), std::mem::take(losses));
        self.set_progress(progress);
        self.retry_refused();
        self.cx.sockets.set_losses(&losses);
        self.tcp_relay.finish_import(&mut self.cx, &mut self.streams);
        self.settle();
        self.send_expected();
    }

    /// Notifies other workers of clients that are expected there (RFC 8016).
    fn send_expected(&mut self) {
        for (worker, clients) in self.cx.server.expected_elsewhere(self.cx.now) {
            drop(self.send_message(worker, WorkerMessage::Expect(clients)));
        }
    }

    /// Expects clients of another worker's allocations.
    pub(super) fn expect(&mut self, clients: Vec<ExpectedMove>) {
        let Self { cx, streams, dtls, .. } = self;
        for client in clients {
            let socket_of =
                |path: &ClientPath| socket_of(&cx.sockets, (streams, dtls), &path.five_tuple);
            cx.server.expect(cx.now, client, socket_of);
        }
    }

    /// Imports refused allocations again: a later snapshot may have released a port.
    fn retry_refused(&mut self) {
        for (id, refused) in std::mem::take(&mut self.handover.import().refused) {
            self.try_import(id, refused.state, refused.relays);
            self.set_progress(refused.progress.map(|progress| (id, progress)));
        }
    }

    /// Starts serving after the commit of the predecessor. All workers must have
    /// [finished](Self::finish_import) their imports. If `drains` is true, new allocations are
    /// refused. Returns the errors of the import.
    pub fn commit_import(&mut self, drains: bool) -> Vec<ImportError> {
        self.cx.now = self.cx.net.now();
        self.cx.server.drain(drains);
        // Old snapshots in other workers may have blocked these imports until now.
        if !self.handover.import().refused.is_empty() {
            self.retry_refused();
            self.send_expected();
        }
        let import = std::mem::take(self.handover.import());
        let Import { reserved, refused, ended, queued, mut errors, .. } = import;
        let Self { cx, handover, .. } = self;
        // A keeper has the predecessor's copies of these allocations.
        handover.note_removed(refused.keys().chain(ended.keys()).copied());
        handover.serve(&mut cx.server);
        for port in reserved {
            cx.server.reserve_again(cx.now, &port);
        }
        for record in ended.into_values() {
            cx.observer.note(cx.now.instant, &Notice::AllocationEnded(record));
        }
        for RefusedAllocation { error, state, progress, .. } in refused.into_values() {
            errors.push(ImportError::Allocation(error));
            cx.server.end_refused(cx.now, Reader::new(&state), error, progress);
        }
        let Self { cx, streams, tcp_relay, .. } = self;
        streams.resume(cx);
        tcp_relay.resume_all(cx, streams);
        self.settle();
        // Clients must be expected before their packets are read.
        self.serve_all_messages();
        self.serve_imported_packets(queued);
        errors
    }

    /// Serves packets of moving clients, before all later packets.
    fn serve_imported_packets(&mut self, queued: Vec<PacketSnapshot>) {
        for packet in queued {
            let Self { cx, streams, dtls, .. } = self;
            match socket_of(&cx.sockets, (streams, dtls), &packet.five_tuple()) {
                Some(socket) => self.serve_queued_packet(&packet.at(socket)),
                // A client without a listener has no allocation.
                None => cx.egress.dropped(DropReason::NoAllocation),
            }
        }
        self.settle();
    }

    /// Updates the progress of imported allocations.
    pub fn set_progress(&mut self, progress: impl IntoIterator<Item = (AllocationId, Progress)>) {
        for (id, progress) in progress {
            match self.handover.import().refused.get_mut(&id) {
                Some(refused) => refused.progress = Some(progress),
                None => self.cx.server.set_progress(id, progress),
            }
        }
    }

    /// Returns the number of allocations.
    pub(crate) fn allocations(&self) -> usize {
        self.cx.server.allocation_count()
    }

    fn note_error(&mut self, imported: Result<(), ImportError>) {
        self.handover.import().errors.extend(imported.err());
    }

    fn import_allocation(
        &mut self,
        allocation: AllocationSnapshot,
        descriptors: &mut Descriptors<N::Descriptor>,
    ) {
        let AllocationSnapshot { id, state, relays, session, given } = allocation;
        let mut before = self.revert_import(id);
        if let Some(session) = session {
            let spread = self.cx.net.random() >> (u64::BITS - RECORDS_SKIPPED_SPREAD);
            let again = u64::from(given.saturating_sub(1)) << RECORDS_SKIPPED_AGAIN;
            let skipped = RECORDS_SKIPPED + spread + again;
            let imported = self.dtls.import(&mut self.cx, &session, skipped);
            self.note_error(imported.map_err(ImportError::Session));
        }
        let relay = |RelaySnapshot { relay, at, own: _, socket }| {
            let new = socket.and_then(|index| descriptors.take(index));
            let socket = new.map(ImportedSocket::Descriptor).or_else(|| {
                let known = before.iter_mut().find(|known| known.relay == relay);
                known.and_then(|known| known.socket.take())
            });
            ImportedRelay { relay, at, socket }
        };
        let relays = relays.into_iter().map(relay).collect();
        self.try_import(id, state.0, relays);
    }

    fn try_import(&mut self, id: AllocationId, state: Vec<u8>, mut relays: Vec<ImportedRelay<N>>) {
        let Self { cx, streams, dtls, handover, .. } = self;
        let socket_of =
            |path: &ClientPath| socket_of(&cx.sockets, (streams, dtls), &path.five_tuple);
        let (protocol, renamed) = match cx.server.import(cx.now, Reader::new(&state), socket_of) {
            Ok(ImportedAllocation { protocol, renamed }) => (protocol, renamed),
            Err(error) => {
                let refused = RefusedAllocation { error, state, relays, progress: None };
                handover.import().refused.insert(id, refused);
                return;
            }
        };
        handover.import().relays.insert(id, renamed);
        let adopted: io::Result<()> =
            renamed.into_iter().flatten().try_for_each(|Renamed { from, to }| {
                let index = relays.iter().position(|one| one.relay == from).ok_or_else(invalid)?;
                self.adopt((protocol, to), relays.swap_remove(index))?;
                self.cx.own_relays(to);
                Ok(())
            });
        if let Err(error) = adopted {
            let cx = &mut self.cx;
            cx.observer.warn(cx.now.instant, Condition::RelaySocket, &error);
            cx.server.end_allocation(cx.now, id, EndReason::SystemExhausted);
        }
        self.settle();
    }

    /// Watches the socket of a relay, or adds the relay to a shared socket.
    fn adopt(
        &mut self,
        (protocol, to): (RelayProtocol, RelayId),
        relay: ImportedRelay<N>,
    ) -> io::Result<()> {
        let settings = self.handover.import().settings;
        let Self { cx, tcp_relay, .. } = self;
        let (net, at) = (&cx.net, relay.at);
        let socket = match relay.socket {
            None if to.is_shared() => return cx.sockets.share(to, at),
            Some(socket) if !to.is_shared() => socket,
            Some(_) | None => return Err(invalid()),
        };
        match socket {
            ImportedSocket::Listener(listener) => tcp_relay.adopt(net, to, at, listener),
            ImportedSocket::Udp(socket) => cx.sockets.adopt_relay(net, to, socket),
            ImportedSocket::Descriptor(descriptor) if protocol == RelayProtocol::Tcp => {
                tcp_relay.adopt(net, to, at, net.open_acceptor(descriptor, &PEER_OPTIONS)?)
            }
            ImportedSocket::Descriptor(descriptor) => {
                let socket = cx.sockets.open_imported(net, descriptor, settings)?;
                if socket.socket.local_addr() != at {
                    return Err(invalid());
                }
                cx.sockets.adopt_relay(net, to, socket)
            }
        }
    }

    /// Removes an allocation, if imported, and returns the allocation's relays.
    fn revert_import(&mut self, id: AllocationId) -> Vec<ImportedRelay<N>> {
        let import = self.handover.import();
        import.ended.remove(&id);
        if let Some(refused) = import.refused.remove(&id) {
            return refused.relays;
        }
        let Some(renamed) = import.relays.remove(&id) else { return Vec::new() };
        self.cx.server.revert_import(id);
        self.settle();
        let Self { cx, tcp_relay, .. } = self;
        let relay = |Renamed { from: relay, to }| {
            if let Some(listener) = tcp_relay.take(&cx.net, to) {
                let (at, socket) =
                    (listener.local_addr(), Some(ImportedSocket::Listener(listener)));
                return Some(ImportedRelay { relay, at, socket });
            }
            let (at, socket) = cx.sockets.remove_relay(&cx.net, to)?;
            Some(ImportedRelay { relay, at, socket: socket.map(ImportedSocket::Udp) })
        };
        renamed.into_iter().flatten().filter_map(relay).collect()
    }
}

/// Returns the error for a socket that does not belong to the relay.
fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}
