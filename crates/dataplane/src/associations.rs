//! The DTLS associations of one worker's clients.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use linux_net::Flow;
use turn_session::dtls::{DtlsEngine, Exchange};
use turn_types::{ClientPath, FiveTuple, Instant, IpMeta, Prefix, SocketId};

use crate::admission::Admitted;
use crate::limits::{HALF_OPEN_MAX, HALF_OPEN_PER_CUSTOMER};
use crate::places::Places;
use crate::sockets::Sockets;

/// Set in the numbers of associations; those of listeners are small, and those of streams have the bit above.
const ASSOCIATION: u32 = 1 << 30;

/// Whether a number is an association's.
pub(crate) const fn is_association(id: SocketId) -> bool {
    id.0 >> 30 == 1
}

/// An association.
#[derive(Debug)]
pub(crate) struct Association {
    pub(crate) engine: Box<dyn DtlsEngine>,
    /// Who is at the other end. The socket is the association's own number.
    pub(crate) path: ClientPath,
    /// The socket that its datagrams come by.
    listener: SocketId,
    /// What the client's hello had, by which it is known when it comes again.
    pub(crate) random: [u8; 32],
    pub(crate) began: Instant,
    /// When something came that the client has encrypted.
    pub(crate) heard: Instant,
    /// Whether the handshake was done when it was last looked at.
    pub(crate) established: bool,
    _place: Admitted,
}

impl Association {
    #[expect(clippy::too_many_arguments, reason = "who, by what, and since when")]
    pub(crate) fn new(
        engine: Box<dyn DtlsEngine>,
        path: ClientPath,
        listener: SocketId,
        random: [u8; 32],
        now: Instant,
        place: Admitted,
    ) -> Self {
        Self {
            engine,
            path,
            listener,
            random,
            began: now,
            heard: now,
            established: false,
            _place: place,
        }
    }

    /// Whose it is.
    pub(crate) fn customer(&self) -> Prefix {
        Prefix::customer(self.path.five_tuple.client.0.ip())
    }

    /// The way to the client.
    pub(crate) fn flow(&self, sockets: &Sockets, meta: IpMeta) -> Option<Flow> {
        let FiveTuple { client, server, .. } = self.path.five_tuple;
        let listener = sockets.listener(self.listener)?;
        Some(listener.flow(self.listener, client, server.ip(), meta))
    }
}

/// Two addresses, which associations are found by: the client's and ours.
pub(crate) type Key = (SocketAddr, SocketAddr);

/// Associations by their numbers, and by their addresses.
#[derive(Debug)]
pub(crate) struct Associations {
    places: Places<Association>,
    /// Clients choose these: the table is keyed by the system's randomness.
    by_addresses: HashMap<Key, SocketId>,
    /// Those whose handshake is not done, of each customer the oldest first.
    half_open: HashMap<Prefix, VecDeque<SocketId>>,
    /// How many these are.
    half_open_count: usize,
    /// What one of them has to say, for as long as that takes.
    pub(crate) exchange: Exchange,
    /// What one of them is to say.
    pub(crate) plain: Vec<u8>,
}

impl Default for Associations {
    fn default() -> Self {
        Self {
            places: Places::new(ASSOCIATION),
            by_addresses: HashMap::new(),
            half_open: HashMap::new(),
            half_open_count: 0,
            exchange: Exchange::default(),
            plain: Vec::new(),
        }
    }
}

impl Associations {
    /// The number that the next association will have; `None` when there is no place.
    pub(crate) fn next_id(&mut self) -> Option<SocketId> {
        self.places.next_id()
    }

    /// Adds an association under the number that [`next_id`](Self::next_id) gave.
    pub(crate) fn insert(&mut self, association: Association) {
        let id = association.path.socket;
        self.by_addresses.insert(key(&association.path), id);
        self.half_open.entry(association.customer()).or_default().push_back(id);
        self.half_open_count += 1;
        self.places.insert(id, Box::new(association));
    }

    /// The association of two addresses.
    pub(crate) fn find(&self, addresses: &Key) -> Option<SocketId> {
        self.by_addresses.get(addresses).copied()
    }

    pub(crate) fn get_mut(&mut self, id: SocketId) -> Option<&mut Association> {
        self.places.get_mut(id)
    }

