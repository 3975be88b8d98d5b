//! State of a paused worker, and the export of this state.

use std::collections::{BTreeSet, HashMap};
use std::io;

use state_format::Bytes;
use turn_proto::QueuedPacket;
use turn_types::AllocationId;

use crate::copying::{CopyIndex, Parts, Shortage};
use crate::io::{Net, Source};
use crate::snapshot::{Export, PacketSnapshot, StreamSnapshot};
use crate::stream::ExportedStream;

/// State of a paused worker.
#[derive(Debug)]
pub(super) struct Pause<N: Net> {
    /// Allocations that the successor has.
    pub(super) index: CopyIndex,
    /// Snapshot that was not sent before the pause.
    pub(super) unsent: Option<Export<N::Descriptor>>,
    /// Exported connections.
    pub(super) streams: Vec<ExportedStream<N>>,
    /// Exported packets of moving clients, oldest first.
    pub(super) queued: Vec<QueuedPacket>,
}

impl<N: Net> Pause<N> {
    /// Exports allocations and connections.
    pub(super) fn export(&mut self, parts: Parts<'_, N>) -> io::Result<Export<N::Descriptor>> {
        let Self { index, unsent, streams, queued } = self;
        let mut export = unsent.take().unwrap_or_else(|| Export::new(parts.worker));
        let mut ids: BTreeSet<AllocationId> = parts.server.take_changed(usize::MAX).collect();
        ids.extend(parts.server.clients().map(|(id, _)| id).filter(|id| !index.contains(*id)));
        let progressed = index.progressed(parts.server).filter(|id| !ids.contains(id));
        let progress = progressed.filter_map(|id| Some((id, parts.server.progress(id)?)));
        export.snapshot.progress = progress.collect();
        if let Some(Shortage { why, .. }) = index.export(&mut export, &parts, ids, None) {
            return Err(why);
        }
        let clients: HashMap<_, _> =
            streams.iter().map(|stream| (stream.id, stream.state.five_tuple())).collect();
        for stream in streams {
            let socket = export.add(parts.net.duplicate(Source::Stream(&stream.socket))?);
            let (state, remote) = (Bytes::of(&stream.state), stream.remote);
            export.snapshot.streams.push(StreamSnapshot { state, remote, socket });
        }
        parts.tcp_relay.export_peers(parts.net, &clients, &mut export)?;
        export.snapshot.queued = queued.iter().map(PacketSnapshot::of).collect();
        export.snapshot.total = index.len() as u64;
        Ok(export)
    }
}
