//! Shares of ports, quotas and reservations.
//!
//! Allocations and reservations of each client are counted once. A request uses several tables: the
//! ports of a family, the quotas of the server, and the quotas of a realm. Each nearly full table
//! compares this count with the free part of the table.

use ahash::RandomState;
use fair_share::{Claimant, LOGGED_IN, Shortage, Slots, Supply, UseLevel};
use turn_types::Prefix;

use super::connected::{ClientTable, ConnectedSlots};
use super::{Account, AllocationQuota, Held};
use crate::io::Refusal;
use crate::limits::RESERVATIONS_MAX;

/// Shares of networks, accounts and realms.
#[derive(Debug)]
pub(super) struct RegistryShares {
    /// Entries in the table of reservations.
    pub(super) reservations: Slots,
    /// Allocations and reservations, for tables of any capacity.
    pub(super) allocations: Slots,
    /// Allocations with connections or DTLS sessions.
    pub(super) connected: ConnectedSlots,
}

/// Levels at which shares limit a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LimitedLevels {
    /// True if an address belongs to a single customer.
    networks: bool,
    /// True if an account belongs to a single user.
    account: bool,
}

impl RegistryShares {
    pub(super) fn new(hasher: RandomState) -> Self {
        Self {
            reservations: Slots::new(&LOGGED_IN, RESERVATIONS_MAX, hasher.clone()),
            connected: ConnectedSlots::new(&hasher),
            allocations: Slots::new(&LOGGED_IN, u32::MAX, hasher),
        }
    }

    /// Checks a client's shares for a new allocation, in the quotas of the server and of the
    /// client's realm.
    pub(super) fn check(
        &self,
        account: &Account,
        customer: Prefix,
        quota: &AllocationQuota,
        held: Held,
        held_in_realm: impl Fn() -> Held,
    ) -> Result<(), Refusal> {
        let client = || quota.limited_levels().claimant(account, customer);
        for supply in quota.supplies(quota.total, quota.total_rate, held) {
            self.check_share(&client(), 1, supply, Refusal::QuotaShare)?;
        }
        if quota.per_realm > 0 || quota.realm_rate > 0 {
            for supply in quota.supplies(quota.per_realm, quota.realm_rate, held_in_realm()) {
                let client = client().within_realm();
                self.check_share(&client, 1, supply, Refusal::QuotaShare)?;
            }
        }
        Ok(())
    }

    /// Checks a client's share of ports, where the client's allocation is already counted.
    pub(super) fn check_ports(&self, client: &Claimant<'_>, supply: Supply) -> Result<(), Refusal> {
        self.check_share(client, 0, supply, Refusal::PortsShare)
    }

    /// Checks a client's share for a new allocation, in the table of the client's connection.
    pub(super) fn check_table(
        &self,
        table: ClientTable,
        client: &Claimant<'_>,
    ) -> Result<(), Refusal> {
        if self.connected.has_slot(table, client) { Ok(()) } else { Err(Refusal::ConnectionShare) }
    }

    /// Returns the level with the largest part of a client's use.
    pub(super) fn largest_use(
        &self,
        account: &Account,
        customer: Prefix,
        quota: &AllocationQuota,
    ) -> Option<UseLevel> {
        self.allocations.largest_use(&quota.limited_levels().claimant(account, customer))
    }

    fn check_share(
        &self,
        client: &Claimant<'_>,
        more: u32,
        supply: Supply,
        refusal: Refusal,
    ) -> Result<(), Refusal> {
        match self.allocations.check_supply(client, more, supply) {
            Err(Shortage::Share) => Err(refusal),
            // A full table has a separate refusal.
            Ok(()) | Err(Shortage::Table) => Ok(()),
        }
    }
}

impl AllocationQuota {
    /// Returns the levels at which shares limit a client. Without a quota for customers or users,
    /// the operator expects many customers to share an address or account. Shares do not limit this
    /// level then.
    pub(super) const fn limited_levels(&self) -> LimitedLevels {
        LimitedLevels { networks: self.per_customer > 0, account: self.per_account > 0 }
    }

    /// Returns the number of allocations permitted by the limits of number and rate. An absent
    /// limit has no item.
    fn supplies(&self, max: u32, rate_max: u64, held: Held) -> impl Iterator<Item = Supply> {
        let free = max.saturating_sub(held.allocations);
        let by_number = (max > 0).then_some(Supply { free, capacity: max });
        let count = |rate: u64| u32::try_from(rate / self.rate).unwrap_or(u32::MAX);
        let by_rate = (rate_max > 0 && self.rate > 0).then(|| Supply {
            free: count(rate_max.saturating_sub(held.rate)),
            capacity: count(rate_max),
        });
        by_number.into_iter().chain(by_rate)
    }
}

impl LimitedLevels {
    /// Returns the client with the levels that shares limit.
    pub(super) fn claimant(self, account: &Account, customer: Prefix) -> Claimant<'_> {
        let client = if self.networks {
            Claimant::at(customer.first())
        } else {
            Claimant::at_shared_address()
        };
        client.with_account(&account.realm, if self.account { &account.name } else { "" })
    }
}

/// Returns the client with the levels that shares count.
pub(super) fn claimant(account: &Account, customer: Prefix) -> Claimant<'_> {
    LimitedLevels { networks: true, account: true }.claimant(account, customer)
}