    /// An association, and where it says what it has to say.
    pub(crate) fn with_exchange(
        &mut self,
        id: SocketId,
    ) -> Option<(&mut Association, &mut Exchange)> {
        Some((self.places.get_mut(id)?, &mut self.exchange))
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<Box<Association>> {
        let association = self.places.remove(id)?;
        self.by_addresses.remove(&key(&association.path));
        if !association.established {
            self.leave_half_open(association.customer(), id);
        }
        Some(association)
    }

    fn leave_half_open(&mut self, customer: Prefix, id: SocketId) {
        let Entry::Occupied(mut of_customer) = self.half_open.entry(customer) else { return };
        of_customer.get_mut().retain(|other| *other != id);
        if of_customer.get().is_empty() {
            of_customer.remove();
        }
        self.half_open_count -= 1;
    }

    /// The handshake of one of them is done. False if it was before.
    pub(crate) fn establish(&mut self, id: SocketId) -> bool {
        let Some(association) = self.get_mut(id) else { return false };
        let customer = association.customer();
        let newly = !std::mem::replace(&mut association.established, true);
        if newly {
            self.leave_half_open(customer, id);
        }
        newly
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// How many there are whose handshake is not done.
    pub(crate) const fn half_open(&self) -> usize {
        self.half_open_count
    }

    /// The half-open association that ends for another one of this customer, if there are too many: the oldest
    /// of the customer that has most, which is this one where it has as many. Where many customers are behind an
    /// address (`is_by_customer` is false), none has a limit of its own.
    pub(crate) fn crowded_out_by(
        &self,
        customer: Prefix,
        is_by_customer: bool,
    ) -> Option<SocketId> {
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

    /// All whose handshake is not done.
    pub(crate) fn half_open_ids(&self) -> Vec<SocketId> {
        self.half_open.values().flatten().copied().collect()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Association> {
        self.places.iter()
    }
}

fn key(path: &ClientPath) -> Key {
    (path.five_tuple.client.0, path.five_tuple.server.0)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use turn_session::dtls::{DtlsEnd, NotSent, Refused};
    use turn_types::{ClientAddr, ServerAddr, Transport};

    use super::*;
    use crate::admission::{Admission, ConnectionLimits};

    /// Says nothing.
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
        fn is_established(&self) -> bool {
            false
        }
    }

    /// Begins an association of a customer as a worker does, and returns it and the one that ended for it.
    fn begin(associations: &mut Associations, client: IpAddr) -> (SocketId, Option<SocketId>) {
        let crowded_out = associations.crowded_out_by(Prefix::customer(client), true);
        if let Some(id) = crowded_out {
            associations.remove(id).unwrap();
        }
        let id = associations.next_id().unwrap();
        let five_tuple = FiveTuple {
            transport: Transport::Dtls,
            client: ClientAddr(SocketAddr::new(client, id.0 as u16)),
            server: ServerAddr("192.0.2.1:3478".parse().unwrap()),
        };
        let path = ClientPath { five_tuple, socket: id };
        let limits = ConnectionLimits { total: 0, per_address: 0 };
        let place = Arc::new(Admission::new(limits)).admit(client).unwrap();
        let now = Instant::ZERO;
        let association =
            Association::new(Box::new(Silent), path, SocketId(0), [0; 32], now, place);
        associations.insert(association);
        (id, crowded_out)
    }

    #[test]
    fn a_customer_has_so_many_half_open_and_crowds_out_its_own() {
        let mut associations = Associations::default();
        let [flooder, other] = [[192, 0, 2, 7], [192, 0, 2, 8]].map(IpAddr::from);
        let (oldest_of_all, _) = begin(&mut associations, other);
        let ids: Vec<_> =
            (0..HALF_OPEN_PER_CUSTOMER).map(|_| begin(&mut associations, flooder)).collect();
        assert!(ids.iter().all(|(_, crowded_out)| crowded_out.is_none()));
        assert_eq!(begin(&mut associations, flooder).1, Some(ids[0].0));
        assert_eq!(begin(&mut associations, flooder).1, Some(ids[1].0));
        assert_eq!(associations.half_open(), HALF_OPEN_PER_CUSTOMER + 1);
        assert!(associations.get_mut(oldest_of_all).is_some());
        // Those that are done count no more.
        assert!(associations.establish(ids[2].0) && !associations.establish(ids[2].0));
        assert_eq!(begin(&mut associations, flooder).1, None);
        assert_eq!(associations.half_open_ids().len(), associations.half_open());
    }

    #[test]
    fn when_all_places_are_taken_who_has_most_makes_room() {
        let mut associations = Associations::default();
        let flooder = |number| IpAddr::from([198, 51, 100, number]);
        let honest: Vec<_> = (0..8)
            .map(|number| begin(&mut associations, IpAddr::from([192, 0, 2, number])).0)
            .collect();
        let mut number = 0;
        while associations.half_open() < HALF_OPEN_MAX {
            begin(&mut associations, flooder((number / HALF_OPEN_PER_CUSTOMER) as u8));
            number += 1;
        }
        for number in 0..=255 {
            let newcomer = IpAddr::from([203, 0, 113, number]);
            let (_, crowded_out) = begin(&mut associations, newcomer);
            assert!(crowded_out.is_some_and(|id| !honest.contains(&id)), "{number}");
            begin(&mut associations, flooder(number % 7));
        }
        assert!(honest.iter().all(|id| associations.get_mut(*id).is_some()));
        assert_eq!(associations.half_open(), HALF_OPEN_MAX);
    }

    #[test]
    fn numbers_are_associations_and_nothing_else() {
        let id = Associations::default().next_id().unwrap();
        assert!(is_association(id) && !crate::streams::is_stream(id));
        assert!(!is_association(SocketId(3)) && !is_association(SocketId(u32::MAX)));
    }
}
