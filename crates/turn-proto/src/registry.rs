//! What all workers share besides ports: quotas, reservations, and where an allocation is whose client
//! may move.
//!
//! The [`Registry`] is plain data without a lock; whoever implements [`SharedRegistry`] brings one. It is taken
//! when an allocation begins or ends, never for a packet. Quotas are held through leases, so that an
//! allocation gives back what it holds however it ends.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::fmt;

use turn_types::{AllocationId, Instant, Prefix, RelayedAddr, WorkerId};

use crate::limits::{RESERVATIONS_MAX, RESERVATIONS_PER_ACCOUNT_MAX};
use crate::notice::Refusal;
use crate::ports::PortLease;

/// Access to the one [`Registry`] of a server.
pub trait SharedRegistry: Send + Sync {
    /// Runs `f` once, with nobody else in the registry. `f` must not call back into the same registry.
    fn with(&self, f: &mut dyn FnMut(&mut Registry));
}

/// Live allocations by account, and ports reserved by token.
#[derive(Debug, Default)]
pub struct Registry {
    /// Live allocations of each account that has any; as many entries as allocations at most.
    accounts: BTreeMap<Account, u32>,
    /// Live allocations of each customer that has any.
    customers: BTreeMap<Prefix, u32>,
    /// Live allocations of all accounts.
    total: u32,
    /// Ports kept for a second Allocate; at most [`RESERVATIONS_MAX`].
    reservations: BTreeMap<[u8; 8], Reservation>,
    /// Which worker has each allocation whose client may move; as many entries as allocations at most.
    homes: BTreeMap<AllocationId, Whereabouts>,
}

/// Where an allocation is whose client may move.
#[derive(Clone, Copy, Debug)]
struct Whereabouts {
    /// The worker that has it, or had it last.
    worker: WorkerId,
    /// It is to end as soon as a worker has it.
    ends: bool,
}

/// Whom a quota counts: a name within a realm.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// The realm.
    pub realm: Arc<str>,
    /// The account's name; empty on an open relay, where everybody is nobody in particular and only
    /// the total counts.
    pub name: Arc<str>,
}

/// How many allocations there may be; 0 is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationQuota {
    /// Of one account.
    pub per_account: u32,
    /// Of one customer, whichever accounts they are of.
    pub per_customer: u32,
    /// Of all accounts.
    pub total: u32,
}

/// A port kept for a client that asked for a pair (RESERVATION-TOKEN, RFC 8656 §7.2).
#[derive(Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The address and port.
    pub relayed: RelayedAddr,
    /// What keeps the port.
    pub lease: PortLease,
    /// Whose Allocate reserved it.
    pub account: Account,
    /// Where that came from.
    pub customer: Prefix,
    /// When it is given back.
    pub expires: Instant,
}

/// All reservations that there may be, or that one account may have, are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationsFull;

impl Registry {
    /// An empty registry.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            accounts: BTreeMap::new(),
            customers: BTreeMap::new(),
            total: 0,
            reservations: BTreeMap::new(),
            homes: BTreeMap::new(),
        }
    }

    /// Live allocations of an account.
    #[must_use]
    pub fn allocations_of(&self, account: &Account) -> u32 {
        self.accounts.get(account).copied().unwrap_or(0)
    }

    /// Live allocations of all accounts.
    #[must_use]
    pub const fn allocations(&self) -> u32 {
        self.total
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
    ) -> Result<(), Refusal> {
        let full = |used: u32, max: u32| max != 0 && used >= max;
        if !account.name.is_empty() && full(self.allocations_of(account), quota.per_account) {
            return Err(Refusal::UserQuota);
        }
        let of_customer = self.customers.get(&customer).copied().unwrap_or(0);
        if full(of_customer, quota.per_customer) {
            return Err(Refusal::AddressQuota);
        }
        if full(self.total, quota.total) {
            return Err(Refusal::TotalQuota);
        }
        *self.accounts.entry(account.clone()).or_insert(0) += 1;
        *self.customers.entry(customer).or_insert(0) += 1;
        self.total += 1;
        Ok(())
    }

    fn give_back(&mut self, account: &Account, customer: Prefix) {
        let was_held = one_less(&mut self.accounts, account);
        debug_assert!(was_held, "a quota was given back twice");
        if was_held {
            one_less(&mut self.customers, &customer);
            self.total -= 1;
        }
    }

    /// Whether an account at a customer may reserve one more port. On an open relay everybody is one
    /// account, which has no bound of its own; time-limited names may be a new one each time.
    fn may_reserve(&self, account: &Account, customer: Prefix) -> bool {
        let held = |of: &dyn Fn(&Reservation) -> bool| {
            self.reservations.values().filter(|held| of(held)).count()
        };
        let by_account = held(&|held| held.account == *account);
        self.reservations.len() < RESERVATIONS_MAX
            && (account.name.is_empty() || by_account < RESERVATIONS_PER_ACCOUNT_MAX)
            && held(&|held| held.customer == customer) < RESERVATIONS_PER_ACCOUNT_MAX
    }

    fn sweep(&mut self, now: Instant) {
        self.reservations.retain(|_, reservation| now < reservation.expires);
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

/// One allocation's place in the quotas; given back when it is dropped.
pub struct QuotaLease {
    registry: Arc<dyn SharedRegistry>,
    account: Account,
    customer: Prefix,
}

impl QuotaLease {
    /// Where it was taken from. A client that moves takes its place along.
    #[must_use]
    pub const fn customer(&self) -> Prefix {
        self.customer
    }

    /// Whose quota it is.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }
}

impl Drop for QuotaLease {
    fn drop(&mut self) {
        self.registry.with(&mut |registry| registry.give_back(&self.account, self.customer));
    }
}

impl fmt::Debug for QuotaLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QuotaLease").field(&self.account).finish()
    }
}

