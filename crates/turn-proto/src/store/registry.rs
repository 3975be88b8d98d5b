//! The state that all workers share besides ports: quotas, reservations, and the workers of mobile
//! allocations.
//!
//! The [`Registry`] is plain data; implementations of [`SharedRegistry`] add a lock. It is taken
//! when an allocation begins or ends, never for a packet. Quotas and locations are held through
//! leases, so that an allocation gives them back however it ends.

mod connected;
mod location;
mod shares;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::mem;

use ahash::RandomState;
use fair_share::{Claimant, Share, Supply, UseLevel};
use turn_types::{
    AllocationId, FiveTuple, Instant, Prefix, Realm, RelayedAddr, Transport, WorkerId,
};

use self::connected::{ClientTable, ConnectedShares};
use self::location::Location;
pub(crate) use self::location::LocationLease;
use self::shares::{LimitedLevels, RegistryShares, claimant};
use crate::io::{Refusal, ShareHolder};
use crate::limits::RESERVATIONS_PER_ACCOUNT_MAX;
use crate::policy::{PortLease, Quotas};

/// Access to the one [`Registry`] of a server.
pub trait SharedRegistry: Send + Sync {
    /// Runs `f` once, with exclusive access. `f` must not call back into the same registry.
    fn with(&self, f: &mut dyn FnMut(&mut Registry));
}

/// Live allocations by account, and ports reserved by token.
#[derive(Debug, Default)]
pub struct Registry {
    /// Live allocations of each account that has any; as many entries as allocations at most.
    accounts: BTreeMap<Account, u32>,
    /// Live allocations of each customer that has any.
    customers: BTreeMap<Prefix, u32>,
    /// Live allocations of each realm that has any; as many entries as realms have been configured
    /// at most.
    realms: BTreeMap<Realm, Held>,
    /// Live allocations of all accounts.
    total: Held,
    /// Ports kept for a second Allocate; at most
    /// [`RESERVATIONS_MAX`](crate::limits::RESERVATIONS_MAX).
    reservations: BTreeMap<[u8; 8], ReservationEntry>,
    /// Shares of networks, accounts and realms. `None` before the first worker.
    shares: Option<RegistryShares>,
    /// The worker of each mobile allocation; as many entries as allocations at most.
    locations: BTreeMap<AllocationId, Location>,
}

/// What live allocations hold together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    allocations: u32,
    /// Bytes per second in each direction that they may use at most.
    rate: u64,
}

/// Key of a quota: a name within a realm.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Account {
    pub(crate) realm: Realm,
    /// Empty on an open relay, where only the total counts.
    pub(crate) name: Arc<str>,
}

/// Limits of live allocations; 0 is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllocationQuota {
    pub(crate) per_account: u32,
    /// Of all accounts of one realm.
    pub(crate) per_realm: u32,
    /// Of one customer, over all its accounts.
    pub(crate) per_customer: u32,
    /// Of all accounts.
    pub(crate) total: u32,
    /// Bytes per second in each direction that this allocation may use; 0 takes no part in the next
    /// two.
    pub(crate) rate: u64,
    /// Rates of all accounts of one realm together.
    pub(crate) realm_rate: u64,
    /// Rates of all accounts together.
    pub(crate) total_rate: u64,
}

/// A port kept for a client that asked for a pair (RESERVATION-TOKEN, RFC 8656 §7.2).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) relayed: RelayedAddr,
    pub(crate) lease: PortLease,
    /// Account and customer of the Allocate that reserved it.
    pub(crate) account: Account,
    pub(crate) customer: Prefix,
    pub(crate) expires: Instant,
}

/// A reservation with its share of the table.
#[derive(Debug)]
struct ReservationEntry {
    held: Reservation,
    share: Share,
    port_share: Share,
}

