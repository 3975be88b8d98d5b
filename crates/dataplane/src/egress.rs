//! Datagrams to send: entries of the transmit batch, and a counter for each datagram's fate.

use std::sync::Arc;

use control::{Fate, Series, WorkerCounters};
use linux_net::{Flow, Part, RxBatch, SendError, SendStats, TxBatch, Warning};
use turn_proto::limits::PADDING_MAX;
use turn_proto::{DropReason, HEADER_MAX, HeaderBuffer, REPLY_MAX, ReplyBuffer, Verdict};
use turn_session::dtls::OVERHEAD_MAX;

use crate::io::Net;
use crate::limits::DATAGRAMS_PER_FLUSH;
use crate::report::{BatchSums, Sent, Tag};
use crate::sockets::Sockets;

/// Gatherer of datagrams to send. The buffers for replies and headers belong to the transmit batch,
/// so replies and headers are sent from the memory that the server wrote.
#[derive(Debug)]
pub(crate) struct Egress {
    tx: TxBatch,
    stats: SendStats,
    /// Sums of gathered datagrams that are not sent yet.
    sums: BatchSums,
    /// Sums of messages written on connections.
    written: BatchSums,
    counters: Arc<WorkerCounters>,
}

/// Range of a received datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    /// Index of the message in the receive batch.
    pub(crate) message: usize,
    /// Offset in the message.
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// Reply that the server has written into the reply buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) len: usize,
    pub(crate) sent: Sent,
}

impl Reply {
    pub(crate) fn new(len: u16, error: bool) -> Self {
        let sent = if error { Sent::ErrorReply } else { Sent::Reply };
        Self { len: usize::from(len), sent }
    }
}

impl Egress {
    pub(crate) fn new(tx: TxBatch, counters: Arc<WorkerCounters>) -> Self {
        let (sums, written) = (BatchSums::default(), BatchSums::default());
        Self { tx, stats: SendStats::default(), sums, written, counters }
    }

    /// Provides space for one more datagram with all headers, if necessary by sending the gathered
    /// datagrams. Must be called before a buffer is borrowed.
    pub(crate) fn make_room<N: Net>(&mut self, rx: &RxBatch, sockets: &Sockets<N>) {
        if self.tx.len() >= DATAGRAMS_PER_FLUSH || self.tx.arena_space(REPLY_ROOM).is_err() {
            self.flush(rx, sockets);
        }
    }

    /// Returns the buffer for a reply. The caller must call [`make_room`](Self::make_room) before.
    pub(crate) fn reply_buffer(&mut self) -> &mut ReplyBuffer {
        self.lend::<REPLY_MAX>()
    }

    /// Returns the buffer for a header. The caller must call [`make_room`](Self::make_room) before.
    pub(crate) fn header_buffer(&mut self) -> &mut HeaderBuffer {
        self.lend::<HEADER_MAX>()
    }

    /// Copies the header from the buffer that was borrowed last.
    pub(crate) fn header(&mut self) -> HeaderBuffer {
        *self.header_buffer()
    }

    fn lend<const LEN: usize>(&mut self) -> &mut [u8; LEN] {
        let space = self.tx.arena_space(LEN).ok().and_then(|space| space.first_chunk_mut());
        space.expect("make_room has just left room for the larger of the two")
    }

    /// Executes the verdict on a client's packet in the receive batch. Returns the reply if the
    /// verdict is a reply.
    pub(crate) fn client_verdict<N: Net>(
        &mut self,
        verdict: Verdict,
        datagram: Datagram,
        sockets: &Sockets<N>,
    ) -> Option<Reply> {
        match verdict {
            Verdict::Reply { len, error } => return Some(Reply::new(len, error)),
            Verdict::ToPeer { relay, peer, start, len, meta } => {
                let flow = sockets.flow_to_peer(relay, peer, meta);
                let start = datagram.start + usize::from(start);
                let part = Part::Rx { message: datagram.message, start, len: usize::from(len) };
                self.push(flow, &[part], Sent::ToPeer);
            }
            Verdict::Wait | Verdict::Hold => self.counters.add(Series::Fate(Fate::Waited), 1),
            // Counted when the packet is served again.
            Verdict::Queued => {}
            Verdict::Drop(reason) => self.dropped(reason),
            Verdict::ToClient { .. } | Verdict::ReplyFrom { .. } => {
                unreachable!(
                    "relays are between clients, and only datagrams have replies from elsewhere"
                )
            }
        }
        None
    }

