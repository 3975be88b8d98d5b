//! Clients expected at this worker, with allocations at another worker (RFC 8016). A Refresh by
//! ticket on a 5-tuple of this worker has succeeded. This worker fetches the allocation as soon as
//! the client sends anything except a retransmission of the Refresh. Until then the allocation
//! remains at the other worker, with the client's old 5-tuple.

use ahash::RandomState;
use fair_share::{Claimant, LOGGED_IN, Share, Shortage, Slots};
use hashbrown::HashMap;
use stun_wire::TransactionId;
use turn_types::{AllocationId, ClientPath, FiveTuple, Instant};

use crate::credentials::Grant;
use crate::io::Granted;
use crate::limits::{EXPECTED_CLIENTS_MAX, MOVE_AGAIN_AFTER};

#[derive(Debug)]
pub(crate) struct ExpectedClient {
    pub(crate) allocation: AllocationId,
    pub(crate) path: ClientPath,
    /// Grant of the allocation, to authenticate requests without a user look-up.
    pub(crate) grant: Grant,
    /// Transaction of the Refresh by ticket, to recognise a retransmission; `None` after an import.
    pub(crate) transaction: Option<TransactionId>,
    pub(crate) granted: Granted,
    /// Expiry of the allocation without another Refresh.
    pub(crate) expires: Instant,
    /// Time of the last request to the other worker for the allocation.
    pub(crate) asked: Option<Instant>,
}

/// Table of expected clients: at most [`EXPECTED_CLIENTS_MAX`], and at most one per allocation.
#[derive(Debug)]
pub(crate) struct ExpectedClients {
    by_client: HashMap<FiveTuple, Entry, RandomState>,
    slots: Slots,
    by_allocation: HashMap<AllocationId, FiveTuple, RandomState>,
    /// Time of the next sweep, not later than the next expiry.
    sweep_at: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    client: ExpectedClient,
    share: Share,
}