impl Reservation {
    /// The client as it is counted in the table.
    fn claimant(&self) -> Claimant<'_> {
        claimant(&self.account, self.customer)
    }
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            accounts: BTreeMap::new(),
            customers: BTreeMap::new(),
            realms: BTreeMap::new(),
            total: Held { allocations: 0, rate: 0 },
            reservations: BTreeMap::new(),
            shares: None,
            locations: BTreeMap::new(),
        }
    }

    /// Live allocations of an account.
    pub(crate) fn allocations_of(&self, account: &Account) -> u32 {
        self.accounts.get(account).copied().unwrap_or(0)
    }

    /// Live allocations of a realm.
    #[must_use]
    pub fn allocations_in(&self, realm: &str) -> u32 {
        self.held_in(realm).allocations
    }

    fn held_in(&self, realm: &str) -> Held {
        self.realms.get(realm).copied().unwrap_or_default()
    }

    /// Live allocations of all accounts.
    #[must_use]
    pub const fn allocations(&self) -> u32 {
        self.total.allocations
    }

    /// Ports that are reserved, expired ones included until they are swept.
    #[must_use]
    pub fn reservations(&self) -> usize {
        self.reservations.len()
    }

    fn check(
        &self,
        (account, customer): (&Account, Prefix),
        transport: Transport,
        quota: AllocationQuota,
    ) -> Result<(), Refusal> {
        let full = |used: u32, max: u32| max != 0 && used >= max;
        if !account.name.is_empty() && full(self.allocations_of(account), quota.per_account) {
            return Err(Refusal::UserQuota);
        }
        let of_customer = self.customers.get(&customer).copied().unwrap_or(0);
        if full(of_customer, quota.per_customer) {
            return Err(Refusal::AddressQuota);
        }
        if full(self.allocations_in(&account.realm), quota.per_realm) {
            return Err(Refusal::RealmQuota);
        }
        if full(self.total.allocations, quota.total) {
            return Err(Refusal::TotalQuota);
        }
        let spent = |used: u64, max: u64| max != 0 && used.saturating_add(quota.rate) > max;
        if spent(self.held_in(&account.realm).rate, quota.realm_rate)
            || spent(self.total.rate, quota.total_rate)
        {
            return Err(Refusal::BandwidthQuota);
        }
        let Some(shares) = &self.shares else { return Ok(()) };
        let held_in_realm = || self.held_in(&account.realm);
        shares.check(account, customer, &quota, self.total, held_in_realm)?;
        match ClientTable::of(transport) {
            Some(table) => {
                shares.check_table(table, &quota.limited_levels().claimant(account, customer))
            }
            None => Ok(()),
        }
    }

    /// Counts an allocation, even beyond all limits.
    fn keep(
        &mut self,
        (account, customer): (&Account, Prefix),
        transport: Transport,
        rate: u64,
    ) -> HeldShares {
        *self.accounts.entry(account.clone()).or_insert(0) += 1;
        *self.customers.entry(customer).or_insert(0) += 1;
        self.realms.entry(account.realm.clone()).or_default().add(rate);
        self.total.add(rate);
        let mut held = HeldShares::default();
        if let Some(shares) = &mut self.shares {
            let client = claimant(account, customer);
            held.allocation = Some(shares.allocations.keep(&client));
            if let Some(table) = ClientTable::of(transport) {
                shares.connected.keep(table, &client, &mut held.connected);
            }
        }
        held
    }

    fn give_back(&mut self, account: &Account, customer: Prefix, rate: u64, held: HeldShares) {
        let HeldShares { allocation, mut connected } = held;
        if let Some(shares) = &mut self.shares {
            shares.connected.release(&mut connected);
            if let Some(share) = allocation {
                shares.allocations.release(share);
            }
        }
        let was_held = one_less(&mut self.accounts, account);
        debug_assert!(was_held, "a quota was given back twice");
        if was_held {
            one_less(&mut self.customers, &customer);
            if let Some(realm) = self.realms.get_mut(&account.realm) {
                realm.remove(rate);
                if realm.allocations == 0 {
                    self.realms.remove(&account.realm);
                }
            }
            self.total.remove(rate);
        }
    }

    /// Keeps a port. Returns the reservation if its account or customer has as many as it may have,
    /// or the share of its account or network is used up while few are left, or the token is taken.
    ///
    /// An open relay has one account, without a separate bound; time-limited names may be a new
    /// one each time.
    fn reserve(&mut self, token: [u8; 8], reservation: Reservation) -> Option<Reservation> {
        let held = |of: &dyn Fn(&Reservation) -> bool| {
            self.reservations.values().filter(|entry| of(&entry.held)).count()
        };
        let Reservation { account, customer, .. } = &reservation;
        let by_account = held(&|held| held.account == *account);
        let fits = (account.name.is_empty() || by_account < RESERVATIONS_PER_ACCOUNT_MAX)
            && held(&|held| held.customer == *customer) < RESERVATIONS_PER_ACCOUNT_MAX
            && !self.reservations.contains_key(&token);
        let Some(shares) = self.shares.as_mut().filter(|_| fits) else { return Some(reservation) };
        let Ok(share) = shares.reservations.claim(&reservation.claimant()) else {
            return Some(reservation);
        };
        let port_share = shares.allocations.keep(&reservation.claimant());
        self.reservations.insert(token, ReservationEntry { held: reservation, share, port_share });
        None
    }

    fn remove_reservation(&mut self, token: [u8; 8]) -> Option<Reservation> {
        let ReservationEntry { held, share, port_share } = self.reservations.remove(&token)?;
        if let Some(shares) = &mut self.shares {
            shares.reservations.release(share);
            shares.allocations.release(port_share);
        }
        Some(held)
    }

    fn sweep(&mut self, now: Instant) {
        let is_over = |entry: &ReservationEntry| entry.held.expires <= now;
        let over: Vec<_> = self
            .reservations
            .iter()
            .filter_map(|(token, entry)| is_over(entry).then_some(*token))
            .collect();
        for token in over {
            self.remove_reservation(token);
        }
    }
}

