//! Who is registered: one map behind a lock, or one for each thread and a mailbox to tell it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};

use super::protocol::SessionId;

/// Sessions of one relay; more are not answered.
pub(super) const SESSIONS_MAX: usize = 65_536;

/// Registrations that a thread has not yet looked at; more are not answered, and tried again.
const MAILBOX: usize = 1024;

/// One map for all threads.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedSessions {
    map: Arc<RwLock<HashMap<SessionId, SocketAddr>>>,
}

impl SharedSessions {
    pub(super) fn client(&self, id: SessionId) -> Option<SocketAddr> {
        // A map is whole between any two of its operations, whoever panicked beside it.
        self.map.read().unwrap_or_else(PoisonError::into_inner).get(&id).copied()
    }

    fn enter(&self, id: SessionId, client: SocketAddr) -> bool {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let room = map.len() < SESSIONS_MAX || map.contains_key(&id);
        if room {
            map.insert(id, client);
        }
        room
    }
}

/// The map of one thread.
#[derive(Debug)]
pub(super) struct OwnSessions {
    map: HashMap<SessionId, SocketAddr>,
    mailbox: Receiver<(SessionId, SocketAddr)>,
}

impl OwnSessions {
    /// One map for each of `threads`, and what tells them all.
    pub(super) fn of_threads(threads: usize) -> (Book, Vec<Self>) {
        let (tell, own) = (0..threads)
            .map(|_| {
                let (tell, mailbox) = sync_channel(MAILBOX);
                (tell, Self { map: HashMap::new(), mailbox })
            })
            .unzip();
        (Book::Mailboxes(tell), own)
    }

    /// The client of a session. A client is answered once its registration is in every mailbox, so
    /// an id that is not known here may wait there.
    pub(super) fn client(&mut self, id: SessionId) -> Option<SocketAddr> {
        if let Some(client) = self.map.get(&id) {
            return Some(*client);
        }
        self.read_mail();
        self.map.get(&id).copied()
    }

    /// Takes what is in the mailbox, so that it does not stay full.
    pub(super) fn read_mail(&mut self) {
        for (id, client) in self.mailbox.try_iter().take(MAILBOX) {
            if self.map.len() < SESSIONS_MAX || self.map.contains_key(&id) {
                self.map.insert(id, client);
            }
        }
    }
}

/// Where registrations are written.
#[derive(Debug)]
pub(super) enum Book {
    /// Into the one map.
    Shared(SharedSessions),
    /// Into the mailbox of every thread.
    Mailboxes(Vec<SyncSender<(SessionId, SocketAddr)>>),
}

impl Book {
    /// Writes a registration; false when there is no room, and the client has to try again.
    pub(super) fn enter(&self, id: SessionId, client: SocketAddr) -> bool {
        match self {
            Self::Shared(sessions) => sessions.enter(id, client),
            // A second entry of the same does no harm, so those who have it already may get it again.
            Self::Mailboxes(all) => all.iter().all(|one| one.try_send((id, client)).is_ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[test]
    fn a_registration_reaches_every_thread() {
        let (book, mut threads) = OwnSessions::of_threads(3);
        let id = SessionId::of_number(1);
        assert!(book.enter(id, client(7)));
        for thread in &mut threads {
            assert_eq!(thread.client(id), Some(client(7)));
            assert_eq!(thread.client(SessionId::of_number(2)), None);
        }
    }

    #[test]
    fn a_full_mailbox_is_said_and_takes_more_once_it_is_read() {
        let (book, mut threads) = OwnSessions::of_threads(1);
        let entered = (0..).take_while(|n| book.enter(SessionId::of_number(*n), client(1))).count();
        assert_eq!(entered, MAILBOX);
        threads[0].read_mail();
        assert!(book.enter(SessionId::of_number(9999), client(2)));
        assert_eq!(threads[0].client(SessionId::of_number(9999)), Some(client(2)));
        assert_eq!(threads[0].client(SessionId::of_number(0)), Some(client(1)));
    }

    #[test]
    fn a_client_that_moved_is_found_where_it_is_even_when_there_is_no_room_for_others() {
        let shared = SharedSessions::default();
        let book = Book::Shared(shared.clone());
        let id = SessionId::of_number;
        assert!((0..SESSIONS_MAX as u32).all(|number| book.enter(id(number), client(1))));
        assert!(!book.enter(id(SESSIONS_MAX as u32), client(1)));
        assert!(book.enter(id(5), client(2)));
        assert_eq!(shared.client(id(5)), Some(client(2)));
        assert_eq!(shared.client(id(SESSIONS_MAX as u32)), None);
    }
}
