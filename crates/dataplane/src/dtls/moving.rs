//! Sessions that go to the next process, and the ones that come from the one before.
//!
//! A session is keys and numbers, so that it goes as a copy. From then on this process sends
//! nothing by its own, unless it [takes them back](Dtls::take_back): two records with one number
//! and one key would reveal what both say.

use control::AssociationEnd;
use state_format::{Malformed, Reader, Value as _, Writer, fields};
use turn_session::dtls::{DtlsState, resume};
use turn_types::{ClientPath, FiveTuple, Instant, ServerAddr, SocketId, Transport};

use super::Dtls;
use super::sessions::Session;
use crate::context::Context;
use crate::inheritance::InheritedSession;
use crate::io::Net;
use crate::limits::SWEEP_SESSIONS_EVERY;

/// A session as another process gets it. Keys are in it.
struct SessionState {
    five_tuple: FiveTuple,
    random: [u8; 32],
    began: Instant,
    last_record: Instant,
    keys: DtlsState,
}

fields!(SessionState { 1 => five_tuple, 2 => random, 3 => began, 4 => last_record, 5 => keys });

/// Why a session of another process is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionLost {
    /// Its state cannot be read.
    #[error("its state cannot be read: {0}")]
    Malformed(Malformed),
    /// Its keys or numbers are none of a session, or its client has one already.
    #[error("its state fits no session")]
    Misfit,
    /// Nothing listens at the address of this server that it uses.
    #[error("nothing listens at {} any more", .0.0)]
    Listener(ServerAddr),
    /// The table is full.
    #[error("there is no room for it")]
    NoRoom,
}

impl Dtls {
    /// Copies the established sessions for the next process. From here on none of them sends or
    /// receives, until they are [taken back](Self::take_back) or [forgotten](Self::forget).
    pub(crate) fn leave(&mut self) -> Vec<InheritedSession> {
        self.sessions.pause();
        let mut out = Writer::new();
        let leave = |session: &mut Session| {
            let keys = session.engine.state();
            session.has_left = keys.is_some();
            let Session { path, random, began, last_record, .. } = session;
            let state = SessionState {
                five_tuple: path.five_tuple,
                random: *random,
                began: *began,
                last_record: *last_record,
                keys: keys?,
            };
            state.write(&mut out);
            Some(InheritedSession { state: out.take_bytes() })
        };
        self.sessions.iter_mut().filter_map(leave).collect()
    }

    /// The clients of established sessions.
    pub(crate) fn clients(&self) -> impl Iterator<Item = FiveTuple> {
        let established = self.sessions.iter().filter(|session| session.established);
        established.map(|session| session.path.five_tuple)
    }

    /// The next process has failed: the sessions go on here.
    pub(crate) const fn take_back(&mut self) {
        self.sessions.go_on();
    }

    /// The next process serves: forgets the sessions that it has, without a word to their clients,
    /// and ends the handshakes, whose clients begin anew.
    pub(crate) fn forget<N: Net>(&mut self, cx: &mut Context<N>) {
        self.drop_queue(cx);
        let (left, others): (Vec<_>, Vec<_>) =
            self.sessions.iter().map(|one| (one.path, one.has_left)).partition(|(_, left)| *left);
        for (path, _) in left {
            self.sessions.remove(path.socket);
            // Its allocation has left; the name that it asked for is all that is there.
            cx.server.close(cx.now, &path.five_tuple);
        }
        // What has left cannot say anything any more.
        self.sessions.go_on();
        for (path, _) in others {
            self.end(cx, path.socket, AssociationEnd::Shutdown);
        }
    }

    /// Takes a session of another process. It counts among all, whatever the limits are now.
    ///
    /// # Errors
    /// It cannot be what another process had, or nothing listens for it any more: it has ended.
    pub(crate) fn inherit<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        session: &InheritedSession,
    ) -> Result<(), SessionLost> {
        let state: Result<SessionState, _> = Reader::new(&session.state).last();
        let state = state.map_err(SessionLost::Malformed)?;
        let SessionState { five_tuple, random, began, last_record, keys } = state;
        if five_tuple.transport != Transport::Dtls || self.sessions.find(&five_tuple).is_some() {
            return Err(SessionLost::Misfit);
        }
        let engine = resume(keys).ok_or(SessionLost::Misfit)?;
        let lost = SessionLost::Listener(five_tuple.server);
        let (listener, _) = cx.sockets.listener_at(five_tuple.server).ok_or(lost)?;
        let id = self.sessions.next_id().ok_or(SessionLost::NoRoom)?;
        if let Some(name) = engine.server_name() {
            cx.server.set_server_name(five_tuple, name);
        }
        self.sessions.insert(Session {
            engine,
            path: ClientPath { five_tuple, socket: id },
            listener,
            random,
            began,
            last_record,
            established: false,
            has_left: false,
            _permit: self.settings.admission.keep(five_tuple.client.0.ip()),
        });
        self.sessions.establish(id);
        let due = cx.now.instant + SWEEP_SESSIONS_EVERY;
        self.sweep_at = Some(due.earliest(self.sweep_at));
        Ok(())
    }

    /// Returns the session of a client.
    pub(crate) fn of_client(&self, five_tuple: &FiveTuple) -> Option<SocketId> {
        self.sessions.find(five_tuple)
    }
}
