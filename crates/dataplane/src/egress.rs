//! A verdict becomes a datagram to send, or a number in the counters.

use std::sync::Arc;

use control::{Fate, Series, WorkerCounters};
use linux_net::{ArenaFull, Flow, Part, RxBatch, SendError, SendStats, TxBatch, Warning};
use turn_proto::limits::PADDING_MAX;
use turn_proto::{Answer, DropReason, HEADER_MAX, HeaderBuffer, REPLY_MAX, ReplyBuffer, Verdict};
use turn_session::Outgoing;
use turn_session::dtls::OVERHEAD_MAX;
use turn_types::{ClientAddr, IpMeta, ServerAddr, SocketId};

use crate::associations::{Associations, is_association};
use crate::limits::DATAGRAMS_PER_FLUSH;
use crate::sockets::Sockets;
use crate::streams::{NotTaken, Streams, is_stream};
use crate::tally::{Sent, Tag, Tally};
use crate::token::Token;

/// Gathers what is to be sent. The buffers that the server writes answers and headers into are
/// lent from the transmit batch, so that they are sent from where they were written.
#[derive(Debug)]
pub(crate) struct Egress {
    tx: TxBatch,
    stats: SendStats,
    tally: Tally,
    counters: Arc<WorkerCounters>,
}

/// A datagram received: where its bytes are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    /// The message of the receive batch.
    pub(crate) message: usize,
    /// Where it begins in the message.
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// The way back to a client.
pub(crate) enum Back<'a> {
    Datagram(Flow),
    Stream(&'a mut Streams, SocketId),
    Association((&'a mut Associations, &'a Sockets), SocketId),
}

/// All ways to clients.
pub(crate) struct Ways<'a> {
    pub(crate) sockets: &'a Sockets,
    pub(crate) streams: &'a mut Streams,
    pub(crate) associations: &'a mut Associations,
}

impl Egress {
    pub(crate) fn new(tx: TxBatch, counters: Arc<WorkerCounters>) -> Self {
        Self { tx, stats: SendStats::default(), tally: Tally::default(), counters }
    }

    /// Makes room for one more datagram with all its headers, if need be by sending the others.
    /// To be called before a buffer is borrowed.
    pub(crate) fn make_room(&mut self, rx: &RxBatch, sockets: &Sockets) {
        if self.tx.len() >= DATAGRAMS_PER_FLUSH || self.tx.arena_space(REPLY_ROOM).is_err() {
            self.flush(rx, sockets);
        }
    }

    /// Where the server writes an answer; [`make_room`](Self::make_room) comes first.
    pub(crate) fn reply_buffer(&mut self) -> &mut ReplyBuffer {
        self.lend::<REPLY_MAX>()
    }

    /// Where the server writes a header; [`make_room`](Self::make_room) comes first.
    pub(crate) fn header_buffer(&mut self) -> &mut HeaderBuffer {
        self.lend::<HEADER_MAX>()
    }

    fn lend<const LEN: usize>(&mut self) -> &mut [u8; LEN] {
        let space = self.tx.arena_space(LEN).ok().and_then(|space| space.first_chunk_mut());
        space.expect("make_room has just left room for the larger of the two")
    }

