//! DTLS: clients are asked for a cookie, associations begin, are served, and end (RFC 6347, RFC 7350).
//!
//! A datagram for DTLS is one that the server takes neither for STUN nor for ChannelData, and whose first
//! byte says so (RFC 7983). Such datagrams are put aside and served when the rest of the batch has been:
//! what is in them is decrypted into a message of the batch, so that payload is sent on from there.

use std::convert::Infallible;
use std::ops::Range;

use control::{AssociationEnd, AssociationRefusal, Fate, HelloAnswer, Leg, Series};
use linux_net::Flow;
use turn_proto::DropReason;
use turn_session::dtls::{
    ANSWER_MAX, Answer, DtlsConfig, DtlsEnd, Ends, First, NotHello, begins_handshake,
};
use turn_types::{ClientPath, FiveTuple, Instant, Marks, SocketId, Transport};

use crate::admission::{Admitted, NoPlace};
use crate::associations::Association;
use crate::egress::{Back, Datagram};
use crate::limits::{
    ASSOCIATION_IDLE_FOR, HALF_OPEN_MAX, HANDSHAKE_WITHIN, RESEND_EVERY, SWEEP_ASSOCIATIONS_EVERY,
};
use crate::tally::Sent;
use crate::worker::Worker;

/// A datagram for DTLS, until the batch that it is in has been served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aside {
    /// The socket it came by.
    pub(crate) listener: SocketId,
    pub(crate) datagram: Datagram,
}

const fn end(how: DtlsEnd) -> AssociationEnd {
    match how {
        DtlsEnd::ByClient => AssociationEnd::ByClient,
        DtlsEnd::Failed => AssociationEnd::Failed,
        DtlsEnd::Broken => AssociationEnd::Broken,
    }
}

impl Worker {
    /// Serves the datagrams that were put aside.
    pub(crate) fn serve_dtls(&mut self) {
        if self.aside.is_empty() {
            return;
        }
        let mut aside = std::mem::take(&mut self.aside);
        // One message is from one client.
        for message in aside.chunk_by(|one, next| one.datagram.message == next.datagram.message) {
            self.serve_message(message);
        }
        aside.clear();
        self.aside = aside;
    }

    /// Serves what came in one message: hellos first, so that the others find the association that they
    /// are for.
    fn serve_message(&mut self, aside: &[Aside]) {
        let Some(&Aside { listener: from, datagram: Datagram { message, .. } }) = aside.first()
        else {
            return;
        };
        let Some(listener) = self.sockets.listener(from) else { return };
        let received = self.rx.message(message);
        let mut path = listener.path(from, &received);
        let back = listener.flow_back(&path);
        path.five_tuple.transport = Transport::Dtls;
        let addresses = (path.five_tuple.client.0, path.five_tuple.server.0);
        let data = received.data;
        let mut known = self.associations.find(&addresses);
        let mut records = std::mem::take(&mut self.records);
        records.clear();
        let mut hellos = Vec::new();
        for Aside { datagram: Datagram { start, len, .. }, .. } in aside {
            let range = *start..start + len;
            if begins_handshake(&data[range.clone()]) {
                hellos.push(range);
            } else {
                records.push(range);
            }
        }
        for range in hellos {
            known = self.take_hello((message, range), &path, (from, back), known);
        }
        match known {
            _ if records.is_empty() => {}
            Some(id) => self.take_records(message, &records, id),
            None => {
                let stray = Series::Drop(DropReason::DtlsStray);
                self.observer.count(stray, records.len() as u64);
            }
        }
        self.records = records;
    }

