//! Handshake datagrams that wait for processor time. Each datagram is served in the first iteration
//! with time for the datagram.

use std::convert::Infallible;
use std::ops::Range;

use control::{AssociationRefusal, Fate, Series};
use turn_proto::DropReason;
use turn_types::{ClientPath, FiveTuple};

use super::hello::count_refused;
use super::queue::{Part, Pushed, Waiting};
use super::{ClientHello, Dtls};
use crate::context::Context;
use crate::handshake_budget::{NoTime, Step};
use crate::io::Net;

impl Dtls {
    /// Queues part of a handshake for a later iteration. The fate is counted when the part is
    /// served or dropped.
    pub(super) fn queue_handshake<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        five_tuple: FiveTuple,
        part: Part,
        (message, range): (usize, Range<usize>),
    ) {
        let bytes = &cx.rx.message(message).data[range];
        match self.queue.push(cx.now.instant, five_tuple, part, bytes) {
            Pushed::Queued => {}
            Pushed::Repeated => cx.observer.count(Series::Fate(Fate::Dtls), 1),
            Pushed::Dropped(five_tuple, part) => drop_handshake(cx, &five_tuple, part),
        }
    }

    /// Takes the first waiting datagram, if this iteration has time for the datagram.
    pub(crate) fn next_waiting<N: Net>(&mut self, cx: &mut Context<N>) -> Option<Waiting> {
        let now = cx.now.instant;
        let is_by_customer = self.settings.admission.is_by_customer();
        self.queue.take_first(now, |client, part| {
            let step = match part {
                _ if !is_by_customer => Step::Unshared,
                Part::Hello { .. } => Step::Begin,
                Part::Records(_) => Step::Continue,
            };
            // If the client has no share left, the datagram is served with a refusal.
            cx.handshakes.admit(now, client, step) != Err(NoTime::Turn)
        })
    }

    /// Serves a waiting datagram as if received now. The receive batch must have space.
    pub(crate) fn serve_waiting<N: Net>(&mut self, cx: &mut Context<N>, waiting: &Waiting) {
        let Waiting { five_tuple, part, bytes, .. } = waiting;
        if waiting.is_stale(cx.now.instant) {
            return drop_handshake(cx, five_tuple, *part);
        }
        let filled = cx.rx.fill(five_tuple.client.0, |room| {
            room[..bytes.len()].copy_from_slice(bytes);
            Ok::<_, Infallible>(bytes.len())
        });
        let Ok(filled) = filled;
        let Some(message) = filled else {
            // Not reached, because the batch has space. The datagram is counted nevertheless.
            return drop_handshake(cx, five_tuple, *part);
        };
        let range = 0..bytes.len();
        match *part {
            Part::Hello { listener, .. } => {
                let path = ClientPath { five_tuple: *five_tuple, socket: listener };
                let known = self.sessions.find(five_tuple);
                self.take_hello(cx, &ClientHello { message, range, path, known });
            }
            Part::Records(id) => self.take_records_within_share(cx, message, &[range], id),
        }
    }

    /// Drops all waiting datagrams, because the server stops.
    pub(super) fn drop_queue<N: Net>(&mut self, cx: &mut Context<N>) {
        while let Some(waiting) = self.queue.pop() {
            drop_handshake(cx, &waiting.five_tuple, waiting.part);
        }
    }
}

/// Drops part of a handshake for which no iteration had time.
fn drop_handshake<N: Net>(cx: &mut Context<N>, five_tuple: &FiveTuple, part: Part) {
    cx.warn_of_handshakes(five_tuple.client.0.ip(), NoTime::Turn);
    match part {
        Part::Hello { .. } => count_refused(cx, AssociationRefusal::Busy),
        Part::Records(_) => cx.egress.dropped(DropReason::DtlsBusy),
    }
}
