//! Changes of users. A change invalidates the result of a look-up that started before.
//!
//! A store reports changes without names, so each report concerns all users. An operator's order
//! names a user, and look-ups of other users are not repeated.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::cache::Question;
use crate::limits::{CHANGED_MAX, LARGE_REALMS_MAX};
use crate::store::UserQuery;

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
    /// Realms with more changes than the table can store. Every user of these realms is unconfirmed
    /// until the store confirms the user.
    realms: LargeRealms,
    /// Number of changes to the set of unconfirmed users.
    revision: u64,
}

/// Last change of a named user.
#[derive(Debug)]
struct UserChange {
    number: ChangeCount,
    /// True if the store has confirmed the user after the change.
    is_confirmed: bool,
}

/// Bounded set of realms with too many changes. Above the limit, the set covers all realms.
#[derive(Debug, Default)]
struct LargeRealms(HashSet<Arc<str>>);

/// Element that represents all realms. Real realms are never empty.
const ALL_REALMS: &str = "";

impl LargeRealms {
    fn insert(&mut self, realm: Arc<str>) {
        if self.contains(&realm) {
            return;
        }
        if self.0.len() >= LARGE_REALMS_MAX || &*realm == ALL_REALMS {
            self.0 = HashSet::from([ALL_REALMS.into()]);
        } else {
            self.0.insert(realm);
        }
    }

    fn contains(&self, realm: &str) -> bool {
        self.0.contains(realm) || self.0.contains(ALL_REALMS)
    }

    /// Returns a mark for each realm, for a later call of [`Changes::add`].
    fn marks(&self) -> impl Iterator<Item = Question> {
        self.0.iter().map(mark)
    }
}

impl Changes {
    /// Returns the number of changes so far.
    pub(crate) const fn count(&self) -> ChangeCount {
        self.count
    }

    /// Counts a change that may concern any user.
    pub(crate) const fn add_unnamed(&mut self) {
        self.count.0 += 1;
        self.of_any = self.count;
    }

    /// Counts a change of a named user. An empty name is the mark of a realm with too many changes,
    /// as returned by [`unconfirmed`](Self::unconfirmed).
    ///
    /// If the table is full, the users of the largest realm are removed, which counts as a change
    /// of any user. Changes by the operators of one realm therefore do not replace those of
    /// another.
    pub(crate) fn add(&mut self, question: Question) {
        if question == mark(&question.realm) {
            self.realms.insert(question.realm);
            self.revision += 1;
            return;
        }
        if self.of_user.len() >= CHANGED_MAX && !self.of_user.contains_key(&question) {
            self.lose_largest_realm();
        }
        self.count.0 += 1;
        self.of_user.insert(question, UserChange { number: self.count, is_confirmed: false });
        self.revision += 1;
    }

    fn lose_largest_realm(&mut self) {
        let mut users: HashMap<&Arc<str>, usize> = HashMap::new();
        self.of_user.keys().for_each(|question| *users.entry(&question.realm).or_default() += 1);
        let largest = users.into_iter().max_by_key(|(_, users)| *users);
        let Some(realm) = largest.map(|(realm, _)| Arc::clone(realm)) else { return };
        self.of_user.retain(|question, _| question.realm != realm);
        self.realms.insert(realm);
        self.add_unnamed();
    }

    /// Returns true if the user has not changed after the first `count` changes.
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
        } else if self.realms.contains(&question.realm) && self.of_user.len() < CHANGED_MAX {
            let change = UserChange { number: ChangeCount(0), is_confirmed: true };
            self.of_user.entry(question.clone()).or_insert(change);
        }
    }

    /// Returns the number of changes to the set of unconfirmed users.
    pub(crate) const fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the changed users that the store has not confirmed, and the marks of realms with too
    /// many changes.
    pub(crate) fn unconfirmed(&self) -> impl Iterator<Item = Question> {
        let unconfirmed = self.of_user.iter().filter(|(_, change)| !change.is_confirmed);
        unconfirmed.map(|(question, _)| question.clone()).chain(self.realms.marks())
    }

    /// Returns true for a changed user that the store has not confirmed.
    pub(crate) fn is_unconfirmed(&self, question: &Question) -> bool {
        match self.of_user.get(question) {
            Some(change) => !change.is_confirmed,
            None => self.realms.contains(&question.realm),
        }
    }
}

/// Returns the mark of a realm with too many changes. Real users never have an empty name.
fn mark(realm: &Arc<str>) -> Question {
    Question { realm: Arc::clone(realm), user: UserQuery::Name("".into()) }
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
        assert!(changes.is_unconfirmed(&question("0")), "it was changed");
    }

    /// An operator names users of ever new realms.
    #[test]
    fn more_realms_than_fit_are_all_realms() {
        let realm = |number: usize| Arc::from(number.to_string());
        let mut changes = Changes::default();
        for number in 0..=LARGE_REALMS_MAX {
            changes.realms.insert(realm(number));
            assert!(changes.realms.0.len() <= LARGE_REALMS_MAX);
        }
        let mut next = Changes::default();
        changes.unconfirmed().for_each(|question| next.add(question));
        for changes in [changes, next] {
            assert_eq!(changes.unconfirmed().count(), 1);
            assert!((0..=LARGE_REALMS_MAX).all(|number| changes.realms.contains(&realm(number))));
            assert!(changes.is_unconfirmed(&question("of another realm")));
        }
    }

    /// The operator of one realm changes more users than the table can store.
    #[test]
    fn changes_of_one_realm_replace_none_of_another() {
        let ann = Question { realm: "other".into(), ..question("ann") };
        let mut changes = Changes::default();
        changes.add(ann.clone());
        for number in 0..3 * CHANGED_MAX {
            changes.add(question(&number.to_string()));
        }
        assert!(changes.is_unconfirmed(&ann) && changes.is_unconfirmed(&question("0")));
        assert!(!changes.is_unconfirmed(&Question { realm: "other".into(), ..question("bob") }));
        let mut next = Changes::default();
        changes.unconfirmed().for_each(|question| next.add(question));
        assert!(next.is_unconfirmed(&ann) && next.is_unconfirmed(&question("0")));
        next.confirm(&question("0"));
        assert!(
            !next.is_unconfirmed(&question("0")) && next.is_unconfirmed(&question("of nobody"))
        );
    }
}