    /// Takes a hello in the clear. Returns the association that there is now.
    fn take_hello(
        &mut self,
        (message, range): (usize, Range<usize>),
        path: &ClientPath,
        (listener, back): (SocketId, Flow),
        known: Option<SocketId>,
    ) -> Option<SocketId> {
        let Some(config) = self.dtls.take() else { return known };
        let found = self.take_hello_by(&config, (message, range), path, (listener, back), known);
        self.dtls = Some(config);
        found
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "by which rules, what, from whom, and what is known"
    )]
    fn take_hello_by(
        &mut self,
        config: &DtlsConfig,
        (message, range): (usize, Range<usize>),
        path: &ClientPath,
        (listener, back): (SocketId, Flow),
        known: Option<SocketId>,
    ) -> Option<SocketId> {
        if !config.can_serve() {
            self.egress.dropped(DropReason::NotStun);
            return known;
        }
        let mut answer = [0; ANSWER_MAX];
        let ends = Ends { client: path.five_tuple.client.0, server: path.five_tuple.server.0 };
        let since = self.now.instant.saturating_since(Instant::ZERO);
        let datagram = &self.rx.message(message).data[range.clone()];
        let hello = match config.front().take(datagram, ends, since, &mut answer) {
            First::Verified(hello) => hello,
            First::Answer(len, what) => {
                let what = match what {
                    Answer::Cookie => HelloAnswer::Cookie,
                    Answer::Version => HelloAnswer::Version,
                };
                self.observer.count(Series::HellosAnswered(what), 1);
                self.observer.count(Series::Fate(Fate::Dtls), 1);
                self.egress.datagram(back, &answer[..len], Sent::Dtls, (&self.rx, &self.sockets));
                return known;
            }
            First::Dropped(NotHello::Piece) => {
                self.egress.dropped(DropReason::DtlsHelloInPieces);
                return known;
            }
            // One that cannot be read is nobody's.
            First::Dropped(NotHello::Malformed | NotHello::Other) => {
                self.egress.dropped(DropReason::DtlsMalformed);
                return known;
            }
        };
        let again = |association: &mut Association| association.random == *hello.random();
        if known.and_then(|id| self.associations.get_mut(id)).is_some_and(again) {
            // What it was answered is sent again by the clock, if it is needed.
            self.observer.count(Series::Fate(Fate::Dtls), 1);
            return known;
        }
        let random = *hello.random();
        let engine = config.begin(&hello).map_err(|_| AssociationRefusal::Resources);
        let begun = engine.and_then(|engine| {
            let place = self.place_for(path, known)?;
            let id = self.associations.next_id().ok_or(AssociationRefusal::Total)?;
            Ok((id, place, engine))
        });
        let (id, place, engine) = match begun {
            Ok(begun) => begun,
            Err(why) => {
                self.observer.count(Series::AssociationsRefused(why), 1);
                self.egress.dropped(DropReason::DtlsNoPlace);
                return self.associations.find(&(ends.client, ends.server));
            }
        };
        self.observer.count(Series::AssociationsBegun, 1);
        let path = ClientPath { socket: id, ..*path };
        let now = self.now.instant;
        self.associations.insert(Association::new(engine, path, listener, random, now, place));
        let resend_at = now + RESEND_EVERY;
        self.sweep_associations_at =
            Some(self.sweep_associations_at.map_or(resend_at, |at| at.min(resend_at)));
        self.take_records(message, std::slice::from_ref(&range), id);
        Some(id)
    }

    /// A place for an association. The client's previous one ends: it has shown by the cookie that it is
    /// there and has begun anew (RFC 6347 §4.2.8).
    fn place_for(
        &mut self,
        path: &ClientPath,
        known: Option<SocketId>,
    ) -> Result<Admitted, AssociationRefusal> {
        if let Some(id) = known {
            self.end_association(id, AssociationEnd::Replaced);
        }
        if self.associations.half_open() >= HALF_OPEN_MAX
            && let Some(oldest) = self.associations.oldest_half_open()
        {
            self.end_association(oldest, AssociationEnd::CrowdedOut);
        }
        self.dtls_admission.admit(path.five_tuple.client.0.ip()).map_err(|why| match why {
            NoPlace::Total => AssociationRefusal::Total,
            NoPlace::Address => AssociationRefusal::Address,
        })
    }

    /// Hands records to an association, and what is in them to the server.
    fn take_records(&mut self, message: usize, records: &[Range<usize>], id: SocketId) {
        let Some((association, exchange)) = self.associations.with_exchange(id) else { return };
        let path = association.path;
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let mut ended = None;
        // Records that brought nothing, records that went no further, and data beyond one of each record.
        let (mut empty, mut refused, mut more) = (0, 0, 0);
        let received = self.rx.message(message);
        let marks = received.marks;
        // What is read into the batch cannot be read from it at the same time.
        let ciphertext = &mut self.scratch[..received.data.len()];
        ciphertext.copy_from_slice(received.data);
        let filled = self.rx.fill(path.five_tuple.client.0, |room| {
            let mut at = 0;
            for range in records {
                let record = &ciphertext[range.clone()];
                if ended.is_some() || association.engine.take(record, exchange).is_err() {
                    refused += 1;
                    continue;
                }
                let before = plain.len();
                loop {
                    match association.engine.read(&mut room[at..], exchange) {
                        Ok(Some(len)) => {
                            plain.push(at..at + len);
                            at += len;
                        }
                        Ok(None) => break,
                        Err(how) => {
                            ended = Some(how);
                            break;
                        }
                    }
                }
                let brought = plain.len() - before;
                empty += u64::from(brought == 0);
                more += brought.saturating_sub(1) as u64;
            }
            Ok::<_, Infallible>(at)
        });
        let Ok(filled) = filled;
        self.observer.count(Series::Fate(Fate::Dtls), empty);
        self.observer.count(Series::Drop(DropReason::DtlsRefused), refused);
        // Each has a fate of its own.
        self.observer.count(Series::Packets(Leg::FromClients), more);
        if !plain.is_empty() {
            association.heard = self.now.instant;
        }
        if association.engine.is_established() && self.associations.establish(id) {
            self.observer.count(Series::AssociationsEstablished, 1);
        }
        self.send_exchange(id);
        if let Some(message) = filled {
            for range in &plain {
                self.serve_plain((message, range.clone()), &path, marks);
            }
        }
        self.plain = plain;
        self.settle(self.now);
        if let Some(how) = ended {
            self.end_association(id, end(how));
        }
    }

    /// Serves what was in one record.
    fn serve_plain(
        &mut self,
        (message, range): (usize, Range<usize>),
        path: &ClientPath,
        marks: Marks,
    ) {
        self.egress.make_room(&self.rx, &self.sockets);
        let packet = &self.rx.message(message).data[range.clone()];
        let reply = self.egress.reply_buffer();
        let verdict = self.server.handle_client(self.now, path, marks, packet, reply);
        let datagram = Datagram { message, start: range.start, len: range.len() };
        let back = Back::Association((&mut self.associations, &self.sockets), path.socket);
        self.egress.client_packet(verdict, datagram, back);
    }

    /// Sends what an association has to say for itself.
    fn send_exchange(&mut self, id: SocketId) {
        let Some((association, exchange)) = self.associations.with_exchange(id) else { return };
        if let Some(flow) = association.flow(&self.sockets, Marks::DEFAULT) {
            for datagram in exchange.datagrams() {
                self.egress.datagram(flow, datagram, Sent::Dtls, (&self.rx, &self.sockets));
            }
        }
        exchange.clear();
    }

    /// Ends an association and what the client has by it.
    fn end_association(&mut self, id: SocketId, how: AssociationEnd) {
        let Some((association, exchange)) = self.associations.with_exchange(id) else { return };
        // Who begins anew does not know the old keys any more.
        if how != AssociationEnd::Replaced {
            association.engine.close(exchange);
            self.send_exchange(id);
        }
        let Some(association) = self.associations.remove(id) else { return };
        let FiveTuple { client, server, .. } = association.path.five_tuple;
        let seconds = self.now.instant.saturating_since(association.began).as_secs();
        self.observer.association_ended((client, server), how, seconds);
        self.server.close(self.now, &association.path.five_tuple);
        self.settle(self.now);
    }

    /// Has handshakes go on that wait, and ends associations that have had their time.
    pub(crate) fn sweep_associations(&mut self) {
        let now = self.now.instant;
        for id in self.associations.half_open_ids() {
            let Some((association, exchange)) = self.associations.with_exchange(id) else {
                continue;
            };
            let went_on = if now.saturating_since(association.began) >= HANDSHAKE_WITHIN {
                Err(AssociationEnd::NotCompleted)
            } else {
                association.engine.resend(exchange).map_err(end)
            };
            match went_on {
                Ok(()) => self.send_exchange(id),
                Err(how) => self.end_association(id, how),
            }
        }
        if self.look_for_idle_at <= now {
            self.look_for_idle_at = now + SWEEP_ASSOCIATIONS_EVERY;
            self.end_idle();
        }
        self.sweep_associations_at = if self.associations.half_open() > 0 {
            Some(now + RESEND_EVERY)
        } else {
            (self.associations.len() > 0).then_some(self.look_for_idle_at)
        };
    }

    /// Nobody is told of a client that has gone: one without an allocation is forgotten.
    fn end_idle(&mut self) {
        let now = self.now.instant;
        let silent = self.associations.iter().filter(|association| {
            association.established
                && now.saturating_since(association.heard) >= ASSOCIATION_IDLE_FOR
        });
        let silent: Vec<_> = silent.map(|association| association.path).collect();
        for path in silent {
            if !self.server.serves(&path.five_tuple) {
                self.end_association(path.socket, AssociationEnd::Idle);
            }
        }
    }

    /// Ends all associations: the server ends.
    pub(crate) fn end_associations(&mut self) {
        let ids: Vec<_> =
            self.associations.iter().map(|association| association.path.socket).collect();
        for id in ids {
            self.end_association(id, AssociationEnd::Shutdown);
        }
    }
}