impl Held {
    fn add(&mut self, rate: u64) {
        self.allocations += 1;
        self.rate += rate;
    }

    fn remove(&mut self, rate: u64) {
        self.allocations -= 1;
        self.rate -= rate;
    }
}

/// Counts one less; false if there was none.
fn one_less<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
    true
}

/// Access of one worker to the registry.
#[derive(Clone)]
pub(crate) struct RegistryHandle(Arc<dyn SharedRegistry>);

impl RegistryHandle {
    /// Access for a worker. The hasher has a secret seed; that of the first worker is used.
    pub(crate) fn new(registry: Arc<dyn SharedRegistry>, hasher: RandomState) -> Self {
        let handle = Self(registry);
        handle.with(|registry| {
            registry.shares.get_or_insert_with(|| RegistryShares::new(hasher));
        });
        handle
    }

    /// Sets if realms compete for ports and quotas, and the limits of allocations with connections
    /// or DTLS sessions.
    pub(crate) fn set_limits(&self, compete: bool, quotas: &Quotas) {
        self.with(|registry| {
            if let Some(shares) = &mut registry.shares {
                shares.reservations.set_realms_compete(compete);
                shares.allocations.set_realms_compete(compete);
                shares.connected.set_realms_compete(compete);
                shares.connected.set_limits(quotas);
            }
        });
    }

    fn with<T>(&self, f: impl FnOnce(&mut Registry) -> T) -> T {
        let (mut f, mut result) = (Some(f), None);
        self.0.with(&mut |registry| {
            if let Some(f) = f.take() {
                result = Some(f(registry));
            }
        });
        result.expect("a shared registry runs the function")
    }

    /// Takes a place for one allocation of a client over `transport`.
    ///
    /// # Errors
    /// [`Refusal::UserQuota`], [`Refusal::AddressQuota`], [`Refusal::RealmQuota`],
    /// [`Refusal::TotalQuota`] or [`Refusal::BandwidthQuota`] when the quota is used up,
    /// [`Refusal::QuotaShare`] when little is left and the client has its share,
    /// [`Refusal::ConnectionShare`] when little is left of the table of its connection; nothing is
    /// taken then.
    pub(crate) fn take_quota(
        &self,
        account: Account,
        customer: Prefix,
        transport: Transport,
        quota: AllocationQuota,
    ) -> Result<QuotaLease, Refusal> {
        let client = (&account, customer);
        let held = self.with(|registry| {
            registry.check(client, transport, quota)?;
            Ok(registry.keep(client, transport, quota.rate))
        })?;
        let (rate, limited) = (quota.rate, quota.limited_levels());
        Ok(QuotaLease { registry: self.clone(), account, customer, rate, held, limited })
    }

