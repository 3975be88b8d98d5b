//! Marked payloads, by which every byte is known to be its receiver's.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;

use netsim::Rng;

/// Relayed addresses that each client had, shared by the hosts of a world.
#[derive(Clone, Debug, Default)]
pub struct Board(Rc<RefCell<Relayed>>);

#[derive(Debug, Default)]
struct Relayed {
    owners: BTreeMap<SocketAddr, BTreeSet<u8>>,
    /// The last ones of TCP allocations.
    tcp: Vec<SocketAddr>,
}

/// Relayed addresses that peers connect to.
const TCP_RELAYED_MAX: usize = 4;

impl Board {
    /// Notes that a client has a relayed address.
    pub fn owns(&self, client: u8, relayed: SocketAddr) {
        self.0.borrow_mut().owners.entry(relayed).or_default().insert(client);
    }

    /// Notes that peers can connect to a relayed address.
    pub(crate) fn relays_tcp(&self, relayed: SocketAddr) {
        let tcp = &mut self.0.borrow_mut().tcp;
        tcp.truncate(TCP_RELAYED_MAX - 1);
        tcp.insert(0, relayed);
    }

    /// A relayed address to connect to.
    pub(crate) fn tcp_relayed(&self, rng: &mut Rng) -> Option<SocketAddr> {
        let relayed = self.0.borrow();
        relayed.tcp.get(rng.index(relayed.tcp.len())).copied()
    }

    /// Returns true if a client has, or had, a relayed address.
    #[must_use]
    pub fn has_owned(&self, client: u8, relayed: SocketAddr) -> bool {
        self.0.borrow().owners.get(&relayed).is_some_and(|clients| clients.contains(&client))
    }
}

/// Length of the first bytes of a connection.
pub(crate) const HEADER_LEN: usize = 9;

/// First bytes of the connection `number` of `client` to the peer at `peer`.
pub(crate) fn stream_header(client: u8, peer: SocketAddr, number: u32) -> [u8; HEADER_LEN] {
    let mut header = [client; HEADER_LEN];
    header[1..5].copy_from_slice(&number.to_be_bytes());
    header[5..].copy_from_slice(&mark(peer).to_be_bytes());
    header
}

/// The byte at this offset of a connection.
pub(crate) fn stream_byte(header: &[u8; HEADER_LEN], offset: u64) -> u8 {
    let byte = usize::try_from(offset).ok().and_then(|offset| header.get(offset));
    byte.copied().unwrap_or_else(|| header[0] ^ header[4] ^ (offset % 251) as u8)
}

/// The client of a connection to the peer at `peer`, by its first bytes; `None`: it is to another
/// peer.
pub(crate) fn client_of_stream(header: &[u8; HEADER_LEN], peer: SocketAddr) -> Option<u8> {
    (header[5..] == mark(peer).to_be_bytes()).then_some(header[0])
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
