//! The state that all workers share besides ports: quotas, reservations, and the workers of mobile
//! allocations.
//!
//! The [`Registry`] is plain data; implementations of [`SharedRegistry`] add a lock. It is taken
//! when an allocation begins or ends, never for a packet. Quotas and locations are held through
//! leases, so that an allocation gives them back however it ends.

mod shares;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use ahash::RandomState;
use fair_share::{Claimant, Share, Supply, UseLevel};
use turn_types::{AllocationId, Instant, Prefix, Realm, RelayedAddr, WorkerId};

use self::shares::{LimitedLevels, RegistryShares, claimant};
use crate::io::{Refusal, ShareHolder};
use crate::limits::RESERVATIONS_PER_ACCOUNT_MAX;
use crate::policy::PortLease;

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

/// The worker of a mobile allocation, whose client may move.
#[derive(Clone, Copy, Debug)]
struct Location {
    /// The worker that has it, or had it last.
    worker: WorkerId,
    /// It is to end as soon as a worker has it.
    ends: bool,
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

    fn take(
        &mut self,
        account: &Account,
        customer: Prefix,
        quota: AllocationQuota,
    ) -> Result<Option<Share>, Refusal> {
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
        if let Some(shares) = &self.shares {
            let held_in_realm = || self.held_in(&account.realm);
            shares.check(account, customer, &quota, self.total, held_in_realm)?;
        }
        *self.accounts.entry(account.clone()).or_insert(0) += 1;
        *self.customers.entry(customer).or_insert(0) += 1;
        self.realms.entry(account.realm.clone()).or_default().add(quota.rate);
        self.total.add(quota.rate);
        let shares = self.shares.as_mut();
        Ok(shares.map(|shares| shares.allocations.keep(&claimant(account, customer))))
    }

    fn give_back(&mut self, account: &Account, customer: Prefix, rate: u64, share: Option<Share>) {
        if let (Some(shares), Some(share)) = (&mut self.shares, share) {
            shares.allocations.release(share);
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

    /// Sets if realms compete for ports and quotas.
    pub(crate) fn set_realms_compete(&self, compete: bool) {
        self.with(|registry| {
            if let Some(shares) = &mut registry.shares {
                shares.reservations.set_realms_compete(compete);
                shares.allocations.set_realms_compete(compete);
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

    /// Takes a place for one allocation.
    ///
    /// # Errors
    /// [`Refusal::UserQuota`], [`Refusal::AddressQuota`], [`Refusal::RealmQuota`],
    /// [`Refusal::TotalQuota`] or [`Refusal::BandwidthQuota`] when the quota is used up,
    /// [`Refusal::QuotaShare`] when little is left and the client has its share; nothing is taken
    /// then.
    pub(crate) fn take_quota(
        &self,
        account: Account,
        customer: Prefix,
        quota: AllocationQuota,
    ) -> Result<QuotaLease, Refusal> {
        let share = self.with(|registry| registry.take(&account, customer, quota))?;
        let (rate, limited) = (quota.rate, quota.limited_levels());
        Ok(QuotaLease { registry: self.clone(), account, customer, rate, share, limited })
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
    pub(crate) fn keep_quota(&self, account: Account, customer: Prefix, rate: u64) -> QuotaLease {
        let unlimited = AllocationQuota { rate, ..AllocationQuota::default() };
        let kept = self.with(|registry| registry.take(&account, customer, unlimited));
        debug_assert!(kept.is_ok(), "nothing is limited");
        let (share, limited) = (kept.ok().flatten(), unlimited.limited_levels());
        QuotaLease { registry: self.clone(), account, customer, rate, share, limited }
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
        let mut lease = LocationLease { registry: self.clone(), allocation, worker };
        lease.moved_to(worker);
        lease
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

/// One allocation's place in the quotas; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct QuotaLease {
    registry: RegistryHandle,
    account: Account,
    customer: Prefix,
    /// Bytes per second that it was taken for: a reload changes only later ones.
    rate: u64,
    share: Option<Share>,
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

    /// The customer that it was taken for. A client that moves takes its place along.
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
        let share = self.share.take();
        let Self { registry, account, customer, rate, .. } = self;
        registry.with(|registry| registry.give_back(account, *customer, *rate, share));
    }
}

/// The registered location of an allocation; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct LocationLease {
    registry: RegistryHandle,
    allocation: AllocationId,
    worker: WorkerId,
}

impl LocationLease {
    pub(crate) const fn allocation(&self) -> AllocationId {
        self.allocation
    }

    /// Registers another worker. Returns true if the allocation is to end there.
    pub(crate) fn moved_to(&mut self, worker: WorkerId) -> bool {
        self.worker = worker;
        self.registry.with(|registry| {
            let new = Location { worker, ends: false };
            let location = registry.locations.entry(self.allocation).or_insert(new);
            location.worker = worker;
            location.ends
        })
    }
}

impl Drop for LocationLease {
    fn drop(&mut self) {
        self.registry.with(|registry| {
            // Of two copies of an allocation, at two workers, the later one counts.
            let is_own = |found: &Location| found.worker == self.worker;
            if registry.locations.get(&self.allocation).is_some_and(is_own) {
                registry.locations.remove(&self.allocation);
            }
        });
    }
}

#[cfg(test)]
mod tests;