    /// Returns the network, account or realm with the largest part of a client's use.
    pub(crate) fn share_holder(
        &self,
        account: Account,
        customer: Prefix,
        quota: &AllocationQuota,
    ) -> Option<ShareHolder> {
        let largest =
            self.with(|registry| registry.shares.as_ref()?.largest_use(&account, customer, quota))?;
        Some(match largest {
            UseLevel::Network(network) => ShareHolder::Network(network),
            UseLevel::Account => ShareHolder::Account(account.name),
            UseLevel::Realm => ShareHolder::Realm(account.realm),
        })
    }

    /// Takes the place of an allocation that had it in another process, whatever the quotas are
    /// now.
    pub(crate) fn keep_quota(
        &self,
        account: Account,
        customer: Prefix,
        transport: Transport,
        rate: u64,
    ) -> QuotaLease {
        let held = self.with(|registry| registry.keep((&account, customer), transport, rate));
        let limited = AllocationQuota::default().limited_levels();
        QuotaLease { registry: self.clone(), account, customer, rate, held, limited }
    }

    /// Keeps a port until it is redeemed by its token or expires. Expired reservations are swept
    /// first.
    ///
    /// # Errors
    /// [`Refusal::PortsExhausted`] when there is no room, or the token is taken; the port is free
    /// again then.
    pub(crate) fn reserve(
        &self,
        token: [u8; 8],
        reservation: Reservation,
        now: Instant,
    ) -> Result<(), Refusal> {
        let refused = self.with(|registry| {
            registry.sweep(now);
            registry.reserve(token, reservation)
        });
        // Its lease is dropped outside of the lock.
        if refused.is_none() { Ok(()) } else { Err(Refusal::PortsExhausted) }
    }

    /// The reservations, as `each` describes them.
    pub(crate) fn reserved<T>(&self, each: impl Fn([u8; 8], &Reservation) -> T) -> Vec<T> {
        self.with(|registry| {
            registry.reservations.iter().map(|(token, entry)| each(*token, &entry.held)).collect()
        })
    }

    /// Takes out the reservation with this token, which is good for one Allocate. `None` if it is
    /// unknown, used, expired, or not of an account that `is_own` selects.
    pub(crate) fn redeem(
        &self,
        token: [u8; 8],
        is_own: impl Fn(&Account) -> bool,
        now: Instant,
    ) -> Option<Reservation> {
        self.with(|registry| {
            registry.sweep(now);
            let entry = registry.reservations.get(&token);
            entry.filter(|entry| is_own(&entry.held.account))?;
            registry.remove_reservation(token)
        })
    }

    /// Gives back the ports of expired reservations, and returns the end of the next one.
    pub(crate) fn sweep(&self, now: Instant) -> Option<Instant> {
        self.with(|registry| {
            registry.sweep(now);
            registry.reservations.values().map(|entry| entry.held.expires).min()
        })
    }

    /// Registers the worker of a mobile allocation.
    pub(crate) fn locate(&self, allocation: AllocationId, worker: WorkerId) -> LocationLease {
        LocationLease::new(self.clone(), allocation, worker)
    }

    /// The worker of an allocation, if its client may move.
    pub(crate) fn location_of(&self, allocation: AllocationId) -> Option<WorkerId> {
        self.with(|registry| registry.locations.get(&allocation).map(|found| found.worker))
    }

    /// Makes an allocation end that may be between two workers: it ends when it arrives. Returns
    /// true if there is such an allocation.
    pub(crate) fn end_on_arrival(&self, allocation: AllocationId) -> bool {
        self.with(|registry| {
            let location = registry.locations.get_mut(&allocation);
            location.map(|location| location.ends = true).is_some()
        })
    }
}

