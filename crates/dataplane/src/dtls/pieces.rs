//! Incomplete ClientHellos of clients with verified addresses.

use std::collections::HashMap;
use std::net::SocketAddr;

use turn_session::dtls::{HelloPiece, PartialHello};
use turn_types::{FiveTuple, Instant, Prefix};

use crate::limits::{HELLO_PIECES, HELLO_PIECES_KEPT, HELLO_PIECES_PER_CUSTOMER};

/// Addresses: client and server.
type Key = (SocketAddr, SocketAddr);

/// Incomplete ClientHellos, with bounded number, size and age.
#[derive(Debug, Default)]
pub(super) struct HelloPieces(HashMap<Key, (PartialHello, Instant)>);

impl HelloPieces {
    /// Stores the first fragment of a client, and discards an earlier one. Returns false if the
    /// table is full.
    pub(super) fn begin(
        &mut self,
        client: &FiveTuple,
        first: &HelloPiece<'_>,
        now: Instant,
    ) -> bool {
        let is_live = |begun: Instant| now.saturating_since(begun) < HELLO_PIECES_KEPT;
        self.0.retain(|_, (_, begun)| is_live(*begun));
        let key = key(client);
        let customer = Prefix::customer(client.client.ip());
        let is_theirs = |(other, _): &&Key| Prefix::customer(other.ip()) == customer;
        let others = self.0.keys().filter(|other| **other != key);
        let has_room = others.clone().count() < HELLO_PIECES
            && others.filter(is_theirs).count() < HELLO_PIECES_PER_CUSTOMER;
        if has_room {
            self.0.insert(key, (PartialHello::begin(first), now));
        }
        has_room
    }

    /// Appends a fragment. Returns false if the fragment continues no stored hello.
    pub(super) fn add(&mut self, client: &FiveTuple, next: &HelloPiece<'_>, now: Instant) -> bool {
        let Some((hello, begun)) = self.0.get_mut(&key(client)) else { return false };
        now.saturating_since(*begun) < HELLO_PIECES_KEPT && hello.add(next)
    }

    /// Removes the hello of a client if complete, and passes the bytes to `take`.
    pub(super) fn take_whole<T>(
        &mut self,
        client: &FiveTuple,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let key = key(client);
        let (hello, _) = self.0.get(&key)?;
        let taken = take(hello.whole()?);
        self.0.remove(&key);
        Some(taken)
    }
}

const fn key(client: &FiveTuple) -> Key {
    (client.client.0, client.server.0)
}
