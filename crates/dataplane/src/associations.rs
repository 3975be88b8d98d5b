//! The DTLS associations of one worker's clients.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use linux_net::Flow;
use turn_session::dtls::{DtlsEngine, Exchange};
use turn_types::{ClientPath, FiveTuple, Instant, Marks, SocketId};

use crate::admission::Admitted;
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

    /// The way to the client.
    pub(crate) fn flow(&self, sockets: &Sockets, marks: Marks) -> Option<Flow> {
        let FiveTuple { client, server, .. } = self.path.five_tuple;
        let listener = sockets.listener(self.listener)?;
        Some(listener.flow(self.listener, client, server.ip(), marks))
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
    /// Those whose handshake is not done, the oldest first, and some of which it is.
    young: VecDeque<SocketId>,
    /// How many of them it is not.
    half_open: usize,
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
            young: VecDeque::new(),
            half_open: 0,
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
        self.young.push_back(id);
        self.half_open += 1;
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
        self.half_open -= usize::from(!association.established);
        Some(association)
    }

    /// The handshake of one of them is done. False if it was before.
    pub(crate) fn establish(&mut self, id: SocketId) -> bool {
        let newly = self
            .get_mut(id)
            .is_some_and(|association| !std::mem::replace(&mut association.established, true));
        self.half_open -= usize::from(newly);
        newly
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// How many there are whose handshake is not done.
    pub(crate) const fn half_open(&self) -> usize {
        self.half_open
    }

    /// The oldest whose handshake is not done.
    pub(crate) fn oldest_half_open(&mut self) -> Option<SocketId> {
        while let Some(&id) = self.young.front() {
            if self.get_mut(id).is_some_and(|association| !association.established) {
                return Some(id);
            }
            self.young.pop_front();
        }
        None
    }

    /// All whose handshake is not done.
    pub(crate) fn half_open_ids(&mut self) -> Vec<SocketId> {
        let mut young = std::mem::take(&mut self.young);
        young.retain(|&id| self.get_mut(id).is_some_and(|association| !association.established));
        let ids = young.iter().copied().collect();
        self.young = young;
        ids
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
    use super::*;

    #[test]
    fn numbers_are_associations_and_nothing_else() {
        let id = Associations::default().next_id().unwrap();
        assert!(is_association(id) && !crate::streams::is_stream(id));
        assert!(!is_association(SocketId(3)) && !is_association(SocketId(u32::MAX)));
    }
}