    /// Executes the verdict on a client's packet outside the receive batch. Returns the reply if
    /// the verdict is a reply.
    pub(crate) fn client_bytes<N: Net>(
        &mut self,
        verdict: Verdict,
        packet: &[u8],
        (rx, sockets): (&RxBatch, &Sockets<N>),
    ) -> Option<Reply> {
        let Verdict::ToPeer { relay, peer, start, len, meta } = verdict else {
            let nothing = Datagram { message: 0, start: 0, len: 0 };
            return self.client_verdict(verdict, nothing, sockets);
        };
        let flow = sockets.flow_to_peer(relay, peer, meta);
        let payload = &packet[usize::from(start)..usize::from(start) + usize::from(len)];
        self.datagram(flow, &[payload], Sent::ToPeer, (rx, sockets));
        None
    }

    /// Sends the reply in the buffer that was borrowed last.
    pub(crate) fn reply(&mut self, flow: Flow, reply: Reply) {
        let part = self.tx.arena_commit(reply.len);
        self.push(flow, &[part], reply.sent);
    }

    /// Sends the reply in the buffer that was borrowed last, followed by `padding` zeros (RFC
    /// 5780).
    pub(crate) fn padded_reply(&mut self, flow: Flow, len: u16, padding: u16) {
        let reply = self.tx.arena_commit(usize::from(len));
        let zeros = [0; PADDING_MAX as usize];
        let zeros = zeros.get(..usize::from(padding)).filter(|zeros| !zeros.is_empty());
        match zeros.and_then(|zeros| self.tx.arena_write(zeros).ok()) {
            Some(padding) => self.push(flow, &[reply, padding], Sent::Reply),
            None => self.push(flow, &[reply], Sent::Reply),
        }
    }

    /// Sends a peer's datagram after the header in the buffer that was borrowed last.
    pub(crate) fn peer_data(&mut self, flow: Flow, header: u8, data: Part, padding: u8) {
        let header = self.tx.arena_commit(usize::from(header));
        let zeros = zeros(padding);
        match (!zeros.is_empty()).then(|| self.tx.arena_write(zeros).ok()).flatten() {
            Some(padding) => self.push(flow, &[header, data, padding], Sent::ToClient),
            None => self.push(flow, &[header, data], Sent::ToClient),
        }
    }

    /// Counts a dropped datagram or ICMP error.
    pub(crate) fn dropped(&self, reason: DropReason) {
        self.counters.add(Series::Drop(reason), 1);
    }

    /// Sends the gathered datagrams, and counts their fates.
    pub(crate) fn flush<N: Net>(&mut self, rx: &RxBatch, sockets: &Sockets<N>) {
        if self.tx.is_empty() {
            return;
        }
        let Self { tx, stats, sums, counters, .. } = self;
        N::send(tx, rx, sockets, stats, |tag, error| {
            sums.refused(Tag::of(tag), reason(error), counters);
        });
        sums.publish(counters);
    }

    pub(crate) const fn stats(&self) -> &SendStats {
        &self.stats
    }

    pub(crate) fn take_warning(&mut self) -> Option<Warning> {
        self.tx.take_warnings()
    }

    /// Sends a copy of several consecutive pieces as one datagram.
    pub(crate) fn datagram<N: Net>(
        &mut self,
        flow: Flow,
        pieces: &[&[u8]],
        sent: Sent,
        (rx, sockets): (&RxBatch, &Sockets<N>),
    ) {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        if self.tx.len() >= DATAGRAMS_PER_FLUSH || self.tx.arena_space(len).is_err() {
            self.flush(rx, sockets);
        }
        let Ok(mut space) = self.tx.arena_space(len) else {
            // Not reached, because the space is free. The datagram is counted nevertheless.
            return self.unsent(sent, DropReason::SendBufferFull);
        };
        for piece in pieces {
            let (front, rest) = space.split_at_mut(piece.len());
            front.copy_from_slice(piece);
            space = rest;
        }
        let part = self.tx.arena_commit(len);
        self.push(flow, &[part], sent);
    }

