//! State shared by all workers in addition to ports: quotas, reservations, and the workers of
//! mobile allocations.
//!
//! The [`Registry`] is plain data, and implementations of [`SharedRegistry`] add a lock. Workers
//! take the lock when an allocation is created, moved or removed, and never for a packet. An
//! allocation has leases of quotas and locations, and releases them on every path of removal.

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

/// Access to the [`Registry`] of a server.
pub trait SharedRegistry: Send + Sync {
    /// Runs `f` once with exclusive access. `f` must not call back into this registry.
    fn with(&self, f: &mut dyn FnMut(&mut Registry));
}

/// Live allocations by account, customer and realm, reserved ports by token, and workers by mobile
/// allocation.
#[derive(Debug, Default)]
pub struct Registry {
    /// Number of live allocations per account. The map has an entry for each account with an
    /// allocation.
    accounts: BTreeMap<Account, u32>,
    /// Number of live allocations per customer. The map has an entry for each customer with an
    /// allocation.
    customers: BTreeMap<Prefix, u32>,
    /// Totals of each realm with a live allocation. The map has at most one entry for each realm
    /// ever configured.
    realms: BTreeMap<Realm, Held>,
    /// Totals of all accounts.
    total: Held,
    /// Ports reserved for a second Allocate, at most
    /// [`RESERVATIONS_MAX`](crate::limits::RESERVATIONS_MAX).
    reservations: BTreeMap<[u8; 8], ReservationEntry>,
    /// Shares of networks, accounts and realms. `None` before the first worker.
    shares: Option<RegistryShares>,
    /// Worker of each mobile allocation.
    locations: BTreeMap<AllocationId, Location>,
}

/// Totals of live allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    allocations: u32,
    /// Sum of the allocations' maximum rates, in bytes per second and direction.
    rate: u64,
}

/// Key of a quota: a name within a realm.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Account {
    pub(crate) realm: Realm,
    /// Name of the account; empty on an open relay, where the limit per account does not apply.
    pub(crate) name: Arc<str>,
}

/// Limits of live allocations; 0 is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllocationQuota {
    pub(crate) per_account: u32,
    /// Limit for all accounts of a realm.
    pub(crate) per_realm: u32,
    /// Limit for a customer, over all accounts.
    pub(crate) per_customer: u32,
    /// Limit for all accounts.
    pub(crate) total: u32,
    /// Maximum rate of the new allocation in bytes per second and direction. 0 adds nothing to the
    /// sums that the next two limits bound.
    pub(crate) rate: u64,
    /// Limit for the sum of rates of all accounts of a realm.
    pub(crate) realm_rate: u64,
    /// Limit for the sum of rates of all accounts.
    pub(crate) total_rate: u64,
}

/// Port reserved for a client that requested a pair (RESERVATION-TOKEN, RFC 8656 §7.2).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) relayed: RelayedAddr,
    pub(crate) lease: PortLease,
    /// Account and customer of the Allocate that reserved the port.
    pub(crate) account: Account,
    pub(crate) customer: Prefix,
    pub(crate) expires: Instant,
}

/// Reservation with shares of the table and of the ports.
#[derive(Debug)]
struct ReservationEntry {
    held: Reservation,
    share: Share,
    port_share: Share,
}

impl Reservation {
    /// Returns the client that shares of the table count.
    fn claimant(&self) -> Claimant<'_> {
        claimant(&self.account, self.customer)
    }
}

impl Registry {
    /// Returns an empty registry.
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

    /// Returns the number of live allocations of an account.
    pub(crate) fn allocations_of(&self, account: &Account) -> u32 {
        self.accounts.get(account).copied().unwrap_or(0)
    }

    /// Returns the number of live allocations of a realm.
    #[must_use]
    pub fn allocations_in(&self, realm: &str) -> u32 {
        self.held_in(realm).allocations
    }

    fn held_in(&self, realm: &str) -> Held {
        self.realms.get(realm).copied().unwrap_or_default()
    }

    /// Returns the number of live allocations of all accounts.
    #[must_use]
    pub const fn allocations(&self) -> u32 {
        self.total.allocations
    }

    /// Returns the number of reserved ports, including expired reservations until the next sweep.
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

