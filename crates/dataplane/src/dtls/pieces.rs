//! Incomplete ClientHellos of clients with verified addresses.

use std::net::SocketAddr;

use ahash::RandomState;
use fair_share::{CLIENTS, Claimant, Share, Slots};
use turn_session::dtls::{HelloPiece, PartialHello};
use turn_types::{FiveTuple, Instant};

use crate::limits::{HELLO_PIECES, HELLO_PIECES_KEPT};

/// Addresses of client and server.
type Key = (SocketAddr, SocketAddr);

/// Incomplete ClientHellos, with bounded number, size and age.
#[derive(Debug)]
pub(super) struct HelloPieces {
    /// Hellos sorted by age, the oldest first.
    hellos: Vec<IncompleteHello>,
    slots: Slots,
}

#[derive(Debug)]
struct IncompleteHello {
    key: Key,
    hello: PartialHello,
    begun: Instant,
    share: Share,
}

impl HelloPieces {
    /// Creates a table without hellos. The hasher must have a secret seed.
    pub(super) fn new(hasher: RandomState) -> Self {
        Self { hellos: Vec::new(), slots: Slots::new(&CLIENTS, HELLO_PIECES, hasher) }
    }

    /// Stores the first fragment of a client, and discards an earlier hello of the client. Returns
    /// false if the table is full, and the client's network has more hellos in the table than any
    /// other network.
    pub(super) fn begin(
        &mut self,
        client: &FiveTuple,
        first: &HelloPiece<'_>,
        now: Instant,
    ) -> bool {
        let key = key(client);
        self.remove_where(|hello| hello.is_over(now) || hello.key == key);
        let claimant = Claimant::at(client.client.ip());
        let Self { hellos, slots } = self;
        if slots.held() >= slots.capacity() {
            let rival = slots.rival(&claimant, hellos.len(), |position| &hellos[position].share);
            let Some(rival) = rival else { return false };
            slots.release(hellos.remove(rival).share);
        }
        let (hello, share) = (PartialHello::begin(first), slots.keep(&claimant));
        hellos.push(IncompleteHello { key, hello, begun: now, share });
        true
    }

    /// Appends a fragment. Returns false if the fragment continues no stored hello.
    pub(super) fn add(&mut self, client: &FiveTuple, next: &HelloPiece<'_>, now: Instant) -> bool {
        let key = key(client);
        let found = self.hellos.iter_mut().find(|hello| hello.key == key);
        found.is_some_and(|stored| !stored.is_over(now) && stored.hello.add(next))
    }

    /// Removes the hello of a client if complete, and passes the bytes to `take`.
    pub(super) fn take_whole<T>(
        &mut self,
        client: &FiveTuple,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let key = key(client);
        let found = self.hellos.iter().find(|hello| hello.key == key)?;
        let taken = take(found.hello.whole()?);
        self.remove_where(|hello| hello.key == key);
        Some(taken)
    }

    fn remove_where(&mut self, predicate: impl FnMut(&mut IncompleteHello) -> bool) {
        for hello in self.hellos.extract_if(.., predicate) {
            self.slots.release(hello.share);
        }
    }
}

impl IncompleteHello {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_since(self.begun) >= HELLO_PIECES_KEPT
    }
}

const fn key(client: &FiveTuple) -> Key {
    (client.client.0, client.server.0)
}
