//! DTLS sessions of one worker.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use linux_net::Flow;
use turn_session::dtls::{DtlsEngine, Exchange};
use turn_types::{ClientPath, FiveTuple, Instant, IpMeta, Prefix, SocketId};

use crate::admission::Admitted;
use crate::io::Net;
use crate::limits::{HALF_OPEN_MAX, HALF_OPEN_PER_CUSTOMER};
use crate::slab::Slab;
use crate::sockets::Sockets;
use crate::token::DTLS_SESSION;

/// A DTLS session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) engine: Box<dyn DtlsEngine>,
    /// 5-tuple of the client. The socket is the session's own number.
    pub(super) path: ClientPath,
    /// Listener that receives its datagrams.
    pub(super) listener: SocketId,
    /// Random of the client's hello, by which a repeated one is recognised.
    pub(super) random: [u8; 32],
    pub(super) began: Instant,
    /// Time of the last record with data.
    pub(super) last_record: Instant,
    /// True if the handshake was complete when it was last checked.
    pub(super) established: bool,
    /// True if the session was exported to the successor.
    pub(super) is_exported: bool,
    pub(super) _permit: Admitted,
}

impl Session {
    pub(super) fn customer(&self) -> Prefix {
        Prefix::customer(self.path.five_tuple.client.0.ip())
    }

    /// Returns the flow to the client.
    pub(super) fn flow<N: Net>(&self, sockets: &Sockets<N>, meta: IpMeta) -> Option<Flow> {
        let FiveTuple { client, server, .. } = self.path.five_tuple;
        let listener = sockets.listener(self.listener)?;
        Some(listener.flow(self.listener, client, server.ip(), meta))
    }
}

/// Addresses of a session: client's and server's.
type Key = (SocketAddr, SocketAddr);

/// Sessions by their numbers and addresses.
#[derive(Debug)]
pub(super) struct Sessions {
    slab: Slab<Session>,
    /// Clients choose the addresses: the table is keyed by the system's randomness.
    by_addresses: HashMap<Key, SocketId>,
    /// Sessions with an incomplete handshake, of each customer the oldest first.
    half_open: HashMap<Prefix, VecDeque<SocketId>>,
    /// Number of these.
    half_open_count: usize,
    /// Buffer for the datagrams of one session.
    exchange: Exchange,
    /// Buffer for a message to encrypt.
    pub(super) plain: Vec<u8>,
    /// True after an export: no session sends or receives.
    is_paused: bool,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            slab: Slab::new(DTLS_SESSION),
            by_addresses: HashMap::new(),
            half_open: HashMap::new(),
            half_open_count: 0,
            exchange: Exchange::default(),
            plain: Vec::new(),
            is_paused: false,
        }
    }
}

impl Sessions {
    /// Returns the number of the next session; `None`: the table is full.
    pub(super) fn next_id(&mut self) -> Option<SocketId> {
        self.slab.next_id()
    }

