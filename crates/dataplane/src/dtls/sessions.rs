//! DTLS sessions of one worker.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use ahash::RandomState;
use fair_share::{CLIENTS, Claimant, Share, Slots};
use linux_net::Flow;
use turn_session::dtls::{DtlsEngine, Exchange};
use turn_types::{ClientPath, FiveTuple, Instant, IpMeta, SocketId};

use crate::admission::Admitted;
use crate::io::Net;
use crate::limits::{HALF_OPEN_MAX, RIVALS_COMPARED};
use crate::slab::Slab;
use crate::sockets::Sockets;
use crate::token::DTLS_SESSION;

/// DTLS session of a client.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) engine: Box<dyn DtlsEngine>,
    /// 5-tuple of the client. The socket is the session's number.
    pub(super) path: ClientPath,
    /// Listener that receives the client's datagrams.
    pub(super) listener: SocketId,
    /// Random of the client's hello, which identifies a repeated hello.
    pub(super) random: [u8; 32],
    pub(super) began: Instant,
    /// Time of the last record with data.
    pub(super) last_record: Instant,
    /// True if the handshake was complete at the last check.
    pub(super) established: bool,
    /// True if the session was exported to the successor.
    pub(super) is_exported: bool,
    pub(super) permit: Admitted,
}

impl Session {
    fn claimant(&self) -> Claimant<'static> {
        Claimant::at(self.path.five_tuple.client.0.ip())
    }

    /// Returns the flow to the client.
    pub(super) fn flow<N: Net>(&self, sockets: &Sockets<N>, meta: IpMeta) -> Option<Flow> {
        let FiveTuple { client, server, .. } = self.path.five_tuple;
        let listener = sockets.listener(self.listener)?;
        Some(listener.flow(self.listener, client, server.ip(), meta))
    }
}

/// Addresses of a session: client and server.
type Key = (SocketAddr, SocketAddr);

/// Sessions by number and address.
#[derive(Debug)]
pub(super) struct Sessions {
    slab: Slab<Session>,
    /// Sessions by address. Clients choose the addresses, so the hash table has a random key.
    by_addresses: HashMap<Key, SocketId>,
    /// Sessions with an incomplete handshake, the oldest first.
    half_open: VecDeque<(SocketId, Share)>,
    /// Slots of the sessions with an incomplete handshake.
    half_open_slots: Slots,
    /// Buffer for the datagrams of one session.
    exchange: Exchange,
    /// Buffer for a message to encrypt.
    pub(super) plain: Vec<u8>,
    /// True after an export: no session sends or receives.
    is_paused: bool,
}

/// Error: no further session may be half-open, because the client's network has more half-open
/// sessions than any other network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyHalfOpen;

impl Sessions {
    /// Creates a table without sessions. The hasher must have a secret seed.
    pub(super) fn new(hasher: RandomState) -> Self {
        Self {
            slab: Slab::new(DTLS_SESSION),
            by_addresses: HashMap::new(),
            half_open: VecDeque::new(),
            half_open_slots: Slots::new(&CLIENTS, HALF_OPEN_MAX, hasher),
            exchange: Exchange::default(),
            plain: Vec::new(),
            is_paused: false,
        }
    }

    /// Returns the number of the next session, or `None` if the table is full.
    pub(super) fn next_id(&mut self) -> Option<SocketId> {
        self.slab.next_id()
    }

    /// Adds a session under the number that [`next_id`](Self::next_id) returned.
    pub(super) fn insert(&mut self, session: Session) {
        let id = session.path.socket;
        self.by_addresses.insert(key(&session.path), id);
        self.half_open.push_back((id, self.half_open_slots.keep(&session.claimant())));
        self.slab.insert(id, Box::new(session));
    }

    /// Returns the session of a client's and a server's address.
    pub(super) fn find(&self, FiveTuple { client, server, .. }: &FiveTuple) -> Option<SocketId> {
        self.by_addresses.get(&(client.0, server.0)).copied()
    }

    pub(super) fn get(&self, id: SocketId) -> Option<&Session> {
        self.slab.get(id)
    }

    pub(super) fn get_mut(&mut self, id: SocketId) -> Option<&mut Session> {
        self.slab.get_mut(id)
    }

