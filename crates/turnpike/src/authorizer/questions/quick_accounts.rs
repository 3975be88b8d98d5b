//! Memory of accounts for which the service is quick: a slow network does not stop them.

use std::collections::{HashSet, VecDeque};

/// Maximum number of quick accounts: some 100 KiB. The account that was added first is removed, and
/// is like a new one until its next answer.
const QUICK_ACCOUNTS_MAX: usize = 4096;

/// Keys of accounts whose latest answer was quick.
#[derive(Debug, Default)]
pub(super) struct QuickAccounts {
    accounts: HashSet<u64>,
    /// The first added first. Keys of removed accounts may remain.
    order: VecDeque<u64>,
}

impl QuickAccounts {
    /// Returns true if the latest answer was quick.
    pub(super) fn has(&self, account: u64) -> bool {
        self.accounts.contains(&account)
    }

    /// Notes a quick answer.
    pub(super) fn add(&mut self, account: u64) {
        if !self.accounts.insert(account) {
            return;
        }
        self.order.push_back(account);
        if self.order.len() > QUICK_ACCOUNTS_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.accounts.remove(&first);
        }
    }

    /// Notes a slow answer, or none for too long.
    pub(super) fn remove(&mut self, account: u64) {
        self.accounts.remove(&account);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_answer_counts() {
        let mut accounts = QuickAccounts::default();
        accounts.add(1);
        assert!(accounts.has(1) && !accounts.has(2));
        accounts.remove(1);
        assert!(!accounts.has(1));
        accounts.add(1);
        assert!(accounts.has(1));
    }

    #[test]
    fn their_number_is_bounded() {
        let mut accounts = QuickAccounts::default();
        for account in 0..2 * QUICK_ACCOUNTS_MAX as u64 {
            accounts.add(account);
            if account % 2 == 0 {
                accounts.remove(account);
            }
        }
        assert_eq!(accounts.order.len(), QUICK_ACCOUNTS_MAX);
        assert_eq!(accounts.accounts.len(), QUICK_ACCOUNTS_MAX / 2);
    }
}
