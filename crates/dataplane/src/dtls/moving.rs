//! Sessions that go to the next process, and the ones that come from the one before.
//!
//! A session is keys and numbers, so that it goes as a copy. From then on this process sends
//! nothing by its own, unless it [takes them back](Dtls::take_back): two records with one number
//! and one key would reveal what both say.

use control::AssociationEnd;
use state_format::{Malformed, Reader, Value as _, Writer, fields};
use turn_session::dtls::{DtlsState, resume};
use turn_types::{ClientPath, FiveTuple, Instant, ServerAddr, SocketId};

use super::Dtls;
use super::sessions::Session;
use crate::context::Context;
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

/// A session that goes to the next process.
pub(crate) struct LeftSession {
    pub(crate) five_tuple: FiveTuple,
    /// Its state, keys among it.
    pub(crate) state: Vec<u8>,
}

/// Why a session of another process is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionLost {
    /// Its state cannot be read.
    #[error("its state cannot be read: {0}")]
    Malformed(Malformed),
    /// Its keys or numbers are none of a session.
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
    pub(crate) fn leave(&mut self) -> Vec<LeftSession> {
        self.sessions.pause();
        let mut out = Writer::new();
        let leave = |session: &Session| {
            let Session { engine, path, random, began, last_record, .. } = session;
            let state = SessionState {
                five_tuple: path.five_tuple,
                random: *random,
                began: *began,
                last_record: *last_record,
                keys: engine.state()?,
            };
            state.write(&mut out);
            Some(LeftSession { five_tuple: path.five_tuple, state: out.take_bytes() })
        };
        self.sessions.iter().filter_map(leave).collect()
    }

    /// The next process has failed: the sessions go on here.
    pub(crate) const fn take_back(&mut self) {
        self.sessions.go_on();
    }

    /// The next process serves: forgets the sessions that it has, without a word to their clients,
    /// and ends the handshakes, whose clients begin anew.
    pub(crate) fn forget<N: Net>(&mut self, cx: &mut Context<N>) {
        self.sessions.go_on();
        self.drop_queue(cx);
        let all: Vec<_> = self.sessions.iter().map(|one| (one.path, one.established)).collect();
        for (path, established) in all {
            if established {
                self.sessions.remove(path.socket);
                // Its allocation has left; the name that it asked for is all that is there.
                cx.server.close(cx.now, &path.five_tuple);
            } else {
                self.end(cx, path.socket, AssociationEnd::Shutdown);
            }
        }
    }

    /// Takes a session of another process. It counts among all, whatever the limits are now.
    ///
    /// # Errors
    /// It cannot be what another process had, or nothing listens for it any more: it has ended.
    pub(crate) fn inherit<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        state: &[u8],
    ) -> Result<(), SessionLost> {
        let state: SessionState = Reader::new(state).last().map_err(SessionLost::Malformed)?;
        let SessionState { five_tuple, random, began, last_record, keys } = state;
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
