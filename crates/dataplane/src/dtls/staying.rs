//! Sessions that stay here while the next process serves, and datagrams for those of processes
//! before.

use std::ops::Range;

use control::{AssociationEnd, Fate, Leg, Series};
use linux_net::Received;
use turn_proto::{DropReason, Server};
use turn_types::{ClientPath, IpMeta, SocketId};

use super::Dtls;
use crate::context::Context;
use crate::earlier::{HEADER, Passed, ends};
use crate::inheritance::StayingSession;
use crate::io::{ConduitIo as _, Net};

impl Dtls {
    /// Has the sessions stay that have an allocation, and returns them. This process makes no new
    /// ones, so that others have nothing to stay for.
    pub(crate) fn keep_allocated(&mut self, server: &mut Server) -> Vec<StayingSession> {
        let mut staying = Vec::new();
        for session in self.sessions.iter_mut() {
            let path = session.path;
            session.stays = server.serves(&path.five_tuple);
            if session.stays {
                let (client, server) = ends(&path.five_tuple);
                staying.push(StayingSession { client, server, number: path.socket });
            }
        }
        staying
    }

    /// Passes datagrams on that are for no session of this process.
    pub(super) fn pass_on<N: Net>(
        cx: &mut Context<N>,
        message: usize,
        records: &[Range<usize>],
        path: &ClientPath,
    ) {
        let Context { net, earlier, rx, observer, .. } = cx;
        let received = rx.message(message);
        for range in records {
            let datagram = &received.data[range.clone()];
            let series = match earlier.pass(net, &path.five_tuple, received.meta, datagram) {
                Passed::On => Series::Fate(Fate::PassedOn),
                Passed::Full => Series::Drop(DropReason::SendBufferFull),
                Passed::Unknown => Series::Drop(DropReason::DtlsStray),
            };
            observer.count(series, 1);
        }
    }

    /// Receives datagrams that the next process passes on, as many as there is room for. Returns
    /// false if the way is broken. What is left is reported again.
    pub(crate) fn receive_passed<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        conduit: &N::Conduit,
    ) -> bool {
        while !cx.is_gathering_full() {
            match conduit.receive(&mut cx.scratch) {
                Ok(Some(len)) => self.take_passed(cx, len),
                Ok(None) => break,
                Err(_) => return false,
            }
        }
        true
    }

    /// Serves a datagram that was passed on: so many bytes of the scratch buffer.
    fn take_passed<N: Net>(&mut self, cx: &mut Context<N>, len: usize) {
        let Context { rx, scratch, observer, .. } = cx;
        let Some((header, data)) = scratch[..len].split_first_chunk::<HEADER>() else { return };
        let [a, b, c, d, ttl, tos] = *header;
        let id = SocketId(u32::from_le_bytes([a, b, c, d]));
        if data.is_empty() {
            return self.end(cx, id, AssociationEnd::Replaced);
        }
        observer.count(Series::Packets(Leg::FromClients), 1);
        observer.count(Series::Bytes(Leg::FromClients), data.len() as u64);
        let Some(session) = self.sessions.get_mut(id) else {
            // It ended meanwhile.
            return observer.count(Series::Drop(DropReason::DtlsStray), 1);
        };
        let message = rx.push(&Received {
            from: session.path.five_tuple.client.0,
            to: None,
            meta: IpMeta { ttl, tos, dont_fragment: false },
            segment_size: data.len(),
            data,
            truncated: false,
            kernel_drops: 0,
        });
        let Some(message) = message else { unreachable!("the worker has made room") };
        let whole = 0..data.len();
        self.take_records_within_share(cx, message, std::slice::from_ref(&whole), id);
    }
}
