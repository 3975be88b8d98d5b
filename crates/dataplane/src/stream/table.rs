//! Clients' TCP connections by number and address.

use std::collections::HashMap;

use turn_types::{ClientAddr, ServerAddr, SocketId};

use super::connection::Stream;
use crate::io::Net;
use crate::limits::RIVALS_COMPARED;
use crate::slab::Slab;
use crate::token::STREAM;

/// Connections of one worker.
#[derive(Debug)]
pub(crate) struct StreamTable<N: Net> {
    slab: Slab<Stream<N>>,
    /// Connection that holds each pair of client and server address. Connections without their
    /// PROXY header hold no addresses.
    by_addresses: HashMap<(ClientAddr, ServerAddr), SocketId>,
}

impl<N: Net> Default for StreamTable<N> {
    fn default() -> Self {
        Self { slab: Slab::new(STREAM), by_addresses: HashMap::new() }
    }
}

impl<N: Net> StreamTable<N> {
    /// Returns the number of the next connection, or `None` if the table is full.
    pub(crate) fn next_id(&mut self) -> Option<SocketId> {
        self.slab.next_id()
    }

    /// Adds a connection under the number that [`next_id`](Self::next_id) returned.
    pub(crate) fn insert(&mut self, stream: Box<Stream<N>>) {
        self.slab.insert(stream.path.socket, stream);
    }

    pub(crate) fn get(&self, id: SocketId) -> Option<&Stream<N>> {
        self.slab.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: SocketId) -> Option<&mut Stream<N>> {
        self.slab.get_mut(id)
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<Box<Stream<N>>> {
        let holds_addresses = self.holds_addresses(id);
        let stream = self.slab.remove(id)?;
        if holds_addresses {
            self.by_addresses.remove(&stream.addresses());
        }
        Some(stream)
    }

    /// Removes a connection, and keeps the number and addresses in use until the connection is [put
    /// back](Self::put_back) or [forgotten](Self::forget).
    pub(crate) fn lift(&mut self, id: SocketId) -> Option<Box<Stream<N>>> {
        self.slab.lift(id)
    }

    /// Puts a connection back under its number.
    pub(crate) fn put_back(&mut self, stream: Box<Stream<N>>) {
        self.slab.put_back(stream.path.socket, stream);
    }

    /// Frees the number and addresses of a connection that was [lifted](Self::lift).
    pub(crate) fn forget(&mut self, id: SocketId, addresses: (ClientAddr, ServerAddr)) {
        self.slab.free(id);
        if self.by_addresses.get(&addresses) == Some(&id) {
            self.by_addresses.remove(&addresses);
        }
    }

    /// Returns another connection that holds the addresses of this connection.
    pub(crate) fn other_with_addresses_of(&mut self, id: SocketId) -> Option<SocketId> {
        let addresses = self.slab.get_mut(id)?.addresses();
        self.by_addresses.get(&addresses).copied().filter(|holder| *holder != id)
    }

    /// Marks a connection as the holder of its addresses.
    pub(crate) fn hold_addresses(&mut self, id: SocketId) {
        if let Some(stream) = self.slab.get_mut(id) {
            self.by_addresses.insert(stream.addresses(), id);
        }
    }

    /// Returns true if a connection holds its addresses. The allocation of the 5-tuple then belongs
    /// to this connection.
    pub(crate) fn holds_addresses(&mut self, id: SocketId) -> bool {
        let Some(stream) = self.slab.get_mut(id) else { return false };
        self.by_addresses.get(&stream.addresses()) == Some(&id)
    }

    /// Returns the connection that holds these addresses.
    pub(crate) fn holder_of(&self, client: ClientAddr, server: ServerAddr) -> Option<SocketId> {
        self.by_addresses.get(&(client, server)).copied()
    }

    /// Returns candidates for eviction from all parts of the table.
    pub(crate) fn sample(&mut self) -> impl Iterator<Item = &Stream<N>> {
        self.slab.sample(RIVALS_COMPARED)
    }

    pub(crate) const fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream<N>> {
        self.slab.iter_mut()
    }
}