    /// Returns a session, and the buffer for the session's datagrams. Returns `None` while sessions
    /// are paused.
    pub(super) fn with_exchange(&mut self, id: SocketId) -> Option<(&mut Session, &mut Exchange)> {
        if self.is_paused {
            return None;
        }
        Some((self.slab.get_mut(id)?, &mut self.exchange))
    }

    /// Stops all sending and receiving.
    pub(super) const fn pause(&mut self) {
        self.is_paused = true;
    }

    pub(super) const fn resume(&mut self) {
        self.is_paused = false;
    }

    pub(super) fn remove(&mut self, id: SocketId) -> Option<Box<Session>> {
        let session = self.slab.remove(id)?;
        self.by_addresses.remove(&key(&session.path));
        if !session.established {
            self.leave_half_open(id);
        }
        Some(session)
    }

    fn leave_half_open(&mut self, id: SocketId) {
        let position = self.half_open.iter().position(|(other, _)| *other == id);
        if let Some((_, share)) = position.and_then(|position| self.half_open.remove(position)) {
            self.half_open_slots.release(share);
        }
    }

    /// Marks a handshake as complete. Returns false if the handshake was complete before.
    pub(super) fn establish(&mut self, id: SocketId) -> bool {
        let Some(session) = self.get_mut(id) else { return false };
        let newly = !std::mem::replace(&mut session.established, true);
        if newly {
            self.leave_half_open(id);
        }
        newly
    }

    /// Returns the number of sessions.
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns the number of sessions with an incomplete handshake.
    pub(super) fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// Returns the half-open session to evict for another half-open session of this client, if the
    /// limit is reached. The network with the most half-open sessions loses a session. With equal
    /// numbers, the oldest session is evicted. If many customers share an address (`is_by_customer`
    /// is false), the oldest session is evicted as well.
    pub(super) fn evicted_by(
        &mut self,
        client: IpAddr,
        is_by_customer: bool,
    ) -> Result<Option<SocketId>, TooManyHalfOpen> {
        let Self { half_open, half_open_slots, .. } = self;
        if half_open_slots.held() < half_open_slots.capacity() {
            return Ok(None);
        }
        let position = if is_by_customer {
            let claimant = Claimant::at(client);
            half_open_slots.rival(&claimant, half_open.len(), |position| &half_open[position].1)
        } else {
            Some(0)
        };
        let evicted = position.and_then(|position| half_open.get(position));
        evicted.map(|(id, _)| Some(*id)).ok_or(TooManyHalfOpen)
    }

    /// Returns candidates for eviction from all parts of the table. The caller excludes sessions
    /// with an allocation. Returns no sessions while sessions are paused.
    pub(super) fn sample(&mut self) -> impl Iterator<Item = &Session> {
        let may_end = !self.is_paused;
        self.slab.sample(RIVALS_COMPARED).filter(move |_| may_end)
    }

    /// Returns the sessions with an incomplete handshake, sorted by number.
    pub(super) fn half_open_ids(&self) -> Vec<SocketId> {
        let mut ids: Vec<_> = self.half_open.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable_by_key(|id| id.0);
        ids
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.slab.iter_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slab.iter()
    }
}

