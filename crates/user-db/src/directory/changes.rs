//! Changes of users. A change outdates the result of a look-up that started before.
//!
//! A store reports changes without names: each report concerns all users. An operator's order names
//! a user, and look-ups of other users are not repeated.

use std::collections::HashMap;

use crate::cache::Question;
use crate::limits::CHANGED_MAX;

/// Number of changes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeCount(u64);

/// Bounded table of changes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    count: ChangeCount,
    /// Last change of unnamed users.
    of_any: ChangeCount,
    of_user: HashMap<Question, UserChange>,
    /// Number of changes of the set of unconfirmed users.
    revision: u64,
}

/// Last change of a named user.
#[derive(Debug)]
struct UserChange {
    number: ChangeCount,
    /// The store has confirmed the user after the change.
    is_confirmed: bool,
}

impl Changes {
    /// Number of changes so far.
    pub(crate) const fn count(&self) -> ChangeCount {
        self.count
    }

    /// Counts a change that may concern any user.
    pub(crate) const fn add_unnamed(&mut self) {
        self.count.0 += 1;
        self.of_any = self.count;
    }

    /// Counts a change of a named user. A full table is emptied, which counts as a change of any
    /// user.
    pub(crate) fn add(&mut self, question: Question) {
        if self.of_user.len() >= CHANGED_MAX && !self.of_user.contains_key(&question) {
            self.of_user.clear();
            self.add_unnamed();
        }
        self.count.0 += 1;
        self.of_user.insert(question, UserChange { number: self.count, is_confirmed: false });
        self.revision += 1;
    }

    /// Returns true if no change of the user has followed the first `count` changes.
    pub(crate) fn is_current(&self, question: &Question, count: ChangeCount) -> bool {
        let of_user = self.of_user.get(question).map_or(ChangeCount(0), |change| change.number);
        count >= self.of_any && count >= of_user
    }

    /// Marks a changed user as confirmed by the store.
    pub(crate) fn confirm(&mut self, question: &Question) {
        if let Some(change) = self.of_user.get_mut(question)
            && !change.is_confirmed
        {
            change.is_confirmed = true;
            self.revision += 1;
        }
    }

    /// Number of changes of the set of unconfirmed users.
    pub(crate) const fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the changed users without a confirmation of the store.
    pub(crate) fn unconfirmed(&self) -> impl Iterator<Item = &Question> {
        let unconfirmed = self.of_user.iter().filter(|(_, change)| !change.is_confirmed);
        unconfirmed.map(|(question, _)| question)
    }

    /// Returns true for a changed user without a confirmation of the store.
    pub(crate) fn is_unconfirmed(&self, question: &Question) -> bool {
        self.of_user.get(question).is_some_and(|change| !change.is_confirmed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::UserQuery;

    fn question(name: &str) -> Question {
        Question { realm: "r".into(), user: UserQuery::Name(name.into()) }
    }

    #[test]
    fn a_change_of_one_user_outdates_no_answer_about_another() {
        let (ann, bob) = (question("ann"), question("bob"));
        let mut changes = Changes::default();
        let before = changes.count();
        changes.add(ann.clone());
        assert!(!changes.is_current(&ann, before) && changes.is_current(&bob, before));
        assert!(changes.is_current(&ann, changes.count()));
        changes.add_unnamed();
        assert!(!changes.is_current(&bob, before));
    }

    #[test]
    fn a_user_is_unconfirmed_until_the_store_has_it() {
        let ann = question("ann");
        let mut changes = Changes::default();
        assert!(!changes.is_unconfirmed(&ann));
        changes.add(ann.clone());
        assert!(changes.is_unconfirmed(&ann));
        changes.confirm(&ann);
        assert!(!changes.is_unconfirmed(&ann));
        changes.add(ann.clone());
        assert!(changes.is_unconfirmed(&ann), "changed again");
        let revision = changes.revision();
        changes.confirm(&question("bob"));
        assert_eq!((changes.unconfirmed().count(), changes.revision()), (1, revision));
        changes.confirm(&ann);
        assert_eq!(changes.unconfirmed().count(), 0);
        assert_ne!(changes.revision(), revision);
    }

    #[test]
    fn more_changes_than_fit_outdate_all_answers_from_before() {
        let mut changes = Changes::default();
        let before = changes.count();
        for number in 0..=CHANGED_MAX {
            changes.add(question(&number.to_string()));
            assert!(changes.of_user.len() <= CHANGED_MAX);
        }
        assert!(!changes.is_current(&question("0"), before));
        assert!(!changes.is_current(&question("of nobody"), before));
    }
}
