//! Table of accounts for which the service is quick. Such accounts are not affected by a slow
//! network.

use std::collections::{HashMap, VecDeque};

/// Maximum number of quick accounts: about 100 KiB. If the table is full, the account that was
/// added first is removed, and is treated as new until its next answer.
const QUICK_ACCOUNTS_MAX: usize = 4096;

/// Keys of accounts whose latest answer was quick, each with the number of consecutive quick
/// answers.
#[derive(Debug, Default)]
pub(in crate::authorizer) struct QuickAccounts {
    accounts: HashMap<u64, u32>,
    /// Keys of the accounts, the first added first. Keys of removed accounts may remain.
    order: VecDeque<u64>,
}

impl QuickAccounts {
    /// Returns the number of consecutive quick answers, or 0 if the latest answer was not quick.
    pub(in crate::authorizer) fn answers(&self, account: u64) -> u32 {
        self.accounts.get(&account).copied().unwrap_or(0)
    }

    /// Records a quick answer.
    pub(in crate::authorizer) fn add(&mut self, account: u64) {
        if let Some(answers) = self.accounts.get_mut(&account) {
            *answers = answers.saturating_add(1);
            return;
        }
        self.accounts.insert(account, 1);
        self.order.push_back(account);
        if self.order.len() > QUICK_ACCOUNTS_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.accounts.remove(&first);
        }
    }

    /// Records a slow answer, or a question without an answer for too long.
    pub(in crate::authorizer) fn remove(&mut self, account: u64) {
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
        accounts.add(1);
        assert_eq!([1, 2].map(|account| accounts.answers(account)), [2, 0]);
        accounts.remove(1);
        assert_eq!(accounts.answers(1), 0);
        accounts.add(1);
        assert_eq!(accounts.answers(1), 1);
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