    /// Carries out the verdict on a client's datagram. `back` leads to the client.
    pub(crate) fn client_packet(
        &mut self,
        verdict: Verdict,
        datagram: Datagram,
        (sockets, back): (&Sockets, Back<'_>),
    ) {
        match verdict {
            Verdict::Reply { len, error } => self.reply(back, len, error),
            Verdict::ReplyFrom { len, padding, from, to_port } => {
                let Back::Datagram(back) = back else {
                    unreachable!("only answers to datagrams come from elsewhere");
                };
                let to = ClientAddr((back.to.ip(), to_port).into());
                self.reply_from(sockets, (from, to), (len, padding));
            }
            Verdict::ToPeer { relay, peer, start, len, meta } => {
                let socket = Token::Relay(relay).send_socket();
                let flow = Flow { socket, to: peer.0, from: None, meta };
                let start = datagram.start + usize::from(start);
                let len = usize::from(len);
                self.push(
                    flow,
                    &[Part::Rx { message: datagram.message, start, len }],
                    Sent::ToPeer,
                );
            }
            Verdict::Wait | Verdict::Hold => self.counters.add(Series::Fate(Fate::Waited), 1),
            // It has its fate when it is handed in again.
            Verdict::Queued => {}
            Verdict::Drop(reason) => self.dropped(reason),
            Verdict::ToClient { .. } => unreachable!("clients reach each other through relays"),
        }
    }

    /// The same for a client's packet that is in no message of the receive batch.
    pub(crate) fn client_bytes(
        &mut self,
        verdict: Verdict,
        bytes: &[u8],
        (rx, sockets, back): (&RxBatch, &Sockets, Back<'_>),
    ) {
        let Verdict::ToPeer { relay, peer, start, len, meta } = verdict else {
            let nowhere = Datagram { message: 0, start: 0, len: 0 };
            return self.client_packet(verdict, nowhere, (sockets, back));
        };
        let socket = Token::Relay(relay).send_socket();
        let flow = Flow { socket, to: peer.0, from: None, meta };
        let payload = &bytes[usize::from(start)..usize::from(start) + usize::from(len)];
        self.datagram(flow, payload, Sent::ToPeer, (rx, sockets));
    }

    /// Carries out the verdict on a peer's datagram.
    pub(crate) fn peer_packet(
        &mut self,
        verdict: Verdict,
        datagram: Datagram,
        rx: &RxBatch,
        ways: Ways<'_>,
    ) {
        let Ways { sockets, streams, associations } = ways;
        match verdict {
            Verdict::ToClient { socket, .. } if has_connection(socket) => {
                let Datagram { message, start, len } = datagram;
                let data = &rx.message(message).data[start..start + len];
                self.peer_bytes(verdict, data, rx, Ways { sockets, streams, associations });
            }
            Verdict::ToClient { socket, client, from, header, padding, meta } => {
                let Some(listener) = sockets.listener(socket) else {
                    unreachable!("the server names sockets by which clients came");
                };
                let flow = listener.flow(socket, client, from, meta);
                let header = self.tx.arena_commit(usize::from(header));
                let Datagram { message, start, len } = datagram;
                let data = Part::Rx { message, start, len };
                match self.zeros(usize::from(padding)) {
                    Some(padding) => self.push(flow, &[header, data, padding], Sent::ToClient),
                    None => self.push(flow, &[header, data], Sent::ToClient),
                }
            }
            Verdict::Drop(reason) => self.dropped(reason),
            Verdict::Reply { .. }
            | Verdict::ReplyFrom { .. }
            | Verdict::ToPeer { .. }
            | Verdict::Wait
            | Verdict::Hold
            | Verdict::Queued => {
                unreachable!("peers speak no STUN with us")
            }
        }
    }

    /// The same where the client has a connection, wherever the data is.
    pub(crate) fn peer_bytes(
        &mut self,
        verdict: Verdict,
        data: &[u8],
        rx: &RxBatch,
        Ways { sockets, streams, associations }: Ways<'_>,
    ) {
        match verdict {
            Verdict::ToClient { socket, header, padding, .. } if is_stream(socket) => {
                let Self { tx, counters, .. } = self;
                let header = written(tx, usize::from(header));
                let padding = &ZEROS[..usize::from(padding)];
                queue(streams, socket, [header, data, padding], (Sent::ToClient, counters));
            }
            Verdict::ToClient { socket, header, padding, meta, .. } if is_association(socket) => {
                let header = written(&mut self.tx, usize::from(header));
                let padding = &ZEROS[..usize::from(padding)];
                associations.plain.clear();
                for part in [header, data, padding] {
                    associations.plain.extend_from_slice(part);
                }
                if self.tx.arena_space(associations.plain.len() + OVERHEAD_MAX).is_err() {
                    self.flush(rx, sockets);
                }
                self.secured((associations, sockets), socket, meta, Sent::ToClient);
            }
            Verdict::Drop(reason) => self.dropped(reason),
            // It was a connection's when it came, and has moved to a socket.
            Verdict::ToClient { socket, client, from, header, padding, meta } => {
                let Some(listener) = sockets.listener(socket) else {
                    unreachable!("the server names sockets by which clients came");
                };
                let flow = listener.flow(socket, client, from, meta);
                associations.plain.clear();
                let header = written(&mut self.tx, usize::from(header));
                for part in [header, data, &ZEROS[..usize::from(padding)]] {
                    associations.plain.extend_from_slice(part);
                }
                self.datagram(flow, &associations.plain, Sent::ToClient, (rx, sockets));
            }
            Verdict::Reply { .. }
            | Verdict::ReplyFrom { .. }
            | Verdict::ToPeer { .. }
            | Verdict::Wait
            | Verdict::Hold
            | Verdict::Queued => {
                unreachable!("peers speak no STUN with us")
            }
        }
    }

    /// Sends what the server has written into the reply buffer for this answer.
    pub(crate) fn answer(
        &mut self,
        answer: Answer,
        sent: Sent,
        Ways { sockets, streams, associations }: Ways<'_>,
    ) {
        let len = usize::from(answer.len);
        if is_association(answer.to.socket) {
            associations.plain.clear();
            associations.plain.extend_from_slice(written(&mut self.tx, len));
            let ways = (associations, sockets);
            self.secured(ways, answer.to.socket, IpMeta::DEFAULT, sent);
            return;
        }
        if is_stream(answer.to.socket) {
            let Self { tx, counters, .. } = self;
            let answered = written(tx, usize::from(answer.len));
            queue(streams, answer.to.socket, [answered, &[], &[]], (sent, counters));
            return;
        }
        let Some(listener) = sockets.listener(answer.to.socket) else {
            unreachable!("the server names sockets by which clients came");
        };
        let part = self.tx.arena_commit(usize::from(answer.len));
        self.push(listener.flow_back(&answer.to), &[part], sent);
    }

    /// Counts a datagram, or an ICMP error, for which nothing is sent.
    pub(crate) fn dropped(&self, reason: DropReason) {
        self.counters.add(Series::Drop(reason), 1);
    }

    /// Sends what was gathered, and counts what became of it.
    pub(crate) fn flush(&mut self, rx: &RxBatch, sockets: &Sockets) {
        if self.tx.is_empty() {
            return;
        }
        let Self { tx, stats, tally, counters } = self;
        tx.flush(rx, sockets, stats, |tag, error| {
            tally.refused(Tag::of(tag), reason(error), counters);
        });
        tally.publish(counters);
    }

    pub(crate) const fn stats(&self) -> &SendStats {
        &self.stats
    }

    pub(crate) fn take_warning(&mut self) -> Option<Warning> {
        self.tx.take_warnings()
    }

    fn reply(&mut self, back: Back<'_>, len: u16, error: bool) {
        let (len, sent) = (usize::from(len), if error { Sent::ErrorReply } else { Sent::Reply });
        match back {
            Back::Datagram(back) => {
                debug_assert_eq!(
                    back.meta,
                    IpMeta::DEFAULT,
                    "answers carry no header fields of the request"
                );
                let part = self.tx.arena_commit(len);
                self.push(back, &[part], sent);
            }
            Back::Stream(streams, id) => {
                let Self { tx, counters, .. } = self;
                queue(streams, id, [written(tx, len), &[], &[]], (sent, counters));
            }
            Back::Association((associations, sockets), id) => {
                associations.plain.clear();
                associations.plain.extend_from_slice(written(&mut self.tx, len));
                self.secured((associations, sockets), id, IpMeta::DEFAULT, sent);
            }
        }
    }

    /// Sends a datagram that is ready.
    pub(crate) fn datagram(
        &mut self,
        flow: Flow,
        bytes: &[u8],
        sent: Sent,
        (rx, sockets): (&RxBatch, &Sockets),
    ) {
        if self.tx.len() >= DATAGRAMS_PER_FLUSH || self.tx.arena_space(bytes.len()).is_err() {
            self.flush(rx, sockets);
        }
        self.push_copy(flow, bytes, sent);
    }

    /// Sends `associations.plain` to the client of one of them, encrypted. There is room.
    fn secured(
        &mut self,
        (associations, sockets): (&mut Associations, &Sockets),
        id: SocketId,
        meta: IpMeta,
        sent: Sent,
    ) {
        let plain = std::mem::take(&mut associations.plain);
        if let Some((association, exchange)) = associations.with_exchange(id)
            && let Some(flow) = association.flow(sockets, meta)
        {
            if association.engine.write(&plain, exchange).is_err() {
                self.counters.add(sent.refused(DropReason::TooLong), 1);
            }
            for record in exchange.datagrams() {
                self.push_copy(flow, record, sent);
            }
            exchange.clear();
        } else {
            self.counters.add(sent.refused(DropReason::AssociationClosed), 1);
        }
        associations.plain = plain;
    }

    fn push_copy(&mut self, flow: Flow, bytes: &[u8], sent: Sent) {
        match self.tx.arena_write(bytes) {
            Ok(part) => self.push(flow, &[part], sent),
            // Room was made for it, so not reached; counted all the same.
            Err(ArenaFull) => self.counters.add(sent.refused(DropReason::SendBufferFull), 1),
        }
    }

    /// Has a message sent on a stream.
    pub(crate) fn to_stream(
        &self,
        streams: &mut Streams,
        id: SocketId,
        parts: [&[u8]; 3],
        sent: Sent,
    ) {
        queue(streams, id, parts, (sent, &self.counters));
    }

    /// Something on a stream has gone whole.
    pub(crate) fn sent(&mut self, tag: u32) {
        self.tally.sending(Tag::of(tag));
    }

    /// Something on a stream will not go.
    pub(crate) fn unsent(&self, tag: u32, reason: DropReason) {
        self.counters.add(Tag::of(tag).sent.refused(reason), 1);
    }

    /// Counts what has gone on streams.
    pub(crate) fn publish(&mut self) {
        self.tally.publish(&self.counters);
    }

    /// Sends an answer from another of our addresses (RFC 5780). It bears no hurry.
    fn reply_from(
        &mut self,
        sockets: &Sockets,
        (from, to): (ServerAddr, ClientAddr),
        (len, padding): (u16, u16),
    ) {
        let Some((id, listener)) = sockets.listener_at(from) else {
            // It could not be bound when the server started, which was said then.
            self.dropped(DropReason::SendRefused);
            return;
        };
        let flow = listener.flow(id, to, from.ip(), IpMeta::DEFAULT);
        let answer = self.tx.arena_commit(usize::from(len));
        let zeros = [0; PADDING_MAX as usize];
        let zeros = zeros.get(..usize::from(padding)).filter(|zeros| !zeros.is_empty());
        match zeros.and_then(|zeros| self.tx.arena_write(zeros).ok()) {
            Some(padding) => self.push(flow, &[answer, padding], Sent::Reply),
            None => self.push(flow, &[answer], Sent::Reply),
        }
    }

    fn zeros(&mut self, len: usize) -> Option<Part> {
        // A DATA attribute is padded with three bytes at most (RFC 8489 §14).
        let zeros = ZEROS.get(..len).filter(|zeros| !zeros.is_empty())?;
        self.tx.arena_write(zeros).ok()
    }

    fn push(&mut self, flow: Flow, parts: &[Part], sent: Sent) {
        let tag = Tag { sent, bytes: parts.iter().map(|part| part.len()).sum() };
        self.tally.sending(tag);
        if self.tx.push(flow, parts, tag.number()).is_err() {
            // Flushed twice as often as a batch is full, so not reached; counted all the same.
            self.tally.refused(tag, DropReason::SendBufferFull, &self.counters);
        }
    }
}

/// Whether a client is not reached by datagrams as they are.
const fn has_connection(socket: SocketId) -> bool {
    is_stream(socket) || is_association(socket)
}

/// The longest answer, encrypted or with the PADDING behind it (RFC 5780).
const REPLY_ROOM: usize = REPLY_MAX
    + if OVERHEAD_MAX > PADDING_MAX as usize { OVERHEAD_MAX } else { PADDING_MAX as usize };

/// Padding: at most three bytes (RFC 8489 §14, RFC 8656 §12.5).
const ZEROS: [u8; 3] = [0; 3];

/// What the server has just written into the buffer that was lent.
fn written(tx: &mut TxBatch, len: usize) -> &[u8] {
    tx.arena_space(len).expect("it was lent a moment ago")
}

/// Puts a message into a stream's queue, and counts what that costs.
fn queue(
    streams: &mut Streams,
    id: SocketId,
    parts: [&[u8]; 3],
    (sent, counters): (Sent, &WorkerCounters),
) {
    let tag = Tag { sent, bytes: parts.iter().map(|part| part.len()).sum() };
    let droppable = matches!(sent, Sent::ToClient | Sent::IcmpReported);
    let message = Outgoing { parts, droppable, tag: tag.number() };
    let lost = |tag| counters.add(Tag::of(tag).sent.refused(DropReason::StreamBacklog), 1);
    let reason = match streams.send(id, message, lost) {
        Ok(()) => return,
        Err(NotTaken::Gone) => DropReason::StreamClosed,
        Err(NotTaken::Stuck) => DropReason::StreamBacklog,
    };
    counters.add(sent.refused(reason), 1);
}

const fn reason(error: SendError) -> DropReason {
    match error {
        SendError::WouldBlock | SendError::NoBuffers => DropReason::SendBufferFull,
        SendError::TooBig => DropReason::TooBigForLink,
        SendError::Closed => DropReason::RelayClosed,
        SendError::Denied | SendError::Unreachable | SendError::Other(_) => DropReason::SendRefused,
    }
}
