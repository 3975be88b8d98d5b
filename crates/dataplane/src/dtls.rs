//! DTLS: clients are asked for a cookie, associations begin, are served, and end (RFC 6347, RFC 7350).
//!
//! A datagram for DTLS is one that the server takes neither for STUN nor for ChannelData, and whose first
//! byte says so (RFC 7983). Such datagrams are put aside and served when the rest of the batch has been:
//! what is in them is decrypted into a message of the batch, so that payload is sent on from there.

use std::convert::Infallible;
use std::ops::Range;

use control::{AssociationEnd, AssociationRefusal, Fate, HelloAnswer, Leg, Series};
use turn_proto::DropReason;
use turn_session::AddressPair;
use turn_session::dtls::{
    ANSWER_MAX, Answer, DtlsConfig, DtlsEnd, DtlsEngine, Exchange, Hello, HelloError, HelloOutcome,
    begins_handshake,
};
use turn_types::{ClientPath, FiveTuple, Instant, IpMeta, Prefix, SocketId, Transport};

use crate::admission::{Admitted, NoPlace};
use crate::associations::Association;
use crate::egress::{Back, Datagram};
use crate::handshake_queue::Part;
use crate::handshakes::{NoTime, Step};
use crate::limits::{
    ASSOCIATION_IDLE_FOR, HANDSHAKE_WITHIN, RESEND_EVERY, SWEEP_ASSOCIATIONS_EVERY,
};
use crate::tally::Sent;
use crate::used_cookies::CookieMark;
use crate::worker::Worker;

/// A datagram for DTLS, until the batch that it is in has been served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aside {
    /// The socket it came by.
    pub(crate) listener: SocketId,
    pub(crate) datagram: Datagram,
}

/// A client that has sent a hello.
pub(crate) struct Newcomer {
    /// The message of the batch, and the position of the hello in it.
    pub(crate) message: usize,
    pub(crate) range: Range<usize>,
    /// By the listener, without an association.
    pub(crate) path: ClientPath,
    /// The association that there is with the same addresses.
    pub(crate) known: Option<SocketId>,
}

