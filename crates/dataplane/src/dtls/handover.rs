//! Export of sessions to the successor, and import of the predecessor's sessions.
//!
//! A session consists of keys and numbers, and is exported as a copy. After the export this process
//! sends no record, unless a rollback [resumes](Dtls::roll_back) the sessions. Two records with the
//! same key and number would reveal both plaintexts.

use control::AssociationEnd;
use state_format::{Bytes, Malformed, fields};
use turn_session::dtls::{DtlsState, resume};
use turn_types::{ClientPath, FiveTuple, Instant, ServerAddr, SocketId, Transport};

use super::Dtls;
use super::sessions::Session;
use crate::context::Context;
use crate::io::Net;
use crate::limits::SWEEP_SESSIONS_EVERY;

/// Exported form of a session. Contains keys.
struct SessionState {
    five_tuple: FiveTuple,
    random: [u8; 32],
    began: Instant,
    last_record: Instant,
    keys: DtlsState,
}

fields!(SessionState { 1 => five_tuple, 2 => random, 3 => began, 4 => last_record, 5 => keys });

/// Error of an import. The session has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionImportError {
    /// The state is malformed.
    #[error("its state cannot be read: {0}")]
    Malformed(Malformed),
    /// Keys or numbers are invalid, or the client has another session here.
    #[error("its state fits no session")]
    Misfit,
    /// No listener has the server address of the session.
    #[error("nothing listens at {} any more", .0.0)]
    Listener(ServerAddr),
    /// The table is full.
    #[error("the table of sessions is full")]
    NoRoom,
}

impl Session {
    /// Exports the session if established.
    fn export(&self) -> Option<Bytes> {
        let Self { engine, path, random, began, last_record, .. } = self;
        let state = SessionState {
            five_tuple: path.five_tuple,
            random: *random,
            began: *began,
            last_record: *last_record,
            keys: engine.state()?,
        };
        Some(Bytes::of(&state))
    }
}

impl Dtls {
    /// Exports the established sessions. No session sends or receives until the
    /// [rollback](Self::roll_back) or [commit](Self::commit).
    pub(crate) fn export(&mut self) -> Vec<Bytes> {
        self.sessions.pause();
        let export = |session: &mut Session| {
            let state = session.export();
            session.is_exported = state.is_some();
            state
        };
        self.sessions.iter_mut().filter_map(export).collect()
    }

    /// Returns a copy of an established session, for a keeper.
    pub(crate) fn copy_of(&self, client: &FiveTuple) -> Option<Bytes> {
        if client.transport != Transport::Dtls {
            return None;
        }
        self.sessions.get(self.sessions.find(client)?)?.export()
    }

    /// Resumes the sessions after a failure of the successor.
    pub(crate) const fn roll_back(&mut self) {
        self.sessions.resume();
    }

    /// Removes the exported sessions without an alert, and closes incomplete handshakes with an
    /// alert: the successor serves.
    pub(crate) fn commit<N: Net>(&mut self, cx: &mut Context<N>) {
        self.drop_queue(cx);
        let (exported, others): (Vec<_>, Vec<_>) = self
            .sessions
            .iter()
            .map(|one| (one.path, one.is_exported))
            .partition(|(_, exported)| *exported);
        for (path, _) in exported {
            self.sessions.remove(path.socket);
            // The allocation was exported too. This call removes the server name of the client.
            cx.server.close(cx.now, &path.five_tuple);
        }
        // Exported sessions are removed and can send no record.
        self.sessions.resume();
        for (path, _) in others {
            self.end(cx, path.socket, AssociationEnd::Shutdown);
        }
    }

    /// Imports a session of the predecessor, regardless of current limits. `skipped` record numbers
    /// are skipped.
    ///
    /// # Errors
    /// The state is invalid, the listener is missing, or the table is full. The session has ended.
    pub(crate) fn import<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        session: &Bytes,
        skipped: u64,
    ) -> Result<(), SessionImportError> {
        let state: Result<SessionState, _> = session.parse();
        let state = state.map_err(SessionImportError::Malformed)?;
        let SessionState { five_tuple, random, began, last_record, mut keys } = state;
        keys.skip(skipped);
        if five_tuple.transport != Transport::Dtls || self.sessions.find(&five_tuple).is_some() {
            return Err(SessionImportError::Misfit);
        }
        let engine = resume(keys).ok_or(SessionImportError::Misfit)?;
        let error = SessionImportError::Listener(five_tuple.server);
        let (listener, _) = cx.sockets.listener_at(five_tuple.server).ok_or(error)?;
        let id = self.sessions.next_id().ok_or(SessionImportError::NoRoom)?;
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
            is_exported: false,
            permit: self.settings.admission.keep(Some(five_tuple.client.0.ip())),
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