impl fmt::Debug for RegistryHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegistryHandle")
    }
}

/// Slots of one allocation.
#[derive(Debug, Default)]
struct HeldShares {
    allocation: Option<Share>,
    connected: ConnectedShares,
}

/// One allocation's place in the quotas; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct QuotaLease {
    registry: RegistryHandle,
    account: Account,
    customer: Prefix,
    /// Bytes per second that it was taken for: a reload changes only later ones.
    rate: u64,
    held: HeldShares,
    limited: LimitedLevels,
}

impl QuotaLease {
    /// Checks that the client, whose allocation is counted, may have one of so many ports.
    ///
    /// # Errors
    /// [`Refusal::PortsShare`]: few are free, and the client has its share of ports.
    pub(crate) fn check_ports(&self, supply: Supply) -> Result<(), Refusal> {
        if !supply.is_scarce() {
            return Ok(());
        }
        let client = self.limited.claimant(&self.account, self.customer);
        self.registry.with(|registry| {
            let shares = registry.shares.as_ref();
            shares.map_or(Ok(()), |shares| shares.check_ports(&client, supply))
        })
    }

    /// Takes a slot for the client that is to come from another 5-tuple, besides the present slot.
    /// `per_customer` is the limit of allocations of one customer; 0 is unlimited.
    ///
    /// # Errors
    /// [`Refusal::AddressQuota`]: the customer there has as many as it may have.
    /// [`Refusal::ConnectionShare`]: little of the table of its connection is left for allocations,
    /// and the client has its share.
    pub(crate) fn expect_at(
        &mut self,
        five_tuple: &FiveTuple,
        per_customer: u32,
    ) -> Result<(), Refusal> {
        let customer = Prefix::customer(five_tuple.client.ip());
        let table = ClientTable::of(five_tuple.transport);
        let Self { registry, account, held, limited, .. } = self;
        let is_elsewhere = customer != self.customer;
        registry.with(|registry| {
            let there = registry.customers.get(&customer).copied().unwrap_or(0);
            if is_elsewhere && per_customer > 0 && there >= per_customer {
                return Err(Refusal::AddressQuota);
            }
            let table = table.filter(|table| !held.connected.has(*table));
            let (Some(table), Some(shares)) = (table, &mut registry.shares) else { return Ok(()) };
            shares.check_table(table, &limited.claimant(account, customer))?;
            shares.connected.keep(table, &claimant(account, customer), &mut held.connected);
            Ok(())
        })
    }

    /// Counts the allocation where its client is now, and only there.
    pub(crate) fn moved_to(&mut self, five_tuple: &FiveTuple) {
        let customer = Prefix::customer(five_tuple.client.ip());
        let before = mem::replace(&mut self.customer, customer);
        let Self { registry, account, held, .. } = self;
        registry.with(|registry| {
            one_less(&mut registry.customers, &before);
            *registry.customers.entry(customer).or_insert(0) += 1;
            let Some(shares) = &mut registry.shares else { return };
            let client = claimant(account, customer);
            shares.connected.release(&mut held.connected);
            if let Some(table) = ClientTable::of(five_tuple.transport) {
                shares.connected.keep(table, &client, &mut held.connected);
            }
            if let Some(share) = held.allocation.take() {
                shares.allocations.release(share);
                held.allocation = Some(shares.allocations.keep(&client));
            }
        });
    }

    /// The customer of its client.
    pub(crate) const fn customer(&self) -> Prefix {
        self.customer
    }

    /// Bytes per second that it was taken for.
    pub(crate) const fn rate(&self) -> u64 {
        self.rate
    }

    pub(crate) const fn account(&self) -> &Account {
        &self.account
    }
}

impl Drop for QuotaLease {
    fn drop(&mut self) {
        let held = mem::take(&mut self.held);
        let Self { registry, account, customer, rate, .. } = self;
        registry.with(|registry| registry.give_back(account, *customer, *rate, held));
    }
}

#[cfg(test)]
mod tests;
