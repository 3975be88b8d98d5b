//! Shares of a budget: the recent use of each client.

use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;

use ahash::RandomState;
use turn_types::Instant;

use crate::claimant::{Claimant, Node};
use crate::levels::{Levels, UNIT};

/// Number of rows. The smallest counter of all rows measures a client, and confuses clients only
/// where all rows collide: with 3,000 other networks in the table, for one client in 70.
const ROWS: usize = 4;

/// Counters of one row: all rows have 256 KiB.
const COLUMNS: usize = 8192;

/// Use of clients over time, in a table of a fixed size.
///
/// Each network, account and realm has a leaky bucket, stored as the time at which the bucket is
/// empty. A cost is divided by the weight of the level. All buckets drain a second per second.
#[derive(Debug)]
pub struct Meter {
    levels: &'static Levels,
    /// Nanoseconds of the instant at which each bucket is empty again: [`ROWS`] rows.
    empty_at: Box<[u64]>,
    hasher: RandomState,
}

/// Recent use up to which a client may use more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Longest backlog at the largest level, after the cost.
    pub burst: Duration,
    /// Longest backlog at the smaller levels of a client that uses the last quarter of `burst`.
    pub reserved: Duration,
}

impl Meter {
    /// A meter without any use. The hasher has a secret seed.
    #[must_use]
    pub fn new(levels: &'static Levels, hasher: RandomState) -> Self {
        Self { levels, empty_at: vec![0; ROWS * COLUMNS].into_boxed_slice(), hasher }
    }

    /// Recent use of a client: the longest backlog of networks, account and realm.
    #[must_use]
    pub fn backlog(&self, now: Instant, claimant: &Claimant<'_>) -> Duration {
        let nodes = claimant.nodes(self.levels, &self.hasher);
        nodes.iter().map(|node| self.backlog_of(now, node)).max().unwrap_or_default()
    }

    /// Sum of the backlogs of networks, account and realm. The sum separates clients of one realm
    /// or network.
    pub(crate) fn total_backlog(&self, now: Instant, claimant: &Claimant<'_>) -> Duration {
        let nodes = claimant.nodes(self.levels, &self.hasher);
        nodes.iter().map(|node| self.backlog_of(now, node)).sum()
    }

    /// Charges a client for completed work, without a limit.
    pub fn charge(&mut self, now: Instant, claimant: &Claimant<'_>, cost: Duration) {
        for node in claimant.nodes(self.levels, &self.hasher).iter() {
            let backlog = self.backlog_of(now, node) + cost_at(node, cost);
            self.raise(now, node, backlog);
        }
    }

    /// Charges a client unless its backlog would exceed `burst`. Returns false, and charges
    /// nothing, if it would.
    pub fn spend(
        &mut self,
        now: Instant,
        claimant: &Claimant<'_>,
        cost: Duration,
        burst: Duration,
    ) -> bool {
        let nodes = claimant.nodes(self.levels, &self.hasher);
        let fits =
            nodes.iter().all(|node| self.backlog_of(now, node) + cost_at(node, cost) <= burst);
        if fits {
            self.charge(now, claimant, cost);
        }
        fits
    }

    /// Charges a client unless the largest network has spent the budget. The last quarter of the
    /// budget is for clients with little use. Returns false if nothing was charged.
    pub fn spend_shared(
        &mut self,
        now: Instant,
        claimant: &Claimant<'_>,
        cost: Duration,
        allowance: Allowance,
    ) -> bool {
        let Allowance { burst, reserved } = allowance;
        let (mut largest, mut smaller) = (Duration::ZERO, Duration::ZERO);
        for node in claimant.nodes(self.levels, &self.hasher).iter() {
            // The largest level is the last.
            smaller = smaller.max(largest);
            largest = self.backlog_of(now, node) + cost_at(node, cost);
        }
        let fits = largest <= burst / 4 * 3 || largest <= burst && smaller <= reserved;
        if fits {
            self.charge(now, claimant, cost);
        }
        fits
    }

    fn backlog_of(&self, now: Instant, node: Node) -> Duration {
        let empty_at = columns(node.key).map(|column| self.empty_at[column]).min().unwrap_or(0);
        Instant::from_nanos(empty_at).saturating_since(now)
    }

    /// Raises the buckets that have less than a backlog: others are of clients with more.
    fn raise(&mut self, now: Instant, node: Node, backlog: Duration) {
        let empty_at = (now + backlog).as_nanos();
        for column in columns(node.key) {
            let bucket = &mut self.empty_at[column];
            *bucket = (*bucket).max(empty_at);
        }
    }
}

/// A cost at a level, divided by the weight of the level.
fn cost_at(node: Node, cost: Duration) -> Duration {
    // Both factors are small: no cost is longer than an hour.
    cost * u32::from(node.units) / UNIT
}

/// The counter of a key in each row: 16 bits of the key for each.
fn columns(key: u64) -> impl Iterator<Item = usize> {
    (0..ROWS).map(move |row| {
        let part = (key >> (16 * row)) as usize;
        row * COLUMNS + part % COLUMNS
    })
}

#[cfg(test)]
mod tests;