    /// Adds a session under the number that [`next_id`](Self::next_id) returned.
    pub(super) fn insert(&mut self, session: Session) {
        let id = session.path.socket;
        self.by_addresses.insert(key(&session.path), id);
        self.half_open.entry(session.customer()).or_default().push_back(id);
        self.half_open_count += 1;
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

    /// Returns a session, and the buffer for its datagrams; `None` while they are paused.
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
            self.leave_half_open(session.customer(), id);
        }
        Some(session)
    }

    fn leave_half_open(&mut self, customer: Prefix, id: SocketId) {
        let Entry::Occupied(mut of_customer) = self.half_open.entry(customer) else { return };
        of_customer.get_mut().retain(|other| *other != id);
        if of_customer.get().is_empty() {
            of_customer.remove();
        }
        self.half_open_count -= 1;
    }

    /// Marks a handshake as complete. Returns false if it was before.
    pub(super) fn establish(&mut self, id: SocketId) -> bool {
        let Some(session) = self.get_mut(id) else { return false };
        let customer = session.customer();
        let newly = !std::mem::replace(&mut session.established, true);
        if newly {
            self.leave_half_open(customer, id);
        }
        newly
    }

    /// Returns the number of sessions.
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns the number of sessions with an incomplete handshake.
    pub(super) const fn half_open(&self) -> usize {
        self.half_open_count
    }

    /// Returns the half-open session to evict for another one of this customer, if a limit is
    /// reached: the oldest of the customer that has most, which is this one where it has as many.
    /// Where many customers share an address (`is_by_customer` is false), none has a limit of its
    /// own.
    pub(super) fn evicted_by(&self, customer: Prefix, is_by_customer: bool) -> Option<SocketId> {
        let own = self.half_open.get(&customer);
        let count = own.map_or(0, VecDeque::len);
        let most = if is_by_customer && count >= HALF_OPEN_PER_CUSTOMER {
            own
        } else if self.half_open_count >= HALF_OPEN_MAX {
            let others = self.half_open.values().filter(|other| other.len() > count);
            others.max_by_key(|other| other.len()).or(own)
        } else {
            None
        };
        most?.front().copied()
    }

    /// Returns the sessions with an incomplete handshake, in the order of their numbers.
    pub(super) fn half_open_ids(&self) -> Vec<SocketId> {
        let mut ids: Vec<_> = self.half_open.values().flatten().copied().collect();
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

    /// Begins a session of a customer as a worker does, and returns it and the evicted one.
    fn begin(sessions: &mut Sessions, client: IpAddr) -> (SocketId, Option<SocketId>) {
        let evicted = sessions.evicted_by(Prefix::customer(client), true);
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
            _permit: Arc::new(Admission::new(limits)).admit(client).unwrap(),
        });
        (id, evicted)
    }

    #[test]
    fn a_customer_at_its_limit_evicts_its_own() {
        let mut sessions = Sessions::default();
        let [flooder, other] = [[192, 0, 2, 7], [192, 0, 2, 8]].map(IpAddr::from);
        let (oldest_of_all, _) = begin(&mut sessions, other);
        let ids: Vec<_> =
            (0..HALF_OPEN_PER_CUSTOMER).map(|_| begin(&mut sessions, flooder)).collect();
        assert!(ids.iter().all(|(_, evicted)| evicted.is_none()));
        assert_eq!(begin(&mut sessions, flooder).1, Some(ids[0].0));
        assert_eq!(begin(&mut sessions, flooder).1, Some(ids[1].0));
        assert_eq!(sessions.half_open(), HALF_OPEN_PER_CUSTOMER + 1);
        assert!(sessions.get_mut(oldest_of_all).is_some());
        // Established sessions are not counted.
        assert!(sessions.establish(ids[2].0) && !sessions.establish(ids[2].0));
        assert_eq!(begin(&mut sessions, flooder).1, None);
        assert_eq!(sessions.half_open_ids().len(), sessions.half_open());
    }

    #[test]
    fn at_the_total_limit_the_customer_with_most_makes_room() {
        let mut sessions = Sessions::default();
        let flooder = |number| IpAddr::from([198, 51, 100, number]);
        let honest: Vec<_> = (0..8)
            .map(|number| begin(&mut sessions, IpAddr::from([192, 0, 2, number])).0)
            .collect();
        let mut number = 0;
        while sessions.half_open() < HALF_OPEN_MAX {
            begin(&mut sessions, flooder((number / HALF_OPEN_PER_CUSTOMER) as u8));
            number += 1;
        }
        for number in 0..=255 {
            let newcomer = IpAddr::from([203, 0, 113, number]);
            let (_, evicted) = begin(&mut sessions, newcomer);
            assert!(evicted.is_some_and(|id| !honest.contains(&id)), "{number}");
            begin(&mut sessions, flooder(number % 7));
        }
        assert!(honest.iter().all(|id| sessions.get_mut(*id).is_some()));
        assert_eq!(sessions.half_open(), HALF_OPEN_MAX);
    }
}