    /// Counts a message that was completely written on a connection.
    pub(crate) fn written(&mut self, tag: u32) {
        self.written.sending(Tag::of(tag));
    }

    /// Counts a message that will not be sent.
    pub(crate) fn unsent(&self, sent: Sent, reason: DropReason) {
        self.counters.add(sent.refused(reason), 1);
    }

    /// Publishes the counts of messages on connections.
    pub(crate) fn publish(&mut self) {
        self.written.publish(&self.counters);
    }

    fn push(&mut self, flow: Flow, parts: &[Part], sent: Sent) {
        let tag = Tag { sent, bytes: parts.iter().map(|part| part.len()).sum() };
        self.sums.sending(tag);
        if self.tx.push(flow, parts, tag.number()).is_err() {
            // Not reached, because the batch is flushed when half full. The datagram is counted
            // nevertheless.
            self.sums.refused(tag, DropReason::SendBufferFull, &self.counters);
        }
    }
}

/// Space for the longest reply, encrypted or followed by PADDING (RFC 5780).
const REPLY_ROOM: usize = REPLY_MAX
    + if OVERHEAD_MAX > PADDING_MAX as usize { OVERHEAD_MAX } else { PADDING_MAX as usize };

/// Returns the padding of a message: at most three bytes (RFC 8489 §14, RFC 8656 §12.5).
pub(crate) fn zeros(padding: u8) -> &'static [u8] {
    const ZEROS: [u8; 3] = [0; 3];
    ZEROS.get(..usize::from(padding)).unwrap_or_default()
}

const fn reason(error: SendError) -> DropReason {
    match error {
        SendError::WouldBlock | SendError::NoBuffers => DropReason::SendBufferFull,
        SendError::TooBig => DropReason::TooBigForLink,
        SendError::Closed => DropReason::RelayClosed,
        SendError::Denied | SendError::Unreachable | SendError::Other(_) => DropReason::SendRefused,
    }
}

#[cfg(test)]
mod tests {
    use control::Leg;
    use linux_net::Waker;
    use turn_types::{IpMeta, RelayId};

    use super::*;
    use crate::io::Kernel;
    use crate::sockets::NetOptions;
    use crate::token::Token;

    /// Gathers a datagram while a connection is written. The datagram is refused afterwards.
    #[test]
    fn messages_on_connections_are_counted_apart_from_gathered_datagrams() {
        let (_waker, wake) = Waker::new().unwrap();
        let net = Kernel::new(wake).unwrap();
        let sockets = Sockets::<Kernel>::new(&net, vec![], vec![], NetOptions::default()).unwrap();
        let (counters, rx) = (Arc::new(WorkerCounters::new()), RxBatch::new(1));
        let mut egress = Egress::new(TxBatch::new(), Arc::clone(&counters));
        let to = "192.0.2.1:9".parse().unwrap();
        let socket = Token::Relay(RelayId(1)).send_socket();
        let flow = Flow { socket, to, from: None, meta: IpMeta::DEFAULT };

        egress.datagram(flow, &[b"data"], Sent::ToPeer, (&rx, &sockets));
        egress.written(Tag { sent: Sent::Reply, bytes: 100 }.number());
        egress.publish();
        assert_eq!(counters.value(Series::Fate(Fate::Reply)), 1);
        assert_eq!(counters.value(Series::Fate(Fate::ToPeer)), 0, "not sent yet");
        egress.flush(&rx, &sockets);
        assert_eq!(counters.value(Series::Drop(DropReason::RelayClosed)), 1);
        let sent = [Leg::ToPeers, Leg::ToClients].map(|leg| counters.value(Series::Bytes(leg)));
        assert_eq!(sent, [0, 100]);
    }
}