impl ExpectedClients {
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self {
            by_client: HashMap::with_hasher(hasher.clone()),
            slots: Slots::new(&LOGGED_IN, EXPECTED_CLIENTS_MAX, hasher.clone()),
            by_allocation: HashMap::with_hasher(hasher),
            sweep_at: None,
        }
    }

    /// Sets whether realms compete for the table.
    pub(crate) const fn set_realms_compete(&mut self, compete: bool) {
        self.slots.set_realms_compete(compete);
    }

    /// Checks that another client may be expected.
    ///
    /// # Errors
    /// The table is full, or nearly full and the client's share is used up.
    pub(crate) fn check(&self, claimant: &Claimant<'_>) -> Result<(), Shortage> {
        self.slots.check(claimant)
    }

    /// Returns the client expected on a 5-tuple.
    pub(crate) fn get(&self, five_tuple: &FiveTuple, now: Instant) -> Option<&ExpectedClient> {
        let client = self.by_client.get(five_tuple).map(|entry| &entry.client);
        client.filter(|client| now < client.expires)
    }

    /// Returns true if a client is expected on a 5-tuple. The entry may have expired.
    pub(crate) fn has(&self, five_tuple: &FiveTuple) -> bool {
        self.by_client.contains_key(five_tuple)
    }

    /// Expects a client, and drops a previous expectation for the same allocation. Returns the
    /// 5-tuple of the previous expectation.
    pub(crate) fn insert(&mut self, client: ExpectedClient) -> Option<FiveTuple> {
        let five_tuple = client.path.five_tuple;
        self.remove(&five_tuple);
        let before = self.by_allocation.insert(client.allocation, five_tuple);
        if let Some(before) = &before {
            self.take(before);
        }
        self.sweep_at = Some(client.expires.earliest(self.sweep_at));
        let share = self.slots.keep(&client.grant.claimant(five_tuple.client));
        self.by_client.insert(five_tuple, Entry { client, share });
        before
    }

    pub(crate) fn remove(&mut self, five_tuple: &FiveTuple) -> Option<ExpectedClient> {
        let client = self.take(five_tuple)?;
        self.by_allocation.remove(&client.allocation);
        Some(client)
    }

    /// Removes a client, and releases the client's share.
    fn take(&mut self, five_tuple: &FiveTuple) -> Option<ExpectedClient> {
        let Entry { client, share } = self.by_client.remove(five_tuple)?;
        self.slots.release(share);
        Some(client)
    }

    /// Notes a packet of an expected client. Returns the allocation to fetch, unless the last
    /// request for it is younger than [`MOVE_AGAIN_AFTER`].
    pub(crate) fn came(&mut self, five_tuple: &FiveTuple, now: Instant) -> Option<AllocationId> {
        let client = &mut self.by_client.get_mut(five_tuple)?.client;
        if client.asked.is_some_and(|asked| now.saturating_since(asked) < MOVE_AGAIN_AFTER) {
            return None;
        }
        client.asked = Some(now);
        Some(client.allocation)
    }

    /// Returns the clients that have sent packets and still wait for the allocation. The time is
    /// that of the last request for the allocation.
    pub(crate) fn fetched(&self) -> impl Iterator<Item = (FiveTuple, Instant)> {
        let clients = self.by_client.iter();
        clients.filter_map(|(five_tuple, entry)| Some((*five_tuple, entry.client.asked?)))
    }

    /// Returns the time at which [`Self::sweep`] is due.
    pub(crate) const fn next_sweep(&self) -> Option<Instant> {
        self.sweep_at
    }

    /// Removes the clients of expired allocations.
    pub(crate) fn sweep(&mut self, now: Instant) {
        for (_, Entry { client, share }) in
            self.by_client.extract_if(|_, entry| entry.client.expires <= now)
        {
            self.by_allocation.remove(&client.allocation);
            self.slots.release(share);
        }
        self.sweep_at = self.by_client.values().map(|entry| entry.client.expires).min();
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use turn_types::{ClientAddr, ServerAddr, SocketId, Transport};

    use super::*;
    use crate::random::Random;

    const START: Instant = Instant::from_nanos(5);

    fn five_tuple(port: u16) -> FiveTuple {
        FiveTuple {
            transport: Transport::Udp,
            client: ClientAddr(([198, 51, 100, 1], port).into()),
            server: ServerAddr(([203, 0, 113, 1], 3478).into()),
        }
    }

    fn client(port: u16, expires: Instant) -> ExpectedClient {
        ExpectedClient {
            allocation: AllocationId(port.into()),
            path: ClientPath { five_tuple: five_tuple(port), socket: SocketId(0) },
            grant: Grant::anonymous("example.org".into()),
            transaction: Some(TransactionId([1; 12])),
            granted: Granted { lifetime: 600, ticket: None },
            expires,
            asked: None,
        }
    }

    #[test]
    fn a_client_is_expected_until_its_allocation_ends() {
        let mut expected = ExpectedClients::new(Random::new([1; 32]).hasher());
        let [first, second] = [600, 700].map(|secs| START + Duration::from_secs(secs));
        assert_eq!(expected.next_sweep(), None);
        expected.insert(client(1, second));
        expected.insert(client(2, first));
        assert_eq!(expected.next_sweep(), Some(first));
        let before = Instant::from_nanos(first.as_nanos() - 1);
        assert!(expected.get(&five_tuple(2), before).is_some());
        assert!(expected.get(&five_tuple(2), first).is_none());
        assert!(expected.has(&five_tuple(2)) && !expected.has(&five_tuple(3)));
        expected.sweep(first);
        assert!(!expected.has(&five_tuple(2)) && expected.has(&five_tuple(1)));
        assert_eq!(expected.next_sweep(), Some(second));
        // A swept client is expected nowhere, and the remaining client still is.
        assert_eq!(expected.insert(client(2, second)), None);
        let elsewhere = ExpectedClient { allocation: AllocationId(1), ..client(3, second) };
        assert_eq!(expected.insert(elsewhere), Some(five_tuple(1)));
    }

    /// Returns a client of the `/64` with a number.
    fn client_at(network: u32, allocation: u64) -> ExpectedClient {
        let address = core::net::Ipv6Addr::from_bits(u128::from(network) << 64);
        let mut client = client(1, START + Duration::from_secs(600));
        client.path.five_tuple.client = ClientAddr((address, 1).into());
        ExpectedClient { allocation: AllocationId(allocation), ..client }
    }

    #[test]
    fn a_site_leaves_places_to_others_and_gives_its_own_back() {
        let mut expected = ExpectedClients::new(Random::new([1; 32]).hasher());
        let claimant = |client: &ExpectedClient| Claimant::at(client.path.five_tuple.client.ip());
        let mut taken = 0;
        for number in 0..=EXPECTED_CLIENTS_MAX {
            let of_site = client_at(number, number.into());
            if expected.check(&claimant(&of_site)).is_err() {
                break;
            }
            expected.insert(of_site);
            taken += 1;
        }
        assert!(taken < EXPECTED_CLIENTS_MAX, "{taken}");
        let elsewhere = client_at(0x2001_0000, 1 << 20);
        assert_eq!(expected.check(&claimant(&elsewhere)), Ok(()));
        expected.insert(elsewhere);
        // Another 5-tuple of an allocation, a removed client and expired clients take no slots.
        expected.insert(client_at(EXPECTED_CLIENTS_MAX + 1, 0));
        assert_eq!(expected.slots.held(), taken + 1);
        let removed = client_at(1, 1).path.five_tuple;
        assert!(expected.remove(&removed).is_some());
        assert_eq!(expected.slots.held(), taken);
        expected.sweep(START + Duration::from_secs(600));
        assert_eq!(expected.slots.held(), 0);
    }
}
