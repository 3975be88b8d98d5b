//! Records of sessions: decrypted into the receive batch, encrypted into the transmit batch.

use std::convert::Infallible;
use std::ops::Range;

use control::{AssociationEnd, Fate, Histogram, Leg, Series};
use turn_proto::DropReason;
use turn_session::dtls::{DtlsEnd, Exchange, PLAINTEXT_MAX};
use turn_types::{ClientPath, IpMeta, SocketId};

use super::Dtls;
use super::queue::Part;
use super::sessions::Session;
use crate::context::{Context, Message, Output};
use crate::egress::Datagram;
use crate::handshake_budget::{NoTime, Step};
use crate::io::Net;
use crate::report::Sent;

/// Result of decrypting records.
#[derive(Default)]
struct Decrypted {
    /// Number of bytes written.
    len: usize,
    /// Number of datagrams without data.
    empty: u64,
    /// Number of refused datagrams, and of datagrams with only repeated or forged records.
    refused: u64,
    /// Number of pieces of data in excess of one piece per datagram.
    more: u64,
    ended: Option<DtlsEnd>,
}

pub(super) const fn session_end(end: DtlsEnd) -> AssociationEnd {
    match end {
        DtlsEnd::ByClient => AssociationEnd::ByClient,
        DtlsEnd::Failed => AssociationEnd::Failed,
        DtlsEnd::Broken => AssociationEnd::Broken,
        DtlsEnd::KeysUsedUp => AssociationEnd::KeysUsedUp,
    }
}

