//! ClientHellos. The first hello gets a stateless cookie. A hello with the cookie starts a session
//! within the limits.

use std::convert::Infallible;
use std::net::IpAddr;

use control::{AssociationEnd, AssociationRefusal, Fate, HelloAnswer, Series};
use turn_proto::DropReason;
use turn_session::AddressPair;
use turn_session::dtls::{
    ANSWER_MAX, Answer, DtlsConfig, DtlsEngine, Hello, HelloError, HelloOutcome,
};
use turn_types::{ClientPath, FiveTuple, Instant, SocketId};

use super::queue::Part;
use super::sessions::{Session, TooManyHalfOpen};
use super::used_cookies::CookieMark;
use super::{ClientHello, Dtls};
use crate::admission::{Admitted, Candidate, LimitReached};
use crate::context::Context;
use crate::handshake_budget::{NoTime, Step};
use crate::io::Net;
use crate::limits::RESEND_EVERY;
use crate::report::Sent;

impl Dtls {
    /// Serves an unencrypted ClientHello. Returns the session that exists afterwards.
    pub(super) fn take_hello<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        hello: &ClientHello,
    ) -> Option<SocketId> {
        // Moved out during the call, because a copy costs part of the time of computing a cookie.
        let Some(config) = self.settings.config.take() else {
            // Only imported sessions are served.
            cx.egress.dropped(DropReason::NotStun);
            return hello.known;
        };
        let session = self.answer_hello(cx, &config, hello);
        self.settings.config = Some(config);
        session
    }

    fn answer_hello<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        config: &DtlsConfig,
        hello: &ClientHello,
    ) -> Option<SocketId> {
        let known = hello.known;
        if !config.can_serve() {
            cx.egress.dropped(DropReason::NotStun);
            return known;
        }
        let mut answer = [0; ANSWER_MAX];
        let FiveTuple { client, server, .. } = hello.path.five_tuple;
        let ends = AddressPair { client: client.0, server: server.0 };
        let since = cx.now.instant.saturating_since(Instant::ZERO);
        let datagram = &cx.rx.message(hello.message).data[hello.range.clone()];
        match config.front().take(datagram, ends, since, &mut answer) {
            HelloOutcome::Verified(verified) => {
                let (random, cookie) = (*verified.random(), CookieMark::of(verified.cookie()));
                self.take_verified(cx, config, hello, (random, cookie))
            }
            HelloOutcome::VerifiedPiece(first) => {
                let is_kept = self.pieces.begin(&hello.path.five_tuple, &first, cx.now.instant);
                count_piece(cx, is_kept);
                known
            }
            HelloOutcome::LaterPiece(next) => {
                let (client, now) = (&hello.path.five_tuple, cx.now.instant);
                let is_added = self.pieces.add(client, &next, now);
                let whole = if is_added { self.join_pieces(cx, hello) } else { None };
                match whole {
                    Some(whole) => self.answer_hello(cx, config, &whole),
                    None => {
                        count_piece(cx, is_added);
                        known
                    }
                }
            }
            HelloOutcome::Answer(len, answered) => {
                let answered = match answered {
                    Answer::Cookie => HelloAnswer::Cookie,
                    Answer::Version => HelloAnswer::Version,
                };
                cx.observer.count(Series::HellosAnswered(answered), 1);
                cx.observer.count(Series::Fate(Fate::Dtls), 1);
                if let Some(listener) = cx.sockets.listener(hello.path.socket) {
                    let (flow, ways) = (listener.flow_back(&hello.path), (&cx.rx, &cx.sockets));
                    cx.egress.datagram(flow, &[&answer[..len]], Sent::Dtls, ways);
                }
                known
            }
            HelloOutcome::Dropped(why) => {
                cx.egress.dropped(match why {
                    HelloError::Piece => DropReason::DtlsHelloInPieces,
                    HelloError::Malformed | HelloError::Other => DropReason::DtlsMalformed,
                });
                known
            }
        }
    }

    /// Adds a complete hello to the batch as a message, and returns the hello.
    fn join_pieces<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        ClientHello { path, known, .. }: &ClientHello,
    ) -> Option<ClientHello> {
        let FiveTuple { client, .. } = path.five_tuple;
        let filled = self.pieces.take_whole(&path.five_tuple, |whole| {
            let copy = |room: &mut [u8]| {
                // The buffer has space for the longest message of a stream.
                room[..whole.len()].copy_from_slice(whole);
                Ok::<_, Infallible>(whole.len())
            };
            let Ok(message) = cx.rx.fill(client.0, copy);
            message.map(|message| (message, 0..whole.len()))
        });
        let (message, range) = filled.flatten()?;
        Some(ClientHello { message, range, path: *path, known: *known })
    }

    /// Serves a hello with a valid cookie, which verifies the client's address.
    fn take_verified<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        config: &DtlsConfig,
        hello: &ClientHello,
        (random, cookie): ([u8; 32], CookieMark),
    ) -> Option<SocketId> {
        let repeats = |session: &mut Session| session.random == random;
        if hello.known.and_then(|id| self.sessions.get_mut(id)).is_some_and(repeats) {
            // If necessary, the timer repeats the answer.
            cx.observer.count(Series::Fate(Fate::Dtls), 1);
            return hello.known;
        }
        // A replayed hello whose session has ended does not start another session.
        if self.used_cookies.contains(cookie) {
            cx.egress.dropped(DropReason::DtlsCookieUsed);
            return hello.known;
        }
        let client = hello.path.five_tuple.client.0.ip();
        // Checked before any state is created for the client.
        let is_by_customer = self.settings.admission.is_by_customer();
        let work = match cx.begin_handshake(client, Step::Begin, is_by_customer) {
            Ok(work) => work,
            Err(NoTime::Turn) => {
                let part = Part::Hello { listener: hello.path.socket, random };
                let at = (hello.message, hello.range.clone());
                self.queue_handshake(cx, hello.path.five_tuple, part, at);
                return hello.known;
            }
            Err(NoTime::Share) => {
                cx.warn_of_handshakes(client, NoTime::Share);
                return self.refuse(cx, hello, AssociationRefusal::Share);
            }
        };
        let datagram = &cx.rx.message(hello.message).data[hello.range.clone()];
        let engine = Hello::read(datagram).ok().and_then(|hello| config.begin(&hello).ok());
        let engine = engine.ok_or(AssociationRefusal::Resources);
        let begun = engine.and_then(|engine| self.begin(cx, hello, engine, random));
        cx.end_handshake(work);
        match begun {
            Ok(id) => {
                self.used_cookies.insert(cookie);
                Some(id)
            }
            Err(why) => self.refuse(cx, hello, why),
        }
    }

    /// Starts a session, and responds to the hello.
    fn begin<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        hello: &ClientHello,
        engine: Box<dyn DtlsEngine>,
        random: [u8; 32],
    ) -> Result<SocketId, AssociationRefusal> {
        let permit = self.admit(cx, hello)?;
        let id = self.sessions.next_id().ok_or(AssociationRefusal::Total)?;
        cx.observer.count(Series::AssociationsBegun, 1);
        let now = cx.now.instant;
        self.sessions.insert(Session {
            engine,
            path: ClientPath { socket: id, ..hello.path },
            listener: hello.path.socket,
            random,
            began: now,
            last_record: now,
            established: false,
            is_exported: false,
            permit,
        });
        self.sweep_at = Some((now + RESEND_EVERY).earliest(self.sweep_at));
        self.take_records(cx, hello.message, std::slice::from_ref(&hello.range), id);
        Ok(id)
    }

    fn refuse<N: Net>(
        &self,
        cx: &Context<N>,
        hello: &ClientHello,
        why: AssociationRefusal,
    ) -> Option<SocketId> {
        count_refused(cx, why);
        self.sessions.find(&hello.path.five_tuple)
    }

    /// Admits a session. An earlier session of the client is closed: the cookie proves that the
    /// client starts again (RFC 6347 §4.2.8).
    fn admit<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        hello: &ClientHello,
    ) -> Result<Admitted, AssociationRefusal> {
        if let Some(id) = hello.known {
            self.end(cx, id, AssociationEnd::Replaced);
        }
        let client = hello.path.five_tuple.client.0.ip();
        let is_by_customer = self.settings.admission.is_by_customer();
        let evicted = self.sessions.evicted_by(client, is_by_customer);
        if let Some(evicted) = evicted.map_err(|TooManyHalfOpen| AssociationRefusal::Busy)? {
            self.end(cx, evicted, AssociationEnd::CrowdedOut);
        }
        let admitted = self.settings.admission.admit(client);
        admitted.or_else(|limit| {
            let rival = if limit.is_shared() { self.rival(cx, client) } else { None };
            let rival = rival.ok_or(match limit {
                LimitReached::Total => AssociationRefusal::Total,
                LimitReached::Address => AssociationRefusal::Address,
                LimitReached::Network => AssociationRefusal::Network,
            })?;
            // Counted before the eviction, because another worker could take the free slot.
            let permit = self.settings.admission.keep(Some(client));
            self.end(cx, rival, AssociationEnd::CrowdedOut);
            Ok(permit)
        })
    }

    /// Returns the session without an allocation to evict for a session of this client.
    fn rival<N: Net>(&mut self, cx: &mut Context<N>, client: IpAddr) -> Option<SocketId> {
        let now = cx.now.instant;
        let others = self.sessions.sample();
        let unused = others.filter(|session| !cx.server.carries(&session.path.five_tuple));
        let candidates = unused.map(|session| Candidate {
            id: session.path.socket,
            permit: &session.permit,
            silence: now.saturating_since(session.last_record),
            own: None,
        });
        self.settings.admission.rival(Some(client), candidates)
    }
}

/// Counts a fragment of a hello.
fn count_piece<N: Net>(cx: &Context<N>, is_kept: bool) {
    if is_kept {
        cx.observer.count(Series::Fate(Fate::Dtls), 1);
    } else {
        cx.egress.dropped(DropReason::DtlsHelloInPieces);
    }
}

/// Counts a refused hello and the datagram of the hello.
pub(super) fn count_refused<N: Net>(cx: &Context<N>, why: AssociationRefusal) {
    cx.observer.count(Series::AssociationsRefused(why), 1);
    cx.egress.dropped(match why {
        AssociationRefusal::Busy | AssociationRefusal::Share => DropReason::DtlsBusy,
        AssociationRefusal::Total
        | AssociationRefusal::Address
        | AssociationRefusal::Network
        | AssociationRefusal::Resources => DropReason::DtlsNoPlace,
    });
}