    /// Reserves a port. Returns the reservation if the account or customer has the maximum number
    /// of reservations. Also returned if the token is taken, or if few slots are left and the
    /// client's share is used up.
    ///
    /// An open relay has a single account, without a separate limit. Time-limited names may appear
    /// as a new account each time, so the customer is limited too.
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

/// Decrements a count. Returns false if there was no count.
fn one_less<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
    true
}

/// A worker's access to the registry.
#[derive(Clone)]
pub(crate) struct RegistryHandle(Arc<dyn SharedRegistry>);

impl RegistryHandle {
    /// Returns a worker's access. `hasher` has a secret seed, and only the hasher of the first
    /// worker is used.
    pub(crate) fn new(registry: Arc<dyn SharedRegistry>, hasher: RandomState) -> Self {
        let handle = Self(registry);
        handle.with(|registry| {
            registry.shares.get_or_insert_with(|| RegistryShares::new(hasher));
        });
        handle
    }

    /// Sets whether realms compete for ports and quotas, and sets the limits of allocations with
    /// connections or DTLS sessions.
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

    /// Takes a slot in the quotas for an allocation of a client over `transport`.
    ///
    /// # Errors
    /// Nothing is taken on an error. [`Refusal::UserQuota`], [`Refusal::AddressQuota`],
    /// [`Refusal::RealmQuota`], [`Refusal::TotalQuota`] or [`Refusal::BandwidthQuota`]: the quota
    /// is used up. [`Refusal::QuotaShare`]: little of a quota is left, and the client's share is
    /// used up. [`Refusal::ConnectionShare`]: little of the client's connection table is left, and
    /// the client's share is used up.
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

    /// Takes the slot of an allocation imported from another process, regardless of the present
    /// quotas.
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

    /// Reserves a port until a client redeems the token or the reservation expires. Expired
    /// reservations are swept first.
    ///
    /// # Errors
    /// [`Refusal::PortsExhausted`]: no reservation is available for the client, or the token is
    /// taken. The port is released.
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
        // The lease is dropped outside of the lock.
        if refused.is_none() { Ok(()) } else { Err(Refusal::PortsExhausted) }
    }

    /// Returns the reservations, as converted by `each`.
    pub(crate) fn reserved<T>(&self, each: impl Fn([u8; 8], &Reservation) -> T) -> Vec<T> {
        self.with(|registry| {
            registry.reservations.iter().map(|(token, entry)| each(*token, &entry.held)).collect()
        })
    }

    /// Removes the reservation of a token, which is valid for one Allocate. Returns `None` if the
    /// token is unknown, used or expired, or if `is_own` rejects the account of the reservation.
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

    /// Releases the ports of expired reservations. Returns the next expiry.
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

    /// Returns the worker of an allocation with a mobile client.
    pub(crate) fn location_of(&self, allocation: AllocationId) -> Option<WorkerId> {
        self.with(|registry| registry.locations.get(&allocation).map(|found| found.worker))
    }

    /// Ends an allocation that may be on the way between two workers. The allocation is removed on
    /// arrival. Returns true if the allocation is registered.
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

/// Shares held by one allocation.
#[derive(Debug, Default)]
struct HeldShares {
    allocation: Option<Share>,
    connected: ConnectedShares,
}

/// Allocation's slot in the quotas. Dropping the lease releases the slot.
#[derive(Debug)]
pub(crate) struct QuotaLease {
    registry: RegistryHandle,
    account: Account,
    customer: Prefix,
    /// Rate charged to the quotas, in bytes per second. A reload changes only the rate of later
    /// allocations.
    rate: u64,
    held: HeldShares,
    limited: LimitedLevels,
}

impl QuotaLease {
    /// Checks the client's share of ports, where the client's allocation is already counted.
    ///
    /// # Errors
    /// [`Refusal::PortsShare`]: few ports are free, and the client's share is used up.
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

    /// Takes a slot for the client at another 5-tuple, in addition to the present slot.
    /// `per_customer` is the maximum number of allocations per customer; 0 is unlimited.
    ///
    /// # Errors
    /// [`Refusal::AddressQuota`]: the customer at the new address has the maximum number of
    /// allocations. [`Refusal::ConnectionShare`]: little of the table for the new connection is
    /// left for allocations, and the client's share is used up.
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

    /// Counts the allocation at the client's new 5-tuple, and no longer at the old 5-tuple.
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

    /// Returns the customer of the client.
    pub(crate) const fn customer(&self) -> Prefix {
        self.customer
    }

    /// Returns the rate charged to the quotas, in bytes per second.
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
