//! Sessions that stay with earlier processes of this server, which have their keys.
//!
//! After an upgrade the listeners are this process's, and clients go on with their sessions. What comes for one of them goes on to the
//! process that has it, over a way that both got with the hand-over: the session's number, TTL and traffic class of the datagram, and
//! the datagram itself; without one the client has begun anew, and the session ends. That process answers by its own descriptor of the listener.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use turn_types::{FiveTuple, IpMeta, SocketId};

use crate::inheritance::{StayingSession, StayingSessions};
use crate::io::{ConduitIo as _, Net};
use crate::limits::EARLIER_PROCESSES_MAX;

/// Bytes before the datagram: the session's number, TTL, traffic class.
pub(crate) const HEADER: usize = 6;

/// Addresses of a client and of the server.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// Sessions of earlier processes.
#[derive(Debug)]
pub(crate) struct EarlierSessions<N: Net> {
    /// The ways to them, the oldest first; `None`: it is gone.
    processes: Vec<Option<N::Conduit>>,
    /// The process of each session, and its number there. Clients choose the addresses: the table is keyed by the system's randomness.
    sessions: HashMap<Ends, (usize, SocketId)>,
    /// Buffer for a message.
    message: Vec<u8>,
}

impl<N: Net> Default for EarlierSessions<N> {
    fn default() -> Self {
        Self { processes: Vec::new(), sessions: HashMap::new(), message: Vec::new() }
    }
}

/// Outcome of a datagram that may be for an earlier process.
pub(crate) enum Passed {
    /// The process gets it.
    On,
    /// It did not take it: more than there is room for waits.
    Full,
    /// No process has a session of these addresses.
    Unknown,
}

impl<N: Net> EarlierSessions<N> {
    /// Those of these processes, the oldest first. Beyond [`EARLIER_PROCESSES_MAX`] the oldest are forgotten.
    pub(crate) fn new(mut staying: Vec<StayingSessions<N::Conduit>>) -> Self {
        staying.drain(..staying.len().saturating_sub(EARLIER_PROCESSES_MAX));
        let mut earlier = Self::default();
        for (process, StayingSessions { sessions, conduit }) in staying.into_iter().enumerate() {
            let sessions = sessions.into_iter().map(|StayingSession { client, server, number }| {
                ((client, server), (process, number))
            });
            earlier.sessions.extend(sessions);
            earlier.processes.push(Some(conduit));
        }
        earlier
    }

    /// Copies them for the next process.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn copies(&self) -> io::Result<Vec<StayingSessions<N::Conduit>>> {
        let mut copies = Vec::new();
        for (process, conduit) in self.processes.iter().enumerate() {
            let of_process = self.sessions.iter().filter(|(_, (other, _))| *other == process);
            let sessions: Vec<_> = of_process
                .map(|(&(client, server), &(_, number))| StayingSession { client, server, number })
                .collect();
            if let Some(conduit) = conduit
                && !sessions.is_empty()
            {
                copies.push(StayingSessions { sessions, conduit: conduit.copy()? });
            }
        }
        Ok(copies)
    }

    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Ends the session of a client that begins anew here.
    pub(crate) fn replace(&mut self, five_tuple: &FiveTuple) {
        if self.is_empty() {
            return;
        }
        // Nothing but a header tells it. If that does not arrive, the session ends with its allocation.
        let _told = self.pass(five_tuple, IpMeta::DEFAULT, &[]);
        self.sessions.remove(&ends(five_tuple));
    }

    /// Passes a datagram on, if it is for one of these sessions.
    pub(crate) fn pass(&mut self, five_tuple: &FiveTuple, meta: IpMeta, datagram: &[u8]) -> Passed {
        let Some(&(process, SocketId(number))) = self.sessions.get(&ends(five_tuple)) else {
            return Passed::Unknown;
        };
        self.message.clear();
        self.message.extend_from_slice(&number.to_le_bytes());
        self.message.extend_from_slice(&[meta.ttl, meta.tos]);
        self.message.extend_from_slice(datagram);
        let conduit = self.processes.get(process).and_then(Option::as_ref);
        match conduit.map(|conduit| conduit.send(&self.message)) {
            Some(Ok(true)) => Passed::On,
            Some(Ok(false)) => Passed::Full,
            Some(Err(_)) | None => {
                self.sessions.retain(|_, (other, _)| *other != process);
                if let Some(gone) = self.processes.get_mut(process) {
                    *gone = None;
                }
                Passed::Unknown
            }
        }
    }
}

pub(crate) const fn ends(FiveTuple { client, server, .. }: &FiveTuple) -> Ends {
    (client.0, server.0)
}