/// Tells all workers where an allocation is; they are told otherwise when it is dropped.
pub(crate) struct Home {
    registry: Arc<dyn SharedRegistry>,
    allocation: AllocationId,
}

impl Home {
    /// Whose home it is.
    pub(crate) const fn allocation(&self) -> AllocationId {
        self.allocation
    }

    /// The allocation has come to another worker. Returns whether it is to end there.
    pub(crate) fn moved_to(&self, worker: WorkerId) -> bool {
        let mut ends = false;
        self.registry.with(&mut |registry| {
            let new = Whereabouts { worker, ends: false };
            let found = registry.homes.entry(self.allocation).or_insert(new);
            found.worker = worker;
            ends = found.ends;
        });
        ends
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.registry.with(&mut |registry| {
            registry.homes.remove(&self.allocation);
        });
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Home").field(&self.allocation).finish()
    }
}

/// Tells all workers that `worker` has an allocation.
pub(crate) fn settle(
    registry: &Arc<dyn SharedRegistry>,
    allocation: AllocationId,
    worker: WorkerId,
) -> Home {
    let home = Home { registry: Arc::clone(registry), allocation };
    home.moved_to(worker);
    home
}

/// Has an allocation end that no worker can be sure to have: the one that has it ends it when asked, and one
/// that it is on its way to when it arrives. Returns whether there is such an allocation.
pub(crate) fn end_on_arrival(registry: &Arc<dyn SharedRegistry>, allocation: AllocationId) -> bool {
    let mut found = false;
    registry.with(&mut |registry| {
        if let Some(whereabouts) = registry.homes.get_mut(&allocation) {
            whereabouts.ends = true;
            found = true;
        }
    });
    found
}

/// Which worker has an allocation, if its client may move.
pub(crate) fn home_of(
    registry: &Arc<dyn SharedRegistry>,
    allocation: AllocationId,
) -> Option<WorkerId> {
    let mut home = None;
    registry.with(&mut |registry| home = registry.homes.get(&allocation).map(|found| found.worker));
    home
}

/// Takes a place for one allocation.
///
/// # Errors
/// [`Refusal::UserQuota`], [`Refusal::AddressQuota`] or [`Refusal::TotalQuota`] when the quota is used up;
/// nothing is taken then.
pub fn take_quota(
    registry: &Arc<dyn SharedRegistry>,
    (account, customer): (Account, Prefix),
    quota: AllocationQuota,
) -> Result<QuotaLease, Refusal> {
    let mut taken = Err(Refusal::TotalQuota);
    registry.with(&mut |registry| taken = registry.take(&account, customer, quota));
    taken.map(|()| QuotaLease { registry: Arc::clone(registry), account, customer })
}

/// Keeps a port until it is redeemed by its token or expires. Reservations that have expired are swept
/// first.
///
/// # Errors
/// [`ReservationsFull`] when there is no room, or the token is taken; the port is free again then.
pub fn reserve(
    registry: &Arc<dyn SharedRegistry>,
    token: [u8; 8],
    reservation: Reservation,
    now: Instant,
) -> Result<(), ReservationsFull> {
    let mut reservation = Some(reservation);
    registry.with(&mut |registry| {
        registry.sweep(now);
        if let Some(kept) = reservation.take_if(|kept| {
            registry.may_reserve(&kept.account, kept.customer)
                && !registry.reservations.contains_key(&token)
        }) {
            registry.reservations.insert(token, kept);
        }
    });
    if reservation.is_none() { Ok(()) } else { Err(ReservationsFull) }
}

/// Takes the reservation with this token out of the registry: a token is good for one Allocate. `None` if
/// it is unknown, used or expired.
pub fn redeem(
    registry: &Arc<dyn SharedRegistry>,
    token: [u8; 8],
    now: Instant,
) -> Option<Reservation> {
    let mut found = None;
    registry.with(&mut |registry| {
        registry.sweep(now);
        found = registry.reservations.remove(&token);
    });
    found
}

/// Gives back the ports of reservations that have expired, and says when the next one will.
pub fn sweep(registry: &Arc<dyn SharedRegistry>, now: Instant) -> Option<Instant> {
    let mut next = None;
    registry.with(&mut |registry| {
        registry.sweep(now);
        next = registry.reservations.values().map(|reservation| reservation.expires).min();
    });
    next
}

#[cfg(test)]
mod tests;