fn key(path: &ClientPath) -> Key {
    (path.five_tuple.client.0, path.five_tuple.server.0)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use turn_session::dtls::{DtlsEnd, DtlsState, NotSent, Refused};
    use turn_types::{ClientAddr, ServerAddr, Transport};

    use super::*;
    use crate::admission::{Admission, ConnectionLimits};

    /// Engine without output.
    #[derive(Debug)]
    struct Silent;

    impl DtlsEngine for Silent {
        fn take(&mut self, _: &[u8], _: &mut Exchange) -> Result<(), Refused> {
            Err(Refused)
        }
        fn read(&mut self, _: &mut [u8], _: &mut Exchange) -> Result<Option<usize>, DtlsEnd> {
            Ok(None)
        }
        fn write(&mut self, _: &[u8], _: &mut Exchange) -> Result<(), NotSent> {
            Err(NotSent)
        }
        fn resend(&mut self, _: &mut Exchange) -> Result<(), DtlsEnd> {
            Ok(())
        }
        fn close(&mut self, _: &mut Exchange) {}
        fn server_name(&self) -> Option<&str> {
            None
        }
        fn is_established(&self) -> bool {
            false
        }
        fn state(&self) -> Option<DtlsState> {
            None
        }
    }

    /// Starts a session of a customer like a worker does. Returns the session and the evicted
    /// session.
    fn begin(
        sessions: &mut Sessions,
        client: IpAddr,
    ) -> Result<(SocketId, Option<SocketId>), TooManyHalfOpen> {
        let evicted = sessions.evicted_by(client, true)?;
        if let Some(id) = evicted {
            sessions.remove(id).unwrap();
        }
        let id = sessions.next_id().unwrap();
        let five_tuple = FiveTuple {
            transport: Transport::Dtls,
            client: ClientAddr(SocketAddr::new(client, id.0 as u16)),
            server: ServerAddr("192.0.2.1:3478".parse().unwrap()),
        };
        let path = ClientPath { five_tuple, socket: id };
        let limits = ConnectionLimits { total: 0, per_address: 0 };
        sessions.insert(Session {
            engine: Box::new(Silent),
            path,
            listener: SocketId(0),
            random: [0; 32],
            began: Instant::ZERO,
            last_record: Instant::ZERO,
            established: false,
            is_exported: false,
            permit: Arc::new(Admission::new(limits)).admit(client).unwrap(),
        });
        Ok((id, evicted))
    }

    fn sessions() -> Sessions {
        Sessions::new(RandomState::with_seeds(1, 2, 3, 4))
    }

    #[test]
    fn a_flooder_has_what_is_free_and_evicts_its_own_oldest() {
        let mut sessions = sessions();
        let [flooder, other] = [[192, 0, 2, 7], [203, 0, 113, 8]].map(IpAddr::from);
        let (of_other, _) = begin(&mut sessions, other).unwrap();
        let ids: Vec<_> =
            (1..HALF_OPEN_MAX).map(|_| begin(&mut sessions, flooder).unwrap()).collect();
        assert!(ids.iter().all(|(_, evicted)| evicted.is_none()));
        for _ in 0..100 {
            let (_, evicted) = begin(&mut sessions, flooder).unwrap();
            assert!(evicted.is_some_and(|id| id != of_other));
        }
        assert!(sessions.get_mut(of_other).is_some());
        // Established sessions are not counted.
        let newest = *sessions.half_open_ids().last().unwrap();
        assert!(sessions.establish(newest) && !sessions.establish(newest));
        assert_eq!(begin(&mut sessions, flooder).unwrap().1, None);
        assert_eq!(sessions.half_open_ids().len(), sessions.half_open());
    }

    #[test]
    fn a_site_that_floods_makes_room_and_nobody_else_does() {
        let mut sessions = sessions();
        let flood = |sessions: &mut Sessions, number: u32| {
            let site = [0x2001, 0xdb8, 1, number as u16, 0, 0, 0, 1];
            begin(sessions, IpAddr::from(site)).unwrap();
        };
        let honest: Vec<_> = (0..8)
            .map(|number| begin(&mut sessions, IpAddr::from([192, number, 2, 1])).unwrap().0)
            .collect();
        (0..2 * HALF_OPEN_MAX).for_each(|number| flood(&mut sessions, number));
        for number in 0..=255 {
            let newcomer = IpAddr::from([203, number, 113, 1]);
            let (_, evicted) = begin(&mut sessions, newcomer).unwrap();
            assert!(evicted.is_some_and(|id| !honest.contains(&id)), "{number}");
            flood(&mut sessions, number.into());
        }
        assert!(honest.iter().all(|id| sessions.get_mut(*id).is_some()));
        assert_eq!(sessions.half_open(), HALF_OPEN_MAX as usize);
    }

    #[test]
    fn of_many_with_one_the_oldest_makes_room() {
        let mut sessions = sessions();
        let bot = |number: u32| IpAddr::from([(number >> 8) as u8 + 1, number as u8, 2, 1]);
        let ids: Vec<_> =
            (0..HALF_OPEN_MAX).map(|number| begin(&mut sessions, bot(number)).unwrap().0).collect();
        let (_, evicted) = begin(&mut sessions, bot(HALF_OPEN_MAX)).unwrap();
        assert!(evicted.is_some_and(|id| ids[..16].contains(&id)), "{evicted:?}");
    }
}