impl Dtls {
    /// Passes records to a session. During the session's handshake, processing is limited to the
    /// time for handshakes.
    pub(super) fn take_records_within_share<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        message: usize,
        records: &[Range<usize>],
        id: SocketId,
    ) {
        let Some(session) = self.sessions.get_mut(id) else {
            // The session ended while the records waited.
            let stray = Series::Drop(DropReason::DtlsStray);
            return cx.observer.count(stray, records.len() as u64);
        };
        if session.established {
            return self.take_records(cx, message, records, id);
        }
        let five_tuple = session.path.five_tuple;
        let client = five_tuple.client.0.ip();
        let is_by_customer = self.settings.admission.is_by_customer();
        match cx.begin_handshake(client, Step::Continue, is_by_customer) {
            Ok(work) => {
                self.take_records(cx, message, records, id);
                cx.end_handshake(work);
            }
            Err(NoTime::Turn) => {
                for range in records {
                    let at = (message, range.clone());
                    self.queue_handshake(cx, five_tuple, Part::Records(id), at);
                }
            }
            Err(NoTime::Share) => {
                cx.warn_of_handshakes(client, NoTime::Share);
                let busy = Series::Drop(DropReason::DtlsBusy);
                cx.observer.count(busy, records.len() as u64);
            }
        }
    }

    /// Passes records to a session, and the contents of the records to the server.
    pub(super) fn take_records<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        message: usize,
        records: &[Range<usize>],
        id: SocketId,
    ) {
        let Some((session, exchange)) = self.sessions.with_exchange(id) else { return };
        let (path, was_established) = (session.path, session.established);
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let received = cx.rx.message(message);
        let meta = received.meta;
        // The batch cannot be read and filled concurrently.
        let ciphertext = &mut cx.scratch[..received.data.len()];
        ciphertext.copy_from_slice(received.data);
        let mut done = Decrypted::default();
        let filled = cx.rx.fill(path.five_tuple.client.0, |room| {
            let records = records.iter().map(|range| &ciphertext[range.clone()]);
            done = decrypt(session, exchange, records, (room, &mut plain));
            Ok::<_, Infallible>(done.len)
        });
        let Ok(filled) = filled;
        cx.observer.count(Series::Fate(Fate::Dtls), done.empty);
        cx.observer.count(Series::Drop(DropReason::DtlsRefused), done.refused);
        // Each piece has a separate fate.
        cx.observer.count(Series::Packets(Leg::FromClients), done.more);
        if !plain.is_empty() {
            session.last_record = cx.now.instant;
        }
        if !was_established {
            self.check_handshake(cx, id);
        }
        self.send_exchange(cx, id);
        if let Some(message) = filled {
            for range in &plain {
                self.serve_plain(cx, (message, range.clone()), &path, meta);
            }
        }
        self.plain = plain;
        if let Some(end) = done.ended {
            self.end(cx, id, session_end(end));
        }
    }

    /// Marks a session as established after the handshake.
    pub(super) fn check_handshake<N: Net>(&mut self, cx: &mut Context<N>, id: SocketId) {
        let is_established = |session: &mut Session| session.engine.is_established();
        if !self.sessions.get_mut(id).is_some_and(is_established) || !self.sessions.establish(id) {
            return;
        }
        let Some(session) = self.sessions.get_mut(id) else { return };
        if let Some(name) = session.engine.server_name() {
            cx.server.set_server_name(session.path.five_tuple, name);
        }
        cx.observer.count(Series::AssociationsEstablished, 1);
        let time = cx.now.instant.saturating_since(session.began);
        cx.observer.record_time(Histogram::DtlsHandshake, time);
    }

    /// Serves the content of one record.
    fn serve_plain<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        (message, range): (usize, Range<usize>),
        path: &ClientPath,
        meta: IpMeta,
    ) {
        cx.make_room();
        let packet = &cx.rx.message(message).data[range.clone()];
        let verdict = cx.server.handle_client(cx.now, path, meta, packet, &mut cx.reply);
        let datagram = Datagram { message, start: range.start, len: range.len() };
        if let Some(reply) = cx.egress.client_verdict(verdict, datagram, &cx.sockets) {
            let Context { egress, rx, sockets, reply: bytes, .. } = cx;
            let message = Message::plain(&bytes[..reply.len], reply.sent);
            self.send(Output { egress, rx, sockets }, path.socket, message);
        }
    }

    /// Sends the datagrams that the session's engine has produced: handshake messages and alerts.
    pub(super) fn send_exchange<N: Net>(&mut self, cx: &mut Context<N>, id: SocketId) {
        let Some((session, exchange)) = self.sessions.with_exchange(id) else { return };
        if let Some(flow) = session.flow(&cx.sockets, IpMeta::DEFAULT) {
            for datagram in exchange.datagrams() {
                cx.egress.datagram(flow, &[datagram], Sent::Dtls, (&cx.rx, &cx.sockets));
            }
        }
        exchange.clear();
    }

    /// Encrypts a message, and sends the records to the client of a session.
    pub(crate) fn send<N: Net>(
        &mut self,
        output: Output<'_, N>,
        to: SocketId,
        message: Message<'_>,
    ) {
        let Output { egress, rx, sockets } = output;
        let Message { pieces, meta, sent } = message;
        let mut plain = std::mem::take(&mut self.sessions.plain);
        plain.clear();
        pieces.iter().for_each(|piece| plain.extend_from_slice(piece));
        if let Some((session, exchange)) = self.sessions.with_exchange(to)
            && let Some(flow) = session.flow(sockets, meta)
        {
            if session.engine.write(&plain, exchange).is_err() {
                let is_too_long = plain.len() > PLAINTEXT_MAX;
                egress.unsent(
                    sent,
                    if is_too_long { DropReason::TooLong } else { DropReason::StreamClosed },
                );
            }
            for record in exchange.datagrams() {
                egress.datagram(flow, &[record], sent, (rx, sockets));
            }
            exchange.clear();
        } else {
            egress.unsent(sent, DropReason::StreamClosed);
        }
        self.sessions.plain = plain;
    }
}

/// Writes the contents of records into `room`, and the ranges of these contents into `plain`.
fn decrypt<'a>(
    session: &mut Session,
    exchange: &mut Exchange,
    records: impl Iterator<Item = &'a [u8]>,
    (room, plain): (&mut [u8], &mut Vec<Range<usize>>),
) -> Decrypted {
    let mut done = Decrypted::default();
    for record in records {
        if done.ended.is_some() || session.engine.take(record, exchange).is_err() {
            done.refused += 1;
            continue;
        }
        let before = plain.len();
        loop {
            match session.engine.read(&mut room[done.len..], exchange) {
                Ok(Some(len)) => {
                    plain.push(done.len..done.len + len);
                    done.len += len;
                }
                Ok(None) => break,
                Err(end) => {
                    done.ended = Some(end);
                    break;
                }
            }
        }
        let pieces = plain.len() - before;
        match (pieces, exchange.take_discarded()) {
            (0, 0) => done.empty += 1,
            (0, _) => done.refused += 1,
            _ => {}
        }
        done.more += pieces.saturating_sub(1) as u64;
    }
    done
}
