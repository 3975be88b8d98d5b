//! Shares of ports, quotas and reservations.
//!
//! Allocations and reservations of each client are counted once. A request uses several tables:
//! the ports of a family, the quotas of the server and of a realm. Each of them that is nearly full
//! compares the count with its free part.

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
    /// An address is one customer's.
    networks: bool,
    /// An account is one user's.
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

    /// Checks a client's shares, for a new allocation, in the quotas of its realm and of
    /// the server.
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

    /// Checks the share of a client, whose allocation is counted, in so many ports.
    pub(super) fn check_ports(&self, client: &Claimant<'_>, supply: Supply) -> Result<(), Refusal> {
        self.check_share(client, 0, supply, Refusal::PortsShare)
    }

    /// Checks the share of a client, for a new allocation, in the table of its connection.
    pub(super) fn check_table(
        &self,
        table: ClientTable,
        client: &Claimant<'_>,
    ) -> Result<(), Refusal> {
        if self.connected.has_slot(table, client) { Ok(()) } else { Err(Refusal::ConnectionShare) }
    }

    /// Level with the largest part of a client's use.
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
            // A full table has another reason.
            Ok(()) | Err(Shortage::Table) => Ok(()),
        }
    }
}

impl AllocationQuota {
    /// Levels at which shares limit a client. An operator who lets an address or a user have any
    /// number of allocations knows it as that of many customers.
    pub(super) const fn limited_levels(&self) -> LimitedLevels {
        LimitedLevels { networks: self.per_customer > 0, account: self.per_account > 0 }
    }

    /// Allocations that limits of their number and rate are enough for, where there are limits.
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
    /// The client as shares limit it.
    pub(super) fn claimant(self, account: &Account, customer: Prefix) -> Claimant<'_> {
        let client = if self.networks {
            Claimant::at(customer.first())
        } else {
            Claimant::at_shared_address()
        };
        client.with_account(&account.realm, if self.account { &account.name } else { "" })
    }
}

/// The client as it is counted.
pub(super) fn claimant(account: &Account, customer: Prefix) -> Claimant<'_> {
    LimitedLevels { networks: true, account: true }.claimant(account, customer)
}