/// What came of a client's records.
#[derive(Default)]
struct Decrypted {
    /// Bytes written.
    len: usize,
    /// Records that brought nothing.
    empty: u64,
    /// Records that went no further.
    refused: u64,
    /// Pieces of data beyond one of each record.
    more: u64,
    ended: Option<DtlsEnd>,
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
            known = self.take_hello(&Newcomer { message, range, path, known });
        }
        match known {
            _ if records.is_empty() => {}
            Some(id) => self.take_records_within_share(message, &records, id),
            None => {
                let stray = Series::Drop(DropReason::DtlsStray);
                self.observer.count(stray, records.len() as u64);
            }
        }
        self.records = records;
    }

    /// Takes a hello in the clear. Returns the association that there is now.
    pub(crate) fn take_hello(&mut self, hello: &Newcomer) -> Option<SocketId> {
        let Some(config) = self.dtls.take() else { return hello.known };
        let found = self.take_hello_by(&config, hello);
        self.dtls = Some(config);
        found
    }

    fn take_hello_by(&mut self, config: &DtlsConfig, from: &Newcomer) -> Option<SocketId> {
        let known = from.known;
        if !config.can_serve() {
            self.egress.dropped(DropReason::NotStun);
            return known;
        }
        let mut answer = [0; ANSWER_MAX];
        let FiveTuple { client, server, .. } = from.path.five_tuple;
        let ends = AddressPair { client: client.0, server: server.0 };
        let since = self.now.instant.saturating_since(Instant::ZERO);
        let datagram = &self.rx.message(from.message).data[from.range.clone()];
        match config.front().take(datagram, ends, since, &mut answer) {
            HelloOutcome::Verified(hello) => {
                let (random, cookie) = (*hello.random(), CookieMark::of(hello.cookie()));
                self.take_verified(config, from, random, cookie)
            }
            HelloOutcome::Answer(len, what) => {
                let what = match what {
                    Answer::Cookie => HelloAnswer::Cookie,
                    Answer::Version => HelloAnswer::Version,
                };
                self.observer.count(Series::HellosAnswered(what), 1);
                self.observer.count(Series::Fate(Fate::Dtls), 1);
                if let Some(listener) = self.sockets.listener(from.path.socket) {
                    let (back, ways) = (listener.flow_back(&from.path), (&self.rx, &self.sockets));
                    self.egress.datagram(back, &answer[..len], Sent::Dtls, ways);
                }
                known
            }
            HelloOutcome::Dropped(why) => {
                self.egress.dropped(match why {
                    HelloError::Piece => DropReason::DtlsHelloInPieces,
                    // One that cannot be read is nobody's.
                    HelloError::Malformed | HelloError::Other => DropReason::DtlsMalformed,
                });
                known
            }
        }
    }

    /// Takes a hello of a client that has shown by its cookie that it is at its address.
    fn take_verified(
        &mut self,
        config: &DtlsConfig,
        from: &Newcomer,
        random: [u8; 32],
        cookie: CookieMark,
    ) -> Option<SocketId> {
        let again = |association: &mut Association| association.random == random;
        if from.known.and_then(|id| self.associations.get_mut(id)).is_some_and(again) {
            // What it was answered is sent again by the clock, if it is needed.
            self.observer.count(Series::Fate(Fate::Dtls), 1);
            return from.known;
        }
        // Its association has ended, and whoever repeats it is not begun with anew.
        if self.used_cookies.contains(cookie) {
            self.egress.dropped(DropReason::DtlsCookieUsed);
            return from.known;
        }
        let client = from.path.five_tuple.client.0.ip();
        // Before anything is made for it.
        let work = match self.begin_handshake_work(client, Step::Begin, Transport::Dtls) {
            Ok(work) => work,
            Err(NoTime::Turn) => {
                let part = Part::Hello { listener: from.path.socket, random };
                let at = (from.message, from.range.clone());
                self.queue_handshake(from.path.five_tuple, part, at);
                return from.known;
            }
            Err(NoTime::Customer) => {
                self.warn_of_handshakes(client, NoTime::Customer);
                return self.refuse(from, AssociationRefusal::Share);
            }
        };
        let datagram = &self.rx.message(from.message).data[from.range.clone()];
        let engine = Hello::read(datagram).ok().and_then(|hello| config.begin(&hello).ok());
        let engine = engine.ok_or(AssociationRefusal::Resources);
        let begun = engine.and_then(|engine| self.begin(from, engine, random));
        self.handshakes.done(self.now.instant, work);
        match begun {
            Ok(id) => {
                self.used_cookies.insert(cookie);
                Some(id)
            }
            Err(why) => self.refuse(from, why),
        }
    }

    /// Begins an association, and answers the hello.
    fn begin(
        &mut self,
        from: &Newcomer,
        engine: Box<dyn DtlsEngine>,
        random: [u8; 32],
    ) -> Result<SocketId, AssociationRefusal> {
        let place = self.place_for(from)?;
        let id = self.associations.next_id().ok_or(AssociationRefusal::Total)?;
        self.observer.count(Series::AssociationsBegun, 1);
        let path = ClientPath { socket: id, ..from.path };
        let now = self.now.instant;
        let association = Association::new(engine, path, from.path.socket, random, now, place);
        self.associations.insert(association);
        let resend_at = now + RESEND_EVERY;
        self.sweep_associations_at =
            Some(self.sweep_associations_at.map_or(resend_at, |at| at.min(resend_at)));
        self.take_records(from.message, std::slice::from_ref(&from.range), id);
        Ok(id)
    }

    fn refuse(&self, from: &Newcomer, why: AssociationRefusal) -> Option<SocketId> {
        self.count_refused(why);
        let FiveTuple { client, server, .. } = from.path.five_tuple;
        self.associations.find(&(client.0, server.0))
    }

    pub(crate) fn count_refused(&self, why: AssociationRefusal) {
        self.observer.count(Series::AssociationsRefused(why), 1);
        self.egress.dropped(match why {
            AssociationRefusal::Busy | AssociationRefusal::Share => DropReason::DtlsBusy,
            AssociationRefusal::Total
            | AssociationRefusal::Address
            | AssociationRefusal::Resources => DropReason::DtlsNoPlace,
        });
    }

    /// A place for an association. The client's previous one ends: it has shown by the cookie that it is
    /// there and has begun anew (RFC 6347 §4.2.8).
    fn place_for(&mut self, from: &Newcomer) -> Result<Admitted, AssociationRefusal> {
        if let Some(id) = from.known {
            self.end_association(id, AssociationEnd::Replaced);
        }
        let client = from.path.five_tuple.client.0.ip();
        let is_by_customer = self.dtls_admission.is_by_customer();
        let customer = Prefix::customer(client);
        if let Some(oldest) = self.associations.crowded_out_by(customer, is_by_customer) {
            self.end_association(oldest, AssociationEnd::CrowdedOut);
        }
        self.dtls_admission.admit(client).map_err(|why| match why {
            NoPlace::Total => AssociationRefusal::Total,
            NoPlace::Address => AssociationRefusal::Address,
        })
    }

    /// Hands records to an association; one whose handshake is not done only where there is time for it.
    pub(crate) fn take_records_within_share(
        &mut self,
        message: usize,
        records: &[Range<usize>],
        id: SocketId,
    ) {
        let Some(association) = self.associations.get_mut(id) else {
            // It ended while they waited.
            let stray = Series::Drop(DropReason::DtlsStray);
            return self.observer.count(stray, records.len() as u64);
        };
        if association.established {
            return self.take_records(message, records, id);
        }
        let five_tuple = association.path.five_tuple;
        let client = five_tuple.client.0.ip();
        match self.begin_handshake_work(client, Step::Continue, Transport::Dtls) {
            Ok(work) => {
                self.take_records(message, records, id);
                self.handshakes.done(self.now.instant, work);
            }
            Err(NoTime::Turn) => {
                for range in records {
                    self.queue_handshake(five_tuple, Part::Records(id), (message, range.clone()));
                }
            }
            Err(NoTime::Customer) => {
                self.warn_of_handshakes(client, NoTime::Customer);
                let busy = Series::Drop(DropReason::DtlsBusy);
                self.observer.count(busy, records.len() as u64);
            }
        }
    }

    /// Hands records to an association, and what is in them to the server.
    fn take_records(&mut self, message: usize, records: &[Range<usize>], id: SocketId) {
        let Some((association, exchange)) = self.associations.with_exchange(id) else { return };
        let path = association.path;
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let received = self.rx.message(message);
        let meta = received.meta;
        // What is read into the batch cannot be read from it at the same time.
        let ciphertext = &mut self.scratch[..received.data.len()];
        ciphertext.copy_from_slice(received.data);
        let mut done = Decrypted::default();
        let filled = self.rx.fill(path.five_tuple.client.0, |room| {
            let records = records.iter().map(|range| &ciphertext[range.clone()]);
            done = decrypt(association, exchange, records, (room, &mut plain));
            Ok::<_, Infallible>(done.len)
        });
        let Ok(filled) = filled;
        self.observer.count(Series::Fate(Fate::Dtls), done.empty);
        self.observer.count(Series::Drop(DropReason::DtlsRefused), done.refused);
        // Each has a fate of its own.
        self.observer.count(Series::Packets(Leg::FromClients), done.more);
        if !plain.is_empty() {
            association.heard = self.now.instant;
        }
        if association.engine.is_established() && self.associations.establish(id) {
            self.observer.count(Series::AssociationsEstablished, 1);
        }
        self.send_exchange(id);
        if let Some(message) = filled {
            for range in &plain {
                self.serve_plain((message, range.clone()), &path, meta);
            }
        }
        self.plain = plain;
        self.settle(self.now);
        if let Some(how) = done.ended {
            self.end_association(id, end(how));
        }
    }

    /// Serves what was in one record.
    fn serve_plain(
        &mut self,
        (message, range): (usize, Range<usize>),
        path: &ClientPath,
        meta: IpMeta,
    ) {
        self.egress.make_room(&self.rx, &self.sockets);
        let packet = &self.rx.message(message).data[range.clone()];
        let reply = self.egress.reply_buffer();
        let verdict = self.server.handle_client(self.now, path, meta, packet, reply);
        let datagram = Datagram { message, start: range.start, len: range.len() };
        let back = Back::Association((&mut self.associations, &self.sockets), path.socket);
        self.egress.client_packet(verdict, datagram, (&self.sockets, back));
    }

    /// Sends what an association has to say for itself.
    fn send_exchange(&mut self, id: SocketId) {
        let Some((association, exchange)) = self.associations.with_exchange(id) else { return };
        if let Some(flow) = association.flow(&self.sockets, IpMeta::DEFAULT) {
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

/// Writes what is in records into `room`, and where each piece of it is into `plain`.
fn decrypt<'a>(
    association: &mut Association,
    exchange: &mut Exchange,
    records: impl Iterator<Item = &'a [u8]>,
    (room, plain): (&mut [u8], &mut Vec<Range<usize>>),
) -> Decrypted {
    let mut done = Decrypted::default();
    for record in records {
        if done.ended.is_some() || association.engine.take(record, exchange).is_err() {
            done.refused += 1;
            continue;
        }
        let before = plain.len();
        loop {
            match association.engine.read(&mut room[done.len..], exchange) {
                Ok(Some(len)) => {
                    plain.push(done.len..done.len + len);
                    done.len += len;
                }
                Ok(None) => break,
                Err(how) => {
                    done.ended = Some(how);
                    break;
                }
            }
        }
        let brought = plain.len() - before;
        done.empty += u64::from(brought == 0);
        done.more += brought.saturating_sub(1) as u64;
    }
    done
}
