//! Timers and ends of sessions.

use control::AssociationEnd;
use turn_types::{FiveTuple, Instant, SocketId};

use super::Dtls;
use super::records::session_end;
use crate::context::Context;
use crate::io::Net;
use crate::limits::{HANDSHAKE_WITHIN, RESEND_EVERY, SESSION_IDLE_FOR, SWEEP_SESSIONS_EVERY};

impl Dtls {
    /// Returns the time of the next sweep, or `None` without sessions.
    pub(crate) const fn next_sweep(&self) -> Option<Instant> {
        self.sweep_at
    }

    /// Repeats handshake messages, and closes overdue sessions.
    pub(crate) fn sweep<N: Net>(&mut self, cx: &mut Context<N>) {
        let now = cx.now.instant;
        for id in self.sessions.half_open_ids() {
            let Some((session, exchange)) = self.sessions.with_exchange(id) else { continue };
            let outcome = if now.saturating_since(session.began) >= HANDSHAKE_WITHIN {
                Err(AssociationEnd::NotCompleted)
            } else {
                session.engine.resend(exchange).map_err(session_end)
            };
            match outcome {
                Ok(()) => {
                    self.check_handshake(cx, id);
                    self.send_exchange(cx, id);
                }
                Err(end) => self.end(cx, id, end),
            }
        }
        if self.idle_sweep_at <= now {
            self.idle_sweep_at = now + SWEEP_SESSIONS_EVERY;
            self.end_idle(cx);
        }
        self.sweep_at = if self.sessions.half_open() > 0 {
            Some(now + RESEND_EVERY)
        } else {
            (self.sessions.len() > 0).then_some(self.idle_sweep_at)
        };
    }

    /// Closes silent sessions without an allocation, because the network does not report a client
    /// that has disconnected.
    fn end_idle<N: Net>(&mut self, cx: &mut Context<N>) {
        let now = cx.now.instant;
        let silent = self.sessions.iter().filter(|session| {
            session.established && now.saturating_since(session.last_record) >= SESSION_IDLE_FOR
        });
        let silent: Vec<_> = silent.map(|session| session.path).collect();
        for path in silent {
            if !cx.server.serves(&path.five_tuple) {
                self.end(cx, path.socket, AssociationEnd::Idle);
            }
        }
    }

    /// Closes all sessions, because the server stops.
    pub(crate) fn end_all<N: Net>(&mut self, cx: &mut Context<N>) {
        self.drop_queue(cx);
        let ids: Vec<_> = self.sessions.iter().map(|session| session.path.socket).collect();
        for id in ids {
            self.end(cx, id, AssociationEnd::Shutdown);
        }
    }

    /// Closes a session and the allocation of the session's client.
    pub(super) fn end<N: Net>(&mut self, cx: &mut Context<N>, id: SocketId, end: AssociationEnd) {
        let Some((session, exchange)) = self.sessions.with_exchange(id) else { return };
        // A client that starts again has no keys to read an alert.
        if end != AssociationEnd::Replaced {
            session.engine.close(exchange);
            self.send_exchange(cx, id);
        }
        let Some(session) = self.sessions.remove(id) else { return };
        let FiveTuple { client, server, .. } = session.path.five_tuple;
        let seconds = cx.now.instant.saturating_since(session.began).as_secs();
        cx.observer.dtls_session_ended(cx.now.instant, (client, server), end, seconds);
        cx.server.close(cx.now, &session.path.five_tuple);
    }
}
