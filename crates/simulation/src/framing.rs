//! Marked payloads, by which every byte is known to be its receiver's.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;

/// Relayed addresses that each client had, shared by the hosts of a world.
#[derive(Clone, Debug, Default)]
pub struct Board(Rc<RefCell<BTreeMap<SocketAddr, BTreeSet<u8>>>>);

impl Board {
    /// Notes that a client has a relayed address.
    pub fn owns(&self, client: u8, relayed: SocketAddr) {
        self.0.borrow_mut().entry(relayed).or_default().insert(client);
    }

    /// Returns true if a client has, or had, a relayed address.
    #[must_use]
    pub fn has_owned(&self, client: u8, relayed: SocketAddr) -> bool {
        self.0.borrow().get(&relayed).is_some_and(|clients| clients.contains(&client))
    }
}

/// A payload of `client` for the peer at `peer`, `len` bytes long and at least 9.
#[must_use]
pub(crate) fn payload(client: u8, peer: SocketAddr, number: u32, len: usize) -> Vec<u8> {
    let mut payload = vec![client];
    payload.extend(number.to_be_bytes());
    payload.extend(mark(peer).to_be_bytes());
    payload.resize(len.max(9), client ^ number as u8);
    payload
}

/// The client of a payload for `peer`; `None`: it is none, or for another peer.
pub(crate) fn client_of(payload: &[u8], peer: SocketAddr) -> Option<u8> {
    let (&client, rest) = payload.split_first()?;
    let number = u32::from_be_bytes(*rest.first_chunk()?);
    let marked = u32::from_be_bytes(*rest.get(4..)?.first_chunk()?);
    let filler = rest.get(8..)?;
    let is_whole = filler.iter().all(|byte| *byte == client ^ number as u8);
    (is_whole && marked == mark(peer)).then_some(client)
}

fn mark(peer: SocketAddr) -> u32 {
    let ip = match peer {
        SocketAddr::V4(v4) => u32::from(*v4.ip()),
        SocketAddr::V6(v6) => u128::from(*v6.ip()) as u32,
    };
    ip.wrapping_mul(31) ^ u32::from(peer.port())
}
